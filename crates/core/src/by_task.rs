//! Something of each of many tasks, found without a search.
//!
//! Tasks are numbered one after the other, over all missions and within each. What is kept of
//! nearly every task, or of nearly every task of a mission, is best kept in its place in a list.
//! What only a few tasks have belongs in a map.

use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::ids::TaskId;

#[derive(Debug, Clone)]
pub(crate) struct ByTask<T> {
    /// Of the tasks from `first` on, one after the other.
    places: Vec<Option<T>>,
    first: TaskId,
    len: usize,
}

impl<T> Default for ByTask<T> {
    fn default() -> ByTask<T> {
        ByTask { places: Vec::new(), first: TaskId(0), len: 0 }
    }
}

impl<T> ByTask<T> {
    pub fn get(&self, task: TaskId) -> Option<&T> {
        self.places.get(self.place(task)?)?.as_ref()
    }

    pub fn get_mut(&mut self, task: TaskId) -> Option<&mut T> {
        let place = self.place(task)?;
        self.places.get_mut(place)?.as_mut()
    }

    pub fn insert(&mut self, task: TaskId, value: T) -> Option<T> {
        let place = self.room_for(task);
        let before = self.places[place].replace(value);
        self.len += usize::from(before.is_none());
        before
    }

    /// The value of a task, a new one if it has none.
    pub fn or_default(&mut self, task: TaskId) -> &mut T
    where
        T: Default,
    {
        let place = self.room_for(task);
        self.len += usize::from(self.places[place].is_none());
        self.places[place].get_or_insert_default()
    }

    pub fn remove(&mut self, task: TaskId) -> Option<T> {
        let place = self.place(task)?;
        let value = self.places.get_mut(place)?.take();
        self.len -= usize::from(value.is_some());
        if self.len == 0 {
            self.places.clear();
        }
        value
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// In the order of the tasks.
    pub fn iter(&self) -> impl Iterator<Item = (TaskId, &T)> {
        let numbered = self.places.iter().enumerate();
        numbered.filter_map(|(place, value)| {
            Some((TaskId(self.first.0 + place as u32), value.as_ref()?))
        })
    }

    fn place(&self, task: TaskId) -> Option<usize> {
        task.0.checked_sub(self.first.0).map(|place| place as usize)
    }

    /// The place of a task; it is there afterwards.
    fn room_for(&mut self, task: TaskId) -> usize {
        if self.places.is_empty() {
            self.first = task;
        }
        if let Some(missing) = self.first.0.checked_sub(task.0).filter(|missing| *missing > 0) {
            // Twice the room, as at the other end: more may come before it.
            let more = missing.max(self.places.len() as u32).min(self.first.0);
            self.places.splice(..0, (0..more).map(|_| None));
            self.first = TaskId(self.first.0 - more);
        }
        let place = (task.0 - self.first.0) as usize;
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        place
    }
}

/// Places that were left and nothing that followed are no difference.
impl<T: PartialEq> PartialEq for ByTask<T> {
    fn eq(&self, other: &ByTask<T>) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

/// As pairs: a list would spell out every place that is empty.
impl<T: Serialize> Serialize for ByTask<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByTask<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByTask<T>, D::Error> {
        let mut all = ByTask::default();
        for (task, value) in Vec::<(TaskId, T)>::deserialize(deserializer)? {
            all.insert(task, value);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 256, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u32..20, prop::option::of(0u8..9)), 0..80)) {
            let (mut ours, mut map) = (ByTask::default(), BTreeMap::new());
            for (task, value) in steps {
                let task = TaskId(task);
                match value {
                    Some(value) => prop_assert_eq!(ours.insert(task, value), map.insert(task, value)),
                    None => prop_assert_eq!(ours.remove(task), map.remove(&task)),
                }
                prop_assert_eq!(ours.get(task), map.get(&task));
                prop_assert_eq!(ours.get_mut(task), map.get_mut(&task));
                let half = TaskId(task.0 / 2);
                prop_assert_eq!(ours.or_default(half), map.entry(half).or_default());
                prop_assert_eq!(ours.len(), map.len());
            }
            prop_assert!(ours.iter().eq(map.iter().map(|(task, value)| (*task, value))));
            let text = serde_json::to_string(&ours).unwrap();
            let read: ByTask<u8> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read, ours);
        }
    }
}
