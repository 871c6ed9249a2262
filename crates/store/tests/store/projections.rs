//! The tables for people: do they say what the state says, and do they refuse what is wrong?

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use kapelle_core::approval::OverrideAction;
use kapelle_core::command::Spending;
use kapelle_core::council::{CouncilId, Question};
use kapelle_core::mission::MissionStage;
use kapelle_core::{Actor, Command, MissionId, Record, Seq, State, Usd};
use kapelle_store::{Reader, Writer, rebuild, tables_path};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::fixture::{self, Host, Place};
use crate::sayings::{sayings, standings};
use crate::{cluster, crowd};

/// Seeds whose histories, taken together, have every kind of event in them.
const SEEDS: [u64; 3] = [33, 43, 57];

/// The same for histories with people and councils.
const CROWDS: [u64; 3] = [53, 210, 349];

fn histories() -> impl Iterator<Item = Vec<Record>> {
    let plain = SEEDS.into_iter().map(|seed| fixture::history(seed, 2));
    plain.chain(CROWDS.into_iter().map(|seed| crowd::history(seed, 2)))
}

const TABLES: [&str; 18] = [
    "missions",
    "tasks",
    "task_dependencies",
    "agents",
    "attempts",
    "checks",
    "costs",
    "model_usage",
    "checkpoints",
    "approvals",
    "overrides",
    "councils",
    "council_votes",
    "breakers",
    "file_locks",
    "rate_limits",
    "file_operations",
    "projection_watermark",
];

/// Every row of every table, a line each.
pub fn dump(path: &Path) -> Vec<String> {
    let raw = fixture::tables(path);
    let mut lines = Vec::new();
    for table in TABLES {
        let mut statement = raw.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let mut text = table.to_owned();
            for (column, name) in names.iter().enumerate() {
                write!(text, " {name}={:?}", row.get::<_, Value>(column).unwrap()).unwrap();
            }
            lines.push(text);
        }
    }
    lines
}

/// Both dumps have the same rows; if not, the first that differ are shown.
pub fn assert_same(one: &[String], other: &[String], when: &str) {
    let differ = one.iter().zip(other).find(|(one, other)| one != other);
    assert_eq!(differ, None, "{when}");
    assert_eq!(one.len(), other.len(), "{when}");
}

fn rows(raw: &Connection, sql: &str) -> Vec<String> {
    let mut statement = raw.prepare(sql).unwrap();
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        let values = (0..columns).map(|column| match row.get(column).unwrap() {
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => text,
            other => format!("{other:?}"),
        });
        Ok(values.collect::<Vec<_>>().join(" "))
    };
    statement.query_map([], row).unwrap().map(Result::unwrap).collect()
}

/// The histories below have to contain what could go wrong, or they prove nothing.
#[test]
fn the_histories_have_everything_in_them() {
    let types: BTreeSet<String> = histories()
        .flatten()
        .map(|record| {
            let event = serde_json::to_value(&record.event).unwrap();
            event["type"].as_str().unwrap().to_owned()
        })
        .collect();
    let wanted = [
        "approval_asked",
        "approval_given",
        "approval_rejected",
        "attempt_failed",
        "attempt_finished",
        "attempt_interrupted",
        "breaker_moved",
        "change_conflicted",
        "checkpoint_answered",
        "checkpoint_raised",
        "checks_finished",
        "cost_charged",
        "council_abandoned",
        "council_closed",
        "council_convened",
        "council_decided",
        "council_resolved",
        "delivery_approved",
        "delivery_proposed",
        "delivery_refused",
        "files_locked",
        "lane_tested",
        "lease_granted",
        "lease_renewed",
        "locks_expired",
        "mission_cancelled",
        "mission_delivered",
        "operation_completed",
        "overridden",
        "override_lapsed",
        "override_proposed",
        "plan_accepted",
        "provider_back",
        "provider_parked",
        "retry_scheduled",
        "rollback_started",
        "task_merged",
        "task_rolled_back",
        "team_changed",
        "vote_cast",
        "vote_dropped",
    ];
    let missing: Vec<_> = wanted.iter().filter(|name| !types.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?} of {types:?}");
}

/// Often enough to meet every state of affairs, seldom enough to be quick.
const FOLDED_IN_ONE_EVERY: usize = 5;

/// At every moment, folded record by record. A row that a batch forgot to write would be right
/// after a fold in one batch, and only there, so the two must be equal: on the way, and after a
/// rebuild.
#[test]
fn tables_say_what_the_state_says_and_what_a_rebuild_says() {
    for (number, records) in histories().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let writer = Writer::open(&path).unwrap();
        let (raw, mut state) = (fixture::tables(&path), State::default());
        let reader = Reader::open(&path).unwrap();
        for (index, record) in records.iter().enumerate() {
            writer.append(writer.epoch(), Seq(index as u64), vec![record.clone()], |done| {
                done.unwrap();
            });
            let (told, heard) = std::sync::mpsc::channel();
            writer.flush(move |done| told.send(done.unwrap()).unwrap());
            assert_eq!(heard.recv().unwrap(), record.seq);
            state.apply(&record.event, record.at);
            for (sql, said) in sayings(&state).into_iter().chain(standings(&state)) {
                assert_eq!(rows(&raw, sql), said, "{sql} after {record:?}");
            }
            if index.is_multiple_of(FOLDED_IN_ONE_EVERY) {
                assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "after {record:?}");
            }
        }
        writer.close().unwrap();
        let folded = dump(&path);
        assert_eq!(rebuild(&path).unwrap().seq, Seq(records.len() as u64));
        assert_same(&folded, &dump(&path), &format!("history {number}"));
        // The same on a server, in batches in which rows change more than once.
        let location = cluster::shared().project();
        fixture::write(&location, &records, 7);
        let on_server = Reader::open(&location).unwrap().tables().unwrap();
        assert_eq!(on_server, reader.tables().unwrap(), "history {number} on PostgreSQL");
    }
}

/// Who reads the tables while a council votes must not learn what anybody has voted.
#[test]
fn votes_are_sealed_until_their_council_closes() {
    let mut host = crowd::host(5);
    host.open("first");
    host.run_until_somebody_works();
    let task = host.engine.state().tasks().next().unwrap().id;
    let (question, panel) = (Question::Problem, Vec::new());
    host.give(Command::ConveneCouncil { task, question, panel, by: fixture::me() });
    let cast = |host: &mut Host, by: &str| {
        let vote = Box::new(crowd::vote(by.into(), false, 1));
        host.give(Command::CastVote { council: CouncilId(1), vote, spent: Usd::cents(2) });
    };
    cast(&mut host, "deepseek");
    cast(&mut host, "gemini");
    let sealed = host.records.len();
    cast(&mut host, "gpt");
    let votes = "SELECT model || ' ' || status || ' ' || coalesce(choice, '-') || ' ' ||
        coalesce(confidence_permille, 0) || ' ' || heard_at FROM council_votes ORDER BY model";
    let at = host.records[sealed - 1].at.0;
    for place in fixture::places() {
        fixture::write(&place.location, &host.records[..sealed], 100);
        let (first, second) =
            (format!("deepseek sealed - 0 {at}"), format!("gemini sealed - 0 {at}"));
        assert_eq!(place.ask(votes), [first, second], "{}", place.name);
        assert!(!everything(&place).contains(crowd::SECRET), "{}", place.name);
        fixture::write(&place.location, &host.records[sealed..], 100);
        let opened =
            ["deepseek", "gemini", "gpt"].map(|model| format!("{model} counted solution 700 {at}"));
        assert_eq!(place.ask(votes), opened, "{}", place.name);
        assert!(everything(&place).contains(crowd::SECRET), "{}", place.name);
    }
}

/// An order that wants a second person is seconded, gives way to another, or goes with its mission.
#[test]
fn orders_are_seconded_or_lapse() {
    let orders = "SELECT ordered_by || ' ' || status || ' ' || coalesce(seconded_by, '-')
        FROM overrides ORDER BY seq";
    let cancel = Command::CancelMission {
        mission: MissionId(1),
        reason: "enough".to_owned(),
        by: fixture::me(),
    };
    let mut ends = Vec::new();
    for second in [true, false] {
        let mut host = crowd::host(5);
        host.open("first");
        host.run_until_somebody_works();
        let task = host.engine.state().tasks().next().unwrap().id;
        host.give(crowd::order(task, OverrideAction::ForceComplete, Actor("ada".into())));
        host.give(crowd::order(task, OverrideAction::ForceComplete, Actor("bob".into())));
        assert!(host.engine.state().overrides().pending(task).is_some());
        if second {
            host.give(Command::SecondOverride { task, by: Actor("cyd".into()) });
        }
        host.give(cancel.clone());
        let [place, _] = fixture::places();
        fixture::write(&place.location, &host.records, 100);
        ends.push(place.ask(orders));
    }
    assert_eq!(ends, [["ada lapsed -", "bob done cyd"], ["ada lapsed -", "bob lapsed -"]]);
}

/// All that a person can read in the tables.
fn everything(place: &Place) -> String {
    match place.location.path() {
        Some(path) => dump(path).join("\n"),
        None => {
            let rows = |table| place.ask(&format!("SELECT t::text FROM {table} t"));
            TABLES.into_iter().flat_map(rows).collect()
        }
    }
}

/// The bill of an attempt that was cut short comes when its row is written and closed.
#[test]
fn a_late_bill_is_in_the_row_of_the_attempt_that_ended() {
    let mut host = Host::new(1);
    host.open("first");
    host.run_until_somebody_works();
    let (fence, _) = host.engine.state().leases().next().unwrap();
    host.give(Command::HostStarted);
    assert!(host.engine.state().lease(fence).is_none(), "it goes on");
    let before = host.records.len();
    let spent = Spending { usd: Usd::micros(4_711), ..Spending::default() };
    host.give(Command::ReportSpending { fence, spent });
    for place in fixture::places() {
        let costs =
            format!("SELECT status || ' ' || cost_usd_micros FROM attempts WHERE fence = {fence}");
        // The bill comes to a later writer, which knows the attempt from the journal or a snapshot.
        fixture::write(&place.location, &host.records[..before], 100);
        assert_eq!(place.ask(&costs), ["interrupted 0"], "{}", place.name);
        fixture::write(&place.location, &host.records[before..], 100);
        assert_eq!(place.ask(&costs), ["interrupted 4711"], "{}", place.name);
        let rebuilt = rebuild(&place.location).unwrap();
        assert_eq!(rebuilt.before, rebuilt.after, "{}", place.name);
    }
}

/// A mission that is cancelled ends an attempt, a question or a proposal without a word about it.
#[test]
fn cancelling_ends_what_was_open() {
    type Moment = fn(&State) -> bool;
    let moments: [(&str, Moment); 3] = [
        ("attempts", |state| state.leases().next().is_some()),
        ("checkpoints", |state| state.missions().any(|mission| mission.counts.asking > 0)),
        ("approvals", |state| {
            state.missions().any(|mission| matches!(mission.stage, MissionStage::Proposed { .. }))
        }),
    ];
    for (table, has_come) in moments {
        let mut host = Host::new(1);
        host.open("first");
        while !has_come(host.engine.state()) {
            assert!(host.chore(MissionId(1)), "nothing for {table}");
        }
        let (reason, by) = ("enough".to_owned(), fixture::me());
        host.give(Command::CancelMission { mission: MissionId(1), reason, by });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        fixture::filled(&path, &host.records, 100);
        rebuild(&path).unwrap();
        let raw = fixture::tables(&path);
        for (sql, said) in sayings(host.engine.state()) {
            assert_eq!(rows(&raw, sql), said, "{sql}");
        }
        let ended = format!(
            "SELECT count(*) FROM {table} WHERE status IN ('cancelled', 'gone') AND ended_at > 0"
        );
        assert_eq!(rows(&raw, &ended), ["1"], "{table}");
    }
}

/// What people were promised to be able to ask.
#[test]
fn people_can_ask_in_plain_sql() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut host = Host::new(11);
    host.open("first");
    fixture::filled(&path, &host.records, 100);
    rebuild(&path).unwrap();
    let raw = fixture::tables(&path);
    let ask = |sql| rows(&raw, sql);
    assert_eq!(
        ask("SELECT name, status, priority FROM tasks WHERE mission_id = 'm1'"),
        ["1-1 pending HIGH", "1-2 pending MEDIUM", "1-3 pending MEDIUM", "1-4 pending MEDIUM"]
    );
    assert_eq!(ask("SELECT task_id, depends_on FROM task_dependencies"), ["2 1", "4 2", "4 3"]);
    assert_eq!(
        ask("SELECT name, status FROM agents"),
        ["developer-1 idle", "developer-2 idle", "tester-1 idle"]
    );
    assert_eq!(ask("SELECT * FROM costs_by_mission"), ["m1 the goal of first running 0 0 75"]);
    assert_eq!(ask("SELECT * FROM tasks WHERE status = 'blocked'"), [""; 0]);
}

#[test]
fn wrong_values_and_dangling_references_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fixture::filled(&path, &crowd::history(CROWDS[1], 2), 100);
    rebuild(&path).unwrap();
    let raw = fixture::tables(&path);
    raw.pragma_update(None, "foreign_keys", true).unwrap();
    for (sql, refusal) in [
        ("UPDATE tasks SET status = 'doing'", "CHECK"),
        ("UPDATE tasks SET priority = 'urgent'", "CHECK"),
        ("UPDATE missions SET status = 'completed'", "CHECK"),
        ("UPDATE attempts SET status = 'lost'", "CHECK"),
        ("UPDATE attempts SET failure_kind = 'bad luck'", "CHECK"),
        ("UPDATE approvals SET status = 'maybe'", "CHECK"),
        ("UPDATE approvals SET subject = 'lunch'", "CHECK"),
        ("UPDATE overrides SET action = 'wish'", "CHECK"),
        ("UPDATE councils SET strategy = 'dice'", "CHECK"),
        ("UPDATE council_votes SET evidence = 'hearsay'", "CHECK"),
        ("UPDATE breakers SET state = 'broken'", "CHECK"),
        ("UPDATE file_locks SET status = 'lost'", "CHECK"),
        ("UPDATE rate_limits SET status = 'tired'", "CHECK"),
        ("UPDATE file_operations SET task_id = 999", "FOREIGN KEY"),
        ("UPDATE overrides SET mission_id = 'm9'", "FOREIGN KEY"),
        ("UPDATE council_votes SET council_id = council_id + 900", "FOREIGN KEY"),
        ("UPDATE file_locks SET task_id = 999", "FOREIGN KEY"),
        ("UPDATE checks SET passed = 2", "CHECK"),
        ("UPDATE agents SET role = 'manager'", "CHECK"),
        ("UPDATE tasks SET mission_id = 'm9' WHERE id = 1", "FOREIGN KEY"),
        ("UPDATE attempts SET agent = 'developer-9'", "FOREIGN KEY"),
        ("INSERT INTO task_dependencies VALUES (1, 99)", "FOREIGN KEY"),
        ("UPDATE costs SET fence = 999", "FOREIGN KEY"),
        ("UPDATE tasks SET cost_usd_micros = 'much'", "cannot store TEXT"),
    ] {
        let refused = raw.execute(sql, []).expect_err(sql).to_string();
        assert!(refused.contains(refusal), "{sql}: {refused}");
    }
    raw.execute("UPDATE tasks SET status = 'blocked'", []).unwrap();
}

/// Tables that a person dropped, or that another version made, are made anew at the next start.
#[test]
fn missing_and_outdated_tables_are_made_anew() {
    let records = fixture::history(2, 1);
    for place in fixture::places() {
        fixture::write(&place.location, &records, 50);
        let reader = Reader::open(&place.location).unwrap();
        for harm in [
            "DROP VIEW costs_by_mission",
            "DELETE FROM checks; DROP TABLE checks",
            "UPDATE projection_watermark SET version = 0; DELETE FROM checks",
            "DROP TABLE projection_watermark",
            // Of another journal, or of this one before it was restored from a backup.
            "UPDATE projection_watermark SET hash = 'another'; DELETE FROM checks",
            "UPDATE projection_watermark SET seq = 1000000",
        ] {
            place.change(harm);
            Writer::open(&place.location).unwrap().close().unwrap();
            assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{harm} on {}", place.name);
            assert_eq!(reader.watermark().unwrap(), Seq(records.len() as u64), "{}", place.name);
            assert_eq!(place.ask("SELECT count(*) FROM costs_by_mission"), ["2"], "{harm}");
        }
    }
}

/// What people wrote into the tables may be nothing that a program can read. That stops nobody: it
/// is made anew, by a start as well as by the command that repairs.
#[test]
fn tables_with_nonsense_in_them_stop_nobody() {
    let records = fixture::history(2, 1);
    for harm in [
        "PRAGMA ignore_check_constraints = ON; UPDATE projection_watermark SET seq = -5",
        "UPDATE projection_watermark SET hash = CAST(x'ff' AS TEXT)",
        "DELETE FROM projection_watermark",
        "UPDATE tasks SET title = CAST(x'ff' AS TEXT)",
    ] {
        for repair in ["start", "rebuild"] {
            let [place, _] = fixture::places();
            fixture::write(&place.location, &records, 50);
            place.change(harm);
            match repair {
                "start" if harm.contains("tasks") => continue,
                "start" => Writer::open(&place.location).unwrap().close().unwrap(),
                _ => assert!(rebuild(&place.location).unwrap().repaired().count() > 0, "{harm}"),
            }
            let reader = Reader::open(&place.location).unwrap();
            assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{harm}: {repair}");
            assert_eq!(reader.watermark().unwrap(), Seq(records.len() as u64), "{harm}");
        }
    }
}

/// A table that a later version no longer has would tell of a day that is over, for ever. What a
/// person added is not ours.
#[test]
fn tables_that_only_another_version_had_are_removed() {
    for place in fixture::places() {
        fixture::write(&place.location, &fixture::history(2, 1), 50);
        let mark = "made from the journal by Kapelle";
        place.change(&format!(
            "CREATE TABLE yesterday (/* yesterday: {mark} */
                id BIGINT PRIMARY KEY REFERENCES tasks DEFERRABLE INITIALLY DEFERRED);
            INSERT INTO yesterday SELECT id FROM tasks;
            CREATE VIEW last_week AS /* last_week: {mark} */ SELECT * FROM yesterday;
            CREATE TABLE by_a_person (id BIGINT REFERENCES tasks);
            INSERT INTO by_a_person SELECT max(id) FROM tasks;
            UPDATE projection_watermark SET version = 0;"
        ));
        let names = match place.location.path() {
            Some(_) => "SELECT name FROM sqlite_schema WHERE name IN ('yesterday', 'last_week')",
            None => {
                place.change(&format!(
                    "COMMENT ON TABLE yesterday IS '{mark}'; COMMENT ON VIEW last_week IS '{mark}'"
                ));
                "SELECT relname FROM pg_class WHERE relname IN ('yesterday', 'last_week')"
            }
        };
        assert_eq!(place.ask(names).len(), 2, "{}", place.name);
        Writer::open(&place.location).unwrap().close().unwrap();
        assert_eq!(place.ask(names), [""; 0], "{}", place.name);
        assert_eq!(place.ask("SELECT count(*) FROM by_a_person"), ["1"], "{}", place.name);
        assert_eq!(Reader::open(&place.location).unwrap().wrong_tables().unwrap(), [""; 0]);
    }
}

/// Earlier versions had the tables in the file of the journal; what is left of them would be stale.
#[test]
fn tables_leave_the_file_of_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let records = fixture::history(2, 1);
    drop(fixture::filled(&path, &records, 50));
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(
        "CREATE TABLE missions (id TEXT PRIMARY KEY);
        CREATE TABLE tasks (id INTEGER PRIMARY KEY, mission_id TEXT REFERENCES missions);
        INSERT INTO missions VALUES ('m1'); INSERT INTO tasks VALUES (1, 'm1');
        CREATE VIEW costs_by_mission AS SELECT * FROM missions;
        CREATE VIEW mine AS SELECT count(*) AS count FROM tasks;
        CREATE VIEW my_history AS SELECT count(*) FROM journal;
        CREATE TABLE projection_watermark (id INTEGER, seq INTEGER, version INTEGER)",
    )
    .unwrap();
    Writer::open(&path).unwrap().close().unwrap();
    let left = "SELECT name FROM sqlite_schema
        WHERE name IN ('missions', 'tasks', 'costs_by_mission', 'projection_watermark', 'mine')";
    assert_eq!(rows(&raw, left), [""; 0]);
    // What people asked of them is asked in the new place; what they ask of the journal is not.
    let count = |sql| rows(&fixture::tables(&path), sql);
    assert_eq!(count("SELECT count FROM mine"), count("SELECT count(*) FROM tasks"));
    assert_eq!(rows(&raw, "SELECT * FROM my_history"), [records.len().to_string()]);
    assert_eq!(Reader::open(&path).unwrap().wrong_tables().unwrap(), [""; 0]);
}

/// Nothing is in that file but what the journal tells.
#[test]
fn the_file_of_the_tables_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let records = fixture::history(2, 1);
    fixture::write(&(&path).into(), &records, 50);
    let whole = dump(&path);
    std::fs::remove_file(tables_path(&path)).unwrap();
    assert_eq!(Reader::open(&path).unwrap().watermark().unwrap(), Seq(0));
    Writer::open(&path).unwrap().close().unwrap();
    assert_same(&dump(&path), &whole, "made anew");
}
