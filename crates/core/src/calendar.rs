//! The calendar that budgets follow: days, weeks and months in UTC, as plain numbers.
//!
//! A week begins on Monday, as in ISO 8601. The numbers of each span grow by one from span to
//! span, so that the next span of a number is that number plus one.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

pub const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
const DAYS_PER_WEEK: u64 = 7;
/// The first of January 1970 was a Thursday: the week that holds it began three days earlier.
const EPOCH_WEEKDAY: u64 = 3;
const MONTHS_PER_YEAR: u64 = 12;
const EPOCH_YEAR: u64 = 1970;
/// The Gregorian calendar repeats itself after this many years and days.
const CYCLE_YEARS: u64 = 400;
const CYCLE_DAYS: u64 = 146_097;

/// A stretch of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    Day,
    Week,
    Month,
}

impl Span {
    /// The number of the span that holds this moment; the one that holds the epoch is 0.
    #[must_use]
    pub fn number(self, at: Timestamp) -> u64 {
        let day = at.0 / DAY_MS;
        match self {
            Span::Day => day,
            Span::Week => (day + EPOCH_WEEKDAY) / DAYS_PER_WEEK,
            Span::Month => month_of(day),
        }
    }

    /// The first moment of a span.
    #[must_use]
    pub fn starts_at(self, number: u64) -> Timestamp {
        let day = match self {
            Span::Day => number,
            Span::Week => number.saturating_mul(DAYS_PER_WEEK).saturating_sub(EPOCH_WEEKDAY),
            Span::Month => first_day_of(number),
        };
        Timestamp(day.saturating_mul(DAY_MS))
    }

    /// When what was used up in the span of this moment begins anew.
    #[must_use]
    pub fn ends_at(self, at: Timestamp) -> Timestamp {
        self.starts_at(self.number(at) + 1)
    }
}

/// A moment as people write it.
#[must_use]
pub fn utc(at: Timestamp) -> String {
    let day = at.0 / DAY_MS;
    let month = month_of(day);
    let (year, of_year) = (EPOCH_YEAR + month / MONTHS_PER_YEAR, month % MONTHS_PER_YEAR + 1);
    let of_month = day.saturating_sub(first_day_of(month)) + 1;
    let seconds = at.0 % DAY_MS / 1_000;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{of_year:02}-{of_month:02} {hours:02}:{minutes:02}:{seconds:02} UTC")
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(month: u64, year: u64) -> u64 {
    match month {
        3 | 5 | 8 | 10 => 30,
        1 if is_leap(year) => 29,
        1 => 28,
        _ => 31,
    }
}

/// Leap days in the years before this one.
fn leap_days_before(year: u64) -> u64 {
    let past = year - 1;
    past / 4 - past / 100 + past / 400
}

fn first_day_of_year(year: u64) -> u64 {
    (year - EPOCH_YEAR) * 365 + leap_days_before(year) - leap_days_before(EPOCH_YEAR)
}

fn month_of(day: u64) -> u64 {
    let cycles = day / CYCLE_DAYS;
    let day = day % CYCLE_DAYS;
    // At most one too late: a year has at least 365 days.
    let guess = EPOCH_YEAR + day / 365;
    let year = if first_day_of_year(guess) > day { guess - 1 } else { guess };
    let mut left = day - first_day_of_year(year);
    let mut month = 0;
    while left >= days_in(month, year) {
        left -= days_in(month, year);
        month += 1;
    }
    (cycles * CYCLE_YEARS + year - EPOCH_YEAR) * MONTHS_PER_YEAR + month
}

fn first_day_of(month: u64) -> u64 {
    /// Beyond the last moment that a timestamp can name.
    const MONTHS_MAX: u64 = u64::MAX / DAY_MS / 28;
    let month = month.min(MONTHS_MAX);
    let year = EPOCH_YEAR + month / MONTHS_PER_YEAR;
    let earlier = (0..month % MONTHS_PER_YEAR).map(|month| days_in(month, year));
    first_day_of_year(year) + earlier.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_day(day: u64) -> Timestamp {
        Timestamp(day * DAY_MS)
    }

    /// Dates that a person can look up: a budget that resets on the wrong day is a wrong budget.
    #[test]
    fn spans_begin_where_the_calendar_says() {
        // 2024-02-29, a leap day and a Thursday.
        let leap = Timestamp(1_709_164_800_000);
        assert_eq!(Span::Month.ends_at(leap), Timestamp(1_709_251_200_000), "2024-03-01");
        assert_eq!(Span::Week.ends_at(leap), Timestamp(1_709_510_400_000), "Monday 2024-03-04");
        assert_eq!(Span::Day.ends_at(leap), Timestamp(1_709_251_200_000));
        // 2025-12-31 23:59:59.999, a Wednesday; the ISO week runs into the next year.
        let eve = Timestamp(1_767_225_599_999);
        assert_eq!(Span::Month.ends_at(eve), Timestamp(1_767_225_600_000), "2026-01-01");
        assert_eq!(Span::Week.ends_at(eve), Timestamp(1_767_571_200_000), "Monday 2026-01-05");
        assert_eq!(Span::Month.number(eve), (2025 - 1970) * 12 + 11);
        // 2100 is no leap year.
        let february_2100 = Span::Month.starts_at((2100 - 1970) * 12 + 1);
        assert_eq!(Span::Month.ends_at(february_2100).ms_since(february_2100), 28 * DAY_MS);
    }

    #[test]
    fn moments_read_as_people_write_them() {
        assert_eq!(utc(Timestamp(0)), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(Timestamp(1_709_164_800_000)), "2024-02-29 00:00:00 UTC");
        assert_eq!(utc(Timestamp(1_767_225_599_999)), "2025-12-31 23:59:59 UTC");
    }

    /// Every day lies in exactly one span of each kind, over more than a whole cycle of the
    /// calendar.
    #[test]
    fn spans_follow_each_other_without_a_gap() {
        for span in [Span::Day, Span::Week, Span::Month] {
            for day in 0..150_000 {
                let number = span.number(at_day(day));
                assert!(span.starts_at(number) <= at_day(day), "{span:?} {day}");
                assert!(span.starts_at(number + 1) > at_day(day), "{span:?} {day}");
            }
        }
    }

    #[test]
    fn the_end_of_time_does_not_wrap_around() {
        let last = Timestamp(u64::MAX);
        for span in [Span::Day, Span::Week, Span::Month] {
            assert!(span.ends_at(last) >= span.starts_at(span.number(last)), "{span:?}");
        }
    }
}
