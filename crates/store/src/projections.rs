//! Projections: the journal as tables for people and their SQL clients.
//!
//! They are folded behind the journal in batches. Kapelle itself never answers from them, so they
//! may lag, fail or be dropped without harm.
//!
//! Invariant: the tables are a function of the first `projection_watermark.seq` records, and of
//! nothing else, however the records were batched. Rows and watermark change in the same
//! transaction.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use kapelle_core::{AgentId, Event, MissionId, Record, Seq, State, TaskId};
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::error::Error;
use crate::journal::{Epoch, refuse_hole};

mod approvals;
mod attempts;
mod changes;
mod councils;
mod facts;
mod hindrances;
mod overrides;
mod people;
mod rows;
mod touched;

pub(crate) use changes::Changes;

/// A rebuild holds the writer for one batch at a time, and its memory too.
const REBUILD_RECORDS: usize = 10_000;

/// The fold behind the tables: the state, and what the state forgets but open rows still need.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Fold {
    seq: Seq,
    state: State,
    attempts: attempts::Open,
    agents: attempts::Agents,
    people: people::Open,
    approvals: approvals::Approvals,
    overrides: overrides::Overrides,
    councils: councils::Councils,
    locks: hindrances::Locks,
}

/// Whose rows a batch changes.
#[derive(Debug, Default)]
struct Touched {
    missions: BTreeSet<MissionId>,
    tasks: BTreeSet<TaskId>,
    agents: BTreeSet<AgentId>,
    team: Team,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Team {
    #[default]
    AsBefore,
    Changed,
}

/// Folds what is not in the tables yet.
pub(crate) fn catch_up(backend: &mut dyn Backend) -> Result<Fold, Error> {
    let (mut fold, mut written) = (Fold::default(), backend.watermark()?);
    let (_, epoch) = backend.look()?;
    loop {
        let page = backend.read(fold.seq, REBUILD_RECORDS)?;
        written = fold.take_in(backend, epoch, &page, written)?;
        if page.len() < REBUILD_RECORDS {
            return Ok(fold);
        }
    }
}

/// The rows of all tables after the first records, made in memory.
pub(crate) fn folded(backend: &dyn Backend, until: Seq) -> Result<Changes, Error> {
    let (mut fold, mut rows) = (Fold::default(), Changes::default());
    while fold.seq < until {
        let page = backend.read(fold.seq, REBUILD_RECORDS)?;
        let wanted = page.partition_point(|record| record.seq <= until);
        if wanted == 0 {
            break;
        }
        rows.merge(fold.changes(&page[..wanted]));
    }
    Ok(rows)
}

/// Drops everything and folds the whole journal again.
pub(crate) fn rebuild(backend: &mut dyn Backend) -> Result<Fold, Error> {
    backend.create_tables_anew()?;
    catch_up(backend)
}

/// Folds a history of somebody else, to learn whether it can be folded, and names the first record
/// that cannot. For tables that go with a transaction, or with nobody.
pub(crate) fn rehearse(backend: &mut dyn Backend) -> Result<(), Error> {
    match unless_impossible(|| rebuild(backend)) {
        Ok(_) => Ok(()),
        Err(Failed::Impossible(why)) => match first_impossible(backend)? {
            Some(named) => Err(named),
            // Only together they cannot; the last one is as good as any.
            None => Err(Error::Impossible { record: backend.look()?.0.seq, why }),
        },
        Err(Failed::Otherwise(error)) => Err(error),
    }
}

/// Why a fold of outside data ended.
enum Failed {
    Impossible(String),
    /// The disk, the server: nothing that the history can be blamed for.
    Otherwise(Error),
}

/// The fold is made for what engines write. What it cannot make sense of, it does not survive, nor
/// do the tables take it; where the history is somebody else's, that is theirs to mend.
fn unless_impossible<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Failed> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Error::Unfit { what } | Error::Duplicate { what })) => Err(Failed::Impossible(what)),
        Ok(Err(error)) => Err(Failed::Otherwise(error)),
        Err(_) => Err(Failed::Impossible("it does not fit what it is about".into())),
    }
}

/// Goes on from where the tables are, one record at a time.
fn first_impossible(backend: &mut dyn Backend) -> Result<Option<Error>, Error> {
    let (mut fold, mut written) = (Fold::default(), backend.watermark()?);
    let (_, epoch) = backend.look()?;
    loop {
        let page = backend.read(fold.seq, REBUILD_RECORDS)?;
        for record in &page {
            let one = slice::from_ref(record);
            match unless_impossible(|| fold.take_in(backend, epoch, one, written)) {
                Ok(reached) => written = reached,
                Err(Failed::Otherwise(error)) => return Err(error),
                Err(Failed::Impossible(why)) => {
                    return Ok(Some(Error::Impossible { record: record.seq, why }));
                }
            }
        }
        if page.len() < REBUILD_RECORDS {
            return Ok(None);
        }
    }
}

impl Fold {
    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn into_state(self) -> State {
        self.state
    }

    /// Folds the records that follow, and writes the rows of those that the tables do not tell
    /// yet, as whoever claimed this epoch. `written` is how far they reach; returns how far they reach then.
    ///
    /// After an error the fold may be ahead of the tables: drop it, and let a new one begin from
    /// the start or from a snapshot.
    pub(crate) fn take_in(
        &mut self,
        backend: &mut dyn Backend,
        epoch: Epoch,
        records: &[Record],
        written: Seq,
    ) -> Result<Seq, Error> {
        let mut last = self.seq;
        for record in records {
            refuse_hole(last, record.seq)?;
            last = record.seq;
        }
        let known = records.partition_point(|record| record.seq <= written);
        let mut unwanted = Changes::default();
        for record in &records[..known] {
            self.fold(record, &mut unwanted);
            unwanted.clear();
        }
        let [.., last] = &records[known..] else { return Ok(written) };
        let changes = self.changes(&records[known..]);
        backend.write_rows(epoch, &changes, (written, last.seq))?;
        Ok(last.seq)
    }

    fn fold(&mut self, record: &Record, changes: &mut Changes) {
        // Facts are told with the state before the event, where what it ends is still alive.
        self.tell(record, changes);
        self.state.apply(&record.event, record.at);
        self.settle(record, changes);
        self.seq = record.seq;
    }

    /// What is known only with the state after the record. Nothing here costs more than a look at
    /// a number, unless it is concerned.
    fn settle(&mut self, record: &Record, changes: &mut Changes) {
        self.attempts.settle(&self.state);
        self.open_votes(record, changes);
        self.settle_approvals(record, changes);
        self.settle_orders(record, changes);
        self.locks.settle(&self.state, record.at, changes);
    }

    fn changes(&mut self, records: &[Record]) -> Changes {
        let (mut changes, mut touched) = (Changes::default(), Touched::default());
        for record in records {
            touched.note(&self.state, &record.event);
            self.fold(record, &mut changes);
            touched.note(&self.state, &record.event);
            if let Event::PlanAccepted { mission, .. } = record.event {
                rows::dependencies(&self.state, mission, &mut changes);
            }
        }
        for mission in touched.missions.iter().filter_map(|id| self.state.mission(*id)) {
            rows::mission(&self.state, mission, &mut changes);
        }
        for task in touched.tasks.iter().filter_map(|id| self.state.task(*id)) {
            let Some(mission) = self.state.mission(task.mission) else { continue };
            rows::task(&self.state, task, mission, &mut changes);
        }
        match touched.team {
            Team::Changed => self.agents.write_all(&self.state, &mut changes),
            Team::AsBefore => self.agents.write(&touched.agents, &self.state, &mut changes),
        }
        changes
    }
}
