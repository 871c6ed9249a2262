//! Every way to refuse is tried: a refusal that no test names is one that may never come, or may
//! come for the wrong reason.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::finding::Finding;
use super::purity::mentions;
use super::source::{Source, Spot};

const ADVICE: &str = "write the test that gets it, or remove it";

/// Over the sources of all crates: each variant of each enum `…Refusal` of `core` must be named by
/// a test of `core`.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let core: Vec<&Source> = sources.iter().filter(|source| source.is_of_crate("core")).collect();
    let tried = |name: &str| {
        let named = |source: &Source| {
            let mut tests = source.names.iter().filter(|spot| source.is_test(spot.line));
            tests.any(|spot| mentions(&spot.text, name))
        };
        core.iter().any(|source| named(source))
    };
    let mut found = Vec::new();
    for source in &core {
        for variant in variants(&source.text) {
            if !source.is_test(variant.line) && !tried(&variant.text) {
                let what = format!("no test gets `{}`", variant.text);
                found.push(Finding::failure(&source.path, variant.line, what, ADVICE));
            }
        }
    }
    found
}

/// The variants of the refusals in a file, as paths: `Refusal::UnknownTask`.
fn variants(text: &str) -> Vec<Spot> {
    let Ok(stream) = text.parse::<TokenStream>() else { return Vec::new() };
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut found = Vec::new();
    for window in trees.windows(3) {
        let [TokenTree::Ident(keyword), TokenTree::Ident(name), TokenTree::Group(body)] = window
        else {
            continue;
        };
        let name = name.to_string();
        if keyword == "enum" && name.ends_with("Refusal") && body.delimiter() == Delimiter::Brace {
            found.extend(variants_of(&name, body.stream()));
        }
    }
    found
}

/// A variant is the word that begins the body or follows a comma, its attributes aside.
fn variants_of(name: &str, body: TokenStream) -> Vec<Spot> {
    let mut found = Vec::new();
    let mut begins = true;
    for tree in body {
        match tree {
            TokenTree::Ident(word) if begins => {
                let line = word.span().start().line;
                found.push(Spot { text: format!("{name}::{word}"), line });
                begins = false;
            }
            TokenTree::Punct(mark) if mark.as_char() == ',' => begins = true,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(files: &[(&str, &str)]) -> Vec<String> {
        let parse = |(path, text): &(&str, &str)| Source::parse(path, text).unwrap();
        let sources: Vec<Source> = files.iter().map(parse).collect();
        check(&sources).iter().map(ToString::to_string).collect()
    }

    const REFUSAL: (&str, &str) = (
        "crates/core/src/refusal.rs",
        "pub enum Refusal {\n    #[error(\"no {0}\", .0.0)]\n    Unknown(TaskId),\n    /// Twice.\n    \
         Stale { fence: Fence, at: u64 },\n}\npub enum Other { A }\n",
    );

    #[test]
    fn a_refusal_that_no_test_gets_is_found() {
        let test = ("crates/core/tests/suite/rules.rs", "fn t() { is(Refusal::Stale { at: 1 }) }");
        let found = said(&[REFUSAL, test]);
        assert_eq!(found.len(), 1, "{found:?}");
        let expected = "crates/core/src/refusal.rs:3: no test gets `Refusal::Unknown`";
        assert!(found[0].starts_with(expected), "{found:?}");
    }

    #[test]
    fn refusals_that_tests_get_are_fine_and_code_is_no_test() {
        let both = "fn t() { is(Refusal::Stale {}); is(crate::Refusal::Unknown(T1)) }";
        assert!(said(&[REFUSAL, ("crates/core/tests/suite/rules.rs", both)]).is_empty());
        assert_eq!(said(&[REFUSAL, ("crates/core/src/state.rs", both)]).len(), 2);
        assert_eq!(said(&[REFUSAL, ("crates/sim/tests/replay.rs", both)]).len(), 2);
    }
}
