//! Checks that say what failed, changes that hold secrets, and checks that `init` proposes.

use crate::fixture::Fixture;

/// The agent leaves a key in its first change, reads why that was refused, and takes it out.
#[test]
fn a_change_with_a_secret_is_sent_back_and_nobody_is_told_the_secret() {
    let script = r#"
        if grep -q 'settings.env line 2 looks like an AWS access key' "$KAPELLE_BRIEFING"; then
            echo 'KEY=$KEY' > settings.env
        else
            printf 'A=1\nKEY=AKIA%s\n' Q3EGRIH2NWTLZPSV > settings.env
        fi"#;
    let fixture = Fixture::with_agent(script);
    let report = fixture.run(&["make settings", "--yes", "--json"]).expect(0).json();
    assert_eq!(report["attempts"], 2);
    assert_eq!(fixture.file("settings.env"), "KEY=$KEY\n");
    let failures = fixture.failures(fixture.task("1")["id"].as_u64().unwrap());
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].0, "validation_failed");
    let told = fixture.journal().iter().any(|record| record.to_string().contains("Q3EGRIH2"));
    assert!(!told, "the secret is in the journal");
    let kept = fixture.refs("kept");
    assert_eq!(kept.len(), 2, "the refused work is kept too: {kept:?}");
    fixture.assert_tidy();
}

/// Git takes no file that some machine would read as its own. The agent hears of it, and neither
/// that file nor the history of a repository in its tree is lost or lies about.
#[test]
fn a_name_that_git_refuses_is_sent_back_and_all_is_kept() {
    let script = r#"
        if grep -q 'git takes no file of the name git~1' "$KAPELLE_BRIEFING"; then
            echo text > file
        else
            echo text > git~1
            git init --quiet lib
            git -C lib -c user.name=a -c user.email=a@example.org commit --quiet --allow-empty -m mine
        fi"#;
    let fixture = Fixture::with_agent(script);
    let report = fixture.run(&["make a file", "--yes", "--json"]).expect(0).json();
    assert_eq!(report["attempts"], 2);
    let failures = fixture.failures(fixture.task("1")["id"].as_u64().unwrap());
    assert_eq!(failures[0].0, "validation_failed", "{failures:?}");
    let kept = fixture.refs("kept");
    assert_eq!(kept.len(), 2, "{kept:?}");
    let histories = fixture.refs("kept-git");
    assert!(histories.iter().any(|name| name.contains("/in/lib/heads/")), "{histories:?}");
    fixture.assert_tidy();
}

/// What is too much, or a file that git cannot take, is the change's fault and not the machine's. Of
/// a tree and a change with the same name the tree is given back: it has everything.
#[test]
fn too_large_a_file_is_sent_back_and_the_tree_is_given_back_whole() {
    let script = r#"
        if grep -q 'big has 115343360 bytes' "$KAPELLE_BRIEFING"; then
            echo text > file; echo scrap > scrap.log
        else
            truncate -s 110M big
        fi"#;
    let fixture = Fixture::with_agent(script);
    fixture.commit(".gitignore", "*.log\n");
    let report = fixture.run(&["make a file", "--yes", "--json"]).expect(0).json();
    assert_eq!(report["attempts"], 2);
    let failures = fixture.failures(fixture.task("1")["id"].as_u64().unwrap());
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].0, "validation_failed", "{failures:?}");

    let kept = fixture.json(&["recover"]);
    let named = |kind: &str| {
        let all = kept.as_array().unwrap().iter().filter(|one| one["kind"] == kind);
        all.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let name = named("change").remove(0);
    assert!(named("tree").contains(&name), "{kept}");
    let files = fixture.kapelle(&["recover", &name]).expect(0).stdout;
    assert_eq!(files, "file\nscrap.log\n");
    let change = fixture.kapelle(&["recover", &format!("refs/kapelle/changes/{name}")]).expect(0);
    assert_eq!(change.stdout, "file\n");
}

/// More than can be kept stays where it is, and its log says so. Nobody removes it.
#[test]
fn a_tree_that_is_too_large_to_keep_stays_and_the_log_says_so() {
    let script = r#"
        if grep -q 'bytes of work; at most' "$KAPELLE_BRIEFING"; then
            echo text > file
        else
            truncate -s 90M one two three
        fi"#;
    let fixture = Fixture::with_agent(script);
    let report = fixture.run(&["make a file", "--yes", "--json"]).expect(0).json();
    assert_eq!(report["attempts"], 2);
    let failures = fixture.failures(fixture.task("1")["id"].as_u64().unwrap());
    assert_eq!(failures[0].0, "validation_failed", "{failures:?}");
    let work = std::fs::read_dir(fixture.repo().join(".kapelle/work")).unwrap();
    let [left] = <[_; 1]>::try_from(work.map(|it| it.unwrap().path()).collect::<Vec<_>>()).unwrap();
    assert!(left.join("tree/three").exists());
    let fence = left.file_name().unwrap().to_str().unwrap();
    let log = fixture.file(&format!(".kapelle/logs/attempt-{fence}.log"));
    assert!(log.contains("is left for the next start"), "{log}");
}

#[test]
fn a_person_can_allow_what_looks_like_a_secret() {
    let script = "printf 'KEY=AKIA%s\\n' Q3EGRIH2NWTLZPSV > sample.env";
    let allowed = "[secrets]\nallow_paths = ['*.env']\n";
    let fixture = Fixture::with_agent_and(script, allowed);
    fixture.run(&["make a sample", "--yes"]).expect(0);
}

/// The next attempt is told which test failed and why, not only that something did.
#[test]
fn a_report_tells_the_next_attempt_which_test_failed() {
    let script = r#"
        if grep -q 'the test shop.adds fails: 3 is not 4' "$KAPELLE_BRIEFING"; then
            echo right > answer
        else
            echo wrong > answer
        fi"#;
    let checks = r#"
[checks.test]
command = '''
if grep -q right answer; then inner=''; else inner='<failure message="3 is not 4"/>'; fi
echo "<testsuite><testcase classname='shop' name='adds'>$inner</testcase></testsuite>" > out.xml
'''
parser = "junit"
report = "out.xml"
"#;
    let fixture = Fixture::with_agent_and(script, checks);
    let report = fixture.run(&["answer", "--yes", "--json"]).expect(0).json();
    assert_eq!(report["attempts"], 2, "{report:#}");
    assert_eq!(fixture.file("answer"), "right\n");
}

#[test]
fn init_proposes_checks_for_what_it_finds() {
    let fixture = Fixture::new();
    fixture.commit("Cargo.toml", "[workspace]\n");
    fixture.commit("web/package.json", "{\"devDependencies\": {\"jest\": \"29\"}}\n");
    let said = fixture.kapelle(&["init"]).expect(0);
    said.says("found rust in .: [checks.test-rust] cargo test --offline --no-fail-fast");
    let text = fixture.file("kapelle.toml");
    assert!(
        text.contains("[checks.test-node]\ncommand = \"cd web && npx --no-install jest"),
        "{text}"
    );
    assert!(text.contains("parser = \"jest\"\nreport = \"web/kapelle-jest.json\"\n"), "{text}");
    assert!(text.contains("# tests = [\"**/tests/**\", \"web/**/*.test.*\""), "{text}");
    fixture.kapelle(&["status"]).expect(3).says("nothing has been started");
}
