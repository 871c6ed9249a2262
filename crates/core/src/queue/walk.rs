//! What an agent could take if it may not take the best: the others, by rank.
//!
//! Tasks that the same things decide about stand in one lane, so what holds back the first of them holds
//! back all, and nobody has to ask each. Whoever walks says how much cannot start together with a
//! task; the walk is as long as there are lanes, not as tasks.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::lane::{ByRank, Lane};
use super::{LaneKey, Pick, Pull, Source};
use crate::ids::MissionId;

/// What decides whether a task may start, beside its mission, its agent and what is free at the
/// moment. Of tasks that are alike in it all may start, or none; retries differ in what they will
/// probably cost.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Class(pub u16);

impl Class {
    pub(super) const FIRST: Class = Class(0);
    pub(super) const LAST: Class = Class(u16::MAX);
}

/// How much cannot start for the same reason as a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBack {
    /// It alone, as far as anybody knows.
    Task,
    /// All that is of its class.
    Class,
    Mission,
}

pub struct Walk<'a> {
    lanes: Vec<Rest<'a>>,
    /// Where the last task came from.
    last: Option<LaneKey>,
}

impl fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = self.lanes.iter().map(|lane| (lane.key, lane.head));
        f.debug_map().entries(heads).finish()
    }
}

/// What is left of a lane.
struct Rest<'a> {
    key: LaneKey,
    mission: MissionId,
    head: ByRank,
    tail: Box<dyn Iterator<Item = ByRank> + 'a>,
}

impl<'a> Walk<'a> {
    /// At most so many of each lane.
    pub(super) fn over(
        lanes: impl Iterator<Item = (LaneKey, MissionId, &'a Lane)>,
        max: usize,
    ) -> Walk<'a> {
        let rest = |(key, mission, lane): (LaneKey, MissionId, &'a Lane)| {
            let mut tail = lane.by_rank().take(max);
            let head = tail.next()?;
            Some(Rest { key, mission, head, tail: Box::new(tail) })
        };
        Walk { lanes: lanes.filter_map(rest).collect(), last: None }
    }

    /// The last task cannot start, and neither can all that this says.
    pub fn hold_back(&mut self, held: HeldBack) {
        let Some(LaneKey::Pool(_, mission, ..)) = self.last else { return };
        match held {
            HeldBack::Task => {}
            HeldBack::Class => self.lanes.retain(|lane| Some(lane.key) != self.last),
            HeldBack::Mission => self.lanes.retain(|lane| lane.mission != mission),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Pull;

    fn next(&mut self) -> Option<Pull> {
        let places = self.lanes.iter().enumerate();
        let (place, _) = places.max_by_key(|(_, lane)| lane.head)?;
        let lane = &mut self.lanes[place];
        let task = lane.head.task();
        self.last = Some(lane.key);
        match lane.tail.next() {
            Some(next) => lane.head = next,
            None => drop(self.lanes.swap_remove(place)),
        }
        Some(Pull { task, source: Source::Pool, pick: Pick::BestRank })
    }
}
