//! `cargo xtask setup`: which tools Kapelle needs, and how the missing ones get here.
//!
//! A tool counts as present when it runs, not when a file of its name exists.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use nix::unistd::geteuid;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::run;

pub const HELP: &str = "\
Look for the tools that Kapelle needs, and install the missing ones.

Usage: cargo xtask setup [--for demo|test] [--dry-run]

  --for demo   git, node, npm, bubblewrap
  --for test   these, and chromium and a PostgreSQL server (default)
  --dry-run    only say what is missing and what would be done

On Debian and Ubuntu missing packages are installed with apt-get, by root or with a sudo that
asks for no password. Elsewhere the command to run is printed and the exit code is 6.
No service is started: Kapelle's tests run their own PostgreSQL, and end it.

Examples:
  cargo xtask setup
  cargo xtask setup --for demo --dry-run";

/// Debian's PostgreSQL package makes and starts a cluster of its own unless told otherwise. We
/// want the programs only, so this file is there while the package is installed, and no longer.
const NO_MAIN_CLUSTER_PATH: &str = "/etc/postgresql-common/createcluster.d/kapelle-setup.conf";
const NO_MAIN_CLUSTER: &str = "create_main_cluster = false\n";

/// Another apt may be running, on a fresh machine above all. Past this it is more likely stuck.
const APT_LOCK_WAIT_S: u32 = 120;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Demo,
    Test,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Git,
    Node,
    Npm,
    Bubblewrap,
    Chromium,
    Postgres,
}

impl Purpose {
    fn tools(self) -> &'static [Tool] {
        use Tool::{Bubblewrap, Chromium, Git, Node, Npm, Postgres};
        match self {
            Purpose::Demo => &[Git, Node, Npm, Bubblewrap],
            Purpose::Test => &[Git, Node, Npm, Bubblewrap, Chromium, Postgres],
        }
    }
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Git => "git",
            Tool::Node => "node",
            Tool::Npm => "npm",
            Tool::Bubblewrap => "bubblewrap",
            Tool::Chromium => "chromium",
            Tool::Postgres => "postgresql",
        }
    }

    fn why(self) -> &'static str {
        match self {
            Tool::Git => "candidates are built with `git merge-tree --write-tree`",
            Tool::Node | Tool::Npm => "the dashboard is built with it",
            Tool::Bubblewrap => "agents and checks run in its sandbox",
            Tool::Chromium => "the dashboard is tested in a real browser",
            Tool::Postgres => "the store is tested on a real server",
        }
    }

    fn version_min(self) -> (u32, u32) {
        match self {
            Tool::Git => (2, 38),
            // What the dashboard's build tools ask for.
            Tool::Node => (20, 19),
            Tool::Npm | Tool::Bubblewrap | Tool::Chromium | Tool::Postgres => (0, 0),
        }
    }

    fn package(self) -> &'static str {
        match self {
            Tool::Node => "nodejs",
            other => other.name(),
        }
    }

    /// Programs that will do, the preferred one first.
    fn programs(self) -> Vec<PathBuf> {
        let names: &[&str] = match self {
            Tool::Bubblewrap => &["bwrap"],
            Tool::Chromium => &["chromium", "chromium-browser", "google-chrome"],
            Tool::Postgres => &["initdb"],
            other => &[other.name()],
        };
        let mut programs: Vec<PathBuf> = names.iter().flat_map(|name| in_path(name)).collect();
        if self == Tool::Postgres {
            programs.extend(debian_initdbs());
        }
        programs
    }
}

/// Where PATH has a program of this name, as absolute paths: not everybody we hand them to searches.
fn in_path(name: &str) -> Vec<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(&folders).map(|folder| folder.join(name));
    candidates.filter(|path| path.is_absolute() && path.is_file()).collect()
}

/// Debian keeps the servers of all versions side by side, outside of PATH.
fn debian_initdbs() -> Vec<PathBuf> {
    let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        versions.flatten().map(|version| version.path().join("bin/initdb")).collect();
    found.sort();
    found.reverse();
    found
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    Present { program: PathBuf, version: String },
    TooOld { version: String },
    Absent,
}

pub fn probe(tool: Tool) -> Probe {
    let mut too_old = None;
    for program in tool.programs() {
        let output = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else { continue };
        let said = String::from_utf8_lossy(&output.stdout);
        let Some((version, number)) = version_in(&said) else { continue };
        if number >= tool.version_min() {
            return Probe::Present { program, version };
        }
        too_old = Some(Probe::TooOld { version });
    }
    too_old.unwrap_or(Probe::Absent)
}

/// The first word that looks like a version: `git version 2.47.3` and `v20.20.2` both have one.
fn version_in(said: &str) -> Option<(String, (u32, u32))> {
    said.split_whitespace().find_map(|word| {
        let version = word.trim_start_matches('v');
        let mut numbers = version.split(|letter: char| !letter.is_ascii_digit());
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        Some((version.to_owned(), (major, minor)))
    })
}

/// How this machine installs packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Debian(Power),
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    Root,
    Sudo,
    None,
}

impl System {
    fn here() -> System {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        if !is_debian_like(&release) || !runs("apt-get", &["--version"]) {
            return System::Other;
        }
        System::Debian(if geteuid().is_root() {
            Power::Root
        } else if runs("sudo", &["-n", "true"]) {
            Power::Sudo
        } else {
            Power::None
        })
    }
}

fn is_debian_like(os_release: &str) -> bool {
    let lines = os_release.lines().filter_map(|line| line.split_once('='));
    let named = lines.filter(|(key, _)| matches!(*key, "ID" | "ID_LIKE"));
    named
        .flat_map(|(_, value)| value.trim_matches('"').split_whitespace())
        .any(|id| matches!(id, "debian" | "ubuntu"))
}

fn runs(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// What to do about missing tools.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Nothing,
    Install { packages: Vec<&'static str>, power: Power },
    Ask { what: String, next: String },
}

fn plan(found: &[(Tool, Probe)], system: System) -> Plan {
    let too_old = found.iter().find_map(|(tool, probe)| match probe {
        Probe::TooOld { version } => Some((*tool, version)),
        Probe::Present { .. } | Probe::Absent => None,
    });
    if let Some((tool, version)) = too_old {
        // Somebody chose this version; replacing it is not ours to do.
        let (major, minor) = tool.version_min();
        let name = tool.name();
        return Plan::Ask {
            what: format!("{name} {version} is too old: {}", tool.why()),
            next: format!("install {name} {major}.{minor} or newer, then run this again"),
        };
    }
    let missing: Vec<Tool> =
        found.iter().filter(|(_, probe)| *probe == Probe::Absent).map(|(tool, _)| *tool).collect();
    if missing.is_empty() {
        return Plan::Nothing;
    }
    let packages: Vec<&'static str> = missing.iter().map(|tool| tool.package()).collect();
    let names: Vec<&str> = missing.iter().map(|tool| tool.name()).collect();
    let what = format!("missing: {}", names.join(", "));
    match system {
        System::Debian(Power::None) => Plan::Ask {
            what: format!("{what}; installing needs root or a sudo without a password"),
            next: format!("run this, then try again: {}", by_hand(&packages)),
        },
        System::Debian(power) => Plan::Install { packages, power },
        System::Other => Plan::Ask {
            what: format!("{what}; only apt-get is known here"),
            next: format!("install with your package manager: {}", packages.join(" ")),
        },
    }
}

/// The line for a person without our powers, with the same care about PostgreSQL's own cluster.
fn by_hand(packages: &[&str]) -> String {
    let install = format!(
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    if !packages.contains(&Tool::Postgres.package()) {
        return install;
    }
    let line = NO_MAIN_CLUSTER.trim_end();
    format!(
        "echo '{line}' | sudo install -D -m 644 /dev/stdin {NO_MAIN_CLUSTER_PATH} && \
         {install} && sudo rm {NO_MAIN_CLUSTER_PATH}"
    )
}

pub fn command(mut args: Args) -> Result<ExitCode> {
    let purpose = match args.value("--for")?.as_deref() {
        None | Some("test") => Purpose::Test,
        Some("demo") => Purpose::Demo,
        Some(other) => {
            return Err(Error::usage(format!("`--for {other}`: demo or test is expected")));
        }
    };
    let dry_run = args.flag("--dry-run");
    args.finish()?;
    let found = look(purpose);
    for (tool, probe) in &found {
        println!("{}", described(*tool, probe));
    }
    match plan(&found, System::here()) {
        Plan::Nothing => println!("nothing is missing"),
        Plan::Ask { what, next } => return Err(Error::environment(what).hint(next)),
        Plan::Install { packages, .. } if dry_run => {
            println!("would install: {}", packages.join(" "));
        }
        Plan::Install { packages, power } => install_and_check(purpose, &packages, power)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes sure of the tools, quietly if all are there. The demo goes on with less where it must:
/// Kapelle has weaker boxes to fall back to, and a page in place of the dashboard.
pub fn ensure(purpose: Purpose) -> Result {
    let found = look(purpose);
    match plan(&found, System::here()) {
        Plan::Nothing => Ok(()),
        Plan::Install { packages, power } => install_and_check(purpose, &packages, power),
        Plan::Ask { what, next } if purpose == Purpose::Demo && is_bearable(&found) => {
            run::say(format!("warning: {what}"));
            run::say(format!("the demo goes on without; to have it all, {next}"));
            Ok(())
        }
        Plan::Ask { what, next } => Err(Error::environment(what).hint(next)),
    }
}

/// Without git there is nothing to show; without the rest there is less.
fn is_bearable(found: &[(Tool, Probe)]) -> bool {
    found.iter().all(|(tool, probe)| *tool != Tool::Git || matches!(probe, Probe::Present { .. }))
}

fn look(purpose: Purpose) -> Vec<(Tool, Probe)> {
    purpose.tools().iter().map(|tool| (*tool, probe(*tool))).collect()
}

fn described(tool: Tool, probe: &Probe) -> String {
    let (name, why) = (tool.name(), tool.why());
    match probe {
        Probe::Present { program, version } => {
            format!("{name:<11} {version} ({})", program.display())
        }
        Probe::TooOld { version } => format!("{name:<11} too old: {version} — {why}"),
        Probe::Absent => format!("{name:<11} missing — {why}"),
    }
}

fn install_and_check(purpose: Purpose, packages: &[&str], power: Power) -> Result {
    run::say(format!("installing with apt-get: {}", packages.join(" ")));
    let quiet_postgres = packages.contains(&Tool::Postgres.package());
    if quiet_postgres {
        forbid_main_cluster(power)?;
    }
    let installed = apt_get_install(packages, power);
    if quiet_postgres {
        // The administrator's own later installs should behave as Debian means them to.
        run::succeed_aside(as_root(power, "rm").args(["-f", NO_MAIN_CLUSTER_PATH]))?;
    }
    installed?;
    match plan(&look(purpose), System::here()) {
        Plan::Nothing => Ok(()),
        Plan::Ask { what, next } => Err(Error::environment(what).hint(next)),
        Plan::Install { packages, .. } => Err(Error::environment(format!(
            "installed, but still not usable: {}",
            packages.join(" ")
        ))
        .hint("run it with --version to see why")),
    }
}

fn apt_get_install(packages: &[&str], power: Power) -> Result {
    let lock_wait = format!("DPkg::Lock::Timeout={APT_LOCK_WAIT_S}");
    let apt_get = |args: &[&str]| {
        let mut command = as_root(power, "env");
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", &lock_wait]);
        command.args(args);
        command
    };
    if let Err(error) = run::succeed_aside(&mut apt_get(&["update"])) {
        // One dead mirror of several fails the update; the lists may still do.
        run::say(format!("{error}; going on with the package lists that are here"));
    }
    let mut install = apt_get(&["install", "-y", "--no-install-recommends"]);
    run::succeed_aside(install.args(packages))
        .map_err(|error| error.hint(format!("try it by hand: {}", by_hand(packages))))
}

fn forbid_main_cluster(power: Power) -> Result {
    let mut write = as_root(power, "sh");
    let script = "mkdir -p \"${1%/*}\" && printf '%s' \"$2\" > \"$1\"";
    run::succeed_aside(write.args(["-c", script, "sh", NO_MAIN_CLUSTER_PATH, NO_MAIN_CLUSTER]))
}

fn as_root(power: Power, program: &str) -> Command {
    match power {
        Power::Root | Power::None => run::command(program),
        Power::Sudo => {
            let mut command = run::command("sudo");
            command.args(["-n", program]);
            command
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present() -> Probe {
        Probe::Present { program: "x".into(), version: "9.9".into() }
    }

    #[test]
    fn versions_are_found_in_what_tools_really_print() {
        let number = |said| version_in(said).map(|(_, number)| number);
        assert_eq!(number("git version 2.47.3"), Some((2, 47)));
        assert_eq!(number("v20.20.2\n"), Some((20, 20)));
        assert_eq!(number("initdb (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some((15, 18)));
        assert_eq!(number("initdb (PostgreSQL) 19devel"), Some((19, 0)));
        assert_eq!(number("Chromium 156.0.8078.79 built on Debian"), Some((156, 0)));
        assert_eq!(number("no version here"), None);
    }

    #[test]
    fn missing_tools_become_packages_where_we_may_install() {
        let found = [(Tool::Git, present()), (Tool::Node, Probe::Absent)];
        let install = Plan::Install { packages: vec!["nodejs"], power: Power::Sudo };
        assert_eq!(plan(&found, System::Debian(Power::Sudo)), install);
        assert_eq!(plan(&found[..1], System::Debian(Power::None)), Plan::Nothing);
    }

    /// Without the right to install, a person must get a line that can be pasted as it is.
    #[test]
    fn without_power_the_exact_command_is_printed() {
        let found = [(Tool::Bubblewrap, Probe::Absent), (Tool::Postgres, Probe::Absent)];
        let Plan::Ask { what, next } = plan(&found, System::Debian(Power::None)) else {
            panic!("nothing may be installed without power")
        };
        assert!(what.starts_with("missing: bubblewrap, postgresql;"), "{what}");
        assert!(
            next.contains("install -y --no-install-recommends bubblewrap postgresql"),
            "{next}"
        );
        assert!(next.contains("create_main_cluster = false"), "{next}");
    }

    /// A version that somebody chose is not replaced behind their back.
    #[test]
    fn a_tool_that_is_too_old_is_left_to_its_owner() {
        let found = [(Tool::Node, Probe::TooOld { version: "18.19.0".into() })];
        let Plan::Ask { what, next } = plan(&found, System::Debian(Power::Root)) else {
            panic!("an old tool is not ours to replace")
        };
        assert!(what.contains("node 18.19.0 is too old"), "{what}");
        assert!(next.contains("20.19 or newer"), "{next}");
    }

    #[test]
    fn the_demo_can_do_without_all_but_git() {
        assert!(is_bearable(&[(Tool::Git, present()), (Tool::Node, Probe::Absent)]));
        assert!(!is_bearable(&[(Tool::Git, Probe::Absent), (Tool::Node, present())]));
    }

    #[test]
    fn debian_and_its_children_are_recognised() {
        assert!(is_debian_like("NAME=\"Debian\"\nID=debian\n"));
        assert!(is_debian_like("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian_like("ID=fedora\nVARIANT_ID=debian\n"));
    }
}
