//! A history on its way: out as lines of JSON, in from them, or from one store to another.
//!
//! Invariant: what arrives has the same head, and every record is checked against the chain before
//! it is written.

use std::io::{BufRead, Write};

use kapelle_core::Seq;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::audit::{self, AuditError, Broken};
use crate::backend::{Backend, Row, Writes};
use crate::error::Error;
use crate::fingerprint::{Fingerprint, fingerprints};
use crate::journal::{Epoch, Hash, Head};
use crate::location::{Location, Place};
use crate::lock::Holder;
use crate::lost::{self, Witnesses};
use crate::open::open;
use crate::reader::Reader;
use crate::search::{self, Document};
use crate::{postgres, projections, sqlite};

mod bounds;

use bounds::Counted;

/// How many records are held in memory at a time.
const PAGE: usize = 10_000;

/// No event of ours comes near; a longer line is something else.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A record as one line of JSON. The event's text is passed on as it is: the hash is over it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    seq: i64,
    at: i64,
    epoch: i64,
    hash: String,
    event: Box<RawValue>,
}

/// The last line: how much came before it. A file that was cut does not have it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastLine {
    end: Ended,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ended {
    records: u64,
    head: String,
}

impl Ended {
    fn at(head: Head) -> Ended {
        Ended { records: head.seq.0, head: head.hash.to_string() }
    }
}

/// Whether an export has to say that it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// As far as it goes: one that was cut, or was not made by this version.
    AsFarAsItGoes,
}

/// A blob by its hash, with its owners.
type Blob = (String, Vec<String>);

/// What was carried over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    pub head: Head,
    pub blobs: usize,
    pub tables: Vec<Fingerprint>,
    /// Some notes and logs could not be read where they were.
    pub notes_lost: bool,
}

impl Reader {
    /// Writes the journal as lines of JSON, as far as the audit agrees with it. One that has lost
    /// its end is not said to be whole.
    pub fn export(&self, to: &mut impl Write) -> Result<Head, ExportError> {
        let witnesses = Witnesses::hear(&*self.backend);
        let (mut head, mut epoch) = (Head::EMPTY, Epoch(0));
        loop {
            let page = self.backend.rows(head.seq, PAGE)?;
            for row in &page {
                (head, epoch) = audit::check(row, head, epoch)?;
                let line = line(row).map_err(std::io::Error::from)?;
                serde_json::to_writer(&mut *to, &line).map_err(std::io::Error::from)?;
                to.write_all(b"\n")?;
            }
            if page.len() < PAGE {
                if let Some(lost) = witnesses.against(&*self.backend, head)? {
                    return Err(lost.into());
                }
                let last = LastLine { end: Ended::at(head) };
                serde_json::to_writer(&mut *to, &last).map_err(std::io::Error::from)?;
                to.write_all(b"\n")?;
                return Ok(head);
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("the export cannot be written: {0}")]
    Io(#[from] std::io::Error),
}

fn line(row: &Row) -> Result<Line, serde_json::Error> {
    let hash: String = row.hash.iter().map(|byte| format!("{byte:02x}")).collect();
    // Checked before, and so the very text that was written.
    let event = RawValue::from_string(String::from_utf8_lossy(&row.body).into_owned())?;
    Ok(Line { seq: row.seq, at: row.at, epoch: row.epoch, hash, event })
}

fn row(number: u64, text: &str) -> Result<Row, Error> {
    let wrong = |why: String| Error::Import { line: number, why };
    let line: Line = serde_json::from_str(text).map_err(|why| wrong(why.to_string()))?;
    let hash: Hash = line.hash.parse().map_err(|_| wrong("its hash is not one".into()))?;
    if !bounds::are_kept(line.at, line.epoch) {
        return Err(wrong("its time or its epoch is out of bounds".into()));
    }
    let body = line.event.get().as_bytes().to_vec();
    let (seq, at, epoch) = (line.seq, line.at, line.epoch);
    Ok(Row { seq, at, epoch, body, hash: hash.0.to_vec() })
}

/// Writes lines of an export into an empty store, folds its tables and makes it searchable. All of
/// them arrive, or none. A store that has this very history already is as good as one that was
/// empty.
pub fn import(
    from: &mut impl BufRead,
    extent: Extent,
    to: impl Into<Location>,
) -> Result<Carried, Error> {
    let to = to.into();
    lost::refuse(&to)?;
    let mut target = open(&to)?;
    let mut head = Head::EMPTY;
    match target.look()?.0 {
        Head::EMPTY => {
            target.lead(&Holder::here())?;
            fill(&mut *target, &mut |target| {
                head = read_lines(from, extent, |before, page| target.adopt(before, page))?;
                Ok(())
            })?;
        }
        there => {
            head = read_lines(from, extent, |_, _| Ok(()))?;
            refuse_other(there, head)?;
            target.lead(&Holder::here())?;
        }
    }
    finished(&mut *target, head, 0)
}

/// Fills an empty store, if its tables can be folded, too.
fn fill(target: &mut dyn Backend, work: &mut Writes<'_>) -> Result<(), Error> {
    target.all_or_nothing(&mut |target| {
        work(target)?;
        projections::rehearse(target)
    })
}

/// Reads and checks a journal, and hands it on page by page, each with the record before it.
fn read_lines(
    from: &mut impl BufRead,
    extent: Extent,
    mut take: impl FnMut(Seq, &[Row]) -> Result<(), Error>,
) -> Result<Head, Error> {
    let (mut head, mut epoch, mut number) = (Head::EMPTY, Epoch(0), 0);
    let (mut page, mut bytes, mut counted) = (Vec::new(), Vec::new(), Counted::default());
    let mut is_whole = false;
    loop {
        bytes.clear();
        number += 1;
        let wrong = |why: String| Error::Import { line: number, why };
        let mut bounded = std::io::Read::take(&mut *from, LINE_BYTES_MAX as u64);
        let length = bounded.read_until(b'\n', &mut bytes).map_err(|why| wrong(why.to_string()))?;
        if length == LINE_BYTES_MAX {
            return Err(Error::TooLarge { what: "line", bytes: length, max: LINE_BYTES_MAX });
        }
        let is_end = length == 0 || is_torn(&bytes);
        let text = if is_end { Ok("") } else { str::from_utf8(&bytes) };
        let text = text.map_err(|why| wrong(why.to_string()))?.trim();
        if is_whole && !bytes.trim_ascii().is_empty() {
            return Err(wrong("the line before it is the last of an export".into()));
        } else if text.is_empty() {
            // A line for the eye, or nothing more.
        } else if let Ok(last) = serde_json::from_str::<LastLine>(text) {
            refuse_other_end(number, &last.end, head)?;
            is_whole = true;
        } else {
            let row = row(number, text)?;
            let checked = audit::check(&row, head, epoch);
            (head, epoch) = checked.map_err(|why| wrong(why.to_string()))?;
            let event = crate::journal::event(head.seq, &row.body)?;
            let impossible = |why| Error::Impossible { record: head.seq, why };
            counted.follow(&event).map_err(impossible)?;
            page.push(row);
        }
        if page.len() == PAGE || (is_end && !page.is_empty()) {
            take(Seq(head.seq.0 - page.len() as u64), &page)?;
            page.clear();
        }
        if is_end && !is_whole && extent == Extent::Whole {
            return Err(Error::CutShort { records: head.seq.0 });
        }
        if is_end {
            return Ok(head);
        }
    }
}

/// Whether this is the beginning of a line that was cut, which is whole only with its last brace.
fn is_torn(line: &[u8]) -> bool {
    let read = serde_json::from_slice::<IgnoredAny>(line);
    !line.ends_with(b"\n") && read.is_err_and(|why| why.is_eof())
}

fn refuse_other_end(line: u64, told: &Ended, head: Head) -> Result<(), Error> {
    if *told == Ended::at(head) {
        return Ok(());
    }
    let Ended { records, head: hash } = told;
    let why = format!("it speaks of {records} records with head {hash}, which are not before it");
    Err(Error::Import { line, why })
}

/// Copies a whole store into an empty one, folds its tables and makes it searchable: all of it
/// arrives, or nothing. A store that has this very history already gets the blobs and notes that it
/// lacks. The source stays as it is; its epoch is claimed, so that nobody can append to it meanwhile.
pub fn carry_over(
    from: impl Into<Location>,
    to: impl Into<Location>,
) -> Result<Carried, AuditError> {
    let (from, to) = (from.into(), to.into());
    refuse_same(&from, &to)?;
    let source = open_alone(&from)?;
    // A broken history is not carried on, not even in part. Whoever only reads leaves damaged
    // tables where they are.
    let head = Reader::open(&from)?.verify()?.head;
    lost::refuse(&to)?;
    let mut target = open(&to)?;
    let there = target.look()?.0;
    if there != Head::EMPTY {
        refuse_other(there, head)?;
    }
    target.lead(&Holder::here())?;
    let blobs = source.blobs()?;
    if there == Head::EMPTY {
        fill(&mut *target, &mut |target| copy(&*source, target, &blobs))?;
    } else {
        target.all_or_nothing(&mut |target| copy_unrecorded(&*source, target, &blobs))?;
    }
    let notes_lost = !source.kept_documents()?.whole;
    Ok(Carried { notes_lost, ..finished(&mut *target, head, blobs.len())? })
}

/// A place has many names, and two of them may look like two places. So it is asked what it is,
/// before anything is claimed.
fn refuse_same(from: &Location, to: &Location) -> Result<(), Error> {
    let same = match (&from.place, &to.place) {
        (Place::Sqlite(one), Place::Sqlite(other)) => sqlite::is_same_file(one, other),
        (Place::Postgres(one), Place::Postgres(other)) => postgres::is_same_schema(one, other)?,
        (Place::Sqlite(_), Place::Postgres(_)) | (Place::Postgres(_), Place::Sqlite(_)) => false,
    };
    match same {
        true => Err(Error::SamePlace { from: from.to_string(), to: to.to_string() }),
        false => Ok(()),
    }
}

fn copy(source: &dyn Backend, target: &mut dyn Backend, blobs: &[Blob]) -> Result<(), Error> {
    let mut after = Seq(0);
    loop {
        let page = source.rows(after, PAGE)?;
        target.adopt(after, &page)?;
        let Some(last) = page.last() else { break };
        after = Seq(last.seq.cast_unsigned());
    }
    copy_unrecorded(source, target, blobs)
}

/// What no record tells: blobs, and notes that the target does not have as they are or newer.
fn copy_unrecorded(
    source: &dyn Backend,
    target: &mut dyn Backend,
    blobs: &[Blob],
) -> Result<(), Error> {
    // That of the last record, if it is later than the one that was claimed.
    let (_, epoch) = target.look()?;
    for (hash, owners) in blobs {
        let Some(body) = source.blob(hash)? else { continue };
        target.put_blob(epoch, hash, &body, owners)?;
    }
    let there = target.kept_documents()?.documents;
    let is_there = |note: &Document| {
        let same = |other: &&Document| other.kind == note.kind && other.source == note.source;
        there.iter().find(same).is_some_and(|other| other.at >= note.at)
    };
    // Those that cannot be read do not keep the rest here (`Carried::notes_lost`).
    let mut notes = source.kept_documents()?.documents;
    notes.retain(|note| !is_there(note));
    target.index(epoch, &notes, None)
}

/// For writing, and alone.
pub(crate) fn open_alone(location: &Location) -> Result<Box<dyn Backend>, Error> {
    lost::refuse(location)?;
    let mut backend = open(location)?;
    backend.lead(&Holder::here())?;
    Ok(backend)
}

/// Asked before anything is claimed: a store of somebody else is none of our business.
fn refuse_other(there: Head, head: Head) -> Result<(), Error> {
    if there == head { Ok(()) } else { Err(Error::NotEmpty { records: there.seq.0 }) }
}

fn finished(backend: &mut dyn Backend, head: Head, blobs: usize) -> Result<Carried, Error> {
    let fold = projections::rebuild(backend)?;
    let (_, epoch) = backend.look()?;
    search::catch_up(backend, epoch, &fold)?;
    Ok(Carried { head, blobs, tables: fingerprints(backend)?, notes_lost: false })
}

/// Brings a store that an earlier version made up to date, as the next writer would.
pub fn bring_up_to_date(location: impl Into<Location>) -> Result<(), Error> {
    open_alone(&location.into()).map(drop)
}
