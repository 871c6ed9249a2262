//! The journal in memory, for tests and simulations: the same contract, and nothing survives.

use kapelle_core::{Record, Seq};

use crate::error::Error;
use crate::journal::{Epoch, Head, Journal, admit};

#[derive(Debug)]
pub struct Memory {
    records: Vec<Record>,
    head: Head,
    epoch: Epoch,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { records: Vec::new(), head: Head::EMPTY, epoch: Epoch(0) }
    }
}

impl Journal for Memory {
    fn claim_epoch(&mut self) -> Result<Epoch, Error> {
        self.epoch = Epoch(self.epoch.0 + 1);
        Ok(self.epoch)
    }

    fn head(&self) -> Head {
        self.head
    }

    fn append(&mut self, epoch: Epoch, expected: Seq, records: &[Record]) -> Result<Head, Error> {
        let links = admit((self.head, self.epoch), epoch, expected, records)?;
        if let Some(last) = links.last() {
            self.head = Head { seq: last.seq, hash: last.hash };
        }
        self.records.extend_from_slice(records);
        Ok(self.head)
    }

    fn read(&self, after: Seq, limit: usize) -> Result<Vec<Record>, Error> {
        let after = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(self.records.iter().skip(after).take(limit).cloned().collect())
    }
}
