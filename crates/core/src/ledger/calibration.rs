//! Estimates against what was really spent, and what to learn from it (BUD-10).
//!
//! The last few missions count, by their money and not by their number, so that many cheap
//! missions do not outvote a dear one.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::ids::MissionId;
use crate::limits;
use crate::money::Usd;

/// One history can be odd: an estimate is never stretched or shrunk by more than four times.
const FACTOR_PERMILLE_MIN: u64 = 250;
const FACTOR_PERMILLE_MAX: u64 = 4_000;
const NO_CHANGE_PERMILLE: u64 = 1_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    missions: VecDeque<Comparison>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    pub mission: MissionId,
    /// As it was made, before it was calibrated: else calibration would chase itself.
    pub estimated: Usd,
    pub actual: Usd,
}

impl Comparison {
    /// Thousandths of the estimate that were really spent. None for an estimate of nothing.
    #[must_use]
    pub fn actual_permille(&self) -> Option<u64> {
        ratio_permille(self.actual.as_micros().into(), self.estimated.as_micros().into())
    }
}

fn ratio_permille(actual: u128, estimated: u128) -> Option<u64> {
    let ratio = (actual * 1_000).checked_div(estimated)?;
    Some(u64::try_from(ratio).unwrap_or(u64::MAX))
}

impl Calibration {
    /// By how much estimates are multiplied, in thousandths.
    #[must_use]
    pub fn factor_permille(&self) -> u64 {
        let sum = |usd: fn(&Comparison) -> Usd| {
            self.missions.iter().map(|mission| u128::from(usd(mission).as_micros())).sum()
        };
        let ratio = ratio_permille(sum(|m| m.actual), sum(|m| m.estimated));
        ratio.unwrap_or(NO_CHANGE_PERMILLE).clamp(FACTOR_PERMILLE_MIN, FACTOR_PERMILLE_MAX)
    }

    /// An estimate in the light of what earlier ones were worth, rounded up.
    #[must_use]
    pub fn calibrated(&self, estimate: Usd) -> Usd {
        let scaled = u128::from(estimate.as_micros()) * u128::from(self.factor_permille());
        Usd::micros(u64::try_from(scaled.div_ceil(1_000)).unwrap_or(u64::MAX))
    }

    #[must_use]
    pub fn comparison(&self, mission: MissionId) -> Option<&Comparison> {
        self.missions.iter().find(|comparison| comparison.mission == mission)
    }

    /// A mission ended. Ending it twice replaces what it said first.
    pub fn ended(&mut self, comparison: Comparison) {
        self.missions.retain(|known| known.mission != comparison.mission);
        self.missions.push_back(comparison);
        if self.missions.len() > limits::CALIBRATION_MISSIONS_MAX {
            self.missions.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(missions: &[(u64, u64)]) -> Calibration {
        let mut calibration = Calibration::default();
        for (mission, &(estimated, actual)) in (1..).zip(missions) {
            let (estimated, actual) = (Usd::cents(estimated), Usd::cents(actual));
            calibration.ended(Comparison { mission: MissionId(mission), estimated, actual });
        }
        calibration
    }

    #[test]
    fn estimates_learn_from_what_was_spent() {
        assert_eq!(after(&[]).calibrated(Usd::cents(345)), Usd::cents(345));
        let learnt = after(&[(100, 200), (300, 400)]);
        assert_eq!(learnt.factor_permille(), 1_500);
        assert_eq!(learnt.calibrated(Usd::cents(345)), Usd::micros(5_175_000));
        assert_eq!(learnt.comparison(MissionId(1)).unwrap().actual_permille(), Some(2_000));
        assert_eq!(learnt.comparison(MissionId(9)), None);
    }

    /// One runaway mission must not make every later one look impossible, or free.
    #[test]
    fn one_odd_mission_changes_estimates_by_no_more_than_four_times() {
        assert_eq!(after(&[(1, 100_000)]).factor_permille(), 4_000);
        assert_eq!(after(&[(100_000, 0)]).factor_permille(), 250);
        assert_eq!(after(&[(0, 500)]).factor_permille(), 1_000, "nothing was estimated");
        assert_eq!(after(&[(0, 500)]).comparison(MissionId(1)).unwrap().actual_permille(), None);
    }

    #[test]
    fn only_the_last_missions_count_and_each_once() {
        let mut many = after(&[(100, 400); 30]);
        assert_eq!(many.missions.len(), limits::CALIBRATION_MISSIONS_MAX);
        for mission in 100..120 {
            let usd = Usd::cents(100);
            many.ended(Comparison { mission: MissionId(mission), estimated: usd, actual: usd });
        }
        assert_eq!(many.factor_permille(), 1_000);
        let again = Comparison { mission: MissionId(119), estimated: Usd::ZERO, actual: Usd::ZERO };
        many.ended(again);
        assert_eq!(many.comparison(MissionId(119)), Some(&again));
        assert_eq!(many.missions.len(), limits::CALIBRATION_MISSIONS_MAX);
    }
}
