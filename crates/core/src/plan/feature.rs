//! Features: specified in files first, implemented after.

use serde::Serialize;

/// What must exist before a feature is implemented (PLN-11).
pub const DOCUMENTS: [&str; 3] = ["spec.md", "plan.md", "tasks.md"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("the feature is not ready: {} missing", missing.join(", "))]
pub struct NotReady {
    pub missing: Vec<&'static str>,
}

/// Whether a feature whose folder holds these files may be implemented.
pub fn ready<'a>(present: impl IntoIterator<Item = &'a str>) -> Result<(), NotReady> {
    let mut missing = DOCUMENTS.to_vec();
    for file in present {
        missing.retain(|document| *document != file);
    }
    if missing.is_empty() { Ok(()) } else { Err(NotReady { missing }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code that is written before its specification becomes the specification.
    #[test]
    fn a_feature_is_ready_when_all_three_documents_exist() {
        assert_eq!(ready(["tasks.md", "spec.md", "notes.md", "plan.md"]), Ok(()));
        let refused = ready(["spec.md"]).unwrap_err();
        assert_eq!(refused.missing, ["plan.md", "tasks.md"]);
        assert_eq!(refused.to_string(), "the feature is not ready: plan.md, tasks.md missing");
    }
}
