//! Somebody between a store and its server, who ends connections in words of their own.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use kapelle_core::Seq;
use kapelle_store::{Location, Writer, verify};

use crate::{cluster, fixture};

const SOCKET: &str = ".s.PGSQL.5432";

struct Middleman {
    dir: tempfile::TempDir,
    sessions: Arc<Mutex<Vec<Session>>>,
}

struct Session {
    client: UnixStream,
    /// Nothing that the client says from now on arrives.
    over: Arc<AtomicBool>,
}

impl Middleman {
    fn before(server: &Path) -> Middleman {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        let (server, sessions) = (server.join(SOCKET), Arc::default());
        let opened: Arc<Mutex<Vec<Session>>> = Arc::clone(&sessions);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = UnixStream::connect(&server) else { return };
                let over = Arc::new(AtomicBool::new(false));
                pass_on(&client, &server, &over);
                pass_on(&server, &client, &Arc::default());
                opened.lock().unwrap().push(Session { client, over });
            }
        });
        Middleman { dir, sessions }
    }

    /// As a pooler ends a session that was idle for too long: the reason is there before anybody
    /// asks, and the end comes after it.
    fn end_all(&self) {
        let said = b"SFATAL\0VFATAL\0C08P01\0Mclient_idle_timeout\0\0";
        let mut message = vec![b'E'];
        message.extend_from_slice(&(said.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(said);
        for mut session in self.sessions.lock().unwrap().drain(..) {
            session.over.store(true, Ordering::SeqCst);
            // Some were closed by their client.
            let _ = session.client.write_all(&message);
        }
    }
}

fn pass_on(from: &UnixStream, to: &UnixStream, over: &Arc<AtomicBool>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let over = Arc::clone(over);
    thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if over.load(Ordering::SeqCst) || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // It may be closed already.
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
}

/// A connection that ended while nobody used it is made anew, whatever it was ended with.
#[test]
fn an_append_goes_on_whatever_its_connection_was_ended_with() {
    let middleman = Middleman::before(cluster::shared().dir());
    let url = format!("postgres:///postgres?user=app&host={}", middleman.dir.path().display());
    let location = Location::postgres(&url, "behind_a_middleman").unwrap();
    let records = fixture::history(2, 0);
    let writer = Writer::open(&location).unwrap();
    writer.append_and_wait(writer.epoch(), Seq(0), records[..5].to_vec()).unwrap();
    middleman.end_all();
    writer.append_and_wait(writer.epoch(), Seq(5), records[5..].to_vec()).unwrap();
    writer.close().unwrap();
    assert_eq!(verify(&location).unwrap().records, records.len() as u64);
}
