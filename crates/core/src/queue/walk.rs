//! What an agent could take if it may not take the best: the others, by rank.
//!
//! Tasks that the same things decide about stand in one lane, so what holds back the first of them holds
//! back all, and nobody has to ask each. Whoever walks says how much cannot start together with a
//! task; the walk is as long as there are lanes, not as tasks.

use std::collections::BinaryHeap;
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
    /// None: all of it was seen, or none of it can start.
    lanes: Vec<Option<Rest<'a>>>,
    /// The first of what is left of each, and its place among the lanes.
    heads: BinaryHeap<(ByRank, usize)>,
    /// Where the last task came from.
    last: Option<LaneKey>,
}

impl fmt::Debug for Walk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("heads", &self.heads).finish_non_exhaustive()
    }
}

/// What is left of a lane behind its head.
struct Rest<'a> {
    key: LaneKey,
    mission: MissionId,
    tail: Box<dyn Iterator<Item = ByRank> + 'a>,
}

impl<'a> Walk<'a> {
    /// At most so many of each lane.
    pub(super) fn over(
        lanes: impl Iterator<Item = (LaneKey, MissionId, &'a Lane)>,
        max: usize,
    ) -> Walk<'a> {
        let mut walk = Walk { lanes: Vec::new(), heads: BinaryHeap::new(), last: None };
        for (key, mission, lane) in lanes {
            let mut tail = lane.by_rank().take(max);
            if let Some(head) = tail.next() {
                walk.heads.push((head, walk.lanes.len()));
                walk.lanes.push(Some(Rest { key, mission, tail: Box::new(tail) }));
            }
        }
        walk
    }

    /// The last task cannot start, and neither can all that this says.
    pub fn hold_back(&mut self, held: HeldBack) {
        let Some(LaneKey::Pool(_, mission, ..)) = self.last else { return };
        let is_held = |lane: &Rest<'_>| match held {
            HeldBack::Task => false,
            HeldBack::Class => Some(lane.key) == self.last,
            HeldBack::Mission => lane.mission == mission,
        };
        for lane in &mut self.lanes {
            if lane.as_ref().is_some_and(is_held) {
                *lane = None;
            }
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Pull;

    fn next(&mut self) -> Option<Pull> {
        loop {
            let (head, place) = self.heads.pop()?;
            let Some(lane) = &mut self.lanes[place] else { continue };
            self.last = Some(lane.key);
            match lane.tail.next() {
                Some(next) => self.heads.push((next, place)),
                None => self.lanes[place] = None,
            }
            return Some(Pull { task: head.task(), source: Source::Pool, pick: Pick::BestRank });
        }
    }
}
