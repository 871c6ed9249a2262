//! The same tables in the words of each database.

use std::sync::LazyLock;

use super::{Column, Kind, Of, Table, VERSION, VIEWS, WATERMARK, all};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// By this our tables, indexes and views are told from those that people add: on PostgreSQL it is
/// their comment, on SQLite, with their name, a part of the text that made them, which it keeps.
pub(crate) const MARK: &str = "made from the journal by Kapelle";

/// What makes all tables and views, empty.
pub(crate) fn create(dialect: Dialect) -> String {
    let mut sql = String::new();
    for table in all() {
        sql += &create_table(table, dialect);
    }
    if dialect == Dialect::Postgres {
        // Attempts and agents refer to each other, so all of them have to be there first.
        for table in all() {
            for column in &table.columns {
                let (name, to) = (column.name, column.refers_to);
                let Some(to) = to else { continue };
                sql += &format!(
                    "ALTER TABLE {} ADD FOREIGN KEY ({name}) REFERENCES {to} \
                     DEFERRABLE INITIALLY DEFERRED;\n",
                    table.name
                );
            }
        }
    }
    for (name, _, query) in VIEWS {
        sql += &format!("CREATE VIEW {name} AS{} {query};\n", marked(name, dialect));
    }
    let int = kind(&Kind::Int, dialect);
    sql += &format!(
        "CREATE TABLE {WATERMARK} ({} id {int} PRIMARY KEY CHECK (id = 1), seq {int} NOT NULL CHECK (seq >= 0), \
         hash TEXT NOT NULL, version {int} NOT NULL, complaint TEXT, search_complaint TEXT){};\n\
         INSERT INTO {WATERMARK} (id, seq, hash, version) VALUES (1, 0, '', {VERSION});\n",
        marked(WATERMARK, dialect),
        strictness(dialect)
    );
    if dialect == Dialect::Postgres {
        let tables = all().iter().map(|table| ("TABLE", table.name));
        let views = VIEWS.iter().map(|(name, ..)| ("VIEW", *name));
        for (kind, name) in tables.chain(views).chain([("TABLE", WATERMARK)]) {
            sql += &format!("COMMENT ON {kind} {name} IS '{MARK}';\n");
        }
    }
    sql
}

/// What removes them, whichever are there: views first, then tables before those they refer to. On
/// PostgreSQL also those that only another version had.
pub(crate) fn drop(dialect: Dialect) -> String {
    let cascade = match dialect {
        Dialect::Sqlite => "",
        Dialect::Postgres => " CASCADE",
    };
    let others = match dialect {
        Dialect::Sqlite => String::new(),
        Dialect::Postgres => format!(
            "DO $$DECLARE made record; BEGIN
                FOR made IN SELECT relname, relkind FROM pg_class
                    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'v')
                        AND obj_description(oid, 'pg_class') = '{MARK}' LOOP
                    EXECUTE format('DROP %s IF EXISTS %I CASCADE',
                        CASE made.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, made.relname);
                END LOOP; END$$;\n"
        ),
    };
    let views = VIEWS.iter().map(|(name, ..)| format!("DROP VIEW IF EXISTS {name};\n"));
    let tables = all().iter().rev().map(|table| table.name).chain([WATERMARK]);
    let tables = tables.map(|name| format!("DROP TABLE IF EXISTS {name}{cascade};\n"));
    views.chain(tables).chain([others]).collect()
}

/// What writes rows, whether they are there or not. SQLite takes one row, PostgreSQL a list for
/// every column. The texts are made once: a batch may need ten of them.
pub(crate) fn upsert(of: Of, dialect: Dialect) -> &'static str {
    static TEXTS: LazyLock<[Vec<String>; 2]> = LazyLock::new(|| {
        [Dialect::Sqlite, Dialect::Postgres]
            .map(|dialect| all().iter().map(|table| upsert_into(table, dialect)).collect())
    });
    &TEXTS[dialect as usize][of as usize]
}

fn upsert_into(table: &Table, dialect: Dialect) -> String {
    let place = |(at, column): (usize, &Column)| match dialect {
        Dialect::Sqlite => format!("?{}", at + 1),
        Dialect::Postgres => format!("${}::{}[]", at + 1, kind(&column.kind, dialect)),
    };
    let places: Vec<String> = table.columns.iter().enumerate().map(place).collect();
    let source = match dialect {
        Dialect::Sqlite => format!("VALUES ({})", places.join(", ")),
        Dialect::Postgres => format!("SELECT * FROM unnest({})", places.join(", ")),
    };
    let set = |column: &Column| format!("{0} = excluded.{0}", column.name);
    let changing = table.columns[table.keys..].iter().filter(|column| !column.fixed);
    let rest: Vec<String> = changing.map(set).collect();
    let action = match rest.is_empty() {
        true => "NOTHING".to_owned(),
        false => format!("UPDATE SET {}", rest.join(", ")),
    };
    format!("INSERT INTO {} {source} ON CONFLICT ({}) DO {action}", table.name, table.key())
}

fn create_table(table: &Table, dialect: Dialect) -> String {
    let mut lines: Vec<String> =
        table.columns.iter().map(|column| declared(column, dialect)).collect();
    lines.push(format!("PRIMARY KEY ({})", table.key()));
    if !table.unique.is_empty() {
        lines.push(format!("UNIQUE ({})", table.unique.join(", ")));
    }
    let without_rowid = match dialect {
        Dialect::Sqlite if table.keys > 1 => ", WITHOUT ROWID",
        _ => "",
    };
    let name = table.name;
    let mut sql = format!(
        "CREATE TABLE {name} ({}\n    {}\n){}{without_rowid};\n",
        marked(name, dialect),
        lines.join(",\n    "),
        strictness(dialect)
    );
    for (columns, rows) in table.indexes {
        let only = if rows.is_empty() { String::new() } else { format!(" WHERE {rows}") };
        let index = index_name(name, columns);
        let mark = marked(&index, dialect);
        sql += &format!("CREATE INDEX {index} ON {name}{mark} ({columns}){only};\n");
    }
    sql
}

/// The names of our indexes, without those of keys.
pub(crate) fn indexes() -> impl Iterator<Item = String> {
    let of = |table: &'static Table| table.indexes.iter().map(|(of, _)| index_name(table.name, of));
    all().iter().flat_map(of)
}

fn index_name(table: &str, columns: &str) -> String {
    format!("{table}_by_{columns}")
}

fn declared(column: &Column, dialect: Dialect) -> String {
    let name = column.name;
    let mut line = format!("{name} {}", kind(&column.kind, dialect));
    if !column.nullable {
        line += " NOT NULL";
    }
    match (&column.kind, dialect) {
        // For every row that it checks, SQLite makes a temporary index of a list; not of this.
        (Kind::OneOf(values), Dialect::Sqlite) => {
            let equal: Vec<String> = values.iter().map(|v| format!("{name} = '{v}'")).collect();
            line += &format!(" CHECK ({})", equal.join(" OR "));
        }
        (Kind::OneOf(values), Dialect::Postgres) => {
            let quoted: Vec<String> = values.iter().map(|value| format!("'{value}'")).collect();
            line += &format!(" CHECK ({name} IN ({}))", quoted.join(", "));
        }
        (Kind::Flag, _) => line += &format!(" CHECK ({name} IN (0, 1))"),
        (Kind::Json, Dialect::Sqlite) => line += &format!(" CHECK (json_valid({name}))"),
        // A text that is not JSON fails the cast.
        (Kind::Json, Dialect::Postgres) => {
            line += &format!(" CHECK (CAST({name} AS json) IS NOT NULL)");
        }
        (Kind::Int | Kind::Text, _) => {}
    }
    if let (Some(table), Dialect::Sqlite) = (column.refers_to, dialect) {
        line += &format!(" REFERENCES {table} DEFERRABLE INITIALLY DEFERRED");
    }
    line
}

pub(super) fn kind(kind: &Kind, dialect: Dialect) -> &'static str {
    match (kind.is_number(), dialect) {
        (true, Dialect::Sqlite) => "INTEGER",
        (true, Dialect::Postgres) => "BIGINT",
        (false, _) => "TEXT",
    }
}

/// With the name of what is made: whoever begins with a copy of it gives that another one.
fn marked(name: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!(" /* {name}: {MARK} */"),
        Dialect::Postgres => String::new(),
    }
}

fn strictness(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => " STRICT",
        Dialect::Postgres => "",
    }
}
