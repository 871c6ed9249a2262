//! `cargo xtask web`: the dashboard, built only when something changed.
//!
//! Stamps hold a hash of what went in. A changed mtime alone (a fresh checkout, a touched file)
//! builds nothing.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{fs, io};

use crate::args::Args;
use crate::error::{Error, Result};
use crate::run;

pub const HELP: &str = "\
Build the dashboard into web/dist, which the server embeds.

Usage: cargo xtask web [--force]

  --force  install and build even if nothing changed

Packages are installed only when the lockfile changed, without running their scripts.

Examples:
  cargo xtask web";

/// Not part of what the bundle is made from.
const NOT_SOURCES: [&str; 4] = ["node_modules", "dist", "e2e", "coverage"];

/// Where systems keep the authorities that they trust. npm does not look there by itself, and
/// fails behind the proxies of companies that have an authority of their own.
const CA_BUNDLES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

pub fn command(mut args: Args) -> Result<ExitCode> {
    let force = args.flag("--force");
    args.finish()?;
    if force {
        for stamp in ["web-install.stamp", "web-build.stamp"] {
            remove(&run::scratch()?.join(stamp))?;
        }
    }
    build()?;
    run::say(format!("the dashboard is in {}", dir().join("dist").display()));
    Ok(ExitCode::SUCCESS)
}

pub fn build() -> Result {
    install()?;
    let now = fingerprint(&sources(&dir())?);
    let stamp = run::scratch()?.join("web-build.stamp");
    if is_current(&stamp, &now) && dir().join("dist/index.html").is_file() {
        return Ok(());
    }
    run::say("building the dashboard");
    remove(&stamp)?;
    run::succeed_aside(node_command("npm").args(["run", "build"]))?;
    if !dir().join("dist/index.html").is_file() {
        return Err(Error::failed("`npm run build` left no web/dist/index.html"));
    }
    write(&stamp, &now)
}

fn install() -> Result {
    let lockfile = dir().join("package-lock.json");
    let manifest = dir().join("package.json");
    let mut inputs = BTreeMap::new();
    for path in [lockfile, manifest] {
        let bytes = fs::read(&path).map_err(|why| {
            Error::failed(format!("cannot read {}: {why}", path.display()))
                .hint("the dashboard lives in web/; is this a whole checkout?")
        })?;
        inputs.insert(path, bytes);
    }
    let now = fingerprint(&inputs);
    let stamp = run::scratch()?.join("web-install.stamp");
    if is_current(&stamp, &now) && dir().join("node_modules").is_dir() {
        return Ok(());
    }
    run::say("installing the dashboard's packages");
    remove(&stamp)?;
    let mut npm = node_command("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    run::succeed_aside(&mut npm).map_err(|error| {
        error.hint(
            "npm says why above: its registry cannot be reached, or web/package-lock.json does \
             not belong to web/package.json (then `npm install` in web/ makes a new one)",
        )
    })?;
    write(&stamp, &now)
}

/// A program of node's world, in `web/`.
pub fn node_command(program: &str) -> Command {
    let mut command = run::command(program);
    command.current_dir(dir());
    if std::env::var_os("NODE_EXTRA_CA_CERTS").is_none()
        && let Some(bundle) = CA_BUNDLES.iter().find(|path| Path::new(path).is_file())
    {
        command.env("NODE_EXTRA_CA_CERTS", bundle);
    }
    command
}

fn dir() -> PathBuf {
    run::root().join("web")
}

/// Every file that can change the bundle, with its bytes.
fn sources(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    let fail = |path: &Path, why: io::Error| {
        Error::environment(format!("cannot read {}: {why}", path.display()))
    };
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|why| fail(&folder, why))? {
            let entry = entry.map_err(|why| fail(&folder, why))?;
            let (path, name) = (entry.path(), entry.file_name());
            if NOT_SOURCES.iter().any(|skipped| name == *skipped) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path).map_err(|why| fail(&path, why))?;
                files.insert(path, bytes);
            }
        }
    }
    Ok(files)
}

fn fingerprint(files: &BTreeMap<PathBuf, Vec<u8>>) -> String {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    format!("{:016x}\n", hasher.finish())
}

fn is_current(stamp: &Path, now: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|then| then == now)
}

fn write(stamp: &Path, text: &str) -> Result {
    fs::write(stamp, text)
        .map_err(|why| Error::environment(format!("cannot write {}: {why}", stamp.display())))
}

fn remove(stamp: &Path) -> Result {
    match fs::remove_file(stamp) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => {
            Err(Error::environment(format!("cannot remove {}: {why}", stamp.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sources_change_the_fingerprint() {
        let dir = run::scratch().unwrap().join(format!("web-test-{}", std::process::id()));
        let put = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("src/main.ts", "1");
        let first = fingerprint(&sources(&dir).unwrap());
        put("dist/index.html", "built");
        put("node_modules/x/index.js", "installed");
        put("e2e/demo.mjs", "test");
        put("src/main.ts", "1");
        assert_eq!(fingerprint(&sources(&dir).unwrap()), first);
        put("src/main.ts", "2");
        assert_ne!(fingerprint(&sources(&dir).unwrap()), first);
        fs::remove_dir_all(dir).unwrap();
    }
}
