//! What stands for the content of a table, whichever database it is in.

use kapelle_core::Seq;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::backend::Backend;
use crate::error::Error;
use crate::journal::Hash;
use crate::projections;
use crate::tables::all;
use crate::value::Value;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fingerprint {
    pub table: &'static str,
    pub rows: usize,
    #[serde(serialize_with = "as_text")]
    pub hash: Hash,
}

fn as_text<S: serde::Serializer>(hash: &Hash, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(hash)
}

/// Of the tables as they are.
pub(crate) fn fingerprints(backend: &dyn Backend) -> Result<Vec<Fingerprint>, Error> {
    all().iter().map(|table| Ok(fingerprint(table.name, backend.table(table)?))).collect()
}

/// Of the tables as the first records of the journal make them, folded in memory.
pub(crate) fn expected(backend: &dyn Backend, until: Seq) -> Result<Vec<Fingerprint>, Error> {
    let mut rows: Vec<Vec<Vec<Value>>> = all().iter().map(|_| Vec::new()).collect();
    for (of, changed) in projections::folded(backend, until)?.by_table() {
        rows[of as usize] = changed.cloned().collect();
    }
    Ok(all().iter().zip(rows).map(|(table, rows)| fingerprint(table.name, rows)).collect())
}

/// Rows are sorted here: databases disagree on how texts are sorted.
pub(crate) fn fingerprint(table: &'static str, mut rows: Vec<Vec<Value>>) -> Fingerprint {
    rows.sort();
    let mut hasher = Sha256::new();
    for value in rows.iter().flatten() {
        update(&mut hasher, value);
    }
    Fingerprint { table, rows: rows.len(), hash: Hash(hasher.finalize().into()) }
}

fn update(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hasher.update([0]),
        Value::Int(number) => {
            hasher.update([1]);
            hasher.update(number.to_be_bytes());
        }
        Value::Text(text) => {
            hasher.update([2]);
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text.as_bytes());
        }
    }
}
