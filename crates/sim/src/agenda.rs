//! What will happen in the world, in the order of time.

use std::collections::BTreeMap;

use kapelle_core::{Command, Fence, Timestamp};

#[derive(Debug, Clone)]
pub(crate) enum Thing {
    /// A host carries out what it was told to, if it still lives the same life.
    Perform {
        fence: Fence,
        life: u32,
    },
    /// A command reaches the conductor.
    Arrive {
        command: Box<Command>,
        from: Sender,
    },
    /// The host reports which attempts are alive.
    Beat,
    /// A person looks at the missions and perhaps does something.
    Person,
    /// Somebody who does not know of Kapelle moves a branch.
    Stranger,
    HostRestart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    Host,
    Person,
}

#[derive(Debug, Default)]
pub(crate) struct Agenda {
    things: BTreeMap<(Timestamp, u64), Thing>,
    added: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: Timestamp, thing: Thing) {
        self.added += 1;
        self.things.insert((at, self.added), thing);
    }

    /// The clock that it goes by was set back.
    pub(crate) fn set_back(&mut self, ms: u64) {
        let earlier = |at: Timestamp| Timestamp(at.0.saturating_sub(ms));
        let things = std::mem::take(&mut self.things).into_iter();
        self.things = things.map(|((at, number), thing)| ((earlier(at), number), thing)).collect();
    }

    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.things.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<Thing> {
        let first = self.things.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Thing) -> bool) {
        self.things.retain(|_, thing| keep(thing));
    }
}
