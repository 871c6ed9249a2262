//! Invariants of councils, from the journal alone: one family one seat, one member one vote, votes
//! sealed until they are opened, and a verdict that follows from votes, rules and checks.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::approval::OverrideAction;
use kapelle_core::council::{
    CheckStanding, Choice, Convocation, CouncilId, CouncilPolicy, Findings, Outcome, Question,
    Strategy, Summons, Switch, Verdict as Ruling, Vote, visible,
};
use kapelle_core::escalation::Next;
use kapelle_core::routing::{Lineage, ModelName};
use kapelle_core::{Event, Record, State, TaskId, Timestamp, Usd, activity, why};

use super::money::Books;
use super::{Facts, Verdict, ensure};

#[derive(Debug, Default)]
pub(super) struct Councils {
    rules: Option<CouncilPolicy>,
    sittings: BTreeMap<CouncilId, Sitting>,
    convened: u32,
    /// The family that last worked on a task.
    authors: BTreeMap<TaskId, Option<Lineage>>,
    /// Tasks whose failure is for a council, which has to follow in the same batch.
    called: BTreeSet<TaskId>,
    /// Tasks that wait for a council.
    waiting: BTreeMap<TaskId, CouncilId>,
    /// Tasks that must be tried again, or given up, before the batch ends.
    awaited: BTreeMap<TaskId, Ending>,
    /// Answers that were tried at a task and failed.
    refuted: BTreeMap<TaskId, BTreeSet<String>>,
    /// By model: votes whose end is known, and those that were right.
    record: BTreeMap<ModelName, (u32, u32)>,
    /// Reviews and drills so far, and the council that was called last.
    reviews: u32,
    latest: Option<(TaskId, Summons, Convocation)>,
    /// A review that was called last, and beside which a drill must be, if it can be paid.
    due: Option<CouncilId>,
    merged: BTreeSet<TaskId>,
    failed: BTreeSet<TaskId>,
    /// The watchdog has stopped all spending.
    halted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Retry,
    DeadLetter,
}

#[derive(Debug)]
struct Sitting {
    task: TaskId,
    convocation: Convocation,
    votes: BTreeMap<ModelName, Vote>,
    /// Those whose vote did not count, and said so.
    dropped: BTreeSet<ModelName>,
    told: Usd,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    Voting,
    Closed { judged_by: Option<Timestamp> },
    Tried { ruling: Ruling },
}

impl Councils {
    /// Judges an event before it is folded.
    pub(super) fn observe(&mut self, record: &Record, facts: &Facts) -> Verdict {
        match &record.event {
            Event::SettingsChanged { settings, .. } => {
                self.rules = settings.council.clone();
                self.due = None;
            }
            Event::LeaseGranted { task, route, .. } => {
                let lineage = route.as_ref().map(|route| route.lineage.clone());
                self.authors.insert(*task, lineage);
            }
            Event::TroubleMet { task, next: Next::ConveneCouncil, .. } => {
                self.called.insert(*task);
            }
            Event::TaskMerged { task, .. } => drop(self.merged.insert(*task)),
            Event::AttemptFailed { task, .. } | Event::ChangeRejected { task, .. } => {
                self.failed.insert(*task);
            }
            Event::CouncilConvened { .. } => return self.convene(record),
            Event::VoteCast { council, vote, spent, .. } => {
                return self.cast(*council, vote, *spent, record.at);
            }
            Event::VoteDropped { council, model, spent, .. } => {
                let sitting = self.sitting(*council)?;
                sitting.must_hear(model, record.at)?;
                sitting.told += *spent;
                sitting.dropped.insert(model.clone());
            }
            Event::CouncilClosed { council, judged_by, .. } => {
                let sitting = self.sitting(*council)?;
                sitting.must_open(record.at)?;
                sitting.stage = Stage::Closed { judged_by: *judged_by };
            }
            Event::CouncilDecided { .. } => return self.decide(&record.event, facts),
            Event::CouncilResolved { council, task, outcome } => {
                return self.resolve(*council, *task, *outcome);
            }
            Event::CouncilAbandoned { council, task, .. } => {
                let waits = self.waiting.get(task) == Some(council);
                let ended = facts.mission_of(*task)?.ended;
                ensure(!waits || ended || self.halted, || {
                    format!("{task:?} waits for a council called off")
                })?;
                self.sittings.remove(council);
                self.waiting.retain(|_, waited| waited != council);
                self.awaited.extend((waits && !ended).then_some((*task, Ending::DeadLetter)));
            }
            Event::SpendingStopped => self.halted = true,
            Event::SpendingResumed { .. } => self.halted = false,
            Event::SolutionRecalled { task, .. } => {
                let called = self.called.remove(task);
                ensure(called, || format!("{task:?} recalls an answer without a question"))?;
                self.awaited.insert(*task, Ending::Retry);
            }
            Event::RetryScheduled { task, .. } => self.end(*task, Ending::Retry)?,
            Event::TaskDeadLettered { task, .. } => self.end(*task, Ending::DeadLetter)?,
            Event::TaskBlocked { task, .. } => drop(self.waiting.remove(task)),
            Event::Overridden { order, .. } => match order.action {
                // Whoever else is to do it, is so after the council.
                OverrideAction::Reassign { .. } => {}
                OverrideAction::SkipStep { .. }
                | OverrideAction::ForceComplete
                | OverrideAction::Reset { .. } => drop(self.waiting.remove(&order.task)),
            },
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, task: TaskId, ending: Ending) -> Verdict {
        let expected = self.awaited.remove(&task).unwrap_or(ending);
        ensure(expected == ending, || format!("{task:?}: {ending:?}, not {expected:?}"))?;
        let waits = self.waiting.get(&task);
        ensure(waits.is_none(), || format!("{task:?} goes on without its council"))
    }

    fn convene(&mut self, record: &Record) -> Verdict {
        let Event::CouncilConvened { council, task, because, convocation, .. } = &record.event
        else {
            return Ok(());
        };
        self.convened += 1;
        let number = council.0;
        ensure(number == self.convened, || format!("council {number} is not the next one"))?;
        let rules = self.rules.as_ref().ok_or("a council convenes, and nobody sits in one")?;
        let panel = &convocation.panel;
        let families: BTreeSet<&Lineage> = panel.iter().map(|member| &member.lineage).collect();
        ensure(families.len() == panel.len(), || {
            format!("council {number} has two members of one family")
        })?;
        let least = rules.quorum.agree.max(2) as usize;
        ensure(families.len() >= least, || format!("council {number} is too small"))?;
        let author = self.authors.get(task).cloned().flatten();
        ensure(author.is_none_or(|author| !families.contains(&author)), || {
            format!("council {number} judges work of one of its families")
        })?;
        ensure(panel.iter().all(|member| rules.models.contains(member)), || {
            format!("a stranger sits in council {number}")
        })?;
        let until = record.at.plus_ms(rules.timeout_ms);
        ensure(convocation.deadline == until, || format!("council {number} has another time"))?;
        if let Summons::Retries(retries) = because {
            ensure(self.called.remove(task), || format!("nobody called council {number}"))?;
            ensure(*retries >= rules.trigger_after_retries, || {
                format!("council {number} was called after {retries} retries")
            })?;
            self.waiting.insert(*task, *council);
        }
        let drills = rules.enabled == Switch::On && !rules.defects.is_empty();
        let (every, is_review) =
            (rules.lazy.drill_every, matches!(convocation.question, Question::Review { .. }));
        self.judge_drill(*task, because, convocation)?;
        let is_next = (self.reviews + 1).is_multiple_of(every);
        self.due = (drills && is_review && is_next).then_some(*council);
        self.latest = Some((*task, because.clone(), (**convocation).clone()));
        let sitting = Sitting {
            task: *task,
            convocation: (**convocation).clone(),
            votes: BTreeMap::new(),
            dropped: BTreeSet::new(),
            told: Usd::ZERO,
            stage: Stage::Voting,
        };
        self.sittings.insert(*council, sitting);
        Ok(())
    }

    /// A drill that nobody called is beside a review: nothing tells the two apart but the defect,
    /// which is one of those that people wrote, and every so many reviews is one.
    fn judge_drill(&mut self, task: TaskId, because: &Summons, called: &Convocation) -> Verdict {
        self.reviews += u32::from(called.question != Question::Problem);
        let Question::Drill { planted, within: Some(within) } = &called.question else {
            return Ok(());
        };
        let rules = self.rules.as_ref().ok_or("a drill, and nobody sits in a council")?;
        let question = Question::Review { commit: within.commit.clone() };
        let review = Some((task, because.clone(), Convocation { question, ..called.clone() }));
        ensure(self.latest == review, || format!("a drill is not beside a review: {called:?}"))?;
        let is_known = rules.defects.iter().any(|d| d.file == *planted && d.text == within.text);
        ensure(is_known, || format!("nobody wrote the defect in {planted}"))?;
        ensure(self.reviews.is_multiple_of(rules.lazy.drill_every), || {
            format!("review {} is no drill by the rules", self.reviews)
        })
    }

    fn cast(&mut self, council: CouncilId, vote: &Vote, spent: Usd, at: Timestamp) -> Verdict {
        let sitting = self.sitting(council)?;
        sitting.must_hear(&vote.by, at)?;
        ensure(!vote.evidence.is_empty(), || {
            format!("the vote of {} counts, and shows nothing", vote.by)
        })?;
        let fits = match sitting.convocation.question {
            Question::Problem => vote.choice.solution().is_some(),
            Question::Review { .. } | Question::Drill { .. } => vote.choice.solution().is_none(),
        };
        ensure(fits, || format!("{} answers another question", vote.by))?;
        sitting.told += spent;
        sitting.votes.insert(vote.by.clone(), vote.clone());
        Ok(())
    }

    fn decide(&mut self, event: &Event, facts: &Facts) -> Verdict {
        let Event::CouncilDecided { council, task, verdict, findings, cost } = event else {
            return Ok(());
        };
        let trust = self.trust();
        let refuted = self.refuted.get(task).cloned().unwrap_or_default();
        let sitting = self.sitting(*council)?;
        let number = council.0;
        let Stage::Closed { judged_by } = sitting.stage else {
            return Err(format!("council {number} decides on sealed votes"));
        };
        for vote in sitting.votes.values() {
            let known = vote.choice.solution().is_some_and(|name| refuted.contains(name));
            ensure(!known || failed(findings, &vote.choice), || {
                format!("council {number} has forgotten that {:?} failed", vote.choice)
            })?;
        }
        let expected = sitting.ruling(findings, &trust);
        ensure(expected.matches(verdict), || {
            format!("council {number} says {verdict:?}, but its votes {expected:?}")
        })?;
        let known = sitting.told + sitting.silent_share();
        ensure(*cost >= known && (judged_by.is_some() || *cost == known), || {
            format!("council {number} costs {cost}, not {known}")
        })?;
        if let Ruling::Drill { caught, missed } = verdict {
            for model in caught.iter().chain(missed) {
                let (judged, right) = self.record.entry(model.clone()).or_default();
                *judged += 1;
                *right += u32::from(caught.contains(model));
            }
        }
        let winner = verdict.winner().is_some();
        let sitting = self.sitting(*council)?;
        if winner {
            sitting.stage = Stage::Tried { ruling: verdict.clone() };
        } else {
            self.sittings.remove(council);
        }
        if self.waiting.get(task) == Some(council) {
            self.waiting.remove(task);
            let ended = facts.mission_of(*task)?.ended;
            let ending = if winner { Ending::Retry } else { Ending::DeadLetter };
            self.awaited.extend((!ended).then_some((*task, ending)));
        }
        Ok(())
    }

    fn resolve(&mut self, council: CouncilId, task: TaskId, outcome: Outcome) -> Verdict {
        let (merged, fell) = (self.merged.contains(&task), self.failed.contains(&task));
        let happened = match outcome {
            Outcome::Success => merged,
            Outcome::Failure => fell,
            Outcome::Escalated | Outcome::Answered => false,
        };
        ensure(happened, || format!("council {} was {outcome:?} by nothing", council.0))?;
        let Some(sitting) = self.sittings.remove(&council) else {
            return Err(format!("council {} is resolved, but nobody tried it", council.0));
        };
        let Stage::Tried { ruling } = &sitting.stage else {
            return Err(format!("council {} is resolved before it has decided", council.0));
        };
        for vote in sitting.votes.values() {
            let backed = match ruling {
                Ruling::Accepted { choice, .. } | Ruling::Proposed { choice, .. } => {
                    vote.choice == *choice
                }
                Ruling::Combine { from } => from.contains(&vote.by),
                Ruling::Rejected { .. } | Ruling::Undecided { .. } | Ruling::Drill { .. } => false,
            };
            let (judged, right) = self.record.entry(vote.by.clone()).or_default();
            *judged += 1;
            *right += u32::from(backed == (outcome == Outcome::Success));
        }
        let (Ruling::Accepted { choice, .. } | Ruling::Proposed { choice, .. }) = ruling else {
            return Ok(());
        };
        if let (Outcome::Failure, Some(name)) = (outcome, choice.solution()) {
            self.refuted.entry(task).or_default().insert(name.to_owned());
        }
        Ok(())
    }

    fn trust(&self) -> BTreeMap<ModelName, u64> {
        let share = |(judged, right): &(u32, u32)| {
            (u64::from(*right) + 1) * 1_000 / (u64::from(*judged) + 2)
        };
        self.record.iter().map(|(model, record)| (model.clone(), share(record))).collect()
    }

    fn sitting(&mut self, council: CouncilId) -> Result<&mut Sitting, String> {
        let sitting = self.sittings.get_mut(&council);
        sitting.ok_or_else(|| format!("an event speaks of council {}, which is none", council.0))
    }

    /// After an event is folded: nothing that is shown to anybody says what was voted.
    pub(super) fn judge_seal(&self, event: &Event, shadow: &State) -> Verdict {
        if let Event::CouncilConvened { council, .. } = event {
            let session = shadow.council().session(*council);
            let shown = format!("{:?} {session:?}", visible(shadow, event));
            return ensure(!shown.contains("Drill"), || {
                format!("council {} is seen to be a drill: {shown}", council.0)
            });
        }
        let Event::VoteCast { council, task, vote, .. } = event else { return Ok(()) };
        let open = self.sittings.get(council).is_some_and(|s| s.stage == Stage::Voting);
        let told = shadow.task(*task).and_then(|task| why(shadow, task));
        let line = activity::line(shadow, event).map(|line| line.text);
        let shown = format!(
            "{:?} {:?} {told:?} {line:?}",
            visible(shadow, event),
            shadow.council().session(*council)
        );
        ensure(!open || !shown.contains(&vote.reasoning), || {
            format!("the vote of {} is seen before its time: {shown}", vote.by)
        })
    }

    /// After a batch: what must have followed from it has.
    pub(super) fn close(&mut self, now: Timestamp, facts: &Facts, books: &Books) -> Verdict {
        let due = self.due.take().and_then(|council| Some((council, self.sittings.get(&council)?)));
        if let Some((council, sitting)) = due {
            let mission = facts.mission_of(sitting.task)?;
            let paid = books.affords_council(sitting.task, &sitting.convocation, facts, now)?;
            ensure(mission.paused || mission.ended || !paid, || {
                format!("no drill is beside the review of council {}", council.0)
            })?;
        }
        let called = std::mem::take(&mut self.called).pop_first();
        ensure(called.is_none(), || format!("no council is asked about {called:?}"))?;
        let awaited = std::mem::take(&mut self.awaited).pop_first();
        ensure(awaited.is_none(), || format!("nothing follows from a verdict: {awaited:?}"))?;
        for (council, sitting) in &self.sittings {
            let number = council.0;
            let ended = facts.mission_of(sitting.task)?.ended;
            ensure(!ended, || format!("council {number} outlives its mission"))?;
            let waits = match sitting.stage {
                Stage::Voting => now < sitting.convocation.deadline && !sitting.all_heard(),
                Stage::Closed { judged_by } => judged_by.is_some_and(|until| now < until),
                Stage::Tried { .. } => true,
            };
            ensure(waits, || format!("council {number} waits for nobody, for ever"))?;
        }
        self.merged.clear();
        self.failed.clear();
        Ok(())
    }
}

impl Sitting {
    fn all_heard(&self) -> bool {
        self.votes.len() + self.dropped.len() == self.convocation.panel.len()
    }

    fn must_hear(&self, model: &ModelName, at: Timestamp) -> Verdict {
        let open = self.stage == Stage::Voting && at < self.convocation.deadline;
        ensure(open, || format!("{model} votes after the end"))?;
        let asked = self.convocation.panel.iter().any(|member| member.model == *model);
        ensure(asked, || format!("{model} votes, and was not asked"))?;
        let heard = self.votes.contains_key(model) || self.dropped.contains(model);
        ensure(!heard, || format!("{model} votes twice"))
    }

    fn must_open(&self, at: Timestamp) -> Verdict {
        let may = self.all_heard() || at >= self.convocation.deadline;
        ensure(may && self.stage == Stage::Voting, || "votes are opened before their time".into())
    }

    fn silent_share(&self) -> Usd {
        let panel = self.convocation.panel.len() as u64;
        let silent = panel - self.votes.len() as u64 - self.dropped.len() as u64;
        Usd::micros(self.convocation.reserved.as_micros().div_ceil(panel) * silent)
    }

    /// What the votes come to.
    fn ruling(&self, findings: &Findings, trust: &BTreeMap<ModelName, u64>) -> Expected {
        let rules = &self.convocation.rules;
        match &self.convocation.question {
            Question::Drill { planted, .. } => {
                let caught = |vote: &&Vote| vote.choice == Choice::Reject && vote.cites(planted);
                let caught = self.votes.values().filter(caught).map(|vote| vote.by.clone());
                Expected::Drill { caught: caught.collect() }
            }
            Question::Review { .. } => self.review(findings, trust),
            Question::Problem => {
                let quorum = rules.quorum.agree as usize;
                if self.votes.len() < quorum {
                    return Expected::Open;
                }
                let mut sides: BTreeMap<&Choice, Vec<&Vote>> = BTreeMap::new();
                for vote in self.votes.values().filter(|vote| !failed(findings, &vote.choice)) {
                    sides.entry(&vote.choice).or_default().push(vote);
                }
                if rules.strategy == Strategy::ConsensusBuild && sides.len() > 1 {
                    let from: BTreeSet<ModelName> =
                        sides.values().flatten().map(|vote| vote.by.clone()).collect();
                    return if from.len() < quorum { Expected::Open } else { Expected::All(from) };
                }
                let ranked: Option<Vec<_>> = sides
                    .iter()
                    .map(|(choice, votes)| Some((self.rank(votes, findings, trust)?, *choice)))
                    .collect();
                let Some(mut ranked) = ranked else { return Expected::Open };
                ranked.retain(|((rank, _), _)| *rank > 0 || rules.strategy != Strategy::TestWinner);
                ranked.sort();
                let Some((best, choice)) = ranked.pop() else { return Expected::Open };
                let tied = ranked.last().is_some_and(|(second, _)| *second == best);
                let by_number =
                    matches!(rules.strategy, Strategy::Majority | Strategy::ConsensusBuild);
                let few = by_number && sides.get(choice).map_or(0, Vec::len) < quorum;
                if tied || few { Expected::Open } else { Expected::One(choice.clone()) }
            }
        }
    }

    /// How much speaks for a choice, and what breaks a tie. None if nobody can say yet. For the
    /// winner of tests, one more than it passes, so that nothing is what was not tested.
    fn rank(
        &self,
        votes: &[&Vote],
        findings: &Findings,
        trust: &BTreeMap<ModelName, u64>,
    ) -> Option<(u64, u64)> {
        let rules = &self.convocation.rules;
        let totals = votes.iter().filter_map(|vote| findings.scores.get(&vote.by));
        let best = totals.map(|score| rules.weights.total(score)).max().unwrap_or(0);
        let rank = match rules.strategy {
            Strategy::Majority | Strategy::ConsensusBuild => votes.len() as u64,
            Strategy::Weighted => {
                votes.iter().map(|vote| trust.get(&vote.by).copied().unwrap_or(500)).sum()
            }
            Strategy::BestReasoning => {
                let scores = votes.iter().map(|vote| findings.scores.get(&vote.by));
                let reasons = scores.map(|score| Some(u64::from(score?.reasoning)));
                reasons.collect::<Option<Vec<u64>>>()?.into_iter().max().unwrap_or(0)
            }
            Strategy::TestWinner => {
                let choice = &votes.first()?.choice;
                passed(findings, choice).map_or(0, |tests| u64::from(tests) + 1)
            }
        };
        Some((rank, best))
    }

    fn review(&self, findings: &Findings, trust: &BTreeMap<ModelName, u64>) -> Expected {
        let rules = &self.convocation.rules;
        if failed(findings, &Choice::Approve) {
            return Expected::No;
        }
        let side = |choice: &Choice| -> Vec<&Vote> {
            self.votes.values().filter(|vote| vote.choice == *choice).collect()
        };
        let (yes, no) = (side(&Choice::Approve), side(&Choice::Reject));
        let quorum = rules.quorum.agree as usize;
        if yes.len() + no.len() < quorum {
            return Expected::Open;
        }
        let (against, count) = (no.len() as u64, yes.len() as u64);
        let sides = match rules.strategy {
            Strategy::TestWinner => Some((count, against)),
            Strategy::ConsensusBuild => Some((u64::from(against == 0), against)),
            Strategy::Majority | Strategy::Weighted | Strategy::BestReasoning => {
                let rank =
                    |votes: &[&Vote]| self.rank(votes, findings, trust).map(|(rank, _)| rank);
                rank(&yes).zip(rank(&no))
            }
        };
        match sides {
            Some((yes, no)) if no > yes => Expected::No,
            Some((yes, no)) if yes > no && count as usize >= quorum => {
                match passed(findings, &Choice::Approve) {
                    Some(_) => Expected::One(Choice::Approve),
                    None => Expected::Open,
                }
            }
            Some(_) | None => Expected::Open,
        }
    }
}

/// What a council must say.
#[derive(Debug)]
enum Expected {
    One(Choice),
    All(BTreeSet<ModelName>),
    No,
    Open,
    Drill { caught: BTreeSet<ModelName> },
}

impl Expected {
    fn matches(&self, ruling: &Ruling) -> bool {
        match (self, ruling) {
            (
                Expected::One(expected),
                Ruling::Accepted { choice, .. } | Ruling::Proposed { choice, .. },
            ) => expected == choice,
            (Expected::All(models), Ruling::Combine { from }) => {
                from.iter().cloned().collect::<BTreeSet<_>>() == *models
            }
            (Expected::No, Ruling::Rejected { .. })
            | (Expected::Open, Ruling::Undecided { .. }) => true,
            (Expected::Drill { caught }, Ruling::Drill { caught: told, .. }) => {
                told.iter().cloned().collect::<BTreeSet<_>>() == *caught
            }
            _ => false,
        }
    }
}

fn failed(findings: &Findings, choice: &Choice) -> bool {
    let mut said = findings.checks.iter().filter(|checked| checked.choice == *choice);
    said.any(|checked| checked.standing == CheckStanding::Failed)
}

fn passed(findings: &Findings, choice: &Choice) -> Option<u32> {
    let said = findings.checks.iter().filter(|checked| checked.choice == *choice);
    let mut passed = said.filter_map(|checked| match checked.standing {
        CheckStanding::Passed { tests } => Some(tests),
        CheckStanding::NotRun | CheckStanding::Failed => None,
    });
    passed.next_back().filter(|_| !failed(findings, choice))
}
