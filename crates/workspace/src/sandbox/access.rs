//! Landlock: what may be read and changed, once more, by the kernel's own rules.
//!
//! In a box with a file system of its own this is the second wall. In a box without one it is the
//! first, and stops reading too.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

use super::mandate::{Access, Sockets};

/// What we know how to ask for. An older kernel gives less, and `enforced` says so.
const NEWEST: ABI = ABI::V6;

/// How much of it the kernel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enforced {
    Fully,
    Partly,
    Not,
}

/// Puts the calling thread, and everything that it starts, behind these rules for good.
pub(super) fn confine(access: &Access, sockets: Option<Sockets>) -> Result<Enforced, RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    if sockets == Some(Sockets::Local) {
        // No rule allows a port: together with the filter on calls, twice nothing.
        rules = rules.handle_access(AccessNet::from_all(NEWEST))?;
    }
    let status: RestrictionStatus = rules
        .create()?
        .add_rules(path_beneath_rules(&access.read, AccessFs::from_read(NEWEST)))?
        .add_rules(path_beneath_rules(&access.write, AccessFs::from_all(NEWEST)))?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Enforced::Fully,
        RulesetStatus::PartiallyEnforced => Enforced::Partly,
        RulesetStatus::NotEnforced => Enforced::Not,
    })
}
