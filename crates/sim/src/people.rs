//! People of a hostile world: impatient, late, mistaken, absent.

use kapelle_core::approval::{Gate, Order, OverrideAction, Subject};
use kapelle_core::breaker::BreakerKey;
use kapelle_core::engine::Rules;
use kapelle_core::flow::Phase;
use kapelle_core::ledger::Limit;
use kapelle_core::machine::MachineUse;
use kapelle_core::mission::{Mission, MissionStage};
use kapelle_core::rate::Provider;
use kapelle_core::scaling::ManualScale;
use kapelle_core::task::Stage;
use kapelle_core::{Actor, AgentId, Command, MissionId, Role, TaskId, Usd};

use crate::agenda::{Sender, Thing};
use crate::draw;
use crate::world::World;

impl<R: Rules + Clone> World<R> {
    /// A person looks at one mission and perhaps does something about it.
    pub(crate) fn person(&mut self) {
        let at = self.now.plus_ms(self.rng.u64(300..5_000));
        self.agenda.add(at, Thing::Person);
        self.stir();
        if self.strikes(|f| f.person_mends) {
            self.mend();
        }
        if self.strikes(|f| f.person_pays) {
            self.pay();
        }
        if self.strikes(|f| f.person_repeat) {
            let wish = self.wishes[self.rng.usize(0..self.wishes.len())].clone();
            self.arrive(Sender::Person, 0, wish);
        }
        if self.strikes(|f| f.person_council) {
            self.call_council();
        }
        self.meddle();
        if self.strikes(|f| f.person_absent) {
            return;
        }
        let gaps = self.strikes(|f| f.person_gaps);
        if self.strikes(|f| f.person_rollback) {
            self.take_back();
        }
        let (rejects, overrides) =
            (self.strikes(|f| f.person_rejects), self.strikes(|f| f.person_overrides));
        let (requeue, pause, cancel, wrong) = (
            self.strikes(|f| f.person_requeue),
            self.strikes(|f| f.person_pause),
            self.strikes(|f| f.person_cancel),
            self.strikes(|f| f.person_wrong),
        );
        let missions: Vec<&Mission> = self.engine.state().missions().collect();
        if missions.is_empty() {
            return;
        }
        let mission = missions[self.rng.usize(0..missions.len())];
        let (id, by) = (mission.id, Actor("ada".into()));
        let command = if gaps {
            let names = self.engine.state().tasks_of(mission).map(|task| task.name().to_owned());
            let plan = draw::gaps(&mut self.rng, names.collect());
            Some(Command::ProposeGaps { mission: id, plan, by })
        } else if cancel {
            Some(Command::CancelMission { mission: id, reason: "changed my mind".into(), by })
        } else if overrides {
            let id = mission.id;
            self.override_in(id)
        } else if let Some(word) = self.word_on(mission, rejects, wrong) {
            Some(word)
        } else if requeue {
            self.requeue_of(mission, wrong)
        } else if pause {
            Some(Command::PauseMission { mission: id, reason: "lunch".into(), by })
        } else if mission.paused.is_some() {
            Some(Command::ResumeMission { mission: id, by })
        } else if let MissionStage::Proposed { commit } = &mission.stage {
            let commit = if wrong { mission.base.clone() } else { commit.clone() };
            Some(Command::ApproveDelivery { mission: id, commit, by })
        } else {
            self.answer_to(mission, wrong)
        };
        // People are late: what they saw may no longer be so.
        let delay_ms = if self.rng.bool() { 0 } else { self.rng.u64(0..8_000) };
        if let Some(command) = command {
            self.arrive(Sender::Person, delay_ms, command);
        }
    }

    /// The team, the rules and the machine become others.
    fn stir(&mut self) {
        if self.strikes(|f| f.person_resize) {
            let (mut seats, workers_max) = draw::team(&mut self.rng);
            // Some forget a role that work needs.
            if self.rng.u8(0..4) == 0 {
                seats.remove(if self.rng.bool() { &Role::Developer } else { &Role::Tester });
            }
            self.arrive(
                Sender::Person,
                0,
                Command::ConfigureTeam { seats, workers_max, by: Actor("ada".into()) },
            );
        }
        if self.strikes(|f| f.person_scale) {
            let role = if self.rng.bool() { Role::Developer } else { Role::Tester };
            let reason = "as I like it".to_owned();
            let change = match self.rng.bool() {
                true => ManualScale::Up { reason },
                false => ManualScale::Down { reason },
            };
            let by = Actor("ada".into());
            self.arrive(Sender::Person, 0, Command::Scale { role, change, by });
        }
        if self.strikes(|f| f.person_rules) {
            self.rule();
        }
        if self.strikes(|f| f.rate_pressure) {
            let permille = self.rng.u32(600..=1_000);
            self.arrive(Sender::Host, 0, Command::ReportRateUse { permille });
        }
        if self.strikes(|f| f.machine_full) {
            let mut percent = || self.rng.u64(60..=100);
            let used = MachineUse {
                memory_percent: percent(),
                disk_percent: percent(),
                inodes_percent: percent(),
            };
            self.arrive(Sender::Host, 0, Command::ReportMachine { used });
        }
    }

    /// A person sets the rules of the project.
    pub(crate) fn rule(&mut self) {
        let settings = Box::new(draw::settings(&mut self.rng));
        let by = Actor("ada".into());
        self.arrive(Sender::Person, 0, Command::ChangeSettings { settings, by });
    }

    /// Somebody resets a breaker or takes a provider back, whether or not that is needed.
    fn mend(&mut self) {
        let by = Actor("ada".into());
        let mission = MissionId(self.rng.u32(1..=3));
        let provider = Provider::new(draw::PROVIDERS[self.rng.usize(0..draw::PROVIDERS.len())]);
        let key = match self.rng.bool() {
            true => BreakerKey::Provider(provider.clone()),
            false => BreakerKey::Mission(mission),
        };
        let (reset, back) = (
            Command::ResetBreaker { key, by: by.clone() },
            Command::UnparkProvider { provider, by },
        );
        let command = if self.rng.bool() { reset } else { back };
        self.arrive(Sender::Person, 0, command);
    }

    /// Somebody lets spending go on, or gives a mission or its retries more money, needed or not.
    fn pay(&mut self) {
        let by = Actor("ada".into());
        self.arrive(Sender::Person, 0, Command::ResumeSpending { by: by.clone() });
        let missions = self.engine.state().missions().count() as u32;
        let limit = match self.rng.u8(0..8) {
            0 => Limit::Day,
            1 | 2 => Limit::Retries,
            _ => Limit::Mission,
        };
        let (usd, reason) = (Usd::cents(self.rng.u64(0..2_000)), "it is worth it".into());
        let mission = MissionId(self.rng.u32(1..=missions.max(1)));
        self.arrive(Sender::Person, 0, Command::RaiseCap { mission, limit, usd, reason, by });
    }

    /// Somebody orders something about a task, or agrees to an order.
    fn override_in(&mut self, mission: MissionId) -> Option<Command> {
        let tasks: Vec<TaskId> = self.engine.state().mission(mission)?.task_ids().collect();
        let task = *tasks.get(self.rng.usize(0..tasks.len().max(1)))?;
        if self.rng.bool() && self.engine.state().overrides().pending(task).is_some() {
            return Some(Command::SecondOverride { task, by: Actor("bob".into()) });
        }
        let step = if self.rng.bool() { Phase::Red } else { Phase::Green };
        let seat = |seat| AgentId { role: Role::Developer, seat };
        let action = match self.rng.u8(0..4) {
            0 => OverrideAction::SkipStep { step },
            1 => OverrideAction::Reset { step },
            2 => OverrideAction::Reassign { from: seat(1), to: seat(2) },
            _ => OverrideAction::ForceComplete,
        };
        // Eve may look, and nothing else, where anybody is known.
        let who = if self.rng.u8(0..5) == 0 { "eve" } else { "ada" };
        let (reason, by) = ("I know better".into(), Actor(who.into()));
        Some(Command::Override { order: Box::new(Order { task, action, reason, by }) })
    }

    /// What a person says to the first thing of a mission that waits for approvals.
    pub(crate) fn word_on(&self, mission: &Mission, no: bool, wrong: bool) -> Option<Command> {
        let mut gates = self.engine.state().approvals().waiting();
        let of_tasks = |gate: &Gate| {
            gate.mission == mission.id && !matches!(gate.subject, Subject::Delivery(_))
        };
        let (gate, _) = gates.find(|(gate, _)| of_tasks(gate))?;
        let subject = gate.subject;
        let commit = if wrong { mission.base.clone() } else { gate.commit.clone() };
        let by = self.somebody();
        Some(match no {
            true => Command::Reject { subject, commit, reason: "not like this".into(), by },
            false => Command::Approve { subject, commit, by },
        })
    }

    /// One of two people, by turns.
    pub(crate) fn somebody(&self) -> Actor {
        Actor(if self.stats.turns.is_multiple_of(2) { "ada" } else { "bob" }.into())
    }

    /// Puts the first task of a mission that gave up back to work, or one that did not.
    pub(crate) fn requeue_of(&self, mission: &Mission, wrong: bool) -> Option<Command> {
        let state = self.engine.state();
        let dead = |id: &TaskId| state.task(*id).is_some_and(|t| t.stage == Stage::DeadLetter);
        let task = mission.task_ids().find(|id| dead(id) != wrong)?;
        let (reason, by) = ("the cause is gone".into(), Actor("ada".into()));
        Some(Command::RequeueTask { task, reason, by })
    }

    /// Priorities that change while everything runs.
    fn meddle(&mut self) {
        let by = Actor("ada".into());
        let tasks = self.engine.state().tasks().count() as u32;
        if self.strikes(|f| f.person_prioritise) {
            let task = TaskId(self.rng.u32(0..tasks + 2));
            let priority = draw::priority(&mut self.rng);
            self.arrive(Sender::Person, 0, Command::SetPriority { task, priority, by });
        }
    }

    /// The answer to the first open question of a mission.
    pub(crate) fn answer_to(&self, mission: &Mission, wrong: bool) -> Option<Command> {
        let asking = |id: TaskId| match &self.engine.state().task(id)?.stage {
            Stage::Asking { question } => Some((id, question.resume_id.clone())),
            _ => None,
        };
        let (task, asked) = mission.task_ids().find_map(asking)?;
        let resume_id = if wrong { "something else".into() } else { asked };
        let by = Actor("ada".into());
        Some(Command::AnswerCheckpoint { task, resume_id, input: "yes".into(), by })
    }
}
