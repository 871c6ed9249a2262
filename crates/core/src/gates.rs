//! Gates: what has to be true of a change before it goes on.
//!
//! Every gate is a pure question over outcomes that somebody else measured, and every gate but
//! those of the phases is off until the policy asks for it (TDD-14). An answer is a list of
//! objections: all of them, so that one attempt can put all of them right.

mod blame;
mod criteria;
mod mocks;
mod objection;
mod phases;
mod quality;
mod reviews;

pub use blame::{failures, name};
pub use criteria::{Criterion, Done, Judged};
pub use mocks::{Mock, Tested, mocked_units};
pub use objection::{Objection, explain};
pub use phases::{Evidence, RedReason, green, red};
pub use quality::{Thresholds, quality};
pub use reviews::{ReviewPolicy, Reviews, ReviewsExhausted};
