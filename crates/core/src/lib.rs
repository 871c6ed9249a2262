//! Every decision of Kapelle, as a deterministic state machine.
//!
//! Nothing here can wait, look at a clock, draw a random number or touch the outside world: time
//! and outside facts arrive in commands, wishes leave as effects.

pub mod activity;
pub mod agents;
pub mod approval;
pub mod branch;
pub mod breaker;
mod by_task;
pub mod calendar;
pub mod checklist;
pub mod command;
pub mod completion;
pub mod council;
pub mod effect;
pub mod engine;
pub mod escalation;
pub mod event;
pub mod failure;
mod few;
pub mod flaky;
pub mod flow;
pub mod gates;
pub mod glob;
pub mod ids;
pub mod ledger;
pub mod limits;
pub mod locks;
pub mod machine;
pub mod merge;
pub mod mission;
pub mod money;
pub mod outcome;
pub mod plan;
pub mod policy;
pub mod price;
pub mod queue;
pub mod rate;
pub mod refusal;
pub mod report;
pub mod rollback;
pub mod routing;
pub mod scaling;
pub mod schema;
pub mod session;
pub mod settings;
pub mod state;
pub mod status;
pub mod task;
pub mod time;
pub mod why;
pub mod window;

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
