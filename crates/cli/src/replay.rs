//! `kapelle replay`: the project as it was, and what changed between two moments.

use std::collections::BTreeMap;

use kapelle_core::calendar::{DAY_MS, Span};
use kapelle_core::{Seq, State, Timestamp};
use kapelle_server::{view, wire};
use kapelle_store::{Moment, Reader};
use serde::Serialize;
use serde_json::Value;

use crate::args::ReplayArgs;
use crate::look;
use crate::output::{Exit, Problem, print, print_json};
use crate::project::Project;

const TIME_HINT: &str = "a time is in UTC and looks like 2026-11-16T09:30:00Z or 2026-11-16T09:30:00.250Z; \
                         seconds, the whole time of day and the Z may be left out";

/// As fine as any clock tells; the journal keeps three of them.
const FRACTION_DIGITS_MAX: usize = 9;

/// Missions and tasks at a moment.
#[derive(Debug, Serialize)]
struct Then {
    seq: Seq,
    missions: Vec<wire::Mission>,
    tasks: Vec<wire::Task>,
}

/// One thing that is not as it was.
#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    what: String,
    field: String,
    from: Value,
    to: Value,
}

pub async fn replay(args: ReplayArgs) -> Result<Exit, Problem> {
    let (at, to) = (moment(&args.at)?, args.diff.as_deref().map(moment).transpose()?);
    let project = Project::here().await?;
    let (reader, _) = project.read()?;
    let then = look_at(&reader, at)?;
    let Some(to) = to else {
        if args.json {
            print_json(&then)?;
        } else {
            show(&then);
        }
        return Ok(Exit::Done);
    };
    let later = look_at(&reader, to)?;
    let differences = differences(&then, &later)?;
    if args.json {
        let (from, to) = (then.seq, later.seq);
        print_json(&serde_json::json!({ "from": from, "to": to, "differences": differences }))?;
        return Ok(Exit::Done);
    }
    print(format!("from record {} to record {}", then.seq, later.seq));
    for Difference { what, field, from, to } in differences {
        print(format!("{what}  {field}: {} → {}", plain(&from), plain(&to)));
    }
    Ok(Exit::Done)
}

fn look_at(reader: &Reader, moment: Moment) -> Result<Then, Problem> {
    let head = reader.head()?.seq;
    if let Moment::Seq(seq) = moment
        && seq > head
    {
        return Err(Problem::refused(format!("the journal ends at record {head}"))
            .hint("kapelle log --json shows the records with their numbers"));
    }
    let (state, seq) = reader.state_at(moment)?;
    Ok(then(&state, seq))
}

fn then(state: &State, seq: Seq) -> Then {
    let missions = state.missions().map(|mission| view::mission(state, mission)).collect();
    Then { seq, missions, tasks: look::rows(state) }
}

fn show(then: &Then) {
    print(format!("as of record {}", then.seq));
    for mission in &then.missions {
        let goal = mission.goal.lines().next().unwrap_or("");
        let (done, total) = (mission.tasks_completed, mission.tasks_total);
        print(format!("{}  {}  {done}/{total} tasks  {goal}", mission.id, mission.status));
    }
    for task in &then.tasks {
        print(format!("{}/{}  {}  {}", task.mission, task.name, task.status, task.title));
    }
}

/// By name and field, as programs would see them.
fn differences(from: &Then, to: &Then) -> Result<Vec<Difference>, Problem> {
    let (from, to) = (fields(from)?, fields(to)?);
    let keys: std::collections::BTreeSet<_> = from.keys().chain(to.keys()).collect();
    let of = |side: &BTreeMap<_, Value>, key: &_| side.get(key).cloned().unwrap_or(Value::Null);
    let all = keys.into_iter().map(|key: &(String, String)| Difference {
        what: key.0.clone(),
        field: key.1.clone(),
        from: of(&from, key),
        to: of(&to, key),
    });
    Ok(all.filter(|difference| difference.from != difference.to).collect())
}

fn fields(then: &Then) -> Result<BTreeMap<(String, String), Value>, Problem> {
    let mut all = BTreeMap::new();
    let mut add = |what: String, value: Value| {
        let Value::Object(object) = value else { return };
        all.extend(object.into_iter().map(|(field, value)| ((what.clone(), field), value)));
    };
    for mission in &then.missions {
        add(mission.id.clone(), serde_json::to_value(mission).map_err(Problem::environment)?);
    }
    for task in &then.tasks {
        let name = format!("{}/{}", task.mission, task.name);
        add(name, serde_json::to_value(task).map_err(Problem::environment)?);
    }
    Ok(all)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    }
}

/// The number of a record, or a time.
fn moment(text: &str) -> Result<Moment, Problem> {
    if let Ok(seq) = text.parse() {
        return Ok(Moment::Seq(Seq(seq)));
    }
    let wrong = format!("{text:?} is neither the number of a record nor a time");
    time(text).map(Moment::Time).ok_or_else(|| Problem::usage(wrong).hint(TIME_HINT))
}

/// A time that a person gave.
pub fn time_or_refuse(text: &str) -> Result<Timestamp, Problem> {
    time(text).ok_or_else(|| Problem::usage(format!("{text:?} is no time")).hint(TIME_HINT))
}

/// `2026-11-16T09:30:00.250Z`; the fraction, the seconds, the time of day and the Z may be left out.
fn time(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let (clock, fraction_ms) = match clock.split_once('.') {
        // Only seconds have one.
        Some((clock, digits)) if clock.split(':').count() == 3 => (clock, milliseconds(digits)?),
        Some(_) => return None,
        None => (clock, 0),
    };
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let mut clock = numbers(clock, ':')?;
    clock.resize(3.max(clock.len()), 0);
    let [hour, minute, second] = clock.try_into().ok()?;
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let number = (year - 1970) * 12 + month - 1;
    let (first, next) = (Span::Month.starts_at(number), Span::Month.starts_at(number + 1));
    let start = first.plus_ms(day.checked_sub(1)?.checked_mul(DAY_MS)?);
    let legal = start < next && hour < 24 && minute < 60 && second < 60;
    let seconds = (hour * 60 + minute) * 60 + second;
    legal.then(|| start.plus_ms(seconds * 1_000 + fraction_ms))
}

fn numbers(text: &str, between: char) -> Option<Vec<u64>> {
    text.split(between).map(|part| Some(part).filter(|p| is_digits(p))?.parse().ok()).collect()
}

/// What stands behind the point of a second, without what is finer than a record's time.
fn milliseconds(digits: &str) -> Option<u64> {
    let fits = (1..=FRACTION_DIGITS_MAX).contains(&digits.len()) && is_digits(digits);
    let three: String = digits.chars().chain("00".chars()).take(3).collect();
    fits.then(|| three.parse().ok()).flatten()
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_utc() {
        let ms = |text| time(text).map(|at| at.0);
        assert_eq!(ms("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(ms("2024-02-29T12:34:56Z"), Some(1_709_210_096_000));
        assert_eq!(ms("2026-11-16 09:30"), Some(1_794_821_400_000));
        assert_eq!(ms("2026-11-16"), Some(1_794_787_200_000));
        for wrong in
            ["", "yesterday", "2026-13-01", "2023-02-29", "2026-11-16T24:00", "2026-11-16T+9:00"]
        {
            assert_eq!(ms(wrong), None, "{wrong}");
        }
    }

    /// Records have their time in milliseconds, and programs print it so.
    #[test]
    fn a_time_may_have_parts_of_a_second() {
        let ms = |text| time(text).map(|at| at.0);
        assert_eq!(ms("2026-11-17T01:02:03.456Z"), Some(1_794_877_323_456));
        assert_eq!(ms("2026-11-17 01:02:03.4"), Some(1_794_877_323_400));
        assert_eq!(ms("2026-11-17T01:02:03.456999999Z"), Some(1_794_877_323_456));
        for wrong in ["2026-11-17T01:02:03.", "2026-11-17T01:02.5", "2026-11-17.5"] {
            assert_eq!(ms(wrong), None, "{wrong}");
        }
        for wrong in ["2026-11-17T01:02:03.x", "2026-11-17T01:02:03.1234567890Z"] {
            assert_eq!(ms(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_number_is_a_record() {
        assert_eq!(moment("120").unwrap(), Moment::Seq(Seq(120)));
        assert!(moment("soon").unwrap_err().to_string().contains("2026-11-16T09:30:00Z"));
    }
}
