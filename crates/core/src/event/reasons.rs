//! Why things are interrupted, paused or begun again.

use serde::{Deserialize, Serialize};

use crate::breaker::BreakerRefusal;
use crate::escalation::Resume;
use crate::ids::{Role, TaskId};
use crate::ledger;
use crate::machine::{self, Pressure};
use crate::money::Usd;
use crate::plan::gaps::GapsExhausted;
use crate::routing::NoRoute;

/// Where a retry begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// The same phase again, on what the earlier phases left.
    Phase,
    /// The first phase, on the branch as it is now: the change did not fit what others merged.
    Flow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interruption {
    HostRestarted,
    /// Kapelle was asked to stop, and did so in order: nothing was lost with it.
    Stopped,
    LeaseExpired,
    MissionPaused,
    /// Its provider has no room for it; it goes on when that is over.
    ProviderParked,
    /// Something it did was finished, and a more urgent task waited for its seat (QUE-14).
    GaveWay {
        to: TaskId,
    },
    /// A person ordered something else.
    Overridden,
    /// It stands or falls with a task that gave up (GIT-16).
    WaveFell {
        with: TaskId,
    },
    /// What it was built on is taken back (QUE-10).
    NeedTakenBack {
        need: TaskId,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PauseReason {
    Person {
        text: String,
    },
    /// Another attempt would not fit the mission's cap.
    Budget {
        spent: Usd,
        cap: Usd,
    },
    /// An attempt spent more than was reserved for it.
    Overspent {
        reserved: Usd,
        spent: Usd,
    },
    /// Another limit than the mission's own cap stands in the way.
    Limit {
        refusal: ledger::Refusal,
    },
    /// The watchdog has stopped all spending.
    Watchdog,
    /// No model may do its work, and waiting does not help.
    Route {
        refusal: NoRoute,
    },
    /// Too many attempts failed in a row.
    Breaker {
        refusal: BreakerRefusal,
    },
    /// A chore, or the host of attempts, failed again and again.
    Environment {
        message: String,
    },
    /// The machine is nearly full.
    Machine {
        pressures: Vec<Pressure>,
    },
    /// A wave fell, and what of it has landed could not be taken back.
    Wave {
        wave: String,
        /// Who gave up, as people call it.
        task: String,
        because: String,
    },
    /// What is missing was planned again and again.
    Gaps(GapsExhausted),
    /// Nobody of the team has the role that all of its work needs.
    NoSeat {
        role: Role,
    },
    /// Nobody of the role may touch the files of what is left of its work.
    NoTerritory {
        role: Role,
    },
    /// Too many of its tasks gave up.
    FailureRate {
        failed: u32,
        finished: u32,
        resume: Resume,
    },
}

impl std::fmt::Display for PauseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PauseReason::Person { text } => f.write_str(text),
            PauseReason::Budget { spent, cap } => {
                write!(f, "another attempt would not fit the budget: {spent} of {cap} spent")
            }
            PauseReason::Overspent { reserved, spent } => {
                write!(f, "an attempt spent {spent}, but only {reserved} were reserved for it")
            }
            PauseReason::Limit { refusal } => refusal.fmt(f),
            PauseReason::Route { refusal } => refusal.fmt(f),
            PauseReason::Breaker { refusal } => refusal.fmt(f),
            PauseReason::Watchdog => {
                f.write_str("the watchdog has stopped all spending; a person has to resume it")
            }
            PauseReason::Environment { message } => write!(f, "a chore keeps failing: {message}"),
            PauseReason::Machine { pressures } => f.write_str(&machine::told(pressures)),
            PauseReason::Gaps(exhausted) => exhausted.fmt(f),
            PauseReason::Wave { wave, task, because } => {
                write!(f, "the wave {wave} fell with task {task}, and stays half landed: {because}")
            }
            PauseReason::NoSeat { role } => write!(f, "the team has no {role}"),
            PauseReason::NoTerritory { role } => {
                write!(f, "there is work outside of the territory of every {role}")
            }
            PauseReason::FailureRate { failed, finished, resume } => {
                write!(f, "{failed} of {finished} tasks failed; {resume} has to resume")
            }
        }
    }
}
