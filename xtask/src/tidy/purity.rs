//! What the source of a crate must not mention, beyond what its dependencies already forbid: the
//! standard library is open to everybody.
//!
//! Tests are free.

use super::finding::Finding;
use super::source::Source;

struct Taboo {
    krate: &'static str,
    /// Paths; each stands for all below it.
    names: &'static [&'static str],
    advice: &'static str,
}

const TABOOS: [Taboo; 3] = [
    Taboo {
        krate: "core",
        names: &[
            "SystemTime",
            "Instant::now",
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "std::thread",
            "rand",
            "fastrand",
            "tokio",
            "async",
        ],
        advice: "core decides and nothing else: facts arrive in commands, wishes leave as effects",
    },
    Taboo {
        krate: "core",
        names: &["HashMap", "HashSet"],
        advice: "their order differs from run to run, so a replay would too: use BTreeMap, BTreeSet",
    },
    Taboo {
        krate: "agents",
        names: &["std::process::Command", "tokio::process"],
        advice: "agents talk over given pipes; `workspace` starts processes, in a sandbox",
    },
];

pub fn check(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for taboo in TABOOS.iter().filter(|taboo| source.is_of_crate(taboo.krate)) {
        for spot in source.names.iter().filter(|spot| !source.is_test(spot.line)) {
            if let Some(name) = taboo.names.iter().find(|name| mentions(&spot.text, name)) {
                let what = format!("`{name}` in `{}`", taboo.krate);
                found.push(Finding::failure(&source.path, spot.line, what, taboo.advice));
            }
        }
    }
    found
}

/// Whether the segments of `name` stand side by side in `path`.
pub fn mentions(path: &str, name: &str) -> bool {
    let path: Vec<&str> = path.split("::").collect();
    let name: Vec<&str> = name.split("::").collect();
    path.windows(name.len()).any(|window| window == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let source = Source::parse(path, text).unwrap();
        check(&source).iter().map(|finding| finding.line).collect()
    }

    const CORE: &str = "crates/core/src/x.rs";
    const NOWHERE: [usize; 0] = [];

    #[test]
    fn the_core_sees_no_world() {
        for text in [
            "use std::time::SystemTime;",
            "fn f() { let now = std::time::Instant::now(); }",
            "use std::{fmt, fs::File};",
            "fn f() { format!(\"{}\", std::env::var(\"HOME\")) }",
            "use std::collections::{BTreeMap, HashMap};",
            "async fn f() {}",
            "use tokio::sync::mpsc;",
        ] {
            assert_eq!(lines(CORE, text), [1], "{text}");
        }
    }

    #[test]
    fn words_and_tests_are_free() {
        let text = "//! Not std::fs, not HashMap.\nuse std::collections::BTreeMap;\n\
            const SAID: &str = \"tokio\";\n#[cfg(test)]\nmod tests { use std::fs; }";
        assert_eq!(lines(CORE, text), NOWHERE);
        assert_eq!(lines("crates/core/tests/journals.rs", "use std::fs;"), NOWHERE);
        assert_eq!(lines("crates/store/src/x.rs", "use std::fs;"), NOWHERE);
    }

    #[test]
    fn agents_start_nothing() {
        let path = "crates/agents/src/x.rs";
        assert_eq!(lines(path, "use tokio::process::Command;"), [1]);
        assert_eq!(lines(path, "use tokio::io::AsyncRead;"), NOWHERE);
    }
}
