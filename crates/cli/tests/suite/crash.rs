//! `kill -9` at any moment, and then going on as if nothing had happened.
//!
//! Moments are counted in lines of the log, not in time, so that every part of a run is hit on a
//! machine of any speed.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fixture::{Fixture, Live};

/// An undisturbed demo logs about this many lines.
const LINES: usize = 206;
/// Four tests begin a quarter of this apart.
const STRIDE: usize = 42;

struct Demo {
    fixture: Fixture,
}

impl Demo {
    fn new() -> Demo {
        Demo { fixture: Fixture::without_repository() }
    }

    fn start(&self) -> Live {
        let dir = self.fixture.repo();
        self.fixture.start(&["demo", "--dir", dir.to_str().unwrap(), "--port", "0", "--json"])
    }

    fn resume(&self) -> Live {
        self.fixture.start_run(&["--resume", "--yes", "--json"])
    }

    /// Whatever happened before: this ends with the same files as a run without a crash.
    fn assert_delivered(&self) {
        let report = self.resume().ended().expect(0).json();
        assert_eq!(report["mission"]["status"], "delivered", "{report:#}");
        assert_eq!(report["tasks"]["completed"], 8, "{report:#}");
        assert_eq!(report["target"]["commit"], self.fixture.main());
        assert_eq!(self.files(), undisturbed());
        assert_eq!(self.fixture.git(&["status", "--porcelain"]), "");
        self.assert_fair();
        self.fixture.assert_tidy();
    }

    fn files(&self) -> String {
        self.fixture.git(&["ls-tree", "-r", "main"])
    }

    /// At no time did a task have two live leases, and no crash was held against a task: the
    /// demo's own two failures are the only ones.
    fn assert_fair(&self) {
        let mut live: BTreeSet<(u64, u64)> = BTreeSet::new();
        let mut failed: Vec<String> = Vec::new();
        for record in self.fixture.journal() {
            let event = &record["event"];
            let (task, fence) = (event["task"].as_u64(), event["fence"].as_u64());
            match event["type"].as_str().unwrap() {
                "lease_granted" => {
                    let task = task.unwrap();
                    let other = live.iter().find(|(of, _)| *of == task);
                    assert_eq!(other, None, "two leases at once: {record}");
                    live.insert((task, fence.unwrap()));
                }
                "attempt_finished"
                | "attempt_failed"
                | "attempt_interrupted"
                | "checkpoint_raised" => {
                    assert!(live.remove(&(task.unwrap(), fence.unwrap())), "no lease: {record}");
                }
                _ => {}
            }
            failed.extend(event["failure"].is_object().then(|| record.to_string()));
        }
        assert_eq!(live, BTreeSet::new(), "leases that never ended");
        assert_eq!(failed.len(), 2, "a crash was taken for a failure: {failed:#?}");
    }
}

/// The files of a demo that nobody disturbed, once for all tests.
fn undisturbed() -> String {
    static FILES: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let make = || {
        let demo = Demo::new();
        let done = demo.start().ended().expect(0);
        let lines = done.stderr.lines().count();
        assert!(lines.abs_diff(LINES) < LINES / 4, "{lines} lines: spread the moments anew");
        demo.files()
    };
    FILES.get_or_init(make).clone()
}

/// Kills a demo at every `stride`th moment from `first` on, and goes on with each.
fn killed_at(first: usize, stride: usize) {
    for moment in (first..LINES).step_by(stride) {
        let demo = Demo::new();
        demo.start().killed_after(moment);
        demo.assert_delivered();
    }
}

/// Power fails when it likes. Together the four tests hit twenty moments, from the first line
/// to the last.
#[test]
fn a_run_that_is_killed_at_any_moment_goes_on_first_quarter() {
    killed_at(3, STRIDE);
}

#[test]
fn a_run_that_is_killed_at_any_moment_goes_on_second_quarter() {
    killed_at(3 + STRIDE / 4, STRIDE);
}

#[test]
fn a_run_that_is_killed_at_any_moment_goes_on_third_quarter() {
    killed_at(3 + STRIDE / 2, STRIDE);
}

#[test]
fn a_run_that_is_killed_at_any_moment_goes_on_fourth_quarter() {
    killed_at(3 + STRIDE * 3 / 4, STRIDE);
}

/// A machine that keeps crashing must still get somewhere, and recovery itself is as mortal as
/// the rest.
#[test]
fn a_run_that_is_killed_again_and_again_goes_on() {
    let demo = Demo::new();
    demo.start().killed_after(40);
    // Before it has said where its dashboard is, and right after; and then further on.
    for lines in [0, 1, 2, 3, 30, 50, 1, 50] {
        demo.resume().killed_after(lines);
    }
    demo.assert_delivered();
}

/// A crash in the middle of somebody's work must not lose what is already written.
#[test]
fn what_an_agent_had_written_is_kept_when_kapelle_is_killed() {
    let fixture = Fixture::with_agent("echo half > half.txt; while :; do sleep 1000; done");
    let mut run = fixture.start_run(&["write a poem"]);
    run.line_with("Executing write a poem");
    fixture.written("half.txt");
    run.kill();

    fixture.script("agent.sh", "echo whole > poem.txt");
    fixture.run(&["--resume", "--yes"]).expect(0);
    assert_eq!(fixture.git(&["show", "main:poem.txt"]), "whole");
    let kept = fixture.refs("kept");
    assert_eq!(kept.len(), 2, "the interrupted attempt and the finished one: {kept:?}");
    let half = format!("{}:half.txt", kept.iter().find(|name| name.contains("leftover")).unwrap());
    assert_eq!(fixture.git(&["show", &half]), "half");
    let interrupted = fixture.events("attempt_interrupted");
    assert_eq!(interrupted[0]["cause"], "host_restarted");
    assert_eq!(fixture.failures(1), []);
    fixture.assert_tidy();
}

/// Without a sandbox an agent outlives the Kapelle that was killed. It must not go on writing
/// while another one works on the same task.
#[test]
fn an_agent_that_survived_the_crash_is_ended_before_its_task_is_given_away() {
    let fixture = Fixture::with_agent("echo $$ > pid; while :; do sleep 1000; done");
    let mut run = fixture.start_run(&["write a poem", "--unsandboxed"]);
    run.line_with("Executing write a poem");
    fixture.written("pid");
    run.kill();
    let survivors = fixture.processes();
    assert!(!survivors.is_empty(), "nothing survived, so nothing is tested");

    fixture.script("agent.sh", "echo whole > poem.txt");
    fixture.run(&["--resume", "--yes"]).expect(0);
    assert!(fixture.processes().is_disjoint(&survivors));
    assert_eq!(fixture.git(&["show", "main:poem.txt"]), "whole");
    fixture.assert_tidy();
}

/// What was asked for is remembered before anything starts, so a crash before the first commit
/// of the journal does not lose it, and a crash after it does not open a second mission.
#[test]
fn a_request_is_carried_out_once_however_early_the_crash() {
    let fixture = Fixture::with_agent("echo whole > poem.txt");
    let run = fixture.start_run(&["write a poem"]);
    crate::fixture::eventually("the request is written", || {
        let dir = fixture.repo().join(".kapelle");
        let names = dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name());
        let found = names.map(|name| name.to_string_lossy().into_owned()).any(|name| {
            (name.starts_with("request-") && name.ends_with(".json")) || name == "store.db"
        });
        if found { Ok(()) } else { Err("neither request nor store") }
    });
    run.kill();
    fixture.run(&["--resume", "--yes"]).expect(0);
    assert_eq!(fixture.events("mission_opened").len(), 1);
    let again = fixture.run(&["--resume", "--yes", "--json"]).expect(0).json();
    let status: &Value = &again["mission"]["status"];
    assert_eq!(status, "delivered");
    assert_eq!(fixture.events("mission_opened").len(), 1);
}
