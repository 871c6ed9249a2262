//! What stands for the content of a table, whichever database it is in.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::backend::Backend;
use crate::error::Error;
use crate::journal::Hash;
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

/// Rows are sorted here: databases disagree on how texts are sorted.
pub(crate) fn fingerprints(backend: &dyn Backend) -> Result<Vec<Fingerprint>, Error> {
    let mut found = Vec::new();
    for table in all() {
        let mut rows = backend.table(table)?;
        rows.sort();
        let mut hasher = Sha256::new();
        for value in rows.iter().flatten() {
            update(&mut hasher, value);
        }
        let hash = Hash(hasher.finalize().into());
        found.push(Fingerprint { table: table.name, rows: rows.len(), hash });
    }
    Ok(found)
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
            hasher.update(text);
        }
    }
}
