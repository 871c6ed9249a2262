//! Planted bugs: rules that are wrong in one way each, to prove that the simulator would see it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use kapelle_core::breaker::Breaker;
use kapelle_core::command::{AdvanceOutcome, AttemptOutcome, CheckResult};
use kapelle_core::engine::Rules;
use kapelle_core::escalation::{DeadLetter, FailureStory, HumanBecause, Ladder, Next, Trouble};
use kapelle_core::event::{Chore, Interruption, PauseReason, Restart};
use kapelle_core::failure::{Failure, FailureKind};
use kapelle_core::ledger::Purpose;
use kapelle_core::merge::LaneId;
use kapelle_core::mission::MissionStage;
use kapelle_core::routing::{Model, Tier};
use kapelle_core::state::Live;
use kapelle_core::{
    Actor, Command, Effect, Event, Fence, MissionId, Refusal, State, TaskId, Timestamp, Usd,
};

mod agents;
mod council;
mod list;
mod merging;
mod people;
mod plans;

pub use list::Mutant;

type Decision = Result<Vec<Event>, Refusal>;

/// The sound rules with one bug planted.
#[derive(Debug, Clone)]
pub struct Planted {
    mutant: Mutant,
    /// What fences stood for while they were live; the engine forgets it, as it should.
    seen: RefCell<BTreeMap<Fence, Subject>>,
}

/// What a result is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Task(TaskId),
    Lane(MissionId, LaneId),
}

fn subject(state: &State, fence: Fence) -> Option<Subject> {
    match state.live(fence)? {
        Live::Attempt(lease) => Some(Subject::Task(lease.task)),
        Live::Chore { chore: Chore::Gate(task), .. } => Some(Subject::Task(*task)),
        Live::Chore { mission, chore: Chore::LaneTest(lane) } => {
            Some(Subject::Lane(*mission, *lane))
        }
        Live::Chore { .. } => None,
    }
}

impl Planted {
    #[must_use]
    pub fn new(mutant: Mutant) -> Planted {
        Planted { mutant, seen: RefCell::default() }
    }

    fn remember(&self, state: &State) {
        let fences = state.due().iter().map(|(fence, _)| fence);
        let live = fences.filter_map(|fence| Some((fence, subject(state, fence)?)));
        self.seen.borrow_mut().extend(live);
    }

    fn task_of(&self, fence: Fence) -> Option<TaskId> {
        match self.seen.borrow().get(&fence)? {
            Subject::Task(task) => Some(*task),
            Subject::Lane(..) => None,
        }
    }

    /// The fence that is live for what `stale` once stood for.
    fn current(&self, state: &State, stale: Fence) -> Option<Fence> {
        let about = *self.seen.borrow().get(&stale)?;
        let mut fences = state.due().iter().map(|(fence, _)| fence);
        fences.find(|fence| subject(state, *fence) == Some(about))
    }

    /// The command as the bug misreads it.
    fn misread(&self, state: &State, command: &Command) -> Command {
        let mut command = command.clone();
        match (self.mutant, &mut command) {
            (Mutant::NoFence, Command::FinishAttempt { fence, .. })
            | (Mutant::OldVerdict, Command::FinishChecks { fence, .. }) => {
                *fence = self.current(state, *fence).unwrap_or(*fence);
            }
            (Mutant::BlindQueue, Command::FinishChecks { fence, results }) => {
                let chore = state.live(*fence);
                if matches!(chore, Some(Live::Chore { chore: Chore::LaneTest(_), .. })) {
                    results.iter_mut().for_each(|result| result.passed = true);
                }
            }
            (Mutant::RedAnything, Command::FinishChecks { fence, results }) => {
                let chore = state.live(*fence);
                if matches!(chore, Some(Live::Chore { chore: Chore::Gate(_), .. }))
                    && fits_red(state, *fence)
                {
                    results.iter_mut().for_each(|result| result.passed = false);
                }
            }
            (Mutant::HalfChecked, Command::FinishChecks { fence, results }) => {
                complete(state, *fence, results);
            }
            (Mutant::TrustsMocks, Command::FinishChecks { results, .. }) => {
                results.iter_mut().for_each(|result| result.mocks.clear());
            }
            (
                Mutant::Trespass,
                Command::FinishAttempt { outcome: AttemptOutcome::Done { touched, .. }, .. },
            ) => *touched = Arc::default(),
            (
                Mutant::Wanderer,
                Command::FinishAttempt { outcome: AttemptOutcome::Done { touched, .. }, .. },
            ) => Arc::make_mut(touched).retain(|path| !path.starts_with("elsewhere/")),
            (
                Mutant::Gullible,
                Command::FinishAttempt {
                    fence, outcome: AttemptOutcome::Done { change, .. }, ..
                },
            ) => {
                *change = change.take().or_else(|| Some(state.lease(*fence)?.base.clone()));
            }
            (Mutant::ApproveAny, Command::ApproveDelivery { mission, commit, .. }) => {
                let stage = state.mission(*mission).map(|m| &m.stage);
                if let Some(MissionStage::Proposed { commit: proposed }) = stage {
                    commit.clone_from(proposed);
                }
            }
            (Mutant::BlamesTheTask, Command::FinishAttempt { outcome, .. }) => {
                if let AttemptOutcome::Abandoned(failure) = outcome {
                    *outcome = AttemptOutcome::Failed(failure.clone());
                }
            }
            (
                Mutant::ApprovesUnseen | Mutant::HearsTwice | Mutant::ObeysAnybody,
                Command::Approve { .. } | Command::Override { .. },
            ) => people::misread(self.mutant, state, &mut command),
            (Mutant::Unordered, Command::OpenMission { plan, .. }) => {
                plan.tasks.iter_mut().for_each(|task| task.dependencies.clear());
            }
            (Mutant::DeafToHeartbeats, Command::Heartbeat { fences }) => fences.clear(),
            (Mutant::MovedIsMerged, Command::FinishAdvance { outcome, .. }) => {
                *outcome = AdvanceOutcome::Advanced;
            }
            _ => {}
        }
        command
    }

    /// The decision as the bug falsifies it.
    fn falsify(&self, mut events: Vec<Event>, given: &Command, now: Timestamp) -> Vec<Event> {
        match self.mutant {
            // The verdict is wrong, the results are on record as they were.
            Mutant::BlindQueue | Mutant::RedAnything | Mutant::HalfChecked => {
                for event in &mut events {
                    if let (
                        Event::ChecksFinished { results, .. } | Event::LaneTested { results, .. },
                        Command::FinishChecks { results: told, .. },
                    ) = (event, given)
                    {
                        results.clone_from(told);
                    }
                }
            }
            Mutant::EternalLease => {
                for event in &mut events {
                    if let Event::AttemptInterrupted {
                        fence,
                        cause: Interruption::LeaseExpired,
                        ..
                    } = event
                    {
                        let expires_at = now.plus_ms(10_000);
                        *event = Event::LeaseRenewed { fence: *fence, expires_at };
                    }
                }
            }
            Mutant::NeverGivesUp => {
                for event in &mut events {
                    if let Event::TaskDeadLettered { task, .. } = event {
                        let (task, at) = (*task, now.plus_ms(1_000));
                        *event = Event::RetryScheduled { task, at, from: Restart::Phase };
                    }
                }
                events.retain(|event| !matches!(event, Event::TaskBlocked { .. }));
            }
            Mutant::FreeWork => events.retain(|event| !matches!(event, Event::CostCharged { .. })),
            Mutant::Generous if matches!(given, Command::FinishAttempt { .. }) => {
                events.retain(|event| {
                    !matches!(
                        event,
                        Event::MissionPaused { .. }
                            | Event::ChoreWithdrawn { .. }
                            | Event::AttemptInterrupted { .. }
                    )
                });
            }
            Mutant::HalfPaused if matches!(given, Command::PauseMission { .. }) => {
                events.retain(|event| matches!(event, Event::MissionPaused { .. }));
            }
            Mutant::Hoarder => {
                for event in &mut events {
                    if let Event::ReservationReleased { usd, .. } = event {
                        *usd = Usd::ZERO;
                    }
                }
            }
            Mutant::ParkedCounts => {
                for event in &mut events {
                    if let Event::AttemptInterrupted {
                        task,
                        fence,
                        cause: Interruption::ProviderParked,
                    } = event
                    {
                        let failure = Failure::new(FailureKind::RateLimited, "too many requests");
                        *event = Event::AttemptFailed { task: *task, fence: *fence, failure };
                    }
                }
            }
            Mutant::DeafToParking => {
                events.retain(|event| !matches!(event, Event::ProviderParked { .. }));
            }
            Mutant::NeverOpens => events.retain(|event| {
                !matches!(event, Event::BreakerMoved { to: Breaker::Open { .. }, .. })
            }),
            Mutant::NeverCloses => events.retain(|event| {
                !matches!(event, Event::BreakerMoved { to: Breaker::Closed { .. }, .. })
            }),
            Mutant::WaitsForTheDead if *given == Command::CloseBills => events.clear(),
            Mutant::LostBill if matches!(given, Command::ReportSpending { .. }) => events.clear(),
            Mutant::EndlessGrace if events.contains(&Event::SpendingStopped) => {
                events.truncate(1);
            }
            Mutant::ResumesItself if events.contains(&Event::SpendingStopped) => {
                events = vec![Event::SpendingResumed { by: Actor::kapelle() }];
            }
            Mutant::DeafToMachine if matches!(given, Command::ReportMachine { .. }) => {
                events.clear();
            }
            Mutant::Wanderer => record_touched(&mut events, given),
            Mutant::CountsStops if *given == Command::StopHost => {
                events.iter_mut().for_each(count_stops);
            }
            Mutant::Immortal if *given == Command::HostStarted => events.clear(),
            Mutant::Timeless if *given == Command::Tick => events.clear(),
            Mutant::LandsUntested
            | Mutant::BlamesTheFirst
            | Mutant::ForgetsAPassenger
            | Mutant::RebasesForEver
            | Mutant::ExcusesAnything
            | Mutant::HalfRolledBack
            | Mutant::BuildsOnSand
            | Mutant::StopsNobody => merging::falsify(self.mutant, &mut events, now),
            Mutant::AsksNobody
            | Mutant::OneIsEnough
            | Mutant::ApprovesUnseen
            | Mutant::HearsTwice
            | Mutant::ObeysAnybody
            | Mutant::KeepsOldWord
            | Mutant::TellsNobody => people::falsify(self.mutant, &mut events, given),
            _ => falsify_failures(self.mutant, &mut events, given),
        }
        events
    }
}

/// What an agent touched is on record, whatever was made of it.
fn record_touched(events: &mut [Event], given: &Command) {
    for event in events {
        if let (
            Event::AttemptFinished { touched, .. },
            Command::FinishAttempt { outcome: AttemptOutcome::Done { touched: told, .. }, .. },
        ) = (event, given)
        {
            touched.clone_from(told);
        }
    }
}

fn falsify_failures(mutant: Mutant, events: &mut Vec<Event>, given: &Command) {
    match mutant {
        Mutant::HalfBuried => events.retain(|event| !matches!(event, Event::TaskBlocked { .. })),
        Mutant::NeverWarns => {
            events.retain(|event| !matches!(event, Event::FailuresWarned { .. }));
        }
        Mutant::Silent => events.retain(|event| !matches!(event, Event::PersonNotified { .. })),
        Mutant::BlankLetter => {
            for event in events {
                if let Event::TaskDeadLettered { letter, .. } = event {
                    *letter = None;
                }
            }
        }
        Mutant::Shrill => {
            let again = events.iter().find_map(|event| match event {
                Event::PersonNotified { .. } => Some(event.clone()),
                _ => None,
            });
            events.extend(again);
        }
        Mutant::Undeterred => {
            let rated = |event: &Event| {
                let Event::MissionPaused { reason, .. } = event else { return false };
                matches!(reason, PauseReason::FailureRate { .. })
            };
            if let Some(paused) = events.iter().position(rated) {
                let withdrawn = |event: &Event| {
                    matches!(event, Event::AttemptInterrupted { .. } | Event::ChoreWithdrawn { .. })
                };
                events.remove(paused);
                events.retain(|event| !withdrawn(event));
            }
        }
        Mutant::FreesTooMuch if matches!(given, Command::RequeueTask { .. }) => {
            for event in events {
                if let Event::TaskBlocked { task, .. } = event {
                    *event = Event::TaskUnblocked { task: *task };
                }
            }
        }
        _ => {}
    }
}

fn is_unheard(events: &[Event]) -> bool {
    use PauseReason::{NoSeat, NoTerritory};
    let reason = |event: &Event| match event {
        Event::MissionPaused { reason, .. } => matches!(reason, NoSeat { .. } | NoTerritory { .. }),
        _ => false,
    };
    events.iter().any(reason)
}

fn is_loss(events: &[Event]) -> bool {
    matches!(events, [Event::TroubleMet { trouble: Trouble::HostLost, .. }, ..])
}

/// Gives up what was lost with its host, as if it had been so often enough.
fn blame_at_once(events: &mut Vec<Event>, now: Timestamp) {
    let lost = events.iter().find_map(|event| match event {
        Event::AttemptInterrupted { task, cause: Interruption::LeaseExpired, .. } => Some(*task),
        _ => None,
    });
    let Some(task) = lost else { return };
    let because = HumanBecause::HostLost { times: 1 };
    let (story, counters) = (FailureStory::default(), Ladder::default());
    let letter = DeadLetter { task, because: because.clone(), story, counters, died_at: now };
    let (trouble, next) = (Trouble::HostLost, Next::AskHuman { because });
    events.push(Event::TroubleMet { task, trouble, next });
    events.push(Event::TaskDeadLettered { task, letter: Some(Box::new(letter)) });
}

/// Locks all files that the task names, whoever has them.
fn lock_all(state: &State, event: &mut Event) {
    if let Event::FilesLocked { lock } = event
        && let Some(task) = state.task(lock.task)
    {
        lock.paths = task.files.to_vec();
    }
}

fn share_all(state: &State, events: &mut [Event]) {
    for event in events {
        if let Event::SubAgentOpened { fence, usd, .. } = event
            && let Some(lease) = state.lease(*fence)
        {
            *usd = lease.reserved;
        }
    }
}

/// Sends work to the first model of this kind, whatever the work is.
fn misroute(state: &State, events: &mut [Event], is_fit: impl Fn(&Model) -> bool) {
    let routing = state.settings().routing.as_ref();
    let first = routing.and_then(|policy| policy.models.0.iter().find(|model| is_fit(model)));
    for event in events {
        if let (Event::LeaseGranted { route: Some(route), .. }, Some(first)) = (event, first) {
            route.model.clone_from(&first.name);
            route.provider.clone_from(&first.provider);
            route.tier = first.tier;
        }
    }
}

/// Pays for a retry as if nothing had failed before.
fn forget_failures(event: &mut Event) {
    if let Event::LeaseGranted { reserved, reservation: Some(drawn), .. } = event {
        (drawn.purpose, drawn.estimate) = (Purpose::Work, *reserved);
    }
}

/// Takes a stop in order for a lost host.
fn count_stops(event: &mut Event) {
    if let Event::AttemptInterrupted { cause, .. } = event {
        *cause = Interruption::HostRestarted;
    }
}

/// Gives the lease to the last in the queue that would start just so.
fn serve_last(state: &State, event: &mut Event) {
    let Event::LeaseGranted { task, agent, .. } = event else { return };
    let Some(granted) = state.task(*task) else { return };
    let alike = |id: &TaskId| {
        state.task(*id).is_some_and(|other| {
            other.mission == granted.mission
                && other.phase == granted.phase
                && (&other.accepted, &other.unfinished) == (&granted.accepted, &granted.unfinished)
        })
    };
    *task = state.waiting_for(agent.role).into_iter().rfind(alike).unwrap_or(*task);
}

fn fits_red(state: &State, fence: Fence) -> bool {
    let Some(Live::Chore { mission, chore: Chore::Gate(task) }) = state.live(fence) else {
        return false;
    };
    let phase = state.mission(*mission).and_then(|m| state.task(*task)?.phase(&m.policy));
    phase == Some(kapelle_core::flow::Phase::Red)
}

/// Adds the checks that a report leaves out, as passed.
fn complete(state: &State, fence: Fence, results: &mut Vec<CheckResult>) {
    let checks = match state.due().get(fence) {
        Some(Effect::RunChecks { checks, .. }) => checks,
        Some(Effect::TestLane { policy, .. } | Effect::MeasureBaseline { policy, .. }) => {
            &policy.checks
        }
        _ => return,
    };
    for check in checks {
        if results.iter().all(|result| result.name != check.name) {
            let name = check.name.clone();
            results.push(CheckResult { name, passed: true, ..CheckResult::default() });
        }
    }
}

fn silent(state: &State, fence: Fence, now: Timestamp) -> Option<Event> {
    let lease = state.lease(fence)?;
    let silent_ms = now.ms_since(lease.granted_at);
    Some(Event::AttemptIdle { task: lease.task, fence, agent: lease.agent, silent_ms })
}

impl Rules for Planted {
    fn decide(&self, state: &State, command: &Command, now: Timestamp) -> Decision {
        self.remember(state);
        let misread = self.misread(state, command);
        let decided = state.decide(&misread, now);
        if let (Mutant::PaidTwice, Command::ReportSpending { fence, spent }) =
            (self.mutant, command)
            && let (Err(Refusal::StaleFence { .. }), Some(task)) = (&decided, self.task_of(*fence))
        {
            let (fence, usd, usage) = (*fence, spent.usd, spent.usage.clone());
            return Ok(vec![Event::CostCharged { task, fence, usd, usage }]);
        }
        let mut decided = agents::falsify(self.mutant, decided, command);
        if let (Mutant::SharesTooMuch, Ok(events)) = (self.mutant, &mut decided) {
            share_all(state, events);
        }
        let events = plans::falsify(self.mutant, decided, command, state)?;
        let mut events = self.falsify(events, command, now);
        if let (Mutant::CriesWolf, Command::ReportOutput { heard }) = (self.mutant, command) {
            events = heard.iter().filter_map(|(fence, _)| silent(state, *fence, now)).collect();
        }
        council::falsify(self.mutant, &mut events, Some(command), state, now);
        if self.mutant == Mutant::BlamesAtOnce {
            blame_at_once(&mut events, now);
        }
        if self.mutant == Mutant::HalfAWave {
            merging::split(self.mutant, &mut events);
        }
        Ok(events)
    }

    fn next(&self, state: &State, now: Timestamp) -> Vec<Event> {
        let mut events = state.next(now);
        council::falsify(self.mutant, &mut events, None, state, now);
        match self.mutant {
            Mutant::SleepyWatchdog => {
                events.retain(|event| !matches!(event, Event::SpendingPaused { .. }));
            }
            Mutant::FirstInTheBook => misroute(state, &mut events, |_| true),
            Mutant::AlwaysEco => misroute(state, &mut events, |model| model.tier == Tier::Eco),
            Mutant::ForgetsFailures => events.iter_mut().for_each(forget_failures),
            Mutant::Credulous => {
                events.retain(|event| !matches!(event, Event::TestQuarantined { .. }));
            }
            Mutant::HalfAWave | Mutant::WaveGoesOn => merging::split(self.mutant, &mut events),
            Mutant::OnCredit => {
                for event in &mut events {
                    if let Event::LeaseGranted { reserved, .. } = event {
                        *reserved = Usd::ZERO;
                    }
                }
            }
            Mutant::LosesEveryHost if is_loss(&events) => events.clear(),
            Mutant::QueueJumper => events.iter_mut().for_each(|event| serve_last(state, event)),
            Mutant::Lockless => {
                events.retain(|event| !matches!(event, Event::FilesLocked { .. }));
            }
            Mutant::LockThief => events.iter_mut().for_each(|event| lock_all(state, event)),
            Mutant::LosesFiles => {
                let mut locks = state.locks().iter().map(|(_, lock)| lock);
                let expired = locks.find(|lock| lock.expires_at <= now);
                events.extend(expired.map(|lock| Event::LocksExpired { task: lock.holder }));
            }
            Mutant::Unheard if is_unheard(&events) => events.clear(),
            // The locks of a grant go with it: alone they would be taken again and again.
            Mutant::Idler if state.leases().next().is_some() => events.retain(|event| {
                !matches!(event, Event::LeaseGranted { .. } | Event::FilesLocked { .. })
            }),
            _ => {}
        }
        events
    }
}
