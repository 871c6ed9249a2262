//! The workspace against real git, real processes and a real sandbox.

// A fixture that cannot be built is a failed test; clippy only knows test functions.
#![allow(clippy::unwrap_used)]

mod attacks;
mod candidate;
mod check;
mod commands;
mod condition;
mod crash;
mod delivery;
mod egress;
mod fixture;
mod git;
mod locks;
mod parsers;
mod process;
mod reaper;
mod repository;
mod rewrite;
mod sandbox;
mod secrets;
mod stacks;
mod subtask;
mod tmux;
mod userns;
mod worktree;
