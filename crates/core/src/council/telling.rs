//! Verdicts as sentences.

use std::fmt;

use super::session::Dropped;
use super::strategy::{NoVerdict, Rejection, Strategy, Verdict};

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Accepted { winner, by, .. } => {
                write!(f, "{} of {winner}; its checks passed", by.told())
            }
            Verdict::Proposed { winner, by, .. } => {
                write!(f, "{} of {winner}; it has to pass its checks yet", by.told())
            }
            Verdict::Combine { from } => {
                let names: Vec<&str> = from.iter().map(|model| &*model.0).collect();
                write!(f, "put together from {}", names.join(", "))
            }
            Verdict::Rejected { because: Rejection::ChecksFailed } => {
                f.write_str("rejected: its checks failed")
            }
            Verdict::Rejected { because: Rejection::Votes { against } } => {
                write!(f, "rejected by {against} votes")
            }
            Verdict::Undecided { why } => write!(f, "undecided: {why}"),
            Verdict::Drill { caught, missed } => {
                let all = caught.len() + missed.len();
                write!(f, "a drill: {} of {all} found the planted defect", caught.len())
            }
        }
    }
}

impl Strategy {
    fn told(self) -> &'static str {
        match self {
            Strategy::Majority => "most agreed on the answer",
            Strategy::Weighted => "those who are mostly right agreed on the answer",
            Strategy::BestReasoning => "the judge preferred the reasoning",
            Strategy::TestWinner => "most tests passed with the answer",
            Strategy::ConsensusBuild => "nobody was against the answer",
        }
    }
}

impl fmt::Display for NoVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoVerdict::TooFewVotes { valid, needed } => {
                write!(f, "{valid} valid votes, {needed} are needed")
            }
            NoVerdict::NoQuorum { agreed, needed } => {
                write!(f, "{agreed} agreed, {needed} are needed")
            }
            NoVerdict::Tie => f.write_str("the votes are equal"),
            NoVerdict::EverythingFailed => f.write_str("the checks failed on every proposal"),
            NoVerdict::NotChecked => {
                f.write_str("agreement alone is not enough, nothing was checked")
            }
            NoVerdict::NotJudged => f.write_str("the judge has not scored every vote"),
        }
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dropped::Late => f.write_str("it came too late"),
            Dropped::Invalid { fault } => fault.fmt(f),
        }
    }
}
