//! The HTTP face, over real sockets and in front of a real conductor.

// A fixture that cannot be built is a failed test; clippy only knows test functions.
#![allow(clippy::unwrap_used)]

mod commands;
mod fixture;
mod guard;
mod stream;
