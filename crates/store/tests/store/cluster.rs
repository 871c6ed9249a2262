//! A throw-away PostgreSQL server, for the tests of this process.
//!
//! It is kept by a shell that reads our orders from a pipe. When this process ends, however it
//! ends, the pipe closes, and the shell ends the server and removes its files. PostgreSQL refuses
//! to be root, so the shell is somebody else.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use kapelle_store::Location;

const KEEPER: &str = r#"
set -eu
# Whoever ends the tests by a signal to the whole group must not end the clearing up.
trap '' INT TERM HUP
bin=$1
dir=$(mktemp -d /tmp/kapelle-pg-XXXXXX)
trap '"$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT
"$bin/initdb" -D "$dir/data" -U app -A trust --no-sync -E UTF8 --locale=C.UTF-8 >"$dir/log" 2>&1 \
    || { cat "$dir/log" >&2; exit 1; }
cat >>"$dir/data/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$dir'
max_connections = 200
shared_buffers = 128MB
CONF
echo "$dir"
while read -r order; do
    case $order in
        start) "$bin/pg_ctl" -D "$dir/data" -w -l "$dir/log" start >/dev/null 2>&1 ;;
        stop) "$bin/pg_ctl" -D "$dir/data" -w -m immediate stop >/dev/null 2>&1 ;;
    esac
    echo "done $order"
done
"#;

pub struct Cluster {
    keeper: Mutex<Keeper>,
    dir: String,
    projects: AtomicU32,
}

struct Keeper {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

/// The server that all tests of this process share. Each test takes a project of its own.
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(Cluster::start)
}

impl Cluster {
    pub fn start() -> Cluster {
        let mut child = keeper(programs())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell to keep the server");
        let orders = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let dir = answers.next().expect("initdb failed, see above").unwrap();
        let keeper = Mutex::new(Keeper { child, orders, answers });
        let cluster = Cluster { keeper, dir, projects: AtomicU32::new(0) };
        cluster.order("start");
        cluster
    }

    pub fn url(&self) -> String {
        format!("postgres:///postgres?user=app&host={}", self.dir)
    }

    /// Where its socket is.
    pub fn dir(&self) -> &Path {
        Path::new(&self.dir)
    }

    /// A project that nobody else has.
    pub fn project(&self) -> Location {
        let number = self.projects.fetch_add(1, Ordering::Relaxed);
        Location::postgres(&self.url(), &format!("p{number}")).unwrap()
    }

    /// Ends the server at once, in the middle of whatever it does. What it has given to the kernel
    /// is still written; a power cut would lose that, too.
    pub fn crash(&self) {
        self.order("stop");
    }

    pub fn start_again(&self) {
        self.order("start");
    }

    fn client(&self) -> Command {
        let mut client = Command::new(programs().join("psql"));
        client.args(["-h", &self.dir, "-U", "app", "-d", "postgres", "-AtX"]);
        client.args(["-v", "ON_ERROR_STOP=1"]).env("PGOPTIONS", "-c client_min_messages=warning");
        client
    }

    /// A client that has run this, and stays connected.
    pub fn session(&self, schema: &str, sql: &str) -> Session {
        let mut client = self.client();
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut orders = client.stdin.take().unwrap();
        writeln!(orders, "SET search_path TO {schema}; {sql}\n\\echo ready").unwrap();
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"), "{sql}");
        Session { client, orders: Some(orders) }
    }

    /// Runs SQL as a person would, with psql, and gives what it prints.
    pub fn psql(&self, schema: &str, sql: &str) -> Result<String, String> {
        let output = self
            .client()
            .args(["-c", &format!("SET search_path TO {schema}"), "-c", sql])
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        match output.status.success() {
            true => Ok(text(output.stdout).replacen("SET\n", "", 1).trim().to_owned()),
            false => Err(text(output.stderr)),
        }
    }

    /// A schema as text, as people make a backup of it.
    pub fn dump(&self, schema: &str) -> String {
        let mut dump = Command::new(programs().join("pg_dump"));
        dump.args(["-h", &self.dir, "-U", "app", "-n", schema, "postgres"]);
        let output = dump.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn order(&self, order: &str) {
        let mut keeper = self.keeper();
        let orders = keeper.orders.as_mut().unwrap();
        writeln!(orders, "{order}").unwrap();
        orders.flush().unwrap();
        let answer = keeper.answers.next().expect("the server did not obey").unwrap();
        assert_eq!(answer, format!("done {order}"));
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A person's client that is connected.
pub struct Session {
    client: Child,
    orders: Option<ChildStdin>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.orders = None;
        self.client.wait().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut keeper = self.keeper();
        keeper.orders = None;
        keeper.child.wait().unwrap();
    }
}

fn keeper(programs: PathBuf) -> Command {
    let mut command = if is_root() {
        let user = if has_user("postgres") { "postgres" } else { "nobody" };
        let mut command = Command::new("setpriv");
        let group = format!("--regid={}", group_of(user));
        command.args([&format!("--reuid={user}"), &group, "--clear-groups", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    command.args(["-c", KEEPER, "keeper"]).arg(programs).current_dir("/");
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C.UTF-8");
    command
}

fn is_root() -> bool {
    printed("id", &["-u"]) == "0"
}

fn has_user(name: &str) -> bool {
    std::fs::read_to_string("/etc/passwd")
        .unwrap()
        .lines()
        .any(|l| l.starts_with(&format!("{name}:")))
}

fn group_of(user: &str) -> String {
    printed("id", &["-g", user])
}

fn printed(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// In PATH, or where Debian keeps the servers of all versions side by side.
fn programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // What is in PATH may be a link to where the rest is.
    let in_path = std::env::split_paths(&path).find_map(|dir| {
        let initdb = dir.join("initdb").canonicalize().ok()?;
        Some(initdb.parent()?.to_owned())
    });
    let debian = || {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let mut found: Vec<PathBuf> = versions.flatten().map(|v| v.path().join("bin")).collect();
        found.retain(|bin| bin.join("initdb").is_file());
        found.sort();
        found.pop()
    };
    in_path
        .or_else(debian)
        .expect("no PostgreSQL server was found; `cargo xtask setup --for test` installs one")
}
