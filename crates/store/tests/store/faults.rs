//! What the world does to a store: full disks, damaged pages, lost servers. A typed error, nothing
//! acknowledged that is not there, and recovery without hand work.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

use kapelle_core::{Record, Seq};
use kapelle_store::search::Query;
use kapelle_store::{AuditError, Error, Head, Location, Reader, Sqlite, Writer, rebuild, verify};
use rusqlite::Connection;

use crate::cluster::{self, Cluster};
use crate::fixture;

/// Set for the process that this test binary starts from itself, in a box of its own.
const CHILD_DIR: &str = "KAPELLE_TEST_FAULT_DIR";

fn append(writer: &Writer, expected: Seq, records: &[Record]) -> Receiver<Result<Head, Error>> {
    let (told, heard) = mpsc::channel();
    writer.append(writer.epoch(), expected, records.to_vec(), move |done| {
        // Whoever asked may have given up.
        let _ = told.send(done);
    });
    heard
}

/// Runs a test of this binary in a mount namespace of its own.
fn in_a_box(test: &str, dir: &Path, walls: &[&str]) {
    let program = std::env::current_exe().unwrap();
    let mut bwrap = Command::new("bwrap");
    bwrap.args(["--bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]).args(walls);
    // The walls may stand where it lies.
    bwrap.arg("--ro-bind").args([&program, &program]).arg(&program);
    survives(bwrap, test, dir);
}

/// Runs a test of this binary by a command that ends with the name of the program to run.
fn survives(mut command: Command, test: &str, dir: &Path) {
    let output =
        command.args(["--exact", test, "--nocapture"]).env(CHILD_DIR, dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("survived"), "{said}\n{complained}");
}

/// Appends a few at a time, as a conductor does: how far it came, and what ended it.
fn append_until_refused(writer: &Writer, mut head: Seq, records: &[Record]) -> (Seq, Error) {
    for batch in records.chunks(8) {
        match writer.append_and_wait(writer.epoch(), head, batch.to_vec()) {
            Ok(to) => head = to.seq,
            Err(why) => return (head, why),
        }
    }
    panic!("everything was taken");
}

/// Not a test by itself: fills a small disk, and goes on when there is room again.
#[test]
fn child_fills_its_disk() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let dir = Path::new(&dir);
    let path = dir.join("db");
    let ballast = dir.join("ballast");
    fs::write(&ballast, vec![0; 4_000_000]).unwrap();
    let records = fixture::history(12, 60);
    let writer = Writer::open(&path).unwrap();
    let (head, full) = append_until_refused(&writer, Seq(0), &records);
    assert!(matches!(full, Error::DiskFull { .. }), "{full:?}");
    assert_eq!(Reader::open(&path).unwrap().head().unwrap().seq, head, "what was acknowledged");

    fs::remove_file(&ballast).unwrap();
    let rest = &records[head.0 as usize..][..100];
    let head = append(&writer, head, rest).recv().unwrap().expect("there is room again");
    writer.close().unwrap();
    assert_eq!(verify(&path).unwrap().head, head);
    let rebuilt = rebuild(&path).unwrap();
    assert_eq!(rebuilt.before, rebuilt.after);
    println!("\nsurvived");
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let size = ["--size", "6000000", "--tmpfs", dir.path().to_str().unwrap()];
    in_a_box("faults::child_fills_its_disk", dir.path(), &size);
}

/// Not a test by itself: writes until the system refuses, and leaves.
#[test]
fn child_writes_more_than_it_may() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let path = Path::new(&dir).join("db");
    let writer = Writer::open(&path).unwrap();
    let (head, refused) = append_until_refused(&writer, Seq(0), &fixture::history(12, 60));
    let refused = refused.to_string();
    assert!(refused.contains("a quota is used up"), "{refused}");
    fs::write(Path::new(&dir).join("acknowledged"), head.to_string()).unwrap();
    println!("\nsurvived");
}

/// A limit for one file stands for a quota: what SQLite makes of the system's refusal is the same,
/// and says neither that the disk is full nor why.
#[test]
fn a_system_that_takes_no_more_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut limited = Command::new("sh");
    // In blocks of 512 bytes. The signal would end it before anybody could complain.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 2000; exec \"$@\"", "sh"]);
    limited.arg(std::env::current_exe().unwrap());
    survives(limited, "faults::child_writes_more_than_it_may", dir.path());
    let path = dir.path().join("db");
    let acknowledged = fs::read_to_string(dir.path().join("acknowledged")).unwrap();
    let head = verify(&path).unwrap().head.seq;
    assert_eq!(head.to_string(), acknowledged);
    goes_on(&path, &fixture::history(12, 60)[head.0 as usize..]);
}

/// Not a test by itself: fills the small disk of a server, and goes on when there is room again.
#[test]
fn child_fills_the_disk_of_its_server() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let cluster = Cluster::start();
    let location = cluster.project();
    let writer = Writer::open(&location).unwrap();
    let records = fixture::history(12, 60);
    let head = append(&writer, Seq(0), &records[..100]).recv().unwrap().unwrap().seq;
    let ballast = Path::new(&dir).join("ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 65_536]).is_ok() {}
    drop(file);
    let (head, full) = append_until_refused(&writer, head, &records[100..]);
    assert!(matches!(full, Error::DiskFull { .. }), "{full:?}");
    assert_eq!(Reader::open(&location).unwrap().head().unwrap().seq, head, "what was acknowledged");

    fs::remove_file(&ballast).unwrap();
    let rest = &records[head.0 as usize..];
    let head = append(&writer, head, rest).recv().unwrap().expect("there is room again");
    writer.close().unwrap();
    assert_eq!(verify(&location).unwrap().head, head);
    let rebuilt = rebuild(&location).unwrap();
    assert_eq!(rebuilt.before, rebuilt.after);
    println!("\nsurvived");
}

#[test]
fn a_server_whose_disk_is_full_loses_nothing_that_was_acknowledged() {
    // Whoever runs the server is not whoever runs the tests, if that is root.
    let walls = ["--cap-add", "ALL", "--perms", "1777", "--size", "300000000", "--tmpfs", "/tmp"];
    in_a_box("faults::child_fills_the_disk_of_its_server", Path::new("/tmp"), &walls);
}

/// Not a test by itself: meets a store that it must not write.
#[test]
fn child_cannot_write() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let path = Path::new(&dir).join("db");
    let refused = Writer::open(&path).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
    println!("\nsurvived");
}

#[test]
fn a_store_that_can_only_be_read_says_so() {
    let dir = tempfile::tempdir().unwrap();
    fixture::filled(&dir.path().join("db"), &fixture::history(1, 0), 10);
    let place = dir.path().to_str().unwrap();
    in_a_box("faults::child_cannot_write", dir.path(), &["--ro-bind", place, place]);
}

/// Not a test by itself: looks at stores on a disk that was mounted to be read.
#[test]
fn child_reads_what_it_cannot_write() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let records = fixture::history(1, 0);
    for name in ["closed", "open"] {
        let reader = Reader::open(Path::new(&dir).join(name).join("db").as_path()).unwrap();
        let read: Vec<Record> = reader.history(Seq(0)).map(Result::unwrap).collect();
        assert!(read == records, "{name}: another history");
        assert_eq!(reader.verify().unwrap().records, records.len() as u64, "{name}");
        assert_eq!(reader.trouble_with_tables(), None, "{name}");
        assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{name}");
        let merged = Query { text: "merged".into(), ..Query::default() };
        assert!(!reader.search(&merged).unwrap().is_empty(), "{name}");
    }
    let refused = Reader::open(Path::new(&dir).join("torn").join("db").as_path()).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
    assert!(refused.to_string().contains("torn/db-wal"), "{refused}");
    println!("\nsurvived");
}

/// A backup, or the disk of another machine, is looked at where it is. Only a log that was never
/// taken in, and whose index is not there, needs somebody who can write.
#[test]
fn a_store_on_a_read_only_disk_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let places = ["closed", "open", "torn"].map(|name| dir.path().join(name));
    places.iter().for_each(|place| fs::create_dir(place).unwrap());
    let path = places[0].join("db");
    fixture::write(&Location::sqlite(&path), &fixture::history(1, 0), 10);
    // As a machine leaves it that loses its power: the log is there, and not taken in.
    let (raw, tables) = (Connection::open(&path).unwrap(), fixture::tables(&path));
    raw.execute("UPDATE meta SET epoch = epoch + 1", []).unwrap();
    tables.execute("UPDATE projection_watermark SET complaint = NULL", []).unwrap();
    for file in fs::read_dir(&places[0]).unwrap() {
        let file = file.unwrap();
        let name = file.file_name();
        fs::copy(file.path(), places[1].join(&name)).unwrap();
        if !name.to_string_lossy().ends_with("-shm") {
            fs::copy(file.path(), places[2].join(&name)).unwrap();
        }
    }
    drop((raw, tables));
    assert!(!places[0].join("db-wal").exists() && places[1].join("db-wal").exists());
    let place = dir.path().to_str().unwrap();
    let walls = ["--ro-bind", place, place];
    in_a_box("faults::child_reads_what_it_cannot_write", dir.path(), &walls);
}

/// Whoever took the right to write away meant it, also if they are the owner, or root.
#[test]
fn a_file_that_its_owner_must_not_write_stays_so() {
    let records = fixture::history(1, 0);
    for name in ["db", "db-tables.db"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        fixture::write(&Location::sqlite(&path), &records, 10);
        let file = dir.path().join(name);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        let refused = Writer::open(&path).unwrap_err();
        assert!(matches!(refused, Error::ReadOnly { .. }), "{refused:?}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o400, "{name}");
        assert_eq!(verify(&path).unwrap().records, records.len() as u64, "{name}");
    }
}

/// A disk that lost a page is told apart from a program that is wrong.
#[test]
fn a_damaged_page_is_called_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fixture::write(&Location::sqlite(&path), &fixture::history(12, 10), 50);
    damage(&path, "journal");
    let broken = verify(&path).unwrap_err();
    assert!(matches!(broken, AuditError::Store(Error::Damaged { .. })), "{broken:?}");
    let refused = Writer::open(&path).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused:?}");
}

#[test]
fn a_damaged_page_of_a_server_is_called_damage() {
    let cluster = Cluster::start();
    let location = cluster.project();
    let schema = fixture::schema(&location);
    fixture::write(&location, &fixture::history(12, 10), 50);
    let file = cluster.psql(&schema, "SELECT pg_relation_filepath('journal')").unwrap();
    // Without it, the server would write the page again when it starts.
    cluster.psql(&schema, "CHECKPOINT").unwrap();
    cluster.crash();
    let file = cluster.dir().join("data").join(file);
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[0xff; 8192], 0).unwrap();
    cluster.start_again();
    let broken = verify(&location).unwrap_err();
    assert!(matches!(broken, AuditError::Store(Error::Damaged { .. })), "{broken:?}");
    // A start reads what came after the last snapshot, which is elsewhere; whoever reads it all is told.
    let refused = rebuild(&location).unwrap_err();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused:?}");
}

/// Harms the page in which a table begins.
pub fn damage(path: &Path, table: &str) {
    let raw = Connection::open(path).unwrap();
    raw.pragma_update(None, "wal_checkpoint", "TRUNCATE").unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let first_page: i64 = raw.query_row(sql, [table], |row| row.get(0)).unwrap();
    drop(raw);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0xff; 4096], (first_page as u64 - 1) * 4096).unwrap();
}

/// The tables are a cache: however they are damaged, the history is looked at, and they are put
/// aside and made anew by whoever comes next.
#[test]
fn damaged_tables_stop_nobody() {
    let records = fixture::history(12, 10);
    let (before, rest) = records.split_at(records.len() / 2);
    let harm = |what: &str, tables: &Path| match what {
        "the watermark" => damage(tables, "projection_watermark"),
        "a table" => damage(tables, "tasks"),
        "a page of nothing" => fs::write(tables, [0; 4096]).unwrap(),
        _ => fs::write(tables, [0xff; 20_000]).unwrap(),
    };
    for what in ["the watermark", "a table", "a page of nothing", "nonsense"] {
        for repair in ["start", "rebuild"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("db");
            let tables = kapelle_store::tables_path(&path);
            fixture::write(&Location::sqlite(&path), before, 50);
            harm(what, &tables);
            let damaged = fs::read(&tables).unwrap();
            assert_eq!(verify(&path).unwrap().records, before.len() as u64, "{what}");
            let trouble = Reader::open(&path).unwrap().trouble_with_tables();
            assert_eq!(trouble.is_some(), what != "a table", "{what}: {trouble:?}");
            match repair {
                "rebuild" => {
                    let rebuilt = rebuild(&path).unwrap();
                    let names: Vec<&str> = rebuilt.repaired().map(|found| found.table).collect();
                    match what {
                        "the watermark" => assert_eq!(names, ["projection_watermark"]),
                        "a table" => assert_eq!(names, ["tasks"]),
                        _ => assert!(names.len() > rebuilt.after.len(), "{what}: {names:?}"),
                    }
                }
                _ => goes_on(&path, rest),
            }
            let reader = Reader::open(&path).unwrap();
            assert_eq!(reader.watermark().unwrap(), reader.head().unwrap().seq, "{what}");
            assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{what}, {repair}");
            assert!(fs::read(dir.path().join("db-tables.db.damaged")).unwrap() == damaged);
        }
    }
}

/// What people wrote into one that was damaged is in no other place.
#[test]
fn a_second_damaged_file_does_not_take_the_place_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    fixture::write(&Location::sqlite(&path), &fixture::history(1, 0), 50);
    for content in [[0xff; 20_000], [0xfe; 20_000]] {
        fs::write(kapelle_store::tables_path(&path), content).unwrap();
        rebuild(&path).unwrap();
    }
    for (name, byte) in [("db-tables.db.damaged", 0xff), ("db-tables.db.damaged.2", 0xfe)] {
        assert!(fs::read(dir.path().join(name)).unwrap() == [byte; 20_000], "{name}");
    }
}

/// Damage may be found only when the tables are written: then it is told, and mended with the next
/// fold.
fn goes_on(path: &Path, records: &[Record]) {
    let writer = Writer::open(path).unwrap();
    append(&writer, writer.opened_at().seq, records).recv().unwrap().unwrap();
    let flushed = || {
        let (told, heard) = mpsc::channel();
        writer.flush(move |done| told.send(done).unwrap());
        heard.recv().unwrap()
    };
    match flushed() {
        Err(Error::Damaged { .. }) => drop(flushed().unwrap()),
        flushed => drop(flushed.unwrap()),
    }
    writer.close().unwrap();
}

/// Somebody's SQL prompt with an open transaction makes an append wait, and no more.
#[test]
fn an_append_waits_for_a_locked_file() {
    let records = fixture::history(1, 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let writer = Writer::open(&path).unwrap();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let answer = append(&writer, Seq(0), &records);
    assert!(answer.try_recv().is_err(), "answered while the file was locked");
    raw.execute_batch("COMMIT").unwrap();
    assert_eq!(answer.recv().unwrap().unwrap().seq, Seq(records.len() as u64));
}

/// The same at the tables is their affair alone: somebody's question makes nobody wait.
#[test]
fn an_append_does_not_wait_for_locked_tables() {
    let records = fixture::history(1, 0);
    let (before, after) = records.split_at(records.len() / 2);
    for place in fixture::places() {
        let writer = Writer::open(&place.location).unwrap();
        let mut head = append(&writer, Seq(0), before).recv().unwrap().unwrap().seq;
        let lock = place.lock_tables();
        // One by one, so that a fold has begun, and waits, while there is still more to append.
        for record in after {
            head = append(&writer, head, std::slice::from_ref(record)).recv().unwrap().unwrap().seq;
        }
        assert_eq!(head, Seq(records.len() as u64));
        let watermark = || Reader::open(&place.location).unwrap().watermark().unwrap();
        assert!(watermark() < head, "{}: somebody wrote into locked tables", place.name);
        drop(lock);
        writer.close().unwrap();
        assert_eq!(watermark(), head, "{}", place.name);
    }
}

/// A transaction that somebody forgot must neither keep a leader from ending nor, if it ends so,
/// leave a session on the server that seems to lead. Only PostgreSQL lets readers lock tables.
#[test]
fn nobody_waits_for_a_transaction_that_was_forgotten() {
    let records = fixture::history(1, 0);
    let [_, place] = fixture::places();
    let writer = Writer::open(&place.location).unwrap();
    let schema = fixture::schema(&place.location);
    let locked = cluster::shared().session(&schema, "BEGIN; LOCK TABLE missions;");
    append(&writer, Seq(0), &records).recv().unwrap().unwrap();
    let ended = writer.close();
    assert!(matches!(ended, Err(Error::Locked { .. })), "{ended:?}");
    drop(locked);

    Writer::open(&place.location).unwrap().close().unwrap();
    let reading = cluster::shared().session(&schema, "BEGIN; SELECT count(*) FROM tasks;");
    let refused = rebuild(&place.location);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    drop(reading);
    let rebuilt = rebuild(&place.location).unwrap();
    assert_eq!(rebuilt.repaired().count(), 0);
}

/// People point Grafana at views of their own.
#[test]
fn views_of_people_outlive_a_rebuild() {
    for place in fixture::places() {
        fixture::write(&place.location, &fixture::history(1, 0), 50);
        place.change(OF_PEOPLE);
        let told = of_people(&place);
        place.change("UPDATE tasks SET title = 'wrong'");
        assert!(rebuild(&place.location).unwrap().repaired().count() > 0, "{}", place.name);
        assert_eq!(of_people(&place), told, "{}", place.name);
        let wrong = place.ask("SELECT count(*) FROM tasks WHERE title = 'wrong'");
        assert_eq!(wrong, ["0"], "{}", place.name);
    }
}

/// Whoever begins with a view of ours takes our words with it, and not what they say of it.
#[test]
fn a_copy_of_our_view_is_not_ours() {
    let [place, _] = fixture::places();
    fixture::write(&place.location, &fixture::history(1, 0), 50);
    let ours = place.ask("SELECT sql FROM sqlite_schema WHERE name = 'costs_by_mission'").remove(0);
    place.change(&ours.replacen("costs_by_mission", "my_costs", 1));
    let told = place.ask("SELECT count(*) FROM my_costs");
    rebuild(&place.location).unwrap();
    assert_eq!(place.ask("SELECT count(*) FROM my_costs"), told);
    damage(&kapelle_store::tables_path(place.location.path().unwrap()), "tasks");
    rebuild(&place.location).unwrap();
    assert_eq!(place.ask("SELECT count(*) FROM my_costs"), told);
}

/// What people put beside our tables.
const OF_PEOPLE: &str = "CREATE VIEW mine AS SELECT count(*) AS tasks FROM tasks;
    CREATE VIEW \"my \"\"other\"\" view\" AS SELECT tasks + 1 AS more FROM mine;
    CREATE INDEX my_index ON tasks (title);
    CREATE TABLE my_notes (note TEXT); INSERT INTO my_notes VALUES ('call Ada')";

fn of_people(place: &fixture::Place) -> [Vec<String>; 4] {
    let index = match place.location.path() {
        Some(_) => "SELECT sql FROM sqlite_schema WHERE name = 'my_index'",
        None => {
            "SELECT indexdef FROM pg_indexes WHERE indexname = 'my_index'
            AND schemaname = current_schema()"
        }
    };
    let other = "SELECT more FROM \"my \"\"other\"\" view\"";
    ["SELECT tasks FROM mine", other, index, "SELECT note FROM my_notes"].map(|sql| place.ask(sql))
}

/// A new version makes tables of another form, and damage makes a new file. What people wrote for
/// themselves is in neither the journal nor our hands, so it stays as far as it can be read.
#[test]
fn views_of_people_outlive_tables_that_are_made_anew() {
    let records = fixture::history(12, 10);
    let (before, rest) = records.split_at(records.len() / 2);
    for what in ["another version", "a table", "the watermark"] {
        let [place, _] = fixture::places();
        let path = place.location.path().unwrap();
        fixture::write(&place.location, before, 50);
        place.change(OF_PEOPLE);
        let told = of_people(&place).map(|lines| lines.len());
        let tables = kapelle_store::tables_path(path);
        match what {
            "a table" => damage(&tables, "tasks"),
            "the watermark" => damage(&tables, "projection_watermark"),
            _ => place.change("UPDATE projection_watermark SET version = version - 1"),
        }
        goes_on(path, rest);
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{what}");
        assert_eq!(reader.watermark().unwrap(), Seq(records.len() as u64), "{what}");
        if what == "another version" {
            assert_eq!(of_people(&place).map(|lines| lines.len()), told, "{what}");
            continue;
        }
        // Rows of theirs are in the file that was put aside.
        let count = place.ask("SELECT count(*) FROM tasks");
        assert_eq!(place.ask("SELECT tasks FROM mine"), count, "{what}");
        let named = "SELECT count(*) FROM sqlite_schema WHERE name IN ('my_index', 'my_notes')";
        assert_eq!(place.ask(named), ["1"], "{what}");
    }
}

/// By the names that we give them.
fn ours_among_indexes(place: &fixture::Place) -> Vec<String> {
    let ours = place.ask(match place.location.path() {
        Some(_) => {
            "SELECT name FROM sqlite_schema WHERE type = 'index' AND name LIKE '%_by_%' ORDER BY name"
        }
        None => {
            "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()
                AND indexname LIKE '%_by_%' ORDER BY indexname"
        }
    });
    assert!(!ours.is_empty(), "{}", place.name);
    ours
}

/// What could stop the fold does not stay: a rebuild mends, whatever somebody put on the tables.
#[test]
fn a_rebuild_leaves_out_what_could_stop_the_fold() {
    for place in fixture::places() {
        // Two missions, whose tasks have the same titles.
        fixture::write(&place.location, &fixture::history(1, 1), 50);
        place.change(
            "UPDATE tasks SET title = CAST(id AS TEXT);
            CREATE UNIQUE INDEX only_one ON tasks (title);
            CREATE TABLE my_tags (task BIGINT REFERENCES tasks, tag TEXT);
            INSERT INTO my_tags SELECT id, 'urgent' FROM tasks",
        );
        let (more, left) = match place.location.path() {
            Some(_) => (
                "CREATE INDEX sums ON tasks (json(title));
                CREATE INDEX partly ON tasks (id) WHERE json_extract(title, '$') > 0;
                CREATE TRIGGER no_more BEFORE INSERT ON tasks
                    BEGIN SELECT RAISE(ABORT, 'enough'); END",
                "SELECT name FROM sqlite_schema 
                    WHERE name IN ('only_one', 'sums', 'partly', 'no_more')",
            ),
            None => (
                "CREATE INDEX sums ON tasks (CAST(title AS BIGINT));
                CREATE INDEX partly ON tasks (id) WHERE CAST(title AS BIGINT) > 0;
                CREATE TABLE my_parts (task BIGINT REFERENCES tasks) PARTITION BY RANGE (task);
                CREATE TABLE my_part PARTITION OF my_parts DEFAULT;
                CREATE FUNCTION no_more() RETURNS trigger LANGUAGE plpgsql AS
                    $$BEGIN RAISE EXCEPTION 'enough'; END$$;
                CREATE TRIGGER no_more BEFORE INSERT ON tasks
                    FOR EACH ROW EXECUTE FUNCTION no_more()",
                "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()
                        AND indexname IN ('only_one', 'sums', 'partly')
                    UNION ALL SELECT tgname FROM pg_trigger WHERE tgrelid = 'tasks'::regclass
                        AND tgname = 'no_more'",
            ),
        };
        place.change(more);
        assert_eq!(place.ask(left).len(), 4, "{}", place.name);
        let ours = ours_among_indexes(&place);
        rebuild(&place.location).unwrap();
        let reader = Reader::open(&place.location).unwrap();
        assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{}", place.name);
        assert_eq!(place.ask(left), [""; 0], "{}", place.name);
        assert_eq!(ours_among_indexes(&place), ours, "{}", place.name);
        let tags = "SELECT count(*) FROM my_tags JOIN tasks ON task = id";
        assert_eq!(place.ask(tags), ["8"], "{}: their rows stay", place.name);
    }
}

/// Tables that could not be made anew are empty, and no better than those before.
#[test]
fn a_rebuild_that_fails_is_told() {
    let [_, place] = fixture::places();
    fixture::write(&place.location, &fixture::history(1, 0), 50);
    let trouble = || Reader::open(&place.location).unwrap().trouble_with_tables();
    // Nothing tells this from a condition of ours.
    place.change("ALTER TABLE tasks ADD CONSTRAINT mine CHECK (title <> 'first') NOT VALID");
    let refused = rebuild(&place.location).unwrap_err();
    assert!(matches!(refused, Error::Unfit { .. }), "{refused:?}");
    assert_eq!(trouble(), Some(refused.to_string()));
    place.change("ALTER TABLE tasks DROP CONSTRAINT mine");
    rebuild(&place.location).unwrap();
    assert_eq!(trouble(), None);
}

/// Nor does a start. What the fold waits for is told to whoever looks.
#[test]
fn a_start_does_not_wait_for_locked_tables() {
    let records = fixture::history(1, 0);
    let (before, after) = records.split_at(records.len() / 2);
    for place in fixture::places() {
        fixture::write(&place.location, before, 50);
        let lock = place.lock_tables();
        let writer = Writer::open(&place.location).unwrap();
        let head = append(&writer, writer.opened_at().seq, after).recv().unwrap().unwrap().seq;
        let flushed = || {
            let (told, heard) = mpsc::channel();
            writer.flush(move |done| told.send(done).unwrap());
            heard.recv().unwrap()
        };
        let reader = Reader::open(&place.location).unwrap();
        if place.location.path().is_some() {
            let locked = flushed().unwrap_err();
            assert!(matches!(locked, Error::Locked { .. }), "{locked:?}");
            assert!(locked.to_string().contains("db-tables.db"), "{locked}");
            assert_eq!(reader.trouble_with_tables(), Some(locked.to_string()));
        }
        drop(lock);
        assert_eq!(flushed().unwrap(), head, "{}", place.name);
        assert_eq!(reader.trouble_with_tables(), None, "{}", place.name);
        writer.close().unwrap();
        assert_eq!(reader.wrong_tables().unwrap(), [""; 0], "{}", place.name);
    }
}

/// Through a link, whoever made it would choose what is overwritten.
#[test]
fn links_in_the_place_of_state_files_are_refused() {
    for name in ["db-wal", "db-shm", "db-tables.db", "db-tables.db-wal"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        drop(Sqlite::open(&path).unwrap());
        let precious = dir.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, dir.path().join(name)).unwrap();
        let read = Reader::open(&path).and_then(|reader| reader.watermark());
        for refused in [Writer::open(&path).unwrap_err(), read.unwrap_err()] {
            assert!(matches!(refused, Error::NotPlainFile { .. }), "{name}: {refused}");
        }
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }
}

/// A connection that is cut between two appends is nobody's problem.
#[test]
fn a_lost_connection_is_made_anew() {
    let records = fixture::history(2, 0);
    let cluster = cluster::shared();
    let location = cluster.project();
    let writer = Writer::open(&location).unwrap();
    append(&writer, Seq(0), &records[..5]).recv().unwrap().unwrap();
    assert_eq!(fixture::end_leading_session(&location), "1");
    append(&writer, Seq(5), &records[5..]).recv().unwrap().unwrap();
    writer.close().unwrap();
    assert_eq!(verify(&location).unwrap().records, records.len() as u64);
}

/// Nobody serves a connection on which nothing is asked, so its end is heard with the next question.
#[test]
fn a_question_after_a_restart_is_answered() {
    let cluster = Cluster::start();
    let location = cluster.project();
    let records = fixture::history(2, 0);
    fixture::write(&location, &records, 5);
    let reader = Reader::open(&location).unwrap();
    let head = reader.head().unwrap();
    cluster.crash();
    cluster.start_again();
    assert_eq!(reader.head().unwrap(), head);
}

/// Servers of ours are asynchronous, and read along.
#[test]
fn a_thread_of_a_runtime_may_ask() {
    let location = cluster::shared().project();
    let records = fixture::history(2, 0);
    fixture::write(&location, &records, 5);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let read = runtime.block_on(async { Reader::open(&location)?.records(Seq(0), 1_000) });
    assert!(read.unwrap() == records, "another history");
}

/// The server goes down and comes back while somebody appends without a pause.
#[test]
fn a_restart_in_mid_append_loses_nothing_and_repeats_nothing() {
    let cluster = Cluster::start();
    let location = cluster.project();
    let records = fixture::history(12, 200);
    let enough = Arc::new(AtomicBool::new(false));
    let (told, heard) = mpsc::channel();
    let appending = {
        let (location, records) = (location.clone(), records.clone());
        let enough = Arc::clone(&enough);
        std::thread::spawn(move || {
            let writer = Writer::open(&location).unwrap();
            let mut head = Seq(0);
            for batch in records.chunks(2) {
                head = append(&writer, head, batch).recv().unwrap().unwrap().seq;
                told.send(head).unwrap();
                if enough.load(Ordering::Relaxed) {
                    break;
                }
            }
            writer.close().unwrap();
            head
        })
    };
    for _restart in 0..3 {
        for _append in 0..20 {
            heard.recv().unwrap();
        }
        cluster.crash();
        cluster.start_again();
    }
    for _append in 0..20 {
        heard.recv().unwrap();
    }
    enough.store(true, Ordering::Relaxed);
    let head = appending.join().unwrap();
    let reader = Reader::open(&location).unwrap();
    let kept: Vec<Record> = reader.history(Seq(0)).map(Result::unwrap).collect();
    assert!(kept == records[..head.0 as usize], "another history");
    assert_eq!(verify(&location).unwrap().records, head.0);
    let rebuilt = rebuild(&location).unwrap();
    assert_eq!(rebuilt.before, rebuilt.after);
}

/// A server that stays away is an error with a name, and no answer is made up.
#[test]
fn a_server_that_is_gone_is_an_error_until_it_is_back() {
    let cluster = Cluster::start();
    let location = cluster.project();
    let records = fixture::history(3, 0);
    let writer = Writer::open(&location).unwrap();
    append(&writer, Seq(0), &records[..5]).recv().unwrap().unwrap();
    cluster.crash();
    let lost = append(&writer, Seq(5), &records[5..]).recv().unwrap().unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    let unreachable = Reader::open(&location).unwrap_err();
    assert!(unreachable.to_string().contains("cannot be reached"), "{unreachable}");
    cluster.start_again();
    append(&writer, Seq(5), &records[5..]).recv().unwrap().unwrap();
    assert_eq!(verify(&location).unwrap().records, records.len() as u64);
}
