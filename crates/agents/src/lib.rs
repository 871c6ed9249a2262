//! How to talk to an agent: what it is told, how its answer is read, and the scripted one.
//!
//! Nothing here starts a process or calls git: the conductor gives an agent its box, and what an
//! agent did is what is in its tree.

pub mod briefing;
pub mod command;
pub mod scenario;
pub mod scripted;

pub use briefing::Briefing;
