//! A project in a temporary folder, whose agents are shell scripts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use kapelle_conductor::project::{Measure, OpenError, Settings, open, store_path};
use kapelle_conductor::{Driver, Opened};
use kapelle_core::machine::MachineUse;
use kapelle_core::plan::Plan;
use kapelle_core::policy::Policy;
use kapelle_core::{Actor, Command, RequestId, Role};
use kapelle_gateway::prices;
use kapelle_store::Location;
use kapelle_workspace::commands::ThresholdRules;
use kapelle_workspace::tmux::Tmux;
use kapelle_workspace::{Repository, Sandbox};
use tempfile::TempDir;

/// Far more than anything here takes; past it, something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Fixture {
    dir: TempDir,
    socket: Option<TempDir>,
}

impl Fixture {
    /// A repository with one commit on `main`, and a developer who is this script.
    pub fn new(script: &str) -> Fixture {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let fixture = Fixture { dir, socket: None };
        fs::create_dir(fixture.repo()).unwrap();
        git(&fixture.repo(), &["init", "--quiet", "--initial-branch=main"]);
        git(&fixture.repo(), &["commit", "--quiet", "--allow-empty", "--message", "start"]);
        fs::write(fixture.agent(), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(fixture.agent(), fs::Permissions::from_mode(0o755)).unwrap();
        fixture
    }

    pub fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    pub fn state_dir(&self) -> PathBuf {
        self.repo().join(".kapelle")
    }

    pub fn store(&self) -> Location {
        Location::sqlite(&store_path(&self.state_dir()))
    }

    /// The agent's program is gone, as after an upgrade that went wrong.
    pub fn lose_the_agent(&self) {
        fs::remove_file(self.agent()).unwrap();
    }

    /// Sockets have short paths; a temporary directory of the build has not.
    fn sessions(&self) -> Option<Tmux> {
        self.socket.as_ref().map(|dir| Tmux::at(&dir.path().join("s")))
    }

    /// The same with agents in sessions.
    pub fn in_sessions(mut self) -> Fixture {
        self.socket = Some(tempfile::tempdir_in("/tmp").unwrap());
        self
    }

    pub fn tmux(&self) -> Tmux {
        self.sessions().unwrap()
    }

    fn agent(&self) -> PathBuf {
        self.dir.path().join("agent.sh")
    }

    pub async fn open(&self) -> Result<Opened, OpenError> {
        self.open_on(|_| Ok(MachineUse::default())).await
    }

    /// With these rules for commands.
    pub async fn open_with(&self, rules: ThresholdRules) -> Result<Opened, OpenError> {
        self.open_as(rules, |_| Ok(MachineUse::default())).await
    }

    /// On a machine that is as full as this says.
    pub async fn open_on(&self, measure: Measure) -> Result<Opened, OpenError> {
        self.open_as(ThresholdRules::default(), measure).await
    }

    async fn open_as(&self, rules: ThresholdRules, measure: Measure) -> Result<Opened, OpenError> {
        let driver =
            Driver { program: self.agent(), args: Vec::new(), readable: vec![self.agent()] };
        open(Settings {
            repo: Repository::open(&self.repo()).await.unwrap(),
            dir: self.state_dir(),
            store: self.store(),
            drivers: BTreeMap::from([(Role::Developer, driver.clone()), (Role::Tester, driver)]),
            sandboxing: Sandbox::probe().await,
            prices: prices::shipped().unwrap(),
            env: BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]),
            readable: Vec::new(),
            sessions: self.sessions(),
            rules,
            measure,
        })
        .await
    }

    /// The tree of an agent at work, once it has written this file.
    pub async fn tree_with(&self, file: &str) -> PathBuf {
        let work = self.state_dir().join("work");
        let tree = async {
            loop {
                let places = fs::read_dir(&work).into_iter().flatten().filter_map(Result::ok);
                let mut trees = places.map(|place| place.path().join("tree"));
                if let Some(tree) = trees.find(|tree| tree.join(file).exists()) {
                    return tree;
                }
                tokio::task::yield_now().await;
            }
        };
        soon("the agent's first file", tree).await
    }

    /// A mission with one task, under a name of its own.
    pub fn mission(&self, request: &str) -> Command {
        let plan = r#"{"tasks": [{"id": "1", "title": "one"}]}"#;
        Command::OpenMission {
            request: RequestId(request.into()),
            goal: request.into(),
            target: "main".into(),
            base: git(&self.repo(), &["rev-parse", "main"]).parse().unwrap(),
            plan: Plan::parse(plan).unwrap(),
            policy: Box::new(Policy::default()),
            by: me(),
        }
    }
}

pub fn me() -> Actor {
    Actor("ada".into())
}

pub fn team() -> Command {
    Command::ConfigureTeam {
        seats: BTreeMap::from([(Role::Developer, 2)]),
        workers_max: 2,
        by: Actor("ada".into()),
    }
}

/// Bounded: a conductor that does not answer is a failed test, not a hanging one.
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
