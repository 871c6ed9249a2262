//! Rollback: what of the landed work may be taken back, how, and when a person has to say so.
//!
//! A task's own commits are reversed, newest first, and only if that takes nothing from anybody
//! else: other tasks that touched the same files stop it, and so do tasks that were built on it.
//! Taking those back too is offered as a whole, for a person to confirm.
//!
//! Invariant: a rollback never reverses a commit of a task that is not named in it, and never
//! pulls a file from under a task that stays.

mod decision;
mod landings;
mod refusal;

pub use decision::{Cascade, Confirmation, Revert};
pub use landings::{Landing, Landings, Migration, WaveId, Word};
pub use refusal::{Irreversible, RollbackRefused};
