//! Councils and their votes.
//!
//! Invariant: what was voted is written when its council closes, and not before. It is read from
//! the session, which does not give it away while people can still be swayed by it.

use std::collections::BTreeMap;

use kapelle_core::council::{
    Convocation, CouncilId, Outcome, Question, Session, Summons, Verdict, Vote,
};
use kapelle_core::routing::ModelName;
use kapelle_core::{Event, MissionId, Record, State, TaskId, Timestamp, Usd};
use serde::{Deserialize, Serialize};

use super::{Changes, Fold};
use crate::tables::{Of, councils};
use crate::value::Value;

/// Councils that have not ended, with what the state does not keep of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Councils(BTreeMap<CouncilId, Case>);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Case {
    mission: MissionId,
    task: TaskId,
    because: Summons,
    convened_at: Timestamp,
    closed_at: Option<Timestamp>,
    decided_at: Option<Timestamp>,
    cost: Option<Usd>,
    heard: BTreeMap<ModelName, Heard>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Heard {
    spent: Usd,
    at: Timestamp,
}

/// Where a council has come to.
#[derive(Debug, Clone, Copy)]
struct Standing<'a> {
    status: &'static str,
    verdict: Option<&'a Verdict>,
    outcome: Option<&'a Outcome>,
    ended_at: Option<Timestamp>,
}

fn standing(status: &'static str) -> Standing<'static> {
    Standing { status, verdict: None, outcome: None, ended_at: None }
}

/// What is told of a vote.
#[derive(Debug, Clone, Copy)]
enum Told<'a> {
    Sealed,
    Counted(&'a Vote),
    Dropped(&'a str),
    Silent,
}

impl Fold {
    /// The arms of `tell` about councils.
    pub(super) fn tell_of_councils(&mut self, record: &Record, changes: &mut Changes) {
        let at = record.at;
        match &record.event {
            Event::CouncilConvened { council, task, because, convocation, .. } => {
                let Some(mission) = self.mission_of(*task) else { return };
                let case = Case::new((mission, *task), because.clone(), at);
                case.write(*council, convocation, standing("voting"), changes);
                self.councils.0.insert(*council, case);
            }
            Event::VoteCast { council, vote, spent, .. } => {
                let asked = |session: &Session| {
                    session.convocation.panel.iter().any(|member| member.model == vote.by)
                };
                let heard = (&vote.by, Heard { spent: *spent, at });
                self.hear(*council, heard, asked, Told::Sealed, changes);
            }
            Event::VoteDropped { council, model, why, spent, .. } => {
                let heard = (model, Heard { spent: *spent, at });
                let why = why.to_string();
                self.hear(*council, heard, |_| true, Told::Dropped(&why), changes);
            }
            Event::CouncilClosed { council, .. } => self.close_council(*council, at, changes),
            Event::CouncilDecided { .. }
            | Event::CouncilResolved { .. }
            | Event::CouncilAbandoned { .. } => self.end_council(record, changes),
            _ => {}
        }
    }

    /// A member has had its turn, if it had one: the state takes one vote of each that was asked.
    fn hear(
        &mut self,
        council: CouncilId,
        (model, heard): (&ModelName, Heard),
        asked: impl FnOnce(&Session) -> bool,
        told: Told<'_>,
        changes: &mut Changes,
    ) {
        let Some((session, case)) = sitting(&self.state, &mut self.councils, council) else {
            return;
        };
        let is_open = session.votes().is_err();
        if !is_open || !asked(session) || case.heard.contains_key(model) {
            return;
        }
        case.heard.insert(model.clone(), heard);
        write_vote((council, model), Some(heard), told, changes);
        case.write(council, &session.convocation, standing("voting"), changes);
    }

    /// Who has not voted will not. The votes themselves are open only after this record.
    fn close_council(&mut self, council: CouncilId, at: Timestamp, changes: &mut Changes) {
        let Some((session, case)) = sitting(&self.state, &mut self.councils, council) else {
            return;
        };
        case.closed_at = Some(at);
        for member in &session.convocation.panel {
            if !case.heard.contains_key(&member.model) {
                write_vote((council, &member.model), None, Told::Silent, changes);
            }
        }
        case.write(council, &session.convocation, standing("closed"), changes);
    }

    fn end_council(&mut self, record: &Record, changes: &mut Changes) {
        let at = record.at;
        let (Event::CouncilDecided { council, .. }
        | Event::CouncilResolved { council, .. }
        | Event::CouncilAbandoned { council, .. }) = &record.event
        else {
            return;
        };
        let Some((session, case)) = sitting(&self.state, &mut self.councils, *council) else {
            return;
        };
        let known = Standing { verdict: session.verdict(), ..standing("decided") };
        let standing = match &record.event {
            Event::CouncilDecided { verdict, cost, .. } => {
                (case.cost, case.decided_at) = (Some(*cost), Some(at));
                // Where nobody won, there is nothing to try.
                let ended_at = verdict.winner().is_none().then_some(at);
                Standing { verdict: Some(verdict), ended_at, ..known }
            }
            Event::CouncilResolved { outcome, .. } => {
                let (outcome, ended_at) = (Some(outcome), Some(at));
                Standing { status: "resolved", outcome, ended_at, ..known }
            }
            Event::CouncilAbandoned { cost, .. } => {
                case.cost = case.cost.or(Some(*cost));
                Standing { status: "abandoned", ended_at: Some(at), ..known }
            }
            _ => known,
        };
        case.write(*council, &session.convocation, standing, changes);
        if standing.ended_at.is_some() {
            self.councils.0.remove(council);
        }
    }

    /// Opens the votes of a council that has closed. The state is the one after the record.
    pub(super) fn open_votes(&self, record: &Record, changes: &mut Changes) {
        let Event::CouncilClosed { council, .. } = &record.event else { return };
        let Some(session) = self.state.council().session(*council) else { return };
        let Some(case) = self.councils.0.get(council) else { return };
        for vote in session.votes().unwrap_or_default() {
            let heard = case.heard.get(&vote.by).copied();
            write_vote((*council, &vote.by), heard, Told::Counted(vote), changes);
        }
    }
}

/// A council as the state has it and as we have it.
fn sitting<'a>(
    state: &'a State,
    councils: &'a mut Councils,
    id: CouncilId,
) -> Option<(&'a Session, &'a mut Case)> {
    Some((state.council().session(id)?, councils.0.get_mut(&id)?))
}

impl Case {
    fn new((mission, task): (MissionId, TaskId), because: Summons, at: Timestamp) -> Case {
        Case {
            mission,
            task,
            because,
            convened_at: at,
            closed_at: None,
            decided_at: None,
            cost: None,
            heard: BTreeMap::new(),
        }
    }

    fn write(
        &self,
        id: CouncilId,
        called: &Convocation,
        standing: Standing<'_>,
        changes: &mut Changes,
    ) {
        let called_by = match &self.because {
            Summons::ByHand { by, .. } => Some(&by.0),
            Summons::Retries(_) | Summons::Review => None,
        };
        let panel: Vec<&str> = called.panel.iter().map(|member| &*member.model).collect();
        let verdict = standing.verdict;
        let solution = verdict.and_then(|verdict| match verdict {
            Verdict::Accepted { choice, .. } | Verdict::Proposed { choice, .. } => {
                choice.solution()
            }
            Verdict::Combine { .. }
            | Verdict::Rejected { .. }
            | Verdict::Undecided { .. }
            | Verdict::Drill { .. } => None,
        });
        // Whoever reads the tables could tell the members.
        let question = match (&called.question, standing.status) {
            (Question::Drill { .. }, "voting") => "review",
            (question, _) => councils::question(question),
        };
        let row = [
            id.0.into(),
            self.mission.to_string().into(),
            self.task.0.into(),
            Value::name(question),
            Value::name(councils::summons(&self.because)),
            called_by.into(),
            Value::name(councils::strategy(&called.rules.strategy)),
            serde_json::json!(panel).to_string().into(),
            called.judge.as_ref().map(|judge| &*judge.model).into(),
            Value::name(standing.status),
            (panel.len() as u64).into(),
            (self.heard.len() as u64).into(),
            called.reserved.as_micros().into(),
            self.cost.map(Usd::as_micros).into(),
            verdict.map(|verdict| Value::name(councils::verdict(verdict))).into(),
            verdict.map(ToString::to_string).into(),
            verdict.and_then(Verdict::winner).map(|winner| &**winner).into(),
            solution.into(),
            standing.outcome.map(|outcome| Value::name(councils::outcome(outcome))).into(),
            self.convened_at.into(),
            called.deadline.into(),
            self.closed_at.into(),
            self.decided_at.into(),
            standing.ended_at.into(),
        ];
        changes.put(Of::Councils, row);
    }
}

fn write_vote(
    (council, model): (CouncilId, &ModelName),
    heard: Option<Heard>,
    told: Told<'_>,
    changes: &mut Changes,
) {
    let (status, vote, dropped) = match told {
        Told::Sealed => ("sealed", None, None),
        Told::Counted(vote) => ("counted", Some(vote), None),
        Told::Dropped(why) => ("dropped", None, Some(why)),
        Told::Silent => ("silent", None, None),
    };
    let evidence = vote.map_or(&[][..], |vote| &vote.evidence);
    let row = [
        council.0.into(),
        (&**model).into(),
        Value::name(status),
        vote.map(|vote| Value::name(councils::choice(&vote.choice))).into(),
        vote.and_then(|vote| vote.choice.solution()).into(),
        vote.map(|vote| &vote.reasoning).into(),
        serde_json::json!(evidence).to_string().into(),
        vote.map(|vote| vote.confidence).into(),
        dropped.into(),
        heard.map_or(0, |heard| heard.spent.as_micros()).into(),
        heard.map(|heard| heard.at).into(),
    ];
    changes.put(Of::CouncilVotes, row);
}
