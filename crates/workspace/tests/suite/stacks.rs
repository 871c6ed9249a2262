//! What is found in small sample trees.

use kapelle_core::policy::Parser;
use kapelle_workspace::stacks::{Stack, detect};
use tempfile::TempDir;

use crate::fixture::write;

/// A tree of files, each `path` or `path: content`.
fn found(files: &[&str]) -> Vec<Stack> {
    let dir = TempDir::new().unwrap();
    for file in files {
        let (path, text) = file.split_once(": ").unwrap_or((file, ""));
        write(&dir.path().join(path), text);
    }
    detect(dir.path())
}

/// Name, command, parser and report of each check.
fn checks(files: &[&str]) -> Vec<(String, String, Parser, Option<String>)> {
    let of = |stack: Stack| {
        let check = stack.check;
        (check.name, check.command, check.parser, check.report)
    };
    found(files).into_iter().map(of).collect()
}

/// The one check of a tree.
fn check(files: &[&str]) -> (String, Parser, Option<String>) {
    match <[_; 1]>::try_from(checks(files)) {
        Ok([(name, command, parser, report)]) => {
            assert_eq!(name, "test");
            (command, parser, report)
        }
        Err(other) => panic!("{files:?}: {other:?}"),
    }
}

#[test]
fn each_stack_has_its_command_and_its_parser() {
    let junit =
        |command: &str, report: &str| (command.to_owned(), Parser::Junit, Some(report.to_owned()));
    let plain = |command: &str, parser| (command.to_owned(), parser, None);
    assert_eq!(check(&["Cargo.toml"]), plain("cargo test --offline --no-fail-fast", Parser::Cargo));
    assert_eq!(check(&["go.mod"]), plain("go test -json ./...", Parser::Go));
    let pytest = "python3 -m pytest --junitxml=kapelle-junit.xml";
    for python in [
        &["pyproject.toml: [tool.pytest.ini_options]"][..],
        &["setup.py", "tests/test_a.py"],
        &["requirements.txt: pytest==9\n"],
        &["setup.cfg", "conftest.py"],
    ] {
        assert_eq!(check(python), junit(pytest, "kapelle-junit.xml"), "{python:?}");
    }
    assert_eq!(check(&["setup.py"]), plain("python3 -m unittest", Parser::ExitCode));
    let surefire = "**/target/surefire-reports/TEST-*.xml";
    assert_eq!(check(&["pom.xml"]), junit("mvn --batch-mode --offline test", surefire));
    assert_eq!(check(&["pom.xml", "mvnw"]), junit("./mvnw --batch-mode --offline test", surefire));
    let results = "**/build/test-results/**/*.xml";
    assert_eq!(
        check(&["build.gradle.kts", "gradlew"]),
        junit("./gradlew --offline --no-daemon test", results)
    );
    assert_eq!(check(&["settings.gradle"]), junit("gradle --offline --no-daemon test", results));
    let dotnet = "dotnet test --logger trx --results-directory TestResults";
    let trx = (dotnet.to_owned(), Parser::Trx, Some("TestResults/**/*.trx".to_owned()));
    assert_eq!(check(&["Shop.sln", "Shop/Shop.csproj"]), trx);
    assert_eq!(
        check(&["Makefile: all:\n\ntest: all\n\tsh t\n"]),
        plain("make test", Parser::ExitCode)
    );
}

#[test]
fn node_has_many_ways_to_test() {
    let package = |text: &str| format!("package.json: {text}");
    let jest = package(r#"{"devDependencies": {"jest": "29"}, "scripts": {"test": "jest"}}"#);
    let report = Some("kapelle-jest.json".to_owned());
    let run = "npx --no-install jest --json --outputFile=kapelle-jest.json";
    for (lock, install) in [
        ("package-lock.json", "npm ci --offline --ignore-scripts && "),
        ("pnpm-lock.yaml", "pnpm install --offline --frozen-lockfile --ignore-scripts && "),
        ("yarn.lock", "yarn install --offline --frozen-lockfile --ignore-scripts && "),
        ("README", ""),
    ] {
        let expected = (format!("{install}{run}"), Parser::Jest, report.clone());
        assert_eq!(check(&[&jest, lock]), expected);
    }
    let vitest = package(r#"{"devDependencies": {"vitest": "4"}}"#);
    let (command, parser, _) = check(&[&vitest]);
    assert!(command.contains("vitest run --reporter=json"), "{command}");
    assert_eq!(parser, Parser::Jest);
    let node = package(r#"{"scripts": {"test": "node --test test/"}}"#);
    let expected = ("node --test --test-reporter=tap test/".to_owned(), Parser::Tap, None);
    assert_eq!(check(&[&node, "package-lock.json"]), expected, "nothing to install");
    let other = package(r#"{"scripts": {"test": "mocha"}, "devDependencies": {"mocha": "1"}}"#);
    assert_eq!(check(&[&other]), ("npm test".to_owned(), Parser::ExitCode, None));
    for none in
        [r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#, "{}", "no json"]
    {
        assert_eq!(found(&[&package(none)]), []);
    }
}

#[test]
fn several_stacks_live_in_one_repository() {
    let files = [
        "Cargo.toml",
        "crates/core/Cargo.toml",
        "web/package.json: {\"devDependencies\": {\"vitest\": \"4\"}}",
        "web/node_modules/a/package.json: {\"devDependencies\": {\"jest\": \"1\"}}",
        "tools/one/go.mod",
        "tools/two/go.mod",
        "target/package/b/Cargo.toml",
        "Makefile: test:\n",
    ];
    let names: Vec<(String, Option<String>)> =
        checks(&files).into_iter().map(|(name, _, _, report)| (name, report)).collect();
    let report = Some("web/kapelle-jest.json".to_owned());
    let expected = [
        ("test-rust".to_owned(), None),
        ("test-go-tools-one".to_owned(), None),
        ("test-go-tools-two".to_owned(), None),
        ("test-node".to_owned(), report),
    ];
    assert_eq!(names, expected);
    let stacks = found(&files);
    assert!(stacks[1].check.command.starts_with("cd tools/one && go test"));
    assert_eq!(stacks[1].tests, ["tools/one/**/*_test.go"]);
}

#[test]
fn a_tree_without_tests_has_no_checks() {
    assert_eq!(found(&["README.md", "src/a.c", "a/b/c/d/e/go.mod", ".hidden/go.mod"]), []);
    assert_eq!(found(&["Makefile: all:\n"]), []);
    assert_eq!(detect(std::path::Path::new("/nowhere/at/all")), []);
}
