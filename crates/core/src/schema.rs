//! Published JSON Schemas, enforced: where is a document not what its schema asks for?
//!
//! The schemas are generated from our own types, so what is published and what is checked cannot
//! drift apart. Only the keywords that these schemas use are known here; a test over each type
//! holds that (`unknown_keywords`). A document is outside data: it is bounded, and so is the list of what is
//! wrong with it.

use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::limits;

/// One place where a document is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Violation {
    /// Such as `tasks[2].priority`; `$` is the document itself.
    pub path: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum InvalidDocument {
    #[error("{bytes} bytes are more than {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("not JSON: {message}")]
    NotJson { message: String },
    #[error("{}{}", list(violations), more(*left_out))]
    Wrong { violations: Vec<Violation>, left_out: usize },
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn more(left_out: usize) -> String {
    if left_out == 0 { String::new() } else { format!("\nand {left_out} more") }
}

/// Reads a document of a published type, with the failing paths if it is not one.
pub fn parse<T: JsonSchema + DeserializeOwned>(
    text: &str,
    bytes_max: usize,
) -> Result<T, InvalidDocument> {
    if text.len() > bytes_max {
        return Err(InvalidDocument::TooLarge { bytes: text.len(), max: bytes_max });
    }
    let document: Value = serde_json::from_str(text)
        .map_err(|e| InvalidDocument::NotJson { message: e.to_string() })?;
    check(schema_for!(T).as_value(), &document)?;
    serde_json::from_value(document)
        .map_err(|e| Findings::one("$".to_owned(), e.to_string()).into_error())
}

/// Holds a document against a schema.
pub fn check(schema: &Value, document: &Value) -> Result<(), InvalidDocument> {
    let mut findings = Findings::default();
    Walker { root: schema }.walk(schema, document, "", &mut findings);
    findings.into_result()
}

/// What is wrong, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    named: Vec<Violation>,
    left_out: usize,
    /// How many say that the document is of another form altogether.
    forms: usize,
}

impl Findings {
    fn one(path: String, message: String) -> Findings {
        let mut findings = Findings::default();
        findings.push(&path, message);
        findings
    }

    pub(crate) fn push(&mut self, path: &str, message: impl Into<String>) {
        if self.named.len() == limits::VIOLATIONS_MAX {
            self.left_out += 1;
            return;
        }
        let path = if path.is_empty() { "$" } else { path }.to_owned();
        self.named.push(Violation { path, message: message.into() });
    }

    fn other_form(&mut self, path: &str, message: impl Into<String>) {
        self.forms += 1;
        self.push(path, message);
    }

    fn count(&self) -> usize {
        self.named.len() + self.left_out
    }

    fn into_error(self) -> InvalidDocument {
        InvalidDocument::Wrong { violations: self.named, left_out: self.left_out }
    }

    pub(crate) fn into_result(self) -> Result<(), InvalidDocument> {
        if self.named.is_empty() { Ok(()) } else { Err(self.into_error()) }
    }

    fn append(&mut self, other: Findings) {
        self.forms += other.forms;
        for violation in other.named {
            self.push(&violation.path, violation.message);
        }
        self.left_out += other.left_out;
    }
}

struct Walker<'s> {
    root: &'s Value,
}

impl Walker<'_> {
    fn walk(&self, schema: &Value, found: &Value, path: &str, findings: &mut Findings) {
        let schema = match schema {
            Value::Bool(true) => return,
            Value::Bool(false) => return findings.push(path, "does not belong here"),
            Value::Object(schema) => schema,
            _ => return,
        };
        let before = findings.count();
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#'));
        if let Some(target) = target.and_then(|pointer| self.root.pointer(pointer)) {
            self.walk(target, found, path, findings);
        }
        if let Some(kinds) = schema.get("type") {
            let named: Vec<&str> = match kinds {
                Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
                kind => kind.as_str().into_iter().collect(),
            };
            if !named.iter().any(|kind| is_kind(kind, found)) {
                return findings.other_form(path, format!("must be {}", named.join(" or ")));
            }
        }
        if let Some(expected) = schema.get("const").filter(|expected| *expected != found) {
            findings.other_form(path, format!("must be {expected}"));
        }
        let allowed = schema.get("enum").and_then(Value::as_array);
        if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(found)) {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            findings.push(path, format!("must be one of {}", allowed.join(", ")));
        }
        match found {
            Value::String(text) => text_size(schema, text, path, findings),
            Value::Number(number) => number_size(schema, number, path, findings),
            Value::Array(items) => self.items(schema, items, path, findings),
            Value::Object(fields) => self.fields(schema, fields, path, findings),
            Value::Null | Value::Bool(_) => {}
        }
        // What is wrong by itself would be wrong in each of the forms too.
        if findings.count() == before {
            self.forms(schema, found, path, findings);
        }
    }

    fn fields(
        &self,
        schema: &serde_json::Map<String, Value>,
        fields: &serde_json::Map<String, Value>,
        path: &str,
        findings: &mut Findings,
    ) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, value) in fields {
            let known = properties.and_then(|properties| properties.get(name));
            match (known, schema.get("additionalProperties")) {
                (Some(known), _) => self.walk(known, value, &member(path, name), findings),
                (None, Some(Value::Bool(false))) => {
                    findings.push(&member(path, name), "is not a known field");
                }
                (None, Some(rest)) => self.walk(rest, value, &member(path, name), findings),
                (None, None) => {}
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                findings.push(&member(path, name), "is missing");
            }
        }
    }

    fn items(
        &self,
        schema: &serde_json::Map<String, Value>,
        items: &[Value],
        path: &str,
        findings: &mut Findings,
    ) {
        let bound = |key| schema.get(key).and_then(Value::as_u64);
        if let Some(max) = bound("maxItems").filter(|max| items.len() as u64 > *max) {
            return findings.push(path, format!("has {} items, more than {max}", items.len()));
        }
        if let Some(min) = bound("minItems").filter(|min| (items.len() as u64) < *min) {
            findings.push(path, format!("has {} items, fewer than {min}", items.len()));
        }
        if let Some(each) = schema.get("items") {
            for (index, item) in items.iter().enumerate() {
                self.walk(each, item, &format!("{path}[{index}]"), findings);
            }
        }
    }

    fn forms(
        &self,
        schema: &serde_json::Map<String, Value>,
        found: &Value,
        path: &str,
        findings: &mut Findings,
    ) {
        for (key, only_one) in [("oneOf", true), ("anyOf", false)] {
            let Some(Value::Array(forms)) = schema.get(key) else { continue };
            let tried = forms.iter().map(|form| {
                let mut findings = Findings::default();
                self.walk(form, found, path, &mut findings);
                findings
            });
            let mut tried: Vec<Findings> = tried.collect();
            let fits = tried.iter().filter(|findings| findings.count() == 0).count();
            if fits == 1 || (fits > 1 && !only_one) {
                continue;
            }
            if fits > 1 {
                findings.push(path, "fits more than one form: use one of them");
                continue;
            }
            tried.sort_by_key(|findings| (findings.forms, findings.count()));
            let rank = |findings: &Findings| (findings.forms, findings.count());
            let nearest = tried.first().map(rank);
            tried.retain(|findings| Some(rank(findings)) == nearest);
            if tried.len() == 1 {
                findings.append(tried.remove(0));
                continue;
            }
            let first = |findings: &Findings| findings.named.first().map(ToString::to_string);
            let reasons: Vec<String> = tried.iter().filter_map(first).collect();
            findings.push(path, format!("fits none of its forms: {}", reasons.join("; or ")));
        }
    }
}

fn member(path: &str, name: &str) -> String {
    let name = limits::head(name, limits::TASK_NAME_CHARS_MAX);
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn is_kind(kind: &str, found: &Value) -> bool {
    match kind {
        "null" => found.is_null(),
        "boolean" => found.is_boolean(),
        "string" => found.is_string(),
        "integer" => found.is_u64() || found.is_i64(),
        "number" => found.is_number(),
        "array" => found.is_array(),
        "object" => found.is_object(),
        _ => false,
    }
}

fn text_size(
    schema: &serde_json::Map<String, Value>,
    text: &str,
    path: &str,
    findings: &mut Findings,
) {
    let bound = |key| schema.get(key).and_then(Value::as_u64);
    let length = text.chars().count() as u64;
    if let Some(max) = bound("maxLength").filter(|max| length > *max) {
        findings.push(path, format!("is longer than {max} characters"));
    }
    if let Some(min) = bound("minLength").filter(|min| length < *min) {
        findings.push(path, format!("is shorter than {min} characters"));
    }
    let uuid = schema.get("format").and_then(Value::as_str) == Some("uuid");
    if uuid && !is_uuid(text) {
        findings.push(path, "must be a UUID");
    }
}

fn number_size(
    schema: &serde_json::Map<String, Value>,
    number: &serde_json::Number,
    path: &str,
    findings: &mut Findings,
) {
    let bound = |key| schema.get(key).and_then(Value::as_i64).map(i128::from);
    let format = schema.get("format").and_then(Value::as_str);
    let widest = match format {
        Some("uint32") => Some(i128::from(u32::MAX)),
        _ => None,
    };
    let Some(number) = number.as_i128() else { return };
    if let Some(max) = bound("maximum").or(widest).filter(|max| number > *max) {
        findings.push(path, format!("must be at most {max}"));
    }
    if let Some(min) = bound("minimum").filter(|min| number < *min) {
        findings.push(path, format!("must be at least {min}"));
    }
}

fn is_uuid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match dashes.contains(&at) {
            true => byte == b'-',
            false => byte.is_ascii_hexdigit(),
        })
}

/// The keywords of a schema that are not enforced here; empty for every type that is parsed.
#[cfg(test)]
pub(crate) fn unknown_keywords(schema: &Value) -> Vec<String> {
    const ENFORCED: [&str; 16] = [
        "$ref",
        "type",
        "const",
        "enum",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "oneOf",
        "anyOf",
    ];
    const SAID_ONLY: [&str; 6] = ["$schema", "title", "description", "default", "$defs", "format"];
    let Value::Object(fields) = schema else { return Vec::new() };
    let mut unknown = Vec::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("properties" | "$defs", Value::Object(named)) => {
                unknown.extend(named.values().flat_map(unknown_keywords));
            }
            ("oneOf" | "anyOf", Value::Array(forms)) => {
                unknown.extend(forms.iter().flat_map(unknown_keywords));
            }
            ("items" | "additionalProperties", _) => unknown.extend(unknown_keywords(value)),
            ("format", Value::String(format)) if format != "uuid" && format != "uint32" => {
                unknown.push(format!("format {format}"));
            }
            (key, _) if ENFORCED.contains(&key) || SAID_ONLY.contains(&key) => {}
            (key, _) => unknown.push(key.to_owned()),
        }
    }
    unknown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrong(schema: &Value, document: &Value) -> Vec<String> {
        match check(schema, document) {
            Ok(()) => Vec::new(),
            Err(InvalidDocument::Wrong { violations, .. }) => {
                violations.iter().map(ToString::to_string).collect()
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// An author who is told "invalid" starts to guess; a path ends that.
    #[test]
    fn each_violation_is_named_with_its_path() {
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["id"],
            "properties": {
                "id": {"type": "string", "format": "uuid"},
                "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"$ref": "#/$defs/item"}},
                "word": {"enum": ["a", "b"]},
            },
            "$defs": {"item": {"type": ["integer", "null"], "minimum": 1, "maximum": 3}},
        });
        assert_eq!(wrong(&schema, &json!({"id": "123E4567-e89b-12d3-a456-426614174000"})), [""; 0]);
        assert_eq!(wrong(&schema, &json!([])), ["$: must be object"]);
        let document = json!({"id": "x", "list": [0, null], "word": "c", "extra": 1});
        let expected = [
            "extra: is not a known field",
            "id: must be a UUID",
            "list[0]: must be at least 1",
            "word: must be one of \"a\", \"b\"",
        ];
        assert_eq!(wrong(&schema, &document), expected);
        let document = json!({"list": [4, "x"]});
        let expected =
            ["list[0]: must be at most 3", "list[1]: must be integer or null", "id: is missing"];
        assert_eq!(wrong(&schema, &document), expected);
        let long = json!({"id": "123e4567-e89b-12d3-a456-426614174000", "list": [1, 1, 1]});
        assert_eq!(wrong(&schema, &long), ["list: has 3 items, more than 2"]);
    }

    #[test]
    fn the_nearest_of_several_forms_is_explained() {
        let schema = json!({"oneOf": [
            {"properties": {"kind": {"const": "a"}, "y": false}, "required": ["kind", "x"]},
            {"properties": {"kind": {"const": "b"}, "x": false}, "required": ["kind", "y"]},
        ]});
        assert_eq!(wrong(&schema, &json!({"kind": "a", "x": 1})), [""; 0]);
        assert_eq!(wrong(&schema, &json!({"kind": "a"})), ["x: is missing"]);
        let both = ["y: does not belong here"];
        assert_eq!(wrong(&schema, &json!({"kind": "a", "x": 1, "y": 1})), both);
        let neither = wrong(&schema, &json!({"kind": "c"}));
        let expected = "$: fits none of its forms: kind: must be \"a\"; or kind: must be \"b\"";
        assert_eq!(neither, [expected]);
        let twice = json!({"oneOf": [{"required": ["x"]}, {"required": ["y"]}]});
        let expected = ["$: fits more than one form: use one of them"];
        assert_eq!(wrong(&twice, &json!({"x": 1, "y": 1})), expected);
    }

    #[test]
    fn the_list_of_violations_is_bounded() {
        let schema = json!({"items": {"type": "null"}});
        let error = check(&schema, &json!(vec![1; 80])).unwrap_err();
        assert!(error.to_string().ends_with("[49]: must be null\nand 30 more"), "{error}");
    }
}
