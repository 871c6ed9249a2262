//! Rollback, rule by rule, and against a model of files and their writers.

use std::collections::BTreeSet;
use std::sync::Arc;

use kapelle_core::merge::Paths;
use kapelle_core::rollback::{
    Confirmation, Irreversible, Landing, Landings, Migration, RollbackRefused, WaveId, Word,
};
use kapelle_core::{Commit, TaskId};
use proptest::prelude::*;

fn commit(n: u32) -> Commit {
    format!("{n:040x}").parse().unwrap()
}

fn landing(task: u32, files: &[&str], needs: &[u32]) -> Landing {
    let files = Arc::new(files.iter().map(ToString::to_string).collect());
    Landing {
        task: TaskId(task),
        name: format!("1-{task}"),
        commits: vec![commit(task * 10), commit(task * 10 + 1)],
        paths: Paths::of(&files),
        needs: needs.iter().map(|need| TaskId(*need)).collect(),
        wave: None,
        migration: Migration::None,
        word: Word::Nothing,
        last_good: commit(task * 10 - 1),
    }
}

fn landings(all: Vec<Landing>) -> Landings {
    let mut landings = Landings::default();
    all.into_iter().for_each(|landing| landings.landed(landing));
    landings
}

fn order(reverts: &[kapelle_core::rollback::Revert]) -> Vec<u32> {
    reverts.iter().map(|revert| revert.task.0).collect()
}

/// GIT-13: the later commit may use what the earlier made.
#[test]
fn own_commits_are_reversed_newest_first() {
    let landings = landings(vec![landing(1, &["a"], &[]), landing(2, &["b"], &[])]);
    let revert = landings.rollback(TaskId(1)).unwrap();
    assert_eq!(revert.commits, [commit(11), commit(10)]);
    assert_eq!(revert.message, "Rollback task 1-1");
    let last_good = &landings.landing(TaskId(1)).unwrap().last_good;
    assert_eq!(last_good, &commit(9), "GIT-21: kept for a reset by hand");
}

/// GIT-14, with its very words: whoever else touched a file, before or after, stops it.
#[test]
fn files_of_other_tasks_stop_a_rollback() {
    let landings = landings(vec![
        landing(1, &["a", "b", "c"], &[]),
        landing(2, &["b", "c", "d"], &[]),
        landing(3, &["c"], &[]),
    ]);
    let refused = landings.rollback(TaskId(2)).unwrap_err();
    let by = vec![TaskId(1), TaskId(3)];
    assert_eq!(refused, RollbackRefused::FilesModified { files: 2, by });
    assert_eq!(refused.to_string(), "Cannot rollback: 2 files modified by other tasks");
    assert_eq!(refused.advice(), "Manual intervention required");
}

/// A task that was itself taken back no longer touches anything.
#[test]
fn what_was_taken_back_stands_in_nobodys_way() {
    let mut landings = landings(vec![landing(1, &["a"], &[]), landing(2, &["a"], &[1])]);
    let needed = RollbackRefused::BuiltOn { task: "1-1".into(), count: 1 };
    assert_eq!(landings.rollback(TaskId(1)), Err(needed));
    landings.rolled_back(TaskId(2));
    assert!(landings.rollback(TaskId(1)).is_ok());
    landings.rolled_back(TaskId(1));
    assert_eq!(landings.rollback(TaskId(1)), Err(RollbackRefused::NotLanded(TaskId(1))));
}

/// GIT-15: dependents go first, and a person says so to exactly the list that they saw.
#[test]
fn dependents_fall_first_and_only_when_confirmed() {
    let mut landings = landings(vec![
        landing(1, &["a"], &[]),
        landing(2, &["b"], &[1]),
        landing(3, &["c"], &[1]),
        landing(4, &["d"], &[2]),
        landing(5, &["e"], &[]),
    ]);
    let built_on = RollbackRefused::BuiltOn { task: "1-1".into(), count: 2 };
    assert_eq!(landings.rollback(TaskId(1)), Err(built_on.clone()));
    assert_eq!(built_on.advice(), "Confirm the rollback of those tasks too");
    let cascade = landings.cascade(TaskId(1)).unwrap();
    assert_eq!(order(&cascade.reverts), [4, 3, 2, 1]);
    assert_eq!(cascade.confirmation, Confirmation::Needed);
    let seen: Vec<TaskId> = cascade.reverts.iter().map(|revert| revert.task).collect();
    assert_eq!(landings.confirmed(TaskId(1), &seen), Ok(cascade));
    landings.landed(landing(6, &["f"], &[3]));
    let changed = Err(RollbackRefused::ScopeChanged { seen: 4, now: 5 });
    assert_eq!(landings.confirmed(TaskId(1), &seen), changed);
    let nothing = Err(RollbackRefused::NotLanded(TaskId(9)));
    assert_eq!(landings.cascade(TaskId(9)), nothing);
}

/// A cascade may pull files from nobody who came later and stays.
#[test]
fn a_cascade_stops_at_files_that_others_built_on() {
    let landings =
        landings(vec![landing(1, &["a"], &[]), landing(2, &["b"], &[1]), landing(3, &["b"], &[])]);
    let refused = Err(RollbackRefused::FilesModified { files: 1, by: vec![TaskId(3)] });
    assert_eq!(landings.cascade(TaskId(1)), refused);
}

/// GIT-16: a wave was declared to fall together, so nobody is asked unless others fall with it.
#[test]
fn a_wave_falls_together() {
    let in_wave = |task, needs: &[u32]| Landing {
        wave: Some(WaveId(7)),
        ..landing(task, &[["a", "b", "c", "d"][task as usize]], needs)
    };
    let mut landings = landings(vec![in_wave(1, &[]), in_wave(2, &[1]), in_wave(3, &[])]);
    let wave = landings.wave(WaveId(7)).unwrap();
    assert_eq!(order(&wave.reverts), [3, 2, 1]);
    assert_eq!(wave.confirmation, Confirmation::AgreedBefore);
    landings.landed(landing(4, &["z"], &[3]));
    let wave = landings.wave(WaveId(7)).unwrap();
    assert_eq!(order(&wave.reverts), [4, 3, 2, 1]);
    assert_eq!(wave.confirmation, Confirmation::Needed);
    assert_eq!(landings.wave(WaveId(8)).unwrap().reverts, []);
}

/// GIT-20: git cannot take back a database, nor what its agent says that it cannot.
#[test]
fn migrations_and_what_agents_warn_of_are_not_reversible() {
    let with = |migration| {
        landings(vec![Landing { migration, ..landing(1, &["a"], &[]) }]).reversible(TaskId(1))
    };
    let refused = |because| Err(RollbackRefused::Irreversible { task: "1-1".into(), because });
    assert_eq!(with(Migration::None), Ok(()));
    assert_eq!(with(Migration::WithWayBack), Ok(()));
    assert_eq!(with(Migration::OneWay), refused(Irreversible::Migration));
    let stated = Landing { word: Word::Irreversible, ..landing(1, &["a"], &[]) };
    let stated = landings(vec![stated]).reversible(TaskId(1));
    assert_eq!(stated, refused(Irreversible::Stated), "whoever did it knows best");
    let one_way = Landing { migration: Migration::OneWay, ..landing(2, &["b"], &[1]) };
    let landings = landings(vec![landing(1, &["a"], &[]), one_way]);
    let because = Irreversible::Migration;
    let refused = RollbackRefused::Irreversible { task: "1-2".into(), because };
    assert_eq!(landings.cascade(TaskId(1)), Err(refused), "nor as part of a cascade");
}

/// Without a list of files nobody can say whose work would be lost.
#[test]
fn unknown_files_stop_a_rollback_unless_it_is_the_only_task() {
    let unknown = landings(vec![landing(1, &[], &[])]);
    assert!(unknown.rollback(TaskId(1)).is_ok());
    let both = landings(vec![landing(1, &[], &[]), landing(2, &["b"], &[])]);
    let refused = Err(RollbackRefused::FilesUnknown { task: "1-1".into() });
    assert_eq!(both.rollback(TaskId(1)), refused);
    assert_eq!(both.rollback(TaskId(2)), refused);
}

#[test]
fn a_rollback_of_everything_is_not_a_rollback() {
    let all = (1..=1_001).map(|task| landing(task, &["a"], if task > 1 { &[1] } else { &[] }));
    let refused = landings(all.collect()).cascade(TaskId(1)).unwrap_err();
    assert_eq!(refused, RollbackRefused::TooMany { count: 1_001 });
}

type Made = (BTreeSet<u8>, BTreeSet<usize>);

fn history() -> impl Strategy<Value = Vec<Made>> {
    let one = |index: usize| {
        let needs = prop::collection::btree_set(0..index.max(1), 0..3);
        let files = prop::collection::btree_set(0u8..6, 1..3);
        (files, needs).prop_map(move |(f, n)| (f, if index == 0 { BTreeSet::new() } else { n }))
    };
    (1usize..10).prop_flat_map(move |n| (0..n).map(one).collect::<Vec<_>>())
}

fn model(history: &[Made]) -> Landings {
    let landing = |(index, (files, needs)): (usize, &Made)| {
        let files: Vec<String> = files.iter().map(ToString::to_string).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let needs: Vec<u32> = needs.iter().map(|need| *need as u32 + 1).collect();
        landing(index as u32 + 1, &files, &needs)
    };
    landings(history.iter().enumerate().map(landing).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is granted leaves every task that stays with its dependencies, and with no later
    /// layer on a file of which a lower layer was pulled out.
    #[test]
    fn a_rollback_takes_nothing_from_those_who_stay(history in history(), pick in any::<prop::sample::Index>()) {
        let landings = model(&history);
        let task = pick.index(history.len());
        let single = landings.rollback(TaskId(task as u32 + 1)).map(|revert| vec![revert]);
        let whole = landings.cascade(TaskId(task as u32 + 1)).map(|cascade| cascade.reverts);
        for reverts in [&single, &whole].into_iter().flatten() {
            let gone: Vec<usize> = reverts.iter().map(|revert| revert.task.0 as usize - 1).collect();
            prop_assert!(gone.contains(&task));
            for (index, (files, needs)) in history.iter().enumerate() {
                if gone.contains(&index) { continue }
                prop_assert!(needs.iter().all(|need| !gone.contains(need)));
                let under = gone.iter().filter(|other| **other < index);
                prop_assert!(under.into_iter().all(|other| history[*other].0.is_disjoint(files)));
            }
            let sorted = gone.windows(2).all(|pair| pair[0] > pair[1]);
            prop_assert!(sorted, "dependents come first: {gone:?}");
        }
        // A single rollback is refused exactly when somebody else is concerned.
        let (files, _) = &history[task];
        let mut others = history.iter().enumerate().filter(|(index, _)| *index != task);
        let concerned = others.any(|(_, (theirs, needs))| !theirs.is_disjoint(files) || needs.contains(&task));
        prop_assert_eq!(single.is_err(), concerned);
    }
}
