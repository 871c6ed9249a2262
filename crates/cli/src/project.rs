//! A project as the command line finds it: a repository, its configuration, its state folder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kapelle_agents::scenario::Scenario;
use kapelle_conductor::Driver;
use kapelle_conductor::project::{OpenError, Opened, Settings, make_private, open, store_path};
use kapelle_core::flow::Phase;
use kapelle_core::policy::Sandbox as Choice;
use kapelle_core::{Actor, Command, Engine, Refusal, Role};
use kapelle_store::{Durability, Holder, Leadership, Location, Reader};
use kapelle_workspace::sandbox::Sandboxing;
use kapelle_workspace::tmux::Tmux;
use kapelle_workspace::{Repository, governor, runtime};

use crate::config::{Config, RoleConfig, Runner};
use crate::output::{Problem, say};
use crate::sandbox;

pub const STATE_DIR: &str = ".kapelle";

/// Wins over `[store] url`: an address with a password does not belong into a repository.
const STORE_URL: &str = "KAPELLE_STORE_URL";

/// As long as the store lets a project's name be.
const PLAIN_NAME_CHARS_MAX: usize = 40;

#[derive(Debug)]
pub struct Project {
    pub repo: Repository,
    pub config: Config,
    /// Where the store is, if the environment says so.
    store_url: Option<String>,
}

impl Project {
    /// The project that the current folder belongs to.
    pub async fn here() -> Result<Project, Problem> {
        let here = std::env::current_dir().map_err(Problem::environment)?;
        Project::at(&here).await
    }

    pub async fn at(path: &Path) -> Result<Project, Problem> {
        let repo = Repository::open(path).await?;
        refuse_link(&repo.root().join(STATE_DIR), "a folder")?;
        let config = Config::load(repo.root()).map_err(|e| {
            Problem::usage(e).hint("the keys are described in docs/reference/kapelle.schema.json")
        })?;
        let repo = repo.allowing_secrets(config.secret_rules());
        Ok(Project::new(repo, config))
    }

    #[must_use]
    pub fn new(repo: Repository, config: Config) -> Project {
        let store_url = std::env::var(STORE_URL).ok().filter(|url| !url.is_empty());
        Project { repo, config, store_url }
    }

    /// With its store in its own folder, whatever the environment says: for a demo, which is not
    /// to leave anything elsewhere.
    #[must_use]
    pub fn by_itself(self) -> Project {
        Project { store_url: None, ..self }
    }

    #[must_use]
    pub fn name(&self) -> String {
        let name = self.repo.root().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.repo.root().join(STATE_DIR)
    }

    /// Whether there is a journal to go on from.
    pub fn is_begun(&self) -> Result<bool, Problem> {
        let location = self.location()?;
        match Reader::open(&location) {
            Err(kapelle_store::Error::Io { source, .. })
                if source.kind() == ErrorKind::NotFound =>
            {
                Ok(false)
            }
            // A file may be there without a store: somebody was interrupted in making it.
            Err(kapelle_store::Error::NoStore { .. }) => Ok(false),
            Ok(_) => Ok(true),
            // What is wrong with a file is told by whoever opens it for what it is needed for.
            Err(_) if location.path().is_some() => Ok(true),
            Err(kapelle_store::Error::TooOld { .. }) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Where the journal is, as the configuration or `KAPELLE_STORE_URL` has it.
    pub fn location(&self) -> Result<Location, Problem> {
        let store = &self.config.store;
        let url = self.store_url.clone().or_else(|| store.url.clone());
        let location = self.place_of_store(url.as_deref(), store.project.as_deref())?;
        Ok(location.with(store.durability()))
    }

    /// A place by its address: `sqlite`, `sqlite:FILE` or `postgres://…`.
    pub fn place_of_store(
        &self,
        url: Option<&str>,
        project: Option<&str>,
    ) -> Result<Location, Problem> {
        match url {
            None | Some("sqlite") => Ok(Location::sqlite(&store_path(&self.state_dir()))),
            Some(url) => match url.strip_prefix("sqlite:") {
                Some(file) => Ok(Location::sqlite(&self.repo.root().join(file))),
                None => {
                    let name = project.map_or_else(|| plain_name(&self.name()), str::to_owned);
                    Ok(Location::postgres(url, &name)?)
                }
            },
        }
    }

    /// For whoever is about to change something: a store of an earlier version is brought up to
    /// date first, by nobody but who leads.
    pub async fn bring_up_to_date(&self) -> Result<(), Problem> {
        let location = self.location()?;
        if let Err(kapelle_store::Error::TooOld { .. }) = Reader::open(&location) {
            self.make_state_dir().await?;
            let _lead = Leadership::over(&self.state_dir(), &location, Holder::here())?;
            kapelle_store::bring_up_to_date(&location)?;
        }
        Ok(())
    }

    /// The state as the journal tells it, without disturbing whoever runs the project.
    pub fn read(&self) -> Result<(Reader, Engine), Problem> {
        if !self.is_begun()? {
            return Err(Problem::refused("nothing has been started in this repository yet")
                .hint("start a mission: kapelle run \"what you want\" --plan plan.json"));
        }
        let reader = Reader::open(self.location()?)?;
        let engine = reader.recover()?;
        Ok((reader, engine))
    }

    /// The state folder, for its owner alone and out of git's sight.
    pub async fn make_state_dir(&self) -> Result<(), Problem> {
        self.repo.exclude_locally(&format!("/{STATE_DIR}/")).await?;
        make_private(&self.state_dir()).map_err(Problem::environment)
    }

    /// Who runs the project: from here, from another folder or, on a server, from another machine.
    pub fn holder(&self) -> Result<Option<Holder>, Problem> {
        Ok(kapelle_store::holder_of(&self.state_dir(), &self.location()?)?)
    }

    /// Where agents run that can be attached to.
    pub fn sessions(&self) -> Result<Tmux, Problem> {
        Ok(Tmux::at(&self.sockets()?.join("tmux")))
    }

    /// The folder for sockets, whose paths must be short.
    pub fn sockets(&self) -> Result<PathBuf, Problem> {
        runtime::sockets(self.repo.root()).map_err(|error| {
            Problem::environment(error)
                .hint("if it is not of another person, remove it and try again")
        })
    }

    /// Takes the lead and starts the conductor.
    pub async fn open(&self) -> Result<Opened, Problem> {
        self.repo.exclude_locally(&format!("/{STATE_DIR}/")).await?;
        self.warn_of_store()?;
        self.refuse_other_repository().await?;
        let sessions = match self.config.team.runner {
            Runner::Direct => None,
            Runner::Tmux => Some(self.sessions()?),
        };
        let settings = Settings {
            repo: self.repo.clone(),
            dir: self.state_dir(),
            store: self.location()?,
            drivers: self.drivers()?,
            sandboxing: sandbox::of_project(self).await?,
            prices: self.config.prices().map_err(Problem::usage)?,
            env: self.environment(),
            readable: self.readable()?,
            sessions,
            rules: self.config.rules(),
            measure: governor::measure,
        };
        let opened = open(settings).await.map_err(|error| match error {
            OpenError::Store(held @ kapelle_store::Error::Held { .. }) => Problem::refused(held)
                .hint("one Kapelle runs a project at a time; talk to it with kapelle status, approve, answer, pause or cancel"),
            OpenError::Store(error) => error.into(),
            other => Problem::environment(other),
        })?;
        let (seats, workers_max) = (self.config.seats(), self.config.workers_max());
        let by = Actor(person());
        match opened.handle.send(Command::ConfigureTeam { seats, workers_max, by }).await {
            // Whoever starts Kapelle need not be somebody who may say who works.
            Err(kapelle_conductor::Error::Refused(why @ Refusal::People(_))) => {
                say(format!("WARNING: the team stays as it is: {why}"));
            }
            // Why it ended says more than that it did.
            Err(stopped @ kapelle_conductor::Error::Stopped) => {
                opened.conductor.ended().await?;
                return Err(stopped.into());
            }
            Err(refused) => {
                // Its store is closed before anybody leaves.
                opened.handle.shut_down();
                opened.conductor.ended().await?;
                return Err(refused.into());
            }
            Ok(_) => {}
        }
        Ok(opened)
    }

    /// A store that others can name may be that of another repository, whose missions are none of
    /// ours: no commit of theirs is here.
    async fn refuse_other_repository(&self) -> Result<(), Problem> {
        let own = store_path(&self.state_dir());
        if self.location()?.path() == Some(&own) || !self.is_begun()? {
            return Ok(());
        }
        // Whoever runs it has brought it up to date. That one may be silent, and lose the lead to
        // us: it is no reason not to look.
        let holder = self.holder()?;
        if holder.is_none() {
            self.bring_up_to_date().await?;
        }
        let (_, engine) = self.read()?;
        let mut bases = engine.state().missions().map(|mission| mission.base.to_string());
        let Some(first) = bases.next() else { return Ok(()) };
        for base in [first.clone()].into_iter().chain(bases) {
            if self.repo.resolve(&base).await.is_ok() {
                return Ok(());
            }
        }
        let other = format!(
            "{} has the missions of another repository: there is no commit {first} here",
            self.location()?
        );
        let own =
            "give this one a store of its own, or a name of its own on the server: [store] project";
        Err(match holder {
            None => Problem::refused(other).hint(own),
            holder => Problem::refused(kapelle_store::Error::Held { holder })
                .hint(format!("{other}; {own}")),
        })
    }

    /// What a person should know about the store before a team works on it.
    fn warn_of_store(&self) -> Result<(), Problem> {
        let location = self.location()?;
        if let Some(advice) = kapelle_store::advice(&location, self.config.workers_max()) {
            say(format!("WARNING: {advice}"));
        }
        if self.config.store.durability() == Durability::Normal {
            say(
                "WARNING: [store] durability = \"normal\": after a power cut the last moments may be missing",
            );
        }
        Ok(())
    }

    /// The rules for a mission that is opened now, with the answers that scenarios bring along.
    pub fn policy(&self) -> Result<kapelle_core::policy::Policy, Problem> {
        let mut policy = self.config.policy();
        for config in self.config.roles.values() {
            if let Some(path) = &config.scripted {
                policy.answers.extend(self.scenario(path)?.answers);
            }
        }
        Ok(policy)
    }

    /// Refuses before anything starts what could only fail later.
    pub async fn ready_to_work(&self, flow: &[Phase], sandbox: Choice) -> Result<(), Problem> {
        for phase in flow {
            if !self.config.roles.contains_key(&phase.role()) {
                let role = phase.role();
                return Err(Problem::usage(format!("no agent is configured for the role {role}, which the phase {phase} needs"))
                    .hint(format!("add [roles.{role}] with a command to kapelle.toml; `kapelle init` writes an example")));
            }
        }
        self.drivers()?;
        ready_to_confine(sandbox, &self.config).await
    }

    fn drivers(&self) -> Result<BTreeMap<Role, Driver>, Problem> {
        let roles = self.config.roles.iter();
        roles.map(|(role, config)| Ok((*role, self.driver(config)?))).collect()
    }

    /// What the agent of one role may read beside what every agent may.
    pub fn readable_by(&self, role: &str) -> Result<Vec<PathBuf>, Problem> {
        let mut roles = self.config.roles.iter();
        let Some((_, config)) = roles.find(|(known, _)| known.name() == role) else {
            let known: Vec<_> = self.config.roles.keys().map(|role| role.name()).collect();
            let hint = format!("roles with an agent here: {}", known.join(", "));
            return Err(Problem::usage(format!("no agent has the role {role}")).hint(hint));
        };
        Ok(self.driver(config)?.readable)
    }

    fn driver(&self, config: &RoleConfig) -> Result<Driver, Problem> {
        let mut readable = self.places(&config.readable)?;
        if let Some(scenario) = &config.scripted {
            let program = std::env::current_exe().map_err(Problem::environment)?;
            let path = self.repo.root().join(scenario);
            self.scenario(scenario)?;
            readable.extend([program.clone(), path.clone()]);
            let args = ["agent", "scripted", "--scenario"].map(OsString::from);
            let args = args.into_iter().chain([path.into()]).collect();
            return Ok(Driver { program, args, readable });
        }
        let (program, args) = config
            .command
            .split_first()
            .ok_or_else(|| Problem::usage("an agent's command is empty"))?;
        let args = args.iter().map(OsString::from).collect();
        let program = self.find_program(program)?;
        readable.push(program.clone());
        Ok(Driver { program, args, readable })
    }

    /// A program by its name in the agents' `PATH`, or by its path from the repository's root.
    fn find_program(&self, name: &str) -> Result<PathBuf, Problem> {
        let candidates: Vec<PathBuf> = if name.contains('/') {
            vec![self.place(name)?]
        } else {
            let path = self.environment().remove("PATH").unwrap_or_default();
            std::env::split_paths(&path).map(|dir| dir.join(name)).collect()
        };
        let found = candidates.into_iter().find(|candidate| candidate.is_file());
        found.ok_or_else(|| {
            Problem::environment(format!("the agent's program {name} was not found"))
                .hint("give its full path, or add its folder to [sandbox] path in kapelle.toml")
        })
    }

    fn scenario(&self, path: &str) -> Result<Scenario, Problem> {
        let text = std::fs::read_to_string(self.repo.root().join(path))
            .map_err(|e| Problem::usage(format!("{path}: {e}")))?;
        Scenario::parse(&text).map_err(|e| Problem::usage(format!("{path}: {e}")))
    }

    /// What agents and checks find in their environment: little, and nothing by accident.
    pub fn environment(&self) -> BTreeMap<String, OsString> {
        let folders = self.places(&self.config.sandbox.path).unwrap_or_default();
        let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
        let path = std::env::join_paths(folders.into_iter().chain(system)).unwrap_or_default();
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), path),
            ("LANG".to_owned(), "C.UTF-8".into()),
            ("TERM".to_owned(), "dumb".into()),
        ]);
        for name in &self.config.sandbox.env {
            if let Some(value) = std::env::var_os(name) {
                env.insert(name.clone(), value);
            }
        }
        env
    }

    pub fn readable(&self) -> Result<Vec<PathBuf>, Problem> {
        let sandbox = &self.config.sandbox;
        Ok([self.places(&sandbox.readable)?, self.places(&sandbox.path)?].concat())
    }

    fn places(&self, places: &[String]) -> Result<Vec<PathBuf>, Problem> {
        places.iter().map(|place| self.place(place)).collect()
    }

    /// `~/…` is the home, everything else starts at the repository's root.
    fn place(&self, place: &str) -> Result<PathBuf, Problem> {
        match place.strip_prefix("~/") {
            None => Ok(self.repo.root().join(place)),
            Some(rest) => {
                let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
                let home = home.ok_or_else(|| Problem::environment("HOME is not set"))?;
                Ok(Path::new(&home).join(rest))
            }
        }
    }

    /// The token that changes things over HTTP; made on first use, readable by its owner only.
    pub fn token(&self) -> Result<String, Problem> {
        let path = self.state_dir().join("token");
        refuse_link(&path, "a plain file")?;
        let file = |e: std::io::Error| Problem::environment(format!("{}: {e}", path.display()));
        if let Some(token) = read_token(&path).map_err(file)? {
            return Ok(token);
        }
        let mut random = [0u8; 24];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(&mut random))
            .map_err(file)?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits());
        let mut created = options.open(&path).map_err(file)?;
        std::io::Write::write_all(&mut created, token.as_bytes()).map_err(file)?;
        Ok(token)
    }
}

/// Refuses a machine that cannot give agents and checks the walls that were asked for.
pub async fn ready_to_confine(choice: Choice, config: &Config) -> Result<(), Problem> {
    if choice == Choice::Off {
        return Ok(());
    }
    match sandbox::look(config).await {
        Sandboxing::Usable(found) => {
            if !found.has_namespaces() {
                say(
                    "note: boxes here have no namespaces; `kapelle sandbox explain` says what that means",
                );
            }
            Ok(())
        }
        Sandboxing::Unusable { reason, hint } => {
            Err(Problem::environment(format!("agents cannot be sandboxed here: {reason}"))
                .hint(format!("{hint}; or accept the risk with --unsandboxed, which is recorded")))
        }
    }
}

/// A folder's name as a database takes it.
fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    name.chars().take(PLAIN_NAME_CHARS_MAX).map(plain).collect()
}

/// Through a link, whoever made it would choose where the journal and the token are written.
fn refuse_link(path: &Path, expected: &str) -> Result<(), Problem> {
    if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
        let what = format!("{} is a symbolic link; it must be {expected}", path.display());
        return Err(Problem::environment(what).hint("remove the link and try again"));
    }
    Ok(())
}

fn read_token(path: &Path) -> std::io::Result<Option<String>> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits());
    match options.open(path) {
        Ok(file) => {
            let mut token = String::new();
            file.take(1_024).read_to_string(&mut token)?;
            Ok(Some(token).filter(|token| token.len() >= 32))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who is typing, for the journal.
#[must_use]
pub fn person() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    let name = user.ok().flatten().map(|user| user.name);
    // Kapelle signs with its own name; a user who is called so is nevertheless a person.
    let name = name.map(|name| match name == Actor::kapelle().0 {
        true => format!("user {name}"),
        false => name,
    });
    name.unwrap_or_else(|| format!("uid {}", nix::unistd::Uid::effective()))
}
