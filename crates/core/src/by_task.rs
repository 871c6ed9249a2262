//! Something of each of many tasks, found without a search.
//!
//! Tasks are numbered one after the other, and what is kept of nearly every task is best
//! kept in its place in a list. What only a few tasks have belongs in a map.

use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::ids::TaskId;

#[derive(Debug, Clone)]
pub(crate) struct ByTask<T> {
    /// Of the task with the number of its place.
    places: Vec<Option<T>>,
    len: usize,
}

impl<T> Default for ByTask<T> {
    fn default() -> ByTask<T> {
        ByTask { places: Vec::new(), len: 0 }
    }
}

impl<T> ByTask<T> {
    pub fn get(&self, task: TaskId) -> Option<&T> {
        self.places.get(place(task))?.as_ref()
    }

    pub fn get_mut(&mut self, task: TaskId) -> Option<&mut T> {
        self.places.get_mut(place(task))?.as_mut()
    }

    pub fn insert(&mut self, task: TaskId, value: T) -> Option<T> {
        let place = place(task);
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        let before = self.places[place].replace(value);
        self.len += usize::from(before.is_none());
        before
    }

    pub fn remove(&mut self, task: TaskId) -> Option<T> {
        let value = self.places.get_mut(place(task))?.take();
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
        numbered.filter_map(|(place, value)| Some((TaskId(place as u32), value.as_ref()?)))
    }
}

/// Places that were left and nothing that followed are no difference.
impl<T: PartialEq> PartialEq for ByTask<T> {
    fn eq(&self, other: &ByTask<T>) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

fn place(task: TaskId) -> usize {
    task.0 as usize
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
                prop_assert_eq!(ours.len(), map.len());
            }
            prop_assert!(ours.iter().eq(map.iter().map(|(task, value)| (*task, value))));
            let text = serde_json::to_string(&ours).unwrap();
            let read: ByTask<u8> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read, ours);
        }
    }
}
