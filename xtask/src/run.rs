//! Running other programs, with errors that say which one and why.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::error::{Error, Result};

/// The repository: the folder that holds `xtask/`.
pub fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// Where stamps and scratch files live; gone with `cargo clean`, as they should be.
pub fn scratch() -> Result<PathBuf> {
    let dir = crate::cargo::profile_dir()?.with_file_name("xtask");
    std::fs::create_dir_all(&dir)
        .map_err(|why| Error::environment(format!("cannot make {}: {why}", dir.display())))?;
    Ok(dir)
}

/// Tells the person what happens. On stderr: stdout belongs to the product's data.
pub fn say(line: impl AsRef<str>) {
    eprintln!("xtask: {}", line.as_ref());
}

/// A command in the repository's root.
pub fn command(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    command.current_dir(root());
    command
}

/// Runs to the end and insists on success.
pub fn succeed(command: &mut Command) -> Result {
    command.stdin(Stdio::null());
    let status = command.status().map_err(|why| cannot_start(command, &why))?;
    if status.success() { Ok(()) } else { Err(ended_badly(command, status)) }
}

/// The same for preparations: what they print goes to stderr.
pub fn succeed_aside(command: &mut Command) -> Result {
    succeed(command.stdout(Stdio::from(io::stderr())))
}

/// Runs to the end and returns what it printed on stdout. Its stderr goes to the person.
pub fn output(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|why| cannot_start(command, &why))?;
    if !output.status.success() {
        return Err(ended_badly(command, output.status));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Error::failed(format!("`{}` did not print UTF-8", shown(command))))
}

/// Becomes the other program: its signals, its terminal and its exit code are then its own, and
/// nothing of ours stays behind. Returns only if it could not be started.
pub fn become_program(command: &mut Command) -> Error {
    let why = command.exec();
    cannot_start(command, &why)
}

/// A command line as a person would type it.
pub fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut line = name.to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

fn cannot_start(command: &Command, why: &io::Error) -> Error {
    let error = Error::environment(format!("`{}` did not start: {why}", shown(command)));
    match why.kind() {
        io::ErrorKind::NotFound => error.hint("`cargo xtask setup` looks for what is missing"),
        _ => error,
    }
}

fn ended_badly(command: &Command, status: ExitStatus) -> Error {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    };
    Error::failed(format!("`{}` {how}", shown(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_command_and_its_end() {
        let error = succeed(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "error: `sh -c exit 3` ended with exit code 3");
        let error = succeed(Command::new("sh").args(["-c", "kill -9 $$"])).unwrap_err();
        assert_eq!(error.to_string(), "error: `sh -c kill -9 $$` was ended by signal 9");
        let error = output(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("`no-such-program` did not start"), "{error}");
    }

    #[test]
    fn the_root_is_the_workspace() {
        assert!(root().join("Cargo.lock").is_file());
    }
}
