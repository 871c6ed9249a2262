//! Dependencies come from a registry, with a version. Anything else can change under us.

use std::path::Path;

use serde_json::Value;

use super::finding::Finding;

/// Over what `cargo metadata --no-deps` prints.
pub fn check(metadata: &Value) -> Vec<Finding> {
    let root = Path::new(metadata["workspace_root"].as_str().unwrap_or_default());
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    for package in packages {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest).to_string_lossy();
        let listed = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        for dependency in listed {
            if let Some((what, advice)) = objection(dependency, root) {
                let name = dependency["name"].as_str().unwrap_or_default();
                found.push(Finding::failure(&manifest, 1, format!("`{name}` {what}"), advice));
            }
        }
    }
    found
}

fn objection(dependency: &Value, root: &Path) -> Option<(&'static str, &'static str)> {
    if let Some(path) = dependency["path"].as_str() {
        let is_inside = Path::new(path).starts_with(root);
        let objection = ("is a folder outside of the repository", "nobody else has it");
        return (!is_inside).then_some(objection);
    }
    let source = dependency["source"].as_str().unwrap_or_default();
    if let Some(url) = source.strip_prefix("git+") {
        let is_pinned = url.split(['?', '&']).any(|part| part.starts_with("rev="));
        let objection = ("follows a git branch or tag", "those move: pin it with rev = \"…\"");
        return (!is_pinned).then_some(objection);
    }
    (dependency["req"] == "*").then_some(("accepts any version", "name the version that was tried"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(dependency: Value) -> Vec<String> {
        let metadata = json!({
            "workspace_root": "/repo",
            "packages": [{
                "manifest_path": "/repo/crates/core/Cargo.toml",
                "dependencies": [dependency],
            }],
        });
        check(&metadata).iter().map(ToString::to_string).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn versions_and_revisions_are_pins() {
        assert_eq!(said(json!({ "name": "a", "req": "^1.2", "source": "registry+x" })), NOTHING);
        assert_eq!(
            said(json!({ "name": "a", "req": "*", "source": "git+https://x/y?rev=1f" })),
            NOTHING
        );
        assert_eq!(said(json!({ "name": "a", "req": "*", "path": "/repo/crates/a" })), NOTHING);
    }

    #[test]
    fn whatever_can_move_is_refused() {
        let branch =
            said(json!({ "name": "a", "req": "*", "source": "git+https://x/y?branch=main" }));
        assert!(branch[0].starts_with("crates/core/Cargo.toml:1: `a` follows a git branch"));
        assert_eq!(said(json!({ "name": "a", "req": "*", "path": "/repository/a" })).len(), 1);
        assert_eq!(said(json!({ "name": "a", "req": "*", "source": "registry+x" })).len(), 1);
    }
}
