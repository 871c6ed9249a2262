//! How long things get, how files begin, and what a `lib.rs` holds.

use super::finding::Finding;
use super::source::Source;

/// A file of this length no longer fits into one head. Its tests do not count.
const FILE_LINES_MAX: usize = 800;

/// About what fits on a screen, and what is certainly too much.
const FUNCTION_LINES_WARNED: usize = 70;
const FUNCTION_LINES_MAX: usize = 100;

/// A file this short says what it is without documentation.
const SELF_EVIDENT_LINES_MAX: usize = 1;

pub fn check(source: &Source) -> Vec<Finding> {
    let mut found = function_lengths(source);
    found.extend(file_length(source));
    found.extend(contents_page(source));
    found.extend(opening(source));
    found
}

fn file_length(source: &Source) -> Option<Finding> {
    let total = source.text.lines().count();
    let lines = (1..=total).filter(|line| !source.is_test(*line)).count();
    let what = format!("{lines} lines without tests, more than {FILE_LINES_MAX}");
    let finding = Finding::failure(&source.path, 1, what, "split it along its parts");
    (lines > FILE_LINES_MAX).then_some(finding)
}

fn function_lengths(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for function in &source.functions {
        // A long list of patterns for one arm is a table, and a reader reads it as one line.
        let body = source.text.lines().skip(function.body_from).take(function.body_lines);
        let lines = body.filter(|line| !line.trim_start().starts_with("| ")).count();
        let what = format!("`{}` is {lines} lines long", function.name);
        let advice = "give its parts names";
        if lines > FUNCTION_LINES_MAX {
            found.push(Finding::failure(&source.path, function.line, what, advice));
        } else if lines > FUNCTION_LINES_WARNED {
            found.push(Finding::warning(&source.path, function.line, what, advice));
        }
    }
    found
}

/// `lib.rs` and `mod.rs` are tables of contents.
fn contents_page(source: &Source) -> Vec<Finding> {
    let is_contents = source.path.ends_with("/lib.rs") || source.path.ends_with("/mod.rs");
    if !is_contents || source.is_test(1) {
        return Vec::new();
    }
    let is_listing =
        |keyword: &str, has_body: bool| matches!(keyword, "mod" | "use" | "extern") && !has_body;
    let strangers = source.items.iter().filter(|item| !is_listing(&item.keyword, item.has_body));
    strangers
        .map(|item| {
            let what = format!("`{}` in a table of contents", item.keyword);
            let advice = "lib.rs and mod.rs hold docs, `mod` and `use` only: move it to its module";
            Finding::failure(&source.path, item.line, what, advice)
        })
        .collect()
}

/// Every file begins with what it is for.
fn opening(source: &Source) -> Option<Finding> {
    let first = source.text.lines().find(|line| !line.trim().is_empty());
    let is_documented = first.is_none_or(|line| line.starts_with("//!"));
    let is_self_evident = source.text.lines().count() <= SELF_EVIDENT_LINES_MAX;
    let advice = "say in its first lines what it is for";
    let finding = Finding::failure(&source.path, 1, "does not start with `//!`", advice);
    (!is_documented && !is_self_evident).then_some(finding)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Weight;
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<(usize, Weight)> {
        let source = Source::parse(path, text).unwrap();
        check(&source).iter().map(|finding| (finding.line, finding.weight)).collect()
    }

    const PATH: &str = "crates/store/src/x.rs";
    const NOTHING: [(usize, Weight); 0] = [];

    #[test]
    fn long_files_fail_but_their_tests_do_not_count() {
        let code = |lines| format!("//! Doc.\n{}", "const A: u8 = 1;\n".repeat(lines));
        assert_eq!(findings(PATH, &code(799)), NOTHING);
        assert_eq!(findings(PATH, &code(800)), [(1, Weight::Failure)]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const A: u8 = 1;\n".repeat(500));
        assert_eq!(findings(PATH, &(code(799) + &tests)), NOTHING);
    }

    #[test]
    fn long_functions_are_warned_of_and_then_fail() {
        let function = |lines| format!("//! Doc.\nfn f() {{\n{}}}\n", "a();\n".repeat(lines));
        assert_eq!(findings(PATH, &function(70)), NOTHING);
        assert_eq!(findings(PATH, &function(71)), [(2, Weight::Warning)]);
        assert_eq!(findings(PATH, &function(101)), [(2, Weight::Failure)]);
        let table = "x => a(),\n".to_owned() + &"    | B\n".repeat(200);
        assert_eq!(
            findings(PATH, &format!("//! Doc.\nfn f() {{\nmatch x {{\n{table}=> {{}}\n}}\n}}\n")),
            NOTHING
        );
    }

    #[test]
    fn a_contents_page_lists_and_does_nothing() {
        let text = "//! Doc.\n#![forbid(unsafe_code)]\nmod a;\npub mod b;\npub use a::{C, D};\n";
        let path = "crates/store/src/lib.rs";
        assert_eq!(findings(path, text), NOTHING);
        for code in
            ["pub fn f() {}", "struct A;", "mod c { fn f() {} }", "macro_rules! m { () => {} }"]
        {
            assert_eq!(
                findings(path, &format!("{text}{code}\n")),
                [(6, Weight::Failure)],
                "{code}"
            );
            assert_eq!(findings(PATH, &format!("{text}{code}\n")), NOTHING, "{code}");
        }
        assert_eq!(findings("crates/store/tests/common/mod.rs", "//! Doc.\nfn f() {}\n"), NOTHING);
    }

    #[test]
    fn files_say_what_they_are_for() {
        assert_eq!(findings(PATH, "use a::b;\nfn f() {}\n"), [(1, Weight::Failure)]);
        assert_eq!(findings(PATH, "//! Doc.\nuse a::b;\nfn f() {}\n"), NOTHING);
        assert_eq!(findings(PATH, "fn main() {}\n"), NOTHING);
    }
}
