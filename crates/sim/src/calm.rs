//! After the faults: everything works, people attend to everything, and missions must end.

use kapelle_core::approval::PersonRole;
use kapelle_core::breaker::{Breaker, BreakerKey};
use kapelle_core::engine::Rules;
use kapelle_core::event::PauseReason;
use kapelle_core::ledger::{Limit, Scope, WatchdogState};
use kapelle_core::mission::{Mission, MissionStage, MissionStatus};
use kapelle_core::{Actor, Command, Commit, Role, Usd};

use crate::agenda::{Sender, Thing};
use crate::draw;
use crate::faults::Faults;
use crate::oracle::{Verdict, ensure};
use crate::world::{Mood, Progress, World};

/// Far more than any world of this size needs.
const CALM_TURNS_MAX: u64 = 4_000;
const CALM_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// A person who was refused this often gives up.
const APPROVALS_MAX: u32 = 8;
/// And one who has put so many tasks back to work.
const REQUEUES_MAX: u32 = 3;
/// People look again after this long.
const ATTENTION_MS: u64 = 1_000;

/// A team that can do everything.
fn whole_team() -> Command {
    let seats = [(Role::Developer, 2), (Role::Tester, 1)].into();
    Command::ConfigureTeam { seats, workers_max: 3, by: Actor("ada".into()) }
}

impl<R: Rules + Clone> World<R> {
    pub(crate) fn calm_down(&mut self) -> Verdict {
        self.story.tell(self.now, || "* the faults end".into());
        self.mood = Mood::Calm;
        self.faults = Faults::default();
        self.agenda
            .retain(|thing| !matches!(thing, Thing::Person | Thing::Stranger | Thing::HostRestart));
        // Some teams stay as they are: whoever is missing has to be told of. One that a crash took
        // away before it was there is set up again, as at every start.
        if self.rng.bool() || self.engine.state().agents().workers_max() == 0 {
            self.arrive(Sender::Person, 1, whole_team());
        }
        let by = Actor("ada".into());
        // Some go on with models to choose from, all of which work.
        let mut settings = Box::new(draw::generous());
        if self.rng.u8(0..3) == 0 {
            let mut routing = draw::routing(&mut self.rng);
            routing.without_key.clear();
            routing.models.0.iter_mut().for_each(|model| model.enabled = true);
            settings.routing = Some(routing);
            settings.prices = draw::prices();
            settings.prices.unknown = settings.prices.models.values().next().copied();
        }
        if self.rng.bool() {
            settings.council = draw::council(&mut self.rng, settings.routing.is_some());
        }
        self.arrive(Sender::Person, 1, Command::ChangeSettings { settings, by });
        // Whoever was to be let in may have been forgotten in a crash.
        let ada = Actor("ada".into());
        if self.engine.state().people().role(&ada).is_some() {
            let (person, role) = (Actor("bob".into()), Some(PersonRole::Admin));
            self.arrive(Sender::Person, 0, Command::AssignRole { person, role, by: ada });
        }
        for wish in self.wishes.clone() {
            self.arrive(Sender::Person, 2, wish);
        }
        self.converge()?;
        self.judge_end()
    }

    fn converge(&mut self) -> Verdict {
        let (begun_at, begun_turns) = (self.now, self.stats.turns);
        loop {
            let progress = self.chore()?;
            let attended = self.attend();
            if progress == Progress::Idle {
                if !attended {
                    return Ok(());
                }
                self.now = self.now.plus_ms(ATTENTION_MS);
            }
            let (ms, turns) = (self.now.ms_since(begun_at), self.stats.turns - begun_turns);
            ensure(ms < CALM_MS_MAX && turns < CALM_TURNS_MAX, || {
                let of = |m: &Mission| format!("{} is {}", m.id, m.status());
                let missions: Vec<String> = self.engine.state().missions().map(of).collect();
                format!("no end after {turns} calm turns and {ms} ms: {}", missions.join(", "))
            })?;
        }
    }

    /// Does for every mission what a diligent person would. True if there was something to do.
    fn attend(&mut self) -> bool {
        let missions: Vec<_> = self.engine.state().missions().map(|m| m.id).collect();
        let mut attended = self.let_spend();
        attended |= self.reset_breakers();
        for id in missions {
            let Some(mission) = self.engine.state().mission(id) else { continue };
            let (last, approvals) = self.attended.get(&id).copied().unwrap_or_default();
            let Some(command) = self.duty(mission, approvals) else { continue };
            attended = true;
            if last.plus_ms(ATTENTION_MS) > self.now && last.0 > 0 {
                continue;
            }
            // Whoever lets a mission go on puts its branch back first, as its pause says.
            let put_back = mission.tip.clone().map(|tip| (mission.branch.clone(), tip));
            if let (Command::ResumeMission { .. }, Some((branch, tip))) = (&command, put_back) {
                let lost = |at: &Commit| !self.repo.is_ancestor(&tip, at);
                if self.repo.branch(&branch).is_some_and(lost) {
                    self.repo.set_branch(&branch, &tip);
                }
            }
            let approves = u32::from(matches!(command, Command::ApproveDelivery { .. }));
            if matches!(command, Command::RequeueTask { .. }) {
                *self.requeued.entry(id).or_default() += 1;
            }
            self.attended.insert(id, (self.now, approvals + approves));
            self.arrive(Sender::Person, 100, command);
        }
        attended
    }

    /// Somebody has looked into the watchdog's alarm.
    fn let_spend(&mut self) -> bool {
        if self.engine.state().ledger().watchdog() == WatchdogState::Watching {
            return false;
        }
        if self.now >= self.paid_at.plus_ms(ATTENTION_MS) {
            self.paid_at = self.now;
            self.arrive(Sender::Person, 100, Command::ResumeSpending { by: Actor("ada".into()) });
        }
        true
    }

    /// Somebody has mended whatever failed too often.
    fn reset_breakers(&mut self) -> bool {
        let all = self.engine.state().breakers().all();
        let needs_reset = |b: &Breaker| *b == Breaker::Open { until: None };
        let open = all.filter(|(_, breaker)| needs_reset(breaker)).map(|(key, _)| key.clone());
        let open: Vec<BreakerKey> = open.collect();
        let is_time = self.now >= self.mended_at.plus_ms(ATTENTION_MS);
        let attended = !open.is_empty();
        for key in open.into_iter().filter(|_| is_time) {
            self.mended_at = self.now;
            let by = Actor("ada".into());
            self.arrive(Sender::Person, 100, Command::ResetBreaker { key, by });
        }
        attended
    }

    /// Half of those who run out of money get more, once; the others are too expensive.
    fn more_money(&self, mission: &Mission) -> Option<Command> {
        let (id, by) = (mission.id, Actor("ada".into()));
        let attempt = mission.policy.budget.attempt_usd_max;
        let (ledger, scope) = (self.engine.state().ledger(), Scope::Mission(id));
        let has_room = ledger.left(scope).is_none_or(|left| left >= attempt)
            && ledger.cap(scope) >= Some(ledger.purse(scope).committed());
        if has_room {
            return Some(Command::ResumeMission { mission: id, by });
        }
        let raised = ledger.cap(scope) > Some(mission.policy.budget.mission_usd_max);
        if raised || id.0.is_multiple_of(2) {
            return None;
        }
        let usd = ledger.purse(scope).committed() + Usd::cents(10_000);
        let reason = "it is worth it".into();
        Some(Command::RaiseCap { mission: id, limit: Limit::Mission, usd, reason, by })
    }

    fn duty(&self, mission: &Mission, approvals: u32) -> Option<Command> {
        if mission.has_ended() {
            return None;
        }
        let (id, by) = (mission.id, Actor("ada".into()));
        let cancel = |reason: &str| Command::CancelMission {
            mission: id,
            reason: reason.into(),
            by: by.clone(),
        };
        match (&mission.paused, &mission.stage) {
            (Some(PauseReason::Budget { .. }), _) => {
                self.more_money(mission).or_else(|| Some(cancel("too expensive")))
            }
            (Some(PauseReason::NoSeat { role }), _) if !self.has_seat(*role) => Some(whole_team()),
            (Some(_), _) => Some(Command::ResumeMission { mission: id, by }),
            (None, MissionStage::Proposed { .. }) if approvals >= APPROVALS_MAX => {
                Some(cancel("the target does not take it"))
            }
            (None, MissionStage::Proposed { commit }) => {
                let by = self.somebody();
                Some(Command::ApproveDelivery { mission: id, commit: commit.clone(), by })
            }
            (None, _) => self
                .word_on(mission, false, false)
                .or_else(|| self.answer_to(mission, false))
                .or_else(|| self.second_chance(mission)),
        }
    }

    fn has_seat(&self, role: Role) -> bool {
        self.engine.state().agents().of(role).any(|(_, agent)| agent.stays())
    }

    fn second_chance(&self, mission: &Mission) -> Option<Command> {
        let given = self.requeued.get(&mission.id).copied().unwrap_or(0);
        self.requeue_of(mission, false).filter(|_| given < REQUEUES_MAX)
    }

    /// Nothing is left in flight or in waiting, and every mission has come to an end.
    fn judge_end(&self) -> Verdict {
        self.compare_with_replay()?;
        let state = self.engine.state();
        for mission in state.missions() {
            let status = mission.status();
            let ended = matches!(
                status,
                MissionStatus::Delivered | MissionStatus::Failed | MissionStatus::Cancelled
            );
            ensure(ended, || format!("{} is {status} for ever", mission.id))?;
        }
        ensure(state.missions().count() == self.wishes.len(), || {
            format!("{} wishes became {} missions", self.wishes.len(), state.missions().count())
        })?;
        let live = self.oracle.live_fences().count();
        ensure(live == 0 && self.running.is_empty(), || format!("{live} things never ended"))?;
        ensure(state.wake_at().is_none(), || "a timer is left of missions that ended".into())
    }
}
