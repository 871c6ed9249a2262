//! `cargo xtask licences`: what every dependency asks of us, over the whole locked graph.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use serde_json::Value;

use crate::args::Args;
use crate::cargo;
use crate::error::{Error, Result};
use crate::spdx::{self, Verdict};

pub const HELP: &str = "\
Check the licence of every dependency, for all platforms, as locked in Cargo.lock.

Usage: cargo xtask licences

Fails if a package has no licence that we accept; the list is in xtask/src/spdx.rs. Packages that
are there in several major versions are listed, as information.

Examples:
  cargo xtask licences";

pub fn command(args: Args) -> Result<ExitCode> {
    args.finish()?;
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what was found, and fails if a package is not acceptable.
pub fn check() -> Result {
    let packages = packages(&cargo::metadata(&["--locked"])?)?;
    let report = judge(&packages);
    for line in &report.information {
        println!("note: {line}");
    }
    for line in &report.refused {
        println!("{line}");
    }
    if !report.refused.is_empty() {
        return Err(Error::failed(format!("{} package(s) may not be used", report.refused.len()))
            .hint("choose another package, or argue for its licence in a decision record"));
    }
    println!("licences: {} packages, all acceptable", packages.len());
    Ok(())
}

#[derive(Debug, Clone)]
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let listed = metadata["packages"].as_array();
    let listed = listed.ok_or_else(|| Error::failed("cargo metadata lists no packages"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(listed
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: package["license"].as_str().map(str::to_owned),
        })
        .collect())
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    refused: Vec<String>,
    information: Vec<String>,
}

fn judge(packages: &[Package]) -> Report {
    let mut report = Report::default();
    for Package { name, version, licence } in packages {
        let package = format!("{name} {version}");
        let Some(licence) = licence else {
            report.refused.push(format!("{package}: names no licence"));
            continue;
        };
        match spdx::judge(licence) {
            Ok(Verdict::Allowed) => {}
            Ok(Verdict::WithCare) => {
                report.information.push(format!("{package}: {licence}; use it only unchanged"));
            }
            Ok(Verdict::Refused) => report.refused.push(format!("{package}: {licence}")),
            Err(why) => report.refused.push(format!("{package}: {why}")),
        }
    }
    report.information.extend(duplicates(packages));
    report
}

/// Packages that are built in several incompatible versions: time and size for nothing.
fn duplicates(packages: &[Package]) -> Vec<String> {
    let mut majors: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in packages {
        majors.entry(&package.name).or_default().insert(major(&package.version));
    }
    majors.retain(|_, versions| versions.len() > 1);
    majors
        .into_iter()
        .map(|(name, versions)| {
            let versions: Vec<String> = versions.into_iter().collect();
            format!("{name} is there more than once: {}", versions.join(", "))
        })
        .collect()
}

/// The part of a version that tells incompatible ones apart: `1` of 1.2.3, `0.3` of 0.3.4.
fn major(version: &str) -> String {
    let significant = version.split('.').position(|part| part != "0").unwrap_or(0);
    version.split('.').take(significant + 1).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, licence: Option<&str>) -> Package {
        Package { name: name.into(), version: version.into(), licence: licence.map(Into::into) }
    }

    #[test]
    fn packages_without_an_acceptable_licence_are_named() {
        let report = judge(&[
            package("good", "1.0.0", Some("MIT OR Apache-2.0")),
            package("viral", "1.0.0", Some("AGPL-3.0-only")),
            package("silent", "1.0.0", None),
            package("careful", "1.0.0", Some("MPL-2.0")),
        ]);
        assert_eq!(
            report.refused,
            ["viral 1.0.0: AGPL-3.0-only", "silent 1.0.0: names no licence"]
        );
        assert_eq!(report.information, ["careful 1.0.0: MPL-2.0; use it only unchanged"]);
    }

    #[test]
    fn only_incompatible_versions_are_duplicates() {
        let versions = |versions: &[&str]| {
            let packages: Vec<Package> =
                versions.iter().map(|version| package("x", version, Some("MIT"))).collect();
            duplicates(&packages)
        };
        assert_eq!(versions(&["1.2.0", "1.3.0"]), [""; 0]);
        assert_eq!(versions(&["0.2.0", "0.3.0"]), ["x is there more than once: 0.2, 0.3"]);
        assert_eq!(versions(&["1.2.0", "2.0.0"]), ["x is there more than once: 1, 2"]);
    }
}
