//! Projections: the journal as tables for people and their SQL clients.
//!
//! They are folded behind the journal in batches. Kapelle itself never answers from them, so they
//! may lag, fail or be dropped without harm.
//!
//! Invariant: the tables are a function of the first `projection_watermark.seq` records, and of
//! nothing else. Rows and watermark change in the same transaction.

use std::collections::BTreeSet;

use kapelle_core::{Event, MissionId, Record, Seq, State, TaskId};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::error::Error;
use crate::sqlite::{self, clamped};

mod facts;
mod rows;
mod tables;
mod touched;

/// A rebuild holds the writer for one batch at a time, and its memory too.
const REBUILD_RECORDS: usize = 10_000;

/// Folds the journal into the tables. It keeps a state of its own, always at `seq`.
#[derive(Debug, Default)]
pub(crate) struct Projector {
    state: State,
    seq: Seq,
}

/// Whose rows a batch changes.
#[derive(Debug, Default)]
struct Touched {
    missions: BTreeSet<MissionId>,
    tasks: BTreeSet<TaskId>,
    team: Team,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Team {
    #[default]
    AsBefore,
    Changed,
}

/// Makes sure that the tables are there in the form of this version. What was folded into tables
/// of another form is folded again.
pub(crate) fn prepare(conn: &mut Connection) -> Result<(), Error> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !tables::are_current(&tx)? {
        tables::create_anew(&tx)?;
    }
    Ok(tx.commit()?)
}

/// Drops everything and folds the whole journal again.
pub(crate) fn rebuild(conn: &mut Connection) -> Result<Seq, Error> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tables::create_anew(&tx)?;
    tx.commit()?;
    let mut projector = Projector::default();
    while !projector.fold(conn, REBUILD_RECORDS)? {}
    Ok(projector.seq)
}

/// How far the tables reach.
pub(crate) fn watermark(conn: &Connection) -> Result<Seq, Error> {
    let mut mark = conn.prepare_cached("SELECT seq FROM projection_watermark")?;
    let seq = mark.query_row([], |row| sqlite::seq(row, 0)).optional()?;
    Ok(seq.unwrap_or_default())
}

impl Projector {
    pub(crate) fn seq(&self) -> Seq {
        self.seq
    }

    /// Folds at most `limit` records in one transaction. Returns whether that was the rest.
    ///
    /// After an error the state may be ahead of the tables: drop the projector, and let a new one
    /// begin from the start.
    pub(crate) fn fold(&mut self, conn: &mut Connection, limit: usize) -> Result<bool, Error> {
        let records = sqlite::records(conn, self.seq, limit)?;
        let Some(last) = records.last().map(|record| record.seq) else { return Ok(true) };
        let written = watermark(conn)?;
        let known = records.partition_point(|record| record.seq <= written);
        for record in &records[..known] {
            self.state.apply(&record.event, record.at);
        }
        if let new @ [_, ..] = &records[known..] {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            self.write(&tx, new)?;
            let mark = "UPDATE projection_watermark SET seq = ?1";
            tx.prepare_cached(mark)?.execute([clamped(last.0)])?;
            tx.commit()?;
        }
        self.seq = last;
        Ok(records.len() < limit)
    }

    fn write(&mut self, tx: &Transaction<'_>, records: &[Record]) -> Result<(), Error> {
        let mut touched = Touched::default();
        for record in records {
            // Facts are told with the state before the event, where what it ends is still alive.
            touched.note(&self.state, &record.event);
            facts::write(tx, &self.state, record)?;
            self.state.apply(&record.event, record.at);
            touched.note(&self.state, &record.event);
            if let Event::PlanAccepted { mission, .. } = record.event {
                rows::write_dependencies(tx, &self.state, mission)?;
            }
        }
        for mission in touched.missions.iter().filter_map(|id| self.state.mission(*id)) {
            rows::write_mission(tx, mission)?;
        }
        for task in touched.tasks.iter().filter_map(|id| self.state.task(*id)) {
            let Some(mission) = self.state.mission(task.mission) else { continue };
            rows::write_task(tx, &self.state, task, mission)?;
        }
        if touched.team == Team::Changed {
            rows::write_team(tx, &self.state)?;
        }
        Ok(())
    }
}
