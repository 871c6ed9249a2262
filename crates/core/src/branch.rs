//! Names of branches (C-11): where a mission gathers its work, and what a task is seen on.

use serde::{Deserialize, Serialize};

use crate::ids::MissionId;

/// Of a goal or a title, in the name of a branch.
const WORDS_CHARS_MAX: usize = 40;

/// Git takes longer ones; people do not.
const TEMPLATE_CHARS_MAX: usize = 100;

const MISSION: &str = "{mission}";
const GOAL: &str = "{goal}";

/// Such as `feature/{mission}-{goal}`, for those who want their missions on feature branches (GIT-03).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BranchTemplate(pub String);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum InvalidTemplate {
    #[error("the branch {template:?} has no {{mission}} in it: two missions would share it")]
    NoMission { template: String },
    #[error(
        "the branch {template:?} is no name for one: small letters, digits, - and _, parted by /, with \
         {{mission}} and perhaps {{goal}}, at most {TEMPLATE_CHARS_MAX} characters"
    )]
    Name { template: String },
}

impl BranchTemplate {
    pub fn validate(&self) -> Result<(), InvalidTemplate> {
        let template = self.0.clone();
        if !template.contains(MISSION) {
            return Err(InvalidTemplate::NoMission { template });
        }
        let filled = template.replace(MISSION, "m1").replace(GOAL, "goal");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        let fine =
            |part: &str| !part.is_empty() && part.chars().all(plain) && !part.starts_with('-');
        let short = template.chars().count() <= TEMPLATE_CHARS_MAX;
        match short && filled.split('/').all(fine) {
            true => Ok(()),
            false => Err(InvalidTemplate::Name { template }),
        }
    }

    #[must_use]
    pub fn name(&self, mission: MissionId, goal: &str) -> String {
        let filled = self.0.replace(MISSION, &mission.to_string()).replace(GOAL, &slug(goal));
        // A goal without a letter leaves nothing behind its hyphen.
        filled.split('/').map(|part| part.trim_end_matches('-')).collect::<Vec<_>>().join("/")
    }
}

/// A text as part of a branch's name: small letters, digits and single hyphens.
#[must_use]
pub fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
    let plain: String = text.chars().map(plain).collect();
    let words = plain.split_whitespace().collect::<Vec<_>>().join("-");
    words.chars().take(WORDS_CHARS_MAX).collect::<String>().trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_becomes_part_of_a_name() {
        assert_eq!(slug("Login form"), "login-form");
        assert_eq!(slug("../../x: \u{fc} --force"), "x-force");
        assert_eq!(slug("\u{fc}"), "");
        let long = slug(&"word ".repeat(50));
        assert!(long.len() <= WORDS_CHARS_MAX && !long.ends_with('-'), "{long}");
    }

    #[test]
    fn a_mission_is_on_a_branch_of_its_own() {
        let template = |text: &str| BranchTemplate(text.into());
        let name = |text: &str, goal| template(text).name(MissionId(7), goal);
        assert_eq!(name("feature/{mission}-{goal}", "Add a login"), "feature/m7-add-a-login");
        assert_eq!(name("feature/{mission}-{goal}", "!?"), "feature/m7");
        assert_eq!(template("feature/{mission}-{goal}").validate(), Ok(()));
        let shared = template("feature/{goal}").validate();
        assert_eq!(shared, Err(InvalidTemplate::NoMission { template: "feature/{goal}".into() }));
        for wrong in
            ["a/{mission}/../b", "-x/{mission}", "a//{mission}", "A/{mission}", "{mission}~1"]
        {
            let refused = InvalidTemplate::Name { template: wrong.into() };
            assert_eq!(template(wrong).validate(), Err(refused));
        }
    }
}
