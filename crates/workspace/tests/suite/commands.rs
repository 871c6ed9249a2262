//! Commands of agents that misbehave, as real processes. The layers themselves are tested in
//! simulated time, in `commands/watch.rs`.

use std::time::Duration;

use kapelle_workspace::commands::{
    Answer, CommandError, CommandResult, Commands, Order, Thresholds, Told,
};
use kapelle_workspace::reaper::running;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::fixture::Fixture;

/// Nothing in this file takes this long unless it hangs.
const LONG: Duration = Duration::from_secs(60);

/// Silence is ended after this; far longer than a process takes to say its first word.
const SILENCE_MS: u64 = 1_500;

fn order(fixture: &Fixture, id: u64, command: &str) -> Order {
    let rules = Thresholds {
        silence_ms: Some(SILENCE_MS / 3),
        kill_ms: Some(SILENCE_MS),
        limit_ms: 60_000,
        background_ms: Some(0),
        grace_ms: 1_000,
    };
    let spec = fixture.shell(&fixture.path("repo"), command);
    let spec = kapelle_workspace::Spec { log: fixture.path(&format!("log-{id}")), ..spec };
    Order { id, subtask: "3-1".into(), spec, rules }
}

/// The result of one command, whether its agent still waited for it or not.
async fn result_of(fixture: &Fixture, command: &str) -> CommandResult {
    let (commands, mut told) = Commands::new();
    match commands.run(order(fixture, 1, command)).await.unwrap() {
        Answer::Done(result) => result,
        Answer::Backgrounded { .. } => result(&told_until(&mut told, 1).await).clone(),
    }
}

/// Everything that is told until the results of all commands are there.
async fn told_until(told: &mut UnboundedReceiver<Told>, results: usize) -> Vec<Told> {
    let mut seen = Vec::new();
    let complete = |seen: &[Told]| {
        seen.iter().filter(|told| matches!(told, Told::BackgroundComplete(_))).count()
    };
    while complete(&seen) < results {
        seen.push(tokio::time::timeout(LONG, told.recv()).await.unwrap().unwrap());
    }
    seen
}

fn result(told: &[Told]) -> &CommandResult {
    match told.last() {
        Some(Told::BackgroundComplete(result)) => result,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_quick_command_is_answered_at_once() {
    let fixture = Fixture::new();
    let (commands, mut told) = Commands::new();
    let mut order = order(&fixture, 1, "echo done; exit 3");
    order.rules = Thresholds::default();
    let Answer::Done(result) = commands.run(order).await.unwrap() else { panic!("backgrounded") };
    assert_eq!((result.success, result.code, result.output.as_str()), (false, Some(3), "done\n"));
    assert_eq!(result.subtask, "3-1");
    drop(commands);
    let mut results = 0;
    while let Some(told) = told.recv().await {
        results += usize::from(matches!(told, Told::BackgroundComplete(_)));
    }
    assert_eq!(results, 0, "the answer was the result");
}

/// It ignores being asked, forked a daemon into a session of its own, and holds on to its pipes.
#[tokio::test]
async fn a_command_that_refuses_to_end_is_ended_with_all_that_it_started() {
    let fixture = Fixture::new();
    let (commands, mut told) = Commands::new();
    let stubborn = "trap '' TERM INT HUP; setsid bash -c 'trap \"\" TERM; sleep 1000' & echo begun; \
                    while :; do sleep 1000; done";
    let answer = commands.run(order(&fixture, 1, stubborn)).await.unwrap();
    assert_eq!(answer, Answer::Backgrounded { id: 1 });
    let seen = told_until(&mut told, 1).await;
    assert!(seen.iter().any(|told| matches!(told, Told::Warning { .. })), "{seen:?}");
    let escalated = Told::Escalated { id: 1, reason: CommandError::Hang, output: "begun\n".into() };
    assert!(seen.contains(&escalated), "{seen:?}");
    let result = result(&seen);
    assert_eq!((result.success, result.error), (false, Some(CommandError::Hang)));
    assert_eq!(result.output, "begun\n");
    assert_eq!(running(&fixture.lease().store).unwrap(), [], "nothing lives on");
}

/// Whoever closes its pipes is silent, and still ends by itself.
#[tokio::test]
async fn closed_pipes_are_not_the_end_of_a_command() {
    let fixture = Fixture::new();
    let ended = result_of(&fixture, "echo begun; exec >&- 2>&-; sleep 0.3; exit 4").await;
    assert_eq!((ended.code, ended.error), (Some(4), None));
}

/// CMD-14: a question cannot be answered, so it cannot be waited for.
#[tokio::test]
async fn a_question_gets_no_answer_and_does_not_hang() {
    let fixture = Fixture::new();
    let ended = result_of(&fixture, "read -r -p 'Continue? ' answer || exit 9").await;
    assert_eq!(ended.code, Some(9));
}

/// CMD-16: and each has its own result, once.
#[tokio::test]
async fn several_commands_run_side_by_side() {
    let fixture = Fixture::new();
    let (commands, mut told) = Commands::new();
    let mut ids: Vec<(u64, bool)> = Vec::new();
    for id in 1..=4 {
        // Each waits for the next one, so none can end unless all run.
        let next = (id % 4) + 1;
        let command = format!(
            "mkfifo p{id} 2>/dev/null; mkfifo p{next} 2>/dev/null; (echo {id} > p{id}) & \
             read -r got < p{next}; wait; test \"$got\" = {next}"
        );
        let mut order = order(&fixture, id, &command);
        order.rules.kill_ms = None;
        match commands.run(order).await.unwrap() {
            Answer::Backgrounded { id: told } => assert_eq!(told, id),
            // With the last one nobody has to wait any more.
            Answer::Done(result) if id == 4 => ids.push((result.id, result.success)),
            answer => panic!("{id}: {answer:?}"),
        }
    }
    let seen = told_until(&mut told, 4 - ids.len()).await;
    ids.extend(seen.iter().filter_map(|told| match told {
        Told::BackgroundComplete(result) => Some((result.id, result.success)),
        _ => None,
    }));
    ids.sort_unstable();
    assert_eq!(ids, [(1, true), (2, true), (3, true), (4, true)]);
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// As fast as it can write, for a gigabyte.
#[tokio::test]
async fn a_flood_does_not_grow_our_memory() {
    let fixture = Fixture::new();
    let (commands, mut told) = Commands::new();
    let mut flood =
        order(&fixture, 1, "head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo last");
    flood.rules = Thresholds { background_ms: Some(0), ..Thresholds::default() };
    let before = memory_kib();
    commands.run(flood).await.unwrap();
    let seen = told_until(&mut told, 1).await;
    let grown = memory_kib().saturating_sub(before);
    assert!(result(&seen).success && result(&seen).output.ends_with("x\nlast\n"));
    assert_eq!(result(&seen).output.chars().count(), 2_000);
    // Other tests run in this process; a gigabyte that is kept would not go unnoticed.
    assert!(grown < 200 << 10, "{grown} KiB");
}
