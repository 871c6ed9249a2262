//! Members: models, and the families they come from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::policy::Size;
use crate::routing::{Lineage, ModelName};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub model: ModelName,
    pub lineage: Lineage,
}

impl Member {
    #[must_use]
    pub fn new(model: &str, lineage: &str) -> Member {
        Member { model: ModelName(model.into()), lineage: Lineage(lineage.into()) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PanelRefused {
    #[error("{first} and {second} are of one family, {lineage}; a quorum needs different ones")]
    SameLineage { lineage: Lineage, first: ModelName, second: ModelName },
    #[error("{model} judges work of its own family, {lineage}")]
    AuthorsLineage { lineage: Lineage, model: ModelName },
    #[error("{members} members are more than a council seats, {max}")]
    TooMany { members: usize, max: usize },
}

/// Whether these may vote together about work of the author's family (CON-02).
pub fn check_panel(panel: &[Member], author: Option<&Lineage>) -> Result<(), PanelRefused> {
    let (members, max) = (panel.len(), Size::Full.members());
    if members > max {
        return Err(PanelRefused::TooMany { members, max });
    }
    let mut seen: BTreeMap<&Lineage, &ModelName> = BTreeMap::new();
    for member in panel {
        let lineage = member.lineage.clone();
        if author == Some(&member.lineage) {
            let model = member.model.clone();
            return Err(PanelRefused::AuthorsLineage { lineage, model });
        }
        if let Some(first) = seen.insert(&member.lineage, &member.model) {
            let (first, second) = (first.clone(), member.model.clone());
            return Err(PanelRefused::SameLineage { lineage, first, second });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CON-02: two sizes of one model agree for the wrong reason.
    #[test]
    fn two_voters_of_one_family_are_rejected() {
        let (a, b) = (Member::new("gpt-large", "gpt"), Member::new("gpt-small", "gpt"));
        let panel = [a, Member::new("gemini", "gemini"), b];
        let told = check_panel(&panel, None).unwrap_err().to_string();
        let family =
            "gpt-large and gpt-small are of one family, gpt; a quorum needs different ones";
        assert_eq!(told, family);
        assert_eq!(check_panel(&panel[..2], None), Ok(()));
    }

    #[test]
    fn nobody_votes_on_work_of_its_own_family() {
        let panel = [Member::new("gemini", "gemini")];
        let author = Lineage("gemini".into());
        assert!(matches!(
            check_panel(&panel, Some(&author)),
            Err(PanelRefused::AuthorsLineage { .. })
        ));
    }
}
