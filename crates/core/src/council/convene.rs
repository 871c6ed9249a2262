//! Whether a council convenes, and who sits on it. Whether it is paid is for the ledger to say.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::brief::ProblemKey;
use super::chamber::Council;
use super::history::Remembered;
use super::judge::JudgeWeights;
use super::member::{Member, PanelRefused, check_panel};
use super::policy::{Quorum, Size, Switch};
use super::session::Question;
use super::strategy::Strategy;
use crate::ids::Actor;
use crate::ledger;
use crate::limits;
use crate::money::Usd;
use crate::routing::{Lineage, ModelName};
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Petition {
    /// Such as `2-5-error-3`.
    pub problem_id: String,
    pub problem_type: String,
    pub key: ProblemKey,
    pub question: Question,
    pub summons: Summons,
    /// The family of whoever did the work.
    pub author: Option<Lineage>,
    /// Models with a key, not parked and not broken (CON-15).
    pub available: BTreeSet<ModelName>,
}

/// Why a council is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "summons", content = "of", rename_all = "snake_case")]
pub enum Summons {
    /// An agent failed so often.
    Retries(u32),
    /// Policy wants a review.
    Review,
    /// Somebody asks for it (CON-08), perhaps for these members.
    ByHand { by: Actor, panel: Vec<ModelName> },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Convening {
    Convene(Box<Convocation>),
    /// This was solved before: nobody needs to be asked.
    Known(Remembered),
    NotYet {
        retries: u32,
        needed: u32,
    },
    /// Tier 4.
    ToHuman(ToHuman),
    Refused(PanelRefused),
}

/// A council as it is called together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Convocation {
    pub problem_id: String,
    pub problem_type: String,
    pub key: ProblemKey,
    pub question: Question,
    pub panel: Vec<Member>,
    /// None if no other family is left to judge.
    pub judge: Option<Member>,
    /// As they were when it was called: who votes knows by which rules.
    pub rules: Rules,
    pub deadline: Timestamp,
    pub reserved: Usd,
}

/// How the votes of one council are weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    pub strategy: Strategy,
    pub quorum: Quorum,
    pub weights: JudgeWeights,
}

/// Why a person has to look instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum ToHuman {
    Off,
    ByHandOnly,
    TooFewMembers { members: usize, needed: usize },
    Money { refusal: ledger::Refusal },
    TooManyOpen,
}

impl Council {
    /// What follows from a call for the council.
    #[must_use]
    pub fn convene(&self, petition: &Petition, now: Timestamp) -> Convening {
        let policy = self.policy();
        if let Some(answer) = self.before_anybody_is_asked(petition, now) {
            return answer;
        }
        let panel = match &petition.summons {
            Summons::ByHand { panel, .. } if !panel.is_empty() => match self.named(petition, panel)
            {
                Ok(panel) => panel,
                Err(refused) => return Convening::Refused(refused),
            },
            Summons::Retries(_) | Summons::Review | Summons::ByHand { .. } => self.select(petition),
        };
        let (members, needed) = (panel.len(), policy.quorum.agree.max(2) as usize);
        if members < needed {
            return Convening::ToHuman(ToHuman::TooFewMembers { members, needed });
        }
        let reserved = Size::holding(members).reference_cost();
        if self.open_count() >= limits::COUNCIL_OPEN_MAX {
            return Convening::ToHuman(ToHuman::TooManyOpen);
        }
        let bounded = |text: &str| limits::head(text, limits::TITLE_CHARS_MAX).to_owned();
        Convening::Convene(Box::new(Convocation {
            problem_id: bounded(&petition.problem_id),
            problem_type: bounded(&petition.problem_type),
            key: petition.key.clone(),
            question: petition.question.clone(),
            judge: self.judge(petition, &panel),
            panel,
            rules: Rules {
                strategy: policy.strategy,
                quorum: policy.quorum,
                weights: policy.weights,
            },
            deadline: now.plus_ms(policy.timeout_ms),
            reserved,
        }))
    }

    fn before_anybody_is_asked(&self, petition: &Petition, now: Timestamp) -> Option<Convening> {
        let policy = self.policy();
        let by_hand = matches!(petition.summons, Summons::ByHand { .. });
        match policy.enabled {
            Switch::Off => return Some(Convening::ToHuman(ToHuman::Off)),
            Switch::ByHand if !by_hand => return Some(Convening::ToHuman(ToHuman::ByHandOnly)),
            Switch::On | Switch::ByHand => {}
        }
        let Summons::Retries(retries) = petition.summons else { return None };
        let needed = policy.trigger_after_retries;
        if retries < needed {
            return Some(Convening::NotYet { retries, needed });
        }
        let known = self.history().recall(&petition.key, policy.remember_ms, now);
        known.filter(|_| petition.question == Question::Problem).cloned().map(Convening::Known)
    }

    fn named(&self, petition: &Petition, names: &[ModelName]) -> Result<Vec<Member>, PanelRefused> {
        let wanted = self.policy().models.iter().filter(|member| {
            names.contains(&member.model) && petition.available.contains(&member.model)
        });
        let panel: Vec<Member> = wanted.cloned().collect();
        check_panel(&panel, petition.author.as_ref())?;
        Ok(panel)
    }

    /// How many would sit on a council about this.
    #[must_use]
    pub fn seats(&self, petition: &Petition) -> usize {
        match self.policy().enabled {
            Switch::On => self.select(petition).len(),
            Switch::ByHand | Switch::Off => 0,
        }
    }

    /// The best for this type of problem, one of each family, neither lazy nor related to the
    /// author. A minimal council keeps the first of the configuration and adds the best other.
    fn select(&self, petition: &Petition) -> Vec<Member> {
        let (policy, history) = (self.policy(), self.history());
        let strong = policy.strengths.get(&petition.problem_type);
        let mut ranked: Vec<(_, &Member)> = Vec::new();
        for (place, member) in policy.models.iter().enumerate() {
            let may = petition.available.contains(&member.model)
                && petition.author.as_ref() != Some(&member.lineage)
                && !history.is_lazy(&member.model, &policy.lazy);
            if may {
                let affinity = history.affinity_permille(&petition.problem_type, &member.model);
                let strength = strong.and_then(|s| s.iter().position(|m| *m == member.model));
                let anchor = policy.size == Size::Minimal && ranked.is_empty();
                let rank = (!anchor, std::cmp::Reverse(affinity), strength.unwrap_or(usize::MAX));
                ranked.push(((rank, place), member));
            }
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        let mut families = BTreeSet::new();
        let distinct = ranked.into_iter().filter(|(_, member)| families.insert(&member.lineage));
        distinct.map(|(_, member)| member.clone()).take(policy.size.members()).collect()
    }

    /// Of a family that neither did the work nor votes on it.
    fn judge(&self, petition: &Petition, panel: &[Member]) -> Option<Member> {
        let policy = self.policy();
        let neutral = |member: &&Member| {
            petition.available.contains(&member.model)
                && petition.author.as_ref() != Some(&member.lineage)
                && !panel.iter().any(|voter| voter.lineage == member.lineage)
        };
        [&policy.judge].into_iter().chain(&policy.models).find(neutral).cloned()
    }
}

impl fmt::Display for ToHuman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToHuman::Off => f.write_str("there is no council; a person has to look"),
            ToHuman::ByHandOnly => {
                f.write_str("the council convenes only when somebody asks for it")
            }
            ToHuman::TooFewMembers { members, needed } => {
                write!(f, "{members} model families can vote, {needed} are needed")
            }
            ToHuman::Money { refusal } => write!(f, "a council cannot be paid: {refusal}"),
            ToHuman::TooManyOpen => f.write_str("too many councils are open"),
        }
    }
}
