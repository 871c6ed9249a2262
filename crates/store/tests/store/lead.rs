//! Leadership on PostgreSQL, between real processes: one at a time, and the dead and the stopped
//! do not count.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use kapelle_core::{Record, Seq};
use kapelle_store::{Epoch, Error, Head, Journal, Location, Postgres, Reader, Writer, verify};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::{cluster, fixture};

/// Set for the process that this test binary starts from itself: an address and a project.
const CHILD_STORE: &str = "KAPELLE_TEST_LEAD";

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn records() -> Vec<Record> {
    fixture::history(21, 0)
}

fn append(writer: &Writer, expected: Seq, records: &[Record]) -> Result<Head, Error> {
    let (told, heard) = mpsc::channel();
    writer.append(writer.epoch(), expected, records.to_vec(), move |done| told.send(done).unwrap());
    heard.recv().unwrap()
}

/// Not a test by itself: leads, and for every line that it reads appends the next record, or folds.
#[test]
fn child_leads() {
    let Ok(place) = std::env::var(CHILD_STORE) else { return };
    let (url, project) = place.split_once(' ').unwrap();
    let writer = Writer::open(Location::postgres(url, project).unwrap()).unwrap();
    println!("\nleading");
    writer.when_deposed(|why| println!("deposed: {why}"));
    let records = records();
    let mut head = writer.opened_at().seq;
    for order in std::io::stdin().lines() {
        if order.unwrap() == "fold" {
            let (told, heard) = mpsc::channel();
            writer.flush(move |done| told.send(done).unwrap());
            match heard.recv().unwrap() {
                Ok(to) => println!("fold: all, up to {to}"),
                Err(why) => println!("fold: {why}"),
            }
            continue;
        }
        let next = &records[head.0 as usize..][..1];
        match append(&writer, head, next) {
            Ok(to) => {
                head = to.seq;
                println!("appended {head}");
            }
            Err(why) => println!("refused: {why}"),
        }
    }
}

struct Leader {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
}

impl Leader {
    fn start(url: &str, project: &str) -> Leader {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lead::child_leads", "--nocapture"])
            .env(CHILD_STORE, format!("{url} {project}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let (say, lines) = mpsc::channel();
        // The test may have seen enough.
        thread::spawn(move || printed.map_while(Result::ok).try_for_each(|line| say.send(line)));
        let leader = Leader { child, orders, lines };
        leader.line("leading");
        leader
    }

    fn order(&mut self) {
        writeln!(self.orders, "append").unwrap();
    }

    fn order_fold(&mut self) {
        writeln!(self.orders, "fold").unwrap();
    }

    /// The next line that begins so.
    fn line(&self, start: &str) -> String {
        let next =
            || self.lines.recv_timeout(PATIENCE).unwrap_or_else(|why| panic!("{start}: {why}"));
        std::iter::repeat_with(next).find(|line| line.starts_with(start)).unwrap()
    }

    fn signal(&self, signal: Signal) {
        let leader = Pid::from_raw(self.child.id() as i32);
        kill(leader, signal).unwrap();
        // The signal is on its way; until it is there, the leader would take one more order.
        if signal == Signal::SIGSTOP {
            let stopped = waitpid(leader, Some(WaitPidFlag::WUNTRACED)).unwrap();
            assert_eq!(stopped, WaitStatus::Stopped(leader, signal));
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // It may have been killed already, by the test.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// A project of this file's tests, by its address and its name.
fn place(project: &str) -> (String, Location) {
    let url = cluster::shared().url();
    let location = Location::postgres(&url, project).unwrap();
    (url, location)
}

#[test]
fn the_second_is_refused_by_name_and_takes_over_from_the_dead() {
    let (url, location) = place("lead_refused");
    let mut leader = Leader::start(&url, "lead_refused");
    leader.order();
    leader.line("appended 1");

    let refused = Writer::open(&location).unwrap_err();
    let Error::Held { holder: Some(holder) } = &refused else { panic!("{refused}") };
    assert_eq!(holder.pid, leader.child.id());
    assert!(refused.to_string().contains(" already leads this project"), "{refused}");

    // Looking on is not leading.
    assert_eq!(Reader::open(&location).unwrap().head().unwrap().seq, Seq(1));

    leader.child.kill().unwrap();
    // One call: it waits for the server to notice, and for no more than its own patience.
    let writer = Writer::open(&location).unwrap();
    assert_eq!(append(&writer, Seq(1), &records()[1..2]).unwrap().seq, Seq(2));
}

/// A stopped process cannot know that its time is over. The database does.
#[test]
fn a_leader_that_was_stopped_is_refused_when_it_wakes() {
    let (url, location) = place("lead_stopped");
    let mut old = Leader::start(&url, "lead_stopped");
    old.order();
    old.line("appended 1");
    old.signal(Signal::SIGSTOP);
    // It is in the middle of things: this order reaches it, and it will carry it out.
    old.order();

    let new = Writer::open(&location).unwrap();
    let records = records();
    append(&new, Seq(1), &records[1..4]).unwrap();

    old.signal(Signal::SIGCONT);
    let refused = old.line("refused: ");
    assert_eq!(refused, "refused: epoch 1 is not current: the store is at epoch 2");
    append(&new, Seq(4), &records[4..]).unwrap();
    new.close().unwrap();
    assert_eq!(verify(&location).unwrap().records, records.len() as u64);
    // It was stopped before it had folded what it appended; that must not come back either.
    let reader = Reader::open(&location).unwrap();
    assert_eq!(reader.wrong_tables().unwrap(), [""; 0]);
    assert_eq!(reader.watermark().unwrap(), Seq(records.len() as u64));
}

/// Whoever has nothing to append would lead in its own eyes until it has. The database tells it.
#[test]
fn a_leader_with_nothing_to_do_hears_that_it_was_replaced() {
    let (_, location) = place("lead_told");
    let leader = Writer::open(&location).unwrap();
    let deposed = || {
        let (told, heard) = mpsc::channel();
        leader.when_deposed(move |why| told.send(why.to_string()).unwrap());
        heard
    };
    let (heard, over) = (deposed(), "epoch 1 is not current: the store is at epoch 2");
    // What was asked before an append is heard before it is answered.
    append(&leader, Seq(0), &records()[..1]).unwrap();
    assert!(heard.try_recv().is_err(), "it leads");
    Postgres::open(&location).unwrap().claim_epoch().unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).as_deref(), Ok(over));
    // Whoever asks late is told, too.
    assert_eq!(deposed().recv_timeout(PATIENCE).as_deref(), Ok(over));
}

/// The same for one that slept, or whose network did, when it was replaced: nobody could tell it then.
#[test]
fn a_leader_that_comes_back_hears_that_it_was_replaced() {
    for sentinel in ["kept", "lost"] {
        let project = format!("lead_back_{sentinel}");
        let (url, location) = place(&project);
        let old = Leader::start(&url, &project);
        old.signal(Signal::SIGSTOP);
        if sentinel == "lost" {
            assert_eq!(end_sentinel(&location), "1");
        }
        let new = Writer::open(&location).unwrap();
        old.signal(Signal::SIGCONT);
        let told = old.line("deposed: ");
        assert_eq!(told, "deposed: epoch 1 is not current: the store is at epoch 2", "{sentinel}");
        append(&new, Seq(0), &records()).unwrap();
    }
}

/// Stopped when all that its fold lacks is the word to commit, it holds what its successor has to
/// take. The server ends that by itself, and what was folded goes with it.
#[test]
fn a_leader_that_was_stopped_in_its_fold_keeps_nobody_waiting() {
    let (url, location) = place("lead_folding");
    let schema = fixture::schema(&location);
    let mut old = Leader::start(&url, "lead_folding");
    let ask = |sql: &str| cluster::shared().psql(&schema, sql).unwrap();
    // The server knows the statements of the second fold from the first, so what waits is the fold.
    old.order();
    old.order_fold();
    old.line("fold: all, up to 1");
    let lock = "BEGIN; LOCK TABLE projection_watermark;";
    let person = cluster::shared().session(&schema, lock);
    old.order();
    old.line("appended 2");
    let waiting = format!(
        "SELECT count(*) FROM pg_locks
        WHERE NOT granted AND relation = '{schema}.projection_watermark'::regclass"
    );
    let patience = Instant::now() + Duration::from_secs(20);
    while ask(&waiting) == "0" {
        assert!(Instant::now() < patience, "it does not fold");
    }
    old.signal(Signal::SIGSTOP);
    drop(person);

    let new = Writer::open(&location).unwrap();
    let records = records();
    append(&new, Seq(2), &records[2..]).unwrap();
    new.close().unwrap();

    old.signal(Signal::SIGCONT);
    old.order_fold();
    // It finds that there is nothing left to do, or that it is not the one to do it.
    old.line("fold: ");
    let reader = Reader::open(&location).unwrap();
    assert_eq!(reader.wrong_tables().unwrap(), [""; 0]);
    assert_eq!(reader.watermark().unwrap(), Seq(records.len() as u64));
}

/// Several want the lead of one who is silent. One gets it, and the others are told who; that one
/// must not be taken for the silent one by those who come a moment later.
#[test]
fn of_two_who_want_the_lead_of_a_silent_leader_one_gets_it() {
    // One of its own, so that nobody else's sessions are counted.
    let cluster = cluster::Cluster::start();
    let location = cluster.project();
    let project = fixture::schema(&location).replace("kapelle_", "");
    let silent = Leader::start(&cluster.url(), &project);
    silent.signal(Signal::SIGSTOP);
    let begin = Barrier::new(2);
    let contend = || {
        begin.wait();
        Writer::open(&location)
    };
    let outcomes = thread::scope(|scope| {
        let contenders = [scope.spawn(contend), scope.spawn(contend)];
        contenders.map(|contender| contender.join().unwrap())
    });
    let (leader, refused) = match outcomes {
        [Ok(leader), Err(refused)] | [Err(refused), Ok(leader)] => (leader, refused),
        other => panic!("{other:?}"),
    };
    let Error::Held { holder: Some(holder) } = &refused else { panic!("{refused}") };
    assert_eq!(holder.pid, std::process::id(), "not {}, who was silent", silent.child.id());
    assert_eq!(leader.epoch(), Epoch(2));
    append(&leader, Seq(0), &records()).unwrap();
    // The silent one's, and no contender's.
    let killed = "SELECT sessions_killed FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(cluster.psql("public", killed).unwrap(), "1");
}

/// Where a project is led says nothing about another one in the same database.
#[test]
fn projects_do_not_know_of_each_other() {
    let (_, one) = place("lead_one");
    let (_, other) = place("lead_other");
    let (one, other) = (Writer::open(&one).unwrap(), Writer::open(&other).unwrap());
    let records = records();
    append(&one, Seq(0), &records).unwrap();
    append(&other, Seq(0), &records[..1]).unwrap();
}

/// The sessions of a project's sentinel are ended by this, and counted.
fn end_sentinel(location: &Location) -> String {
    let schema = fixture::schema(location);
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = 'sentinel of {schema}'"
    );
    cluster::shared().psql(&schema, &sql).unwrap()
}

/// Only the connection on which it says so tells others that a leader is alive. A network, or a
/// person, may cut exactly that one, at any time and more than once.
#[test]
fn a_leader_that_lost_its_sentinel_is_still_the_leader() {
    let (_, location) = place("lead_sentinel");
    let leader = Writer::open(&location).unwrap();
    let records = records();
    for (expected, record) in records[..3].iter().enumerate() {
        assert_eq!(end_sentinel(&location), "1");
        let refused = Writer::open(&location).unwrap_err();
        assert!(matches!(refused, Error::Held { .. }), "{refused}");
        append(&leader, Seq(expected as u64), std::slice::from_ref(record)).unwrap();
    }
}

/// The same with the connection that has the lock: it is free, and its holder is well.
#[test]
fn a_leader_that_lost_its_lock_is_still_the_leader() {
    let (_, location) = place("lead_unlocked");
    let leader = Writer::open(&location).unwrap();
    let records = records();
    for (expected, record) in records[..3].iter().enumerate() {
        assert_eq!(fixture::end_leading_session(&location), "1");
        let refused = Writer::open(&location).unwrap_err();
        assert!(matches!(refused, Error::Held { .. }), "{refused}");
        append(&leader, Seq(expected as u64), std::slice::from_ref(record)).unwrap();
    }
    leader.close().unwrap();
    assert_eq!(Writer::open(&location).unwrap().epoch(), Epoch(2));
}

/// A sentinel speaks for its own leader: one that was deposed must not vouch for a successor that
/// hangs, or nobody could ever take over from that.
#[test]
fn a_deposed_leader_does_not_answer_for_its_successor() {
    let (url, location) = place("lead_vouched");
    let deposed = Writer::open(&location).unwrap();
    // Its connection goes, and it does not notice before it is asked for something.
    assert_eq!(fixture::end_leading_session(&location), "1");
    Postgres::open(&location).unwrap().claim_epoch().unwrap();
    let successor = Leader::start(&url, "lead_vouched");
    successor.signal(Signal::SIGSTOP);

    let third = Writer::open(&location).unwrap();
    assert_eq!(third.epoch(), Epoch(4));
    drop(deposed);
}

/// Servers may be set to end sessions that have nothing to do; an idle leader has nothing to do.
#[test]
fn a_leader_that_has_nothing_to_do_keeps_the_lead() {
    let cluster = cluster::Cluster::start();
    let location = cluster.project();
    let ask = |sql: &str| cluster.psql("public", sql).unwrap();
    ask("ALTER SYSTEM SET idle_session_timeout = '100ms'");
    cluster.crash();
    cluster.start_again();
    let leader = Writer::open(&location).unwrap();
    let person = cluster.session("public", "SET application_name = 'person'; SELECT 1;");
    let patience = Instant::now() + Duration::from_secs(20);
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name =";
    while ask(&format!("{count} 'person'")) != "0" {
        assert!(Instant::now() < patience, "the server does not end idle sessions");
    }
    // Two threads that write, and the sentinel.
    assert_eq!(ask(&format!("{count} 'kapelle'")), "2");
    assert_eq!(ask(&format!("{count} 'sentinel of {}'", fixture::schema(&location))), "1");
    append(&leader, Seq(0), &records()).unwrap();
    drop(person);
}

/// Whoever is refused has changed nothing: the tables of another version are not its own to drop.
#[test]
fn whoever_is_refused_leaves_the_store_as_it_was() {
    let (_, location) = place("lead_untouched");
    let schema = fixture::schema(&location);
    let leader = Writer::open(&location).unwrap();
    append(&leader, Seq(0), &records()).unwrap();
    leader.flush(|_| {});
    let ask = |sql: &str| cluster::shared().psql(&schema, sql).unwrap();
    // As if the leader were of another version, with tables of its own.
    ask("UPDATE projection_watermark SET version = version + 1");
    let tables = "SELECT string_agg(oid::text, ' ' ORDER BY oid) FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace";
    let before = (ask(tables), ask("SELECT epoch FROM meta"));
    let refused = Writer::open(&location).unwrap_err();
    assert!(matches!(refused, Error::Held { .. }), "{refused}");
    assert_eq!((ask(tables), ask("SELECT epoch FROM meta")), before);
}
