//! Planted bugs of councils.

use kapelle_core::council::{CheckStanding, Choice, Findings, Question, Strategy, Verdict};
use kapelle_core::event::Restart;
use kapelle_core::{Command, Event, State, Timestamp, Usd};

use super::Mutant;

pub(super) fn falsify(
    mutant: Mutant,
    events: &mut Vec<Event>,
    given: Option<&Command>,
    state: &State,
    now: Timestamp,
) {
    match mutant {
        Mutant::OneFamily => {
            for event in events {
                if let Event::CouncilConvened { convocation, .. } = event {
                    convocation.panel[1].lineage = convocation.panel[0].lineage.clone();
                }
            }
        }
        Mutant::CouncilOnCredit => {
            for event in events {
                if let Event::CouncilConvened { convocation, .. } = event {
                    convocation.reserved = Usd::ZERO;
                }
            }
        }
        Mutant::PeeksAtVotes => {
            if let Some(Event::VoteCast { council, task, .. }) = events.last() {
                let (council, task, judged_by) = (*council, *task, None);
                events.push(Event::CouncilClosed { council, task, judged_by });
            }
        }
        Mutant::CountsPraise => {
            for event in events {
                if let (
                    Event::VoteDropped { council, task, spent, .. },
                    Some(Command::CastVote { vote, .. }),
                ) = (&*event, given)
                {
                    let (council, task, spent) = (*council, *task, *spent);
                    *event = Event::VoteCast { council, task, vote: vote.clone(), spent };
                }
            }
        }
        Mutant::NeverDrills => events.retain(|event| !is_drill(event)),
        Mutant::TellsOfDrills => {
            for event in events.iter_mut().filter(|event| is_drill(event)) {
                if let Event::CouncilConvened { convocation, .. } = event {
                    convocation.problem_id = "drill".to_owned();
                }
            }
        }
        Mutant::MajorityRules => overrule(events, state, now),
        Mutant::NodsThrough => {
            for event in events {
                if let Event::CouncilDecided { council, verdict, .. } = event
                    && let (Verdict::Rejected { .. }, Some(session)) =
                        (&*verdict, state.council().session(*council))
                    && let Some(winner) = session.heard().next()
                {
                    let (winner, by) = (winner.clone(), Strategy::Majority);
                    *verdict = Verdict::Accepted { choice: Choice::Approve, winner, by };
                }
            }
        }
        Mutant::SitsOn if events.contains(&Event::SpendingStopped) => events.retain(|event| {
            !matches!(
                event,
                Event::CouncilAbandoned { .. }
                    | Event::TaskDeadLettered { .. }
                    | Event::TaskBlocked { .. }
                    | Event::ApprovalAsked { .. }
            )
        }),
        _ => {}
    }
}

/// One that Kapelle calls, beside a review.
fn is_drill(event: &Event) -> bool {
    matches!(event, Event::CouncilConvened { convocation, .. }
        if matches!(convocation.question, Question::Drill { within: Some(_), .. }))
}

/// What most want is what is done, whatever the checks say.
fn overrule(events: &mut Vec<Event>, state: &State, now: Timestamp) {
    let Some(Event::CouncilDecided { council, task, verdict, findings, .. }) = events.first_mut()
    else {
        return;
    };
    let checks = findings.checks.iter().filter(|c| c.standing != CheckStanding::Failed).cloned();
    let kind = Findings { checks: checks.collect(), scores: findings.scores.clone() };
    let Ok(other) = state.council().verdict(*council, &kind) else { return };
    let (had_winner, task) = (verdict.winner().is_some(), *task);
    *verdict = other;
    let buried = events.iter().any(|event| matches!(event, Event::TaskDeadLettered { .. }));
    let wins = match &events[0] {
        Event::CouncilDecided { verdict, .. } => verdict.winner().is_some(),
        _ => false,
    };
    if wins && !had_winner && buried {
        events.truncate(1);
        events.push(Event::RetryScheduled { task, at: now, from: Restart::Flow });
    }
}
