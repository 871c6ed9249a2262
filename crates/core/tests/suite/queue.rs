//! The ready queues: order, ageing, locks, territories, assignment and preemption.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kapelle_core::locks::{LockPolicy, LockTable};
use kapelle_core::plan::Priority;
use kapelle_core::queue::{
    Assigned, Assignments, Because, Class, Contention, Domains, NoPreemption, NoWork, Outlook,
    Pick, Points, Preemption, Pull, QueuePolicy, ReadyQueue, Rules, Running, Source, Standing,
    Strategy, Territories, Ticket, Urgency, Work,
};
use kapelle_core::{AgentId, MissionId, Role, TaskId, Timestamp};
use proptest::prelude::*;

const MINUTE: u64 = 60_000;
const START: Timestamp = Timestamp(1_700_000_000_000);

fn after(ms: u64) -> Timestamp {
    START.plus_ms(ms)
}

fn dev(seat: u32) -> AgentId {
    AgentId { role: Role::Developer, seat }
}

fn standing(priority: Priority, dependencies: u32, dependents: u32, minutes: u32) -> Standing {
    Standing { priority, dependencies, dependents, minutes }
}

fn files(names: &[&str]) -> Arc<[Arc<str>]> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn ticket(task: u32, standing: Standing) -> Ticket {
    Ticket {
        task: TaskId(task),
        mission: MissionId(1),
        role: Role::Developer,
        standing,
        chain_minutes: standing.minutes,
        files: files(&[]),
        class: Class::default(),
        promised: false,
        entered_at: START,
    }
}

fn medium(task: u32) -> Ticket {
    ticket(task, standing(Priority::Medium, 0, 0, 10))
}

fn queue(policy: QueuePolicy, tickets: impl IntoIterator<Item = Ticket>) -> ReadyQueue {
    let mut queue = ReadyQueue::new(policy, Territories::default());
    for ticket in tickets {
        queue.entered(ticket, &LockTable::default());
    }
    queue
}

fn with(strategy: Strategy) -> QueuePolicy {
    QueuePolicy { strategy, ..QueuePolicy::default() }
}

fn drain(queue: &mut ReadyQueue, agent: AgentId, now: Timestamp) -> Vec<u32> {
    let mut order = Vec::new();
    while let Ok(Pull { task, .. }) = queue.pull(agent, Outlook::NONE, now, |_| true) {
        order.push(task.0);
        queue.left(task);
    }
    order
}

fn lock(locks: &mut LockTable, holder: u32, path: &str) {
    let grant = locks.acquire(&LockPolicy::default(), TaskId(holder), &files(&[path]), START);
    locks.locked(&grant.expect("nobody else has the file"));
}

const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;
const D: u32 = 4;

/// The worked example of the sources; C's file is locked by someone else.
fn examples(policy: QueuePolicy) -> ReadyQueue {
    let mut locks = LockTable::default();
    lock(&mut locks, 99, "c.rs");
    let mut queue = ReadyQueue::new(policy, Territories::default());
    let d = Ticket { chain_minutes: 500, ..ticket(D, standing(Priority::High, 0, 3, 15)) };
    let c = Ticket { files: files(&["c.rs"]), ..ticket(C, standing(Priority::Medium, 0, 0, 5)) };
    let b = ticket(B, standing(Priority::High, 2, 0, 30));
    for ticket in [b, c, d, ticket(A, standing(Priority::Critical, 0, 0, 10))] {
        queue.entered(ticket, &locks);
    }
    queue
}

/// QUE-12: values and order, and the order of the other divisor (E-01).
#[test]
fn the_worked_examples_run_in_their_golden_order() {
    for strategy in [Strategy::CriticalPath, Strategy::Scored, Strategy::PriorityFifo] {
        let mut queue = examples(with(strategy));
        let scores = [A, D, C, B].map(|task| queue.score(TaskId(task)).unwrap().to_string());
        assert_eq!(scores, ["140", "135", "45", "40"]);
        assert_eq!(drain(&mut queue, dev(1), START), [A, D, C, B], "{strategy:?}");
    }
    let mut queue = examples(QueuePolicy { duration_divisor: 10, ..QueuePolicy::default() });
    assert_eq!(drain(&mut queue, dev(1), START), [A, D, B, C]);
}

/// QUE-24: a point a minute, so 100 points of priority are made up for in 100 minutes.
#[test]
fn waiting_makes_up_for_a_lower_score() {
    let low = ticket(1, standing(Priority::Low, 0, 0, 10));
    let critical = |task, minutes| Ticket {
        entered_at: after(minutes * MINUTE),
        ..ticket(task, standing(Priority::Critical, 0, 0, 10))
    };
    let mut queue = queue(QueuePolicy::default(), [low, critical(2, 89), critical(3, 91)]);
    let now = after(91 * MINUTE);
    assert_eq!(queue.effective(TaskId(1), now), Some(Points::whole(50 + 91)));
    assert_eq!(queue.effective(TaskId(3), now), Some(Points::whole(140)));
    assert_eq!(drain(&mut queue, dev(1), now), [2, 1, 3]);
}

#[test]
fn equals_go_first_come_first_served_then_by_chain() {
    let late = Ticket { entered_at: after(1), ..medium(1) };
    let chain = Ticket { chain_minutes: 11, ..medium(3) };
    let mut queue = queue(with(Strategy::Scored), [late, medium(2), chain]);
    assert_eq!(drain(&mut queue, dev(1), after(2)), [3, 2, 1]);
}

/// QUE-13: and the time already waited is not lost.
#[test]
fn a_person_sets_a_priority() {
    let mut queue = queue(QueuePolicy::default(), [medium(1), medium(2)]);
    queue.restood(TaskId(2), standing(Priority::Critical, 0, 0, 10), Class::default());
    assert_eq!(queue.score(TaskId(2)), Some(Points::whole(140)));
    assert_eq!(queue.ticket(TaskId(2)).unwrap().entered_at, START);
    queue.restood(TaskId(9), standing(Priority::Low, 0, 0, 10), Class::default());
    assert_eq!(drain(&mut queue, dev(1), START), [2, 1]);
}

/// A lock costs forty points while it lasts, and only those who want the file.
#[test]
fn locks_move_only_the_tasks_that_want_the_file() {
    let wants = Ticket { files: files(&["a.rs", "b.rs"]), ..medium(1) };
    let mut queue = queue(QueuePolicy::default(), [wants, medium(2)]);
    let mut locks = LockTable::default();
    lock(&mut locks, 50, "a.rs");
    lock(&mut locks, 51, "b.rs");
    queue.locks_changed(&files(&["a.rs", "b.rs"]), &locks);
    assert_eq!(queue.score(TaskId(1)), Some(Points::whole(40)), "forty once, not for each file");
    assert_eq!(queue.score(TaskId(2)), Some(Points::whole(80)));
    let free = locks.released(TaskId(50));
    queue.locks_changed(&free, &locks);
    assert_eq!(queue.score(TaskId(1)), Some(Points::whole(40)), "the other file is still locked");
    let free = locks.released(TaskId(51));
    queue.locks_changed(&free, &locks);
    assert_eq!(drain(&mut queue, dev(1), START), [1, 2]);
}

/// Between two phases a task may still hold its files; that must not count against itself.
#[test]
fn a_task_is_not_held_up_by_its_own_lock() {
    let mut locks = LockTable::default();
    lock(&mut locks, 1, "a.rs");
    let mut queue = ReadyQueue::new(QueuePolicy::default(), Territories::default());
    queue.entered(Ticket { files: files(&["a.rs"]), ..medium(1) }, &locks);
    assert_eq!(queue.score(TaskId(1)), Some(Points::whole(80)));
}

/// C-10: where writers share one tree a locked file is not a matter of points.
#[test]
fn with_hold_a_locked_task_waits_for_its_file() {
    let policy = QueuePolicy { contention: Contention::Hold, ..QueuePolicy::default() };
    let mut locks = LockTable::default();
    lock(&mut locks, 50, "a.rs");
    let mut queue = ReadyQueue::new(policy, Territories::default());
    queue.entered(Ticket { files: files(&["a.rs"]), ..medium(1) }, &locks);
    let refused = queue.pull(dev(1), Outlook::NONE, START, |_| true);
    assert_eq!(refused, Err(NoWork::FilesLocked(Role::Developer)));
    assert_eq!((queue.depth(Role::Developer), queue.list(Role::Developer)), (1, vec![TaskId(1)]));
    let free = locks.released(TaskId(50));
    queue.locks_changed(&free, &locks);
    assert_eq!(drain(&mut queue, dev(1), START), [1]);
    let idle = queue.pull(dev(1), Outlook::NONE, START, |_| true);
    assert_eq!(idle, Err(NoWork::WaitingForBackground(Role::Developer)));
}

/// QUE-17: the pool, then idle with a reason. What a person gave to an agent goes before both
/// (`people_rules`).
#[test]
fn an_agent_pulls_from_the_pool_of_its_role() {
    let tests = Ticket { role: Role::Tester, ..medium(4) };
    let mut queue = queue(QueuePolicy::default(), [medium(2), medium(3), tests]);
    let pull = |queue: &ReadyQueue, seat| queue.pull(dev(seat), Outlook::NONE, START, |_| true);
    let pooled = Pull { task: TaskId(2), source: Source::Pool, pick: Pick::BestRank };
    assert_eq!(pull(&queue, 1), Ok(pooled));
    queue.left(TaskId(2));
    queue.left(TaskId(3));
    let idle = NoWork::WaitingForBackground(Role::Developer);
    assert_eq!(pull(&queue, 1), Err(idle));
    assert_eq!(idle.to_string(), "waiting_for_background: no developer task is ready");
    assert_eq!(queue.depth(Role::Tester), 1);
}

/// QUE-26: nobody is given a task outside of their territory, however good its score.
#[test]
fn an_agent_pulls_only_from_its_territory() {
    let territory = |seat, path: &str| (dev(seat), vec![path.to_owned()]);
    let of = BTreeMap::from([territory(1, "frontend/"), territory(2, "backend/")]);
    let territories = Territories::new(of).unwrap();
    let mut queue = ReadyQueue::new(QueuePolicy::default(), territories);
    let back = ticket(1, standing(Priority::Critical, 0, 9, 1));
    let both = ticket(2, standing(Priority::High, 0, 0, 1));
    let locks = LockTable::default();
    queue.entered(Ticket { files: files(&["backend/a.rs"]), ..back }, &locks);
    queue.entered(Ticket { files: files(&["backend/a.rs", "frontend/a.ts"]), ..both }, &locks);
    let refused = queue.pull(dev(1), Outlook::NONE, START, |_| true);
    assert_eq!(refused, Err(NoWork::OutsideTerritory(Role::Developer)));
    queue.entered(Ticket { files: files(&["frontend/b.ts"]), ..medium(3) }, &locks);
    assert_eq!(drain(&mut queue, dev(1), START), [3]);
    assert_eq!(drain(&mut queue, dev(2), START), [1]);
    assert_eq!(
        drain(&mut queue, dev(3), START),
        [2],
        "an agent without a territory takes the rest"
    );
}

#[test]
fn a_new_configuration_reorders_what_waits() {
    let mut queue = queue(QueuePolicy::default(), [medium(2), medium(1), medium(3)]);
    queue.restood(TaskId(3), standing(Priority::Critical, 0, 0, 10), Class::default());
    queue.reconfigured(with(Strategy::Serial), Territories::default());
    assert_eq!(drain(&mut queue, dev(1), START), [1, 2, 3], "the order of the plan");
}

#[test]
fn rules_that_would_starve_or_stall_are_refused() {
    type Change = fn(&mut QueuePolicy);
    let wrong: [(&str, Change); 6] = [
        ("duration_divisor", |p| p.duration_divisor = 0),
        ("ageing_ms_per_point", |p| p.ageing_ms_per_point = 0),
        ("launch_batch", |p| p.launch_batch = 0),
        ("preempt_after_ms", |p| p.preempt_after_ms = 0),
        ("default_minutes", |p| p.default_minutes = 0),
        ("recent_tasks", |p| p.recent_tasks = 51),
    ];
    assert_eq!(QueuePolicy::default().validate(), Ok(()));
    for (field, change) in wrong {
        let mut policy = QueuePolicy::default();
        change(&mut policy);
        assert_eq!(policy.validate().map_err(|e| e.field), Err(field));
    }
    let read: QueuePolicy = serde_json::from_str(r#"{"strategy": "serial"}"#).unwrap();
    assert_eq!(read, with(Strategy::Serial));
}

/// A chain that outlasts everything else must not wait behind short errands; a CRITICAL task and
/// one that has waited for hours are not pushed aside for it.
#[test]
fn a_chain_longer_than_all_other_work_goes_first() {
    let chain = Ticket { chain_minutes: 300, ..ticket(1, standing(Priority::Low, 1, 1, 30)) };
    let outlook = Outlook { open_minutes: 400, agents: 4 };
    let mut queue = queue(QueuePolicy::default(), [chain, medium(2)]);
    let first = |queue: &ReadyQueue, now| queue.pull(dev(1), outlook, now, |_| true).unwrap();
    let pick = Pick::LongestChain { chain_minutes: 300 };
    assert_eq!(first(&queue, START), Pull { task: TaskId(1), source: Source::Pool, pick });
    assert_eq!(first(&queue, after(240 * MINUTE)).task, TaskId(2));
    assert_eq!(
        queue.pull(dev(1), Outlook { agents: 1, ..outlook }, START, |_| true).unwrap().task,
        TaskId(2)
    );
    queue.restood(TaskId(2), standing(Priority::Critical, 0, 0, 10), Class::default());
    assert_eq!(first(&queue, START).task, TaskId(2));
}

/// Missions that cannot start anything now are passed over, however good their tasks are.
#[test]
fn a_mission_that_may_not_start_is_passed_over() {
    let other =
        Ticket { mission: MissionId(2), ..ticket(1, standing(Priority::Critical, 0, 9, 1)) };
    let queue = queue(QueuePolicy::default(), [other, medium(2)]);
    let pull = |open: u32| queue.pull(dev(1), Outlook::NONE, START, |id| id == MissionId(open));
    assert_eq!(pull(1).map(|pull| pull.task), Ok(TaskId(2)));
    assert_eq!(pull(2).map(|pull| pull.task), Ok(TaskId(1)));
    assert_eq!(pull(3), Err(NoWork::WaitingForBackground(Role::Developer)));
}

/// One that was given way to goes first, whoever came before it.
#[test]
fn a_promised_task_goes_before_all_others() {
    let policy = QueuePolicy { urgent_permille: 0, ..QueuePolicy::default() };
    let long = Ticket { chain_minutes: 1_000, ..ticket(1, standing(Priority::High, 0, 5, 1)) };
    let mut queue = queue(policy, [long, medium(2)]);
    let outlook = Outlook { open_minutes: 10, agents: 3 };
    let first = |queue: &ReadyQueue| queue.pull(dev(1), outlook, START, |_| true).unwrap().task;
    assert_eq!(first(&queue), TaskId(1));
    queue.promised(TaskId(2));
    assert_eq!(first(&queue), TaskId(2));
}

struct Team {
    policy: QueuePolicy,
    territories: Territories,
    domains: Domains,
    free: BTreeSet<AgentId>,
    memory: Assignments,
}

fn team(seats: u32, policy: QueuePolicy) -> Team {
    Team {
        policy,
        territories: Territories::default(),
        domains: Domains::default(),
        free: (1..=seats).map(dev).collect(),
        memory: Assignments::default(),
    }
}

impl Team {
    fn choose(&self, paths: &[&str], domains: &[&str]) -> Option<Assigned> {
        let free: Vec<AgentId> = self.free.iter().copied().collect();
        let Team { policy, territories, domains: known, .. } = self;
        let rules = Rules { policy, territories, domains: known };
        self.memory.choose(&rules, &free, &Work { files: &files(paths), domains })
    }

    fn assigned(&mut self, agent: AgentId, paths: &[&str]) {
        self.memory.assigned(&self.policy, agent, &files(paths));
    }
}

fn seat(chosen: Option<Assigned>) -> Option<(u32, Because)> {
    chosen.map(|assigned| (assigned.agent.seat, assigned.because))
}

/// QUE-15, in its order.
#[test]
fn a_task_goes_to_who_knows_its_files_then_its_domain_then_to_the_least_loaded() {
    let mut team = team(3, QueuePolicy::default());
    team.domains = Domains::new(BTreeMap::from([(dev(3), ["backend".to_owned()].into())]));
    team.assigned(dev(3), &["x.rs"]);
    team.assigned(dev(3), &["x.rs"]);
    team.assigned(dev(2), &["a.rs"]);
    let context = Because::FileContext { path: "a.rs".into() };
    assert_eq!(seat(team.choose(&["b.rs", "a.rs"], &["backend"])), Some((2, context)));
    let domain = Because::Domain { domain: "backend".into() };
    assert_eq!(seat(team.choose(&["b.rs"], &["web", "backend"])), Some((3, domain)));
    let least = Because::LeastLoaded { received: 0 };
    assert_eq!(seat(team.choose(&["b.rs"], &[])), Some((1, least.clone())));
    team.free.remove(&dev(2));
    assert_eq!(
        seat(team.choose(&["a.rs"], &[])),
        Some((1, least)),
        "a busy agent is not waited for"
    );
    team.free.clear();
    assert_eq!(team.choose(&[], &[]), None);
}

#[test]
fn an_agent_forgets_all_but_its_last_tasks() {
    let mut team = team(2, QueuePolicy { recent_tasks: 2, ..QueuePolicy::default() });
    for path in ["a.rs", "b.rs", "a.rs", "c.rs"] {
        team.assigned(dev(1), &[path]);
    }
    assert_eq!(team.choose(&["a.rs"], &[]).map(|to| to.agent), Some(dev(1)));
    assert_eq!(team.choose(&["b.rs"], &[]).map(|to| to.agent), Some(dev(2)));
}

#[test]
fn a_task_outside_of_all_idle_territories_waits() {
    let mut team = team(1, QueuePolicy::default());
    let of = BTreeMap::from([(dev(1), vec!["web/".to_owned()])]);
    team.territories = Territories::new(of).unwrap();
    assert_eq!(team.choose(&["src/a.rs"], &[]), None);
}

/// QUE-28: any idle agent, whatever it knows.
#[test]
fn with_priority_fifo_context_does_not_count() {
    let mut team = team(2, with(Strategy::PriorityFifo));
    team.assigned(dev(1), &["a.rs"]);
    assert_eq!(team.choose(&["a.rs"], &[]).map(|to| to.agent), Some(dev(2)));
}

fn urgency(priority: Priority, points: i64) -> Urgency {
    Urgency { priority, score: Points::whole(points) }
}

/// An attempt that has run long enough and has never given way.
fn running(priority: Priority, points: i64) -> Running {
    Running { urgency: urgency(priority, points), ran_ms: 2 * MINUTE, gave_way: 0 }
}

fn preempting(preemption: Preemption) -> QueuePolicy {
    QueuePolicy { preemption, ..QueuePolicy::default() }
}

/// QUE-14, C-07: a CRITICAL task takes the seat of a less urgent attempt, no other task does.
#[test]
fn only_a_critical_task_preempts_and_only_what_is_less_urgent() {
    let policy = preempting(Preemption::Critical);
    let urgent = urgency(Priority::Critical, 140);
    assert_eq!(policy.preempt(urgent, running(Priority::High, 500)), Ok(()));
    let equal = policy.preempt(urgent, running(Priority::Critical, 10));
    assert_eq!(equal, Err(NoPreemption::NotLesser));
    let high = policy.preempt(urgency(Priority::High, 500), running(Priority::Low, 0));
    assert_eq!(high, Err(NoPreemption::NotCritical));
    let off = preempting(Preemption::Off).preempt(urgent, running(Priority::Low, 0));
    assert_eq!(off, Err(NoPreemption::Off));
}

/// Without a minimum run two tasks could chase each other out of a seat for ever.
#[test]
fn attempts_are_not_chased_in_circles() {
    let policy = preempting(Preemption::Critical);
    let urgent = urgency(Priority::Critical, 140);
    let low = running(Priority::Low, 0);
    let young = Running { ran_ms: 2 * MINUTE - 1, ..low };
    assert_eq!(policy.preempt(urgent, young), Err(NoPreemption::JustBegun));
    assert_eq!(policy.preempt(urgent, Running { gave_way: 1, ..low }), Ok(()));
    let tired = Running { gave_way: 2, ..low };
    assert_eq!(policy.preempt(urgent, tired), Err(NoPreemption::GaveWayEnough));
}

#[test]
fn with_all_a_clear_margin_of_points_preempts() {
    let policy = preempting(Preemption::All);
    let medium = running(Priority::Medium, 80);
    let ask = |priority, points| policy.preempt(urgency(priority, points), medium);
    assert_eq!(ask(Priority::High, 139), Err(NoPreemption::NotLesser));
    assert_eq!(ask(Priority::High, 140), Ok(()));
    assert_eq!(ask(Priority::Low, 500), Err(NoPreemption::NotLesser));
}

fn priority(index: u8) -> Priority {
    [Priority::Low, Priority::Medium, Priority::High, Priority::Critical][usize::from(index % 4)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// The fixed order is that of the effective priority at any later moment: ageing needs no
    /// rescan. Compared with a scan that computes score and wait anew for each pull.
    #[test]
    fn the_order_is_that_of_the_effective_priority(
        tasks in prop::collection::vec((0..4u8, 0..3u32, 0..5u32, 0..40u32, 0..600u64), 1..40),
        later in 0..100_000u64,
    ) {
        let tickets = tasks.iter().enumerate().map(|(n, (p, needs, opens, minutes, entered))| Ticket {
            entered_at: after(entered * 6_000),
            ..ticket(n as u32, standing(priority(*p), *needs, *opens, *minutes))
        });
        let mut queue = queue(with(Strategy::Scored), tickets);
        let now = after(600 * 6_000 + later * 6_000);
        let mut last: Option<Points> = None;
        while let Ok(Pull { task, .. }) = queue.pull(dev(1), Outlook::NONE, now, |_| true) {
            let points = queue.effective(task, now).unwrap();
            prop_assert!(last.is_none_or(|before| before >= points));
            last = Some(points);
            queue.left(task);
        }
        prop_assert!(queue.is_empty());
    }

    /// QUE-24: against an endless stream of the best possible newcomers every task is served
    /// within the time its handicap takes to age away.
    #[test]
    fn nothing_starves(handicap in 0..4u8, minutes in 0..60u32, needs in 0..2u32) {
        let mut queue = queue(QueuePolicy::default(), [ticket(0, standing(priority(handicap), needs, 0, minutes))]);
        let outlook = Outlook { open_minutes: 10, agents: 3 };
        for minute in 0..400u64 {
            let now = after(minute * MINUTE);
            let newcomer = Ticket {
                entered_at: now,
                chain_minutes: 1_000,
                ..ticket(minute as u32 + 1, standing(Priority::Critical, 0, 3, 0))
            };
            queue.entered(newcomer, &LockTable::default());
            let next = queue.pull(dev(1), outlook, now, |_| true).unwrap().task;
            if next == TaskId(0) {
                return Ok(());
            }
            queue.left(next);
        }
        prop_assert!(false, "waited for 400 minutes");
    }

    /// QUE-16, T-71: equal tasks end in waves, in any order within one; 100 of them on 12 agents
    /// are 8 or 9 each.
    #[test]
    fn equal_tasks_are_spread_evenly(finishes in prop::collection::vec(any::<usize>(), 100)) {
        let mut team = team(12, QueuePolicy::default());
        let (mut wave, mut next_wave): (Vec<AgentId>, Vec<AgentId>) = (Vec::new(), Vec::new());
        for (task, finish) in (0..100).zip(finishes) {
            if team.free.is_empty() {
                if wave.is_empty() {
                    std::mem::swap(&mut wave, &mut next_wave);
                }
                team.free.insert(wave.remove(finish % wave.len()));
            }
            let own = format!("{task}.rs");
            let agent = team.choose(&[&own], &[]).unwrap().agent;
            team.assigned(agent, &[&own]);
            team.free.remove(&agent);
            next_wave.push(agent);
        }
        for seat in 1..=12 {
            let count = team.memory.received(dev(seat));
            prop_assert!((8..=9).contains(&count), "developer-{} got {}", seat, count);
        }
    }
}
