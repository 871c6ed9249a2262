//! The scripted agent: a real agent that follows a scenario instead of a model.
//!
//! Demo, tests and chaos use it, through the same contract as any other command agent. It is
//! given its hands (`Hands`) by whoever runs it, so that the acting stays out of this crate.

use std::io;
use std::path::{Component, Path};
use std::time::Duration;

use kapelle_core::report::{Question, Report, ReportStatus, Usage};

use crate::briefing::Briefing;
use crate::scenario::{Scenario, Step};

/// What the scripted agent can do to the world.
pub trait Hands {
    fn say(&mut self, line: &str) -> io::Result<()>;
    fn wait(&mut self, time: Duration);
    fn commit(&mut self, message: &str) -> io::Result<()>;
    fn leave_orphan(&mut self) -> io::Result<()>;
}

/// How the play ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    Reported(Report),
    /// Something else than a report was written as one.
    Wrote(String),
    Exited(i32),
    Hangs,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the scenario has no play for task {task}, phase {phase}, try {attempt}")]
    NoPlay { task: String, phase: String, attempt: u32 },
    #[error("the scenario names {0:?}, which is not inside the worktree")]
    Outside(String),
    #[error("could not {what}")]
    Io { what: String, source: io::Error },
}

/// Plays the scenario's part for this briefing in `worktree`.
pub fn play(
    scenario: &Scenario,
    briefing: &Briefing,
    worktree: &Path,
    hands: &mut dyn Hands,
) -> Result<Ended, Error> {
    let play = scenario.play_for(briefing).ok_or_else(|| Error::NoPlay {
        task: briefing.task.clone(),
        phase: briefing.phase.to_string(),
        attempt: briefing.attempt,
    })?;
    let input = briefing.resume_data.as_ref().map_or("", |resume| resume.user_input.as_str());
    let mut report = Report { rollback_possible: Some(true), ..Report::default() };
    for step in &play.steps {
        if let Some(ended) = act(step, worktree, input, hands, &mut report)? {
            return Ok(ended);
        }
        if scenario.pace_ms > 0 {
            hands.wait(Duration::from_millis(scenario.pace_ms));
        }
    }
    Ok(Ended::Reported(report))
}

fn act(
    step: &Step,
    worktree: &Path,
    input: &str,
    hands: &mut dyn Hands,
    report: &mut Report,
) -> Result<Option<Ended>, Error> {
    let failed = |what: String| move |source| Error::Io { what, source };
    match step {
        Step::Write { write: path, text } => {
            put(worktree, path, text.replace("{input}", input).as_bytes(), Mode::Replace)?;
        }
        Step::Append { append: path, text } => {
            put(worktree, path, text.replace("{input}", input).as_bytes(), Mode::Append)?;
        }
        Step::Remove { remove: path } => {
            let inside = inside(worktree, path)?;
            std::fs::remove_file(inside).map_err(failed(format!("remove {path}")))?;
        }
        Step::Commit { commit } => hands.commit(commit).map_err(failed("commit".into()))?,
        Step::Say { say } => {
            hands.say(say).map_err(failed("print".into()))?;
            report.message.clone_from(say);
        }
        Step::Flood { flood } => {
            for line in 0..*flood {
                hands.say(&format!("line {line} of {flood}")).map_err(failed("print".into()))?;
            }
        }
        Step::Spend { spend, input, output } => report.usage.push(Usage {
            model: spend.clone(),
            input_tokens: *input,
            output_tokens: *output,
        }),
        Step::Wait { wait_ms } => hands.wait(Duration::from_millis(*wait_ms)),
        Step::Ask { ask, resume_id, options } => {
            report.status = ReportStatus::Checkpoint;
            report.checkpoint = Some(Question {
                message: ask.clone(),
                resume_id: resume_id.clone(),
                options: options.clone(),
            });
            return Ok(Some(Ended::Reported(std::mem::take(report))));
        }
        Step::Fail { fail } => {
            report.status = ReportStatus::Error;
            report.message.clone_from(fail);
            return Ok(Some(Ended::Reported(std::mem::take(report))));
        }
        Step::Exit { exit } => return Ok(Some(Ended::Exited(*exit))),
        Step::Hang { .. } => return Ok(Some(Ended::Hangs)),
        Step::Orphan { .. } => hands.leave_orphan().map_err(failed("leave an orphan".into()))?,
        Step::Lie { .. } => {
            report.message = "all done, every test passes".into();
            return Ok(Some(Ended::Reported(std::mem::take(report))));
        }
        Step::Report { report } => return Ok(Some(Ended::Wrote(report.clone()))),
    }
    Ok(None)
}

enum Mode {
    Replace,
    Append,
}

fn put(worktree: &Path, path: &str, text: &[u8], mode: Mode) -> Result<(), Error> {
    let target = inside(worktree, path)?;
    let write = || {
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = std::fs::OpenOptions::new();
        options.create(true);
        match mode {
            Mode::Replace => options.write(true).truncate(true),
            Mode::Append => options.append(true),
        };
        io::Write::write_all(&mut options.open(&target)?, text)
    };
    write().map_err(|source| Error::Io { what: format!("write {path}"), source })
}

/// A scenario stays in its tree; attacks are the business of hostile scripts, not of this one.
fn inside(worktree: &Path, path: &str) -> Result<std::path::PathBuf, Error> {
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if !plain || path.is_empty() {
        return Err(Error::Outside(path.to_owned()));
    }
    Ok(worktree.join(path))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kapelle_core::flow::Phase;

    #[derive(Default)]
    struct Notes(Vec<String>);

    impl Hands for Notes {
        fn say(&mut self, line: &str) -> io::Result<()> {
            self.0.push(format!("say {line}"));
            Ok(())
        }

        fn wait(&mut self, time: Duration) {
            self.0.push(format!("wait {time:?}"));
        }

        fn commit(&mut self, message: &str) -> io::Result<()> {
            self.0.push(format!("commit {message}"));
            Ok(())
        }

        fn leave_orphan(&mut self) -> io::Result<()> {
            self.0.push("orphan".into());
            Ok(())
        }
    }

    pub(crate) fn briefing(task: &str) -> Briefing {
        Briefing {
            mission: "m1".into(),
            goal: "g".into(),
            task: task.into(),
            title: "t".into(),
            description: String::new(),
            phase: Phase::Green,
            agent: "developer-1".into(),
            attempt: 1,
            files: Vec::new(),
            tests: Vec::new(),
            validation_criteria: Default::default(),
            checks: Vec::new(),
            merged: Vec::new(),
            last_failure: None,
            resume_data: None,
        }
    }

    fn playing(steps: &str) -> (Result<Ended, Error>, Notes, tempfile::TempDir) {
        let text = format!("[[play]]\ntask = \"1\"\nsteps = {steps}");
        let scenario = Scenario::parse(&text).unwrap();
        let (tree, mut notes) = (tempfile::tempdir().unwrap(), Notes::default());
        let ended = play(&scenario, &briefing("1"), tree.path(), &mut notes);
        (ended, notes, tree)
    }

    #[test]
    fn steps_are_played_in_order_and_end_in_a_report() {
        let (ended, notes, tree) = playing(
            r#"[{ write = "a/b.txt", text = "one\n" }, { append = "a/b.txt", text = "two\n" },
                { commit = "work" }, { wait_ms = 5 }, { spend = "m", input = 1, output = 2 },
                { say = "done" }]"#,
        );
        let Ended::Reported(report) = ended.unwrap() else { panic!() };
        assert_eq!((report.status, report.usage.len()), (ReportStatus::Success, 1));
        assert_eq!(notes.0, ["commit work", "wait 5ms", "say done"]);
        let text = std::fs::read_to_string(tree.path().join("a/b.txt")).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn endings_end() {
        let (ended, notes, _tree) = playing(r#"[{ fail = "no" }, { say = "never" }]"#);
        assert!(matches!(ended, Ok(Ended::Reported(r)) if r.status == ReportStatus::Error));
        assert!(notes.0.is_empty());
        assert_eq!(playing("[{ exit = 7 }]").0.unwrap(), Ended::Exited(7));
        assert_eq!(playing("[{ hang = true }]").0.unwrap(), Ended::Hangs);
        assert_eq!(playing(r#"[{ report = "{" }]"#).0.unwrap(), Ended::Wrote("{".into()));
        let (asked, ..) = playing(r#"[{ ask = "a or b?", resume_id = "q", options = ["a"] }]"#);
        assert!(matches!(asked, Ok(Ended::Reported(r)) if r.checkpoint.is_some()));
    }

    #[test]
    fn a_missing_play_and_a_path_outside_are_named() {
        let (ended, ..) = playing(r#"[{ write = "../x", text = "" }]"#);
        assert!(matches!(ended, Err(Error::Outside(path)) if path == "../x"));
        let scenario = Scenario::default();
        let tree = tempfile::tempdir().unwrap();
        let ended = play(&scenario, &briefing("9"), tree.path(), &mut Notes::default());
        assert!(ended.unwrap_err().to_string().contains("no play for task 9"));
    }
}
