//! Every decision of Kapelle, as a deterministic state machine.
//!
//! Nothing here can wait, look at a clock, draw a random number or touch the outside world: time
//! and outside facts arrive in commands, wishes leave as effects.

pub mod ids;
pub mod time;

pub use ids::{Actor, AgentId, Commit, Fence, MissionId, RequestId, Role, Seq, TaskId};
pub use time::Timestamp;
