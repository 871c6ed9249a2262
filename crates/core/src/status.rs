//! The states of a task, and which may follow which.
//!
//! This table is the only place that knows; the diagram in the docs is drawn from it, and every
//! other transition is a bug that the simulator reports.

use serde::{Deserialize, Serialize};

use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pending,
    InProgress,
    Testing,
    ReadyForReview,
    Completed,
    Blocked,
    Failed,
    Retrying,
    TimedOut,
    Paused,
    Cancelled,
    RolledBack,
    DeadLetter,
}

impl Status {
    pub const ALL: [Status; 13] = [
        Status::Pending,
        Status::InProgress,
        Status::Testing,
        Status::ReadyForReview,
        Status::Completed,
        Status::Blocked,
        Status::Failed,
        Status::Retrying,
        Status::TimedOut,
        Status::Paused,
        Status::Cancelled,
        Status::RolledBack,
        Status::DeadLetter,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::InProgress => "in_progress",
            Status::Testing => "testing",
            Status::ReadyForReview => "ready_for_review",
            Status::Completed => "completed",
            Status::Blocked => "blocked",
            Status::Failed => "failed",
            Status::Retrying => "retrying",
            Status::TimedOut => "timed_out",
            Status::Paused => "paused",
            Status::Cancelled => "cancelled",
            Status::RolledBack => "rolled_back",
            Status::DeadLetter => "dead_letter",
        }
    }

    /// The states that may come next; what goes beyond the sources' table is in the decision records
    /// 0005, 0020 and 0022.
    #[must_use]
    pub fn next(self) -> &'static [Status] {
        use Status::{
            Blocked, Cancelled, Completed, DeadLetter, Failed, InProgress, Paused, Pending,
            ReadyForReview, Retrying, RolledBack, Testing, TimedOut,
        };
        match self {
            Pending => &[InProgress, Blocked, Paused, Cancelled],
            // Ready for review: the last phase is accepted, and people have to approve it.
            InProgress => &[Testing, ReadyForReview, Blocked, Failed, TimedOut, Paused, Cancelled],
            // Blocked: it conflicts with what others merged, and a person is asked.
            Testing => &[ReadyForReview, Blocked, Failed, TimedOut, Paused, Cancelled],
            // Blocked: a task that it stands or falls with gave up.
            ReadyForReview => &[Completed, Pending, Testing, Blocked, Paused, Cancelled],
            Completed => &[RolledBack],
            // Paused: the answer came while the mission is paused.
            // Testing, ReadyForReview: it was before its merge when its wave fell, which stands again.
            // DeadLetter: people turned its start down.
            Blocked => &[Pending, Testing, ReadyForReview, Paused, Cancelled, DeadLetter],
            Failed => &[Retrying, RolledBack, DeadLetter, Cancelled],
            Retrying => &[Testing, ReadyForReview, Blocked, Failed, TimedOut, Paused, Cancelled],
            TimedOut => &[Retrying, Pending, Failed, DeadLetter],
            // And back to the state that it left, whichever that was.
            // Blocked: what it needs was taken back in the pause. Failed: its council did not agree.
            Paused => &[
                Pending,
                InProgress,
                Testing,
                ReadyForReview,
                Blocked,
                Failed,
                Retrying,
                Cancelled,
            ],
            Cancelled => &[],
            // Paused: it was put back to work while the mission is paused.
            RolledBack => &[Pending, Paused, DeadLetter],
            // Paused: it was put back to work while the mission is paused.
            DeadLetter => &[Pending, Paused],
        }
    }

    #[must_use]
    pub fn may_become(self, next: Status) -> bool {
        self.next().contains(&next)
    }

    /// Nothing more will happen to it without a person.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Status::Completed | Status::Cancelled | Status::RolledBack | Status::DeadLetter
        )
    }
}

/// What others call these states (C-46), as it is compared: in lower case and without underscores.
const ALIASES: [(&str, Status); 6] = [
    ("queued", Status::Pending),
    ("running", Status::InProgress),
    ("validating", Status::Testing),
    ("intests", Status::Testing),
    ("done", Status::Completed),
    ("canceled", Status::Cancelled),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no state of a task")]
pub struct UnknownStatus(pub String);

/// Reads a state by its name or by what others call it, however it is written: `in_progress`,
/// `InProgress`, `RUNNING`.
impl std::str::FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(text: &str) -> Result<Status, UnknownStatus> {
        let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
        let wanted = plain(text.trim());
        let named = Status::ALL.into_iter().find(|status| plain(status.name()) == wanted);
        let alias = || ALIASES.iter().find(|(alias, _)| *alias == wanted);
        let unknown = || UnknownStatus(limits::head(text, limits::STATUS_CHARS_MAX).to_owned());
        named.or_else(|| alias().map(|(_, status)| *status)).ok_or_else(unknown)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C-46: what the sources and other tools write is understood, and nothing else is.
    #[test]
    fn a_state_is_read_by_its_name_and_by_its_aliases() {
        for status in Status::ALL {
            assert_eq!(status.name().parse(), Ok(status));
        }
        let aliases = [
            ("queued", Status::Pending),
            ("QUEUED", Status::Pending),
            ("running", Status::InProgress),
            ("RUNNING", Status::InProgress),
            ("InProgress", Status::InProgress),
            ("validating", Status::Testing),
            ("InTests", Status::Testing),
            ("done", Status::Completed),
            ("canceled", Status::Cancelled),
            (" ready-for-review ", Status::ReadyForReview),
        ];
        for (alias, status) in aliases {
            assert_eq!(alias.parse(), Ok(status), "{alias}");
        }
        for wrong in ["", "progress", "dead"] {
            assert_eq!(wrong.parse::<Status>(), Err(UnknownStatus(wrong.to_owned())));
        }
        let flood = "x".repeat(1_000).parse::<Status>().unwrap_err();
        assert_eq!(flood.0.len(), limits::STATUS_CHARS_MAX);
    }

    #[test]
    fn names_are_those_of_the_journal() {
        for status in Status::ALL {
            assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{status}\""));
        }
    }

    /// The whole table as a person would check it; anything not listed is refused.
    #[test]
    fn the_table_is_the_agreed_one() {
        let table = "\
            pending: in_progress blocked paused cancelled\n\
            in_progress: testing ready_for_review blocked failed timed_out paused cancelled\n\
            testing: ready_for_review blocked failed timed_out paused cancelled\n\
            ready_for_review: completed pending testing blocked paused cancelled\n\
            completed: rolled_back\n\
            blocked: pending testing ready_for_review paused cancelled dead_letter\n\
            failed: retrying rolled_back dead_letter cancelled\n\
            retrying: testing ready_for_review blocked failed timed_out paused cancelled\n\
            timed_out: retrying pending failed dead_letter\n\
            paused: pending in_progress testing ready_for_review blocked failed retrying cancelled\n\
            cancelled:\n\
            rolled_back: pending paused dead_letter\n\
            dead_letter: pending paused\n";
        let written: String = Status::ALL
            .into_iter()
            .map(|from| {
                let to: String = from.next().iter().map(|to| format!(" {to}")).collect();
                format!("{from}:{to}\n")
            })
            .collect();
        assert_eq!(written, table);
    }
}
