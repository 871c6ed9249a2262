//! Breakers, rate limits and file locks. Locks end without an event of their own, with whatever ends their
//! task; the state knows, so it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use kapelle_core::breaker::{Breaker, BreakerKey};
use kapelle_core::locks::LockGrant;
use kapelle_core::rate::Provider;
use kapelle_core::{Actor, Event, Fence, MissionId, Record, State, TaskId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Changes, Fold};
use crate::tables::{Of, hindrances};
use crate::value::Value;

/// The files that are locked: exactly those that are in the state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Locks {
    held: BTreeMap<TaskId, BTreeMap<Arc<str>, Term>>,
    /// Of all tasks together.
    count: usize,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Term {
    locked_at: Timestamp,
    expires_at: Timestamp,
}

impl Fold {
    /// The arms of `tell` about breakers, rate limits and locks.
    pub(super) fn tell_of_hindrances(&mut self, record: &Record, changes: &mut Changes) {
        match &record.event {
            Event::BreakerMoved { key, to, by } => {
                write_breaker(key, *to, (by, record.at), changes)
            }
            Event::ProviderParked { provider, until } => {
                let (status, by) = ("parked", Actor::kapelle());
                write_limit(provider, (status, Some(*until)), (&by, record.at), changes);
            }
            Event::ProviderBack { provider, by } => {
                write_limit(provider, ("in_service", None), (by, record.at), changes);
            }
            Event::FilesLocked { lock } => self.locks.lock(&self.state, lock, changes),
            _ => {}
        }
    }

    /// A live attempt keeps the files of its task.
    pub(super) fn extend_locks(&mut self, fence: Fence, until: Timestamp, changes: &mut Changes) {
        if let Some(lease) = self.state.lease(fence) {
            self.locks.extend(lease.task, until, changes);
        }
    }

    /// What protected a mission goes with it.
    pub(super) fn forget_breaker(&self, mission: MissionId, at: Timestamp, changes: &mut Changes) {
        let key = BreakerKey::Mission(mission);
        match self.state.breakers().state(&key) {
            Breaker::Closed { .. } => {}
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => {
                write_breaker(&key, Breaker::SOUND, (&Actor::kapelle(), at), changes);
            }
        }
    }
}

impl Locks {
    fn lock(&mut self, before: &State, grant: &LockGrant, changes: &mut Changes) {
        let LockGrant { task, paths, locked_at, expires_at } = grant;
        let term = Term { locked_at: *locked_at, expires_at: *expires_at };
        for path in paths {
            if let Some(lock) = before.locks().lock(path) {
                self.take(lock.holder, path);
            }
            write_lock(path, *task, term, None, changes);
            let new = self.held.entry(*task).or_default().insert(Arc::clone(path), term);
            self.count += usize::from(new.is_none());
        }
    }

    fn take(&mut self, holder: TaskId, path: &str) {
        let Some(paths) = self.held.get_mut(&holder) else { return };
        self.count -= usize::from(paths.remove(path).is_some());
        if paths.is_empty() {
            self.held.remove(&holder);
        }
    }

    fn extend(&mut self, task: TaskId, until: Timestamp, changes: &mut Changes) {
        for (path, term) in self.held.get_mut(&task).into_iter().flatten() {
            if term.expires_at < until {
                term.expires_at = until;
                write_lock(path, task, *term, None, changes);
            }
        }
    }

    /// Frees what is free since the event. The state is the one after it.
    pub(super) fn settle(&mut self, state: &State, at: Timestamp, changes: &mut Changes) {
        if self.count == state.locks().len() {
            return;
        }
        for (task, paths) in &mut self.held {
            if state.locks().held_by(*task).count() == paths.len() {
                continue;
            }
            let is_free = |path: &Arc<str>, _: &mut Term| {
                state.locks().lock(path).is_none_or(|lock| lock.holder != *task)
            };
            for (path, term) in paths.extract_if(.., is_free) {
                write_lock(&path, *task, term, Some(at), changes);
                self.count -= 1;
            }
        }
        self.held.retain(|_, paths| !paths.is_empty());
    }
}

fn write_lock(
    path: &str,
    task: TaskId,
    term: Term,
    freed_at: Option<Timestamp>,
    changes: &mut Changes,
) {
    let row = [
        path.into(),
        task.0.into(),
        Value::name(if freed_at.is_some() { "free" } else { "held" }),
        term.locked_at.into(),
        term.expires_at.into(),
        freed_at.into(),
    ];
    changes.put(Of::FileLocks, row);
}

fn write_limit(
    provider: &Provider,
    (status, until): (&'static str, Option<Timestamp>),
    (by, at): (&Actor, Timestamp),
    changes: &mut Changes,
) {
    let row = [(&*provider.0).into(), Value::name(status), at.into(), until.into(), (&by.0).into()];
    changes.put(Of::RateLimits, row);
}

fn write_breaker(
    key: &BreakerKey,
    to: Breaker,
    (by, at): (&Actor, Timestamp),
    changes: &mut Changes,
) {
    let name = match key {
        BreakerKey::Provider(provider) => provider.0.to_string(),
        BreakerKey::Mission(mission) => mission.to_string(),
    };
    let until = match to {
        Breaker::Open { until } => until,
        Breaker::Closed { .. } | Breaker::HalfOpen { .. } => None,
    };
    let row = [
        Value::name(hindrances::protected(key)),
        name.into(),
        Value::name(hindrances::breaker(&to)),
        at.into(),
        until.into(),
        (&by.0).into(),
    ];
    changes.put(Of::Breakers, row);
}
