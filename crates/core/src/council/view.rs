//! What may be shown of a council while it votes.
//!
//! The journal has every vote as it came. Whoever shows an event to somebody, a person as much as
//! a member, asks here first.

use std::borrow::Cow;

use super::ballot::{Choice, Vote};
use crate::event::Event;
use crate::state::State;

/// The event as it may be shown: a vote in an open council says who voted, and nothing else.
#[must_use]
pub fn visible<'a>(state: &State, event: &'a Event) -> Cow<'a, Event> {
    let Event::VoteCast { council, task, vote, spent } = event else {
        return Cow::Borrowed(event);
    };
    let session = state.council().session(*council);
    if session.is_none_or(|session| session.votes().is_ok()) {
        return Cow::Borrowed(event);
    }
    let vote = Vote {
        by: vote.by.clone(),
        choice: Choice::Solution(SEALED.to_owned()),
        reasoning: SEALED.to_owned(),
        evidence: Vec::new(),
        confidence: 0,
    };
    let (council, task, vote, spent) = (*council, *task, Box::new(vote), *spent);
    Cow::Owned(Event::VoteCast { council, task, vote, spent })
}

const SEALED: &str = "sealed until the council closes";
