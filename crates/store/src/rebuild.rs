//! Making the tables for people anew, and saying what was wrong with those that were there.
//!
//! Invariant: what was there is judged before anything opens it to write, because whoever does that
//! repairs what it finds, and nobody would know.

use kapelle_core::Seq;
use serde::Serialize;

use crate::backend::{Backend, Kept, Told};
use crate::error::Error;
use crate::fingerprint::{Fingerprint, expected, fingerprint, fingerprints};
use crate::location::Location;
use crate::lock::Holder;
use crate::lost;
use crate::open::{open, open_read_only};
use crate::projections::{self, Fold};
use crate::search;
use crate::snapshot::head_at;
use crate::tables::{VERSION, VIEWS, WATERMARK, all};
use crate::transfer::open_alone;

/// What a rebuild found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    pub seq: Seq,
    /// The tables as they were, as far as they could be read.
    pub before: Vec<Fingerprint>,
    pub after: Vec<Fingerprint>,
    repaired: Vec<Repaired>,
    /// What became of a search that could not be used; None if it could.
    pub search: Option<Search>,
    /// What could not be made searchable, and is not, as far as somebody noted it.
    pub unsearchable: Option<String>,
    /// Tables were there that nobody can read, and with them perhaps views that people made.
    pub views_lost: bool,
}

/// What was there before.
struct Found {
    tables: Vec<Fingerprint>,
    wrong: Vec<Repaired>,
    views_lost: bool,
}

/// A search that was made anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Search {
    /// What was wrong with it.
    pub why: String,
    /// Notes and logs that no record tells, and that it still has.
    pub kept: usize,
    /// Whether there were others, which could not be read.
    pub lost: bool,
}

/// A table, a view or the watermark that was not what it should have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Repaired {
    pub table: &'static str,
    pub was: Was,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Was {
    Missing,
    /// It said something else than the journal, or nothing that can be read.
    Wrong,
}

impl Rebuilt {
    /// What did not say what the journal says, as far as it claimed to reach.
    pub fn repaired(&self) -> impl Iterator<Item = &Repaired> {
        self.repaired.iter()
    }
}

/// Folds the whole journal again, and says which tables had been something else. A journal that has
/// lost its end is refused: the tables are what tells of it.
pub fn rebuild(location: impl Into<Location>) -> Result<Rebuilt, Error> {
    let location = location.into();
    lost::refuse(&location)?;
    let found = judged(&location)?;
    made_anew(open_alone(&location)?, found)
}

/// The same for a journal that has lost its end, when a person has decided that it goes on without:
/// nothing tells of the lost records any more.
pub fn accept_loss(location: impl Into<Location>) -> Result<Rebuilt, Error> {
    let location = location.into();
    let found = judged(&location)?;
    let mut backend = open(&location)?;
    backend.lead(&Holder::here())?;
    // An empty one is as good as none.
    backend.keep_snapshot(&[])?;
    made_anew(backend, found)
}

fn made_anew(mut backend: Box<dyn Backend>, found: Found) -> Result<Rebuilt, Error> {
    let fold = match projections::rebuild(&mut *backend) {
        Ok(fold) => fold,
        Err(error) => {
            // They stand still then, which people should not have to find out by themselves.
            // What is wrong is told, not what is wrong with the telling.
            if let Ok((_, epoch)) = backend.look() {
                let _ = backend.complain(epoch, &error.to_string());
            }
            return Err(error);
        }
    };
    // The tables have it from those that were there before, until all that can be mended is.
    let unsearchable = backend.search_complaint()?;
    let search = mended_search(&mut *backend, &fold)?;
    if unsearchable.is_some() {
        let (_, epoch) = backend.look()?;
        backend.end_search_complaint(epoch)?;
    }
    let Found { tables: before, wrong: repaired, views_lost } = found;
    let (seq, after) = (fold.seq(), fingerprints(&*backend)?);
    Ok(Rebuilt { seq, before, after, repaired, search, unsearchable, views_lost })
}

/// Knows all that the fold has seen, and is made anew for that if it has to be. What could not be
/// made searchable once is no reason: a search that is made anew does not know it either.
fn mended_search(backend: &mut dyn Backend, fold: &Fold) -> Result<Option<Search>, Error> {
    let (_, epoch) = backend.look()?;
    let mut search = match backend.trouble_with_search()? {
        Some(why) => Some(search_anew(backend, why)?),
        None => None,
    };
    match search::catch_up(backend, epoch, fold) {
        // Not everything that is wrong with it is seen before it is used.
        Err(Error::Damaged { what }) if search.is_none() => {
            search = Some(search_anew(backend, what)?);
            search::catch_up(backend, epoch, fold)?;
        }
        told => told?,
    }
    Ok(search)
}

/// Knows only what no record tells.
fn search_anew(backend: &mut dyn Backend, why: String) -> Result<Search, Error> {
    let (_, epoch) = backend.look()?;
    let Kept { documents, whole } = backend.kept_documents()?;
    backend.create_search_anew(epoch, &documents)?;
    Ok(Search { why, kept: documents.len(), lost: !whole })
}

/// The tables that can be read, and what is wrong.
fn judged(location: &Location) -> Result<Found, Error> {
    let store = match open_read_only(location) {
        Ok(store) => store,
        // An earlier version had them elsewhere, and in another form.
        Err(Error::TooOld { .. }) => {
            let wrong = names().map(missing).collect();
            return Ok(Found { tables: Vec::new(), wrong, views_lost: false });
        }
        Err(error) => return Err(error),
    };
    // A file that is no database any more has none of them.
    let looked_for = store.missing_tables();
    let views_lost = looked_for.is_err();
    let gone = looked_for.unwrap_or_else(|_| names().collect());
    let mark = believed(&*store, store.told().ok().flatten());
    // How far tables without a mark reach is not known; they should tell of everything.
    let until = mark.map_or_else(|| Ok(store.look()?.0.seq), Ok::<_, Error>)?;
    let (mut before, mut repaired) = (Vec::new(), Vec::new());
    for (table, expected) in all().iter().zip(expected(&*store, until)?) {
        let found = store.table(table).ok().map(|rows| fingerprint(table.name, rows));
        let wrong = Repaired { table: table.name, was: Was::Wrong };
        match found {
            None if gone.contains(&table.name) => repaired.push(missing(table.name)),
            Some(found) if found == expected => before.push(found),
            None => repaired.push(wrong),
            Some(found) => {
                before.push(found);
                repaired.push(wrong);
            }
        }
    }
    repaired.extend(
        VIEWS.iter().map(|(name, ..)| *name).filter(|name| gone.contains(name)).map(missing),
    );
    if gone.contains(&WATERMARK) {
        repaired.push(missing(WATERMARK));
    } else if mark.is_none() {
        repaired.push(Repaired { table: WATERMARK, was: Was::Wrong });
    }
    Ok(Found { tables: before, wrong: repaired, views_lost })
}

fn names() -> impl Iterator<Item = &'static str> {
    let views = VIEWS.iter().map(|(name, ..)| *name);
    all().iter().map(|table| table.name).chain(views).chain([WATERMARK])
}

fn missing(table: &'static str) -> Repaired {
    Repaired { table, was: Was::Missing }
}

/// How far the tables reach, if they are of this version and of this journal.
fn believed(store: &dyn Backend, told: Option<Told>) -> Option<Seq> {
    let Told { seq, hash, version } = told?;
    let there = head_at(store, seq).map(|head| head.hash.to_string()).unwrap_or_default();
    (version == VERSION && hash == there).then_some(seq)
}
