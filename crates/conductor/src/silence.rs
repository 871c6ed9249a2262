//! Silence: now and then the engine is told when the attempts of this host last printed something,
//! and says whether that is news (WRK-08).

use kapelle_core::{Command, Fence, State, Timestamp};

/// What is heard of the attempts that run.
pub(crate) type Heard = Vec<(Fence, Timestamp)>;

#[derive(Debug, Default)]
pub(crate) struct Silence {
    told_at: Timestamp,
}

impl Silence {
    /// When the engine wants to know; never while nobody is silent for long.
    pub(crate) fn wake_at(&self, state: &State, heard: &Heard) -> Option<Timestamp> {
        let due = |(fence, at): &(Fence, Timestamp)| state.output_due_at(*fence, *at, self.told_at);
        heard.iter().filter_map(due).min()
    }

    /// What to tell the engine, if it is time to.
    pub(crate) fn look(&mut self, state: &State, heard: Heard, now: Timestamp) -> Option<Command> {
        if self.wake_at(state, &heard).is_none_or(|at| now < at) {
            return None;
        }
        self.told_at = now;
        Some(Command::ReportOutput { heard })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kapelle_core::plan::Plan;
    use kapelle_core::policy::Policy;
    use kapelle_core::state::IDLE_WARNING_MS;
    use kapelle_core::{Actor, Effect, Engine, Event, RequestId, Role};

    use super::*;

    const BEGUN: Timestamp = Timestamp(1_000_000);

    /// Plays commands, and gives what happened and what is to be started.
    fn play(engine: &mut Engine, command: Command, at: Timestamp) -> (Vec<Event>, Vec<Effect>) {
        let batch = engine.handle(vec![((), command)], at);
        let events = batch.records.iter().map(|record| record.event.clone()).collect();
        let started = engine.committed(batch).start;
        (events, started.into_iter().map(|(_, effect)| effect).collect())
    }

    /// An engine with one attempt at work, and its fence.
    fn at_work() -> (Engine, Fence) {
        let mut engine = Engine::recover([]);
        let seats = BTreeMap::from([(Role::Developer, 1)]);
        play(
            &mut engine,
            Command::ConfigureTeam { seats, workers_max: 1, by: Actor("ada".into()) },
            BEGUN,
        );
        let base: kapelle_core::Commit = "1".repeat(40).parse().unwrap();
        let hours = BTreeMap::from([(Role::Developer, 3_600_000)]);
        let policy =
            Policy { lease_ttl_ms: 3_600_000, attempt_timeout_ms: hours, ..Policy::default() };
        let open = Command::OpenMission {
            request: RequestId("r".into()),
            goal: "be silent".into(),
            target: "main".into(),
            base: base.clone(),
            plan: Plan::parse(r#"{"tasks": [{"id": "1", "title": "one"}]}"#).unwrap(),
            policy: Box::new(policy),
            by: Actor("ada".into()),
        };
        play(&mut engine, open, BEGUN);
        let fence = engine.state().due().iter().next().unwrap().0;
        play(&mut engine, Command::FinishBranch { fence, tip: base }, BEGUN);
        let fence = engine.state().leases().next().unwrap().0;
        (engine, fence)
    }

    /// The loop sleeps until somebody has been silent for too long, tells the engine once, and looks
    /// again only to hear whether the agent is back.
    #[test]
    fn the_engine_is_told_when_it_wants_to_know_and_not_before() {
        let (mut engine, fence) = at_work();
        let mut silence = Silence::default();
        let heard = vec![(fence, BEGUN)];
        let due = BEGUN.plus_ms(IDLE_WARNING_MS + 1);
        assert_eq!(silence.wake_at(engine.state(), &heard), Some(due));
        let early = BEGUN.plus_ms(IDLE_WARNING_MS);
        assert_eq!(silence.look(engine.state(), heard.clone(), early), None);
        let told = silence.look(engine.state(), heard.clone(), due).unwrap();
        let (events, _) = play(&mut engine, told, due);
        // And so are people.
        assert!(
            matches!(events[..], [Event::AttemptIdle { .. }, Event::PersonNotified { .. }]),
            "{events:?}"
        );
        assert!(
            silence.wake_at(engine.state(), &heard).unwrap() > due,
            "or the loop would not rest"
        );
        let prints = vec![(fence, due.plus_ms(1))];
        let later = silence.wake_at(engine.state(), &prints).unwrap();
        let told = silence.look(engine.state(), prints, later).unwrap();
        let (events, _) = play(&mut engine, told, later);
        assert!(matches!(events[..], [Event::AttemptHeard { .. }]), "{events:?}");
        assert_eq!(silence.wake_at(engine.state(), &Vec::new()), None, "nobody at work, no look");
    }
}
