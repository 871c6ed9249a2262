//! The sentences about the merge queue and about what is taken back.

use std::collections::BTreeSet;

use super::{Told, count, first_line, last_line};
use crate::command::{CheckNews, CheckResult};
use crate::event::Event;
use crate::ids::TaskId;
use crate::merge::{AfterConflict, AfterTests};
use crate::state::State;
use crate::time::SECOND_MS;

/// Tests that a line names; all of them are in the journal.
const NAMED_MAX: usize = 5;

pub(super) fn told(state: &State, event: &Event) -> Option<Told> {
    Some(match event {
        Event::LaneFormed { mission, lane, members, behind } => {
            let suspects = if behind.is_empty() { "" } else { ", one half of a batch that failed" };
            let names = names(state, members);
            Told::info(format!("lane {lane}: merging {names}{suspects}")).of_mission(*mission)
        }
        Event::LaneBuilt { mission, lane, steps, onto, .. } => {
            let candidate = steps.last().map_or("?", |step| step.commit.short());
            let (changes, onto) = (count(steps.len(), "change"), onto.short());
            let text = format!("lane {lane}: built the candidate {candidate}, {changes} on {onto}");
            Told::info(text).of_mission(*mission)
        }
        Event::LaneTested { mission, lane, candidate, verdict, .. } => {
            let text = format!("lane {lane}: {}: {verdict}", candidate.short());
            let told = match verdict {
                AfterTests::Passed { excused, .. } if excused.is_empty() => Told::info(text),
                AfterTests::Passed { .. }
                | AfterTests::Held { .. }
                | AfterTests::TestAgain { .. }
                | AfterTests::Doubted { .. } => Told::warn(text),
                AfterTests::Halved { .. } | AfterTests::Blamed { .. } => Told::error(text),
            };
            match verdict {
                AfterTests::Blamed { culprit, .. } => told.of_task(state, *culprit),
                _ => told.of_mission(*mission),
            }
        }
        Event::LanePassed { mission, lane, candidate } => {
            let text = format!("lane {lane}: {} needs no further check", candidate.short());
            Told::info(text).of_mission(*mission)
        }
        Event::LaneLanded { mission, lane, commit, .. } => {
            let text = format!("lane {lane}: the branch is now at {}", commit.short());
            Told::info(text).of_mission(*mission)
        }
        Event::ChangeConflicted { task, paths, next, .. } => {
            let text = format!("{next}: {}", paths.join(", "));
            let told = match next {
                AfterConflict::TryAlone | AfterConflict::Rebase => Told::warn(text),
                AfterConflict::AskPerson => Told::error(text),
            };
            told.of_task(state, *task)
        }
        Event::ChangeRebased { task, change, .. } => {
            Told::info(format!("rebased as {}", change.short())).of_task(state, *task)
        }
        Event::TargetMoved { mission, actual, .. } => {
            let text = format!("the branch moved to {}: building anew", actual.short());
            Told::warn(text).of_mission(*mission)
        }
        Event::BaselineMeasured { mission, commit, results, .. } => {
            let failed: Vec<&str> =
                results.iter().filter(|r| !r.passed).map(|r| r.name.as_str()).collect();
            let told = match failed.as_slice() {
                [] => Told::info(format!("the branch itself passes at {}", commit.short())),
                failed => Told::warn(format!(
                    "the branch itself fails at {}: {}; nobody is blamed for that",
                    commit.short(),
                    failed.join(", ")
                )),
            };
            told.of_mission(*mission)
        }
        Event::RollbackStarted { task, tasks, reason, by, .. } => {
            let text = format!("taking back {}: {}", names(state, tasks), first_line(reason));
            Told::warn(text).of_task(state, *task).by(by)
        }
        Event::RevertBuilt { task, change, .. } => {
            Told::info(format!("wrote the reversal {}", change.short())).of_task(state, *task)
        }
        Event::RollbackFailed { task, reason } => {
            Told::error(format!("not taken back: {}", last_line(reason))).of_task(state, *task)
        }
        Event::TaskRolledBack { task, commit, .. } => {
            Told::warn(format!("taken back as {}", commit.short())).of_task(state, *task)
        }
        _ => return None,
    })
}

fn names(state: &State, tasks: &[TaskId]) -> String {
    let names: Vec<&str> =
        tasks.iter().map(|task| state.task(*task).map_or("?", |t| t.name())).collect();
    names.join(", ")
}

pub(super) fn check_noted(check: &str, news: CheckNews) -> Told {
    Told::info(match news {
        CheckNews::Silent { silent_ms } => {
            format!("the check {check} has printed nothing for {} s", silent_ms / SECOND_MS)
        }
        CheckNews::LongRunning { running_ms } => {
            format!("the check {check} has been running for {} s", running_ms / SECOND_MS)
        }
    })
}

/// Tests that failed at first are told, or nobody would ever mend them.
pub(super) fn flaky(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        return String::new();
    }
    let shown: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = names.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("; flaky: {}{more}", shown.join(", "))
}

/// The checks that failed before the change too; nobody is blamed for these.
pub(super) fn failed_before(results: &[CheckResult]) -> String {
    let failed = |result: &&CheckResult| {
        !result.passed && result.before.as_ref().is_some_and(|before| !before.passed)
    };
    let names: Vec<&str> = results.iter().filter(failed).map(|r| r.name.as_str()).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; failed before the change already: {}", names.join(", ")),
    }
}
