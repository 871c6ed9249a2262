//! What may be shown of a council while it votes.
//!
//! The journal has every vote as it came. Whoever shows an event to somebody, a person as much as
//! a member, asks here first.

use std::borrow::Cow;

use super::ballot::{Choice, Vote};
use super::convene::Convocation;
use super::session::{CouncilId, Question};
use crate::event::Event;
use crate::ids::TaskId;
use crate::money::Usd;
use crate::state::State;

/// The event as it may be shown: a vote in an open council says who voted, and nothing else; a
/// drill looks like the review that its members take it for.
#[must_use]
pub fn visible<'a>(state: &State, event: &'a Event) -> Cow<'a, Event> {
    let is_sealed = |council: &CouncilId| {
        let session = state.council().session(*council);
        session.is_some_and(|session| session.votes().is_err())
    };
    match event {
        Event::VoteCast { council, task, vote, spent } if is_sealed(council) => {
            sealed((*council, *task), vote, *spent)
        }
        Event::CouncilConvened { council, task, because, convocation, reservation }
            if is_sealed(council) =>
        {
            let question = disguised(state, *task, &convocation.question);
            let (council, task) = (*council, *task);
            Cow::Owned(Event::CouncilConvened {
                council,
                task,
                because: because.clone(),
                convocation: Box::new(Convocation { question, ..(**convocation).clone() }),
                reservation: reservation.clone(),
            })
        }
        _ => Cow::Borrowed(event),
    }
}

fn disguised(state: &State, task: TaskId, question: &Question) -> Question {
    let task = state.task(task);
    let mission = task.and_then(|task| state.mission(task.mission));
    let change = task.and_then(|task| task.accepted.as_ref());
    let change = change.or(mission.and_then(|m| m.tip.as_ref())).or(mission.map(|m| &m.base));
    change.map_or_else(|| question.clone(), |change| question.disguised(change))
}

fn sealed<'a>((council, task): (CouncilId, TaskId), vote: &Vote, spent: Usd) -> Cow<'a, Event> {
    let vote = Vote {
        by: vote.by.clone(),
        choice: Choice::Solution(SEALED.to_owned()),
        reasoning: SEALED.to_owned(),
        evidence: Vec::new(),
        confidence: 0,
    };
    Cow::Owned(Event::VoteCast { council, task, vote: Box::new(vote), spent })
}

const SEALED: &str = "sealed until the council closes";
