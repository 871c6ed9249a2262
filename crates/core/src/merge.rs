//! The merge queue: which finished changes are built together, tested and landed, and who is to
//! blame when that fails.
//!
//! Changes are put into lanes. A lane is a batch of changes that becomes one candidate; lanes that
//! touch no common file are tested side by side, each built on the candidate before it, so that
//! what was tested is exactly what the target becomes. A batch that fails is halved until the
//! culprit stands alone; the others land.
//!
//! Invariants: the target advances only to a commit whose own checks passed and which was built on
//! the tip that it replaces; two lanes never touch the same file; a change is in one place at a
//! time.

mod change;
mod facts;
mod lane;
mod plan;
mod policy;
mod queue;
mod verdict;

pub use change::{Change, Paths};
pub(crate) use lane::Duty;
pub use lane::{LaneId, Step, Work};
pub use plan::LanePlan;
pub use policy::{InvalidMergePolicy, MergePolicy};
pub use queue::{MergeQueue, News, Standing};
pub use verdict::{AfterConflict, AfterTests, StaleWork, TestReport};
