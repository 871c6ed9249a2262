//! A project in a temporary folder with a conductor and a server, and a client that can say
//! anything: real ones are too polite to test a door.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use kapelle_conductor::project::{Settings, open};
use kapelle_conductor::{Driver, Handle, Opened};
use kapelle_core::machine::MachineUse;
use kapelle_core::plan::Plan;
use kapelle_core::policy::Policy;
use kapelle_core::{Actor, Command, RequestId, Role};
use kapelle_gateway::prices;
use kapelle_server::wire::Overview;
use kapelle_server::{Access, Past, serve};
use kapelle_store::Location;
use kapelle_workspace::commands::ThresholdRules;
use kapelle_workspace::{Repository, Sandbox};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Far more than anything here takes; past it, something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub struct Fixture {
    dir: TempDir,
    pub opened: Opened,
    port: u16,
}

pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Fixture {
    /// A repository with one commit, a developer who is this script, and a server in front.
    pub async fn new(script: &str) -> Fixture {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (repo, agent) = (dir.path().join("repo"), dir.path().join("agent.sh"));
        fs::create_dir(&repo).unwrap();
        git(&repo, &["init", "--quiet", "--initial-branch=main"]);
        git(&repo, &["commit", "--quiet", "--allow-empty", "--message", "start"]);
        fs::write(&agent, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let driver = Driver { program: agent.clone(), args: Vec::new(), readable: vec![agent] };
        let opened = open(Settings {
            repo: Repository::open(&repo).await.unwrap(),
            dir: repo.join(".kapelle"),
            store: Location::sqlite(&repo.join(".kapelle/store.db")),
            drivers: BTreeMap::from([(Role::Developer, driver)]),
            sandboxing: Sandbox::probe().await,
            prices: prices::shipped().unwrap(),
            env: BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]),
            readable: Vec::new(),
            sessions: None,
            rules: ThresholdRules::default(),
            measure: |_| Ok(MachineUse::default()),
        });
        let opened = opened.await.unwrap();
        let seats = BTreeMap::from([(Role::Developer, 2)]);
        let team = Command::ConfigureTeam { seats, workers_max: 2, by: Actor("ada".into()) };
        opened.handle.send(team).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (handle, access) = (opened.handle.clone(), Access { token: TOKEN.into() });
        let past = Past { recent: Vec::new(), commits: opened.handle.follow() };
        tokio::spawn(async move { serve(listener, "sample", handle, past, access).await });
        Fixture { dir, opened, port }
    }

    pub fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    pub fn handle(&self) -> &Handle {
        &self.opened.handle
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Opens a mission with these tasks, `a` before `b`.
    pub async fn mission(&self, request: &str) {
        let plan = r#"{"tasks": [{"id": "a", "title": "A"},
            {"id": "b", "title": "B", "dependencies": ["a"]}]}"#;
        let open = Command::OpenMission {
            request: RequestId(request.into()),
            goal: request.into(),
            target: "main".into(),
            base: git(&self.repo(), &["rev-parse", "main"]).parse().unwrap(),
            plan: Plan::parse(plan).unwrap(),
            policy: Box::new(Policy::default()),
            by: Actor("ada".into()),
        };
        self.handle().send(open).await.unwrap();
    }

    /// The head of a request, without `Connection`, ready for more headers.
    fn head(&self, line: &str, headers: &str) -> String {
        let host = format!("Host: 127.0.0.1:{}\r\n", self.port);
        let host = if headers.to_lowercase().contains("host:") { "" } else { &host };
        format!("{line} HTTP/1.1\r\n{host}{headers}")
    }

    /// Sends exactly these headers, each ended by `\r\n`, and reads the whole answer.
    pub async fn send(&self, line: &str, headers: &str, body: &str) -> Answer {
        let exchange = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
            let head = self.head(line, headers);
            let length = body.len();
            let head = format!("{head}Connection: close\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            // The server may have answered and hung up before it has read all of this.
            let _ = stream.write_all(body.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            parse(&String::from_utf8(answer).unwrap())
        };
        soon(line, exchange).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), "", "").await
    }

    pub async fn overview(&self) -> Overview {
        serde_json::from_str(&self.get("/api/v1/overview").await.body).unwrap()
    }

    /// A command with the right token.
    pub async fn post(&self, body: &str) -> Answer {
        let headers =
            format!("Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n");
        self.send("POST /api/v1/commands", &headers, body).await
    }

    pub async fn stream(&self) -> Stream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let head = self.head("GET /api/v1/stream", "");
        stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
        Stream { lines: BufReader::new(stream).lines() }
    }

    /// Stops the conductor; what it ran ends with it.
    pub async fn end(self) {
        self.opened.handle.shut_down();
        soon("the end", self.opened.conductor.ended()).await.unwrap();
    }
}

fn parse(answer: &str) -> Answer {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let mut lines = head.lines();
    let status = lines.next().unwrap_or("").split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { status, headers, body: body.to_owned() }
}

/// A stream of events, as a browser reads it.
pub struct Stream {
    lines: tokio::io::Lines<BufReader<TcpStream>>,
}

#[derive(Debug)]
pub struct Event {
    pub kind: String,
    pub id: u64,
    pub data: String,
}

impl Stream {
    pub async fn next(&mut self) -> Event {
        let (mut kind, mut id) = (String::new(), 0);
        loop {
            let line = soon("an event", self.lines.next_line()).await.unwrap().unwrap();
            match line.split_once(": ") {
                Some(("event", value)) => kind = value.to_owned(),
                Some(("id", value)) => id = value.parse().unwrap(),
                Some(("data", value)) => return Event { kind, id, data: value.to_owned() },
                _ => {}
            }
        }
    }
}

/// Bounded: a server that does not answer is a failed test, not a hanging one.
pub async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = Process::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "Person")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "p@example.org")))
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}
