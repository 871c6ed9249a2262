//! Sessions that a person can attach to: agents run in tmux, for those who like to look over
//! their shoulder.
//!
//! Each project has a server of its own, with none of the person's settings. What a session
//! prints is collected in a log, as for every other process. A session outlives a Kapelle that
//! was killed; the reaper of the next start ends what runs in it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Instant, SystemTime};

use kapelle_core::limits;
use tokio::process::Command;

use crate::process::{Exit, LEASE_VARIABLE, Lease, Spec, TAIL_CHARS_MAX};
use crate::{programs, reaper};

/// Characters have up to four bytes.
const TAIL_BYTES_MAX: u64 = 4 * TAIL_CHARS_MAX as u64;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("tmux could not be started: {0}")]
    Start(std::io::Error),
    #[error("tmux {what} failed: {said}")]
    Failed { what: &'static str, said: String },
    #[error("{name:?} is not a name for a session: letters, digits, - and _ are")]
    Name { name: String },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Reaper(#[from] reaper::Error),
}

/// The tmux server of one project.
#[derive(Debug, Clone)]
pub struct Tmux {
    socket: PathBuf,
}

/// A session that was started. Its command does not outlive this, nor whoever has it.
#[derive(Debug)]
pub struct Session {
    tmux: Tmux,
    name: String,
    lease: Lease,
    exit: PathBuf,
    /// Locked. The kernel lets go of the lock with our process, however that ends, and the session
    /// waits for it.
    _held: File,
}

impl Tmux {
    /// The server whose socket is at `socket`; it is started with its first session.
    #[must_use]
    pub fn at(socket: &Path) -> Tmux {
        Tmux { socket: socket.into() }
    }

    /// Starts a process in a session of its own. Its output goes to the log of the spec, too.
    pub async fn start(&self, name: &str, spec: &Spec) -> Result<Session, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(Error::Name { name: name.into() });
        }
        // The one before it in this seat may be on its way out.
        self.end(name).await?;
        let exit = spec.log.with_extension("exit");
        match std::fs::remove_file(&exit) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::File { path: exit, source: error });
            }
            _ => {}
        }
        let mut args: Vec<OsString> =
            ["new-session", "-d", "-s", name, "-x", "200", "-y", "50", "-c"]
                .map(OsString::from)
                .to_vec();
        args.push(spec.dir.clone().into());
        let lease = (LEASE_VARIABLE.to_owned(), OsString::from(spec.lease.to_string()));
        for (variable, value) in spec.env.iter().map(|(k, v)| (k.clone(), v.clone())).chain([lease])
        {
            let mut pair = OsString::from(format!("{variable}="));
            pair.push(value);
            args.extend(["-e".into(), pair]);
        }
        // `script` gives the command a terminal and writes down what it prints, all of it before it
        // ends; the pipes of tmux may lose the end. Then the exit code is left. However it ends, its
        // end is called out. If we end first, all of it is killed; without the terminal that `script`
        // had for it, the command is, too.
        let run = "flock \"$6\" sh -c 'kill -9 -\"$1\"' kill $$ & owner=$!; \
                   trap 'kill $owner; tmux -S \"$4\" wait-for -S \"$5\"' EXIT; \
                   trap 'exit 129' HUP TERM; \
                   script -qef -c \"$1\" \"$2\"; echo $? > \"$3\"";
        args.extend(["--", "/bin/sh", "-c", run, "kapelle"].map(OsString::from));
        args.extend([quoted(&spec.joining()), spec.log.clone().into(), exit.clone().into()]);
        args.extend([self.socket.clone().into(), done(&spec.lease).into()]);
        let owner = spec.log.with_extension("owner");
        let held = File::create(&owner).and_then(|file| file.lock().map(|()| file));
        let held = held.map_err(|source| Error::File { path: owner.clone(), source })?;
        args.push(owner.into());
        File::create(&spec.log).map_err(|source| Error::File { path: spec.log.clone(), source })?;
        self.run("new-session", args).await?;
        let (tmux, name, lease) = (self.clone(), name.into(), spec.lease.clone());
        Ok(Session { tmux, name, lease, exit, _held: held })
    }

    /// Starts a session that does nothing, as the sessions of agents are started.
    pub async fn try_out(&self) -> Result<(), Error> {
        let start = ["new-session", "-d", "-s", "try", "--", "true"].map(OsString::from).to_vec();
        let tried = self.run("new-session", start).await;
        // The server ends with its last session; its socket stays.
        let _ended = self.run("kill-server", vec!["kill-server".into()]).await;
        let _never_made = std::fs::remove_file(&self.socket);
        tried.map(|_| ())
    }

    /// Ends the session of this name, if there is one.
    async fn end(&self, name: &str) -> Result<(), Error> {
        let kill = ["kill-session".into(), "-t".into(), exactly(name)].to_vec();
        match self.run("kill-session", kill).await {
            Ok(_) | Err(Error::Failed { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// The sessions that there are.
    pub async fn sessions(&self) -> Result<Vec<String>, Error> {
        let asked = ["list-sessions", "-F", "#{session_name}"].map(OsString::from).to_vec();
        match self.run("list-sessions", asked).await {
            Ok(listed) => Ok(listed.lines().map(str::to_owned).collect()),
            // Without a session there is no server to ask.
            Err(Error::Failed { said, .. })
                if said.contains("no server") || said.contains("No such file") =>
            {
                Ok(Vec::new())
            }
            Err(other) => Err(other),
        }
    }

    /// Shows a session to the person at the terminal, until they leave it.
    pub async fn attach(&self, name: &str) -> Result<ExitStatus, Error> {
        let args = ["attach-session".into(), "-t".into(), exactly(name)].to_vec();
        let mut command = self.command(args);
        if let Some(terminal) = std::env::var_os("TERM") {
            command.env("TERM", terminal);
        }
        command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
        command.status().await.map_err(Error::Start)
    }

    async fn run(&self, what: &'static str, args: Vec<OsString>) -> Result<String, Error> {
        let mut command = self.command(args);
        command.stdin(Stdio::null());
        let output = command.output().await.map_err(Error::Start)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Failed { what, said })
    }

    fn command(&self, args: Vec<OsString>) -> Command {
        let mut command = Command::new(programs::named("tmux"));
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        command.arg("-f").arg("/dev/null").arg("-S").arg(&self.socket);
        command.args(args);
        command
    }
}

impl Session {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the end of the command, and gives its exit code; nothing if a person ended the
    /// session.
    pub async fn wait(&self) -> Result<Option<i32>, Error> {
        let asked = ["wait-for".into(), done(&self.lease).into()].to_vec();
        // If the server ends while we wait, the session has ended with it.
        let _server_gone = self.tmux.run("wait-for", asked).await;
        let text = std::fs::read_to_string(&self.exit).unwrap_or_default();
        Ok(text.trim().parse().ok())
    }

    /// The same, as the end of any process. What a person ended has neither code nor signal.
    pub async fn exit(&self, spec: &Spec) -> Result<Exit, Error> {
        let begun = Instant::now();
        let code = self.wait().await?;
        let cgroup = spec.hold.cgroup.as_ref();
        Ok(Exit {
            code,
            signal: None,
            out_of_memory: cgroup.is_some_and(|group| group.ran_out_of_memory()),
            over_quota: None,
            tail: tail_of(&spec.log),
            duration: begun.elapsed(),
            log_error: None,
        })
    }

    /// When the command last printed something; nothing if nobody can tell.
    #[must_use]
    pub fn heard_at(log: &Path) -> Option<SystemTime> {
        // What is printed is written to the log at once.
        std::fs::metadata(log).and_then(|found| found.modified()).ok()
    }

    /// Whether the session that has its name now is itself, and not the next one in its seat.
    async fn has_its_name(&self) -> Result<bool, Error> {
        let asked = ["show-environment".into(), "-t".into(), exactly(&self.name)];
        let asked = asked.into_iter().chain([LEASE_VARIABLE.into()]).collect();
        match self.tmux.run("show-environment", asked).await {
            Ok(said) => Ok(said.trim() == format!("{LEASE_VARIABLE}={}", self.lease)),
            Err(Error::Failed { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Ends the session with everything in it. Doing it again is no error.
    pub async fn stop(&self) -> Result<(), Error> {
        if self.has_its_name().await? {
            self.tmux.end(&self.name).await?;
            let call = ["wait-for".into(), "-S".into(), done(&self.lease).into()].to_vec();
            // The last session takes the server along, and with it everybody who waits.
            let _server_gone = self.tmux.run("wait-for", call).await;
        }
        // A terminal that is gone is a request to end; the command has a terminal of its own
        // besides, and may not hear of it.
        reaper::end_lease(&self.lease).await?;
        Ok(())
    }
}

/// The command as one word for a shell: every part in quotes, which mean nothing inside of them.
fn quoted(spec: &Spec) -> OsString {
    let mut text = Vec::from(*b"exec");
    for word in
        std::iter::once(spec.program.as_os_str()).chain(spec.args.iter().map(OsString::as_os_str))
    {
        text.extend_from_slice(b" '");
        for byte in word.as_bytes() {
            match byte {
                b'\'' => text.extend_from_slice(b"'\\''"),
                byte => text.push(*byte),
            }
        }
        text.push(b'\'');
    }
    OsString::from_vec(text)
}

/// Without the sign tmux would also take a session whose name only begins like this.
fn exactly(name: &str) -> OsString {
    format!("={name}").into()
}

/// By the attempt and not by the name: a late word about one session must not end the next.
fn done(lease: &Lease) -> String {
    format!("done-{lease}")
}

/// The end of what was collected, without the carriage returns of a terminal.
fn tail_of(log: &Path) -> String {
    let mut bytes = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
        file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)
    });
    // A log that cannot be read has no end to show.
    let _shown_as_empty = read;
    let text = String::from_utf8_lossy(&bytes).replace('\r', "");
    limits::tail(&text, TAIL_CHARS_MAX).to_owned()
}
