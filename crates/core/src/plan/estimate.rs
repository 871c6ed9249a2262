//! What a planned mission will cost, said before it starts (PLN-21).
//!
//! Prices and token profiles are data. The mean allows for bursts, and P95 for chance: invocations
//! come as a compound Poisson process, so the variance is the sum of squared costs. (The sources
//! took the root of dollars, which has no meaning; E-03.) All in whole micro-dollars.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::batch::Batches;
use super::{Plan, PlannedTask};
use crate::ids::Role;
use crate::ledger::Calibration;
use crate::money::Usd;
use crate::policy::Budget;

/// Per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    pub input: Usd,
    pub output: Usd,
}

impl Price {
    /// Rounded up to whole micro-dollars: an estimate that errs, errs high.
    #[must_use]
    pub fn of(&self, input_tokens: u64, output_tokens: u64) -> Usd {
        const TOKENS: u128 = 1_000_000;
        let part = |price: Usd, tokens: u64| u128::from(price.as_micros()) * u128::from(tokens);
        let micros =
            part(self.input, input_tokens).saturating_add(part(self.output, output_tokens));
        Usd::micros(u64::try_from(micros.div_ceil(TOKENS)).unwrap_or(u64::MAX))
    }
}

/// How much one invocation of a role uses, and how often it is invoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleProfile {
    pub role: Role,
    pub model: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub calls: Calls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calls {
    PerMission(u32),
    PerTask(u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostProfile {
    pub roles: Vec<RoleProfile>,
    /// Input that each further task of a batch does not need again.
    pub batch_saves_tokens: u64,
    /// For this part of the time, in thousandths …
    pub burst_permille: u64,
    /// … this many times the tokens are used, in thousandths.
    pub burst_factor_permille: u64,
    pub sizes: Sizes,
}

/// By what a mission's cost is estimated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CostRules {
    pub profile: CostProfile,
    /// By model.
    pub prices: BTreeMap<String, Price>,
    pub cap: CapBy,
}

/// What bounds the cost of a mission.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapBy {
    #[default]
    Budget,
    /// Twice the P95, within the budget.
    Estimate,
}

impl CostRules {
    pub fn estimate(&self, plan: &Plan, batches: &Batches) -> Result<Estimate, UnknownPrice> {
        estimate(plan, batches, &self.profile, |role, _| {
            let price = *self.prices.get(&role.model)?;
            Some(Quote { model: role.model.clone(), price })
        })
    }

    /// The budget of a mission with this estimate. One attempt fits in any case: a cap that lets
    /// nothing start would only be a riddle.
    #[must_use]
    pub fn capped(&self, budget: Budget, estimate: &Estimate) -> Budget {
        let twice = estimate.p95 + estimate.p95;
        let mission_usd_max = match self.cap {
            CapBy::Budget => budget.mission_usd_max,
            CapBy::Estimate => budget.mission_usd_max.min(twice.max(budget.attempt_usd_max)),
        };
        Budget { mission_usd_max, ..budget }
    }
}

/// How much the cost of one invocation varies around its mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    Fixed,
    /// As long tails go: few invocations use many times the mean.
    Exponential,
}

/// The reference profile of the sources, burst of BUD-07 included.
impl Default for CostProfile {
    fn default() -> CostProfile {
        let role = |role, model: &str, input_tokens, output_tokens, calls| RoleProfile {
            role,
            model: model.to_owned(),
            input_tokens,
            output_tokens,
            calls,
        };
        CostProfile {
            roles: vec![
                role(Role::Planner, "claude-haiku", 2_000, 3_000, Calls::PerMission(6)),
                role(Role::Developer, "claude-sonnet-4.5", 15_000, 8_000, Calls::PerTask(1)),
                role(Role::Orchestrator, "claude-sonnet-4.5", 50_000, 20_000, Calls::PerMission(1)),
            ],
            batch_saves_tokens: 5_000,
            burst_permille: 200,
            burst_factor_permille: 2_000,
            sizes: Sizes::Exponential,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub enum InvalidCostProfile {
    #[error("the burst covers {0} thousandths of the time, more than all of it")]
    BurstOverAll(u64),
    #[error("a burst uses {0} thousandths of the usual tokens: that is none, or beyond belief")]
    BurstFactor(u64),
}

impl CostProfile {
    pub fn validate(&self) -> Result<(), InvalidCostProfile> {
        if self.burst_permille > PERMILLE {
            return Err(InvalidCostProfile::BurstOverAll(self.burst_permille));
        }
        if !(PERMILLE..=100 * PERMILLE).contains(&self.burst_factor_permille) {
            return Err(InvalidCostProfile::BurstFactor(self.burst_factor_permille));
        }
        Ok(())
    }
}

/// Who would do it, for how much: the answer of routing and the price table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    pub model: String,
    pub price: Price,
}

/// An unknown price is refused, never taken for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("there is no price for {model}, which {role} would use: the cost cannot be estimated")]
pub struct UnknownPrice {
    pub role: Role,
    pub model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    pub lines: Vec<EstimateLine>,
    /// The sum of the lines.
    pub base: Usd,
    /// With bursts.
    pub mean: Usd,
    /// In 19 of 20 missions it costs no more.
    pub p95: Usd,
    /// By how much the last two were multiplied, in thousandths, for what earlier missions cost.
    #[serde(default = "as_it_was_made")]
    pub calibrated_permille: u64,
}

fn as_it_was_made() -> u64 {
    PERMILLE
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EstimateLine {
    pub role: Role,
    pub model: String,
    pub calls: u32,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub usd: Usd,
}

const PERMILLE: u64 = 1_000;
/// The 95th percentile of a normal distribution, in thousandths of its deviation.
const Z95_PERMILLE: u128 = 1_645;

/// Estimates a plan. `quote` says for a role, and for a task where there is one, which model would
/// do it and at which price; without an opinion of its own it looks up `profile.model`.
pub fn estimate(
    plan: &Plan,
    batches: &Batches,
    profile: &CostProfile,
    quote: impl Fn(&RoleProfile, Option<&PlannedTask>) -> Option<Quote>,
) -> Result<Estimate, UnknownPrice> {
    let mut sums = Sums::default();
    for role in &profile.roles {
        let priced = |task: Option<&PlannedTask>| {
            let unknown = || UnknownPrice { role: role.role, model: role.model.clone() };
            quote(role, task).ok_or_else(unknown)
        };
        match role.calls {
            Calls::PerMission(0) | Calls::PerTask(0) => {}
            Calls::PerMission(calls) => {
                sums.add(role, priced(None)?, role.input_tokens, calls);
            }
            Calls::PerTask(calls) => {
                for task in &plan.tasks {
                    let batch = batches.of_task(&task.id);
                    let first = batch.is_none_or(|batch| batch.tasks.first() == Some(&task.id));
                    let saved = if first { 0 } else { profile.batch_saves_tokens };
                    let input = role.input_tokens.saturating_sub(saved);
                    sums.add(role, priced(Some(task))?, input, calls);
                }
            }
        }
    }
    Ok(sums.finish(profile))
}

#[derive(Default)]
struct Sums {
    lines: Vec<EstimateLine>,
    base: Usd,
    /// The sum of squared costs, in square micro-dollars.
    squares: u128,
}

impl Sums {
    fn add(&mut self, role: &RoleProfile, quote: Quote, input: u64, calls: u32) {
        let one = quote.price.of(input, role.output_tokens);
        let count = u64::from(calls);
        let usd = Usd::micros(one.as_micros().saturating_mul(count));
        let square = u128::from(one.as_micros()).pow(2).saturating_mul(u128::from(calls));
        self.squares = self.squares.saturating_add(square);
        self.base += usd;
        let same = |line: &&mut EstimateLine| line.role == role.role && line.model == quote.model;
        let line = match self.lines.iter_mut().find(same) {
            Some(line) => line,
            None => {
                self.lines.push(EstimateLine {
                    role: role.role,
                    model: quote.model,
                    calls: 0,
                    input_tokens: 0,
                    output_tokens: 0,
                    usd: Usd::ZERO,
                });
                let last = self.lines.len() - 1;
                &mut self.lines[last]
            }
        };
        line.calls = line.calls.saturating_add(calls);
        line.input_tokens = line.input_tokens.saturating_add(input.saturating_mul(count));
        let output = role.output_tokens.saturating_mul(count);
        line.output_tokens = line.output_tokens.saturating_add(output);
        line.usd += usd;
    }

    fn finish(self, profile: &CostProfile) -> Estimate {
        let (part, factor) = (profile.burst_permille, profile.burst_factor_permille);
        let part = u128::from(part.min(PERMILLE));
        let (factor, whole) = (u128::from(factor), u128::from(PERMILLE));
        // E[X] and E[X²] of a size that is 1, and `factor` in bursts, in thousandths.
        let mean_permille = (whole - part) * whole + part * factor;
        let square_permille = (whole - part) * whole * whole + part * factor * factor;
        let spread = match profile.sizes {
            Sizes::Fixed => 1,
            Sizes::Exponential => 2,
        };
        let base = u128::from(self.base.as_micros());
        let mean = base.saturating_mul(mean_permille) / (whole * whole);
        let variance =
            self.squares.saturating_mul(square_permille * spread) / (whole * whole * whole);
        let over = variance.isqrt().saturating_mul(Z95_PERMILLE).div_ceil(whole);
        let usd = |micros: u128| Usd::micros(u64::try_from(micros).unwrap_or(u64::MAX));
        let p95 = usd(mean.saturating_add(over));
        let (lines, base, mean) = (self.lines, self.base, usd(mean));
        Estimate { lines, base, mean, p95, calibrated_permille: PERMILLE }
    }
}

impl Estimate {
    /// The estimate in the light of what earlier ones were worth (BUD-10).
    #[must_use]
    pub fn calibrated(self, calibration: &Calibration) -> Estimate {
        Estimate {
            mean: calibration.calibrated(self.mean),
            p95: calibration.calibrated(self.p95),
            calibrated_permille: calibration.factor_permille(),
            ..self
        }
    }

    /// The mean as it was made: calibration must not chase itself.
    #[must_use]
    pub fn uncalibrated_mean(&self) -> Usd {
        let mean = u128::from(self.mean.as_micros()) * u128::from(PERMILLE);
        let made = mean / u128::from(self.calibrated_permille.max(1));
        Usd::micros(u64::try_from(made).unwrap_or(u64::MAX))
    }

    /// To the cent, as people say it.
    #[must_use]
    pub fn in_cents(usd: Usd) -> Usd {
        Usd::cents(usd.as_micros().saturating_add(5_000) / 10_000)
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [base, mean, p95] = [self.base, self.mean, self.p95].map(Estimate::in_cents);
        write!(f, "about {base}; {mean} with bursts; 19 of 20 such missions cost at most {p95}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::batch::BatchPolicy;

    const HAIKU: Price = Price { input: Usd::cents(25), output: Usd::cents(125) };
    const SONNET: Price = Price { input: Usd::cents(300), output: Usd::cents(1_500) };

    fn tasks(count: usize) -> Plan {
        let task = |n| PlannedTask {
            id: format!("1-{n}"),
            title: format!("Add ARIA label {n}"),
            files: vec![format!("web/{n:02}.tsx")],
            estimated_duration_minutes: Some(5),
            ..PlannedTask::default()
        };
        Plan { goal: None, tasks: (1..=count).map(task).collect() }
    }

    fn table(role: &RoleProfile, _: Option<&PlannedTask>) -> Option<Quote> {
        let price = match role.model.as_str() {
            "claude-haiku" => HAIKU,
            "claude-sonnet-4.5" => SONNET,
            _ => return None,
        };
        Some(Quote { model: role.model.clone(), price })
    }

    /// The sums of S1 as recomputed in E-11, E-12 and E-14.
    #[test]
    fn an_invocation_costs_what_its_tokens_cost() {
        let costs = [
            (HAIKU.of(2_000, 3_000), "$0.00425"),
            (SONNET.of(15_000, 8_000), "$0.165"),
            (SONNET.of(50_000, 20_000), "$0.45"),
            (HAIKU.of(15_000, 8_000), "$0.01375"),
            (SONNET.of(10_000, 8_000), "$0.15"),
            (SONNET.of(12_000, 8_000), "$0.156"),
            (HAIKU.of(1, 0), "$0.000001"),
        ];
        for (usd, expected) in costs {
            assert_eq!(usd.to_string(), expected);
        }
        assert_eq!(SONNET.of(u64::MAX, u64::MAX), Usd::micros(u64::MAX));
    }

    /// PLN-21: $3.45, not the claimed $0.60.
    #[test]
    fn eighteen_issues_cost_three_dollars_and_forty_five() {
        let profile = CostProfile::default();
        let found = estimate(&tasks(18), &Batches::default(), &profile, table).unwrap();
        let usd: Vec<String> = found.lines.iter().map(|line| line.usd.to_string()).collect();
        assert_eq!(usd, ["$0.0255", "$2.97", "$0.45"]);
        assert_eq!(found.base, Usd::micros(3_445_500));
        assert_eq!(Estimate::in_cents(found.base).to_string(), "$3.45");
        assert_eq!((found.lines[1].calls, found.lines[1].input_tokens), (18, 270_000));
        assert!(found.to_string().starts_with("about $3.45; $4.13 with bursts; 19 of 20"));
    }

    /// E-03: 72 tasks of $0.50 have the mean $43.20 and a P95 between $52.0 and $55.7.
    #[test]
    fn p95_is_that_of_a_compound_poisson_process() {
        let mut profile = CostProfile { sizes: Sizes::Fixed, ..CostProfile::default() };
        profile.roles = vec![RoleProfile {
            role: Role::Developer,
            model: "half a dollar".into(),
            input_tokens: 1_000_000,
            output_tokens: 0,
            calls: Calls::PerTask(1),
        }];
        let quote = |role: &RoleProfile, _: Option<&PlannedTask>| {
            let price = Price { input: Usd::cents(50), output: Usd::ZERO };
            Some(Quote { model: role.model.clone(), price })
        };
        let fixed = estimate(&tasks(72), &Batches::default(), &profile, quote).unwrap();
        assert_eq!((fixed.base, fixed.mean), (Usd::cents(3_600), Usd::cents(4_320)));
        assert_eq!(Estimate::in_cents(fixed.p95), Usd::cents(5_203));
        profile.sizes = Sizes::Exponential;
        let tailed = estimate(&tasks(72), &Batches::default(), &profile, quote).unwrap();
        assert_eq!(Estimate::in_cents(tailed.p95), Usd::cents(5_568));
    }

    /// E-13: ten invocations less save 10 × 5,000 tokens of input, which is $0.15.
    #[test]
    fn batches_save_the_context_that_is_loaded_once() {
        let plan = tasks(12);
        let batches = Batches::of(&plan, &BatchPolicy::default());
        let profile = CostProfile::default();
        let cost = |batches| estimate(&plan, batches, &profile, table).unwrap().base;
        let saved = cost(&Batches::default()).saturating_sub(cost(&batches));
        assert_eq!(saved, Usd::cents(15));
    }

    /// E-11: six simple tasks on the small model save $0.9075.
    #[test]
    fn routing_decides_the_price_task_by_task() {
        let plan = tasks(18);
        let profile = CostProfile::default();
        let tiered = |role: &RoleProfile, task: Option<&PlannedTask>| {
            let simple = task.is_some_and(|task| {
                ["1-1", "1-2", "1-3", "1-4", "1-5", "1-6"].contains(&task.id.as_str())
            });
            if simple {
                return Some(Quote { model: "claude-haiku".into(), price: HAIKU });
            }
            table(role, task)
        };
        let found = estimate(&plan, &Batches::default(), &profile, tiered).unwrap();
        assert_eq!(Usd::micros(3_445_500).saturating_sub(found.base), Usd::micros(907_500));
        assert_eq!(found.lines.len(), 4);
    }

    #[test]
    fn an_unknown_price_is_refused() {
        let mut profile = CostProfile::default();
        profile.roles[1].model = "new".into();
        let refused = estimate(&tasks(1), &Batches::default(), &profile, table).unwrap_err();
        let expected =
            "there is no price for new, which developer would use: the cost cannot be estimated";
        assert_eq!(refused.to_string(), expected);
    }

    #[test]
    fn profiles_that_make_no_sense_are_refused() {
        assert_eq!(CostProfile::default().validate(), Ok(()));
        let wrong = CostProfile { burst_permille: 1_001, ..CostProfile::default() };
        assert_eq!(wrong.validate(), Err(InvalidCostProfile::BurstOverAll(1_001)));
        let wrong = CostProfile { burst_factor_permille: 999, ..CostProfile::default() };
        assert_eq!(wrong.validate(), Err(InvalidCostProfile::BurstFactor(999)));
    }
}
