//! What people have to say before something happens: approvals, overrides, and what they are told.
//!
//! How risky a task is follows from its kind, its files and its priority; what risk needs an
//! approval follows from the autonomy level. An approval is given by a person who has the right
//! and is not the author, for one commit. A new commit needs new approvals.
//!
//! Invariant: nothing reaches the protected branch without an approval by a person, at no level,
//! by no override.

mod autonomy;
mod gate;
mod human_time;
mod orders;
mod overrides;
mod people;
mod policy;
mod risk;

pub use autonomy::{Action, Level, Need};
pub use gate::{Approval, ApprovalRefused, Approvals, Gate, GateStanding, Subject};
pub use human_time::{HumanTime, MissionTime};
pub use orders::{Order, OverrideAction, Situation};
pub use overrides::{OverrideDecision, OverrideRefused, Overrides, PendingOverride};
pub use people::{People, PeopleRefused, PersonRole, Right};
pub use policy::{ApprovalPolicy, InvalidApprovalPolicy};
pub use risk::{Assessment, RiskPattern, RiskReason};
