//! A file operation as it stands in JSON: one flat object, which models write more reliably than
//! nested ones. The schema says which fields belong to which operation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Change, FileOperation};
use crate::limits;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FileOperation", extend("oneOf" = forms()))]
pub(super) struct Wire {
    operation: Verb,
    #[schemars(length(min = 1, max = limits::PATH_CHARS_MAX))]
    file_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    old_string: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    new_string: Option<String>,
    /// The first and the last line, from 1, that the diff is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line_range: Option<[u32; 2]>,
    /// Unified-diff hunks: `@@ -42,5 +42,8 @@` and lines that begin with ' ', '-' or '+'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Create,
    Write,
    Edit,
    Delete,
}

/// Which fields belong to which operation.
fn forms() -> Value {
    let fields = ["content", "old_string", "new_string", "line_range", "diff"];
    let form = |verb: &str, own: &[&str]| {
        let foreign = fields.iter().filter(|field| !own.contains(field));
        let mut properties: serde_json::Map<String, Value> =
            foreign.map(|field| ((*field).to_owned(), Value::Bool(false))).collect();
        properties.insert("operation".into(), json!({"const": verb}));
        json!({"properties": properties, "required": own})
    };
    json!([
        form("create", &["content"]),
        form("write", &["content"]),
        form("edit", &["old_string", "new_string"]),
        form("edit", &["line_range", "diff"]),
        form("delete", &[]),
    ])
}

#[derive(Debug, thiserror::Error)]
#[error("the fields do not belong to the operation {0:?}")]
pub(super) struct OtherFields(Verb);

impl TryFrom<Wire> for FileOperation {
    type Error = OtherFields;

    fn try_from(wire: Wire) -> Result<FileOperation, OtherFields> {
        let Wire { operation, file_path, content, old_string, new_string, line_range, diff } = wire;
        let change = match (operation, content, old_string, new_string, line_range, diff) {
            (Verb::Create, Some(content), None, None, None, None) => Change::Create { content },
            (Verb::Write, Some(content), None, None, None, None) => Change::Write { content },
            (Verb::Delete, None, None, None, None, None) => Change::Delete,
            (Verb::Edit, None, Some(old_string), Some(new_string), None, None) => {
                Change::Replace { old_string, new_string }
            }
            (Verb::Edit, None, None, None, Some(line_range), Some(diff)) => {
                Change::Patch { line_range, diff }
            }
            (verb, ..) => return Err(OtherFields(verb)),
        };
        Ok(FileOperation { file_path, change })
    }
}

impl From<FileOperation> for Wire {
    fn from(operation: FileOperation) -> Wire {
        let FileOperation { file_path, change } = operation;
        let mut wire = Wire {
            operation: Verb::Edit,
            file_path,
            content: None,
            old_string: None,
            new_string: None,
            line_range: None,
            diff: None,
        };
        match change {
            Change::Create { content } => {
                wire.operation = Verb::Create;
                wire.content = Some(content);
            }
            Change::Write { content } => {
                wire.operation = Verb::Write;
                wire.content = Some(content);
            }
            Change::Delete => wire.operation = Verb::Delete,
            Change::Replace { old_string, new_string } => {
                wire.old_string = Some(old_string);
                wire.new_string = Some(new_string);
            }
            Change::Patch { line_range, diff } => {
                wire.line_range = Some(line_range);
                wire.diff = Some(diff);
            }
        }
        wire
    }
}
