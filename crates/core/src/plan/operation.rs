//! File operations: edits that a planner has prepared, applied to text and nothing else.
//!
//! The same edit can repeat the old text or point at its lines; both lead to the same file.
//! Operations are done in order and counted, so that an attempt that was cut short resumes at the
//! next one (TSK-09).

mod wire;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::flaws::is_inside;
use super::hunk;
use wire::Wire;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Wire", into = "Wire")]
#[schemars(with = "Wire")]
pub struct FileOperation {
    /// Relative to the repository's root.
    pub file_path: String,
    pub change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A file that must not be there yet.
    Create {
        content: String,
    },
    /// The whole file, whether it is there or not.
    Write {
        content: String,
    },
    Delete,
    /// `old_string` must be there exactly once.
    Replace {
        old_string: String,
        new_string: String,
    },
    /// Lines, from 1, and what to do in them; see [`hunk`].
    Patch {
        line_range: [u32; 2],
        diff: String,
    },
}

/// Why an operation does not fit the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    #[error("the file is already there")]
    Exists,
    #[error("there is no such file")]
    NoFile,
    #[error("old_string is empty: it must say what to replace")]
    NothingToReplace,
    #[error("old_string is not in the file")]
    NotThere,
    #[error("old_string is in the file more than once: add lines around it")]
    Ambiguous,
    #[error(transparent)]
    Hunk(#[from] hunk::Misfit),
}

impl FileOperation {
    /// The file after the operation; None means that there is none.
    pub fn apply(&self, file: Option<&str>) -> Result<Option<String>, Misfit> {
        let there = || file.ok_or(Misfit::NoFile);
        match &self.change {
            Change::Create { .. } if file.is_some() => Err(Misfit::Exists),
            Change::Create { content } | Change::Write { content } => Ok(Some(content.clone())),
            Change::Delete => there().map(|_| None),
            Change::Replace { old_string, new_string } => {
                replace(there()?, old_string, new_string).map(Some)
            }
            Change::Patch { line_range, diff } => {
                Ok(Some(hunk::apply(there()?, *line_range, diff)?))
            }
        }
    }

    /// The same edit, pointing at lines instead of repeating them: what it costs to say it is then
    /// the size of the change, not of what is around it.
    pub fn compressed(&self, file: &str) -> Result<FileOperation, Misfit> {
        let Change::Replace { old_string, new_string } = &self.change else {
            return Ok(self.clone());
        };
        let after = replace(file, old_string, new_string)?;
        if after == file {
            return Ok(self.clone());
        }
        let (line_range, diff) = hunk::between(file, &after);
        let change = Change::Patch { line_range, diff };
        Ok(FileOperation { file_path: self.file_path.clone(), change })
    }

    /// What is wrong with the operation whatever the file looks like: the field, and why.
    #[must_use]
    pub fn flaw(&self) -> Option<(&'static str, String)> {
        if !is_inside(&self.file_path) {
            return Some(("file_path", "is not inside the repository".to_owned()));
        }
        match &self.change {
            Change::Replace { old_string, .. } if old_string.is_empty() => {
                Some(("old_string", "is empty: it must say what to replace".to_owned()))
            }
            Change::Patch { line_range: [first, last], .. } if *first == 0 || first > last => {
                let (first, last) = (*first, *last);
                Some(("line_range", hunk::Misfit::BadRange { first, last }.to_string()))
            }
            Change::Patch { diff, .. } => {
                hunk::parse(diff).err().map(|misfit| ("diff", misfit.to_string()))
            }
            Change::Create { .. }
            | Change::Write { .. }
            | Change::Delete
            | Change::Replace { .. } => None,
        }
    }
}

fn replace(file: &str, old: &str, new: &str) -> Result<String, Misfit> {
    if old.is_empty() {
        return Err(Misfit::NothingToReplace);
    }
    let at = file.find(old).ok_or(Misfit::NotThere)?;
    // Copies that overlap are copies too.
    let next = at + file[at..].chars().next().map_or(1, char::len_utf8);
    if file[next..].contains(old) {
        return Err(Misfit::Ambiguous);
    }
    Ok(format!("{}{new}{}", &file[..at], &file[at + old.len()..]))
}

/// Where a list of operations stopped; those before `index` are done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("operation {index} on {file_path}: {misfit}")]
pub struct Stopped {
    pub index: u32,
    pub file_path: String,
    pub misfit: Misfit,
}

/// Applies what is not done yet to the files, by path. Returns how many operations are done now;
/// doing it again with that number changes nothing.
pub fn resume(
    operations: &[FileOperation],
    completed_count: u32,
    files: &mut BTreeMap<String, String>,
) -> Result<u32, Stopped> {
    for (operation, index) in operations.iter().zip(0..).skip(completed_count as usize) {
        let path = &operation.file_path;
        let file = files.get(path).map(String::as_str);
        match operation.apply(file) {
            Ok(Some(after)) => drop(files.insert(path.clone(), after)),
            Ok(None) => drop(files.remove(path)),
            Err(misfit) => return Err(Stopped { index, file_path: path.clone(), misfit }),
        }
    }
    Ok(completed_count.max(operations.len() as u32))
}

/// How far the prepared operations of one task are done.
///
/// Invariant: the operations before `completed_count` are done, and no other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    total: u32,
    completed_count: u32,
    /// By phases whose change was accepted, how many were done then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    accepted: Vec<(usize, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OperationRefusal {
    /// A repeated message; nothing is wrong, and nothing is to be recorded.
    #[error("operation {index} is done already; the next one is {next}")]
    AlreadyDone { index: u32, next: u32 },
    #[error("operation {index} cannot be done before operation {next}")]
    TooEarly { index: u32, next: u32 },
    #[error("there is no operation {index}: the task has {total}")]
    Unknown { index: u32, total: u32 },
}

impl Operations {
    #[must_use]
    pub fn new(total: u32) -> Operations {
        Operations { total, ..Operations::default() }
    }

    #[must_use]
    pub fn completed_count(&self) -> u32 {
        self.completed_count
    }

    /// The index at which an attempt begins or resumes.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        (self.completed_count < self.total).then_some(self.completed_count)
    }

    /// Whether the message "operation `index` is done" is news.
    pub fn complete(&self, index: u32) -> Result<(), OperationRefusal> {
        let (next, total) = (self.completed_count, self.total);
        match index.cmp(&next) {
            _ if index >= total => Err(OperationRefusal::Unknown { index, total }),
            std::cmp::Ordering::Less => Err(OperationRefusal::AlreadyDone { index, next }),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(OperationRefusal::TooEarly { index, next }),
        }
    }

    /// Operation `index` is done, and with it all before it.
    pub fn completed(&mut self, index: u32) {
        self.completed_count = self.completed_count.max(index.saturating_add(1)).min(self.total);
    }

    /// The change of a phase was accepted, and with it all that is done.
    pub fn accepted(&mut self, phase: usize) {
        self.accepted.retain(|(earlier, _)| *earlier < phase);
        if self.completed_count > 0 {
            self.accepted.push((phase, self.completed_count));
        }
    }

    /// What was done in this phase was thrown away. What earlier ones left is still there, and must
    /// not be done twice.
    pub fn discarded(&mut self, phase: usize) {
        self.accepted.retain(|(earlier, _)| *earlier < phase);
        self.completed_count = self.accepted.last().map_or(0, |(_, count)| *count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(path: &str, change: Change) -> FileOperation {
        FileOperation { file_path: path.into(), change }
    }

    fn swap(old: &str, new: &str) -> FileOperation {
        on("f", Change::Replace { old_string: old.into(), new_string: new.into() })
    }

    #[test]
    fn both_forms_of_an_edit_give_the_same_file() {
        let file = "def open(path):\n    data = read(path)\n    return data\n";
        let spelled = swap("    data", "    check(path)\n    data");
        let pointed = on(
            "f",
            Change::Patch {
                line_range: [2, 2],
                diff: "@@ -2,1 +2,2 @@\n+    check(path)\n".into(),
            },
        );
        // "    data" occurs once; "data" would not.
        assert_eq!(spelled.apply(Some(file)), pointed.apply(Some(file)));
        assert_eq!(spelled.compressed(file).unwrap().apply(Some(file)), spelled.apply(Some(file)));
        assert_eq!(pointed.compressed(file), Ok(pointed));
    }

    #[test]
    fn an_operation_that_does_not_fit_changes_nothing() {
        let create = on("f", Change::Create { content: "x".into() });
        assert_eq!(create.apply(Some("")), Err(Misfit::Exists));
        assert_eq!(create.apply(None), Ok(Some("x".into())));
        let write = on("f", Change::Write { content: "x".into() });
        assert_eq!(write.apply(Some("y")), Ok(Some("x".into())));
        let delete = on("f", Change::Delete);
        assert_eq!((delete.apply(Some("y")), delete.apply(None)), (Ok(None), Err(Misfit::NoFile)));
        assert_eq!(swap("", "x").apply(Some("a")), Err(Misfit::NothingToReplace));
        assert_eq!(swap("b", "x").apply(Some("a")), Err(Misfit::NotThere));
        assert_eq!(swap("aa", "x").apply(Some("aaa")), Err(Misfit::Ambiguous));
        assert_eq!(swap("a", "x").apply(None), Err(Misfit::NoFile));
        let patch = on("f", Change::Patch { line_range: [1, 1], diff: "x".into() });
        assert_eq!(patch.apply(Some("a")), Err(Misfit::Hunk(hunk::Misfit::NoHunk)));
    }

    /// TSK-09: an agent that died after two of three operations must not do them twice.
    #[test]
    fn what_is_done_is_skipped_by_its_index() {
        let operations = [
            on("a", Change::Create { content: "1".into() }),
            swap("x", "y"),
            on("a", Change::Write { content: "2".into() }),
        ];
        let mut files = BTreeMap::from([("f".to_owned(), "z".to_owned())]);
        let stopped = resume(&operations, 0, &mut files).unwrap_err();
        let text = "operation 1 on f: old_string is not in the file";
        assert_eq!((stopped.index, stopped.to_string()), (1, text.to_owned()));
        files.insert("f".into(), "x".into());
        assert_eq!(resume(&operations, 1, &mut files), Ok(3));
        let done = BTreeMap::from([("a".into(), "2".into()), ("f".into(), "y".into())]);
        assert_eq!(files, done);
        assert_eq!(resume(&operations, 3, &mut files), Ok(3));
        assert_eq!(files, done);
    }

    #[test]
    fn a_message_about_an_operation_counts_once_and_in_order() {
        let mut operations = Operations::new(2);
        assert_eq!(operations.next(), Some(0));
        let early = OperationRefusal::TooEarly { index: 1, next: 0 };
        assert_eq!(operations.complete(1), Err(early));
        assert_eq!(operations.complete(0), Ok(()));
        operations.completed(0);
        let again = OperationRefusal::AlreadyDone { index: 0, next: 1 };
        assert_eq!(operations.complete(0), Err(again));
        let unknown = OperationRefusal::Unknown { index: 2, total: 2 };
        assert_eq!(operations.complete(2), Err(unknown));
        operations.completed(1);
        assert_eq!((operations.next(), operations.completed_count()), (None, 2));
        operations.discarded(0);
        assert_eq!(operations.next(), Some(0));
    }

    #[test]
    fn operations_read_back_as_they_were_written() {
        let patch = Change::Patch { line_range: [42, 58], diff: "@@ -42 +42 @@\n-a\n".into() };
        for operation in [
            on("f", Change::Create { content: "c".into() }),
            on("f", Change::Write { content: "c".into() }),
            on("f", Change::Delete),
            swap("a", "b"),
            on("f", patch),
        ] {
            let json = serde_json::to_string(&operation).unwrap();
            assert_eq!(serde_json::from_str::<FileOperation>(&json).unwrap(), operation);
        }
        let json = r#"{"operation": "delete", "file_path": "f", "content": "x"}"#;
        let error = serde_json::from_str::<FileOperation>(json).unwrap_err();
        assert_eq!(error.to_string(), "the fields do not belong to the operation Delete");
    }
}
