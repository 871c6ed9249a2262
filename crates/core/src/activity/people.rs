//! The sentences about people: who they are, what they were asked, said and ordered.

use super::{Told, count, first_line};
use crate::approval::Subject;
use crate::event::Event;
use crate::state::State;

pub(super) fn told(state: &State, event: &Event) -> Option<Told> {
    let of = |told: Told, subject: Subject| match subject {
        Subject::Plan(mission) | Subject::Delivery(mission) => told.of_mission(mission),
        Subject::Start(task)
        | Subject::Merge(task)
        | Subject::External(task)
        | Subject::Rollback(task) => told.of_task(state, task),
    };
    Some(match event {
        Event::PersonAssigned { person, role, by } => {
            let role = role.map_or("nobody any more", |role| role.name());
            Told::info(format!("{person} is {role}")).by(by)
        }
        Event::WentAhead { subject, commit, assessed, .. } => {
            let why = assessed.as_ref().map_or(String::new(), |risk| format!(" ({risk})"));
            let text =
                format!("{} at {} goes ahead without asking{why}", subject.what(), commit.short());
            of(Told::warn(text), *subject)
        }
        Event::ApprovalAsked { gate } => {
            let why = gate.assessed.as_ref().map_or(String::new(), |risk| format!(" ({risk})"));
            let (people, commit) = (gate.people, gate.commit.short());
            let text =
                format!("{commit} waits for the approval of {}{why}", count(people, "person"));
            of(Told::warn(text), gate.subject)
        }
        Event::ApprovalGiven { subject, commit, by } => {
            of(Told::info(format!("approved {}", commit.short())).by(by), *subject)
        }
        Event::ApprovalRejected { subject, commit, reason, by } => {
            let text = format!("rejected {}: {}", commit.short(), first_line(reason));
            of(Told::warn(text).by(by), *subject)
        }
        Event::OverrideProposed { order, .. } => {
            let text = format!(
                "orders to {}: {}; a second person has to agree",
                order.action,
                first_line(&order.reason)
            );
            Told::warn(text).by(&order.by).of_task(state, order.task)
        }
        Event::OverrideLapsed { task } => {
            let text = "nobody seconded the order; it is void".to_owned();
            Told::warn(text).of_task(state, *task)
        }
        Event::Overridden { order, seconded_by } => {
            let second = seconded_by.as_ref().map_or(String::new(), |by| format!(", with {by}"));
            let text = format!("OVERRIDE: {}{second}: {}", order.action, first_line(&order.reason));
            Told::warn(text).by(&order.by).of_task(state, order.task)
        }
        _ => return None,
    })
}
