//! Notices: how a person hears of trouble without learning to ignore it.
//!
//! Escalations of one cause are one group, and a group is told of once, then again only when it
//! has grown, or with the next notice when it has stood for long: an idle project writes nothing.
//! All groups together are told of only so often an hour; the rest waits for its turn and is told
//! of together.
//!
//! Invariant: nothing is dropped. What is not told now is told when there is room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::approval::Subject;
use crate::breaker::BreakerKey;
use crate::event::PauseReason;
use crate::failure::{Failure, FailureKind};
use crate::ids::{MissionId, TaskId};
use crate::ledger::Alarm;
use crate::limits;
use crate::report::Question;
use crate::time::{MINUTE_MS, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NoticePolicy {
    pub notices_per_hour_max: u32,
    /// An open group is told of again, with other news, after this long.
    pub remind_ms: u64,
    /// And when it has this many times as many tasks.
    pub growth: u32,
}

impl Default for NoticePolicy {
    fn default() -> NoticePolicy {
        NoticePolicy { notices_per_hour_max: 6, remind_ms: 4 * 60 * MINUTE_MS, growth: 5 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("notices: {field} must be at least {min}")]
pub struct InvalidNotices {
    pub field: &'static str,
    pub min: u64,
}

impl NoticePolicy {
    pub fn validate(&self) -> Result<(), InvalidNotices> {
        let bounds = [
            ("notices_per_hour_max", u64::from(self.notices_per_hour_max), 1),
            ("remind_ms", self.remind_ms, MINUTE_MS),
            ("growth", u64::from(self.growth), 2),
        ];
        match bounds.into_iter().find(|(_, found, min)| found < min) {
            Some((field, _, min)) => Err(InvalidNotices { field, min }),
            None => Ok(()),
        }
    }
}

/// What escalations have in common. Numbers and paths differ from task to task, so the text is
/// compared without them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cause {
    /// None for what concerns the project as a whole.
    pub mission: Option<MissionId>,
    pub matter: Matter,
    pub pattern: String,
}

/// Why a person has to look (HUM-06).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "matter", content = "kind", rename_all = "snake_case")]
pub enum Matter {
    /// Tasks that gave up.
    Failure(FailureKind),
    /// The mission stands still.
    Pause,
    /// Nobody calls a provider any more, for a while or until a person has mended it.
    Breaker,
    /// Something waits for approvals.
    Approval,
    /// An agent asked something, or a conflict has to be decided, and work waits for the answer.
    Question,
    /// An agent has printed nothing for so long that somebody should look.
    Silence,
    /// The watchdog holds all spending.
    Spending,
    /// Something happened without asking; there is nothing to do but to know.
    WentAhead,
}

/// Enough of a message to tell two errors apart.
const PATTERN_CHARS_MAX: usize = 80;

impl Cause {
    #[must_use]
    pub fn of(mission: MissionId, failure: &Failure) -> Cause {
        let (mission, matter) = (Some(mission), Matter::Failure(failure.kind));
        Cause { mission, matter, pattern: pattern(&failure.message) }
    }

    #[must_use]
    pub fn of_pause(mission: MissionId, reason: &PauseReason) -> Cause {
        Cause {
            mission: Some(mission),
            matter: Matter::Pause,
            pattern: pattern(&reason.to_string()),
        }
    }

    #[must_use]
    pub fn of_gate(mission: MissionId, subject: Subject) -> Cause {
        let (mission, pattern) = (Some(mission), subject.what().to_owned());
        Cause { mission, matter: Matter::Approval, pattern }
    }

    #[must_use]
    pub fn of_deed(mission: MissionId, subject: Subject) -> Cause {
        let (mission, pattern) = (Some(mission), subject.what().to_owned());
        Cause { mission, matter: Matter::WentAhead, pattern }
    }

    /// That of a mission pauses it, and is told as that.
    #[must_use]
    pub fn of_breaker(key: &BreakerKey) -> Cause {
        let pattern = limits::head(&key.to_string(), PATTERN_CHARS_MAX).to_owned();
        Cause { mission: None, matter: Matter::Breaker, pattern }
    }

    #[must_use]
    pub fn of_question(mission: MissionId, question: &Question) -> Cause {
        let (mission, matter) = (Some(mission), Matter::Question);
        Cause { mission, matter, pattern: pattern(&question.message) }
    }

    /// Whoever it is: that several hang is one piece of news.
    #[must_use]
    pub fn of_silence(mission: MissionId) -> Cause {
        let (mission, pattern) = (Some(mission), "an agent".to_owned());
        Cause { mission, matter: Matter::Silence, pattern }
    }

    #[must_use]
    pub fn of_alarm(alarm: &Alarm) -> Cause {
        let pattern = limits::head(&alarm.to_string(), PATTERN_CHARS_MAX).to_owned();
        Cause { mission: None, matter: Matter::Spending, pattern }
    }

    /// Where causes go when there are too many to keep apart.
    fn other(&self) -> Cause {
        Cause { mission: self.mission, matter: self.matter, pattern: "…".to_owned() }
    }
}

/// The first line, without what varies.
fn pattern(message: &str) -> String {
    let first = message.lines().map(str::trim).find(|line| !line.is_empty());
    let mut pattern = String::new();
    for word in first.unwrap_or_default().split_whitespace() {
        let varies = word.contains('/') || word.chars().any(|c| c.is_ascii_digit());
        let word = if varies { "…" } else { word };
        if !(varies && pattern.ends_with('…')) {
            pattern.extend((!pattern.is_empty()).then_some(' '));
            pattern.push_str(word);
        }
    }
    limits::head(&pattern, PATTERN_CHARS_MAX).to_owned()
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = &self.pattern;
        if let Some(mission) = self.mission {
            let paused = self.matter == Matter::Pause;
            write!(f, "{mission}{} ", if paused { " is paused:" } else { ":" })?;
        }
        match self.matter {
            Matter::Failure(kind) => write!(f, "{kind}: {pattern}"),
            Matter::Pause => f.write_str(pattern),
            Matter::Breaker => write!(f, "{pattern} failed too often and is left alone"),
            Matter::Question => write!(f, "a question waits for an answer: {pattern}"),
            Matter::Silence => write!(f, "{pattern} has printed nothing for long"),
            Matter::Spending => write!(f, "spending is paused: {pattern}"),
            Matter::WentAhead => write!(f, "{pattern} went ahead without asking"),
            Matter::Approval => write!(f, "{pattern} waits for approval"),
        }
    }
}

/// Escalations of one cause that a person has not settled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub first_at: Timestamp,
    /// The first ones by name; `count` has them all.
    pub tasks: BTreeSet<TaskId>,
    pub count: u32,
    told: Option<Told>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Told {
    at: Timestamp,
    count: u32,
}

impl Group {
    fn is_news(&self, policy: &NoticePolicy, now: Timestamp) -> bool {
        match self.told {
            None => true,
            Some(told) => {
                self.count >= told.count.saturating_mul(policy.growth)
                    || now.ms_since(told.at) >= policy.remind_ms
            }
        }
    }
}

/// Whether a person is told now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notify {
    Now {
        causes: Vec<Cause>,
    },
    /// There is nothing to tell before then, if at all.
    Later {
        at: Option<Timestamp>,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Notices {
    groups: BTreeMap<Cause, Group>,
    /// The notices of the last hour.
    sent: VecDeque<Timestamp>,
}

const HOUR_MS: u64 = 60 * MINUTE_MS;

impl Notices {
    #[must_use]
    pub fn group(&self, cause: &Cause) -> Option<&Group> {
        self.groups.get(cause)
    }

    pub fn open(&self) -> impl Iterator<Item = (&Cause, &Group)> {
        self.groups.iter()
    }

    /// What a person should be told now: all news at once, if the hour allows another notice.
    #[must_use]
    pub fn due(&self, policy: &NoticePolicy, now: Timestamp) -> Notify {
        let news = self.groups.iter().filter(|(_, group)| group.is_news(policy, now));
        let causes: Vec<Cause> = news.map(|(cause, _)| cause.clone()).collect();
        if causes.is_empty() {
            return Notify::Later { at: None };
        }
        let recent = self.sent.iter().filter(|at| now.ms_since(**at) < HOUR_MS);
        // There is room when the last of those that fill the hour has left it.
        let filling = recent.rev().nth((policy.notices_per_hour_max as usize).saturating_sub(1));
        match filling {
            Some(last) => Notify::Later { at: Some(last.plus_ms(HOUR_MS)) },
            None => Notify::Now { causes },
        }
    }

    /// Fact: a task needs a person, or the mission does.
    pub fn raised(&mut self, cause: &Cause, task: Option<TaskId>, at: Timestamp) {
        let full = self.groups.len() >= limits::ESCALATION_CAUSES_MAX;
        let cause = match full && !self.groups.contains_key(cause) {
            true => cause.other(),
            false => cause.clone(),
        };
        let group = self.groups.entry(cause).or_insert_with(|| Group {
            first_at: at,
            tasks: BTreeSet::new(),
            count: 0,
            told: None,
        });
        group.count = group.count.saturating_add(1);
        if group.tasks.len() < limits::ESCALATION_TASKS_MAX {
            group.tasks.extend(task);
        }
    }

    /// Fact: a person was told of these.
    pub fn told(&mut self, causes: &[Cause], at: Timestamp) {
        self.sent.retain(|sent| at.ms_since(*sent) < HOUR_MS);
        self.sent.push_back(at);
        for cause in causes {
            if let Some(group) = self.groups.get_mut(cause) {
                group.told = Some(Told { at, count: group.count });
            }
        }
        // To know of it is all that was needed.
        self.groups
            .retain(|cause, group| cause.matter != Matter::WentAhead || group.told.is_none());
    }

    /// Fact: a person settled one of those that raised the cause.
    pub fn settled(&mut self, cause: &Cause, task: Option<TaskId>) {
        let known = self.groups.contains_key(cause);
        let cause = if known { cause.clone() } else { cause.other() };
        let Some(group) = self.groups.get_mut(&cause) else { return };
        group.count -= 1;
        if let Some(task) = task {
            group.tasks.remove(&task);
        }
        if group.count == 0 {
            self.groups.remove(&cause);
        }
    }

    /// Fact: nothing of this mission matters any more.
    pub fn mission_ended(&mut self, mission: MissionId) {
        self.groups.retain(|cause, _| cause.mission != Some(mission));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M: MissionId = MissionId(1);

    fn at(minutes: u64) -> Timestamp {
        Timestamp(minutes * MINUTE_MS)
    }

    fn cause(text: &str) -> Cause {
        Cause::of(M, &Failure::new(FailureKind::AgentError, text))
    }

    fn tell(notices: &mut Notices, now: Timestamp) -> usize {
        match notices.due(&NoticePolicy::default(), now) {
            Notify::Now { causes } => {
                notices.told(&causes, now);
                causes.len()
            }
            Notify::Later { .. } => 0,
        }
    }

    #[test]
    fn the_same_error_in_other_places_is_one_cause() {
        let one = cause("\n  cannot connect to 10.0.0.1 after 3 tries: refused\ndetails 7");
        assert_eq!(one.pattern, "cannot connect to … after … tries: refused");
        assert_eq!(one, cause("cannot connect to 10.0.0.99 after 12 tries: refused"));
        assert_eq!(cause("no such file src/a.rs"), cause("no such file tests/b.rs"));
        assert_ne!(one, cause("cannot parse the report"));
        let other = Failure::new(FailureKind::Network, "cannot parse the report");
        assert_ne!(Cause::of(M, &other), cause("cannot parse the report"));
    }

    /// RET-12: a hundred tasks that fail alike are a few notices, not a hundred.
    #[test]
    fn escalations_of_one_cause_are_told_once_and_again_when_they_grow() {
        let mut notices = Notices::default();
        let mut told = Vec::new();
        for n in 1..=100 {
            notices.raised(&cause("the key was refused"), Some(TaskId(n)), at(0));
            if tell(&mut notices, at(0)) > 0 {
                told.push(n);
            }
        }
        assert_eq!(told, [1, 5, 25]);
        let group = notices.group(&cause("the key was refused")).unwrap();
        assert_eq!((group.count, group.tasks.len()), (100, limits::ESCALATION_TASKS_MAX));
    }

    /// What does not fit the hour is told together, as soon as there is room.
    #[test]
    fn notices_are_limited_by_the_hour_and_nothing_is_lost() {
        let mut notices = Notices::default();
        let words = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        for (minute, word) in words.iter().enumerate() {
            notices.raised(&cause(word), Some(TaskId(1)), at(minute as u64));
            let told = tell(&mut notices, at(minute as u64));
            assert_eq!(told, usize::from(minute < 6), "{word}");
        }
        let policy = NoticePolicy::default();
        assert_eq!(notices.due(&policy, at(10)), Notify::Later { at: Some(at(60)) });
        assert_eq!(tell(&mut notices, at(60)), 3);
    }

    #[test]
    fn an_open_escalation_is_recalled_with_the_next_news_and_a_settled_one_is_not() {
        let mut notices = Notices::default();
        for n in [1, 2] {
            notices.raised(&cause("a"), Some(TaskId(n)), at(0));
        }
        tell(&mut notices, at(0));
        let policy = NoticePolicy::default();
        assert_eq!(notices.due(&policy, at(1)), Notify::Later { at: None });
        assert_eq!(tell(&mut notices, at(240)), 1);
        notices.settled(&cause("a"), Some(TaskId(1)));
        assert_eq!(tell(&mut notices, at(480)), 1, "one of two is still open");
        notices.settled(&cause("a"), Some(TaskId(2)));
        assert_eq!(notices.due(&policy, at(9_999)), Notify::Later { at: None });
    }

    /// A stricter rule does not make up for what was said before it.
    #[test]
    fn a_stricter_limit_waits_until_enough_notices_are_old() {
        let mut notices = Notices::default();
        for (minute, word) in ["a", "b", "c"].iter().enumerate() {
            notices.raised(&cause(word), None, at(minute as u64));
            tell(&mut notices, at(minute as u64));
        }
        notices.raised(&cause("d"), None, at(3));
        let strict = NoticePolicy { notices_per_hour_max: 2, ..NoticePolicy::default() };
        assert_eq!(notices.due(&strict, at(3)), Notify::Later { at: Some(at(61)) });
        assert!(matches!(notices.due(&strict, at(61)), Notify::Now { .. }));
    }

    /// Hostile messages must not fill the memory with causes of their own.
    #[test]
    fn causes_are_bounded() {
        let mut notices = Notices::default();
        for n in 0..1_000 {
            let letters: String = format!("{n}").chars().map(|c| (c as u8 + 49) as char).collect();
            notices.raised(&cause(&letters), Some(TaskId(n)), at(0));
        }
        assert!(notices.open().count() <= limits::ESCALATION_CAUSES_MAX + 1);
        let all: u32 = notices.open().map(|(_, group)| group.count).sum();
        assert_eq!(all, 1_000);
        assert!(cause(&"x".repeat(10_000)).pattern.len() <= PATTERN_CHARS_MAX);
    }

    #[test]
    fn a_policy_that_never_tells_is_refused() {
        assert_eq!(NoticePolicy::default().validate(), Ok(()));
        let silent = NoticePolicy { notices_per_hour_max: 0, ..NoticePolicy::default() };
        assert_eq!(silent.validate().map_err(|e| e.field), Err("notices_per_hour_max"));
        let shrill = NoticePolicy { growth: 1, ..NoticePolicy::default() };
        assert_eq!(shrill.validate().map_err(|e| e.field), Err("growth"));
    }
}
