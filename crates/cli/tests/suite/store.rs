//! The store in people's hands: time travel, export and import, rebuild, and the way to PostgreSQL.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use kapelle_store::{Holder, Leadership, Location};
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::cluster;
use crate::fixture::{Fixture, Live, PATH};

/// A project with one delivered mission.
fn delivered() -> Fixture {
    let fixture = Fixture::with_agent("echo x >> x.txt");
    fixture.run(&["do it", "--yes"]).expect(0);
    fixture
}

fn head(fixture: &Fixture) -> Value {
    fixture.json(&["audit", "verify"])["head_hash"].clone()
}

#[test]
fn the_past_can_be_looked_at() {
    let fixture = delivered();
    let journal = fixture.journal();
    let merged = journal.iter().find(|record| record["event"]["type"] == "task_merged").unwrap();
    let seq = merged["seq"].as_u64().unwrap();
    let before = fixture.json(&["replay", "--at", &(seq - 1).to_string()]);
    assert_eq!(before["seq"], seq - 1);
    assert_eq!(before["missions"][0]["tasks_completed"], 0);
    let after = fixture.json(&["replay", "--at", &seq.to_string()]);
    assert_eq!(after["tasks"][0]["status"], "completed");
    let nothing = fixture.json(&["replay", "--at", "1970-01-01T00:00:00Z"]);
    assert_eq!(nothing, json!({ "seq": 0, "missions": [], "tasks": [] }));
    let all = fixture.json(&["replay", "--at", "9999-01-01"]);
    assert_eq!(all["seq"], journal.len());

    let (from, to) = ((seq - 1).to_string(), seq.to_string());
    let diff = fixture.json(&["replay", "--at", &from, "--diff", &to]);
    let changed = |field: &str| {
        let all = diff["differences"].as_array().unwrap();
        let of_task = all.iter().find(|d| d["what"] == "m1/1" && d["field"] == field);
        of_task.map(|d| (d["from"].clone(), d["to"].clone()))
    };
    assert_eq!(changed("status").unwrap().1, "completed");
    assert_eq!(changed("title"), None);
    let shown = fixture.kapelle(&["replay", "--at", &from, "--diff", &to]).expect(0).stdout;
    assert!(shown.contains("→ completed"), "{shown}");

    fixture.kapelle(&["replay", "--at", "soon"]).expect(2).says("2026-11-16T09:30:00Z");
    fixture.kapelle(&["replay", "--at", "99999"]).expect(3).says("the journal ends at record");
}

#[test]
fn an_export_is_a_whole_project_again() {
    let fixture = delivered();
    let (head, tasks) = (head(&fixture), fixture.json(&["tasks"]));
    let out = fixture.path("journal.jsonl");
    let file = out.to_str().unwrap().to_owned();
    let written = fixture.json(&["export", "--out", &file]);
    assert_eq!(written["head_hash"], head);
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    fixture.kapelle(&["export", "--out", &file]).expect(6).says("File exists");
    let printed = fixture.kapelle(&["export"]).expect(0).stdout;
    assert!(printed == fs::read_to_string(&out).unwrap(), "stdout is another export");

    let again = Fixture::with_agent("true");
    for command in [["store", "rebuild"], ["audit", "verify"]] {
        let refused = again.kapelle(&command).expect(3);
        refused.says("there is no journal here yet").says("kapelle import FILE");
    }
    assert_eq!(again.json(&["import", &file])["head_hash"], head);
    assert_eq!(self::head(&again), head);
    assert_eq!(again.json(&["tasks"]), tasks);
    let found = again.kapelle(&["search", "merged"]).expect(0);
    assert!(found.stdout.contains("merged") && found.stderr.is_empty(), "{}", found.stderr);
    // Whoever was interrupted at the very end, or does not know, may ask again.
    assert_eq!(again.json(&["import", &file])["head_hash"], head);

    let whole = fs::read_to_string(&out).unwrap();
    fs::write(&out, &whole[..=whole[..whole.len() - 1].rfind('\n').unwrap()]).unwrap();
    let second = Fixture::with_agent("true");
    second.kapelle(&["import", &file]).expect(6).says("without saying").says("--partial");
    assert_eq!(second.json(&["import", &file, "--partial"])["head_hash"], head);

    let edited = whole.replacen("do it", "do so", 1);
    fs::write(&out, edited).unwrap();
    let third = Fixture::with_agent("true");
    third.kapelle(&["import", &file]).expect(6).says("was changed");
}

#[test]
fn a_rebuild_says_what_was_wrong() {
    let fixture = delivered();
    let fine = fixture.json(&["store", "rebuild"]);
    assert_eq!((&fine["equal"], &fine["repaired"]), (&json!(true), &json!([])));
    let raw = Connection::open(fixture.repo().join(".kapelle/store.tables.db")).unwrap();
    raw.execute_batch("UPDATE missions SET goal = 'something else'").unwrap();
    let repaired = fixture.json(&["store", "rebuild"]);
    assert_eq!((&repaired["equal"], &repaired["repaired"]), (&json!(false), &json!(["missions"])));
    assert_eq!(repaired["tables"], fine["tables"]);
    let shown = fixture.kapelle(&["store", "rebuild"]).expect(0).stdout;
    assert!(shown.contains("all tables are what"), "{shown}");
    raw.execute_batch("DELETE FROM checks; DROP TABLE checks").unwrap();
    fixture.kapelle(&["store", "rebuild"]).expect(0).says("not there, and made anew: checks");
}

/// The tables are a cache: damaged, they are spoken of, and stand in nobody's way.
#[test]
fn damaged_tables_are_told_and_made_anew() {
    let fixture = delivered();
    let head = head(&fixture);
    let tables = fixture.repo().join(".kapelle/store.tables.db");
    fs::write(&tables, [0xff; 20_000]).unwrap();
    let told = "the tables for SQL clients are not up to date: the store is damaged";
    let shown = fixture.kapelle(&["status"]).expect(0).stdout;
    assert!(shown.contains(told) && shown.contains("kapelle store rebuild"), "{shown}");
    fixture.kapelle(&["audit", "verify"]).expect(0).says(told);
    let found = fixture.kapelle(&["doctor"]).stdout;
    assert!(found.contains("MISSING  tables: the store is damaged"), "{found}");
    fixture.json(&["store", "move", "--to", "sqlite:.kapelle/moved.db"]);

    let unreadable = fixture.kapelle(&["store", "rebuild", "--json"]).expect(0).json();
    assert_eq!((&unreadable["equal"], &unreadable["views_lost"]), (&json!(false), &json!(true)));
    assert!(tables.with_extension("db.damaged").exists(), "it was not kept");
    let again = fixture.json(&["store", "rebuild"]);
    assert_eq!((&again["equal"], &again["views_lost"]), (&json!(true), &json!(false)));
    let shown = fixture.kapelle(&["status"]).expect(0).stdout;
    assert!(!shown.contains("WARNING"), "{shown}");
    let found = fixture.kapelle(&["doctor"]).stdout;
    assert!(found.contains("ok       tables: up to record"), "{found}");
    assert_eq!(self::head(&fixture), head);
}

/// Whoever folded them could not even say why they stand still, or was killed: then nobody says it,
/// but that they do can be seen.
#[test]
fn tables_that_stand_still_are_told() {
    let fixture = delivered();
    let told = "the tables for SQL clients do not tell of the last";
    let shown = |command: &str| fixture.kapelle(&[command]).stdout;
    assert!(!shown("status").contains(told) && !shown("doctor").contains(told));
    let state = fixture.repo().join(".kapelle");
    let raw = Connection::open(state.join("store.db")).unwrap();
    let hash = "SELECT lower(hex(hash)) FROM journal WHERE seq = 5";
    let hash: String = raw.query_row(hash, [], |row| row.get(0)).unwrap();
    let tables = Connection::open(state.join("store.tables.db")).unwrap();
    tables.execute("UPDATE projection_watermark SET seq = 5, hash = ?1", [hash]).unwrap();
    drop((raw, tables));
    for command in ["status", "doctor"] {
        assert!(shown(command).contains(told), "{command}: {}", shown(command));
    }
    fixture.json(&["store", "rebuild"]);
    assert!(!shown("status").contains(told));
}

/// Half an export is no use, and must not be in the way when there is room again.
#[test]
fn an_export_that_could_not_be_written_leaves_nothing() {
    let fixture = delivered();
    // What it reads from is there already, so that only the export is too large.
    let raw = Connection::open(fixture.repo().join(".kapelle/store.db")).unwrap();
    raw.query_row("SELECT count(*) FROM journal", [], |row| row.get::<_, i64>(0)).unwrap();
    let out = fixture.path("journal.jsonl");
    let limited = "trap '' XFSZ; ulimit -f 4; exec \"$0\" export --out \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_kapelle")]).arg(&out);
    command.current_dir(fixture.repo());
    let done = Live::start(fixture.hermetic(&mut command, PATH)).ended();
    done.expect(6).says("the export cannot be written");
    assert!(!out.exists(), "half of it is left");
    fixture.kapelle(&["export", "--out", out.to_str().unwrap()]).expect(0);
}

/// From a file to a server, a mission there, and back again.
#[test]
fn a_project_moves_to_postgres_works_there_and_comes_back() {
    let fixture = delivered();
    let (before, url) = (head(&fixture), cluster::shared().url());
    let to_server = ["store", "move", "--to", &url, "--project", "moved", "--json"];
    let moved = fixture.kapelle(&to_server).expect(0).says("project = \"moved\"");
    assert_eq!(moved.json()["head_hash"], before);
    let config = fixture.file("kapelle.toml");
    let store = format!("\n[store]\nurl = \"{url}\"\nproject = \"moved\"\n");
    fixture.write("kapelle.toml", &format!("{config}{store}"));
    fixture.git(&["add", "--all"]);
    fixture.git(&["commit", "--quiet", "--message", "the store is on a server"]);
    assert_eq!(head(&fixture), before);

    fixture.run(&["do more", "--yes"]).expect(0);
    let after = head(&fixture);
    assert_ne!(after, before);
    assert_eq!(fixture.json(&["status"]).as_array().unwrap().len(), 2);
    let by_hand =
        cluster::shared().psql("kapelle_moved", "SELECT id, status FROM missions ORDER BY id");
    assert_eq!(by_hand.unwrap(), "m1|delivered\nm2|delivered");

    let back = fixture.json(&["store", "move", "--to", "sqlite:.kapelle/back.db"]);
    assert_eq!(back["head_hash"], after);
    fixture.kapelle(&["store", "move", "--to", "sqlite"]).expect(6).says("it has to be empty");
    fixture.kapelle(&["store", "move", "--to", &url]).expect(2).says("there already");
}

/// Two machines, each with a clone: no file tells the second about the first, but the store does.
#[test]
fn a_second_machine_is_told_who_leads_and_where_it_answers() {
    let url = cluster::shared().url();
    let store = format!("[store]\nurl = \"{url}\"\nproject = \"two_machines\"\n");
    let waits = "echo half > half.txt; while [ ! -e go.txt ]; do sleep 0.02; done";
    let (one, other) =
        (Fixture::with_agent_and(waits, &store), Fixture::with_agent_and(waits, &store));
    let mut run = one.start_run(&["first", "--yes"]);
    let url = run.url();
    let tree = one.written("half.txt");
    let refused = other.run(&["second"]).expect(3);
    refused
        .says(&format!("process {} on ", run.pid()))
        .says(&format!("leads this project, at {url}"));
    fs::write(tree.join("go.txt"), "").unwrap();
    run.ended().expect(0);
}

/// The same for whoever asks: `status` tells who leads, and orders reach it by its address, with its
/// token.
#[test]
fn a_second_clone_asks_whoever_leads() {
    let url = cluster::shared().url();
    let store = format!("[store]\nurl = \"{url}\"\nproject = \"two_clones\"\n");
    let clones = [(); 3].map(|()| Fixture::with_agent_and("sleep 1000", &store));
    let [one, other, third] = &clones;
    let mut run = one.start_run(&["first", "--yes"]);
    let url = run.url();
    run.line_with("Executing");
    let shown = other.kapelle(&["status"]).expect(0).stdout;
    let leader = format!("process {} on ", run.pid());
    assert!(shown.contains(&format!("running: {leader}")) && shown.contains(&url), "{shown}");

    let pause = ["pause", "--reason", "lunch"];
    other.kapelle(&pause).expect(3).says(&leader).says("copy .kapelle/token from there");
    let token = |fixture: &Fixture| fixture.repo().join(".kapelle/token");
    fs::copy(token(one), token(other)).unwrap();
    other.kapelle(&pause).expect(0).says("paused");
    assert_eq!(one.json(&["status"])[0]["status"], "paused");
    other.kapelle(&["resume"]).expect(0).says("resumed");

    let tell = |change: &str| {
        let sql = format!("UPDATE meta SET holder = ({change})::text");
        cluster::shared().psql("kapelle_two_clones", &sql).unwrap();
    };
    tell("holder::jsonb || '{\"host\": \"build-3\"}'");
    other.kapelle(&pause).expect(3).says(" on build-3 ").says("on that machine only");
    tell("holder::jsonb - 'host' || '{\"url\": \"http://127.0.0.1:1/\"}'");
    other.kapelle(&pause).expect(6).says("does not answer").says(&format!("process {}", run.pid()));

    run.interrupt();
    run.ended().expect(130);
    let shown = other.kapelle(&["status"]).expect(0).stdout;
    assert!(shown.contains("nothing runs this project now"), "{shown}");
    // Nobody has to be asked, and nothing of ours is there yet.
    third.kapelle(&pause).expect(0).says("paused");
}

/// A journal that is gone is neither a new project nor one that nobody began.
#[test]
fn a_journal_that_is_gone_is_told() {
    let fixture = delivered();
    fs::remove_file(fixture.repo().join(".kapelle/store.db")).unwrap();
    fixture.kapelle(&["status"]).expect(6).says("store.db is gone").says("from a backup");
    fixture.run(&["more", "--yes"]).expect(6).says("store.db is gone");
}

/// A mission that was delivered must not be delivered again because its last records are gone.
#[test]
fn a_journal_that_lost_its_end_is_told_until_that_is_accepted() {
    let fixture = delivered();
    let count = fixture.journal().len();
    harm(&fixture, &format!("DELETE FROM journal WHERE seq > {}", count - 3));
    for _again in 0..2 {
        fixture.run(&["--resume"]).expect(6).says("lost its end").says("rebuild --accept-loss");
        fixture.kapelle(&["store", "rebuild"]).expect(6).says("lost its end");
        let missing = format!("record {} is missing", count - 2);
        fixture.kapelle(&["audit", "verify"]).expect(1).says(&missing);
    }
    let shown = fixture.kapelle(&["status"]).expect(0).stdout;
    let found = fixture.kapelle(&["doctor"]).expect(6).stdout;
    let told = format!("the journal ends at record {}", count - 3);
    for (said, begins) in [(&shown, "WARNING: "), (&found, "MISSING  journal: ")] {
        assert!(said.contains(&format!("{begins}{told}")), "{said}");
        assert!(said.contains("restore the journal from a backup"), "{said}");
        assert!(said.contains("kapelle store rebuild --accept-loss"), "{said}");
        // A plain rebuild would be refused, and it is the journal that is concerned.
        assert!(!said.contains("`kapelle store rebuild`"), "{said}");
    }
    assert_eq!(fixture.json(&["store", "rebuild", "--accept-loss"])["seq"], count - 3);
    fixture.kapelle(&["audit", "verify"]).expect(0);
    fixture.run(&["--resume", "--yes"]).expect(0);
}

/// Whoever cannot open a store is sent to the doctor, who must not call it well.
#[test]
fn a_store_that_cannot_be_opened_is_found_by_the_doctor() {
    let finding = |fixture: &Fixture| {
        let found = fixture.kapelle(&["doctor", "--json"]);
        let all = found.json();
        let of_store = all.as_array().unwrap().iter().find(|one| one["what"] == "store").cloned();
        of_store.map(|one| (found.code, one))
    };
    let fixture = delivered();
    assert_eq!(finding(&fixture), None);
    let path = fixture.repo().join(".kapelle/store.db");
    let raw = Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", 1_000).unwrap();
    drop(raw);
    let (code, newer) = finding(&fixture).unwrap();
    assert!(newer["found"].as_str().unwrap().contains("written by a newer version"), "{newer}");
    let next = "use a newer Kapelle; this one leaves the store alone";
    assert_eq!((code, &newer["fine"], &newer["hint"]), (6, &json!(false), &json!(next)));

    let elsewhere = fixture.path("elsewhere.db");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    let (_, linked) = finding(&fixture).unwrap();
    assert!(linked["found"].as_str().unwrap().contains("is a symbolic link"), "{linked}");

    let nowhere = "[store]\nurl = \"postgres://ada@127.0.0.1:1/d\"\n";
    let (_, lost) = finding(&Fixture::with_agent_and("true", nowhere)).unwrap();
    assert!(lost["found"].as_str().unwrap().contains("cannot be reached"), "{lost}");
    assert_eq!(finding(&Fixture::with_agent("true")), None, "nothing was begun");
}

/// What is missing or cannot be read is named by whoever meets it; nothing is appended to it.
#[test]
fn a_record_that_is_gone_or_no_text_is_named_by_every_command() {
    let flipped = "UPDATE journal SET body =
        CAST(substr(body, 1, 40) || x'ff' || substr(body, 42) AS TEXT) WHERE seq = 7";
    for (sql, audited, read) in [
        ("DELETE FROM journal WHERE seq = 7", "record 7 is missing", "record 7 is missing"),
        (flipped, "record 7 was changed", "record 7 cannot be read"),
    ] {
        let fixture = delivered();
        harm(&fixture, sql);
        fixture.kapelle(&["audit", "verify"]).expect(1).says(audited);
        for command in [["status"].as_slice(), &["log"], &["run", "--resume"]] {
            fixture.kapelle(command).expect(6).says(read).says("kapelle audit verify");
        }
    }
}

/// What cannot be read says nothing about the history: that is another end than a broken chain.
#[test]
fn a_store_that_cannot_be_read_is_no_broken_chain() {
    let fixture = delivered();
    let path = fixture.repo().join(".kapelle/store.db");
    let raw = Connection::open(&path).unwrap();
    raw.pragma_update(None, "wal_checkpoint", "TRUNCATE").unwrap();
    let page = "SELECT rootpage FROM sqlite_schema WHERE name = 'journal'";
    let page: i64 = raw.query_row(page, [], |row| row.get(0)).unwrap();
    drop(raw);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; 4096], (page.unsigned_abs() - 1) * 4096).unwrap();
    for command in [["audit", "verify"].as_slice(), &["status"], &["run", "--resume"]] {
        fixture.kapelle(command).expect(6).says("the store is damaged").says("kapelle import FILE");
    }
}

/// Does something to the journal, as somebody could who means it.
fn harm(fixture: &Fixture, sql: &str) {
    let raw = Connection::open(fixture.repo().join(".kapelle/store.db")).unwrap();
    let triggers = "DROP TRIGGER journal_is_not_edited; DROP TRIGGER journal_is_not_cut";
    raw.execute_batch(&format!("{triggers}; {sql}")).unwrap();
}

/// Nobody holds a lock that is a link; whoever waits for its end waits for ever.
#[test]
fn a_lock_that_is_a_link_is_not_waited_for() {
    let fixture = delivered();
    let lock = fixture.repo().join(".kapelle/lock");
    fs::remove_file(&lock).unwrap();
    symlink("elsewhere", &lock).unwrap();
    let said = fixture.kapelle(&["store", "rebuild"]).expect(6).says("hint: remove the link");
    assert!(!said.stderr.contains("wait for it"), "{}", said.stderr);
}

#[test]
fn a_wrong_address_is_explained_and_shows_no_password() {
    let fixture = Fixture::with_agent_and("true", "[store]\nurl = \"mysql://ada:geheim@h/d\"\n");
    let said = fixture.kapelle(&["status"]).expect(2).says("postgres://user@host/database");
    assert!(!said.stderr.contains("geheim"), "{}", said.stderr);
    let config = "[store]\nurl = \"postgres://ada:geheim@127.0.0.1:1/d\"\n";
    let fixture = Fixture::with_agent_and("true", config);
    let said = fixture.kapelle(&["status"]).expect(6).says("cannot be reached").says("hint: ");
    assert!(!said.stderr.contains("geheim"), "{}", said.stderr);
}

/// A server that is there and says no is not one that cannot be reached.
#[test]
fn whoever_is_not_let_in_is_told_so() {
    let url = cluster::shared().url().replacen("/postgres?", "/nowhere?", 1);
    assert!(url.contains("nowhere"), "{url}");
    let fixture = Fixture::with_agent_and("true", &format!("[store]\nurl = \"{url}\"\n"));
    let said = fixture.kapelle(&["status"]).expect(6).says("does not allow it").says("the role");
    said.says("\"nowhere\" does not exist");
}

/// More agents than one file is rated for, and a durability that can lose something, are said aloud.
#[test]
fn people_are_warned_about_their_store() {
    let with_agents = |agents: &str, more: &str| {
        let fixture = Fixture::with_agent_and("echo x > x.txt", more);
        let config = fixture.file("kapelle.toml");
        let config = config.replace("workers_max = 4", &format!("workers_max = {agents}"));
        fixture.commit("kapelle.toml", &config);
        fixture.run(&["do it", "--yes"]).expect(0)
    };
    let light = "[store]\ndurability = \"normal\"\n";
    with_agents("50", light).says("kapelle store move").says("power cut");
    with_agents("20", "").says("many for a SQLite store");
    let few = with_agents("19", "").stderr;
    assert!(!few.contains("SQLite store") && !few.contains("power cut"), "{few}");
}

/// A store that fails in the middle of a mission ends the run, and says why. `--resume` goes on.
#[test]
fn a_store_that_is_lost_in_mid_mission_ends_the_run_with_its_reason() {
    let fixture = Fixture::with_agent("sleep 1000");
    let mut run = fixture.start_run(&["work", "--yes"]);
    run.line_with("Executing");
    let store = Connection::open(fixture.repo().join(".kapelle/store.db")).unwrap();
    store.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    store.execute("UPDATE meta SET epoch = epoch + 1", []).unwrap();
    drop(store);
    fixture.kapelle(&["pause", "--reason", "to have something written"]);
    run.ended().expect(3).says("another Kapelle leads this project now").says("hint: ");
    fixture.assert_nothing_runs();
}

/// What is in the journal has been said, whoever keeps the tables from telling it.
#[test]
fn an_order_that_is_recorded_is_not_refused_because_of_locked_tables() {
    let fixture = Fixture::with_agent("sleep 1000");
    let mut run = fixture.start_run(&["work", "--yes"]);
    run.line_with("Executing");
    run.interrupt();
    run.ended().expect(130);
    let tables = Connection::open(fixture.repo().join(".kapelle/store.tables.db")).unwrap();
    tables.execute_batch("BEGIN IMMEDIATE").unwrap();
    fixture.kapelle(&["pause", "--reason", "lunch"]).expect(0);
    drop(tables);
    assert_eq!(fixture.json(&["status"])[0]["status"], "paused");
}

/// A start that cannot write says why, not only that nobody answers.
#[test]
fn a_store_that_takes_nothing_from_the_start_says_why() {
    let fixture = delivered();
    let store = Connection::open(fixture.repo().join(".kapelle/store.db")).unwrap();
    let refuse = "CREATE TRIGGER full BEFORE INSERT ON journal
        BEGIN SELECT RAISE(ABORT, 'there is no room'); END";
    store.execute_batch(refuse).unwrap();
    drop(store);
    fixture.run(&["more", "--yes"]).expect(6).says("there is no room");
}

/// A leader that is silent loses the lead to whoever works on the same repository, whatever they
/// ask for; and to nobody else.
#[test]
fn a_silent_leader_is_replaced_from_a_clone_and_not_from_another_repository() {
    let url = cluster::shared().url();
    let config = format!("[store]\nurl = \"{url}\"\nproject = \"silent\"\n");
    let first = Fixture::with_agent_and("sleep 1000", &config);
    let foreign = Fixture::with_agent_and("true", &config);
    let mut run = first.start_run(&["work", "--yes"]);
    run.line_with("Executing");
    run.signal(Signal::SIGSTOP);
    let other = "the missions of another repository";
    foreign.kapelle(&["run", "--resume", "--yes"]).expect(3).says(other);
    foreign.run(&["mine", "--yes"]).expect(3).says(other);
    let clone = Fixture::new();
    clone.git(&["fetch", "--quiet", first.repo().to_str().unwrap(), "main"]);
    clone.git(&["reset", "--quiet", "--hard", "FETCH_HEAD"]);
    let mut successor = clone.start_run(&["more", "--yes"]);
    successor.line_with("opened m2");
    successor.interrupt();
    successor.ended().expect(130);
    // It has nothing to write for minutes, and ends all the same when it wakes.
    run.signal(Signal::SIGCONT);
    run.ended().expect(3).says("another Kapelle leads this project now");
}

/// WRK-15: whoever names the same file from another folder is refused, and told who has it.
#[test]
fn a_store_that_two_projects_name_has_one_conductor() {
    let (first, second) = (Fixture::new(), Fixture::new());
    let shared = first.path("shared.db");
    let config = |fixture: &Fixture, script: &str| {
        let agent = fixture.script("agent.sh", script);
        let store = format!("[store]\nurl = \"sqlite:{}\"\n", shared.display());
        fixture.commit("kapelle.toml", &crate::fixture::developer(&agent, &store));
    };
    config(&first, "sleep 1000");
    config(&second, "echo x > x.txt");
    let mut run = first.start_run(&["work", "--yes"]);
    run.line_with("Executing");
    let pid = run.pid();
    second.run(&["work", "--yes"]).expect(3).says(&format!("process {pid}"));
    let rebuild = second.kapelle(&["store", "rebuild"]).expect(3);
    rebuild.says(&format!("process {pid}")).says("hint: wait for it to end");
    run.interrupt();
    run.ended().expect(130);
}

/// The same for a file in the folder of its own project, which another one names.
#[test]
fn the_own_store_of_a_project_has_one_conductor() {
    let first = Fixture::with_agent("sleep 1000");
    let second = Fixture::new();
    let agent = second.script("agent.sh", "echo x > x.txt");
    let store = first.repo().join(".kapelle/store.db");
    let store = format!("[store]\nurl = \"sqlite:{}\"\n", store.display());
    second.commit("kapelle.toml", &crate::fixture::developer(&agent, &store));
    let mut run = first.start_run(&["work", "--yes"]);
    run.line_with("Executing");
    let pid = run.pid();
    second.run(&["work", "--yes"]).expect(3).says(&format!("process {pid}"));
    second.run(&["--resume"]).expect(3).says(&format!("process {pid}"));
    run.interrupt();
    run.ended().expect(130);
}

/// The same for the place that a store moves to: whoever runs there is not deposed.
#[test]
fn a_store_is_not_moved_to_where_somebody_runs() {
    let fixture = delivered();
    let (from, to) = (fixture.repo().join(".kapelle/store.db"), fixture.path("there.db"));
    let address = format!("sqlite:{}", to.display());
    let move_there = || fixture.kapelle(&["store", "move", "--to", &address]);
    let epochs = || [epoch(&from), epoch(&to)];
    move_there().expect(0);
    let before = epochs();
    let place = Location::sqlite(&to);
    let somebody = Leadership::over(&fixture.path("home"), &place, Holder::here()).unwrap();
    let refused = move_there().expect(3).says("there.db is in use");
    refused.says(&format!("process {}", std::process::id())).says("hint: wait for it to end");
    assert_eq!(epochs(), before, "somebody was deposed");
    drop(somebody);
    move_there().expect(0);
    assert_ne!(epochs(), before);
}

/// Its lock is held by whoever moves it, which is not what is wrong with that place.
#[test]
fn a_store_is_not_moved_onto_itself_by_whatever_name() {
    let fixture = delivered();
    let linked = fixture.path("linked");
    symlink(fixture.repo().join(".kapelle"), &linked).unwrap();
    let linked = format!("sqlite:{}/store.db", linked.display());
    for name in ["sqlite", "sqlite:.kapelle/../.kapelle/store.db", &linked] {
        let refused = fixture.kapelle(&["store", "move", "--to", name]).expect(2);
        refused.says("is the same place").says("hint: choose another place");
    }
}

fn epoch(store: &Path) -> i64 {
    let raw = Connection::open(store).unwrap();
    raw.query_row("SELECT epoch FROM meta", [], |row| row.get(0)).unwrap()
}

/// A store that others can name may be that of another repository: its missions are not ours.
#[test]
fn the_missions_of_another_repository_are_left_alone() {
    let (first, second) = (Fixture::new(), Fixture::new());
    let shared = first.path("shared.db");
    for fixture in [&first, &second] {
        let agent = fixture.script("agent.sh", "echo x > x.txt");
        let store = format!("[store]\nurl = \"sqlite:{}\"\n", shared.display());
        fixture.commit("kapelle.toml", &crate::fixture::developer(&agent, &store));
    }
    first.run(&["work", "--yes"]).expect(0);
    let head = head(&first);
    let refused = second.run(&["work", "--yes"]).expect(3);
    refused.says("has the missions of another repository").says("hint: ");
    assert_eq!(self::head(&first), head);
}

/// Whoever changes something brings a store of an earlier version up to date; whoever looks says
/// how.
#[test]
fn a_store_of_an_earlier_version_goes_on() {
    let fixture = Fixture::with_agent("echo x > x.txt");
    fs::create_dir(fixture.repo().join(".kapelle")).unwrap();
    let path = fixture.repo().join(".kapelle/store.db");
    let sample = include_str!("../../../store/tests/samples/sqlite-v1.sql");
    Connection::open(&path).unwrap().execute_batch(sample).unwrap();
    fixture.kapelle(&["status"]).expect(6).says("older schema").says("kapelle run --resume");
    let found = fixture.kapelle(&["doctor"]).stdout;
    assert!(found.contains("ok       store: ") && found.contains("older schema"), "{found}");
    let paused = fixture.kapelle(&["pause", "--reason", "look first"]);
    assert!(!paused.stderr.contains("older schema"), "{}", paused.stderr);
    fixture.kapelle(&["status"]).expect(0);
    let backups = fs::read_dir(fixture.repo().join(".kapelle")).unwrap();
    let backups = backups
        .filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().contains("v1.backup"));
    assert_eq!(backups.count(), 1);
}
