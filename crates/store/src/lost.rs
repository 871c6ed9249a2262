//! The end of a journal, and whether it was lost.
//!
//! Tables and snapshots are made from records that are durable. So what tells of a record past the
//! end of the journal is a witness: the record was there, and may have been acted upon. Whoever
//! went on would do it again, and write other records in the place of the lost ones.
//!
//! Invariant: nobody claims a journal that has lost its end, and nothing of what shows the loss is
//! changed, unless a person accepts it (`rebuild::accept_loss`).

use kapelle_core::Seq;

use crate::backend::{Backend, Told};
use crate::error::Error;
use crate::journal::Head;
use crate::location::Location;
use crate::open::open_read_only;
use crate::snapshot;

/// Asked by whoever is about to claim the store, on a connection that can change nothing.
pub(crate) fn refuse(location: &Location) -> Result<(), Error> {
    // What cannot be opened is told by whoever opens it to write.
    let Ok(store) = open_read_only(location) else { return Ok(()) };
    let witnesses = Witnesses::hear(&*store);
    let (head, _) = store.look()?;
    match witnesses.against(&*store, head)? {
        Some(lost) => Err(lost),
        None => Ok(()),
    }
}

/// What is told beside the journal. Heard before the end of the journal is looked up, which only
/// grows meanwhile.
pub(crate) struct Witnesses {
    tables: Option<Told>,
    snapshot: Option<Seq>,
}

impl Witnesses {
    /// Those that cannot be read tell nothing.
    pub(crate) fn hear(store: &dyn Backend) -> Witnesses {
        let tables = store.told().ok().flatten();
        Witnesses { tables, snapshot: snapshot::told_seq(store) }
    }

    /// Why a journal with this head has lost its end, if it has.
    pub(crate) fn against(&self, store: &dyn Backend, head: Head) -> Result<Option<Error>, Error> {
        let lost = |told, witness| Some(Error::LostEnd { head: head.seq, told, witness });
        if let Some(told) = &self.tables
            && told.seq > head.seq
            && !only_the_number_is_wrong(store, told)?
        {
            return Ok(lost(told.seq, "tables tell"));
        }
        // The number stands in front and is believed only with all that follows.
        let ahead = self.snapshot.is_some_and(|seq| seq > head.seq);
        let whole = ahead.then(|| snapshot::head(store)).flatten();
        Ok(whole.and_then(|told| lost(told.seq, "last snapshot tells")))
    }
}

/// Tables whose last record is there were given another number by hand; nothing is lost with that.
fn only_the_number_is_wrong(store: &dyn Backend, told: &Told) -> Result<bool, Error> {
    told.hash.parse().map_or(Ok(false), |hash| store.has_record(hash))
}
