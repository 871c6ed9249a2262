//! Parsers: the report or the output of a tool becomes an [`Outcome`].
//!
//! Whatever is read here was written by a program that ran an agent's code. It is bounded in size
//! and depth, read in one pass without a tree of the whole, and never believed to be well formed:
//! what cannot be read is a typed error, what is strange is left out, nothing panics.

mod cargo;
mod coverage;
mod go;
mod jest;
mod junit;
mod lizard;
mod mutation;
mod nextest;
mod pytest;
mod sarif;
mod tap;
mod text;
mod trx;
mod xml;

use kapelle_core::outcome::Outcome;
use kapelle_core::policy::Parser;

/// The largest report. Ten thousand tests with a kilobyte each fit.
pub const REPORT_BYTES_MAX: usize = 16 << 20;

/// JSON documents are held as values while they are read, and those are larger than their text.
pub const JSON_BYTES_MAX: usize = 8 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("it has {bytes} bytes, more than {limit}")]
    TooLarge { bytes: usize, limit: usize },
    #[error("elements are nested deeper than {limit}")]
    TooDeep { limit: usize },
    #[error("it is not {expected}: {message}")]
    Malformed { expected: &'static str, message: String },
    #[error("it holds no {expected}")]
    Empty { expected: &'static str },
}

/// Reads a report or an output.
pub fn parse(parser: Parser, bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let limit = match parser {
        Parser::Jest | Parser::Mutation | Parser::Sarif => JSON_BYTES_MAX,
        _ => REPORT_BYTES_MAX,
    };
    if bytes.len() > limit {
        return Err(Unreadable::TooLarge { bytes: bytes.len(), limit });
    }
    match parser {
        Parser::ExitCode => Ok(Outcome::default()),
        Parser::Junit => junit::parse(bytes),
        Parser::Tap => tap::parse(bytes),
        Parser::Cargo => cargo::parse(bytes),
        Parser::Nextest => nextest::parse(bytes),
        Parser::Pytest => pytest::parse(bytes),
        Parser::Jest => jest::parse(bytes),
        Parser::Go => go::parse(bytes),
        Parser::Trx => trx::parse(bytes),
        Parser::Lcov => coverage::lcov(bytes),
        Parser::Cobertura => coverage::cobertura(bytes),
        Parser::Mutation => mutation::parse(bytes),
        Parser::Sarif => sarif::parse(bytes),
        Parser::Lizard => lizard::parse(bytes),
    }
}

/// Coverage in whichever of the two formats it is.
pub fn coverage(bytes: &[u8]) -> Result<Outcome, Unreadable> {
    let is_xml = text::without_mark(bytes).trim_ascii_start().starts_with(b"<");
    parse(if is_xml { Parser::Cobertura } else { Parser::Lcov }, bytes)
}

/// Adds the time of a part to that of the whole.
fn add_time(outcome: &mut Outcome, ms: Option<u64>) {
    let total = outcome.duration_ms.unwrap_or_default();
    outcome.duration_ms = Some(total.saturating_add(ms.unwrap_or_default()));
}

/// Whether there is anything that a run of tests leaves. A report without a single test is not
/// the report of a run that passed.
fn with_tests(outcome: Outcome, expected: &'static str) -> Result<Outcome, Unreadable> {
    let is_empty = outcome.counts.total() == 0 && outcome.broken.is_empty();
    if is_empty { Err(Unreadable::Empty { expected }) } else { Ok(outcome) }
}
