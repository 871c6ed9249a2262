//! The forwarder: a port of the box's own loopback that leads to a socket outside.
//!
//! Ordinary programs speak to a host and a port; the only things that lead out of a box are
//! sockets of the file system. The forwarder runs inside, behind the same walls as the command.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::mandate::Forward;

/// Each takes two threads. A client with more at once is mistaken, and is closed.
const CONNECTIONS_MAX: usize = 128;

/// Starts to listen, on threads of its own that end with the process.
pub(super) fn listen(forward: &Forward) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, forward.port))?;
    let socket = forward.socket.clone();
    thread::Builder::new().name("forwarder".into()).spawn(move || accept(&listener, &socket))?;
    Ok(())
}

fn accept(listener: &TcpListener, socket: &Path) {
    let open = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming().flatten() {
        if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (socket, counted) = (PathBuf::from(socket), open.clone());
        let started = thread::Builder::new().spawn(move || {
            // A broken connection is the business of the two who talk.
            let _closed = join(client, &socket);
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if started.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn join(client: TcpStream, socket: &Path) -> io::Result<()> {
    let server = UnixStream::connect(socket)?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let back = thread::Builder::new().spawn(move || {
        let _closed = io::copy(&mut from_server, &mut to_client);
        let _gone = to_client.shutdown(Shutdown::Write);
    })?;
    let (mut from_client, mut to_server) = (client, server);
    let _closed = io::copy(&mut from_client, &mut to_server);
    let _gone = to_server.shutdown(Shutdown::Write);
    let _ended = back.join();
    Ok(())
}
