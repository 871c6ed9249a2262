//! Bugs of approvals and overrides.

use kapelle_core::approval::Subject;
use kapelle_core::event::Event;
use kapelle_core::{Actor, Command, State};

use super::Mutant;

/// Who may do everything, where anybody may.
fn admin(other_than: &Actor) -> Actor {
    Actor(if other_than.0 == "ada" { "bob" } else { "ada" }.into())
}

/// The command as the bug misreads it.
pub(super) fn misread(mutant: Mutant, state: &State, command: &mut Command) {
    match (mutant, command) {
        (Mutant::ApprovesUnseen, Command::Approve { subject, commit, .. }) => {
            if let Some(gate) = state.approvals().gate(*subject) {
                commit.clone_from(&gate.commit);
            }
        }
        (Mutant::HearsTwice, Command::Approve { by, .. }) => *by = admin(by),
        (Mutant::ObeysAnybody, Command::Override { order }) => order.by = Actor("ada".into()),
        _ => {}
    }
}

/// The decision as the bug falsifies it.
pub(super) fn falsify(mutant: Mutant, events: &mut Vec<Event>, given: &Command) {
    match (mutant, given) {
        (Mutant::AsksNobody, _) => {
            events.retain(|event| !matches!(event, Event::ApprovalAsked { .. }));
        }
        (Mutant::TellsNobody, _) => {
            events.retain(|event| !matches!(event, Event::WentAhead { .. }));
        }
        (Mutant::KeepsOldWord, Command::FinishRewrite { .. }) => events.truncate(1),
        (Mutant::OneIsEnough, _) => {
            for event in events {
                if let Event::ApprovalGiven { subject: Subject::Delivery(mission), commit, by } =
                    event
                {
                    let (mission, commit, by) = (*mission, commit.clone(), by.clone());
                    *event = Event::DeliveryApproved { mission, commit, by };
                }
            }
        }
        (Mutant::ApprovesUnseen | Mutant::HearsTwice, Command::Approve { commit, by, .. }) => {
            for event in events {
                if let Event::ApprovalGiven { commit: seen, by: who, .. } = event {
                    (*seen, *who) = (commit.clone(), by.clone());
                }
            }
        }
        (Mutant::ObeysAnybody, Command::Override { order }) => {
            for event in events {
                if let Event::Overridden { order: done, .. } = event {
                    done.by = order.by.clone();
                }
            }
        }
        _ => {}
    }
}
