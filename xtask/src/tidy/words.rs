//! Words that do not belong where they stand: unfinished work, SQL far from the store, tests that
//! sleep or do not run.

use super::finding::Finding;
use super::purity::mentions;
use super::source::Source;

const UNFINISHED_MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// In two parts, so that this file does not find itself.
const UNFINISHED_MARKS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];

const SLEEPS: [&str; 3] = ["thread::sleep", "time::sleep", "time::sleep_until"];

/// How statements begin. People may read SQL in a help text, but nobody else may send any.
const STATEMENTS: [&str; 14] = [
    "ALTER TABLE",
    "BEGIN IMMEDIATE",
    "CREATE INDEX",
    "CREATE TABLE",
    "CREATE UNIQUE",
    "CREATE VIEW",
    "DELETE FROM",
    "DROP ",
    "INSERT ",
    "LISTEN ",
    "PRAGMA ",
    "SELECT ",
    "UPDATE ",
    "WITH RECURSIVE",
];

pub fn check(source: &Source) -> Vec<Finding> {
    let mut found = unfinished(source);
    found.extend(sql(source));
    found.extend(tests(source));
    found
}

fn unfinished(source: &Source) -> Vec<Finding> {
    let advice = "finish it, or open an issue and say here what is not supported";
    let is_unfinished = |name: &str| UNFINISHED_MACROS.iter().any(|word| mentions(name, word));
    let macros = source.names.iter().filter(|spot| is_unfinished(&spot.text));
    let mut found: Vec<Finding> = macros
        .map(|spot| Finding::failure(&source.path, spot.line, format!("`{}`", spot.text), advice))
        .collect();
    for (at, line) in source.text.lines().enumerate() {
        let mut words = line.split(|letter: char| !letter.is_alphanumeric());
        if let Some(mark) = words.find(|word| UNFINISHED_MARKS.contains(word)) {
            found.push(Finding::failure(&source.path, at + 1, format!("`{mark}`"), advice));
        }
    }
    found
}

/// Tests may look into the tables as a person would.
fn sql(source: &Source) -> Vec<Finding> {
    if source.is_of_crate("store") || source.path.starts_with("xtask/") {
        return Vec::new();
    }
    let is_sql = |text: &str| STATEMENTS.iter().any(|start| text.trim_start().starts_with(start));
    let texts = source.strings.iter().filter(|spot| !source.is_test(spot.line));
    texts
        .filter(|spot| is_sql(&spot.text))
        .map(|spot| {
            let advice = "only `store` knows tables: give it a function with a name";
            Finding::failure(&source.path, spot.line, "SQL outside of `store`", advice)
        })
        .collect()
}

fn tests(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for spot in source.attributes.iter().filter(|spot| spot.text == "ignore") {
        let advice = "say why: #[ignore = \"…\"]";
        found.push(Finding::failure(&source.path, spot.line, "a test that never runs", advice));
    }
    for spot in source.names.iter().filter(|spot| source.is_test(spot.line)) {
        if SLEEPS.iter().any(|sleep| mentions(&spot.text, sleep)) {
            let what = format!("`{}` in a test", spot.text);
            let advice = "wait for the event itself; a sleep is slow, or flaky, or both";
            found.push(Finding::failure(&source.path, spot.line, what, advice));
        }
    }
    found
}

/// Over a test of the dashboard.
pub fn check_web_test(path: &str, text: &str) -> Vec<Finding> {
    let rules = [
        (".skip(", "make it pass, or remove it and say why in the commit"),
        (".only(", "it keeps all other tests of the file from running"),
        ("waitForTimeout", "wait for what should appear; a pause is slow, or flaky, or both"),
    ];
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for (word, advice) in rules.iter().filter(|(word, _)| line.contains(word)) {
            found.push(Finding::failure(path, at + 1, format!("`{word}` in a test"), advice));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let source = Source::parse(path, text).unwrap();
        check(&source).iter().map(|finding| finding.line).collect()
    }

    const CODE: &str = "crates/server/src/x.rs";
    const TEST: &str = "crates/server/tests/x.rs";
    const NOWHERE: [usize; 0] = [];

    #[test]
    fn unfinished_work_is_found_in_code_and_comments() {
        assert_eq!(lines(CODE, "fn f() {\n    todo!()\n}"), [2]);
        assert_eq!(lines(CODE, "fn f() { std::unimplemented!(\"later\") }"), [1]);
        assert_eq!(lines(TEST, "fn f() { dbg!(1); }"), [1]);
        assert_eq!(lines(CODE, &format!("// {}: later", UNFINISHED_MARKS[0])), [1]);
        assert_eq!(lines(CODE, &format!("// {}", UNFINISHED_MARKS[1])), [1]);
        assert_eq!(
            lines(CODE, "// A todo! in prose.\nfn todo() {}\nconst A: &str = \"todo!()\";"),
            NOWHERE
        );
    }

    #[test]
    fn sql_stays_in_the_store() {
        let text =
            "const A: &str = \"SELECT * FROM tasks\";\nconst B: &str = r#\"\n  INSERT INTO x\"#;";
        assert_eq!(lines(CODE, text), [1, 2]);
        assert_eq!(lines("crates/store/src/x.rs", text), NOWHERE);
        assert_eq!(lines(TEST, text), NOWHERE);
        assert_eq!(lines(CODE, "/// SELECT 1\nconst A: &str = \"try: SELECT 1\";"), NOWHERE);
    }

    #[test]
    fn tests_run_and_do_not_sleep() {
        assert_eq!(lines(TEST, "#[test]\n#[ignore]\nfn f() {}"), [2]);
        assert_eq!(lines(TEST, "#[test]\n#[ignore = \"needs a key\"]\nfn f() {}"), NOWHERE);
        assert_eq!(lines(TEST, "fn f() { std::thread::sleep(TEN_MS); }"), [1]);
        assert_eq!(lines(TEST, "use tokio::time::{sleep, timeout};"), [1]);
        let inside =
            "#[cfg(test)]\nmod tests {\n    use std::thread;\n    fn f() { thread::sleep(A); }\n}";
        assert_eq!(lines(CODE, inside), [4]);
        assert_eq!(lines(CODE, "async fn f() { tokio::time::sleep(BACKOFF).await; }"), NOWHERE);
    }

    #[test]
    fn web_tests_run_and_do_not_pause() {
        let lines = |text| -> Vec<usize> {
            check_web_test("web/e2e/x.mjs", text).iter().map(|finding| finding.line).collect()
        };
        assert_eq!(
            lines("ok();\ntest.skip('x');\nawait page.waitForTimeout(5);\nit.only('y');"),
            [2, 3, 4]
        );
        assert_eq!(lines("await page.waitForSelector('#x'); // no skip here"), NOWHERE);
    }
}
