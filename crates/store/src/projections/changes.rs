//! The rows that a batch writes: each once, as it stands at the end of the batch.

use std::collections::BTreeMap;

use crate::tables::Of;
use crate::value::Value;

pub(crate) type Row = Vec<Value>;

/// The values of a key; a table with one column for it leaves the second null.
type Key = [Value; 2];

#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// By table and key.
    rows: BTreeMap<Of, BTreeMap<Key, Row>>,
}

impl Changes {
    /// The row's values are those of the table's columns, in their order.
    pub(super) fn put<const N: usize>(&mut self, of: Of, row: [Value; N]) {
        debug_assert_eq!(N, of.table().columns.len(), "{}", of.table().name);
        let second = if of.table().keys > 1 { row[1].clone() } else { Value::Null };
        let key = [row[0].clone(), second];
        self.rows.entry(of).or_default().insert(key, row.into());
    }

    /// Later rows take the place of earlier ones.
    pub(super) fn merge(&mut self, later: Changes) {
        for (of, rows) in later.rows {
            self.rows.entry(of).or_default().extend(rows);
        }
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    pub(crate) fn by_table(&self) -> impl Iterator<Item = (Of, impl Iterator<Item = &Row>)> {
        self.rows.iter().map(|(of, rows)| (*of, rows.values()))
    }
}
