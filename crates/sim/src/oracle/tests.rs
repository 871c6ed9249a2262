//! The oracle against journals that no sound engine writes: what cannot be planted in decisions.

use kapelle_core::event::Chore;
use kapelle_core::flow::Phase;
use kapelle_core::ledger::{Drawn, Pool, Purpose};
use kapelle_core::plan::{Plan, PlannedTask};
use kapelle_core::policy::Policy;
use kapelle_core::queue::Pick;
use kapelle_core::{
    Actor, AgentId, Event, Fence, MissionId, Record, RequestId, Role, Seq, TaskId, Timestamp, Usd,
};

use super::Oracle;
use crate::repository::{Passed, Repository};

const NOW: Timestamp = Timestamp(1_000);
const M1: MissionId = MissionId(1);

/// What the oracle says of a mission of two tasks, the second after the first, and `then`.
fn judge(then: Vec<Event>) -> Result<(), String> {
    let mut repo = Repository::default();
    let root = repo.commit(&[], Passed::Yes);
    let task = |id: &str, needs: &[&str]| PlannedTask {
        id: id.into(),
        title: id.into(),
        description: String::new(),
        priority: Default::default(),
        dependencies: needs.iter().map(ToString::to_string).collect(),
        files: Vec::new(),
        estimated_duration_minutes: None,
        ..PlannedTask::default()
    };
    let plan = Plan { goal: None, tasks: vec![task("a", &[]), task("b", &["a"])] };
    let mut events = vec![
        Event::TeamChanged { seats: [(Role::Developer, 2)].into(), workers_max: 2, by: None },
        Event::MissionOpened {
            mission: M1,
            request: RequestId("r".into()),
            goal: "g".into(),
            target: "main".into(),
            base: Box::new(root.clone()),
            branch: "kapelle/m1".into(),
            policy: Box::new(Policy::default()),
            by: Actor("ada".into()),
            at: NOW,
        },
        Event::PlanAccepted { mission: M1, first_task: TaskId(1), tasks: plan.shared(), gap: None },
        Event::ChoreStarted { mission: M1, fence: Fence(1), chore: Chore::Branch(M1) },
        Event::BranchPrepared { mission: M1, fence: Fence(1), tip: root },
    ];
    events.extend(then);
    let numbered = events.into_iter().zip(1..);
    let records: Vec<Record> =
        numbered.map(|(event, seq)| Record { seq: Seq(seq), at: NOW, event }).collect();
    Oracle::default().observe(&[], &records, NOW, &repo)
}

fn lease(task: u32, fence: u64, seat: u32) -> Event {
    Event::LeaseGranted {
        task: TaskId(task),
        fence: Fence(fence),
        agent: AgentId { role: Role::Developer, seat },
        phase: Phase::Green,
        base: format!("{:040}", 0).parse().expect("forty digits are a commit"),
        reserved: Policy::default().budget.attempt_usd_max,
        granted_at: NOW,
        expires_at: NOW.plus_ms(1_000),
        deadline: NOW.plus_ms(1_000),
        reservation: Some(Drawn {
            pool: Some(Pool::Baseline),
            purpose: Purpose::Work,
            estimate: Policy::default().budget.attempt_usd_max,
        }),
        pick: Some(Pick::BestRank),
        because: None,
        route: None,
    }
}

fn without_reservation(mut event: Event) -> Event {
    if let Event::LeaseGranted { reserved, reservation: Some(drawn), .. } = &mut event {
        *reserved = Usd::ZERO;
        drawn.estimate = Usd::ZERO;
    }
    event
}

#[test]
fn wrong_grants_are_noticed() {
    assert_eq!(judge(vec![lease(1, 2, 1)]), Ok(()));
    let wrong = [
        (vec![], "task a of m1 waits although a seat is free"),
        (vec![lease(1, 2, 1), lease(2, 3, 2)], "TaskId(2) starts before TaskId(1)"),
        (vec![lease(1, 2, 1), lease(1, 3, 2)], "TaskId(1) has the leases 2 and 3"),
        (vec![lease(1, 2, 1), lease(2, 3, 1)], "developer-1 has the leases 2 and 3"),
        (vec![lease(1, 1, 1)], "fence 1 was given before"),
        (vec![lease(1, 2, 3)], "there is no seat developer-3"),
        (vec![without_reservation(lease(1, 2, 1))], "lease 2 reserves $0.00, not $2.00"),
    ];
    for (events, rule) in wrong {
        assert_eq!(judge(events), Err(rule.to_owned()));
    }
}
