//! How much may be spent on what: caps, profiles and presets.
//!
//! Every cap is optional and counts on its own; the strictest one wins. At least one cap of the
//! whole project must be set, because nothing is ever unlimited.

use serde::{Deserialize, Serialize};

use super::pools::{Shares, WHOLE_PERMILLE};
use super::refusal::Limit;
use super::watchdog;
use crate::money::Usd;
use crate::routing::Tier;
use crate::time::MINUTE_MS;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    pub caps: Caps,
    /// The day is spent as a whole without them.
    pub pools: Option<Shares>,
    pub session_warning_usd: Option<Usd>,
    /// Caps warn when more than this part of them is spent.
    pub warning_permille: u32,
    pub watchdog: watchdog::Policy,
    pub burn: BurnPolicy,
    pub tokens: TokenPolicy,
    /// How long the money of an attempt that was ended without its bill stays reserved for it.
    pub bill_ms: u64,
    /// No model above this tier, whatever the work.
    pub tier_max: Option<Tier>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caps {
    /// For a vote of a council. Agents' calls are held to it once they pass a gateway.
    pub call_usd_max: Option<Usd>,
    pub task_usd_max: Option<Usd>,
    /// For one agent within one mission.
    pub agent_usd_max: Option<Usd>,
    pub mission_usd_max: Option<Usd>,
    /// From one start of Kapelle to the next.
    pub session_usd_max: Option<Usd>,
    pub day_usd_max: Option<Usd>,
    pub week_usd_max: Option<Usd>,
    pub month_usd_max: Option<Usd>,
    /// For all time.
    pub project_usd_max: Option<Usd>,
    /// For the retries of one mission (RET-08).
    pub retries_usd_max: Option<Usd>,
    pub council_day_usd_max: Option<Usd>,
    pub council_week_usd_max: Option<Usd>,
    /// What the agents that were added because of the load may spend in a day, at worst. By how
    /// much they *have* cost, none is added any more: that is a rule of scaling (WRK-27).
    pub scaling_day_usd_max: Option<Usd>,
}

/// A burn is alarming when the last hour cost more than this for as long as that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BurnPolicy {
    pub hour_usd_max: Usd,
    pub sustained_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenPolicy {
    /// Past it, the mission halts with `Token budget exceeded`.
    pub mission_max: Option<u64>,
    pub week: Option<WeekTokens>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeekTokens {
    pub max: u64,
    pub when_full: WhenFull,
}

/// A subscription ends at its tokens; who pays by the token only wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    Report,
    Refuse,
}

/// Who starts with which caps (C-01).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// $75 a day in four pools.
    #[default]
    Standard,
    /// Stops hard at $10 a day.
    Starter,
    /// $75 a month, $2.50 a day, on the cheapest models.
    Monthly,
}

/// Where a project stands, and what its sources gave it for that (BUD-15). Laid over a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// $50 in all.
    Poc,
    /// $500 in all.
    Development,
    /// $100 a month for twenty missions.
    Production,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    #[error("nothing limits the project: set a cap for the day, week, month or project")]
    Unlimited,
    #[error("the pools hold {permille} thousandths of the day, not a thousand")]
    SharesNotWhole { permille: u64 },
    #[error("the day has pools but no cap to split")]
    PoolsWithoutDay,
    #[error("{what} must be at most {max} thousandths, not {permille}")]
    NotAShare { what: &'static str, permille: u32, max: u32 },
    #[error("{what} must be more than zero")]
    Zero { what: &'static str },
    #[error("{what} must be at most {max_ms} ms")]
    TooLong { what: &'static str, max_ms: u64 },
}

/// The profile `standard`.
impl Default for Policy {
    fn default() -> Policy {
        Profile::Standard.policy()
    }
}

/// Those of the profile `standard`.
impl Default for Caps {
    fn default() -> Caps {
        Caps {
            call_usd_max: Some(Usd::cents(500)),
            task_usd_max: Some(Usd::cents(1_000)),
            mission_usd_max: Some(Usd::cents(7_500)),
            day_usd_max: Some(Usd::cents(7_500)),
            retries_usd_max: Some(Usd::cents(200)),
            council_day_usd_max: Some(Usd::cents(500)),
            council_week_usd_max: Some(Usd::cents(2_500)),
            ..Caps::NONE
        }
    }
}

impl Caps {
    pub const NONE: Caps = Caps {
        call_usd_max: None,
        task_usd_max: None,
        agent_usd_max: None,
        mission_usd_max: None,
        session_usd_max: None,
        day_usd_max: None,
        week_usd_max: None,
        month_usd_max: None,
        project_usd_max: None,
        retries_usd_max: None,
        council_day_usd_max: None,
        council_week_usd_max: None,
        scaling_day_usd_max: None,
    };
}

impl Default for TokenPolicy {
    fn default() -> TokenPolicy {
        let week = WeekTokens { max: 50_000_000, when_full: WhenFull::Report };
        TokenPolicy { mission_max: None, week: Some(week) }
    }
}

impl Default for BurnPolicy {
    fn default() -> BurnPolicy {
        BurnPolicy { hour_usd_max: Usd::cents(1_000), sustained_ms: 5 * MINUTE_MS }
    }
}

impl Profile {
    #[must_use]
    pub fn policy(self) -> Policy {
        let standard = Policy {
            caps: Caps::default(),
            pools: Some(Shares::default()),
            session_warning_usd: Some(Usd::cents(200)),
            warning_permille: 800,
            watchdog: watchdog::Policy::default(),
            burn: BurnPolicy::default(),
            tokens: TokenPolicy::default(),
            bill_ms: MINUTE_MS,
            tier_max: None,
        };
        let small_day = |usd| Policy {
            caps: Caps {
                mission_usd_max: Some(usd),
                day_usd_max: Some(usd),
                ..standard.caps.clone()
            },
            // A pool of so small a day could not hold one attempt.
            pools: None,
            ..standard.clone()
        };
        match self {
            Profile::Standard => standard,
            Profile::Starter => small_day(Usd::cents(1_000)),
            Profile::Monthly => {
                let mut monthly = small_day(Usd::cents(250));
                monthly.caps.month_usd_max = Some(Usd::cents(7_500));
                monthly.caps.mission_usd_max = monthly.caps.month_usd_max;
                monthly.tier_max = Some(Tier::Eco);
                monthly
            }
        }
    }
}

impl Preset {
    #[must_use]
    pub fn over(self, mut policy: Policy) -> Policy {
        const MISSIONS_PER_MONTH: u64 = 20;
        let caps = &mut policy.caps;
        match self {
            Preset::Poc => caps.project_usd_max = Some(Usd::cents(5_000)),
            Preset::Development => caps.project_usd_max = Some(Usd::cents(50_000)),
            Preset::Production => {
                caps.month_usd_max = Some(Usd::cents(10_000));
                caps.mission_usd_max = Some(Usd::cents(10_000 / MISSIONS_PER_MONTH));
            }
        }
        policy
    }
}

impl Policy {
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        let caps = &self.caps;
        let wide = [caps.day_usd_max, caps.week_usd_max, caps.month_usd_max, caps.project_usd_max];
        if wide.iter().all(Option::is_none) {
            return Err(InvalidPolicy::Unlimited);
        }
        if let Some(shares) = self.pools {
            let permille = shares.sum();
            if permille != u64::from(WHOLE_PERMILLE) {
                return Err(InvalidPolicy::SharesNotWhole { permille });
            }
            if caps.day_usd_max.is_none() {
                return Err(InvalidPolicy::PoolsWithoutDay);
            }
        }
        if self.warning_permille > WHOLE_PERMILLE {
            let (permille, max) = (self.warning_permille, WHOLE_PERMILLE);
            return Err(InvalidPolicy::NotAShare { what: "the warning", permille, max });
        }
        if self.watchdog.minute_usd_max == Usd::ZERO {
            return Err(InvalidPolicy::Zero { what: "the watchdog's limit" });
        }
        // Past this nobody would call it a grace.
        let max_ms = 10 * MINUTE_MS;
        if self.watchdog.grace_ms > max_ms {
            return Err(InvalidPolicy::TooLong { what: "the watchdog's grace", max_ms });
        }
        let max_ms = 60 * MINUTE_MS;
        let hours = [("the time of a burn", self.burn.sustained_ms), ("bill_ms", self.bill_ms)];
        if let Some((what, _)) = hours.into_iter().find(|(_, ms)| *ms > max_ms) {
            return Err(InvalidPolicy::TooLong { what, max_ms });
        }
        Ok(())
    }

    /// The caps that are set and hold all work, to be shown when Kapelle first runs. That of a call
    /// is not among them: it holds the votes of councils, but an agent's calls are its own until
    /// they pass a gateway.
    #[must_use]
    pub fn active(&self) -> Vec<(Limit, Usd)> {
        let caps = &self.caps;
        let all = [
            (Limit::Task, caps.task_usd_max),
            (Limit::Agent, caps.agent_usd_max),
            (Limit::Mission, caps.mission_usd_max),
            (Limit::Session, caps.session_usd_max),
            (Limit::Day, caps.day_usd_max),
            (Limit::Week, caps.week_usd_max),
            (Limit::Month, caps.month_usd_max),
            (Limit::Project, caps.project_usd_max),
            (Limit::Retries, caps.retries_usd_max),
            (Limit::CouncilDay, caps.council_day_usd_max),
            (Limit::CouncilWeek, caps.council_week_usd_max),
            (Limit::ScalingDay, caps.scaling_day_usd_max),
        ];
        all.into_iter().filter_map(|(limit, cap)| Some((limit, cap?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-01: the caps that people are told about when they begin.
    #[test]
    fn profiles_hold_the_agreed_caps() {
        let standard = Profile::Standard.policy();
        assert_eq!(standard.caps.day_usd_max, Some(Usd::cents(7_500)));
        assert_eq!(standard.session_warning_usd, Some(Usd::cents(200)));
        assert_eq!(standard.watchdog.minute_usd_max, Usd::cents(100));
        assert_eq!(standard.watchdog.grace_ms, 30_000);
        assert_eq!(standard.burn.hour_usd_max, Usd::cents(1_000));
        assert_eq!(standard.burn.sustained_ms, 300_000);
        assert_eq!(standard.caps.retries_usd_max, Some(Usd::cents(200)));
        assert_eq!(standard.tier_max, None);
        assert_eq!(Profile::Starter.policy().caps.day_usd_max, Some(Usd::cents(1_000)));
        assert_eq!(standard, Policy::default());
    }

    /// BUD-09: $75 a month is $2.50 a day, and only the cheapest models last that long.
    #[test]
    fn the_monthly_profile_is_cheap() {
        let monthly = Profile::Monthly.policy();
        assert_eq!(monthly.caps.month_usd_max, Some(Usd::cents(7_500)));
        assert_eq!(monthly.caps.day_usd_max, Some(Usd::cents(7_500 / 30)));
        assert_eq!(monthly.tier_max, Some(Tier::Eco));
    }

    /// BUD-15.
    #[test]
    fn presets_are_laid_over_a_profile() {
        let over = |preset: Preset| preset.over(Profile::Standard.policy()).caps;
        assert_eq!(over(Preset::Poc).project_usd_max, Some(Usd::cents(5_000)));
        assert_eq!(over(Preset::Development).project_usd_max, Some(Usd::cents(50_000)));
        let production = over(Preset::Production);
        assert_eq!(production.month_usd_max, Some(Usd::cents(10_000)));
        assert_eq!(production.mission_usd_max, Some(Usd::cents(500)), "a twentieth");
        assert_eq!(production.day_usd_max, Some(Usd::cents(7_500)), "the profile's");
    }

    #[test]
    fn every_profile_and_preset_is_valid_and_shows_its_caps() {
        for profile in [Profile::Standard, Profile::Starter, Profile::Monthly] {
            assert_eq!(profile.policy().validate(), Ok(()));
            for preset in [Preset::Poc, Preset::Development, Preset::Production] {
                assert_eq!(preset.over(profile.policy()).validate(), Ok(()));
            }
        }
        let shown = Profile::Starter.policy().active();
        assert!(shown.contains(&(Limit::Day, Usd::cents(1_000))));
        assert!(!shown.iter().any(|(limit, _)| *limit == Limit::Month));
        assert!(!shown.iter().any(|(limit, _)| *limit == Limit::Call), "nobody sees agents' calls");
    }

    /// Each wrong policy would only show when money is gone.
    #[test]
    fn wrong_policies_are_refused() {
        let wrong = |change: fn(&mut Policy)| {
            let mut policy = Policy::default();
            change(&mut policy);
            policy.validate()
        };
        let unlimited = wrong(|p| p.caps = Caps::NONE);
        assert_eq!(unlimited, Err(InvalidPolicy::Unlimited));
        let shares = wrong(|p| p.pools = Some(Shares { spike: 200, ..Shares::default() }));
        assert_eq!(shares, Err(InvalidPolicy::SharesNotWhole { permille: 1_050 }));
        let dayless = wrong(|p| {
            p.caps.month_usd_max = p.caps.day_usd_max.take();
        });
        assert_eq!(dayless, Err(InvalidPolicy::PoolsWithoutDay));
        let share = InvalidPolicy::NotAShare { what: "the warning", permille: 1_001, max: 1_000 };
        assert_eq!(wrong(|p| p.warning_permille = 1_001), Err(share));
        let zero = InvalidPolicy::Zero { what: "the watchdog's limit" };
        assert_eq!(wrong(|p| p.watchdog.minute_usd_max = Usd::ZERO), Err(zero));
        let grace = InvalidPolicy::TooLong { what: "the watchdog's grace", max_ms: 600_000 };
        assert_eq!(wrong(|p| p.watchdog.grace_ms = 600_001), Err(grace));
        let burn = InvalidPolicy::TooLong { what: "the time of a burn", max_ms: 3_600_000 };
        assert_eq!(wrong(|p| p.burn.sustained_ms = 3_600_001), Err(burn));
        let bill = InvalidPolicy::TooLong { what: "bill_ms", max_ms: 3_600_000 };
        assert_eq!(wrong(|p| p.bill_ms = 3_600_001), Err(bill));
    }

    #[test]
    fn a_policy_file_may_name_only_what_it_changes() {
        let text = r#"{"caps": {"day_usd_max": 10000000}, "pools": null}"#;
        let policy: Policy = serde_json::from_str(text).unwrap();
        assert_eq!(policy.caps.day_usd_max, Some(Usd::cents(1_000)));
        assert_eq!(policy.caps.retries_usd_max, Some(Usd::cents(200)));
        assert_eq!(policy.warning_permille, 800);
        assert!(serde_json::from_str::<Policy>(r#"{"cap": {}}"#).is_err());
    }
}
