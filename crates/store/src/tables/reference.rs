//! The tables as a page for people, written from their description and from the migrations.

use std::fmt::Write;

use super::{Column, Dialect, Kind, Table, VIEWS, WATERMARK, all, ddl};
use crate::migrations::MIGRATIONS;

const OPENING: &str = "# The tables of the store

Point any SQL client at the tables: the file `.kapelle/store.tables.db` (open it read-only), or on PostgreSQL the
schema `kapelle_<project>`. The journal is the truth; the tables for people are folded behind it, within 100 ms at an ordinary load and later while
thousands of commands arrive every second (`projection_watermark` says how far they are), and
can be made anew at any time (`kapelle store rebuild`). Kapelle never reads them back, so nothing that is done to them can
change what it decides. On SQLite the truth is in a file of its own, `.kapelle/store.db`, so that nobody who asks keeps anybody
who works waiting; `ATTACH '.kapelle/store.db' AS truth` puts both into one query.

Times are milliseconds since the Unix epoch. Money is whole millionths of a US dollar. A column that lists its values has
a CHECK, a column that refers to a table a foreign key: the database refuses anything else.
";

/// The page `store-schema.md` of the reference.
#[must_use]
pub fn reference() -> String {
    let mut page = OPENING.to_owned();
    page += "\n## Tables for people\n";
    for table in all() {
        describe(table, &mut page);
    }
    for (name, about, query) in VIEWS {
        let query: Vec<&str> = query.lines().map(str::trim).collect();
        // Writing to a string cannot fail.
        let _ =
            write!(page, "\n### {name} (view)\n\n{about}\n\n```sql\n{}\n```\n", query.join("\n"));
    }
    let _ = write!(
        page,
        "\n### {WATERMARK}\n\nOne row: the tables above tell the first `seq` records of the journal, the \
         last of which has the hash `hash`, in the form `version`. `complaint` says why they do not \
         go on, if they cannot, and `search_complaint` what could not be made searchable, until a rebuild.\n"
    );
    page += "\n## The truth, by migration\n\nMigrations only go forward. A store is backed up before it is \
             migrated; a version that does not know a store's schema leaves it alone.\n";
    for migration in &MIGRATIONS {
        let (version, about) = (migration.version, migration.about);
        let _ = write!(page, "\n### Version {version}: {about}\n");
        for (name, sql) in [("SQLite", migration.sqlite), ("PostgreSQL", migration.postgres)] {
            let _ = write!(page, "\n{name}:\n\n```sql\n{}\n```\n", dedented(sql));
        }
    }
    page
}

fn describe(table: &Table, page: &mut String) {
    let (name, about, key) = (table.name, table.about, table.key());
    let _ =
        write!(page, "\n### {name}\n\n{about} Key: {key}.\n\n| column | type | |\n|---|---|---|\n");
    for column in &table.columns {
        let _ = writeln!(page, "| {} | {} | {} |", column.name, type_of(column), meaning(column));
    }
}

fn type_of(column: &Column) -> String {
    let kind = ddl::kind(&column.kind, Dialect::Postgres).to_lowercase();
    let null = if column.nullable { ", may be null" } else { "" };
    format!("{kind}{null}")
}

fn meaning(column: &Column) -> String {
    let mut parts = Vec::new();
    if !column.about.is_empty() {
        parts.push(column.about.to_owned());
    }
    if let Some(table) = column.refers_to {
        parts.push(format!("→ {table}"));
    }
    match &column.kind {
        Kind::OneOf(values) => {
            let quoted: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            parts.push(quoted.join(" "));
        }
        Kind::Flag => parts.push("0 or 1".to_owned()),
        Kind::Json => parts.push("JSON".to_owned()),
        Kind::Int | Kind::Text => {}
    }
    parts.join("; ")
}

/// SQL without the indentation that it has in the code.
fn dedented(sql: &str) -> String {
    let lines: Vec<&str> = sql.lines().filter(|line| !line.trim().is_empty()).collect();
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let margin = lines.iter().map(indent).min().unwrap_or(0);
    lines.iter().map(|line| line[margin..].trim_end()).collect::<Vec<_>>().join("\n")
}
