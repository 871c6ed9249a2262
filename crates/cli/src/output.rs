//! What people read: errors with their next step, exit codes, times.
//!
//! Data goes to stdout, everything else to stderr.

use std::{fmt, io};

/// The documented exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// The mission or the check failed.
    Failed,
    Usage,
    /// Refused by policy or state.
    Refused,
    /// Waiting for a person.
    Waiting,
    Budget,
    /// The store or the environment is at fault.
    Environment,
    Interrupted,
}

impl Exit {
    pub const ALL: [(Exit, &str); 8] = [
        (Exit::Done, "done"),
        (Exit::Failed, "the mission or the check failed"),
        (Exit::Usage, "wrong usage"),
        (Exit::Refused, "refused by policy or state"),
        (Exit::Waiting, "waiting for a person"),
        (Exit::Budget, "stopped by the budget"),
        (Exit::Environment, "the store or the environment is at fault"),
        (Exit::Interrupted, "interrupted; nothing is lost"),
    ];

    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Waiting => 4,
            Exit::Budget => 5,
            Exit::Environment => 6,
            Exit::Interrupted => 130,
        }
    }
}

/// An error as a person reads it: what and why, and what to do next.
#[derive(Debug)]
pub struct Problem {
    pub exit: Exit,
    pub what: String,
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(exit: Exit, what: impl fmt::Display) -> Problem {
        Problem { exit, what: what.to_string(), hint: None }
    }

    pub fn environment(what: impl fmt::Display) -> Problem {
        Problem::new(Exit::Environment, what)
    }

    pub fn refused(what: impl fmt::Display) -> Problem {
        Problem::new(Exit::Refused, what)
    }

    pub fn usage(what: impl fmt::Display) -> Problem {
        Problem::new(Exit::Usage, what)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<kapelle_conductor::Error> for Problem {
    fn from(error: kapelle_conductor::Error) -> Problem {
        match error {
            kapelle_conductor::Error::Refused(refusal) => Problem::refused(refusal),
            kapelle_conductor::Error::Store(error) => error.into(),
            stopped @ kapelle_conductor::Error::Stopped => Problem::environment(stopped),
        }
    }
}

impl From<kapelle_workspace::repository::Error> for Problem {
    fn from(error: kapelle_workspace::repository::Error) -> Problem {
        use kapelle_workspace::repository::Error;
        let problem = Problem::environment(&error);
        match error {
            Error::NotARepository { .. } => {
                problem.hint("run kapelle inside a git repository, or make one with `git init`")
            }
            Error::NoCommit { .. } => {
                problem.hint("make a first commit: `git commit --allow-empty -m start`")
            }
            _ => problem,
        }
    }
}

impl From<kapelle_workspace::worktree::Error> for Problem {
    fn from(error: kapelle_workspace::worktree::Error) -> Problem {
        Problem::environment(error)
    }
}

impl From<kapelle_store::Error> for Problem {
    fn from(error: kapelle_store::Error) -> Problem {
        use kapelle_store::Error;
        let problem = match &error {
            Error::Held { .. } => Problem::refused(&error),
            Error::StaleEpoch { .. } => {
                Problem::refused(format!("another Kapelle leads this project now: {error}"))
            }
            Error::SamePlace { .. } | Error::Address { .. } => Problem::usage(&error),
            _at_fault => Problem::environment(&error),
        };
        problem.hint(next_step(&error))
    }
}

/// Without an arm for the rest: a new error has to say what to do about it.
fn next_step(error: &kapelle_store::Error) -> &'static str {
    use kapelle_store::Error;
    match error {
        Error::DiskFull { .. } => {
            "make room and go on with: kapelle run --resume; nothing that was acknowledged is lost"
        }
        Error::ReadOnly { .. } => WRITABLE,
        Error::Io { source, .. } if is_forbidden(source) => WRITABLE,
        Error::Io { .. } | Error::Database { .. } => {
            "kapelle doctor says how the store is; what was acknowledged is in the journal"
        }
        Error::Forbidden { .. } => {
            "look at the role, its password and the database in [store] url; the role needs all rights to the project's schema, or the right to create it"
        }
        Error::Damaged { .. } => {
            "restore the store from a backup, in the place of all that is there; or move all of it away, and read an export: kapelle import FILE"
        }
        Error::LostEnd { .. } => LOST_END,
        Error::Missing { .. } | Error::Unreadable { .. } => {
            "somebody or something changed the store, or its server lost records; restore it from a backup, in the place of all that is there. kapelle audit verify says what else is wrong"
        }
        Error::JournalGone { .. } => {
            "restore it from a backup, in the place of all that is left; the tables cannot replace it"
        }
        Error::Locked { .. } => "close the other program's transaction and try again",
        Error::Lost { .. } => {
            "is the server running, and is [store] url right? Go on with: kapelle run --resume"
        }
        Error::WriterGone => "go on with: kapelle run --resume; what was acknowledged is kept",
        Error::Held { .. } => "wait for it to end, or stop it with Ctrl-C; nothing is lost",
        Error::StaleEpoch { .. } => {
            "kapelle status says which; nothing that was acknowledged is lost"
        }
        Error::Conflict { .. } | Error::Overtaken { .. } => {
            "somebody else writes to this store: see who with kapelle status, and try again when that has ended"
        }
        Error::TooNew { .. } => "use a newer Kapelle; this one leaves the store alone",
        Error::TooOld { .. } => {
            "run any command that changes something, such as kapelle run --resume; a backup is made first"
        }
        Error::SqliteTooOld { .. } => {
            "use a Kapelle that was built with the SQLite it brings along"
        }
        Error::NotPlainFile { .. } => "remove the link; state files must be plain files",
        Error::Setting { setting: "journal_mode", .. } => {
            "put the state folder on a disk of this machine: a log needs memory that is shared with its readers"
        }
        Error::Setting { .. } => {
            "let the database sync its writes, or choose [store] durability = \"normal\""
        }
        Error::Encoding { .. } => "name the new database in [store] url",
        Error::Address { .. } => {
            "[store] url is `sqlite`, `sqlite:FILE` or `postgres://user@host/database`"
        }
        Error::NotAStore { .. } => "choose another file in [store] url; this one stays as it is",
        Error::NoStore { .. } => "is [store] url right? A store is made by the first kapelle run",
        Error::SamePlace { .. } => "choose another place with --to",
        Error::NotEmpty { .. } => "choose another place, or move what is there out of the way",
        Error::Impossible { .. } => "no Kapelle wrote this history; export it again",
        Error::CutShort { .. } => {
            "it was cut short, or made by an earlier version: export it again, or take what there is with --partial"
        }
        Error::Import { .. } | Error::TooLarge { what: "line", .. } => {
            "the file is not a whole export, or was changed on its way"
        }
        Error::TooLarge { .. } => "keep it in a file of its own, outside of the store",
        Error::Unfit { .. } | Error::Duplicate { .. } => {
            "take back what was added to the store by hand, if anything was, and try again; if nothing was, report it: the journal stays as it is"
        }
        Error::Gap { .. } | Error::Unwritable { .. } | Error::OutOfRange { .. } => {
            "report it, this is a mistake of Kapelle; what was acknowledged is in the journal"
        }
    }
}

const WRITABLE: &str = "make the state folder and its files writable for yourself, or copy it to a place that is; on a server, the database for the role";

/// For a journal that has lost its end, whoever finds that out.
pub const LOST_END: &str = "restore the journal from a backup, in the place of all that is there; to go on without the lost records, and perhaps do again what they told of: kapelle store rebuild --accept-loss";

/// Of a file system that cannot be written, or a place that we may not write to.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// Text of agents and repositories is data: it must not move the cursor or clear the screen.
fn harmless(text: impl fmt::Display) -> String {
    let control = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.to_string().replace(control, "\u{fffd}")
}

/// One line to stderr.
pub fn say(line: impl fmt::Display) {
    use std::io::Write;
    // If nobody reads our chatter, the work goes on.
    let _ = writeln!(std::io::stderr().lock(), "{}", harmless(line));
}

/// Data to stdout. A reader that went away (`| head`) is no error of ours.
pub fn print(text: impl fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{}", harmless(text));
}

pub fn print_json(value: &impl serde::Serialize) -> Result<(), Problem> {
    let text = serde_json::to_string_pretty(value).map_err(Problem::environment)?;
    print(text);
    Ok(())
}

/// `10:02:01`, in UTC, which is what the journal counts in.
#[must_use]
pub fn clock_time(at_ms: u64) -> String {
    let seconds = at_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// There is nobody to wait for on a disk that was mounted to be read.
    #[test]
    fn a_place_that_cannot_be_written_is_hinted_at() {
        let source = Arc::new(io::Error::from(io::ErrorKind::ReadOnlyFilesystem));
        let problem = Problem::from(kapelle_store::Error::Io { path: "lock".into(), source });
        assert_eq!(problem.hint.as_deref(), Some(WRITABLE));
    }

    #[test]
    fn a_terminal_is_not_for_agents_to_steer() {
        assert_eq!(harmless("a\u{1b}[2Jb\nc\td\r"), "a\u{fffd}[2Jb\nc\td\u{fffd}");
    }
}
