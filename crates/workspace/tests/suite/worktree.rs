//! Worktrees: what an agent leaves, and that nothing of it is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use kapelle_workspace::worktree::{self, Error, FILE_BYTES_MAX, KEPT_BYTES_MAX};
use kapelle_workspace::{Repository, Worktree};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::fixture::{Fixture, git_in, write};

/// Agents commit, stage, forget to stage and forget to commit; a change is what they left.
#[tokio::test]
async fn a_change_is_the_tree_whatever_was_committed() {
    let fixture = Fixture::new();
    fixture.commit(".gitignore", "target/\n");
    let base = fixture.commit("gone", "");
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    assert_eq!(worktree.change("nothing", &[]).await.unwrap(), None);

    let dir = worktree.dir();
    write(&dir.join("committed"), "1\n");
    git_in(dir, &["add", "."]);
    git_in(dir, &["commit", "--quiet", "--message", "by the agent"]);
    write(&dir.join("staged"), "2\n");
    git_in(dir, &["add", "."]);
    write(&dir.join("untracked"), "3\n");
    write(&dir.join("readme"), "changed\n");
    write(&dir.join("target/built"), "x\n");
    fs::remove_file(dir.join("gone")).unwrap();

    let change = worktree.change("Do it", &[("Task", "1-1")]).await.unwrap().unwrap();
    let changed = repo.changed_paths(&base, &change).await.unwrap();
    assert_eq!(changed, ["committed", "gone", "readme", "staged", "untracked"]);
    let shown = fixture.git(&["show", "-s", "--format=%P|%an <%ae>|%B", change.as_str()]);
    assert_eq!(shown, format!("{base}|Kapelle <kapelle@localhost>|Do it\n\nTask: 1-1"));
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
}

/// A `.git` that an agent wrote may name any repository and any program.
#[tokio::test]
async fn the_git_of_the_tree_is_not_believed() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let base = fixture.head();
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    let dir = worktree.dir();
    fs::remove_file(dir.join(".git")).unwrap();
    git_in(dir, &["init", "--quiet"]);
    git_in(dir, &["add", "readme"]);
    git_in(dir, &["update-index", "--assume-unchanged", "readme"]);
    write(&dir.join(".git/info/exclude"), "*\n");
    write(&dir.join("readme"), "changed\n");
    write(&dir.join("new"), "");
    let change = worktree.change("change", &[]).await.unwrap().unwrap();
    assert_eq!(repo.changed_paths(&base, &change).await.unwrap(), ["new", "readme"]);
}

/// Git records a nested repository as a pointer to a commit that nobody else has: the files
/// would be lost with the tree.
#[tokio::test]
async fn files_in_nested_repositories_are_taken() {
    let fixture = Fixture::new();
    let base = fixture.commit("src/old", "old\n");
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    let dir = worktree.dir();
    // An existing directory, a new one with a commit, and one inside of another, oddly named.
    git_in(&dir.join("src"), &["init", "--quiet"]);
    write(&dir.join("src/new"), "");
    write(&dir.join("sub/file"), "");
    git_in(&dir.join("sub"), &["init", "--quiet"]);
    git_in(&dir.join("sub"), &["add", "."]);
    git_in(&dir.join("sub"), &["commit", "--quiet", "--message", "nested"]);
    write(&dir.join("sub/in *[x]/deep"), "");
    git_in(&dir.join("sub/in *[x]"), &["init", "--quiet"]);
    write(&dir.join("plain"), "");
    let change = worktree.change("change", &[]).await.unwrap().unwrap();
    let changed = repo.changed_paths(&base, &change).await.unwrap();
    assert_eq!(changed, ["plain", "src/new", "sub/file", "sub/in *[x]/deep"]);
    assert_eq!(fixture.git(&["show", &format!("{change}:src/old")]), "old");
    let kept = worktree.keep("nested").await.unwrap();
    assert_eq!(
        repo.tree_of(kept.commit().unwrap()).await.unwrap(),
        repo.tree_of(&change).await.unwrap()
    );
}

/// Git looks away from what lies in the place of a submodule; that must not go unnoticed.
#[tokio::test]
async fn work_in_the_place_of_a_submodule_is_refused_as_a_change_and_kept() {
    let fixture = Fixture::new();
    let pointer = format!("160000,{},module", fixture.head());
    fixture.git(&["update-index", "--add", "--cacheinfo", &pointer]);
    fixture.git(&["commit", "--quiet", "--message", "submodule"]);
    let base = fixture.head();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    assert_eq!(worktree.change("nothing", &[]).await.unwrap(), None);
    write(&worktree.dir().join("module/file"), "");
    let refused = worktree.change("change", &[]).await;
    assert!(matches!(refused, Err(Error::Submodule { ref path }) if path == "module"));
    let kept = worktree.keep("module").await.unwrap();
    let changed = repo.changed_paths(&base, kept.commit().unwrap()).await.unwrap();
    assert_eq!(changed, ["module", "module/file"]);
}

/// Work is never lost: untracked and ignored files are kept before a tree goes away.
#[tokio::test]
async fn everything_is_kept_before_a_tree_is_removed() {
    let fixture = Fixture::new();
    let base = fixture.commit(".gitignore", "secret.env\n");
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    let dir = worktree.dir().to_owned();
    write(&dir.join("secret.env"), "ignored\n");
    write(&dir.join("locked/file"), "");
    fs::set_permissions(dir.join("locked"), fs::Permissions::from_mode(0o500)).unwrap();
    let kept = worktree.keep("m1/1-1/7").await.unwrap();
    let commit = kept.commit().unwrap().clone();
    assert!(!kept.left_ignored_out());
    worktree.remove(kept).await.unwrap();

    assert!(!dir.exists());
    assert_eq!(fixture.git(&["rev-parse", "refs/kapelle/kept/m1/1-1/7"]), commit.as_str());
    let changed = repo.changed_paths(&base, &commit).await.unwrap();
    assert_eq!(changed, ["locked/file", "secret.env"]);
    assert_eq!(fixture.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
    assert_eq!(fs::read_dir(fixture.path("repo/.git/kapelle")).unwrap().count(), 0);
}

/// Build output may be huge and can be built again; work is never given up because of it.
#[tokio::test]
async fn too_much_is_kept_without_what_is_ignored_or_not_removed() {
    let fixture = Fixture::new();
    let base = fixture.commit(".gitignore", "target/\n");
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    let huge = |name: &str| {
        write(&worktree.dir().join(name), "");
        let file = fs::File::options().write(true).open(worktree.dir().join(name)).unwrap();
        file.set_len(KEPT_BYTES_MAX + 1).unwrap();
    };
    huge("target/built");
    write(&worktree.dir().join("work"), "");
    let kept = worktree.keep("huge").await.unwrap();
    assert!(kept.left_ignored_out());
    let changed = repo.changed_paths(&base, kept.commit().unwrap()).await.unwrap();
    assert_eq!(changed, ["work"]);

    huge("not-ignored");
    let refused = worktree.keep("huge").await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    assert!(worktree.dir().join("work").exists());
}

/// A name that is used twice must not cost the work that was kept first.
#[tokio::test]
async fn keeping_under_the_same_name_keeps_both() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    assert_eq!(worktree.keep("same").await.unwrap().commit(), None);
    write(&worktree.dir().join("work"), "1");
    let first = worktree.keep("same").await.unwrap();
    assert_eq!(worktree.keep("same").await.unwrap().commit(), first.commit());
    write(&worktree.dir().join("work"), "2");
    let second = worktree.keep("same").await.unwrap();
    let [first, second] = [&first, &second].map(|kept| kept.commit().unwrap());
    assert!(repo.is_ancestor(first, second).await.unwrap());
}

/// The proof of one tree says nothing about another.
#[tokio::test]
async fn a_tree_is_not_removed_on_the_proof_of_another() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let one = Worktree::prepare(&repo, &fixture.path("one"), &fixture.head()).await.unwrap();
    let two = Worktree::prepare(&repo, &fixture.path("two"), &fixture.head()).await.unwrap();
    let kept = one.keep("one").await.unwrap();
    assert!(matches!(two.remove(kept).await, Err(Error::OtherTree { .. })));
    assert!(fixture.path("two/readme").exists());
}

/// After `kill -9`, what an agent had done by then is the most valuable thing on the disk.
#[tokio::test]
async fn what_a_crash_left_is_kept_and_the_place_is_clean_again() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let dir = fixture.path("trees/attempt-1");
    let repo = fixture.open().await;
    let crashed = Worktree::prepare(&repo, &dir, &base).await.unwrap();
    write(&crashed.dir().join("half"), "done\n");
    drop(crashed);

    let again = Worktree::prepare(&repo, &dir, &base).await.unwrap();
    let recovered = again.recovered().unwrap();
    assert_eq!(repo.changed_paths(&base, recovered).await.unwrap(), ["half"]);
    assert!(!dir.join("half").exists() && dir.join("readme").exists());
    let kept =
        fixture.git(&["for-each-ref", "--format=%(objectname)", "refs/kapelle/kept/leftover"]);
    assert_eq!(kept, recovered.as_str());
}

/// At start-up nobody remembers the trees of the last run; git's records do, with their bases.
#[tokio::test]
async fn trees_of_earlier_runs_are_found_with_their_base() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let repo = fixture.open().await;
    let left = Worktree::prepare(&repo, &fixture.path("trees/a/tree"), &base).await.unwrap();
    Worktree::prepare(&repo, &fixture.path("elsewhere"), &base).await.unwrap();
    fixture.commit("later", "");
    drop(left);

    let found = Worktree::leftovers(&repo, &fixture.path("trees")).await.unwrap();
    let [found] = <[Worktree; 1]>::try_from(found).unwrap();
    assert_eq!(found.base(), &base);
    let kept = found.keep("a").await.unwrap();
    assert_eq!(kept.commit(), None);
    found.remove(kept).await.unwrap();
    assert!(!fixture.path("trees/a/tree").exists());
    assert!(fixture.path("elsewhere/readme").exists());
}

/// Agents start together; git's own bookkeeping of worktrees is not made for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_trees_can_be_prepared_at_once() {
    let fixture = Fixture::new();
    let (repo, base) = (fixture.open().await, fixture.head());
    let tasks: Vec<_> = (0..12)
        .map(|n| (repo.clone(), fixture.path(&format!("trees/{n}")), base.clone()))
        .map(|(repo, dir, base)| {
            tokio::spawn(async move { Worktree::prepare(&repo, &dir, &base).await.map(drop) })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let found = Worktree::leftovers(&repo, &fixture.path("trees")).await.unwrap();
    assert_eq!(found.len(), 12);
}

/// A repository that was moved, or a `git worktree prune`, takes git's record away; the work is
/// still there, and so must be the knowledge of it.
#[tokio::test]
async fn trees_that_git_has_forgotten_are_found_with_their_base() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let repo = fixture.open().await;
    let left = Worktree::prepare(&repo, &fixture.path("trees/7/tree"), &base).await.unwrap();
    write(&left.dir().join("half"), "done\n");
    drop(left);
    fixture.commit("later", "");
    fs::rename(fixture.path("trees"), fixture.path("moved")).unwrap();
    worktree::prune_records(&repo).await.unwrap();
    assert_eq!(fs::read_dir(fixture.path("repo/.git/worktrees")).unwrap().count(), 0);

    let found = Worktree::leftovers(&repo, &fixture.path("moved")).await.unwrap();
    let [found] = <[Worktree; 1]>::try_from(found).unwrap();
    assert_eq!(found.base(), &base);
    let kept = found.keep("7").await.unwrap();
    assert_eq!(repo.changed_paths(&base, kept.commit().unwrap()).await.unwrap(), ["half"]);
    found.remove(kept).await.unwrap();
    assert_eq!(fs::read_dir(fixture.path("moved/7")).unwrap().count(), 0);
}

/// Git cannot add a file that its owner may not read, and a tree is kept whole or not at all.
#[tokio::test]
async fn files_that_nobody_may_read_are_made_readable() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    let secret = worktree.dir().join("secret");
    write(&secret, "x");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    worktree.keep("secret").await.unwrap();
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o400);
}

/// A runaway program writes until the disk is full. Git would read all of it, for minutes, to
/// come to a result that nobody wants.
#[tokio::test]
async fn giant_files_are_refused_unread() {
    const GIANT: u64 = 64 << 30;
    let fixture = Fixture::new();
    fixture.commit(".gitignore", "target\n");
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    let grow = |name: &str, bytes| {
        let file = fs::OpenOptions::new().create(true).append(true).open(worktree.dir().join(name));
        file.unwrap().set_len(bytes).unwrap();
    };
    grow("target", GIANT);
    write(&worktree.dir().join("new"), "");
    assert!(worktree.change("without what is ignored", &[]).await.unwrap().is_some());
    grow("new", FILE_BYTES_MAX + 1);
    let too_large = worktree.change("large", &[]).await;
    let Err(Error::FileTooLarge { path, bytes, limit }) = too_large else {
        panic!("{too_large:?}")
    };
    assert_eq!((path, bytes, limit), ("new".into(), FILE_BYTES_MAX + 1, FILE_BYTES_MAX));
    grow("readme", GIANT);
    let unread = async {
        assert!(matches!(worktree.change("giant", &[]).await, Err(Error::FileTooLarge { .. })));
        assert!(matches!(worktree.keep("giant").await, Err(Error::TooLarge { .. })));
    };
    tokio::time::timeout(Duration::from_secs(30), unread).await.unwrap();
}

/// Git as an agent calls it, in its tree and with its own git directory.
fn agent_in<'a>(dir: &'a Path, private: &Path) -> impl Fn(&[&str]) -> String + use<'a> {
    let place = [format!("--git-dir={}", private.display()), "--work-tree=.".into()];
    move |args| {
        let args = place.iter().map(String::as_str).chain(args.iter().copied());
        git_in(dir, &args.collect::<Vec<_>>())
    }
}

/// What an agent committed and then undid in its tree is in its own git directory alone.
#[tokio::test]
async fn commits_of_an_agent_outlive_its_git_directory() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    let private = fixture.path("attempt/git");
    worktree.walls(&private).await.unwrap();
    assert_eq!(worktree.keep_commits(&private, "7").await.unwrap(), Vec::<String>::new());
    let dir = worktree.dir();
    let agent = agent_in(worktree.dir(), &private);
    agent(&["commit", "--quiet", "--allow-empty", "--message", "on no branch"]);
    agent(&["branch", "unchanged", "main"]);
    agent(&["checkout", "--quiet", "-b", "idea"]);
    agent(&["commit", "--quiet", "--allow-empty", "--message", "on a branch"]);
    agent(&["checkout", "--quiet", "--detach", "HEAD^"]);
    write(&dir.join("readme"), "stashed\n");
    agent(&["stash", "--quiet"]);
    agent(&["config", "core.fsmonitor", "false"]);

    // Killed between the objects and the name for them, nothing is kept yet.
    let objects = ["-c", "protocol.file.allow=always", "fetch", "--quiet", "--no-write-fetch-head"];
    fixture.git(&[&objects[..], &[private.to_str().unwrap(), "idea"]].concat());
    let kept = worktree.keep_commits(&private, "7").await.unwrap();
    agent(&["checkout", "--quiet", "-B", "idea", "main"]);
    agent(&["commit", "--quiet", "--allow-empty", "--message", "another idea"]);
    let later = worktree.keep_commits(&private, "7").await.unwrap();
    assert_eq!(
        later,
        ["heads/idea", "HEAD"].map(|name| format!("refs/kapelle/kept-git/7/{name}-2"))
    );
    let names =
        ["heads/idea", "stash", "HEAD"].map(|name| format!("refs/kapelle/kept-git/7/{name}"));
    assert_eq!(kept, names);
    agent(&["commit", "--quiet", "--allow-empty", "--message", "reset away"]);
    agent(&["commit", "--quiet", "--allow-empty", "--message", "on top of it"]);
    agent(&["reset", "--quiet", "--hard", "main"]);
    agent(&["commit", "--quiet", "--allow-empty", "--message", "amended"]);
    agent(&["commit", "--quiet", "--amend", "--allow-empty", "--message", "better"]);
    let lost = worktree.keep_commits(&private, "8").await.unwrap();
    let subjects = lost.iter().map(|name| fixture.git(&["show", "-s", "--format=%s", name]));
    let mut subjects: Vec<String> = subjects.collect();
    // Both of the same second.
    subjects[2..].sort_unstable();
    assert_eq!(subjects, ["better", "better", "amended", "on top of it"]);
    assert_eq!(lost[3], "refs/kapelle/kept-git/8/lost/2");
    worktree::remove_private(&private).await.unwrap();
    let subject = |name: &str| fixture.git(&["show", "-s", "--format=%s", name]);
    assert_eq!(subject(&names[0]), "on a branch");
    assert_eq!(subject(&later[0]), "another idea");
    assert_eq!(fixture.git(&["show", &format!("{}:readme", names[1])]), "stashed");
    assert_eq!(subject(&names[2]), "on no branch");
}

/// Agents make worktrees, too. Their heads are on no branch, with or without a log of where they were.
#[tokio::test]
async fn commits_in_worktrees_of_an_agents_own_outlive_them() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    let private = fixture.path("attempt/git");
    worktree.walls(&private).await.unwrap();
    let agent = agent_in(worktree.dir(), &private);
    for name in ["logged", "silent"] {
        agent(&["worktree", "add", "--quiet", "--detach", name, "main"]);
        let own = worktree.dir().join(name);
        git_in(&own, &["commit", "--quiet", "--allow-empty", "--message", name]);
    }
    fs::remove_dir_all(private.join("worktrees/silent/logs")).unwrap();
    let kept = worktree.keep_commits(&private, "7").await.unwrap();
    let mut subjects: Vec<String> =
        kept.iter().map(|name| fixture.git(&["show", "-s", "--format=%s", name])).collect();
    subjects.sort_unstable();
    assert_eq!(subjects, ["logged", "silent"], "{kept:?}");
}

/// A repository that an agent made inside of its tree has a history of its own, and it goes with the
/// tree: branches, and what was undone again, there and in what it contains.
#[tokio::test]
async fn the_history_of_a_repository_in_the_tree_outlives_it() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    let other = Fixture::new();
    let secret = other.commit("secret", "of another project\n");
    for place in ["my lib", "my lib/.git/modules/deep"] {
        let dir = worktree.dir().join(place);
        write(&dir.join("file"), "1\n");
        git_in(&dir, &["init", "--quiet", "--initial-branch=main"]);
        git_in(&dir, &["add", "file"]);
        git_in(&dir, &["commit", "--quiet", "--message", place]);
        git_in(&dir, &["commit", "--quiet", "--allow-empty", "--message", "undone"]);
        git_in(&dir, &["reset", "--quiet", "--hard", "HEAD^"]);
    }
    let nested = worktree.dir().join("my lib/.git");
    let objects = format!("{}\n", other.path("repo/.git/objects").display());
    write(&nested.join("objects/info/alternates"), &objects);
    write(&nested.join("refs/heads/stolen"), &format!("{secret}\n"));
    let kept = worktree.keep("7").await.unwrap();
    let names = worktree.keep_commits(&fixture.path("none"), "7").await.unwrap();
    worktree.remove(kept).await.unwrap();
    let subjects = names.iter().map(|name| fixture.git(&["show", "-s", "--format=%s", name]));
    let deep = "my lib/.git/modules/deep";
    let (lib, undone) = ("my lib", "undone");
    assert_eq!(subjects.collect::<Vec<_>>(), [lib, lib, undone, deep, deep, undone]);
    let in_lib = ["heads/main", "HEAD", "lost/1"];
    assert_eq!(names[..3], in_lib.map(|name| format!("refs/kapelle/kept-git/7/in/my-lib/{name}")));
    let holds = |commit: &str| {
        let asked = ["cat-file", "-e", commit];
        let dir = fixture.path("repo");
        std::process::Command::new("git").args(asked).current_dir(dir).status().unwrap().success()
    };
    assert!(!holds(secret.as_str()), "nothing of another repository came along");
}

/// What our git cannot read must not pass for a repository without a history.
#[tokio::test]
async fn a_history_that_cannot_be_read_is_not_taken_for_none() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    let dir = worktree.dir().join("sub");
    write(&dir.join("file"), "");
    git_in(&dir, &["init", "--quiet", "--object-format=sha256"]);
    git_in(&dir, &["add", "."]);
    git_in(&dir, &["commit", "--quiet", "--message", "other names"]);
    let kept = worktree.keep_commits(&fixture.path("none"), "7").await.unwrap();
    assert_eq!(kept, ["refs/kapelle/kept-git/7/in/sub/files"]);
    assert_restored(&fixture, &kept[0], "other names");
}

/// What was kept as files is a git directory again once it is written somewhere.
fn assert_restored(fixture: &Fixture, name: &str, subject: &str) {
    let dir = fixture.path("restored");
    fs::create_dir_all(dir.join("refs")).unwrap();
    let archive = fixture.path("restored.tar");
    fixture.git(&["archive", "--output", archive.to_str().unwrap(), name]);
    let mut unpack = std::process::Command::new("tar");
    assert!(unpack.arg("-xf").arg(&archive).arg("-C").arg(&dir).status().unwrap().success());
    let theirs = dir.join("config.theirs");
    if theirs.exists() {
        fs::rename(theirs, dir.join("config")).unwrap();
    }
    assert_eq!(git_in(&dir, &["--git-dir=.", "log", "-1", "--format=%s", "--all"]), subject);
}

/// Git fetches nothing from a shallow clone that is built on its end, and calls that a success.
#[tokio::test]
async fn commits_in_a_shallow_clone_outlive_it() {
    let fixture = Fixture::new();
    fixture.commit("second", "2\n");
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    let other = Fixture::new();
    other.commit("a", "1\n");
    other.commit("b", "2\n");
    let from = format!("file://{}", other.path("repo").display());
    git_in(worktree.dir(), &["clone", "--quiet", "--depth=1", &from, "vendor"]);
    let clone = worktree.dir().join("vendor");
    git_in(&clone, &["checkout", "--quiet", "-b", "mine"]);
    git_in(&clone, &["commit", "--quiet", "--allow-empty", "--message", "on a shallow end"]);
    let kept = worktree.keep_commits(&fixture.path("none"), "7").await.unwrap();
    assert_eq!(kept, ["refs/kapelle/kept-git/7/in/vendor/files"]);
    assert_restored(&fixture, &kept[0], "on a shallow end");
}

/// A `HEAD` may be a link, by git's own settings, or gone by accident. The commits are still there.
#[tokio::test]
async fn commits_of_an_agent_outlive_its_head() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    for (number, name) in ["link", "gone"].into_iter().enumerate() {
        let private = fixture.path(&format!("attempt/{name}"));
        worktree.walls(&private).await.unwrap();
        let agent = agent_in(worktree.dir(), &private);
        agent(&["checkout", "--quiet", "-b", name]);
        agent(&["commit", "--quiet", "--allow-empty", "--message", name]);
        agent(&["tag", "--annotate", "--message", "mine", "marked"]);
        fs::remove_file(private.join("HEAD")).unwrap();
        if number == 0 {
            let branch = format!("refs/heads/{name}");
            std::os::unix::fs::symlink(branch, private.join("HEAD")).unwrap();
        }
        let kept = worktree.keep_commits(&private, name).await.unwrap();
        let names = [format!("heads/{name}"), "tags/marked".into()]
            .map(|it| format!("refs/kapelle/kept-git/{name}/{it}"));
        assert_eq!(kept, names);
        assert_eq!(fixture.git(&["show", "-s", "--format=%s", &kept[0]]), name);
        worktree::remove_private(&private).await.unwrap();
    }
}

/// Attributes may say of a file what is not so. The agent is told, and its bytes are kept as they are.
#[tokio::test]
async fn files_that_do_not_fit_their_attributes_are_kept() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    write(&worktree.dir().join(".gitattributes"), "*.txt working-tree-encoding=UTF-16\n");
    write(&worktree.dir().join("a.txt"), "odd");
    let refused = worktree.change("work", &[]).await;
    let Err(Error::NotTaken { said }) = refused else { panic!("{refused:?}") };
    assert!(said.contains("a.txt"), "{said}");
    let kept = worktree.keep("odd").await;
    // What older versions cannot keep stays where it is.
    if git_in(worktree.dir(), &["version"]).as_str() >= "git version 2.41" {
        assert!(kept.unwrap().commit().is_some());
        assert_eq!(fixture.git(&["show", "refs/kapelle/kept/odd:a.txt"]), "odd");
    } else {
        assert!(kept.is_err(), "{kept:?}");
    }
}

/// A `.git` need not be git's. What lies in it is somebody's files.
#[tokio::test]
async fn what_only_has_the_name_of_a_repository_is_kept() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let base = fixture.head();
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    write(&worktree.dir().join("a/.git/notes"), "precious\n");
    write(&worktree.dir().join("b/.git"), "precious\n");
    for number in 0..500 {
        fs::create_dir_all(worktree.dir().join(format!("many/{number}/.git"))).unwrap();
    }
    let kept = worktree.keep("named").await.unwrap();
    let found = repo.changed_paths(&base, kept.commit().unwrap()).await.unwrap();
    assert_eq!(found, ["a/refused-.git/notes", "b/refused-.git"]);
}

/// Git takes some names on no machine, because on some machine they mean `.git`. The agent is told,
/// and its files are kept under other names.
#[tokio::test]
async fn files_whose_names_git_refuses_are_kept_under_others() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let base = fixture.head();
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    for file in ["sub/.GIT/file", "git~1", ".git::$DATA", ".git-kept", "sub/.Git . ", "a\\.git"] {
        write(&worktree.dir().join(file), file);
    }
    let refused = worktree.change("work", &[]).await;
    assert!(matches!(refused, Err(Error::RefusedName { .. })), "{refused:?}");
    let kept = worktree.keep("names").await.unwrap();
    let found = repo.changed_paths(&base, kept.commit().unwrap()).await.unwrap();
    let expected = [
        ".git-kept",
        "refused-.git::$DATA",
        "refused-a_.git",
        "refused-git~1",
        "sub/refused-.GIT/file",
        "sub/refused-.Git . ",
    ];
    assert_eq!(found, expected);
    worktree.remove(kept).await.unwrap();
    assert_eq!(fixture.git(&["show", "refs/kapelle/kept/names:refused-git~1"]), "git~1");
}

/// Whoever opens a pipe waits for somebody at its other end. In the place of a file that git reads
/// for itself, it would hold up everybody who wants to keep the tree.
#[tokio::test]
async fn a_pipe_or_a_socket_in_the_tree_holds_nobody_up() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let base = fixture.head();
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &base).await.unwrap();
    let dir = worktree.dir();
    write(&dir.join("sub/new"), "precious\n");
    fs::remove_file(dir.join("readme")).unwrap();
    for pipe in ["readme", "sub/.gitignore", "sub/.gitattributes"] {
        mkfifo(&dir.join(pipe), Mode::S_IRWXU).unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("sub/.git")).unwrap();
    let kept = async {
        let change = worktree.change("work", &[]).await.unwrap().unwrap();
        assert_eq!(repo.changed_paths(&base, &change).await.unwrap(), ["readme", "sub/new"]);
        worktree.keep("pipes").await.unwrap()
    };
    let kept = tokio::time::timeout(Duration::from_secs(30), kept).await.unwrap();
    worktree.remove(kept).await.unwrap();
    assert_eq!(fixture.git(&["show", "refs/kapelle/kept/pipes:sub/new"]), "precious");
}

/// The same in the git directory of an agent, where a link may lead to a pipe anywhere. What other
/// repositories of the person hold is not fetched into this one, whatever the agent claims to need.
#[tokio::test]
async fn the_git_directory_of_an_agent_is_not_followed_anywhere() {
    let fixture = Fixture::new();
    let repo = fixture.open().await;
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    let private = fixture.path("attempt/git");
    worktree.walls(&private).await.unwrap();
    let agent = agent_in(worktree.dir(), &private);
    agent(&["checkout", "--quiet", "-b", "idea"]);
    agent(&["commit", "--quiet", "--allow-empty", "--message", "on a branch"]);
    let other = Fixture::new();
    let secret = other.commit("secret", "of another project\n");
    write(&private.join("refs/heads/stolen"), &format!("{secret}\n"));
    let objects = format!("{}\n", other.path("repo/.git/objects").display());
    let alternates = private.join("objects/info/alternates");
    write(&alternates, &(fs::read_to_string(&alternates).unwrap() + &objects));
    let pipe = fixture.path("attempt/pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    fs::remove_file(private.join("packed-refs")).unwrap();
    std::os::unix::fs::symlink(&pipe, private.join("packed-refs")).unwrap();

    let keeping = worktree.keep_commits(&private, "7");
    let kept = tokio::time::timeout(Duration::from_secs(30), keeping).await.unwrap().unwrap();
    let names = ["heads/idea", "HEAD"].map(|name| format!("refs/kapelle/kept-git/7/{name}"));
    assert_eq!(kept, names);
    let looked = std::process::Command::new("git")
        .args(["cat-file", "-e", secret.as_str()])
        .current_dir(fixture.path("repo"))
        .status();
    assert!(!looked.unwrap().success(), "nothing of another repository came along");
}

/// Where history ends is part of what an agent has to know about it.
#[tokio::test]
async fn an_agent_in_a_shallow_clone_sees_its_history_and_its_commits_are_kept() {
    let fixture = Fixture::new();
    fixture.commit("second", "");
    fixture.commit("third", "");
    let from = format!("file://{}", fixture.path("repo").display());
    let clone = fixture.path("clone");
    git_in(&fixture.path(""), &["clone", "--quiet", "--depth=2", &from, clone.to_str().unwrap()]);
    let repo = Repository::open(&clone).await.unwrap();
    let worktree = Worktree::prepare(&repo, &fixture.path("tree"), &fixture.head()).await.unwrap();
    let private = fixture.path("attempt/git");
    worktree.walls(&private).await.unwrap();
    let agent = agent_in(worktree.dir(), &private);
    assert_eq!(agent(&["log", "--format=%s"]), "third\nsecond");
    agent(&["commit", "--quiet", "--allow-empty", "--message", "by the agent"]);
    let kept = worktree.keep_commits(&private, "7").await.unwrap();
    assert_eq!(kept, ["refs/kapelle/kept-git/7/HEAD"]);
    assert_eq!(git_in(&clone, &["log", "--format=%s", &kept[0]]), "by the agent\nthird\nsecond");
}
