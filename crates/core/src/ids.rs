//! Names for the things that events speak of.
//!
//! Missions, tasks and fences are counted by the engine itself, so the same history always gives
//! the same ids. People see `m1` and the names of the plan (`3-1`); the journal sees numbers.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A mission: one goal on one repository. People type it as `m1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MissionId(pub u32);

/// A task, counted over the whole project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u32);

/// A number that is never given twice. Whatever the engine sets in motion carries one, and a
/// message that carries another than the current one comes from a straggler.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

/// The place of a record in the journal; the first one is 1.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

/// Chosen by whoever asks, so that asking twice does not open two missions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub String);

/// Who did it: a person, a configuration file, or Kapelle itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Actor(pub String);

impl Actor {
    #[must_use]
    pub fn kapelle() -> Actor {
        Actor("kapelle".into())
    }

    /// The rules of a mission, where they answer for a person.
    #[must_use]
    pub fn configuration() -> Actor {
        Actor("configuration".into())
    }
}

/// What a member of the team does. Projects may show other names for them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Orchestrator,
    Router,
    Merger,
    Librarian,
    Planner,
    Researcher,
    Developer,
    Tester,
    Judge,
    Reviewer,
    Breaker,
    Devops,
    PromptEngineer,
    ProductManager,
}

impl Role {
    pub const ALL: [Role; 14] = [
        Role::Orchestrator,
        Role::Router,
        Role::Merger,
        Role::Librarian,
        Role::Planner,
        Role::Researcher,
        Role::Developer,
        Role::Tester,
        Role::Judge,
        Role::Reviewer,
        Role::Breaker,
        Role::Devops,
        Role::PromptEngineer,
        Role::ProductManager,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Orchestrator => "orchestrator",
            Role::Router => "router",
            Role::Merger => "merger",
            Role::Librarian => "librarian",
            Role::Planner => "planner",
            Role::Researcher => "researcher",
            Role::Developer => "developer",
            Role::Tester => "tester",
            Role::Judge => "judge",
            Role::Reviewer => "reviewer",
            Role::Breaker => "breaker",
            Role::Devops => "devops",
            Role::PromptEngineer => "prompt_engineer",
            Role::ProductManager => "product_manager",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A seat in the team, such as `developer-2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId {
    pub role: Role,
    pub seat: u32,
}

/// A git commit, as its full hexadecimal name. Events and effects pass many of them around: an
/// allocation for each would cost more than the decision, and so would counting who shares it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit {
    /// Zeroes behind the last.
    digits: [u8; COMMIT_DIGITS_MAX],
    len: u8,
}

/// Those of SHA-256; SHA-1 has 40.
const COMMIT_DIGITS_MAX: usize = 64;

impl Commit {
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Never anything but digits.
        std::str::from_utf8(&self.digits[..usize::from(self.len)]).unwrap_or_default()
    }

    /// The form that people read; ten digits are unambiguous in all but giant repositories.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.as_str()[..10]
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Commit").field(&self.as_str()).finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} expected, found {found:?}")]
pub struct ParseIdError {
    what: &'static str,
    found: String,
}

fn wrong(what: &'static str, found: &str) -> ParseIdError {
    /// Enough of a wrong id to recognise it, whatever its length.
    const SHOWN_CHARS_MAX: usize = 60;
    ParseIdError { what, found: found.chars().take(SHOWN_CHARS_MAX).collect() }
}

impl FromStr for Commit {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Commit, ParseIdError> {
        let hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !hex || (text.len() != 40 && text.len() != COMMIT_DIGITS_MAX) {
            return Err(wrong("a full commit hash", text));
        }
        let mut digits = [0; COMMIT_DIGITS_MAX];
        digits[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Commit { digits, len: text.len() as u8 })
    }
}

impl FromStr for MissionId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<MissionId, ParseIdError> {
        text.strip_prefix('m')
            .and_then(|digits| digits.parse().ok())
            .map(MissionId)
            .ok_or_else(|| wrong("a mission such as m1", text))
    }
}

impl FromStr for AgentId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<AgentId, ParseIdError> {
        let parsed = text.rsplit_once('-').and_then(|(role, seat)| {
            let role = Role::ALL.into_iter().find(|known| known.name() == role)?;
            Some(AgentId { role, seat: seat.parse().ok()? })
        });
        parsed.ok_or_else(|| wrong("an agent such as developer-2", text))
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl MissionId {
    /// Where its tasks are merged before they are delivered.
    #[must_use]
    pub fn branch(self) -> String {
        format!("kapelle/{self}")
    }
}

impl fmt::Display for MissionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.role, self.seat)
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Commit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Commit {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Ids that are written as text in JSON go through `Display` and `FromStr`.
macro_rules! as_text {
    ($($id:ty),+) => {$(
        impl Serialize for $id {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $id {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

as_text!(MissionId, AgentId);

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits reach git's command line, so nothing but a hash may become one.
    #[test]
    fn only_full_hashes_are_commits() {
        assert!("a".repeat(40).parse::<Commit>().is_ok());
        assert!("0".repeat(64).parse::<Commit>().is_ok());
        for wrong in ["", "HEAD", "--force", &"a".repeat(39), &"A".repeat(40), &"g".repeat(40)] {
            let refused = ParseIdError { what: "a full commit hash", found: wrong.to_owned() };
            assert_eq!(wrong.parse::<Commit>(), Err(refused));
        }
        // Of a flood the beginning is enough to recognise it.
        let flood = "x".repeat(1_000).parse::<Commit>().unwrap_err();
        assert_eq!(flood.found, "x".repeat(60));
    }

    #[test]
    fn ids_read_back_as_they_were_written() {
        let agent = AgentId { role: Role::PromptEngineer, seat: 12 };
        assert_eq!(agent.to_string().parse(), Ok(agent));
        assert_eq!("m7".parse(), Ok(MissionId(7)));
        assert_eq!(serde_json::to_string(&MissionId(7)).unwrap(), "\"m7\"");
    }

    #[test]
    fn what_is_no_id_is_refused_by_name() {
        for text in ["developer", "developer-", "developer-x", "cook-1", "-1"] {
            let (what, found) = ("an agent such as developer-2", text.to_owned());
            assert_eq!(text.parse::<AgentId>(), Err(ParseIdError { what, found }));
        }
        for text in ["7", "m", "mx", "m-1", ""] {
            let (what, found) = ("a mission such as m1", text.to_owned());
            assert_eq!(text.parse::<MissionId>(), Err(ParseIdError { what, found }));
        }
    }

    #[test]
    fn role_names_are_those_of_the_journal() {
        for role in Role::ALL {
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
        }
    }
}
