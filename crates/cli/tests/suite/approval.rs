//! The protected branch moves only with a person's recorded approval of exactly that commit.

use std::fs;

use crate::fixture::Fixture;

const POEM: &str = "echo roses > poem.txt";

fn person() -> String {
    let uid = nix::unistd::Uid::effective();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// Without `--yes` the work is done and waits; nothing of it is on the branch.
#[test]
fn nothing_is_delivered_without_an_approval() {
    let fixture = Fixture::with_agent(POEM);
    let before = fixture.main();
    let waiting = fixture.run(&["write a poem", "--json"]).expect(4).says("kapelle approve m1");
    let report = waiting.json();
    assert_eq!(report["mission"]["status"], "awaiting_approval");
    assert_eq!(report["mission"]["needs"], "kapelle approve m1");
    assert_eq!(report["target"]["commit"], serde_json::Value::Null);
    assert_eq!(fixture.main(), before);
    assert!(!fixture.repo().join("poem.txt").exists());

    let approved = fixture.kapelle(&["approve", "--json"]).expect(0).json();
    assert_eq!(approved["mission"]["status"], "delivered");
    assert_eq!(approved["target"]["commit"], fixture.main());
    assert_eq!(fixture.file("poem.txt"), "roses\n");
    let events = fixture.events("delivery_approved");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["by"], person());
    assert_eq!(events[0]["commit"], fixture.main());

    let again = fixture.kapelle(&["approve"]).expect(3);
    again.says("m1 has nothing to approve: it is delivered");
    fixture.assert_tidy();
}

/// `--yes` is an approval like any other: the journal says who typed it.
#[test]
fn an_approval_given_beforehand_is_recorded_with_the_person() {
    let fixture = Fixture::with_agent(POEM);
    fixture.run(&["write a poem", "--yes"]).expect(0);
    let events = fixture.events("delivery_approved");
    assert_eq!(events[0]["by"], format!("{} (--yes)", person()));
}

/// An approval holds for the commit that the person looked at, not for whatever is there by now.
#[test]
fn an_approval_of_another_commit_is_refused() {
    let fixture = Fixture::with_agent(POEM);
    fixture.run(&["write a poem"]).expect(4);
    let before = fixture.main();
    let proposed = fixture.git(&["rev-parse", "kapelle/m1"]);
    for wrong in [before.as_str(), "0000000", &proposed[..6], ""] {
        fixture.kapelle(&["approve", "--commit", wrong]).expect(3).says(&proposed);
    }
    fixture.kapelle(&["approve", "m7"]).expect(3).says("m7");
    assert_eq!(fixture.main(), before);
    fixture.kapelle(&["approve", "m1", "--commit", &proposed[..8]]).expect(0);
    assert_eq!(fixture.main(), proposed);
}

/// Files that the person has not committed are worth more than any delivery.
#[test]
fn a_dirty_checkout_is_left_alone_until_it_is_clean() {
    let fixture = Fixture::with_agent("echo theirs > README.md; echo roses > poem.txt");
    let before = fixture.main();
    fixture.write("README.md", "mine, not yet committed\n");
    fixture.write("poem.txt", "mine, not even added\n");
    let refused = fixture.run(&["write a poem", "--yes"]).expect(4);
    let refused = refused.says("could not deliver").says("README.md");
    assert!(!refused.stderr.contains("delivered"), "{}", refused.stderr);
    let status = fixture.json(&["status"]);
    assert_eq!(status[0]["status"], "awaiting_approval");
    assert!(status[0]["status_reason"].as_str().unwrap().contains("README.md"), "{status:#}");
    let untouched = || {
        assert_eq!(fixture.main(), before);
        assert_eq!(fixture.file("README.md"), "mine, not yet committed\n");
        assert_eq!(fixture.file("poem.txt"), "mine, not even added\n");
    };
    untouched();
    // The same again, by name: still refused, still nothing lost.
    fixture.kapelle(&["approve"]).expect(4).says("README.md");
    untouched();

    fixture.git(&["stash", "--include-untracked", "--quiet"]);
    fixture.kapelle(&["approve"]).expect(0);
    assert_eq!(fixture.file("README.md"), "theirs\n");
    assert_eq!(fixture.git(&["show", "stash@{0}:README.md"]), "mine, not yet committed");
    fixture.assert_tidy();
}

/// A file that git knows nothing of is in the way as much as a changed one.
#[test]
fn an_untracked_file_in_the_way_is_named_and_kept() {
    let fixture = Fixture::with_agent(POEM);
    fixture.write("poem.txt", "mine\n");
    fixture.run(&["write a poem", "--yes"]).expect(4).says("poem.txt");
    assert_eq!(fixture.file("poem.txt"), "mine\n");
    fs::remove_file(fixture.repo().join("poem.txt")).unwrap();
    fixture.kapelle(&["approve"]).expect(0);
    assert_eq!(fixture.file("poem.txt"), "roses\n");
}

/// If the branch went on meanwhile, what was checked is no longer what would be there.
#[test]
fn a_target_that_went_on_is_not_overwritten() {
    let fixture = Fixture::with_agent(POEM);
    fixture.run(&["write a poem"]).expect(4);
    fixture.commit("other.txt", "somebody else's\n");
    let theirs = fixture.main();
    fixture.kapelle(&["approve"]).expect(4).says("main has gone on to");
    assert_eq!(fixture.main(), theirs);
    // As the refusal says: merged by hand, it can be approved.
    fixture.git(&["merge", "--quiet", "--no-edit", "kapelle/m1"]);
    fixture.kapelle(&["approve"]).expect(0);
    assert_eq!(fixture.file("poem.txt"), "roses\n");
    assert_eq!(fixture.file("other.txt"), "somebody else's\n");
}

/// Another branch than the one that is checked out can be the target; the checkout stays.
#[test]
fn a_branch_that_is_not_checked_out_can_be_the_target() {
    let fixture = Fixture::with_agent(POEM);
    fixture.git(&["branch", "release"]);
    fixture.run(&["write a poem", "--target", "release", "--yes"]).expect(0);
    assert_eq!(fixture.git(&["show", "release:poem.txt"]), "roses");
    assert!(!fixture.repo().join("poem.txt").exists());
    fixture.run(&["write a poem", "--target", "nowhere"]).expect(3).says("there is no branch");
}
