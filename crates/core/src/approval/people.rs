//! Who is who, and what each may do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::Actor;
use crate::limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PersonRole {
    Reader,
    Reviewer,
    Author,
    Admin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    Read,
    /// Missions, answers to questions, priorities.
    Direct,
    Approve,
    Override,
    /// To override where a person's approval is due.
    BypassGate,
    ManagePeople,
}

impl PersonRole {
    #[must_use]
    pub fn rights(self) -> &'static [Right] {
        match self {
            PersonRole::Reader => &[Right::Read],
            PersonRole::Reviewer => &[Right::Read, Right::Approve],
            PersonRole::Author => &[Right::Read, Right::Direct, Right::Override],
            PersonRole::Admin => &[
                Right::Read,
                Right::Direct,
                Right::Approve,
                Right::Override,
                Right::BypassGate,
                Right::ManagePeople,
            ],
        }
    }

    #[must_use]
    pub fn may(self, right: Right) -> bool {
        self.rights().contains(&right)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PersonRole::Reader => "reader",
            PersonRole::Reviewer => "reviewer",
            PersonRole::Author => "author",
            PersonRole::Admin => "admin",
        }
    }
}

/// The people that are known. Agents are not among them, so no agent can approve anything. While
/// nobody is known, whoever uses Kapelle is trusted with everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct People {
    roles: BTreeMap<String, PersonRole>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeopleRefused {
    #[error("{person} is not a person that is known here")]
    Unknown { person: String },
    #[error("{person} is {role} and may not do this: it takes the right to {}", right.name())]
    NoRight { person: String, role: &'static str, right: Right },
    #[error("the first person to be known makes itself admin")]
    NoAdmin,
    #[error("{person} is the last admin")]
    LastAdmin { person: String },
    #[error("{} people are enough", limits::PEOPLE_MAX)]
    TooMany,
}

impl Right {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Direct => "direct missions",
            Right::Approve => "approve",
            Right::Override => "override",
            Right::BypassGate => "pass a human gate",
            Right::ManagePeople => "manage people",
        }
    }
}

impl People {
    #[must_use]
    pub fn role(&self, person: &Actor) -> Option<PersonRole> {
        self.roles.get(&person.0).copied()
    }

    pub fn require(&self, person: &Actor, right: Right) -> Result<(), PeopleRefused> {
        let name = || limits::head(&person.0, limits::TITLE_CHARS_MAX).to_owned();
        match self.role(person) {
            None if self.roles.is_empty() => Ok(()),
            None => Err(PeopleRefused::Unknown { person: name() }),
            Some(role) if role.may(right) => Ok(()),
            Some(role) => Err(PeopleRefused::NoRight { person: name(), role: role.name(), right }),
        }
    }

    /// Whether `by` may give `person` this role, or none. The first person of all becomes admin.
    pub fn assign(
        &self,
        by: &Actor,
        person: &Actor,
        role: Option<PersonRole>,
    ) -> Result<(), PeopleRefused> {
        if self.roles.is_empty() {
            let first = role == Some(PersonRole::Admin) && by == person;
            return first.then_some(()).ok_or(PeopleRefused::NoAdmin);
        }
        self.require(by, Right::ManagePeople)?;
        let admins = self.roles.values().filter(|role| **role == PersonRole::Admin).count();
        let was_admin = self.role(person) == Some(PersonRole::Admin);
        if was_admin && role != Some(PersonRole::Admin) && admins == 1 {
            return Err(PeopleRefused::LastAdmin { person: person.0.clone() });
        }
        if self.role(person).is_none() && self.roles.len() >= limits::PEOPLE_MAX {
            return Err(PeopleRefused::TooMany);
        }
        Ok(())
    }

    pub fn assigned(&mut self, person: &Actor, role: Option<PersonRole>) {
        match role {
            Some(role) => {
                self.roles.insert(person.0.clone(), role);
            }
            None => {
                self.roles.remove(&person.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Actor {
        Actor(name.into())
    }

    /// The table of rights, whole.
    #[test]
    fn roles_are_the_agreed_rights() {
        let may =
            |role: PersonRole| role.rights().iter().map(|right| right.name()).collect::<Vec<_>>();
        assert_eq!(may(PersonRole::Reader), ["read"]);
        assert_eq!(may(PersonRole::Reviewer), ["read", "approve"]);
        assert_eq!(may(PersonRole::Author), ["read", "direct missions", "override"]);
        assert_eq!(may(PersonRole::Admin).len(), 6);
    }

    #[test]
    fn strangers_and_agents_have_no_rights() {
        let mut people = People::default();
        people.assigned(&who("ada"), Some(PersonRole::Reader));
        let refused = people.require(&who("developer-2"), Right::Read).unwrap_err();
        assert_eq!(refused.to_string(), "developer-2 is not a person that is known here");
        let refused = people.require(&who("ada"), Right::Approve).unwrap_err();
        let told = "ada is reader and may not do this: it takes the right to approve";
        assert_eq!(refused.to_string(), told);
    }

    /// Without an admin nobody could ever let anybody in again.
    #[test]
    fn the_last_admin_stays_and_the_first_makes_itself() {
        let mut people = People::default();
        let (ada, bob) = (who("ada"), who("bob"));
        let admin = Some(PersonRole::Admin);
        let early = people.assign(&ada, &bob, admin);
        assert_eq!(early, Err(PeopleRefused::NoAdmin), "nobody makes others before that");
        assert_eq!(people.assign(&ada, &ada, admin), Ok(()));
        people.assigned(&ada, admin);
        let last = Err(PeopleRefused::LastAdmin { person: "ada".into() });
        assert_eq!(people.assign(&ada, &ada, None), last);
        assert_eq!(people.assign(&ada, &bob, admin), Ok(()));
        people.assigned(&bob, admin);
        assert_eq!(people.assign(&ada, &ada, None), Ok(()));
        people.assigned(&ada, None);
        assert_eq!(people.role(&ada), None);
        for n in 1..limits::PEOPLE_MAX {
            people.assigned(&who(&n.to_string()), Some(PersonRole::Reader));
        }
        let full = people.assign(&bob, &who("new"), Some(PersonRole::Reader));
        assert_eq!(full, Err(PeopleRefused::TooMany));
    }
}
