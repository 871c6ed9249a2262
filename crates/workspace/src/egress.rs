//! The egress proxy: the one way from a box to the internet, for hosts on a list.
//!
//! It listens on a socket of the file system, which the forwarder of a box leads to, and speaks
//! what every HTTP client speaks to a proxy: `CONNECT` for encrypted connections, whole addresses
//! for plain ones. What is inside an encrypted connection stays unseen.
//!
//! Invariant: no connection is made to a host and port that no rule names, and none to an address
//! of this machine or its network because a name out there happens to point at it.

mod allow;
mod request;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use allow::{AllowList, InvalidRule};
use request::Request;

/// The head of a request; browsers stop at half of this.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// A client that has not said what it wants by then never will.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

const CONNECT_TIME_MAX: Duration = Duration::from_secs(20);

/// Of all boxes together; a package manager opens a few dozen.
const CONNECTIONS_MAX: usize = 512;

/// Hosts that are remembered as refused. Beyond, only the count of the known ones goes on.
const REFUSED_HOSTS_MAX: usize = 1_000;

#[derive(Debug, thiserror::Error)]
#[error("the egress socket {path}: {source}")]
pub struct Error {
    path: PathBuf,
    source: std::io::Error,
}

/// A proxy that listens. Dropping it ends the listening; connections that exist go on.
#[derive(Debug)]
pub struct Egress {
    path: PathBuf,
    task: JoinHandle<()>,
    refused: Refusals,
}

type Refusals = Arc<Mutex<BTreeMap<String, u64>>>;

impl Egress {
    /// Listens on a new socket at `path`, for our user only.
    pub fn listen(path: &Path, allow: AllowList) -> Result<Egress, Error> {
        let failed = |source| Error { path: path.into(), source };
        match std::fs::remove_file(path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, private).map_err(failed)?;
        let refused = Refusals::default();
        let task = tokio::spawn(accept(listener, Arc::new(allow), refused.clone()));
        Ok(Egress { path: path.into(), task, refused })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who was asked for and not allowed, and how often: a person may want to allow it.
    #[must_use]
    pub fn refused(&self) -> BTreeMap<String, u64> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.task.abort();
        let _gone = std::fs::remove_file(&self.path);
    }
}

async fn accept(listener: UnixListener, allow: Arc<AllowList>, refused: Refusals) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else {
            // Out of files, most likely. It must not become a loop at full speed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (allow, refused) = (allow.clone(), refused.clone());
        tokio::spawn(async move {
            // A broken connection is the business of the two who talk.
            let _closed = serve(client, &allow, &refused).await;
            drop(place);
        });
    }
}

async fn serve(
    mut client: UnixStream,
    allow: &AllowList,
    refused: &Refusals,
) -> std::io::Result<()> {
    let Ok(head) = timeout(HEAD_TIME_MAX, read_head(&mut client)).await else {
        return answer(&mut client, "408 Request Timeout", "nothing was asked for").await;
    };
    let Some(request) = head?.as_deref().and_then(Request::parse) else {
        return answer(&mut client, "400 Bad Request", "this is a proxy for HTTP").await;
    };
    let name = format!("{}:{}", request.host, request.port);
    if !allow.allows(&request.host, request.port) {
        remember(refused, &name);
        let why = format!("{name} is not on the list; a person can add it under [sandbox] egress");
        return answer(&mut client, "403 Forbidden", &why).await;
    }
    let mut server = match connect(&request, allow).await {
        Ok(server) => server,
        Err(why) => return answer(&mut client, "502 Bad Gateway", &format!("{name}: {why}")).await,
    };
    match &request.forwarded {
        None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
        Some(head) => server.write_all(head).await?,
    }
    server.write_all(&request.body_begun).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Everything up to the empty line, and what came with it.
async fn read_head(client: &mut UnixStream) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut buffer = [0; 4 << 10];
    while head.len() < HEAD_BYTES_MAX {
        let count = client.read(&mut buffer).await?;
        if count == 0 {
            return Ok(None);
        }
        head.extend_from_slice(&buffer[..count]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// Resolved here and checked here: a second look-up could give another address.
async fn connect(request: &Request, allow: &AllowList) -> Result<TcpStream, String> {
    let asked = (request.host.as_str(), request.port);
    let found = timeout(CONNECT_TIME_MAX, tokio::net::lookup_host(asked)).await;
    let found = found.map_err(|_| "the name takes too long")?.map_err(|error| error.to_string())?;
    let found: Vec<SocketAddr> = found.collect();
    let usable: Vec<SocketAddr> = found
        .iter()
        .filter(|address| allow.allows_address(&request.host, address.ip()))
        .copied()
        .collect();
    if usable.is_empty() {
        return Err("the name leads to this machine or its network".into());
    }
    match timeout(CONNECT_TIME_MAX, TcpStream::connect(usable.as_slice())).await {
        Ok(connected) => connected.map_err(|error| error.to_string()),
        Err(_elapsed) => Err("no connection in time".into()),
    }
}

fn remember(refused: &Refusals, name: &str) {
    let mut refused = refused.lock().unwrap_or_else(PoisonError::into_inner);
    if refused.len() < REFUSED_HOSTS_MAX || refused.contains_key(name) {
        *refused.entry(name.to_owned()).or_default() += 1;
    }
}

async fn answer(client: &mut UnixStream, status: &str, why: &str) -> std::io::Result<()> {
    let body = format!("kapelle: {why}\n");
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(format!("{head}{body}").as_bytes()).await?;
    client.shutdown().await
}
