//! Node: which package manager, and which test runner.

use std::collections::{BTreeMap, BTreeSet};

use kapelle_core::policy::Parser;
use serde::Deserialize;
use serde_json::Value;

use super::Recipe;

const JEST_REPORT: &str = "kapelle-jest.json";

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Package {
    scripts: BTreeMap<String, String>,
    dependencies: BTreeMap<String, Value>,
    dev_dependencies: BTreeMap<String, Value>,
}

pub fn recipe(package: &str, files: &BTreeSet<String>) -> Option<Recipe> {
    let package: Package = serde_json::from_str(package).ok()?;
    let script = package.scripts.get("test").map(String::as_str).unwrap_or_default();
    let uses = |name: &str| {
        package.dev_dependencies.contains_key(name) || package.dependencies.contains_key(name)
    };
    let manager = Manager::of(files);
    let (command, parser, report) = if uses("vitest") {
        let command =
            format!("npx --no-install vitest run --reporter=json --outputFile={JEST_REPORT}");
        (command, Parser::Jest, Some(JEST_REPORT))
    } else if uses("jest") {
        let command = format!("npx --no-install jest --json --outputFile={JEST_REPORT}");
        (command, Parser::Jest, Some(JEST_REPORT))
    } else if script.starts_with("node --test") {
        (script.replacen("--test", "--test --test-reporter=tap", 1), Parser::Tap, None)
    } else if script.is_empty() || script.contains("no test specified") {
        return None;
    } else {
        (format!("{} test", manager.program()), Parser::ExitCode, None)
    };
    let is_bare = package.dependencies.is_empty() && package.dev_dependencies.is_empty();
    let command = match manager.install() {
        Some(install) if !is_bare => format!("{install} && {command}"),
        _ => command,
    };
    Some(Recipe { command, parser, report })
}

enum Manager {
    Npm,
    /// Npm without a lock file: nothing says what to install.
    Unlocked,
    Pnpm,
    Yarn,
}

impl Manager {
    fn of(files: &BTreeSet<String>) -> Manager {
        let has = |name: &str| files.contains(name);
        match () {
            () if has("pnpm-lock.yaml") => Manager::Pnpm,
            () if has("yarn.lock") => Manager::Yarn,
            () if has("package-lock.json") || has("npm-shrinkwrap.json") => Manager::Npm,
            () => Manager::Unlocked,
        }
    }

    fn program(&self) -> &'static str {
        match self {
            Manager::Npm | Manager::Unlocked => "npm",
            Manager::Pnpm => "pnpm",
            Manager::Yarn => "yarn",
        }
    }

    /// From the cache: a clean checkout has no `node_modules`, and a sandbox has no network.
    fn install(&self) -> Option<&'static str> {
        match self {
            Manager::Npm => Some("npm ci --offline --ignore-scripts"),
            Manager::Pnpm => Some("pnpm install --offline --frozen-lockfile --ignore-scripts"),
            Manager::Yarn => Some("yarn install --offline --frozen-lockfile --ignore-scripts"),
            Manager::Unlocked => None,
        }
    }
}
