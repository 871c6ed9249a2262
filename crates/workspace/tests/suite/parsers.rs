//! Parsers against what real tools wrote (see `tests/recordings/README.md`), and against bytes
//! that no tool would write.

use kapelle_core::limits;
use kapelle_core::outcome::{Counts, Coverage, Ended, Outcome, Severity};
use kapelle_core::policy::Parser;
use kapelle_workspace::check::parse::{self, Unreadable, parse};
use proptest::prelude::*;

/// Every recording, with its parser.
const RECORDINGS: [(Parser, &str); 18] = [
    (Parser::Cargo, "cargo-test.txt"),
    (Parser::Cargo, "cargo-test-broken.txt"),
    (Parser::Nextest, "libtest.jsonl"),
    (Parser::Pytest, "pytest.txt"),
    (Parser::Pytest, "pytest-plain.txt"),
    (Parser::Pytest, "pytest-broken.txt"),
    (Parser::Junit, "pytest-junit.xml"),
    (Parser::Junit, "pytest-broken-junit.xml"),
    (Parser::Junit, "node-junit.xml"),
    (Parser::Tap, "node.tap"),
    (Parser::Jest, "jest.json"),
    (Parser::Jest, "jest-broken.json"),
    (Parser::Go, "go-test.jsonl"),
    (Parser::Go, "go-test-broken.jsonl"),
    (Parser::Lcov, "jest-cov.lcov"),
    (Parser::Cobertura, "jest-cov-cobertura.xml"),
    (Parser::Sarif, "bandit.sarif"),
    (Parser::Lizard, "lizard.csv"),
];

fn recording(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/recordings/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn read(parser: Parser, name: &str) -> Outcome {
    parse(parser, &recording(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn counts(passed: u32, failed: u32, skipped: u32) -> Counts {
    Counts { passed, failed, skipped, flaky: 0 }
}

/// The names of the failures, each with the first line of its message.
fn failures(outcome: &Outcome) -> Vec<(&str, &str)> {
    let first = |message| -> &str { str::lines(message).next().unwrap_or_default() };
    outcome.failures().map(|(name, test)| (name, first(&test.message))).collect()
}

fn broken(outcome: &Outcome) -> Vec<&str> {
    outcome.broken.iter().map(|broken| broken.place.as_str()).collect()
}

#[test]
fn cargo_test_names_its_tests() {
    let outcome = read(Parser::Cargo, "cargo-test.txt");
    assert_eq!(outcome.counts, counts(3, 3, 1));
    let expected = [
        ("gives_an_error", "Error: \"no such basket\""),
        ("tests::does_not_panic", "note: test did not panic as expected at src/lib.rs:13:32"),
        ("tests::wrong", "said before"),
    ];
    assert_eq!(failures(&outcome), expected);
    let wrong = &outcome.tests["tests::wrong"].message;
    assert!(wrong.contains("left: 3") && !wrong.contains("backtrace:"), "{wrong}");
    assert_eq!(outcome.ended("tests::ignored"), Some(Ended::Skipped));
    assert_eq!((outcome.unnamed, outcome.duration_ms), (0, Some(170)));
    assert_eq!(broken(&outcome), Vec::<&str>::new());
}

/// A red phase may state that something is missing; the message has to name it.
#[test]
fn code_that_does_not_compile_is_told_apart_from_a_failing_test() {
    let cases = [
        (Parser::Cargo, "cargo-test-broken.txt", "`shop` (lib test)", "`subtract`"),
        (Parser::Pytest, "pytest-broken.txt", "tests/test_broken.py", "'subtract'"),
        (Parser::Junit, "pytest-broken-junit.xml", "tests.test_broken", "'subtract'"),
        (Parser::Jest, "jest-broken.json", "/sample/more/broken.test.js", "'./missing'"),
        (
            Parser::Go,
            "go-test-broken.jsonl",
            "example.org/shop/broken [example.org/shop/broken.test]",
            "shop.Subtract",
        ),
    ];
    for (parser, name, place, mention) in cases {
        let outcome = read(parser, name);
        assert_eq!(broken(&outcome), [place], "{name}");
        assert!(outcome.broken[0].message.contains(mention), "{name}: {outcome:?}");
        assert!(!outcome.is_clean());
    }
}

#[test]
fn a_crashed_test_program_is_not_a_pass() {
    let text = "     Running tests/api.rs (target/debug/deps/api-1)\n\nrunning 2 tests\n\
        test a ... ok\nerror: test failed, to rerun pass `--test api`\n\nCaused by:\n  \
        process didn't exit successfully (signal: 11, SIGSEGV: invalid memory reference)\n";
    let outcome = parse(Parser::Cargo, text.as_bytes()).unwrap();
    assert_eq!((outcome.counts, broken(&outcome)), (counts(1, 0, 0), vec!["tests/api.rs"]));
    let json = "{\"type\":\"suite\",\"event\":\"started\",\"test_count\":2}\n\
        {\"type\":\"test\",\"name\":\"a\",\"event\":\"ok\"}\n";
    let outcome = parse(Parser::Nextest, json.as_bytes()).unwrap();
    assert_eq!(broken(&outcome), ["suite"]);
}

#[test]
fn tests_that_print_on_their_own_line_are_read() {
    let text = "running 2 tests\ntest loud ... hello\nok\ntest quiet ... ok\n\n\
        test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
    let outcome = parse(Parser::Cargo, text.as_bytes()).unwrap();
    assert_eq!(outcome.ended("loud"), Some(Ended::Passed));
    assert_eq!((outcome.counts.passed, outcome.unnamed), (3, 1), "one was counted, not named");
}

#[test]
fn libtest_lines_say_the_same_as_the_text() {
    let text = read(Parser::Cargo, "cargo-test.txt");
    let json = read(Parser::Nextest, "libtest.jsonl");
    assert_eq!(json.counts, text.counts);
    let ends = |outcome: &Outcome| -> Vec<(String, Ended)> {
        outcome.tests.iter().map(|(name, test)| (name.clone(), test.ended)).collect()
    };
    assert_eq!(ends(&json), ends(&text));
}

/// After the documentation of nextest: the name carries the binary, and the number of the try.
#[test]
fn a_pass_at_the_second_try_of_nextest_is_flaky() {
    let lines = "{\"type\":\"suite\",\"event\":\"started\",\"test_count\":2}\n\
        {\"type\":\"test\",\"event\":\"ok\",\"name\":\"shop::api$adds#2\",\"exec_time\":0.0125}\n\
        {\"type\":\"test\",\"event\":\"failed\",\"name\":\"shop::api$wrong#3\",\"stdout\":\"no\"}\n\
        {\"type\":\"suite\",\"event\":\"failed\",\"passed\":1,\"failed\":1,\"exec_time\":0.5}\n";
    let outcome = parse(Parser::Nextest, lines.as_bytes()).unwrap();
    assert_eq!(outcome.ended("shop::api$adds"), Some(Ended::Flaky));
    assert_eq!(failures(&outcome), [("shop::api$wrong", "no")]);
    assert_eq!(outcome.tests["shop::api$adds"].duration_ms, Some(13));
    assert_eq!((outcome.counts.flaky, outcome.duration_ms), (1, Some(500)));
}

const PYTEST_FAILURES: [(&str, &str); 3] = [
    ("tests/test_shop.py::test_basket", "RuntimeError: no basket"),
    ("tests/test_shop.py::test_sign[-3]", "assert -1 == 1"),
    ("tests/test_shop.py::test_wrong", "AssertionError: sum of <1> & \"2\""),
];

#[test]
fn pytest_is_read_with_and_without_names() {
    let verbose = read(Parser::Pytest, "pytest.txt");
    assert_eq!(verbose.counts, counts(4, 3, 2));
    assert_eq!(failures(&verbose), PYTEST_FAILURES);
    assert_eq!((verbose.tests.len(), verbose.unnamed, verbose.duration_ms), (9, 0, Some(80)));
    let plain = read(Parser::Pytest, "pytest-plain.txt");
    assert_eq!(plain.counts, verbose.counts);
    assert_eq!(failures(&plain), PYTEST_FAILURES);
    assert_eq!((plain.tests.len(), plain.unnamed), (3, 6));
}

#[test]
fn pytest_with_workers_and_with_strange_parameters() {
    let text = "[gw0] [ 50%] PASSED tests/a.py::test_x[a - b] \n\
        [gw1] [100%] FAILED tests/a.py::test_y[c d] \n\
        FAILED tests/a.py::test_y[c d] - assert 1 == 2\n\
        ===== 1 failed, 1 passed in 0.50s =====\n";
    let outcome = parse(Parser::Pytest, text.as_bytes()).unwrap();
    assert_eq!(outcome.counts, counts(1, 1, 0));
    assert_eq!(failures(&outcome), [("tests/a.py::test_y[c d]", "assert 1 == 2")]);
    assert_eq!(outcome.ended("tests/a.py::test_x[a - b]"), Some(Ended::Passed));
}

#[test]
fn junit_of_pytest_says_the_same_as_its_output() {
    let outcome = read(Parser::Junit, "pytest-junit.xml");
    assert_eq!(outcome.counts, counts(4, 3, 2));
    let expected = [
        ("tests.test_shop.test_basket", "failed on setup with \"RuntimeError: no basket\""),
        ("tests.test_shop.test_sign[-3]", "assert -1 == 1"),
        ("tests.test_shop.test_wrong", "AssertionError: sum of <1> & \"2\""),
    ];
    assert_eq!(failures(&outcome), expected);
    assert_eq!(outcome.tests["tests.test_shop.test_wrong"].duration_ms, Some(2));
}

/// After the schema of surefire and the manual of nextest.
#[test]
fn a_test_that_passed_when_maven_tried_again_is_flaky() {
    let xml = br#"<?xml version="1.0" encoding="UTF-8"?>
        <testsuite name="ShopTest" tests="3"><properties><property name="a" value="b"/></properties>
        <testcase name="adds" classname="org.ShopTest" time="0.001"/>
        <testcase name="shaky" classname="org.ShopTest" time="1,5">
          <flakyFailure message="once" type="E"><stackTrace><![CDATA[at <x>]]></stackTrace></flakyFailure>
        </testcase>
        <testcase name="bad" classname="org.ShopTest">
          <failure type="E"><![CDATA[boom <here>]]></failure><rerunFailure message="again"/>
          <system-out>printed</system-out>
        </testcase></testsuite>"#;
    let outcome = parse(Parser::Junit, xml).unwrap();
    assert_eq!(outcome.counts, Counts { passed: 2, failed: 1, skipped: 0, flaky: 1 });
    assert_eq!(outcome.ended("org.ShopTest.shaky"), Some(Ended::Flaky));
    assert_eq!(outcome.tests["org.ShopTest.shaky"].duration_ms, None, "not a number");
    assert_eq!(failures(&outcome), [("org.ShopTest.bad", "boom <here>")]);
}

#[test]
fn node_says_the_same_in_both_of_its_formats() {
    let tap = read(Parser::Tap, "node.tap");
    assert_eq!(tap.counts, counts(2, 2, 2));
    assert_eq!(failures(&tap), [("group > inner fails", "boom"), ("wrong", "sum of <1> & \"2\"")]);
    assert_eq!(tap.ended("group > inner # 1"), Some(Ended::Passed));
    assert_eq!(tap.tests["adds"].duration_ms, Some(1));
    let junit = read(Parser::Junit, "node-junit.xml");
    assert_eq!(junit.counts, tap.counts);
    assert_eq!(junit.ended("test.inner fails"), Some(Ended::Failed));
}

/// A run that is cut short prints only passes.
#[test]
fn a_protocol_that_ends_too_early_is_not_a_pass() {
    let short = |text: &str| broken(&parse(Parser::Tap, text.as_bytes()).unwrap()).len();
    assert_eq!(short("1..3\nok 1\nok 2\n"), 1);
    assert_eq!(short("ok 1 - a\n"), 1, "no plan");
    assert_eq!(short("1..2\nok 1\nBail out! no database\n"), 2);
    assert_eq!(short("1..2\nok 1\nok 2\n"), 0);
    assert_eq!(short("1..0 # skipped\n"), 0);
    let named = parse(Parser::Tap, b"1..2\nnot ok\nok 2 - b # skip\n").unwrap();
    assert_eq!(failures(&named), [("test 1", "")]);
    assert_eq!(named.ended("b"), Some(Ended::Skipped));
}

#[test]
fn jest_is_read_from_its_file_and_from_between_other_lines() {
    let outcome = read(Parser::Jest, "jest.json");
    assert_eq!(outcome.counts, counts(2, 1, 2));
    let message = "Error: expect(received).toBe(expected) // Object.is equality";
    assert_eq!(failures(&outcome), [("add wrong", message)]);
    assert_eq!(outcome.tests["add adds"].duration_ms, Some(3));
    let mut noisy = b"> jest --json\n{not it}\n".to_vec();
    noisy.extend(recording("jest.json"));
    noisy.extend(b"\nnpm notice\n");
    assert_eq!(parse(Parser::Jest, &noisy).unwrap(), outcome);
}

#[test]
fn go_names_tests_by_package() {
    let outcome = read(Parser::Go, "go-test.jsonl");
    assert_eq!(outcome.counts, counts(2, 3, 1));
    let expected = [
        ("example.org/shop.TestTable", ""),
        ("example.org/shop.TestTable/two_words", "shop_test.go:20: fails here"),
        ("example.org/shop.TestWrong", "shop_test.go:12: said before"),
    ];
    assert_eq!(failures(&outcome), expected);
    assert_eq!(outcome.broken, [], "its failing package is explained by its tests");
}

/// Before go 1.24 the compiler's errors stood beside the events.
#[test]
fn an_older_go_that_cannot_build_is_understood() {
    let text = "# example.org/shop/broken\nbroken/b_test.go:5:33: undefined: shop.Subtract\n\
        {\"Action\":\"start\",\"Package\":\"p\"}\n\
        {\"Action\":\"output\",\"Package\":\"p\",\"Output\":\"FAIL\\tp [build failed]\\n\"}\n\
        {\"Action\":\"fail\",\"Package\":\"p\",\"Elapsed\":0}\n";
    let outcome = parse(Parser::Go, text.as_bytes()).unwrap();
    assert_eq!(broken(&outcome), ["p"]);
    assert!(outcome.broken[0].message.contains("shop.Subtract"), "{outcome:?}");
}

/// After the documentation of `dotnet test --logger trx`.
#[test]
fn results_of_dotnet_are_read() {
    let xml = br#"<?xml version="1.0" encoding="utf-8"?>
        <TestRun xmlns="http://microsoft.com/schemas/VisualStudio/TeamTest/2010"><Results>
        <UnitTestResult testName="Shop.Adds" outcome="Passed" duration="00:00:00.0123000" />
        <UnitTestResult testName="Shop.Wrong" outcome="Failed" duration="00:00:01.0000000"><Output>
        <ErrorInfo><Message>Expected: 4&#xD;&#xA;But was: 3 &lt;3&gt;</Message><StackTrace>at Shop</StackTrace>
        </ErrorInfo></Output></UnitTestResult>
        <UnitTestResult testName="Shop.Later" outcome="NotExecuted" />
        </Results><ResultSummary outcome="Failed"><RunInfos><RunInfo outcome="Error">
        <Text>host crashed</Text></RunInfo></RunInfos></ResultSummary></TestRun>"#;
    let outcome = parse(Parser::Trx, xml).unwrap();
    assert_eq!((outcome.counts, outcome.duration_ms), (counts(1, 1, 1), Some(1_012)));
    assert_eq!(failures(&outcome), [("Shop.Wrong", "Expected: 4")]);
    assert_eq!(broken(&outcome), ["test run"]);
}

#[test]
fn coverage_is_the_same_in_both_formats() {
    let covered = |lines_covered, lines, branches_covered, branches| Coverage {
        lines_covered,
        lines,
        branches_covered,
        branches,
    };
    for (name, expected) in [
        ("jest-cov.lcov", covered(2, 2, 1, 2)),
        ("jest-cov-cobertura.xml", covered(2, 2, 1, 2)),
        ("pytest-cov.lcov", covered(6, 6, 2, 2)),
        ("pytest-cov-cobertura.xml", covered(6, 6, 2, 2)),
    ] {
        assert_eq!(parse::coverage(&recording(name)).unwrap().coverage, Some(expected), "{name}");
    }
}

#[test]
fn findings_have_severities_and_places() {
    let findings = read(Parser::Sarif, "bandit.sarif").findings.unwrap();
    assert_eq!((findings.from(Severity::Low), findings.from(Severity::High)), (3, 1));
    let worst = &findings.worst[0];
    assert_eq!((worst.rule.as_str(), worst.file.as_str(), worst.line), ("B602", "risky.py", 4));
    let scored = br#"{"runs": [{"tool": {"driver": {"rules": [
        {"id": "a", "properties": {"security-severity": "9.8"}}]}}, "results": [
        {"ruleId": "a", "level": "note", "message": {"text": "m"}},
        {"ruleId": "b", "suppressions": [{"kind": "external"}]},
        {"ruleId": "c", "suppressions": [{"kind": "inSource"}]}]}]}"#;
    let findings = parse(Parser::Sarif, scored).unwrap().findings.unwrap();
    let found: Vec<(Severity, &str)> =
        findings.worst.iter().map(|finding| (finding.severity, finding.rule.as_str())).collect();
    assert_eq!(found, [(Severity::Critical, "a"), (Severity::Medium, "c")]);
    let clean = parse(Parser::Sarif, br#"{"runs": [{"results": []}]}"#).unwrap();
    assert_eq!(clean.findings.unwrap().from(Severity::Low), 0, "a scan that found nothing");
}

#[test]
fn complexity_is_read_from_lizard() {
    let complexity = read(Parser::Lizard, "lizard.csv").complexity.unwrap();
    let worst = &complexity.worst[0];
    assert_eq!(complexity.functions, 5);
    assert_eq!((worst.name.as_str(), worst.cyclomatic), ("sign", 3));
    assert_eq!((worst.file.as_str(), worst.line), ("shop.py", 3));
}

/// Silence is not a pass: a report without a single test was not written by a run of tests.
#[test]
fn a_report_that_says_nothing_is_unreadable() {
    for parser in Parser::ALL {
        for text in ["", "\n", "hello\n", "<html/>", "[]", "{}", "<testsuite/>", "{}\n{}\n"] {
            let read = parse(parser, text.as_bytes());
            assert_eq!(read.is_ok(), parser == Parser::ExitCode, "{parser} {text:?}: {read:?}");
        }
    }
}

#[test]
fn size_and_depth_have_limits() {
    let huge = vec![b' '; parse::REPORT_BYTES_MAX + 1];
    let (bytes, limit) = (huge.len(), parse::REPORT_BYTES_MAX);
    assert_eq!(parse(Parser::Junit, &huge), Err(Unreadable::TooLarge { bytes, limit }));
    let deep = format!("<testsuites>{}", "<testsuite>".repeat(100_000));
    assert_eq!(parse(Parser::Junit, deep.as_bytes()), Err(Unreadable::TooDeep { limit: 100 }));
    let nested = "[".repeat(1_000_000);
    let nested = format!("{{\"runs\": {nested}");
    assert!(matches!(parse(Parser::Sarif, nested.as_bytes()), Err(Unreadable::Malformed { .. })));
}

/// An entity that stands for ten others, ten times over, is the classic way to fill a memory.
#[test]
fn entities_do_not_grow() {
    let xml = b"<!DOCTYPE t [<!ENTITY a \"xxxxxxxxxx\"><!ENTITY b \"&a;&a;&a;&a;\">]>\
        <testsuite><testcase name=\"n&b;\"><failure>&b;</failure></testcase></testsuite>";
    let outcome = parse(Parser::Junit, xml).unwrap();
    let (name, test) = outcome.tests.first_key_value().unwrap();
    assert!(name.len() < 10 && test.message.len() < 10, "{outcome:?}");
}

/// Finding the message of each of many failures must not cost the square of their number.
#[test]
fn a_hundred_thousand_failures_are_read_and_counted() {
    let (mut text, mut sections) = ("running 100000 tests\n".to_owned(), String::new());
    for number in 0..100_000 {
        text.push_str(&format!("test t{number} ... FAILED\n"));
        sections.push_str(&format!("---- t{number} stdout ----\nno {number}\n\n"));
    }
    text.push_str(&format!("\nfailures:\n\n{sections}\nfailures:\n"));
    text.push_str("test result: FAILED. 0 passed; 100000 failed; 0 ignored; finished in 0.01s\n");
    let outcome = parse(Parser::Cargo, text.as_bytes()).unwrap();
    assert_eq!((outcome.counts.failed, outcome.tests["t7"].message.as_str()), (100_000, "no 7"));
    assert!(is_bounded(&outcome));
}

/// Many attributes must not cost the square of their number.
#[test]
fn a_million_attributes_are_read_once() {
    let attributes: String = (0..300_000).map(|number| format!(" a{number}='1'")).collect();
    let xml = format!("<testsuite><testcase{attributes} name='n'/></testsuite>");
    assert_eq!(parse(Parser::Junit, xml.as_bytes()).unwrap().ended("n"), Some(Ended::Passed));
}

fn is_bounded(outcome: &Outcome) -> bool {
    let named = limits::TESTS_NAMED_MAX + limits::FAILURES_NAMED_MAX;
    let short = |text: &str, max| text.chars().count() <= max;
    outcome.tests.len() <= named
        && outcome.broken.len() <= limits::BREAKAGES_MAX
        && outcome.tests.iter().all(|(name, test)| {
            short(name, limits::TEST_NAME_CHARS_MAX)
                && short(&test.message, limits::TEST_MESSAGE_CHARS_MAX)
        })
        && outcome.broken.iter().all(|broken| {
            short(&broken.place, limits::TEST_NAME_CHARS_MAX)
                && short(&broken.message, limits::TEST_MESSAGE_CHARS_MAX)
        })
}

/// A change to a recording: cut, doubled, or with other bytes in it.
fn mutated(mut bytes: Vec<u8>, changes: &[(usize, u8, u8)]) -> Vec<u8> {
    for (place, how, byte) in changes {
        if bytes.is_empty() {
            break;
        }
        let at = place % bytes.len();
        match how % 5 {
            0 => bytes[at] = *byte,
            1 => bytes.truncate(at),
            2 => bytes.insert(at, *byte),
            3 => drop(bytes.drain(at..bytes.len().min(at + usize::from(*byte)))),
            _ => {
                let piece = bytes[at..bytes.len().min(at + usize::from(*byte))].to_vec();
                bytes.splice(at..at, piece.iter().chain(&piece).copied());
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        for parser in Parser::ALL {
            if let Ok(outcome) = parse(parser, &bytes) {
                prop_assert!(is_bounded(&outcome));
            }
        }
    }

    #[test]
    fn no_change_of_a_report_makes_a_parser_panic(
        which in 0..RECORDINGS.len(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>(), any::<u8>()), 1..12),
        other in 0..Parser::ALL.len(),
    ) {
        let (parser, name) = RECORDINGS[which];
        let bytes = mutated(recording(name), &changes);
        for parser in [parser, Parser::ALL[other]] {
            if let Ok(outcome) = parse(parser, &bytes) {
                prop_assert!(is_bounded(&outcome), "{name}");
            }
        }
    }
}
