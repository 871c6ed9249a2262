//! The tables for people, described once: every engine of storage makes its own tables from this,
//! and so does the reference.
//!
//! Times are milliseconds since the Unix epoch, money is whole millionths of a US dollar. Foreign
//! keys are checked at the end of a transaction, so that a batch may write in any order.
//!
//! Invariant: the first columns of a row are its key, and no column is ever left to a default.

use std::sync::LazyLock;

/// The names that tables have for the variants of an enum: a list for the column, and a function
/// that gives the one of a value. It does not compile when a variant is missing.
macro_rules! names {
    ($of:ident, $all:ident: $type:ty = $($variant:pat => $name:literal),+ $(,)?) => {
        const $all: &[&str] = &[$($name),+];
        pub(crate) fn $of(value: &$type) -> &'static str {
            match value { $($variant => $name),+ }
        }
    };
}

pub(crate) mod councils;
mod ddl;
pub(crate) mod hindrances;
mod missions;
pub(crate) mod people;
mod reference;
mod views;
mod work;

pub(crate) use ddl::{Dialect, MARK, create, drop, indexes, upsert};
pub(crate) use missions::priority;
pub use reference::reference;
pub(crate) use views::VIEWS;

/// Raised with every change to what the tables are or hold; they are then made anew.
pub(crate) const VERSION: i64 = 10;

/// How far the tables have come, and in which form.
pub(crate) const WATERMARK: &str = "projection_watermark";

#[derive(Debug)]
pub(crate) struct Table {
    pub name: &'static str,
    pub about: &'static str,
    pub columns: Vec<Column>,
    /// How many of the columns are the key.
    pub keys: usize,
    /// Further columns that are unique together.
    pub unique: &'static [&'static str],
    /// What is indexed: columns, and for which rows if not for all.
    pub indexes: &'static [(&'static str, &'static str)],
}

#[derive(Debug)]
pub(crate) struct Column {
    pub name: &'static str,
    pub about: &'static str,
    pub kind: Kind,
    pub nullable: bool,
    /// The table whose key this is.
    pub refers_to: Option<&'static str>,
    /// Whether it stays as it was first written. Databases check a column again, and index it
    /// again, whenever it is written.
    pub fixed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Int,
    Flag,
    Text,
    OneOf(Vec<&'static str>),
    Json,
}

impl Kind {
    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Kind::Int | Kind::Flag)
    }
}

/// Which table a row belongs to: its place in `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Of {
    Missions,
    Tasks,
    TaskDependencies,
    Attempts,
    Agents,
    Checks,
    Costs,
    ModelUsage,
    Checkpoints,
    Approvals,
    Overrides,
    Councils,
    CouncilVotes,
    Breakers,
    FileLocks,
    RateLimits,
    FileOperations,
}

static ALL: LazyLock<[Table; 17]> = LazyLock::new(|| {
    [
        missions::missions(),
        missions::tasks(),
        missions::task_dependencies(),
        work::attempts(),
        work::agents(),
        work::checks(),
        people::costs(),
        people::model_usage(),
        people::checkpoints(),
        people::approvals(),
        people::overrides(),
        councils::councils(),
        councils::council_votes(),
        hindrances::breakers(),
        hindrances::file_locks(),
        hindrances::rate_limits(),
        work::file_operations(),
    ]
});

/// All of them, in the order in which a batch writes them. None refers to a later one but attempts
/// to agents, who are nearly always there already. While a reference waits for its row, SQLite looks
/// for it with every new row, through the whole table that refers.
pub(crate) fn all() -> &'static [Table] {
    &*ALL
}

impl Of {
    pub(crate) fn table(self) -> &'static Table {
        &ALL[self as usize]
    }
}

fn table(name: &'static str, about: &'static str, keys: usize, columns: Vec<Column>) -> Table {
    Table { name, about, columns, keys, unique: &[], indexes: &[] }
}

impl Table {
    fn unique(mut self, columns: &'static [&'static str]) -> Table {
        self.unique = columns;
        self
    }

    fn indexed(mut self, indexes: &'static [(&'static str, &'static str)]) -> Table {
        self.indexes = indexes;
        self
    }

    pub(crate) fn key(&self) -> String {
        let names: Vec<&str> = self.columns[..self.keys].iter().map(|column| column.name).collect();
        names.join(", ")
    }
}

fn column(name: &'static str, kind: Kind, about: &'static str) -> Column {
    Column { name, about, kind, nullable: false, refers_to: None, fixed: false }
}

fn int(name: &'static str, about: &'static str) -> Column {
    column(name, Kind::Int, about)
}

fn text(name: &'static str, about: &'static str) -> Column {
    column(name, Kind::Text, about)
}

fn one_of(
    name: &'static str,
    values: impl IntoIterator<Item = &'static str>,
    about: &'static str,
) -> Column {
    column(name, Kind::OneOf(values.into_iter().collect()), about)
}

impl Column {
    fn or_null(mut self) -> Column {
        self.nullable = true;
        self
    }

    fn refers_to(mut self, table: &'static str) -> Column {
        self.refers_to = Some(table);
        self
    }

    fn fixed(mut self) -> Column {
        self.fixed = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_table() {
        let named = [
            (Of::Missions, "missions"),
            (Of::Tasks, "tasks"),
            (Of::TaskDependencies, "task_dependencies"),
            (Of::Attempts, "attempts"),
            (Of::Agents, "agents"),
            (Of::Checks, "checks"),
            (Of::Costs, "costs"),
            (Of::ModelUsage, "model_usage"),
            (Of::Checkpoints, "checkpoints"),
            (Of::Approvals, "approvals"),
            (Of::Overrides, "overrides"),
            (Of::Councils, "councils"),
            (Of::CouncilVotes, "council_votes"),
            (Of::Breakers, "breakers"),
            (Of::FileLocks, "file_locks"),
            (Of::RateLimits, "rate_limits"),
            (Of::FileOperations, "file_operations"),
        ];
        assert_eq!(named.len(), all().len());
        for (of, name) in named {
            assert_eq!(of.table().name, name);
        }
    }

    /// As many as the fold has room for (`projections::changes`).
    #[test]
    fn keys_have_one_or_two_columns() {
        for table in all() {
            assert!((1..=2).contains(&table.keys), "{}", table.name);
        }
    }

    /// What waits for a later row is searched for with every row that comes before it (`all`).
    #[test]
    fn rows_are_written_after_those_that_they_refer_to() {
        let place = |name: &str| all().iter().position(|table| table.name == name);
        let mut waiting = Vec::new();
        for table in all() {
            let targets = table.columns.iter().filter_map(|column| column.refers_to);
            waiting.extend(
                targets.filter(|to| place(to) > place(table.name)).map(|to| (table.name, to)),
            );
        }
        assert_eq!(waiting, [("attempts", "agents")]);
    }

    #[test]
    fn references_lead_to_a_table_with_one_key() {
        for column in all().iter().flat_map(|table| &table.columns) {
            let Some(name) = column.refers_to else { continue };
            let target = all().iter().find(|table| table.name == name);
            assert!(target.is_some_and(|table| table.keys == 1), "{} → {name}", column.name);
        }
    }
}
