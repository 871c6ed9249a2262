//! Tokens: how many a week and a mission have used, and in which part of the work.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::policy::{TokenPolicy, WhenFull};
use super::refusal::{Refusal, TokenLimit};
use crate::calendar::Span;
use crate::ids::{AgentId, MissionId, Role};
use crate::limits;
use crate::time::Timestamp;

/// A part of the work, as the token plan counts it (BUD-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Specification,
    Implementation,
    Testing,
    MergeAndDocs,
    /// What keeps the team running and belongs to no feature.
    Infrastructure,
}

impl Part {
    #[must_use]
    pub fn of(agent: Option<AgentId>) -> Part {
        let Some(agent) = agent else { return Part::Infrastructure };
        match agent.role {
            Role::Planner | Role::Researcher | Role::ProductManager => Part::Specification,
            Role::Developer | Role::Judge | Role::Reviewer | Role::PromptEngineer => {
                Part::Implementation
            }
            Role::Tester | Role::Breaker => Part::Testing,
            Role::Merger | Role::Librarian | Role::Devops => Part::MergeAndDocs,
            Role::Orchestrator | Role::Router => Part::Infrastructure,
        }
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Specification => "specification",
            Part::Implementation => "implementation",
            Part::Testing => "testing",
            Part::MergeAndDocs => "merge and docs",
            Part::Infrastructure => "infrastructure",
        }
    }

    /// What a feature of fifteen tasks uses, by the plan of the sources (BUD-12, T-78).
    #[must_use]
    pub fn reference_tokens(self) -> u64 {
        match self {
            Part::Specification => 35_000,
            Part::Implementation => 530_000,
            Part::Testing => 340_000,
            Part::MergeAndDocs => 55_000,
            Part::Infrastructure => 0,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    pub by_part: BTreeMap<Part, u64>,
    pub reserved: u64,
}

impl TokenUse {
    #[must_use]
    pub fn used(&self) -> u64 {
        self.by_part.values().fold(0, |sum, tokens| sum.saturating_add(*tokens))
    }

    #[must_use]
    pub fn infrastructure(&self) -> u64 {
        self.by_part.get(&Part::Infrastructure).copied().unwrap_or(0)
    }

    /// What went into features (BUD-11).
    #[must_use]
    pub fn features(&self) -> u64 {
        self.used() - self.infrastructure()
    }
}

/// What a bill adds to the tokens that are used, and takes from those that are set aside.
#[derive(Debug, Clone, Copy)]
pub(super) struct MoreTokens {
    pub mission: MissionId,
    pub at: Timestamp,
    pub used: u64,
    pub returned: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    weeks: BTreeMap<u64, TokenUse>,
    missions: BTreeMap<MissionId, TokenUse>,
}

impl Tokens {
    #[must_use]
    pub fn week(&self, now: Timestamp) -> TokenUse {
        self.weeks.get(&Span::Week.number(now)).cloned().unwrap_or_default()
    }

    #[must_use]
    pub fn mission(&self, mission: MissionId) -> TokenUse {
        self.missions.get(&mission).cloned().unwrap_or_default()
    }

    /// Whether so many fit, now or once a bill has been paid.
    pub(super) fn check(
        &self,
        policy: &TokenPolicy,
        mission: MissionId,
        (asked, more): (u64, Option<MoreTokens>),
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if let Some(cap) = policy.mission_max {
            let more = more.as_ref().filter(|more| more.mission == mission);
            let of_mission = standing(self.missions.get(&mission), more);
            fits(TokenLimit::Mission(mission), of_mission, cap, asked, None)?;
        }
        let number = Span::Week.number(now);
        let more = more.as_ref().filter(|more| Span::Week.number(more.at) == number);
        let of_week = || standing(self.weeks.get(&number), more);
        match &policy.week {
            Some(week) if week.when_full == WhenFull::Refuse => {
                let resets_at = Some(Span::Week.ends_at(now));
                fits(TokenLimit::Week, of_week(), week.max, asked, resets_at)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn reserved(&mut self, mission: MissionId, at: Timestamp, tokens: u64) {
        self.each(mission, at, |tally| tally.reserved = tally.reserved.saturating_add(tokens));
    }

    pub(super) fn returned(&mut self, mission: MissionId, at: Timestamp, tokens: u64) {
        self.each(mission, at, |tally| tally.reserved = tally.reserved.saturating_sub(tokens));
    }

    pub(super) fn used(&mut self, mission: MissionId, at: Timestamp, part: Part, tokens: u64) {
        self.each(mission, at, |tally| {
            let used = tally.by_part.entry(part).or_default();
            *used = used.saturating_add(tokens);
        });
    }

    fn each(&mut self, mission: MissionId, at: Timestamp, change: impl Fn(&mut TokenUse)) {
        change(self.missions.entry(mission).or_default());
        change(self.weeks.entry(Span::Week.number(at)).or_default());
        while self.weeks.len() > limits::SPANS_KEPT_MAX {
            self.weeks.pop_first();
        }
    }
}

/// What is used and reserved, once that bill has been paid.
fn standing(tally: Option<&TokenUse>, more: Option<&MoreTokens>) -> (u64, u64) {
    let (used, reserved) = tally.map_or((0, 0), |tally| (tally.used(), tally.reserved));
    match more {
        Some(more) => (used.saturating_add(more.used), reserved.saturating_sub(more.returned)),
        None => (used, reserved),
    }
}

fn fits(
    of: TokenLimit,
    (used, reserved): (u64, u64),
    cap: u64,
    asked: u64,
    resets_at: Option<Timestamp>,
) -> Result<(), Refusal> {
    match used.saturating_add(reserved).saturating_add(asked) > cap {
        true => Err(Refusal::TokenBudget { of, cap, used, reserved, asked, resets_at }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BUD-12: 35k + 530k + 340k + 55k.
    #[test]
    fn a_reference_feature_uses_960_thousand_tokens() {
        let parts = [Part::Specification, Part::Implementation, Part::Testing, Part::MergeAndDocs];
        assert_eq!(parts.map(Part::reference_tokens), [35_000, 530_000, 340_000, 55_000]);
        assert_eq!(parts.map(Part::reference_tokens).iter().sum::<u64>(), 960_000);
    }

    #[test]
    fn every_role_works_on_a_part() {
        let part = |role| Part::of(Some(AgentId { role, seat: 1 }));
        assert_eq!(part(Role::Planner), Part::Specification);
        assert_eq!(part(Role::Developer), Part::Implementation);
        assert_eq!(part(Role::Tester), Part::Testing);
        assert_eq!(part(Role::Librarian), Part::MergeAndDocs);
        assert_eq!(part(Role::Router), Part::Infrastructure);
        assert_eq!(Part::of(None), Part::Infrastructure);
    }

    /// BUD-11: infrastructure ate the whole subscription of one of the sources.
    #[test]
    fn a_week_counts_infrastructure_beside_features() {
        let mut tokens = Tokens::default();
        let (mission, monday) = (MissionId(1), Timestamp(4 * crate::calendar::DAY_MS));
        tokens.used(mission, monday, Part::Infrastructure, 60_480_000);
        tokens.used(mission, monday, Part::Implementation, 4_800_000);
        let week = tokens.week(monday.plus_ms(6 * crate::calendar::DAY_MS));
        assert_eq!((week.infrastructure(), week.features()), (60_480_000, 4_800_000));
        assert_eq!(week.used(), 65_280_000);
        assert_eq!(tokens.week(Timestamp(0)), TokenUse::default(), "the week before");
    }
}
