//! Which faults a world has, and how often each strikes.
//!
//! Every seed enables its own random subset: a world with every fault at once never gets far
//! enough to show the subtle ones.

use fastrand::Rng;

/// Chances in a thousand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// The conductor dies before a batch is durable.
    pub crash_before: u32,
    /// The store refuses a batch: the conductor stops, and starts again.
    pub append_refused: u32,
    /// The conductor dies after a batch is durable and before it acts on it.
    pub crash_after: u32,
    /// A host starts anew while the conductor lives on.
    pub host_restart: u32,
    /// Somebody stops Kapelle in order, and starts it again.
    pub orderly_stop: u32,
    /// A message of an earlier life arrives after all.
    pub ghost: u32,
    /// Something that was stopped is performed nevertheless.
    pub zombie: u32,
    pub lose: u32,
    pub duplicate: u32,
    pub late: u32,
    pub heartbeat_loss: u32,
    /// A host sends something about a fence that it knows nothing of.
    pub confused: u32,
    pub clock_jump: u32,
    /// Somebody sets the clock back.
    pub clock_back: u32,
    /// A machine is gone with the attempts on it, and nobody says so.
    pub host_gone: u32,
    /// A task whose attempts take their host down.
    pub agent_kills: u32,
    pub agent_hang: u32,
    pub agent_slow: u32,
    /// The checks of a lane take so long that changes gather behind it.
    pub checks_slow: u32,
    pub agent_lie: u32,
    pub agent_trespass: u32,
    /// Touches files outside of its territory, if it has one.
    pub agent_strays: u32,
    pub agent_failure: u32,
    /// Fails for ever, unless somebody else has an idea.
    pub agent_stuck: u32,
    pub agent_question: u32,
    pub agent_overspend: u32,
    /// The host cannot perform an attempt: no space, no sandbox.
    pub host_trouble: u32,
    /// Starts sub-agents, and ends them or not.
    pub agent_delegates: u32,
    /// A host whose memory or disk is nearly full, or not.
    pub machine_full: u32,
    /// Says everything again and again.
    pub agent_flood: u32,
    /// Asks what was answered before, for ever.
    pub agent_loop: u32,
    /// A change that does not pass its checks.
    pub agent_careless: u32,
    /// Tests that replace what they are to test.
    pub agent_mocks: u32,
    /// Agents that print nothing for a while, and hosts that say so.
    pub agent_silent: u32,
    pub checks_flaky: u32,
    /// A test that fails first and passes when its tool tries again.
    pub tests_flaky: u32,
    /// A host reports fewer checks than there are.
    pub checks_truncated: u32,
    pub conflict: u32,
    /// Two changes that pass alone and fail together.
    pub clash: u32,
    pub foreign_push: u32,
    pub foreign_rewind: u32,
    pub chore_failure: u32,
    pub chore_storm: u32,
    pub target_push: u32,
    pub person_pause: u32,
    pub person_cancel: u32,
    pub person_wrong: u32,
    pub person_absent: u32,
    pub person_resize: u32,
    /// A person adds or sends away one agent.
    pub person_scale: u32,
    /// Somebody finds that something is missing.
    pub person_gaps: u32,
    /// A person changes the rules of the project.
    /// Providers are near their rate limits.
    pub rate_pressure: u32,
    /// A person who pays: caps are raised, and spending goes on after an alarm.
    pub person_pays: u32,
    pub provider_down: u32,
    /// A person who resets breakers and takes providers back, needed or not.
    pub person_mends: u32,
    pub person_repeat: u32,
    pub person_requeue: u32,
    pub person_rejects: u32,
    pub person_overrides: u32,
    pub person_rules: u32,
    /// A person gives a task another priority.
    pub person_prioritise: u32,
    /// Somebody takes back what has landed.
    pub person_rollback: u32,
    /// Somebody calls a council, about anything.
    pub person_council: u32,
    pub member_silent: u32,
    pub member_late: u32,
    pub member_twice: u32,
    /// Votes under another name.
    pub member_lies: u32,
    /// Votes without evidence.
    pub member_lazy: u32,
}

impl Faults {
    pub(crate) fn draw(rng: &mut Rng) -> Faults {
        let mut faults = Faults::default();
        match rng.u32(0..15) {
            // Some worlds are kind: what breaks there is broken indeed.
            0 => return faults,
            // And some have one trouble, which nobody solves alone.
            1 => return Faults { agent_stuck: 900, ..faults },
            // In some, changes gather before a slow queue and do not go together.
            2 => return Faults { checks_slow: 900, clash: 300, ..faults },
            // In some, most tasks land and a few give up.
            3 => return Faults { agent_stuck: 250, ..faults },
            // And in some, a few tasks take down whatever they run on.
            4 => return Faults { agent_kills: 150, ..faults },
            _ => {}
        }
        let density = rng.u32(1..=5);
        for (rate, max) in faults.rates() {
            if rng.u32(0..8) < density {
                *rate = rng.u32(1..=max);
            }
        }
        faults
    }

    /// Every rate with its sensible maximum.
    fn rates(&mut self) -> Vec<(&mut u32, u32)> {
        vec![
            (&mut self.crash_before, 40),
            (&mut self.append_refused, 40),
            (&mut self.crash_after, 40),
            (&mut self.host_restart, 200),
            (&mut self.orderly_stop, 200),
            (&mut self.ghost, 500),
            (&mut self.zombie, 500),
            (&mut self.lose, 150),
            (&mut self.duplicate, 200),
            (&mut self.late, 150),
            (&mut self.heartbeat_loss, 700),
            (&mut self.confused, 100),
            (&mut self.clock_jump, 30),
            (&mut self.clock_back, 30),
            (&mut self.host_gone, 200),
            (&mut self.agent_kills, 60),
            (&mut self.agent_hang, 150),
            (&mut self.agent_slow, 300),
            (&mut self.agent_lie, 150),
            (&mut self.agent_trespass, 200),
            (&mut self.agent_strays, 200),
            (&mut self.agent_failure, 250),
            (&mut self.agent_stuck, 700),
            (&mut self.agent_question, 250),
            (&mut self.agent_overspend, 100),
            (&mut self.host_trouble, 400),
            (&mut self.agent_delegates, 400),
            (&mut self.machine_full, 20),
            (&mut self.agent_flood, 100),
            (&mut self.agent_loop, 150),
            (&mut self.agent_careless, 300),
            (&mut self.agent_mocks, 200),
            (&mut self.agent_silent, 900),
            (&mut self.checks_flaky, 150),
            (&mut self.checks_slow, 900),
            (&mut self.tests_flaky, 400),
            (&mut self.checks_truncated, 200),
            (&mut self.conflict, 300),
            (&mut self.clash, 500),
            (&mut self.foreign_push, 600),
            (&mut self.foreign_rewind, 150),
            (&mut self.chore_failure, 150),
            (&mut self.chore_storm, 100),
            (&mut self.target_push, 200),
            (&mut self.person_pause, 300),
            (&mut self.person_cancel, 60),
            (&mut self.person_wrong, 500),
            (&mut self.person_absent, 600),
            (&mut self.person_resize, 150),
            (&mut self.person_scale, 300),
            (&mut self.person_gaps, 200),
            (&mut self.rate_pressure, 300),
            (&mut self.person_pays, 500),
            (&mut self.provider_down, 150),
            (&mut self.person_mends, 300),
            (&mut self.person_repeat, 300),
            (&mut self.person_requeue, 300),
            (&mut self.person_rejects, 300),
            (&mut self.person_overrides, 150),
            (&mut self.person_rules, 100),
            (&mut self.person_prioritise, 300),
            (&mut self.person_rollback, 250),
            (&mut self.person_council, 300),
            (&mut self.member_silent, 300),
            (&mut self.member_late, 300),
            (&mut self.member_twice, 300),
            (&mut self.member_lies, 200),
            (&mut self.member_lazy, 500),
        ]
    }
}

/// Whether a fault with this rate strikes now.
pub(crate) fn strikes(rng: &mut Rng, rate: u32) -> bool {
    rate > 0 && rng.u32(0..1_000) < rate
}
