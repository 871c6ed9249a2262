//! Cargo as we call it: always the same profile and, within one run, the same features, so that
//! nothing is built twice.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::run;

/// The cargo that runs us, so that a toolchain override holds for what we start too.
pub fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = run::command(PathBuf::from(program));
    command.args(args);
    command
}

/// Where the binaries of this workspace are: beside our own, whatever the target folder is called.
pub fn profile_dir() -> Result<PathBuf> {
    let own = std::env::current_exe()
        .map_err(|why| Error::environment(format!("cannot find the running xtask: {why}")))?;
    let mut dir = own;
    dir.pop();
    if dir.ends_with("deps") {
        dir.pop();
    }
    Ok(dir)
}

/// A binary of the workspace that has been built already.
pub fn built(name: &str) -> Result<PathBuf> {
    let path = profile_dir()?.join(name);
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::failed(format!("{} has not been built", path.display()))
        .hint("`cargo build --workspace` builds all binaries"))
}

/// Builds the product alone and returns its binary.
pub fn build_kapelle() -> Result<PathBuf> {
    run::succeed_aside(&mut cargo(&["build", "--package", "kapelle-cli"]))?;
    built("kapelle")
}

pub fn metadata(args: &[&str]) -> Result<Value> {
    let mut command = cargo(&["metadata", "--format-version", "1"]);
    let text = run::output(command.args(args))?;
    serde_json::from_str(&text)
        .map_err(|why| Error::failed(format!("cargo metadata is not JSON: {why}")))
}
