//! The only loop: it feeds the engine, makes its decisions durable, and performs its effects.
//!
//! Nothing is decided here. What to start and what to stop comes from the engine; what became of
//! it goes back as a command.

pub mod clock;
pub mod handle;
pub mod host;
pub mod project;
mod room;
mod silence;
mod turn;

pub use handle::{Committed, Error, Handle};
pub use host::{Driver, Host};
pub use project::{Opened, open};
pub use turn::Conductor;
