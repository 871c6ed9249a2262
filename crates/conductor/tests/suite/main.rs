//! The conductor from inside a process: what no command line shows.

// A fixture that cannot be built is a failed test; clippy only knows test functions.
#![allow(clippy::unwrap_used)]

mod commits;
mod fixture;
mod gating;
mod leading;
mod merging;
