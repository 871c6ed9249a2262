//! Every decision of Kapelle, as a deterministic state machine.
//!
//! Nothing here can wait, look at a clock, draw a random number or touch the outside world: time
//! and outside facts arrive in commands, wishes leave as effects.

pub mod activity;
pub mod approval;
pub mod command;
pub mod council;
pub mod effect;
pub mod engine;
pub mod event;
pub mod failure;
pub mod flow;
pub mod glob;
pub mod ids;
pub mod limits;
pub mod merge;
pub mod mission;
pub mod money;
pub mod plan;
pub mod policy;
pub mod refusal;
pub mod report;
pub mod rollback;
pub mod state;
pub mod status;
pub mod task;
pub mod team;
pub mod time;
pub mod why;

pub use command::Command;
pub use effect::Effect;
pub use engine::Engine;
pub use event::{Event, Record};
pub use ids::{Actor, AgentId, Commit, Fence, MissionId, RequestId, Role, Seq, TaskId};
pub use money::Usd;
pub use refusal::Refusal;
pub use state::State;
pub use time::Timestamp;
pub use why::why;
