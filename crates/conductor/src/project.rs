//! Opening a project: take the lead, clear up after the last one, and go on from the journal.
//!
//! After `kill -9` this is where everything comes back: processes of the last run are ended, their
//! trees are kept and removed, and the engine takes up what was in flight.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use kapelle_core::machine::MachineUse;
use kapelle_core::price::Prices;
use kapelle_core::{Command, Record, Role, Seq};
use kapelle_store::{Holder, Leadership, Location, Reader, Writer};
use kapelle_workspace::baseline::Baselines;
use kapelle_workspace::commands::ThresholdRules;
use kapelle_workspace::sandbox::Sandboxing;
use kapelle_workspace::tmux::Tmux;
use kapelle_workspace::{Repository, Worktree, governor, reaper, repository, worktree};
use tokio::sync::broadcast;

use crate::clock;
use crate::handle::{Committed, Handle, channel};
use crate::host::{Driver, Host};
use crate::room::Room;
use crate::turn::{Conductor, close, start};

/// What a page shows of the past when it is opened.
const RECENT_RECORDS_MAX: usize = 500;

/// What a project brings along.
#[derive(Debug)]
pub struct Settings {
    pub repo: Repository,
    /// The state folder, such as `.kapelle` at the repository's root.
    pub dir: PathBuf,
    /// Where the journal is.
    pub store: Location,
    pub drivers: BTreeMap<Role, Driver>,
    pub sandboxing: Sandboxing,
    pub prices: Prices,
    pub env: BTreeMap<String, OsString>,
    pub readable: Vec<PathBuf>,
    /// Agents run in sessions that a person can attach to.
    pub sessions: Option<Tmux>,
    /// How long commands may be silent and may run, where that is not as usual.
    pub rules: ThresholdRules,
    /// How full this machine is; [`governor::measure`] but in tests.
    pub measure: Measure,
}

/// Tells how much of the machine is used, with the disk that a place is on.
pub type Measure = fn(&Path) -> Result<MachineUse, governor::Error>;

/// A project with a running conductor. The leadership lasts as long as this does.
#[derive(Debug)]
pub struct Opened {
    pub handle: Handle,
    pub conductor: Conductor,
    pub leadership: Leadership,
    /// The last records from before.
    pub recent: Vec<Record>,
    /// Everything since then, for the person who watches and for the dashboard.
    pub commits: broadcast::Receiver<Committed>,
    pub dashboard_commits: broadcast::Receiver<Committed>,
    /// What the last run left and could not be kept: where it lies now, and why. A person has to
    /// look at it; nothing of it is ever deleted.
    pub stuck: Vec<(PathBuf, String)>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("{} is a symbolic link; the state folder must be a folder", path.display())]
    Link { path: PathBuf },
    #[error(transparent)]
    Store(#[from] kapelle_store::Error),
    #[error("processes of the last run could not be ended: {0}")]
    Reaper(#[from] reaper::Error),
    #[error("containers of the last run could not be ended: {0}")]
    Containers(io::Error),
    #[error("a lock that the last run left could not be freed: {0}")]
    Locks(#[from] repository::Error),
    #[error("what the last run left could not be kept: {0}")]
    Leftover(#[from] worktree::Error),
    #[error("the conductor has no thread to run on: {0}")]
    Thread(io::Error),
}

/// The journal's file in a state folder, unless another place was chosen.
#[must_use]
pub fn store_path(dir: &Path) -> PathBuf {
    dir.join("store.db")
}

pub async fn open(settings: Settings) -> Result<Opened, OpenError> {
    make_private(&settings.dir)?;
    let holder =
        Holder { pid: std::process::id(), url: None, started_at: clock::now(), host: None };
    let leadership = Leadership::over(&settings.dir, &settings.store, holder)?;
    let writer = Writer::open(&settings.store)?;
    let reader = Reader::open(&settings.store)?;
    let store_id = reader.store_id()?;
    let is_local = settings.store.path().is_some();
    reaper::reap(&store_id).await?;
    if let Sandboxing::Usable(sandbox) = &settings.sandboxing {
        sandbox.reap(&store_id).await.map_err(OpenError::Containers)?;
    }
    settings.repo.free_stale_locks().await?;
    let host = Host {
        repo: settings.repo,
        dir: settings.dir,
        store_id,
        drivers: settings.drivers,
        sandboxing: settings.sandboxing,
        prices: settings.prices,
        env: settings.env,
        readable: settings.readable,
        sessions: settings.sessions,
        rules: settings.rules,
        baselines: Baselines::default(),
    };
    // Before anything is cleared up: what lies there is told to somebody, or stays.
    let engine = reader.recover()?;
    // Those who could tell more are dead by now, and their places are gone in a moment. With a server
    // the last host may have been another machine, whose agents nobody here can end.
    let mut found = host.bills_left();
    if is_local {
        found.push(Command::CloseBills);
    }
    let stuck = clear_up(&host.repo, &host.dir).await?;
    for inner in ["logs", "work"] {
        make_private(&host.dir.join(inner))?;
    }
    let before_recent = Seq(engine.head().0.saturating_sub(RECENT_RECORDS_MAX as u64));
    let recent = reader.records(before_recent, RECENT_RECORDS_MAX)?;
    let room = Room::new(host.dir.clone(), settings.measure);
    let (handle, inbox) = channel();
    let (commits, dashboard_commits) = (handle.follow(), handle.follow());
    let conductor = start(engine, writer, (host, found), room, (handle.clone(), inbox))
        .map_err(OpenError::Thread)?;
    Ok(Opened { handle, conductor, leadership, recent, commits, dashboard_commits, stuck })
}

/// Records a command while nobody runs the project. What follows from it is performed by the next
/// conductor.
pub fn record(dir: &Path, store: &Location, command: Command) -> Result<(), crate::Error> {
    let holder =
        Holder { pid: std::process::id(), url: None, started_at: clock::now(), host: None };
    let _leadership = Leadership::over(dir, store, holder)?;
    let writer = Writer::open(store)?;
    let mut engine = Reader::open(store)?.recover()?;
    let expected = engine.head();
    let batch = engine.note(vec![((), command)], clock::now());
    writer.append_and_wait(writer.epoch(), expected, batch.records.clone())?;
    close(writer)?;
    for (_, reply) in engine.committed(batch).replies {
        reply?;
    }
    Ok(())
}

/// Makes a folder that belongs to its owner alone, or takes it from the others: the state folder
/// holds the journal, the token and the work.
pub fn make_private(dir: &Path) -> Result<(), OpenError> {
    let folder = |source| OpenError::Folder { path: dir.to_owned(), source };
    match std::fs::symlink_metadata(dir) {
        Ok(found) if found.is_symlink() => return Err(OpenError::Link { path: dir.to_owned() }),
        Ok(found) if found.permissions().mode() & 0o777 == 0o700 => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::DirBuilder::new().mode(0o700).create(dir).map_err(folder)?;
        }
        Err(error) => return Err(folder(error)),
    }
    // Also for a new one: what a file mask allows is not what we want.
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(folder)
}

/// Keeps and removes what the last run left lying about. What cannot be kept is put aside, and
/// must not keep everything else from starting.
async fn clear_up(repo: &Repository, dir: &Path) -> Result<Vec<(PathBuf, String)>, OpenError> {
    let work = dir.join("work");
    let mut stuck = Vec::new();
    for left in Worktree::leftovers(repo, &work).await? {
        let place = left.dir().parent().unwrap_or(left.dir()).to_owned();
        let name = place.file_name().unwrap_or_default().to_os_string();
        if let Err(error) = keep_and_remove(left, &name.to_string_lossy()).await {
            stuck.push((put_aside(dir, &place, &name)?, error.to_string()));
        }
    }
    worktree::prune_records(repo).await?;
    if let Err(error) = worktree::remove_scrap(&work).await {
        stuck.push((put_aside(dir, &work, OsStr::new("rest"))?, error.to_string()));
    }
    Ok(stuck)
}

async fn keep_and_remove(left: Worktree, name: &str) -> Result<(), worktree::Error> {
    let kept = left.keep(&format!("leftover/{name}")).await?;
    left.keep_commits(&left.dir().with_file_name("git"), &format!("leftover/{name}")).await?;
    left.remove(kept).await
}

/// Moves a place to where nothing is cleared up, under its name or, if that is taken, one like it.
fn put_aside(dir: &Path, place: &Path, name: &OsStr) -> Result<PathBuf, OpenError> {
    let stuck = dir.join("stuck");
    let folder = |path: &Path, source| OpenError::Folder { path: path.to_owned(), source };
    std::fs::create_dir_all(&stuck).map_err(|source| folder(&stuck, source))?;
    let mut to = stuck.join(name);
    let mut number = 1;
    while to.symlink_metadata().is_ok() {
        number += 1;
        let mut other = name.to_os_string();
        other.push(format!("-{number}"));
        to = stuck.join(other);
    }
    std::fs::rename(place, &to).map_err(|source| folder(place, source))?;
    Ok(to)
}
