//! All tests of the core that need no private part, in one program: it links once.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod approval;
mod completion;
mod council;
mod escalation;
mod fixture;
mod found;
mod gate;
mod gates;
mod journals;
mod makespan;
mod merge_model;
mod merge_queue;
mod plans;
mod queue;
mod rollback;
mod rules;
mod scaling;
