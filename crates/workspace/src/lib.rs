//! Everything that touches a repository or a process: git, worktrees, candidates, sandboxes,
//! supervised processes, checks, and the reaper.
//!
//! Nothing here decides. Whoever calls says what should happen; this crate does exactly that, or
//! says in a typed error why it could not.

pub mod baseline;
pub mod candidate;
pub mod check;
pub mod commands;
mod commit;
pub mod condition;
pub mod delivery;
pub mod egress;
pub mod git;
pub mod governor;
pub mod kept;
mod locks;
pub mod process;
pub mod programs;
pub mod reaper;
pub mod repository;
pub mod rewrite;
pub mod runtime;
pub mod sandbox;
mod scratch;
pub mod secrets;
pub mod stacks;
pub mod subtask;
pub mod tmux;
pub mod worktree;

pub use candidate::Candidate;
pub use check::{Check, CheckRun};
pub use delivery::Delivery;
pub use git::Git;
pub use process::{Exit, Hold, Lease, Running, Spec, spawn};
pub use reaper::{Reaped, reap};
pub use repository::{Advance, Repository};
pub use rewrite::{Reversal, Rewrite};
pub use sandbox::{Confinement, Limits, Network, Sandbox, Sandboxing, Walls};
pub use worktree::{Kept, Worktree};
