//! What the box program has to do inside a box, as arguments of its command line.
//!
//! Only paths and numbers are in it: command lines can be read by everybody on the machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The families of sockets that a process may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    /// Also those of the internet; the box has a network of its own.
    Internet,
    /// Only those of this machine.
    Local,
}

/// A port of the box's own loopback that leads to a socket outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    pub port: u16,
    /// A socket of the file system.
    pub socket: PathBuf,
}

/// How much a process may use. Each is a bound on harm, not a plan: generous for honest work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// All processes of the box together where there are control groups, else each process.
    pub memory_bytes: u64,
    pub processes: u64,
    /// Processor time of one process.
    pub cpu_seconds: u64,
    /// The largest file that can be written.
    pub file_bytes: u64,
    pub open_files: u64,
    /// What may lie in all writable places together.
    pub disk_bytes: u64,
    pub disk_files: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // A linker or a browser test takes a few; a machine for agents has sixteen or more.
            memory_bytes: 8 << 30,
            // A parallel build on many cores; a fork bomb reaches it in a moment.
            processes: 4_096,
            // An hour on one core. Checks and attempts have their own, shorter, deadlines.
            cpu_seconds: 3_600,
            file_bytes: 8 << 30,
            open_files: 65_536,
            disk_bytes: 32 << 30,
            disk_files: 2_000_000,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Mandate {
    /// Control groups to join first.
    pub join: Vec<PathBuf>,
    pub limits: Option<Limits>,
    /// None: no Landlock. Else what may be read and what may be changed; all the rest may not.
    pub access: Option<Access>,
    /// None: no filter on system calls.
    pub sockets: Option<Sockets>,
    pub forwards: Vec<Forward>,
    /// Variables for the command alone: they would change how the box program itself is loaded.
    pub env: Vec<(String, OsString)>,
    /// Leave the session, and with it the terminal and the process group of whoever started it.
    pub session: bool,
    /// Stay, and end everything below when the owner is gone. For boxes without process ids of
    /// their own.
    pub keep: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Access {
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{argument:?} is no argument of a box")]
pub(super) struct NotAMandate {
    argument: OsString,
}

impl Mandate {
    /// The arguments, up to and with the `--` before the command.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args = Vec::new();
        let mut add = |name: &str, value: &OsStr| args.extend([name.into(), value.to_owned()]);
        self.join.iter().for_each(|group| add("--join", group.as_os_str()));
        if let Some(limits) = &self.limits {
            for (name, value) in limits.named() {
                add(name, value.to_string().as_ref());
            }
        }
        if let Some(access) = &self.access {
            access.read.iter().for_each(|path| add("--read", path.as_os_str()));
            access.write.iter().for_each(|path| add("--write", path.as_os_str()));
        }
        match self.sockets {
            Some(Sockets::Internet) => add("--sockets", "internet".as_ref()),
            Some(Sockets::Local) => add("--sockets", "local".as_ref()),
            None => {}
        }
        for forward in &self.forwards {
            add("--port", forward.port.to_string().as_ref());
            add("--to", forward.socket.as_os_str());
        }
        for (name, value) in &self.env {
            let mut pair = OsString::from(format!("{name}="));
            pair.push(value);
            add("--env", &pair);
        }
        args.extend(self.session.then(|| "--session".into()));
        args.extend(self.keep.then(|| "--keep".into()));
        args.push("--".into());
        args
    }

    /// The mandate, and the command that follows it.
    pub fn from_args(args: &[OsString]) -> Result<(Mandate, Vec<OsString>), NotAMandate> {
        let mut mandate = Mandate::default();
        let mut port = None;
        let mut rest = args.iter();
        while let Some(name) = rest.next() {
            let wrong = || NotAMandate { argument: name.clone() };
            let name = name.to_str().ok_or_else(wrong)?;
            match name {
                "--" => return Ok((mandate, rest.cloned().collect())),
                "--session" => {
                    mandate.session = true;
                    continue;
                }
                "--keep" => {
                    mandate.keep = true;
                    continue;
                }
                _ => {}
            }
            let value = rest.next().ok_or_else(wrong)?;
            let number = || value.to_str().and_then(|text| text.parse::<u64>().ok());
            let path = || PathBuf::from(value);
            match name {
                "--join" => mandate.join.push(path()),
                "--read" => mandate.access.get_or_insert_default().read.push(path()),
                "--write" => mandate.access.get_or_insert_default().write.push(path()),
                "--sockets" if value == "internet" => mandate.sockets = Some(Sockets::Internet),
                "--sockets" if value == "local" => mandate.sockets = Some(Sockets::Local),
                "--env" => mandate.env.push(pair(value).ok_or_else(wrong)?),
                "--port" => port = number().and_then(|port| u16::try_from(port).ok()),
                "--to" => {
                    let port = port.take().ok_or_else(wrong)?;
                    mandate.forwards.push(Forward { port, socket: path() });
                }
                limit => {
                    let limits = mandate.limits.get_or_insert_default();
                    *limits.by_name(limit).ok_or_else(wrong)? = number().ok_or_else(wrong)?;
                }
            }
        }
        Err(NotAMandate { argument: "the end".into() })
    }
}

fn pair(text: &OsStr) -> Option<(String, OsString)> {
    let bytes = text.as_encoded_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    let name = std::str::from_utf8(&bytes[..at]).ok()?;
    Some((name.to_owned(), OsString::from_vec(bytes[at + 1..].to_vec())))
}

impl Limits {
    fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("--memory-bytes", self.memory_bytes),
            ("--processes", self.processes),
            ("--cpu-seconds", self.cpu_seconds),
            ("--file-bytes", self.file_bytes),
            ("--open-files", self.open_files),
            ("--disk-bytes", self.disk_bytes),
            ("--disk-files", self.disk_files),
        ]
    }

    fn by_name(&mut self, name: &str) -> Option<&mut u64> {
        match name {
            "--memory-bytes" => Some(&mut self.memory_bytes),
            "--processes" => Some(&mut self.processes),
            "--cpu-seconds" => Some(&mut self.cpu_seconds),
            "--file-bytes" => Some(&mut self.file_bytes),
            "--open-files" => Some(&mut self.open_files),
            "--disk-bytes" => Some(&mut self.disk_bytes),
            "--disk-files" => Some(&mut self.disk_files),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is lost between the two sides would be a wall that nobody builds.
    #[test]
    fn a_mandate_survives_its_command_line() {
        let forward = Forward { port: 8_080, socket: "/run/a b".into() };
        let access = Access { read: vec!["/usr".into()], write: vec!["/w".into(), "/x".into()] };
        let mandate = Mandate {
            join: vec!["/sys/fs/cgroup/a".into()],
            limits: Some(Limits { processes: 7, ..Limits::default() }),
            access: Some(access),
            sockets: Some(Sockets::Local),
            forwards: vec![forward],
            env: vec![("LD_LIBRARY_PATH".into(), "/a=b".into())],
            session: true,
            keep: true,
        };
        let mut args = mandate.to_args();
        args.extend(["sh".into(), "--".into(), "--keep".into()]);
        let command = vec!["sh".into(), "--".into(), "--keep".into()];
        assert_eq!(Mandate::from_args(&args), Ok((mandate, command)));
    }

    #[test]
    fn an_unknown_argument_is_refused_instead_of_overlooked() {
        let args = ["--sockets", "any", "--"].map(OsString::from);
        let refused = NotAMandate { argument: "--sockets".into() };
        assert_eq!(Mandate::from_args(&args), Err(refused));
        assert!(Mandate::from_args(&["--keep".into()]).is_err(), "without a command");
    }
}
