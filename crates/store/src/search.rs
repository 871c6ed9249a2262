//! Search over what happened, over logs and over memory: one question for every engine of storage.
//!
//! A text is a list of words, and a document matches if it has all of them. Words are made here,
//! so that all databases agree on what a word is. Newest first, which is what all can agree on too.

use kapelle_core::activity;
use kapelle_core::{Event, MissionId, Record, Seq, State, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::error::Error;
use crate::journal::Epoch;
use crate::projections::Fold;

/// What is told to the search at a time: an append waits for at most one such batch.
const BATCH_RECORDS_MAX: usize = 500;

/// More of one text is not worth finding: logs are long, and most of them is noise.
const DOCUMENT_CHARS_MAX: usize = 100_000;

/// A longer word is a hash, a key or an encoded file.
const WORD_CHARS_MAX: usize = 100;

/// What one search gives at most; more is not read by anybody.
pub const HITS_MAX: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What happened, as a sentence.
    Activity,
    /// What programs printed.
    Log,
    /// What the team wants to remember.
    Memory,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Activity, Kind::Log, Kind::Memory];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Activity => "activity",
            Kind::Log => "log",
            Kind::Memory => "memory",
        }
    }
}

/// Something that can be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Document {
    pub kind: Kind,
    /// Where it is from. A later document of the same kind and source takes its place.
    pub source: String,
    pub seq: Option<Seq>,
    pub at: Timestamp,
    pub mission: Option<MissionId>,
    pub task: Option<TaskId>,
    pub agent: Option<String>,
    /// The type of the event that tells it.
    pub event: Option<String>,
    pub body: String,
}

/// What is looked for. Everything that is said has to hold.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Words, all of which have to occur. None: everything that passes the filters.
    pub text: String,
    /// None: of every kind.
    pub kind: Option<Kind>,
    pub mission: Option<MissionId>,
    pub task: Option<TaskId>,
    pub agent: Option<String>,
    pub event: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// At most this many, the newest. None: `HITS_MAX`.
    pub limit: Option<usize>,
}

impl Query {
    pub(crate) fn limit(&self) -> i64 {
        self.limit.unwrap_or(HITS_MAX).min(HITS_MAX) as i64
    }

    /// None: a text without a word, which nothing matches.
    pub(crate) fn words(&self) -> Option<Option<Vec<String>>> {
        if self.text.trim().is_empty() {
            return Some(None);
        }
        let words: Vec<String> = words(&self.text).collect();
        (!words.is_empty()).then_some(Some(words))
    }
}

impl Document {
    /// In the order in which the databases give them.
    pub(crate) const COLUMNS: &str =
        "kind, source, seq, at, mission_id, task_id, agent, type, body";

    /// The words of its body, which is all that a database has to index.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        words(self.body())
    }

    pub(crate) fn body(&self) -> &str {
        match self.body.char_indices().nth(DOCUMENT_CHARS_MAX) {
            Some((end, _)) => &self.body[..end],
            None => &self.body,
        }
    }
}

#[cfg(test)]
impl Document {
    /// Something to remember, for tests.
    pub(crate) fn note() -> Document {
        Document {
            kind: Kind::Memory,
            source: "note".into(),
            seq: None,
            at: Timestamp(1),
            mission: None,
            task: None,
            agent: None,
            event: None,
            body: "remember the milk".into(),
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| word.to_lowercase().chars().take(WORD_CHARS_MAX).collect())
}

pub(crate) fn kind_named(name: &str) -> Kind {
    Kind::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or(Kind::Activity)
}

/// The next of what the fold has seen and the search does not know yet, and how far it reaches
/// then; None if it knows all of it. The fold has the words for what happened.
pub(crate) fn untold(
    backend: &dyn Backend,
    fold: &Fold,
) -> Result<Option<(Vec<Document>, Seq)>, Error> {
    let (mut found, mut reached) = (Vec::new(), None);
    let rows = backend.rows(backend.searchable()?, BATCH_RECORDS_MAX)?;
    for row in rows.iter().filter(|row| row.seq.cast_unsigned() <= fold.seq().0) {
        let record = row.record()?;
        reached = Some(record.seq);
        found.extend(documents(fold.state(), &record, row.event_type()));
    }
    Ok(reached.map(|reached| (found, reached)))
}

/// Makes everything searchable that the fold has seen.
pub(crate) fn catch_up(backend: &mut dyn Backend, epoch: Epoch, fold: &Fold) -> Result<(), Error> {
    while let Some((found, reached)) = untold(backend, fold)? {
        backend.index(epoch, &found, Some(reached))?;
    }
    Ok(())
}

/// What there is to find in a record. `state` has seen it, and perhaps more.
fn documents(state: &State, record: &Record, event: &str) -> Vec<Document> {
    let document = |kind, source, body| Document {
        kind,
        source,
        seq: Some(record.seq),
        at: record.at,
        mission: None,
        task: None,
        agent: None,
        event: Some(event.to_owned()),
        body,
    };
    let mut found = Vec::new();
    if let Some(line) = activity::line(state, &record.event) {
        let (mission, task, agent) = (line.mission, line.task, Some(line.actor));
        let line = document(Kind::Activity, format!("record {}", record.seq), line.text);
        found.push(Document { mission, task, agent, ..line });
    }
    if let Event::ChecksFinished { task, results, .. } = &record.event {
        let mission = state.task(*task).map(|task| task.mission);
        for result in results.iter().filter(|result| !result.output.is_empty()) {
            let source = format!("record {} check {}", record.seq, result.name);
            let log = document(Kind::Log, source, result.output.clone());
            found.push(Document { mission, task: Some(*task), ..log });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_letters_and_digits_in_lower_case() {
        let found: Vec<String> = words("Fixed src/lib.rs: 2 FÄLLE (naïve_name)!").collect();
        assert_eq!(found, ["fixed", "src", "lib", "rs", "2", "fälle", "naïve", "name"]);
        assert_eq!(words(&"x".repeat(300)).next().unwrap().len(), WORD_CHARS_MAX);
    }

    #[test]
    fn a_text_without_words_is_not_the_same_as_no_text() {
        let query = |text: &str| Query { text: text.into(), ..Query::default() }.words();
        assert_eq!(query("  "), Some(None));
        assert_eq!(query("!?"), None);
        assert_eq!(query("a B"), Some(Some(vec!["a".into(), "b".into()])));
    }
}
