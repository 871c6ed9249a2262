//! A history with people and councils in it: gates that are opened or stay shut, orders that want a
//! second person, votes that are cast, dropped or never come, breakers and file locks.

use kapelle_core::approval::{ApprovalPolicy, Level, Order, OverrideAction, Subject};
use kapelle_core::breaker::{BreakerKey, BreakerPolicy};
use kapelle_core::council::{
    CheckStanding, Checked, Choice, CouncilId, CouncilPolicy, Evidence, Findings, Question, Score,
    Session, Strategy, Vote,
};
use kapelle_core::escalation::EscalationPolicy;
use kapelle_core::failure::FailureKind;
use kapelle_core::flow::Phase;
use kapelle_core::policy::Policy;
use kapelle_core::routing::ModelName;
use kapelle_core::settings::Settings;
use kapelle_core::task::Stage;
use kapelle_core::{Actor, AgentId, Command, Fence, MissionId, Record, Role, TaskId, Usd};

use crate::fixture::Host;

/// What a vote says, and nobody may read before its council has closed.
pub const SECRET: &str = "a secret until the votes are open";

const PEOPLE: [&str; 3] = ["ada", "bob", "cyd"];

pub const PLAN: &str = r#"{"tasks": [
    {"id": "1-1", "title": "first", "files": ["src/auth/token.rs", "src/api.rs"],
        "file_operation_count": 2},
    {"id": "1-2", "title": "second", "dependencies": ["1-1"], "files": ["docs/a.md"]},
    {"id": "1-3", "title": "third", "files": ["src/api.rs"]},
    {"id": "1-4", "title": "urgent", "priority": "CRITICAL", "files": ["docs/b.md"]}]}"#;

/// One mission that ends somehow, and `more` of these.
pub fn history(seed: u64, more: u32) -> Vec<Record> {
    let mut host = host(seed);
    for number in 0..=more {
        host.open(&format!("crowded-{number}"));
        host.run_until_settled(MissionId(number + 1));
    }
    host.records
}

/// A project in which people have a say, and councils.
pub fn host(seed: u64) -> Host {
    let mut host = Host::new(seed);
    host.crowded = true;
    let strategy = Strategy::ALL[seed as usize % Strategy::ALL.len()];
    let council = CouncilPolicy { strategy, trigger_after_retries: 1, ..CouncilPolicy::default() };
    let breakers = BreakerPolicy { mission_failures_max: Some(2), ..BreakerPolicy::default() };
    let settings = Settings { council: Some(council), breakers, ..Settings::default() };
    host.give(Command::ChangeSettings { settings: Box::new(settings), by: person(0) });
    host
}

fn person(number: u64) -> Actor {
    Actor(PEOPLE[number as usize % PEOPLE.len()].into())
}

/// The rules of a mission, by its base.
pub fn rules(policy: Policy, turn: u64) -> Policy {
    let levels = [Level::Manual, Level::Assisted, Level::Supervised, Level::Guarded];
    let approvals = ApprovalPolicy {
        level: levels[turn as usize % levels.len()],
        second_person_ms_max: 60_000,
        ..ApprovalPolicy::default()
    };
    let escalation = EscalationPolicy {
        retries_max: [(FailureKind::AgentError, 1)].into(),
        council_after_retries: 1,
        ..EscalationPolicy::default()
    };
    Policy { approvals: Some(approvals), escalation, ..policy }
}

impl Host {
    /// The first operation of those that have any, once it is their turn.
    pub fn complete_operation(&mut self, fence: Fence) {
        let change = format!("{:040x}", (1 << 40) + fence.0).parse().unwrap();
        self.give(Command::CompleteOperation { fence, index: 0, change });
    }

    /// A member votes, or the judge judges; false if nobody has to, or somebody lets others wait.
    pub fn councils_sit(&mut self) -> bool {
        let chamber = self.engine.state().council();
        let sessions = (1..chamber.next_id().0).filter_map(|id| chamber.session(CouncilId(id)));
        let Some(session) = sessions.into_iter().find(|session| session.is_sitting()) else {
            return false;
        };
        let (council, judged) = (session.id, session.judged_by().is_some());
        let voter = |session: &Session| {
            let silent = |model: &ModelName| !session.heard().any(|heard| heard == model);
            let panel = session.convocation.panel.iter().map(|member| member.model.clone());
            panel.into_iter().find(|model| silent(model))
        };
        let (voter, review) = (voter(session), session.convocation.question != Question::Problem);
        let findings = findings(session);
        let luck = self.luck();
        let spent = Usd::cents(2);
        let command = match voter {
            _ if luck.is_multiple_of(5) => return false,
            _ if judged => Command::JudgeCouncil { council, findings: Box::new(findings), spent },
            Some(by) => {
                let vote = Box::new(vote(by, review, luck));
                Command::CastVote { council, vote, spent }
            }
            None => return false,
        };
        self.give(command);
        true
    }

    /// What people say when nothing else is to be done; false if they have nothing to say.
    pub fn people_speak(&mut self, id: MissionId) -> bool {
        let luck = self.luck();
        let by = person(luck);
        let state = self.engine.state();
        let mission = state.mission(id).unwrap();
        if mission.has_ended() || mission.paused.is_some() {
            self.give(Command::ResetBreaker { key: BreakerKey::Mission(id), by });
            return false;
        }
        let unseconded =
            state.tasks_of(mission).find(|task| state.overrides().pending(task.id).is_some());
        let turned_down = state.tasks_of(mission).find(|task| {
            let start = Subject::Start(task.id);
            task.stage == Stage::DeadLetter && state.approvals().is_rejected(start)
        });
        let landed = state.tasks_of(mission).filter(|task| task.merged.is_some()).last();
        let gates = state.approvals().waiting().map(|(gate, _)| gate);
        let waiting = gates.filter(|gate| gate.mission == id).min_by_key(|gate| gate.opened_at);
        let command = match (waiting, unseconded, turned_down) {
            (_, Some(task), _) if !luck.is_multiple_of(3) => {
                Command::SecondOverride { task: task.id, by }
            }
            (Some(gate), ..) => {
                let (subject, commit) = (gate.subject, gate.commit.clone());
                let whole = matches!(subject, Subject::Plan(_) | Subject::Delivery(_));
                let reason = "not like this".to_owned();
                match (whole, landed) {
                    (true, Some(task)) if luck.is_multiple_of(4) => {
                        Command::RollbackTask { task: task.id, reason, by }
                    }
                    (false, _) if luck.is_multiple_of(5) => {
                        Command::Reject { subject, commit, reason, by }
                    }
                    (true, _) if luck.is_multiple_of(11) => {
                        Command::Reject { subject, commit, reason, by }
                    }
                    _ => Command::Approve { subject, commit, by },
                }
            }
            (None, None, Some(task)) => order(task.id, OverrideAction::ForceComplete, by),
            _ => return false,
        };
        self.give(command);
        true
    }

    /// Now and then somebody knows better.
    pub fn people_meddle(&mut self, id: MissionId) {
        let luck = self.luck();
        let state = self.engine.state();
        let tasks: Vec<TaskId> =
            state.tasks_of(state.mission(id).unwrap()).map(|task| task.id).collect();
        let (task, by) = (tasks[luck as usize % tasks.len()], person(luck / 7));
        let developer = |seat| AgentId { role: Role::Developer, seat };
        let command = match luck % 60 {
            0 => order(task, OverrideAction::SkipStep { step: Phase::Red }, by),
            1 => order(task, OverrideAction::SkipStep { step: Phase::Green }, by),
            2 => order(task, OverrideAction::Reset { step: Phase::Red }, by),
            3 => order(task, OverrideAction::ForceComplete, by),
            4 => {
                let (from, to) = (developer(1), developer(2));
                order(task, OverrideAction::Reassign { from, to }, by)
            }
            5 => {
                let (question, panel) = (Question::Problem, Vec::new());
                Command::ConveneCouncil { task, question, panel, by }
            }
            6 => Command::RequeueTask { task, reason: "once more".into(), by },
            7 => {
                // Tasks of which nobody said how long they take have another score then.
                let mut settings = state.settings().clone();
                settings.queue.default_minutes = luck as u32 % 90 + 1;
                Command::ChangeSettings { settings: Box::new(settings), by }
            }
            _ => return,
        };
        self.give(command);
    }
}

pub fn order(task: TaskId, action: OverrideAction, by: Actor) -> Command {
    let reason = "stuck".to_owned();
    Command::Override { order: Box::new(Order { task, action, reason, by }) }
}

/// One in four shows nothing for what it says, and does not count.
pub fn vote(by: ModelName, review: bool, luck: u64) -> Vote {
    let shown = Evidence::Test { name: "it_waits".into(), says: SECRET.into() };
    let evidence = if luck % 4 == 3 { Vec::new() } else { vec![shown] };
    let choice = match (review, luck % 3) {
        (true, 0) => Choice::Reject,
        (true, _) => Choice::Approve,
        (false, 0) => Choice::Solution(format!("wait, {SECRET}")),
        (false, _) => Choice::Solution(format!("do not wait, {SECRET}")),
    };
    Vote { by, choice, reasoning: SECRET.into(), evidence, confidence: 700 }
}

/// What the judge says of the votes that it can read: all of them are good.
fn findings(session: &Session) -> Findings {
    let mut findings = Findings::default();
    for (number, vote) in (1..).zip(session.votes().unwrap_or_default()) {
        let standing = CheckStanding::Passed { tests: number };
        findings.checks.push(Checked { choice: vote.choice.clone(), standing });
        let score = Score { correctness: 100 * number, ..Score::default() };
        findings.scores.insert(vote.by.clone(), score);
    }
    findings
}
