//! Walls between crates: what each may depend on. This table is the wall.
//!
//! Dependencies of tests are free: a test may look over a wall to see what is behind it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::finding::Finding;

/// A crate of ours, by its folder, and what it may use.
struct Wall {
    krate: &'static str,
    siblings: &'static [&'static str],
    packages: Packages,
}

enum Packages {
    /// These and no other.
    Only(&'static [&'static str]),
    /// Anything that is not reserved for others.
    Unreserved,
}

const WALLS: [Wall; 9] = [
    Wall {
        krate: "core",
        siblings: &[],
        packages: Packages::Only(&["schemars", "serde", "serde_json", "thiserror"]),
    },
    Wall {
        krate: "sim",
        siblings: &["core"],
        packages: Packages::Only(&["fastrand", "schemars", "serde", "serde_json", "thiserror"]),
    },
    Wall { krate: "store", siblings: &["core"], packages: Packages::Unreserved },
    Wall { krate: "workspace", siblings: &["core"], packages: Packages::Unreserved },
    Wall { krate: "gateway", siblings: &["core"], packages: Packages::Unreserved },
    Wall { krate: "agents", siblings: &["core"], packages: Packages::Unreserved },
    Wall {
        krate: "conductor",
        siblings: &["core", "store", "workspace", "gateway", "agents"],
        packages: Packages::Unreserved,
    },
    Wall {
        krate: "server",
        siblings: &["core", "store", "conductor"],
        packages: Packages::Unreserved,
    },
    Wall {
        krate: "cli",
        siblings: &["core", "store", "workspace", "gateway", "agents", "conductor", "server"],
        packages: Packages::Unreserved,
    },
];

/// Packages that only some crates may have. A name stands for its relatives too: `clap` for
/// `clap_complete`, `hyper` for `hyper-util`.
const RESERVED: [(&str, &[&str]); 9] = [
    ("rusqlite", &["store"]),
    ("libsqlite3", &["store"]),
    ("postgres", &["store"]),
    ("tokio-postgres", &["store"]),
    ("deadpool", &["store"]),
    ("sqlx", &["store"]),
    ("clap", &["cli"]),
    ("axum", &["server", "gateway"]),
    ("hyper", &["server", "gateway"]),
];

/// Over what `cargo metadata --no-deps` prints.
pub fn check(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Value) -> Vec<Finding> {
    let name = package["name"].as_str().unwrap_or_default();
    let uses = dependencies(package);
    let Some(krate) = name.strip_prefix("kapelle-") else {
        return check_tooling(name, &uses);
    };
    let manifest = format!("crates/{krate}/Cargo.toml");
    let Some(wall) = WALLS.iter().find(|wall| wall.krate == krate) else {
        let what = format!("crate `{name}` has no wall");
        let advice = "a crate exists to forbid a dependency: say which in xtask/src/tidy/walls.rs";
        return vec![Finding::failure(&manifest, 1, what, advice)];
    };
    let mut found = Vec::new();
    for used in uses {
        if let Some((what, advice)) = objection(wall, &used) {
            found.push(Finding::failure(&manifest, 1, what, advice));
        }
    }
    found
}

fn objection(wall: &Wall, used: &str) -> Option<(String, &'static str)> {
    let krate = wall.krate;
    if let Some(sibling) = used.strip_prefix("kapelle-") {
        let what = format!("`{krate}` depends on its sibling `{sibling}`");
        let advice = "the walls are in docs/ARCHITECTURE.md; move the code to where it belongs";
        return (!wall.siblings.contains(&sibling)).then_some((what, advice));
    }
    let allowed = match wall.packages {
        Packages::Only(packages) => packages.contains(&used),
        Packages::Unreserved => RESERVED
            .iter()
            .filter(|(name, _)| is_relative(used, name))
            .all(|(_, owners)| owners.contains(&krate)),
    };
    let what = format!("`{krate}` depends on `{used}`");
    let advice = match wall.packages {
        Packages::Only(_) => "it must stay free of the outside world",
        Packages::Unreserved => "that package is reserved for other crates",
    };
    (!allowed).then_some((what, advice))
}

/// Tooling is the first thing that a new user compiles, and must not drag the product in.
fn check_tooling(name: &str, uses: &BTreeSet<String>) -> Vec<Finding> {
    let manifest = format!("{name}/Cargo.toml");
    let ours = uses.iter().filter(|used| used.starts_with("kapelle-"));
    ours.map(|used| {
        let what = format!("`{name}` depends on `{used}`");
        Finding::failure(&manifest, 1, what, "tooling runs the product's binaries instead")
    })
    .collect()
}

/// Names of normal and build dependencies.
fn dependencies(package: &Value) -> BTreeSet<String> {
    let listed = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shipped = listed.iter().filter(|dependency| dependency["kind"] != "dev");
    shipped.filter_map(|dependency| dependency["name"].as_str()).map(str::to_owned).collect()
}

fn is_relative(used: &str, name: &str) -> bool {
    used.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is said about a package with these dependencies, each `name` or `name kind`.
    fn said(name: &str, dependencies: &[&str]) -> Vec<String> {
        let dependencies: Vec<Value> = dependencies
            .iter()
            .map(|dependency| match dependency.split_once(' ') {
                Some((name, kind)) => json!({ "name": name, "kind": kind }),
                None => json!({ "name": dependency, "kind": null }),
            })
            .collect();
        let metadata = json!({ "packages": [{ "name": name, "dependencies": dependencies }] });
        check(&metadata).into_iter().map(|finding| finding.what).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn siblings_stay_behind_their_walls() {
        assert_eq!(
            said("kapelle-core", &["kapelle-store"]),
            ["`core` depends on its sibling `store`"]
        );
        assert_eq!(said("kapelle-agents", &["kapelle-core"]), NOTHING);
        assert_eq!(said("kapelle-agents", &["kapelle-workspace"]).len(), 1);
        assert_eq!(said("kapelle-server", &["kapelle-conductor", "kapelle-gateway"]).len(), 1);
        assert_eq!(said("kapelle-cli", &["kapelle-sim", "kapelle-server"]).len(), 1);
    }

    #[test]
    fn the_brain_is_closed_to_the_world() {
        assert_eq!(said("kapelle-core", &["serde", "tokio"]), ["`core` depends on `tokio`"]);
        assert_eq!(said("kapelle-sim", &["kapelle-core", "fastrand", "tokio"]).len(), 1);
    }

    #[test]
    fn reserved_packages_stay_with_their_owners() {
        assert_eq!(said("kapelle-store", &["rusqlite", "tokio-postgres", "tokio"]), NOTHING);
        assert_eq!(said("kapelle-cli", &["clap", "clap_complete"]), NOTHING);
        assert_eq!(said("kapelle-gateway", &["hyper", "hyper-util", "axum"]), NOTHING);
        for (krate, package) in [
            ("conductor", "rusqlite"),
            ("server", "tokio-postgres"),
            ("server", "clap"),
            ("workspace", "hyper-util"),
            ("conductor", "axum"),
        ] {
            assert_eq!(said(&format!("kapelle-{krate}"), &[package]).len(), 1, "{krate} {package}");
        }
    }

    /// What tests use never reaches the product; what builds it does.
    #[test]
    fn only_tests_may_look_over_a_wall() {
        assert_eq!(said("kapelle-core", &["kapelle-store dev", "proptest dev"]), NOTHING);
        assert_eq!(said("kapelle-core", &["kapelle-store build"]).len(), 1);
    }

    #[test]
    fn new_crates_need_a_wall_and_tooling_needs_no_product() {
        assert_eq!(said("kapelle-utils", &[]), ["crate `kapelle-utils` has no wall"]);
        assert_eq!(said("xtask", &["serde_json", "clap"]), NOTHING);
        assert_eq!(said("xtask", &["kapelle-core"]).len(), 1);
    }
}
