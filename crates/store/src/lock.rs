//! Leadership: at most one process runs a project at a time.
//!
//! The lock belongs to an open file, so the kernel releases it with the process, however that
//! ends. The file also tells who holds it; only the lock itself decides.
//!
//! Invariant: whoever has a `Leadership` is the only one, on this machine.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use kapelle_core::Timestamp;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::location::Location;
use crate::open::open_read_only;

/// Somebody who only asks for the holder has the lock for an instant, and a new holder needs one
/// to say who it is. Neither takes this long.
const TRIES_MAX: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// A holder takes a few hundred bytes; the file is outside data.
const HOLDER_BYTES_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub pid: u32,
    /// Where it answers, once it does.
    pub url: Option<String>,
    pub started_at: Timestamp,
    /// The machine that it runs on, where that is not the only possible one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Holder {
    /// Whether it runs on this machine.
    #[must_use]
    pub fn is_on_this_machine(&self) -> bool {
        self.host.is_none() || self.host == this_machine()
    }

    /// This process, on this machine.
    #[must_use]
    pub fn here() -> Holder {
        let host = this_machine();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started_at = Timestamp(u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        Holder { pid: std::process::id(), url: None, started_at, host }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        self.host.iter().try_for_each(|host| write!(f, " on {host}"))
    }
}

fn this_machine() -> Option<String> {
    let host = nix::unistd::gethostname().ok()?;
    Some(host.to_string_lossy().into_owned())
}

#[derive(Debug)]
pub struct Leadership {
    places: Vec<Place>,
    holder: Holder,
}

#[derive(Debug)]
struct Place {
    file: Flock<File>,
    path: PathBuf,
}

impl Leadership {
    /// Takes the lock in the folder `dir`, or says who has it.
    pub fn take(dir: &Path, holder: Holder) -> Result<Leadership, Error> {
        let leadership = Leadership { places: vec![Place::take(dir.join("lock"))?], holder };
        leadership.write()?;
        Ok(leadership)
    }

    /// The same for a project with its store, which other folders may name as well.
    pub fn over(dir: &Path, store: &Location, holder: Holder) -> Result<Leadership, Error> {
        let mut leadership = Leadership::take(dir, holder.clone())?;
        leadership.places.extend(Leadership::of_store(store, holder)?.places);
        Ok(leadership)
    }

    /// The same for a store alone. A server is not asked: whoever writes to it leads there, or is
    /// refused.
    pub fn of_store(store: &Location, holder: Holder) -> Result<Leadership, Error> {
        let places = lock_beside(store)?.map(Place::take).transpose()?;
        let leadership = Leadership { places: places.into_iter().collect(), holder };
        leadership.write()?;
        Ok(leadership)
    }

    /// Lets others know where to find this process.
    pub fn publish(&mut self, url: &str) -> Result<(), Error> {
        self.holder.url = Some(url.to_owned());
        self.write()
    }

    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    fn write(&self) -> Result<(), Error> {
        self.places.iter().try_for_each(|place| place.write(&self.holder))
    }
}

impl Place {
    fn take(path: PathBuf) -> Result<Place, Error> {
        let mut file = open(&path, OpenOptions::new().write(true).create(true).truncate(false))?;
        for tried in 1.. {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => return Ok(Place { file, path }),
                Err((back, Errno::EWOULDBLOCK)) if tried < TRIES_MAX => file = back,
                Err((back, Errno::EWOULDBLOCK)) => {
                    return Err(Error::Held { holder: read(&back).map_err(Error::io(&path))? });
                }
                Err((_, errno)) => return Err(Error::io(&path)(errno.into())),
            }
            thread::sleep(BETWEEN_TRIES);
        }
        Err(Error::Held { holder: None })
    }

    /// Readers take the first value and no more, so at no moment is there something unreadable.
    fn write(&self, holder: &Holder) -> Result<(), Error> {
        let text = serde_json::to_vec(holder).map_err(|e| Error::io(&self.path)(e.into()))?;
        let written = self.file.write_all_at(&text, 0);
        written.and_then(|()| self.file.set_len(text.len() as u64)).map_err(Error::io(&self.path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A courtesy: the lock is what counts, and it is released right after.
        let _ = self.file.set_len(0);
    }
}

/// The lock of the store itself: other folders may name it, too, wherever it lies.
fn lock_beside(store: &Location) -> Result<Option<PathBuf>, Error> {
    let Some(path) = store.path() else { return Ok(None) };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder = folder.canonicalize().map_err(Error::io(folder))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    Ok(Some(folder.join(name)))
}

/// Who runs the project in `dir` with this store, if somebody does: from this folder, from another
/// one that names the same file, or from anywhere if the store is a server, which knows.
pub fn holder_of(dir: &Path, store: &Location) -> Result<Option<Holder>, Error> {
    if let here @ Some(_) = holder(dir)? {
        return Ok(here);
    }
    if store.path().is_none() {
        return match open_read_only(store) {
            Err(Error::NoStore { .. } | Error::TooOld { .. }) => Ok(None),
            opened => opened?.leader(),
        };
    }
    match lock_beside(store) {
        Ok(Some(path)) => locking(&path),
        Ok(None) => Ok(None),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who runs the project in `dir`, if somebody does.
pub fn holder(dir: &Path) -> Result<Option<Holder>, Error> {
    locking(&dir.join("lock"))
}

fn locking(path: &Path) -> Result<Option<Holder>, Error> {
    let file = match open(path, &mut OpenOptions::new()) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_nobody) => Ok(None),
        Err((file, Errno::EWOULDBLOCK)) => read(&file).map_err(Error::io(path)),
        Err((_, errno)) => Err(Error::io(path)(errno.into())),
    }
}

fn open(path: &Path, options: &mut OpenOptions) -> Result<File, Error> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let opened = options.read(true).mode(0o600).custom_flags(flags.bits()).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::ELOOP as i32 => Error::NotPlainFile { path: path.to_owned() },
        _ => Error::io(path)(error),
    })?;
    if !file.metadata().map_err(Error::io(path))?.is_file() {
        return Err(Error::NotPlainFile { path: path.to_owned() });
    }
    Ok(file)
}

fn read(file: &File) -> io::Result<Option<Holder>> {
    let mut bytes = [0; HOLDER_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0)?;
    let mut values = serde_json::Deserializer::from_slice(&bytes[..length]).into_iter();
    Ok(values.next().and_then(Result::ok))
}
