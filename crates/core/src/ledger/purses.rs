//! Sums: what is spent and reserved, by everything that can have a cap.
//!
//! Invariant: in every purse, `reserved` is the sum of what is left of the open reservations that
//! count for it, and `spent` the sum of all charges.

use serde::{Deserialize, Serialize};

use super::account::{Account, Crew, Purpose, Reservation};
use super::pools::Pool;
use crate::by_task::ByTask;
use crate::calendar::Span;
use crate::few::FewMap;
use crate::ids::{AgentId, MissionId, TaskId};
use crate::limits;
use crate::money::Usd;
use crate::time::Timestamp;

/// Something that spending is summed for. Days, weeks and months are numbers of [`Span`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Project,
    Session(u32),
    Mission(MissionId),
    /// Retries of a mission.
    Retries(MissionId),
    /// What no task was charged for is under None, so that tasks add up to their mission.
    Task(MissionId, Option<TaskId>),
    Agent(MissionId, Option<AgentId>),
    Day(u64),
    Week(u64),
    Month(u64),
    Pool(u64, Pool),
    CouncilDay(u64),
    CouncilWeek(u64),
    ScalingDay(u64),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purse {
    pub spent: Usd,
    pub reserved: Usd,
    /// The part of `spent` that was not reserved before: spent + reserved ≤ cap + excess.
    pub excess: Usd,
}

impl Purse {
    #[must_use]
    pub fn committed(&self) -> Usd {
        self.spent + self.reserved
    }
}

/// What a reservation or a charge counts for: a scope of each kind at most.
#[derive(Debug, Clone)]
pub(super) struct Scopes {
    account: Account,
    session: u32,
    pool: Option<Pool>,
    day: u64,
    week: u64,
    month: u64,
}

const SCOPES_MAX: usize = 13;

pub(super) fn scopes(account: &Account, at: Timestamp, session: u32, pool: Option<Pool>) -> Scopes {
    let [day, week, month] = [Span::Day, Span::Week, Span::Month].map(|span| span.number(at));
    Scopes { account: account.clone(), session, pool, day, week, month }
}

impl Scopes {
    /// In the order in which refusals are looked for.
    pub(super) fn list(&self) -> [Option<Scope>; SCOPES_MAX] {
        let &Scopes { ref account, session, pool, day, week, month } = self;
        let (mission, is_council) = (account.mission, account.purpose == Purpose::Council);
        [
            Some(Scope::Task(mission, account.task)),
            Some(Scope::Agent(mission, account.agent)),
            (account.purpose == Purpose::Retry).then_some(Scope::Retries(mission)),
            Some(Scope::Mission(mission)),
            Some(Scope::Session(session)),
            is_council.then_some(Scope::CouncilDay(day)),
            is_council.then_some(Scope::CouncilWeek(week)),
            (account.crew == Crew::Extra).then_some(Scope::ScalingDay(day)),
            pool.map(|pool| Scope::Pool(day, pool)),
            Some(Scope::Day(day)),
            Some(Scope::Week(week)),
            Some(Scope::Month(month)),
            Some(Scope::Project),
        ]
    }
}

impl Reservation {
    pub(super) fn scopes(&self) -> Scopes {
        scopes(&self.account, self.at, self.session, self.pool)
    }
}

/// The scopes of a mission are many and kept by mission, so that the few others are found fast.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Purses {
    missions: FewMap<MissionId, OfMission>,
    project: Purse,
    sessions: Spans,
    days: Spans,
    weeks: Spans,
    months: Spans,
    council_days: Spans,
    council_weeks: Spans,
    scaling_days: Spans,
    pools: FewMap<(u64, Pool), Purse>,
    /// Days before this one are forgotten, and nothing more can be reserved for them.
    pub(super) closed_days: u64,
}

/// The purses of sessions, or of stretches of the calendar, by their numbers.
type Spans = FewMap<u64, Purse>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct OfMission {
    all: Purse,
    retries: Purse,
    tasks: ByTask<Purse>,
    /// What no task was charged for.
    taskless: Option<Purse>,
    agents: FewMap<Option<AgentId>, Purse>,
}

impl Purses {
    pub(super) fn get(&self, scope: Scope) -> Purse {
        let of = |mission: MissionId| self.missions.get(&mission);
        let found = match scope {
            Scope::Mission(mission) => of(mission).map(|of| &of.all),
            Scope::Retries(mission) => of(mission).map(|of| &of.retries),
            Scope::Task(mission, task) => {
                of(mission).and_then(|of| task.map_or(of.taskless.as_ref(), |id| of.tasks.get(id)))
            }
            Scope::Agent(mission, agent) => of(mission).and_then(|of| of.agents.get(&agent)),
            Scope::Project => Some(&self.project),
            Scope::Session(number) => self.sessions.get(&u64::from(number)),
            Scope::Day(day) => self.days.get(&day),
            Scope::Week(week) => self.weeks.get(&week),
            Scope::Month(month) => self.months.get(&month),
            Scope::Pool(day, pool) => self.pools.get(&(day, pool)),
            Scope::CouncilDay(day) => self.council_days.get(&day),
            Scope::CouncilWeek(week) => self.council_weeks.get(&week),
            Scope::ScalingDay(day) => self.scaling_days.get(&day),
        };
        found.copied().unwrap_or_default()
    }

    pub(super) fn is_known_day(&self, day: u64) -> bool {
        self.days.get(&day).is_some()
    }

    /// Changes the purse of every scope. One after the other, not by the list: each of an attempt's
    /// reservations passes here, and where a purse is follows from its kind.
    pub(super) fn each(&mut self, scopes: &Scopes, mut change: impl FnMut(Scope, &mut Purse)) {
        let &Scopes { ref account, session, pool, day, week, month } = scopes;
        let &Account { mission, task, agent, crew, purpose, .. } = account;
        let of = self.missions.or_default(mission);
        let of_task = match task {
            Some(task) => of.tasks.or_default(task),
            None => of.taskless.get_or_insert_default(),
        };
        change(Scope::Task(mission, task), of_task);
        change(Scope::Agent(mission, agent), of.agents.or_default(agent));
        if purpose == Purpose::Retry {
            change(Scope::Retries(mission), &mut of.retries);
        }
        change(Scope::Mission(mission), &mut of.all);
        change(Scope::Session(session), self.sessions.or_default(u64::from(session)));
        if purpose == Purpose::Council {
            change(Scope::CouncilDay(day), self.council_days.or_default(day));
            change(Scope::CouncilWeek(week), self.council_weeks.or_default(week));
        }
        if crew == Crew::Extra {
            change(Scope::ScalingDay(day), self.scaling_days.or_default(day));
        }
        if let Some(pool) = pool {
            change(Scope::Pool(day, pool), self.pools.or_default((day, pool)));
        }
        change(Scope::Day(day), self.days.or_default(day));
        change(Scope::Week(week), self.weeks.or_default(week));
        change(Scope::Month(month), self.months.or_default(month));
        change(Scope::Project, &mut self.project);
    }

    pub(super) fn tasks(
        &self,
        mission: MissionId,
    ) -> impl Iterator<Item = (Option<TaskId>, Purse)> {
        self.missions.get(&mission).into_iter().flat_map(|of| {
            let taskless = of.taskless.map(|purse| (None, purse));
            taskless.into_iter().chain(of.tasks.iter().map(|(task, purse)| (Some(task), *purse)))
        })
    }

    pub(super) fn agents(
        &self,
        mission: MissionId,
    ) -> impl Iterator<Item = (Option<AgentId>, Purse)> {
        let agents = self.missions.get(&mission).into_iter().flat_map(|of| of.agents.iter());
        agents.map(|(agent, purse)| (*agent, *purse))
    }

    pub(super) fn days(&self) -> impl Iterator<Item = (u64, Purse)> {
        self.days.iter().map(|(day, purse)| (*day, *purse))
    }

    /// Another agent of the mission holds a part of what is reserved.
    pub(super) fn move_reserved(&mut self, from: &Account, to: &Account, usd: Usd) {
        if from.agent != to.agent {
            let agents = &mut self.missions.or_default(from.mission).agents;
            let giver = agents.or_default(from.agent);
            giver.reserved = giver.reserved.saturating_sub(usd);
            agents.or_default(to.agent).reserved += usd;
        }
    }

    /// Forgets the oldest days, weeks and months beyond the number that is kept. One with an open
    /// reservation stays, and so does everything after it.
    pub(super) fn forget_old_spans(&mut self) {
        let last = forget(&mut self.days);
        self.closed_days = self.closed_days.max(last.map_or(0, |last| last + 1));
        let others = [
            &mut self.weeks,
            &mut self.months,
            &mut self.council_days,
            &mut self.council_weeks,
            &mut self.scaling_days,
            &mut self.sessions,
        ];
        for spans in others {
            forget(spans);
        }
        let open = (self.closed_days, Pool::FIRST);
        while self.pools.keys().next().is_some_and(|first| *first < open) {
            self.pools.pop_first();
        }
    }
}

/// The number of the last one that was forgotten.
fn forget(spans: &mut Spans) -> Option<u64> {
    let many = spans.len().saturating_sub(limits::SPANS_KEPT_MAX);
    let old = spans.iter().take(many).take_while(|(_, purse)| purse.reserved == Usd::ZERO).count();
    let forgotten = (0..old).filter_map(|_| spans.pop_first());
    forgotten.last().map(|(number, _)| number)
}

impl Scope {
    /// What a sum counts for here, of its worst case and of what it will probably be.
    pub(super) fn weighs(self, worst: Usd, estimate: Usd) -> Usd {
        match self {
            Scope::Retries(_) => estimate,
            _ => worst,
        }
    }

    /// The stretch of the calendar after which this scope begins anew.
    #[must_use]
    pub fn span(self) -> Option<(Span, u64)> {
        match self {
            Scope::Day(n) | Scope::Pool(n, _) | Scope::CouncilDay(n) | Scope::ScalingDay(n) => {
                Some((Span::Day, n))
            }
            Scope::Week(n) | Scope::CouncilWeek(n) => Some((Span::Week, n)),
            Scope::Month(n) => Some((Span::Month, n)),
            Scope::Project
            | Scope::Session(_)
            | Scope::Mission(_)
            | Scope::Retries(_)
            | Scope::Task(..)
            | Scope::Agent(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Role;
    use crate::plan::Priority;

    /// A purse that a refusal looks at and no reservation counts in would let anything pass.
    #[test]
    fn every_scope_that_is_listed_is_changed_once() {
        let agent = Some(AgentId { role: Role::Developer, seat: 1 });
        for purpose in [Purpose::Work, Purpose::Retry, Purpose::Council] {
            for (crew, task) in [(Crew::Standing, Some(TaskId(7))), (Crew::Extra, None)] {
                let (mission, priority) = (MissionId(3), Priority::Medium);
                let account = Account { mission, task, agent, crew, purpose, priority };
                let pool = (crew == Crew::Extra).then_some(Pool::FIRST);
                let scopes = scopes(&account, Timestamp(1 << 40), 2, pool);
                let mut purses = Purses::default();
                let mut changed = Vec::new();
                purses.each(&scopes, |scope, purse| {
                    purse.spent += Usd::cents(1);
                    changed.push(scope);
                });
                let listed: Vec<Scope> = scopes.list().into_iter().flatten().collect();
                assert_eq!(changed, listed);
                assert!(listed.iter().all(|scope| purses.get(*scope).spent == Usd::cents(1)));
            }
        }
    }
}
