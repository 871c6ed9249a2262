//! Checklists: the steps of a task, so that people see where an agent is, and a new session knows
//! where the last one stopped (PLN-14…17).
//!
//! Invariant: a step is done once, and it is known since when and by whom.

pub mod breakdown;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::Actor;
use crate::limits;
use crate::time::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Item", try_from = "Item")]
pub struct Step {
    pub index: u32,
    pub text: String,
    pub done: Option<Done>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    pub at: Timestamp,
    pub by: Actor,
}

/// A step as it is written in JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Item {
    id: String,
    text: String,
    completed: bool,
    completed_at: Option<Timestamp>,
    completed_by: Option<Actor>,
}

/// Where the steps come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The task's required actions.
    Log,
    /// What an agent made of the task.
    Llm,
    /// The required actions first, with sub-steps of the agent.
    #[default]
    Hybrid,
}

impl Source {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Source::default()
    }
}

/// The steps of one task, and how fast they are done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checklist {
    steps: Vec<Step>,
    done_count: u32,
    /// All before this one are done.
    first_open: usize,
    pace: Pace,
    /// Since when the current step is worked on; None while nobody works.
    since: Option<Timestamp>,
    failing: Option<u32>,
    /// By phases whose change was accepted, the steps that were done then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    accepted: Vec<(usize, Vec<u32>)>,
}

/// How many steps were done in how much working time. Paces of many tasks add up to a better guess.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    pub steps: u32,
    pub worked_ms: u64,
}

/// `3/7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u32,
    pub total: u32,
}

/// That a step is done, as it is broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    pub step: u32,
    /// With this step counted.
    pub progress: Progress,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepRefusal {
    #[error("there is no step {step:?}: the checklist has step-0 to step-{last}")]
    Unknown { step: String, last: u32 },
    #[error("the task has no checklist")]
    NoChecklist,
    #[error("step-{step} is already done, by {by}")]
    AlreadyDone { step: u32, by: Actor },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidChecklist {
    #[error("there are no steps to make a checklist of")]
    NoSteps,
    #[error("{count} steps are more than {max}")]
    TooManySteps { count: usize, max: usize },
}

impl Checklist {
    /// Makes a checklist of the task's `required_actions` and of an agent's `breakdown` of it.
    pub fn generate(
        source: Source,
        required_actions: &[String],
        breakdown: &str,
    ) -> Result<Checklist, InvalidChecklist> {
        let texts = match source {
            Source::Log => required_actions.to_vec(),
            Source::Llm => breakdown::steps(breakdown),
            Source::Hybrid => breakdown::under(required_actions, breakdown),
        };
        Checklist::new(texts)
    }

    pub fn new(texts: Vec<String>) -> Result<Checklist, InvalidChecklist> {
        let texts: Vec<String> = texts.into_iter().filter(|text| !text.trim().is_empty()).collect();
        if texts.is_empty() {
            return Err(InvalidChecklist::NoSteps);
        }
        if texts.len() > limits::CHECKLIST_STEPS_MAX {
            let (count, max) = (texts.len(), limits::CHECKLIST_STEPS_MAX);
            return Err(InvalidChecklist::TooManySteps { count, max });
        }
        let step = |(index, text): (u32, String)| Step {
            index,
            text: limits::head(text.trim(), limits::STEP_CHARS_MAX).to_owned(),
            done: None,
        };
        Ok(Checklist { steps: (0..).zip(texts).map(step).collect(), ..Checklist::default() })
    }

    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress { done: self.done_count, total: self.steps.len() as u32 }
    }

    /// The status bar: `2-5: 3/7`.
    #[must_use]
    pub fn status(&self, task: &str) -> String {
        format!("{task}: {}", self.progress())
    }

    /// Where a new session resumes.
    #[must_use]
    pub fn first_incomplete(&self) -> Option<&Step> {
        self.steps.get(self.first_open)
    }

    /// The step at which the last attempt failed, until it is done.
    #[must_use]
    pub fn failing(&self) -> Option<&Step> {
        self.failing.and_then(|index| self.steps.get(index as usize))
    }

    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// When the last step should be done: by this task's own pace, else by the given one. None
    /// without any experience, or when all is done.
    #[must_use]
    pub fn eta(&self, others: Pace, now: Timestamp) -> Option<Timestamp> {
        let mean_ms = self.pace.mean_ms().or(others.mean_ms())?;
        let left = u64::from(self.progress().left());
        if left == 0 {
            return None;
        }
        let worked_ms = self.since.map_or(0, |since| now.ms_since(since)).min(mean_ms);
        Some(now.plus_ms(mean_ms.saturating_mul(left).saturating_sub(worked_ms)))
    }

    /// Whether the step named `step-3` can be marked as done, and what to broadcast then.
    pub fn complete(&self, step: &str) -> Result<Completion, StepRefusal> {
        let Some(last) = self.steps.last() else { return Err(StepRefusal::NoChecklist) };
        let unknown = || {
            let step = limits::head(step, limits::TASK_NAME_CHARS_MAX).to_owned();
            StepRefusal::Unknown { step, last: last.index }
        };
        let index = parse_id(step).ok_or_else(unknown)?;
        let found = self.steps.get(index as usize).ok_or_else(unknown)?;
        if let Some(done) = &found.done {
            return Err(StepRefusal::AlreadyDone { step: index, by: done.by.clone() });
        }
        let Progress { done, total } = self.progress();
        Ok(Completion { step: index, progress: Progress { done: done + 1, total } })
    }

    /// An agent began to work.
    pub fn begun(&mut self, at: Timestamp) {
        self.since = Some(at);
    }

    /// A step is done.
    pub fn completed(&mut self, step: u32, by: Actor, at: Timestamp) {
        let Some(found) = self.steps.get_mut(step as usize) else { return };
        if found.done.is_some() {
            return;
        }
        found.done = Some(Done { at, by });
        self.done_count += 1;
        while self.steps.get(self.first_open).is_some_and(|step| step.done.is_some()) {
            self.first_open += 1;
        }
        if let Some(since) = self.since {
            self.pace = self.pace + Pace { steps: 1, worked_ms: at.ms_since(since) };
            self.since = Some(at);
        }
        if self.failing == Some(step) {
            self.failing = None;
        }
    }

    /// The agent stopped without a fault of its own. The time on the unfinished step counts for
    /// nothing: the next one begins that step again.
    pub fn interrupted(&mut self) {
        self.since = None;
    }

    /// The change of a phase was accepted, and with it the steps that are done.
    pub fn accepted(&mut self, phase: usize) {
        self.accepted.retain(|(earlier, _)| *earlier < phase);
        let done = self.steps.iter().filter(|step| step.done.is_some());
        let done: Vec<u32> = done.map(|step| step.index).collect();
        if !done.is_empty() {
            self.accepted.push((phase, done));
        }
    }

    /// What was done in this phase was thrown away, and its steps with it. How fast they were done
    /// is still known.
    pub fn discarded(&mut self, phase: usize) {
        self.accepted.retain(|(earlier, _)| *earlier < phase);
        let left = self.accepted.last().map_or(&[][..], |(_, steps)| steps);
        for step in self.steps.iter_mut().filter(|step| !left.contains(&step.index)) {
            step.done = None;
        }
        let is_done = |step: &Step| step.done.is_some();
        self.done_count = self.steps.iter().filter(|step| is_done(step)).count() as u32;
        let open = self.steps.iter().position(|step| !is_done(step));
        self.first_open = open.unwrap_or(self.steps.len());
        self.since = None;
    }

    /// The attempt failed, at the first step that is not done.
    pub fn failed(&mut self) {
        self.since = None;
        self.failing = self.first_incomplete().map(|step| step.index);
    }
}

impl Step {
    #[must_use]
    pub fn id(&self) -> String {
        format!("step-{}", self.index)
    }
}

fn parse_id(id: &str) -> Option<u32> {
    let digits = id.strip_prefix("step-")?;
    let index = digits.parse().ok()?;
    // One name a step: `step-07` and `step-+7` are not `step-7`.
    (digits == format!("{index}")).then_some(index)
}

impl Pace {
    #[must_use]
    pub fn mean_ms(&self) -> Option<u64> {
        self.worked_ms.checked_div(u64::from(self.steps))
    }
}

impl std::ops::Add for Pace {
    type Output = Pace;

    fn add(self, other: Pace) -> Pace {
        Pace {
            steps: self.steps.saturating_add(other.steps),
            worked_ms: self.worked_ms.saturating_add(other.worked_ms),
        }
    }
}

impl Progress {
    #[must_use]
    pub fn left(self) -> u32 {
        self.total.saturating_sub(self.done)
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.done, self.total)
    }
}

/// In JSON the progress is its text.
impl Serialize for Progress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl From<Step> for Item {
    fn from(step: Step) -> Item {
        let id = step.id();
        let (at, by) = step.done.map(|done| (done.at, done.by)).unzip();
        Item { id, text: step.text, completed: at.is_some(), completed_at: at, completed_by: by }
    }
}

#[derive(Debug, thiserror::Error)]
enum WrongItem {
    #[error("{0:?} is not the id of a step such as step-3")]
    Id(String),
    #[error("a step is completed if and only if completedAt and completedBy say when and by whom")]
    Completion,
}

impl TryFrom<Item> for Step {
    type Error = WrongItem;

    fn try_from(item: Item) -> Result<Step, WrongItem> {
        let Some(index) = parse_id(&item.id) else { return Err(WrongItem::Id(item.id)) };
        let done = match (item.completed, item.completed_at, item.completed_by) {
            (true, Some(at), Some(by)) => Some(Done { at, by }),
            (false, None, None) => None,
            _ => return Err(WrongItem::Completion),
        };
        Ok(Step { index, text: item.text, done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000;

    fn devon() -> Actor {
        Actor("devon".into())
    }

    fn seven() -> Checklist {
        let actions: Vec<String> = (0..7).map(|n| format!("action {n}")).collect();
        Checklist::generate(Source::Log, &actions, "").unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * SECOND)
    }

    /// Other tools read these items, so their shape is fixed to the letter (PLN-14).
    #[test]
    fn items_have_exactly_the_agreed_fields() {
        let mut list = seven();
        list.completed(1, devon(), at(5));
        let items = serde_json::to_string(&list.steps()[..2]).unwrap();
        let expected = concat!(
            r#"[{"id":"step-0","text":"action 0","completed":false,"completedAt":null,"completedBy":null},"#,
            r#"{"id":"step-1","text":"action 1","completed":true,"completedAt":5000,"completedBy":"devon"}]"#
        );
        assert_eq!(items, expected);
        assert_eq!(serde_json::from_str::<Vec<Step>>(&items).unwrap(), list.steps()[..2]);
        let read = |from: &str, to: &str| {
            serde_json::from_str::<Vec<Step>>(&items.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert!(read("step-0", "step-00").contains("is not the id of a step"));
        assert!(read("false", "true").contains("if and only if"));
    }

    #[test]
    fn the_three_sources_give_their_steps() {
        let actions = ["Write client".to_owned(), "Write tests".to_owned()];
        let breakdown = "1.1 Handle streaming\n2.1 Add fixture";
        let texts = |source| {
            let list = Checklist::generate(source, &actions, breakdown).unwrap();
            list.steps().iter().map(|step| step.text.clone()).collect::<Vec<_>>()
        };
        assert_eq!(texts(Source::Log), ["Write client", "Write tests"]);
        assert_eq!(texts(Source::Llm), ["Handle streaming", "Add fixture"]);
        let hybrid = ["Write client", "Handle streaming", "Write tests", "Add fixture"];
        assert_eq!(texts(Source::Hybrid), hybrid);
    }

    #[test]
    fn a_list_without_steps_or_with_too_many_is_refused() {
        let none = Checklist::generate(Source::Llm, &["a".into()], "just prose");
        assert_eq!(none, Err(InvalidChecklist::NoSteps));
        let many = Checklist::new(vec!["x".into(); 101]);
        assert_eq!(many, Err(InvalidChecklist::TooManySteps { count: 101, max: 100 }));
        let long = Checklist::new(vec!["x".repeat(900)]).unwrap();
        assert_eq!(long.steps()[0].text.len(), limits::STEP_CHARS_MAX);
    }

    /// PLN-16 and DSH-11: what is broadcast and what the status bar shows.
    #[test]
    fn completing_a_step_says_the_progress() {
        let mut list = seven();
        for step in 0..3 {
            list.completed(step, devon(), at(1));
        }
        assert_eq!(list.status("2-5"), "2-5: 3/7");
        let done = list.complete("step-3").unwrap();
        let progress = serde_json::to_string(&done.progress).unwrap();
        assert_eq!((done.step, progress.as_str()), (3, "\"4/7\""));
        list.completed(done.step, devon(), at(2));
        assert_eq!(list.progress(), done.progress);
    }

    #[test]
    fn a_step_is_done_once_and_must_exist() {
        let mut list = seven();
        list.completed(2, devon(), at(1));
        let twice = StepRefusal::AlreadyDone { step: 2, by: devon() };
        assert_eq!(list.complete("step-2"), Err(twice));
        for unknown in ["step-7", "step-02", "2", "step--1", ""] {
            let step = unknown.to_owned();
            assert_eq!(list.complete(unknown), Err(StepRefusal::Unknown { step, last: 6 }));
        }
        let before = list.clone();
        list.completed(2, Actor("tara".into()), at(9));
        list.completed(99, devon(), at(9));
        assert_eq!(list, before);
        assert_eq!(Checklist::default().complete("step-0"), Err(StepRefusal::NoChecklist));
    }

    /// PLN-17: what is done stays done; the new session begins where the old one failed.
    #[test]
    fn a_new_session_resumes_at_the_first_incomplete_step() {
        let mut list = seven();
        for step in [0, 1, 3] {
            list.completed(step, devon(), at(1));
        }
        assert_eq!(list.first_incomplete().unwrap().id(), "step-2");
        assert_eq!(list.failing(), None);
        list.failed();
        assert_eq!(list.failing().unwrap().id(), "step-2");
        list.completed(2, devon(), at(2));
        assert_eq!(list.failing(), None);
        assert_eq!(list.first_incomplete().unwrap().id(), "step-4");
    }

    /// Nights between two attempts must not make steps look slow.
    #[test]
    fn the_mean_time_counts_working_time_only() {
        let mut list = seven();
        list.begun(at(0));
        list.completed(0, devon(), at(10));
        list.completed(1, devon(), at(40));
        list.interrupted();
        list.begun(at(10_000));
        list.completed(2, devon(), at(10_020));
        assert_eq!(list.pace(), Pace { steps: 3, worked_ms: 60 * SECOND });
        assert_eq!(list.pace().mean_ms(), Some(20 * SECOND));
        assert_eq!(list.eta(Pace::default(), at(10_020)), Some(at(10_100)));
        assert_eq!(list.eta(Pace::default(), at(10_025)), Some(at(10_100)));
        // A step that takes longer than the mean moves the end, but never into the past.
        assert_eq!(list.eta(Pace::default(), at(10_050)), Some(at(10_110)));
    }

    /// A person may tick off a step while nobody works; that says nothing about how long it takes.
    #[test]
    fn steps_done_while_nobody_works_say_nothing_about_the_pace() {
        let stops: [fn(&mut Checklist); 2] = [Checklist::interrupted, Checklist::failed];
        for stop in stops {
            let mut list = seven();
            list.begun(at(0));
            list.completed(0, devon(), at(10));
            stop(&mut list);
            list.completed(1, devon(), at(5_000));
            assert_eq!(list.pace(), Pace { steps: 1, worked_ms: 10 * SECOND });
        }
    }

    #[test]
    fn without_experience_of_its_own_a_task_takes_that_of_others() {
        let mut list = seven();
        let others = Pace { steps: 2, worked_ms: 10 * SECOND };
        assert_eq!(list.eta(Pace::default(), at(0)), None);
        assert_eq!(list.eta(others, at(0)), Some(at(35)));
        for step in 0..7 {
            list.completed(step, devon(), at(1));
        }
        assert_eq!(list.eta(others, at(1)), None);
    }
}
