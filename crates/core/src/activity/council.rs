//! Councils, told to people: who was heard, and what was said only when all have.

use super::{Told, first_line};
use crate::calendar::utc;
use crate::council::{Outcome, Session, Summons};
use crate::event::Event;
use crate::ids::Actor;
use crate::state::State;

/// The arms of `line` about councils; it names each of them, so none is forgotten.
pub(super) fn told(state: &State, event: &Event) -> Option<Told> {
    let heard = |council| {
        let session: Option<&Session> = state.council().session(council);
        session.map_or(String::new(), |session| {
            let (heard, asked) = (session.heard().count(), session.convocation.panel.len());
            format!(" ({heard} of {asked})")
        })
    };
    let (task, told) = match event {
        Event::CouncilConvened { task, because, convocation, .. } => {
            let names: Vec<&str> = convocation.panel.iter().map(|member| &*member.model).collect();
            let (why, by) = match because {
                Summons::Retries(retries) => {
                    (format!(" after {retries} retries"), Actor::kapelle())
                }
                Summons::Review => (" for a review".to_owned(), Actor::kapelle()),
                Summons::ByHand { by, .. } => (String::new(), by.clone()),
            };
            let until = utc(convocation.deadline);
            let text = format!("asks {}{why}, until {until}", names.join(", "));
            (task, Told::warn(text).by(&by))
        }
        Event::VoteCast { council, task, vote, .. } => {
            (task, Told::info(format!("{} has voted{}", vote.by, heard(*council))))
        }
        Event::VoteDropped { council, task, model, why, .. } => {
            let text = format!("the vote of {model} does not count: {why}{}", heard(*council));
            (task, Told::warn(text))
        }
        Event::CouncilClosed { task, judged_by, .. } => {
            let judge = judged_by.map(|at| format!("; its judge has until {}", utc(at)));
            (task, Told::info(format!("the votes are open{}", judge.unwrap_or_default())))
        }
        Event::CouncilDecided { task, verdict, cost, .. } => {
            (task, Told::warn(format!("the council, for {cost}: {verdict}")))
        }
        Event::CouncilResolved { task, outcome, .. } => {
            let text = match outcome {
                Outcome::Success => "the council was right",
                Outcome::Failure => "what the council said did not help",
                Outcome::Escalated => "a person has to decide what the council could not",
                Outcome::Answered => "the council has answered",
            };
            (task, Told::info(text.to_owned()))
        }
        Event::CouncilAbandoned { task, .. } => {
            (task, Told::info("its council is called off".to_owned()))
        }
        Event::SolutionRecalled { task, known, .. } => {
            let text = format!("this was solved before: {}", first_line(&known.solution));
            (task, Told::info(text))
        }
        _ => return None,
    };
    Some(told.of_task(state, *task))
}
