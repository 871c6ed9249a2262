//! Scenarios: the part that the scripted agent plays, as a TOML file.
//!
//! ```toml
//! [answers]                       # what a person would say, by resume_id
//! storage = "memory"
//!
//! [[play]]
//! task = "1-1"                    # which task and phase this is for
//! phase = "green"
//! try = 1                         # only for the first try; without it, for every one
//! resumed = false                 # only before (false) or after (true) an answer
//! steps = [
//!   { write = "src/greet.sh", text = "echo hello\n" },
//!   { spend = "scripted-standard", input = 12000, output = 3000 },
//!   { say = "wrote the greeter" },
//! ]
//! ```

use std::collections::BTreeMap;

use kapelle_core::flow::Phase;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::briefing::Briefing;

/// A scenario is a script for tests and demos; larger ones are a mistake.
const SCENARIO_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Answers that a person would give, by the question's `resume_id`.
    #[serde(default)]
    pub answers: BTreeMap<String, String>,
    /// A pause after every step, so that a person can follow.
    #[serde(default)]
    pub pace_ms: u64,
    #[serde(default, rename = "play")]
    pub plays: Vec<Play>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Play {
    pub task: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Which try; without it, every one that no other play names.
    #[serde(default, rename = "try", skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Whether a question was answered before; without it, either way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
    pub steps: Vec<Step>,
}

/// One thing that the scripted agent does. After the last one it reports success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
pub enum Step {
    /// Writes a file, relative to the worktree. `{input}` becomes the person's answer.
    Write { write: String, text: String },
    /// Appends to a file.
    Append { append: String, text: String },
    /// Removes a file.
    Remove { remove: String },
    /// Commits what is there, as an agent that knows git would.
    Commit { commit: String },
    /// Prints a line.
    Say { say: String },
    /// Prints this many lines at once.
    Flood { flood: u32 },
    /// Claims to have used this model.
    Spend { spend: String, input: u64, output: u64 },
    /// Takes this long.
    Wait { wait_ms: u64 },
    /// Asks a person and ends.
    Ask {
        ask: String,
        resume_id: String,
        #[serde(default)]
        options: Vec<String>,
    },
    /// Reports a failure and ends.
    Fail { fail: String },
    /// Ends at once with this exit code and no report.
    Exit { exit: i32 },
    /// Never ends by itself.
    Hang { hang: Always },
    /// Starts a child that outlives it, as careless tools do.
    Orphan { orphan: Always },
    /// Reports success at once, whatever it did.
    Lie { lie: Always },
    /// Writes this as its report, valid or not.
    Report { report: String },
}

/// `true`, for steps that need no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "bool", into = "bool")]
pub struct Always;

impl TryFrom<bool> for Always {
    type Error = &'static str;

    fn try_from(value: bool) -> Result<Always, &'static str> {
        if value { Ok(Always) } else { Err("leave the step out instead of setting it to false") }
    }
}

impl From<Always> for bool {
    fn from(_: Always) -> bool {
        true
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScenario {
    #[error("the scenario has {bytes} bytes, more than {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("the scenario is not valid: {0}")]
    Malformed(String),
}

impl Scenario {
    pub fn parse(text: &str) -> Result<Scenario, InvalidScenario> {
        if text.len() > SCENARIO_BYTES_MAX {
            let (bytes, max) = (text.len(), SCENARIO_BYTES_MAX);
            return Err(InvalidScenario::TooLarge { bytes, max });
        }
        toml::from_str(text).map_err(|e| InvalidScenario::Malformed(e.to_string()))
    }

    /// The play for this briefing: the most particular one that fits.
    #[must_use]
    pub fn play_for(&self, briefing: &Briefing) -> Option<&Play> {
        let fits = |play: &&Play| {
            play.task == briefing.task
                && play.phase.is_none_or(|phase| phase == briefing.phase)
                && play.attempt.is_none_or(|attempt| attempt == briefing.attempt)
                && play.resumed.is_none_or(|resumed| resumed == briefing.resume_data.is_some())
        };
        let particular = |play: &&Play| {
            let said = [play.phase.is_some(), play.attempt.is_some(), play.resumed.is_some()];
            said.into_iter().filter(|said| *said).count()
        };
        // Of equals the first one: `max_by_key` would take the last.
        self.plays.iter().filter(fits).rev().max_by_key(particular)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_read_and_its_errors_name_the_line() {
        let text =
            "[[play]]\ntask = \"1\"\nsteps = [{ write = \"a\", text = \"x\" }, { hang = true }]";
        let scenario = Scenario::parse(text).unwrap();
        assert_eq!(scenario.plays[0].steps[1], Step::Hang { hang: Always });
        let wrong = Scenario::parse("[[play]]\ntsk = \"1\"\nsteps = []").unwrap_err();
        assert!(wrong.to_string().contains("line 2"), "{wrong}");
        assert!(Scenario::parse("[[play]]\ntask = \"1\"\nsteps = [{ hang = false }]").is_err());
    }

    #[test]
    fn the_most_particular_play_is_chosen() {
        let text = r#"
            play = [
                { task = "1", steps = [{ say = "any" }] },
                { task = "1", try = 2, steps = [{ say = "second" }] },
                { task = "1", phase = "green", try = 2, steps = [{ say = "second green" }] },
            ]"#;
        let scenario = Scenario::parse(text).unwrap();
        let mut briefing = crate::scripted::tests::briefing("1");
        let said = |briefing: &Briefing| match &scenario.play_for(briefing).unwrap().steps[0] {
            Step::Say { say } => say.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(said(&briefing), "any");
        briefing.attempt = 2;
        assert_eq!(said(&briefing), "second green");
        briefing.phase = Phase::Red;
        assert_eq!(said(&briefing), "second");
    }
}
