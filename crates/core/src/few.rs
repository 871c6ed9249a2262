//! A map and a set of a few, as lists that are kept in order.
//!
//! For what is under way: there is never much of it, the newest comes last, the oldest mostly goes
//! first, and it comes and goes with every command. A tree would ask for memory each time; a list
//! keeps its own. Whatever can be many and comes in any order belongs in a tree.

use std::cmp::Ordering;
use std::collections::{VecDeque, vec_deque};
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, PartialEq)]
pub(crate) struct FewMap<K, V> {
    pairs: VecDeque<(K, V)>,
}

impl<K, V> Default for FewMap<K, V> {
    fn default() -> FewMap<K, V> {
        FewMap { pairs: VecDeque::new() }
    }
}

impl<K: Ord, V> FewMap<K, V> {
    pub fn get(&self, key: &K) -> Option<&V> {
        let place = self.place(key).ok()?;
        self.pairs.get(place).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        self.pairs.get_mut(place).map(|(_, value)| value)
    }

    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(place) => Some(std::mem::replace(&mut self.pairs[place].1, value)),
            Err(place) => {
                put(&mut self.pairs, place, (key, value));
                None
            }
        }
    }

    /// The value of a key, a new one if it has none.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        // The last by far most often.
        if self.pairs.back().is_some_and(|(last, _)| *last == key) {
            let last = self.pairs.len() - 1;
            return &mut self.pairs[last].1;
        }
        let place = match self.place(&key) {
            Ok(place) => place,
            Err(place) => {
                put(&mut self.pairs, place, (key, V::default()));
                place
            }
        };
        &mut self.pairs[place].1
    }

    pub fn pop_first(&mut self) -> Option<(K, V)> {
        self.pairs.pop_front()
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(key).ok()?;
        take(&mut self.pairs, place).map(|(_, value)| value)
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// In the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.pairs.iter().map(|(key, value)| (key, value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.pairs.iter().map(|(key, _)| key)
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        place(&self.pairs, key, |(key, _)| key)
    }
}

/// Where the key is, or where it belongs: mostly at one of the ends.
fn place<T, K: Ord>(
    list: &VecDeque<T>,
    key: &K,
    key_of: impl Fn(&T) -> &K,
) -> Result<usize, usize> {
    let Some(last) = list.back() else { return Err(0) };
    match key_of(last).cmp(key) {
        Ordering::Less => return Err(list.len()),
        Ordering::Equal => return Ok(list.len() - 1),
        Ordering::Greater => {}
    }
    match list.front() {
        Some(first) if key_of(first) == key => Ok(0),
        Some(_) | None => list.binary_search_by(|one| key_of(one).cmp(key)),
    }
}

/// At the end, mostly: nothing has to make room there.
fn put<T>(list: &mut VecDeque<T>, place: usize, one: T) {
    if place == list.len() {
        list.push_back(one);
    } else {
        list.insert(place, one);
    }
}

/// From the front, mostly: nothing has to close up there.
fn take<T>(list: &mut VecDeque<T>, place: usize) -> Option<T> {
    if place == 0 { list.pop_front() } else { list.remove(place) }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for FewMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.pairs.iter().map(|(key, value)| (key, value))).finish()
    }
}

impl<K: Serialize, V: Serialize> Serialize for FewMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.pairs.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for FewMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FewMap<K, V>, D::Error> {
        deserializer.deserialize_map(Reading(PhantomData))
    }
}

struct Reading<K, V>(PhantomData<(K, V)>);

impl<'de, K: Ord + Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Reading<K, V> {
    type Value = FewMap<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<FewMap<K, V>, A::Error> {
        let mut map = FewMap::default();
        while let Some((key, value)) = access.next_entry()? {
            map.insert(key, value);
        }
        Ok(map)
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct FewSet<K> {
    keys: VecDeque<K>,
}

impl<K> Default for FewSet<K> {
    fn default() -> FewSet<K> {
        FewSet { keys: VecDeque::new() }
    }
}

impl<K: Ord> FewSet<K> {
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    #[must_use]
    pub fn first(&self) -> Option<&K> {
        self.keys.front()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// In order.
    pub fn iter(&self) -> vec_deque::Iter<'_, K> {
        self.keys.iter()
    }

    /// Whether it is new.
    pub(crate) fn insert(&mut self, key: K) -> bool {
        match self.place(&key) {
            Ok(_) => false,
            Err(place) => {
                put(&mut self.keys, place, key);
                true
            }
        }
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        match self.place(key) {
            Ok(place) => take(&mut self.keys, place).is_some(),
            Err(_) => false,
        }
    }

    pub(crate) fn retain(&mut self, keep: impl FnMut(&K) -> bool) {
        self.keys.retain(keep);
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        place(&self.keys, key, |key| key)
    }
}

impl<K: Ord> Extend<K> for FewSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl<K: Ord> FromIterator<K> for FewSet<K> {
    /// Sorted once: they may come in any order, and be more than a few.
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> FewSet<K> {
        let mut keys: Vec<K> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        FewSet { keys: keys.into() }
    }
}

impl<'a, K> IntoIterator for &'a FewSet<K> {
    type Item = &'a K;
    type IntoIter = vec_deque::Iter<'a, K>;

    fn into_iter(self) -> vec_deque::Iter<'a, K> {
        self.keys.iter()
    }
}

impl<K> IntoIterator for FewSet<K> {
    type Item = K;
    type IntoIter = vec_deque::IntoIter<K>;

    fn into_iter(self) -> vec_deque::IntoIter<K> {
        self.keys.into_iter()
    }
}

impl<K: fmt::Debug> fmt::Debug for FewSet<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.keys).finish()
    }
}

impl<K: Serialize> Serialize for FewSet<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.keys)
    }
}

impl<'de, K: Ord + Deserialize<'de>> Deserialize<'de> for FewSet<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FewSet<K>, D::Error> {
        Ok(Vec::<K>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 256, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn a_few_are_a_map(steps in prop::collection::vec((0u32..20, prop::option::of(0u8..9)), 0..80)) {
            let (mut ours, mut map) = (FewMap::default(), BTreeMap::new());
            for (key, value) in steps {
                match value {
                    Some(value) => prop_assert_eq!(ours.insert(key, value), map.insert(key, value)),
                    None => prop_assert_eq!(ours.remove(&key), map.remove(&key)),
                }
                prop_assert_eq!(ours.get(&key), map.get(&key));
                prop_assert_eq!(ours.get_mut(&key), map.get_mut(&key));
                prop_assert_eq!(ours.or_default(key / 2), map.entry(key / 2).or_default());
                prop_assert_eq!((ours.len(), ours.is_empty()), (map.len(), map.is_empty()));
            }
            prop_assert!(ours.iter().eq(map.iter()));
            prop_assert!(ours.keys().eq(map.keys()));
            let text = serde_json::to_string(&ours).unwrap();
            prop_assert_eq!(&text, &serde_json::to_string(&map).unwrap());
            let read: FewMap<u32, u8> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read, &ours);
            prop_assert_eq!(ours.pop_first(), map.pop_first());
        }

        #[test]
        fn a_few_are_a_set(steps in prop::collection::vec((0u32..20, any::<bool>()), 0..80)) {
            let keys = || steps.iter().map(|(key, _)| *key);
            let (mut ours, mut set) = (FewSet::from_iter(keys()), BTreeSet::from_iter(keys()));
            for (key, comes) in steps {
                match comes {
                    true => prop_assert_eq!(ours.insert(key), set.insert(key)),
                    false => prop_assert_eq!(ours.remove(&key), set.remove(&key)),
                }
                prop_assert_eq!(ours.contains(&key), set.contains(&key));
                prop_assert_eq!(ours.first(), set.first());
                prop_assert_eq!((ours.len(), ours.is_empty()), (set.len(), set.is_empty()));
            }
            prop_assert!(ours.iter().eq(&set));
            let text = serde_json::to_string(&ours).unwrap();
            prop_assert_eq!(&text, &serde_json::to_string(&set).unwrap());
            let read: FewSet<u32> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read, &ours);
            ours.retain(|key| key % 2 == 0);
            set.retain(|key| key % 2 == 0);
            prop_assert!(ours.into_iter().eq(set));
        }
    }
}
