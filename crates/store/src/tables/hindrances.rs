//! What keeps ready tasks from being taken: breakers that are open, providers that asked to be left
//! alone, files that others have.

use kapelle_core::breaker::{Breaker, BreakerKey};

use super::{Table, int, one_of, table, text};

names!(protected, PROTECTED: BreakerKey =
    BreakerKey::Provider(_) => "provider",
    BreakerKey::Mission(_) => "mission");
names!(breaker, BREAKERS: Breaker =
    Breaker::Closed { .. } => "closed",
    Breaker::Open { .. } => "open",
    Breaker::HalfOpen { .. } => "half_open");

pub(super) fn breakers() -> Table {
    let columns = vec![
        one_of("kind", PROTECTED.iter().copied(), "what it protects"),
        text("name", "of the provider, or the mission's id"),
        one_of("state", BREAKERS.iter().copied(), "closed: it lets everybody through"),
        int("since", ""),
        int("until", "when one call may try again; null if a person has to reset it").or_null(),
        text("moved_by", ""),
    ];
    let about = "Breakers that have ever opened, and how they stand.";
    table("breakers", about, 2, columns).indexed(&[("state", "state <> 'closed'")])
}

pub(super) fn file_locks() -> Table {
    let columns = vec![
        text("path", ""),
        int("task_id", "who has it, or had it last").refers_to("tasks"),
        one_of("status", ["held", "free"], ""),
        int("locked_at", ""),
        int("expires_at", "unless it is renewed"),
        int("freed_at", "").or_null(),
    ];
    let about = "Files that tasks have, or had, to themselves.";
    table("file_locks", about, 1, columns).indexed(&[("task_id", "status = 'held'")])
}

pub(super) fn rate_limits() -> Table {
    let columns = vec![
        text("provider", ""),
        one_of("status", ["parked", "in_service"], "parked: it asked to be left alone"),
        int("since", ""),
        int("until", "when it is asked again, if it is parked").or_null(),
        text("moved_by", ""),
    ];
    let about = "Providers whose rate limit was ever reached, and how they stand.";
    table("rate_limits", about, 1, columns).indexed(&[("status", "status = 'parked'")])
}
