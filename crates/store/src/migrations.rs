//! The tables that hold the truth, version by version.
//!
//! Invariant: migrations only go forward and are never edited; a store that was written by a newer
//! version is left alone. Tables that are only derived from the journal are versioned apart from
//! these (`tables`), so that they can change without a migration.

/// One step from a version to the next.
#[derive(Debug)]
pub(crate) struct Migration {
    pub version: i64,
    pub about: &'static str,
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

/// The version that this program writes.
pub(crate) const VERSION: i64 = MIGRATIONS[MIGRATIONS.len() - 1].version;

pub(crate) const MIGRATIONS: [Migration; 2] = [
    Migration {
        version: 1,
        about: "the journal",
        // The triggers keep the hands of a person at a SQL prompt off the history. They are no
        // protection against someone who means it; the hash chain is.
        sqlite: "
    CREATE TABLE meta (
        id        INTEGER PRIMARY KEY CHECK (id = 1),
        store_id  TEXT NOT NULL CHECK (length(store_id) = 32),
        epoch     INTEGER NOT NULL CHECK (epoch >= 0)
    ) STRICT;
    INSERT INTO meta (id, store_id, epoch) VALUES (1, lower(hex(randomblob(16))), 0);

    CREATE TABLE journal (
        seq    INTEGER PRIMARY KEY CHECK (seq > 0),
        at     INTEGER NOT NULL,
        epoch  INTEGER NOT NULL,
        body   TEXT NOT NULL,
        hash   BLOB NOT NULL CHECK (length(hash) = 32)
    ) STRICT;
    CREATE TRIGGER journal_is_not_edited BEFORE UPDATE ON journal
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
    CREATE TRIGGER journal_is_not_cut BEFORE DELETE ON journal
        BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
",
        postgres: "
    CREATE TABLE meta (
        id        BIGINT PRIMARY KEY CHECK (id = 1),
        store_id  TEXT NOT NULL CHECK (length(store_id) = 32),
        epoch     BIGINT NOT NULL CHECK (epoch >= 0),
        version   BIGINT NOT NULL,
        holder    TEXT
    );
    INSERT INTO meta (id, store_id, epoch, version)
        VALUES (1, replace(gen_random_uuid()::text, '-', ''), 0, 1);

    CREATE TABLE journal (
        seq    BIGINT PRIMARY KEY CHECK (seq > 0),
        at     BIGINT NOT NULL,
        epoch  BIGINT NOT NULL,
        body   TEXT NOT NULL,
        hash   BYTEA NOT NULL CHECK (length(hash) = 32)
    );
    CREATE FUNCTION journal_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN RAISE EXCEPTION 'the journal is append-only'; END$$;
    CREATE TRIGGER journal_is_not_edited BEFORE UPDATE OR DELETE OR TRUNCATE ON journal
        FOR EACH STATEMENT EXECUTE FUNCTION journal_is_append_only();
",
    },
    Migration {
        version: 2,
        about: "blobs, search, snapshots",
        sqlite: "
    CREATE TABLE blobs (
        hash  TEXT PRIMARY KEY CHECK (length(hash) = 64),
        body  BLOB NOT NULL
    ) STRICT;
    CREATE TABLE blob_owners (
        hash   TEXT NOT NULL REFERENCES blobs,
        owner  TEXT NOT NULL,
        PRIMARY KEY (hash, owner)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX blob_owners_by_owner ON blob_owners (owner);

    CREATE TABLE documents (
        id          INTEGER PRIMARY KEY,
        kind        TEXT NOT NULL CHECK (kind IN ('activity', 'log', 'memory')),
        source      TEXT NOT NULL,
        seq         INTEGER,
        at          INTEGER NOT NULL,
        mission_id  TEXT,
        task_id     INTEGER,
        agent       TEXT,
        type        TEXT,
        body        TEXT NOT NULL,
        UNIQUE (kind, source)
    ) STRICT;
    CREATE VIRTUAL TABLE documents_words USING fts5(body, content='', contentless_delete=1,
        tokenize='unicode61 remove_diacritics 0');
    CREATE TABLE search_watermark (
        id   INTEGER PRIMARY KEY CHECK (id = 1),
        seq  INTEGER NOT NULL
    ) STRICT;
    INSERT INTO search_watermark (id, seq) VALUES (1, 0);
",
        postgres: "
    CREATE TABLE blobs (
        hash  TEXT PRIMARY KEY CHECK (length(hash) = 64),
        body  BYTEA NOT NULL
    );
    CREATE TABLE blob_owners (
        hash   TEXT NOT NULL REFERENCES blobs,
        owner  TEXT NOT NULL,
        PRIMARY KEY (hash, owner)
    );
    CREATE INDEX blob_owners_by_owner ON blob_owners (owner);

    CREATE TABLE documents (
        id          BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        kind        TEXT NOT NULL CHECK (kind IN ('activity', 'log', 'memory')),
        source      TEXT NOT NULL,
        seq         BIGINT,
        at          BIGINT NOT NULL,
        mission_id  TEXT,
        task_id     BIGINT,
        agent       TEXT,
        type        TEXT,
        body        TEXT NOT NULL,
        words       TSVECTOR NOT NULL,
        UNIQUE (kind, source)
    );
    CREATE INDEX documents_by_words ON documents USING gin (words);
    CREATE TABLE search_watermark (
        id   BIGINT PRIMARY KEY CHECK (id = 1),
        seq  BIGINT NOT NULL
    );
    INSERT INTO search_watermark (id, seq) VALUES (1, 0);

    CREATE TABLE snapshots (
        id    BIGINT PRIMARY KEY CHECK (id = 1),
        body  BYTEA NOT NULL
    );
",
    },
];

/// The steps that bring a store of `version` up to date.
pub(crate) fn after(version: i64) -> impl Iterator<Item = &'static Migration> {
    MIGRATIONS.iter().filter(move |migration| migration.version > version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_counted_from_one_without_gaps() {
        let versions: Vec<i64> = after(0).map(|migration| migration.version).collect();
        assert_eq!(versions, (1..=VERSION).collect::<Vec<_>>());
        assert_eq!(after(VERSION).count(), 0);
    }
}
