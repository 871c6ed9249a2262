//! Money, exact: whole millionths of a US dollar.

use std::fmt;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

const MICROS_PER_USD: u64 = 1_000_000;

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Usd {
    micros: u64,
}

impl Usd {
    pub const ZERO: Usd = Usd { micros: 0 };

    #[must_use]
    pub const fn micros(micros: u64) -> Usd {
        Usd { micros }
    }

    #[must_use]
    pub const fn cents(cents: u64) -> Usd {
        Usd { micros: cents * (MICROS_PER_USD / 100) }
    }

    /// From a number in a configuration file. None for what is not an amount of money.
    #[must_use]
    pub fn from_f64(usd: f64) -> Option<Usd> {
        /// Past this, the doubles of configuration files no longer hold every cent.
        const CONFIGURED_USD_MAX: f64 = 1_000_000_000.0;
        if !(0.0..=CONFIGURED_USD_MAX).contains(&usd) {
            return None;
        }
        Some(Usd { micros: (usd * MICROS_PER_USD as f64).round() as u64 })
    }

    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.micros
    }

    /// For reports and charts; sums are made in `Usd`.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.micros as f64 / MICROS_PER_USD as f64
    }

    #[must_use]
    pub fn saturating_sub(self, other: Usd) -> Usd {
        Usd { micros: self.micros.saturating_sub(other.micros) }
    }
}

impl Add for Usd {
    type Output = Usd;

    fn add(self, other: Usd) -> Usd {
        Usd { micros: self.micros.saturating_add(other.micros) }
    }
}

impl AddAssign for Usd {
    fn add_assign(&mut self, other: Usd) {
        *self = *self + other;
    }
}

/// Cents where cents are enough, else as many digits as there are.
impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, micros) = (self.micros / MICROS_PER_USD, self.micros % MICROS_PER_USD);
        if micros % 10_000 == 0 {
            return write!(f, "${whole}.{:02}", micros / 10_000);
        }
        let digits = format!("{micros:06}");
        write!(f, "${whole}.{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_write_them() {
        let written =
            [(0, "$0.00"), (1_500_000, "$1.50"), (4_250, "$0.00425"), (75_000_000, "$75.00")];
        for (micros, text) in written {
            assert_eq!(Usd::micros(micros).to_string(), text);
        }
    }

    /// A negative or absurd cap in a configuration file must not become a huge or a zero one.
    #[test]
    fn only_amounts_of_money_are_taken_from_configuration() {
        assert_eq!(Usd::from_f64(0.1), Some(Usd::cents(10)));
        for wrong in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(Usd::from_f64(wrong), None, "{wrong}");
        }
    }
}
