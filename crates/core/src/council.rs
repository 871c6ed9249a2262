//! The council: models of different families look at a problem that one could not solve.
//!
//! Votes are blind: until all have voted or the deadline has passed, nobody can read them. A vote
//! without evidence is none. What the votes say is weighed by one of five strategies; what the
//! checks say is not weighed at all.
//!
//! Invariants: no panel has two members of one family; a choice whose checks failed never wins,
//! by no strategy and no majority.

mod ballot;
mod brief;
mod chamber;
mod convene;
mod history;
mod judge;
mod member;
mod policy;
mod record;
mod session;
mod strategy;
mod telling;
mod view;

pub use ballot::{Choice, Evidence, InvalidVote, Vote};
pub use brief::{Brief, ProblemKey};
pub use chamber::{Council, NotInSession};
pub use convene::{Convening, Convocation, Petition, Rules, Summons, ToHuman};
pub use history::{History, ModelRecord, Remembered};
pub use judge::{BadScore, JudgeWeights, Score};
pub use member::{Member, PanelRefused, check_panel};
pub use policy::{CouncilPolicy, Defect, InvalidCouncil, LazyRule, Quorum, Size, Switch};
pub use record::{CouncilRecord, Metrics, Outcome};
pub use session::{CouncilId, Dropped, Planted, Question, Sealed, Session, VoteRefused};
pub use strategy::{CheckStanding, Checked, Findings, NoVerdict, Rejection, Strategy, Verdict};
pub use view::visible;
