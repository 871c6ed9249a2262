//! The file system inside the sandbox, as arguments of bubblewrap.

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::{Error, HOME, Walls};

/// Memory is the limit of what an agent may put into `/tmp`, `/dev/shm` and its home, each.
const TMPFS_BYTES_MAX: u64 = 1 << 30;

/// Without these, programs find no libraries, no certificates, no names and no time zone. The
/// rest of `/etc` tells an agent about the machine and nothing about its task.
const ETC: [&str; 17] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/tls/certs",
    "protocols",
    "ssl/certs",
    "ssl/openssl.cnf",
];

/// Where the box program is seen, whatever its place outside.
pub(super) const STAGE: &str = "/run/kapelle/box";

/// Where sockets that lead outside are seen.
pub(super) const SOCKETS: &str = "/run/kapelle/sockets";

/// Whether the box has users of its own. Without, only root can make the other namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    Own,
    Shared,
}

/// The system's own programs and the files in `/etc` that they need, as they are on this machine.
pub(super) fn system_places() -> Vec<PathBuf> {
    let roots = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
    let roots = roots.iter().map(|name| Path::new("/").join(name));
    roots.chain(ETC.iter().map(|name| Path::new("/etc").join(name))).collect()
}

/// The part that is the same for every sandbox.
pub(super) fn base(users: Users) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |parts: &[&str]| args.extend(parts.iter().map(OsString::from));
    match users {
        Users::Own => add(&["--unshare-all", "--unshare-user", "--disable-userns"]),
        Users::Shared => add(&[
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--unshare-cgroup-try",
        ]),
    }
    add(&["--die-with-parent", "--cap-drop", "ALL", "--hostname", "kapelle"]);
    add(&["--ro-bind", "/usr", "/usr"]);
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"] {
        let path = format!("/{name}");
        match std::fs::read_link(&path) {
            Ok(target) => add(&["--symlink", &target.to_string_lossy(), &path]),
            Err(_) => add(&["--ro-bind-try", &path, &path]),
        }
    }
    for name in ETC {
        let path = format!("/etc/{name}");
        add(&["--ro-bind-try", &path, &path]);
    }
    let size = TMPFS_BYTES_MAX.to_string();
    add(&["--proc", "/proc", "--dev", "/dev"]);
    // Its devices can be used all the same. What programs share memory by is a place of its own.
    add(&["--perms", "1777", "--size", &size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]);
    add(&["--perms", "1777", "--size", &size, "--tmpfs", "/tmp"]);
    add(&["--perms", "0700", "--size", &size, "--tmpfs", HOME]);
    args
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Writable,
    Readable,
    Overlaid,
    Hidden,
}

/// The openings of these walls. Later mounts cover earlier ones: short paths come first, and
/// for the same path the stricter rule comes last.
pub(super) fn openings(walls: &Walls) -> Result<Vec<OsString>, Error> {
    let own = |rule| move |path: &'_ PathBuf| (path.clone(), rule, path.clone());
    let mut all: Vec<(PathBuf, Rule, PathBuf)> = Vec::new();
    all.extend(walls.writable.iter().map(own(Rule::Writable)));
    all.extend(walls.readable.iter().map(own(Rule::Readable)));
    all.extend(walls.hidden.iter().map(own(Rule::Hidden)));
    let overlays = walls.overlays.iter();
    all.extend(overlays.map(|one| (one.over.clone(), Rule::Overlaid, one.source.clone())));
    all.sort_by_key(|(path, rule, _)| (path.components().count(), *rule));
    let mut args = Vec::new();
    for (path, rule, source) in all {
        check(&path, &source, rule)?;
        match rule {
            Rule::Writable => args.extend(["--bind".into(), source.into(), path.into()]),
            Rule::Readable | Rule::Overlaid => {
                args.extend(["--ro-bind".into(), source.into(), path.into()]);
            }
            Rule::Hidden if path.is_dir() => args.extend(["--tmpfs".into(), path.into()]),
            Rule::Hidden => args.extend(["--ro-bind".into(), "/dev/null".into(), path.into()]),
        }
    }
    Ok(args)
}

/// Bubblewrap would fail on these too, but then it looks as if the agent had failed.
fn check(path: &Path, source: &Path, rule: Rule) -> Result<(), Error> {
    let refused = |reason: &str| Error::Path { path: source.into(), reason: reason.into() };
    if !path.is_absolute() || !source.is_absolute() {
        return Err(refused("it is not an absolute path"));
    }
    let found = source.symlink_metadata().map_err(|error| refused(&error.to_string()))?;
    if rule == Rule::Writable && found.is_symlink() {
        return Err(refused("it is a symbolic link, and may lead anywhere"));
    }
    if found.file_type().is_socket() {
        return Err(refused("it is a socket, through which a process reaches outside"));
    }
    Ok(())
}
