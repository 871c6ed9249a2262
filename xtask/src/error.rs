//! What went wrong, why, and what to do next.

use std::fmt;
use std::process::ExitCode;

pub type Result<T = ()> = std::result::Result<T, Error>;

/// The same exit codes as `kapelle` itself.
pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const ENVIRONMENT: u8 = 6;

#[derive(Debug)]
pub struct Error {
    what: String,
    hint: Option<String>,
    exit_code: u8,
}

impl Error {
    /// A check or a build did not pass.
    pub fn failed(what: impl Into<String>) -> Error {
        Error { what: what.into(), hint: None, exit_code: FAILED }
    }

    /// The command line makes no sense.
    pub fn usage(what: impl Into<String>) -> Error {
        Error { what: what.into(), hint: None, exit_code: USAGE }
    }

    /// This machine lacks something.
    pub fn environment(what: impl Into<String>) -> Error {
        Error { what: what.into(), hint: None, exit_code: ENVIRONMENT }
    }

    pub fn hint(self, hint: impl Into<String>) -> Error {
        Error { hint: Some(hint.into()), ..self }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
