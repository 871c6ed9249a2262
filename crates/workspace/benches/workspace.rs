//! Benchmarks of the workspace, as ratios against a floor measured in the same run.
//!
//! `cargo xtask bench workspace [--json]` runs this in the release profile. Each pair is measured
//! in turns, and the median of the ratios counts. With names (`-- sandbox candidate flood worktree
//! chatty`), only those are measured.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark is a program of its own")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kapelle_core::{Commit, Fence};
use kapelle_workspace::sandbox::{Backend, BoxProgram, Wanted};
use kapelle_workspace::{
    Candidate, Hold, Lease, Repository, Sandbox, Sandboxing, Spec, Worktree, candidate, reaper,
    spawn,
};
use nix::sys::resource::{UsageWho, getrusage};
use tempfile::TempDir;

/// Measured until so many rounds were undisturbed, or given up on.
const ROUNDS: usize = 3;
const TRIES_MAX: usize = 12;

/// Two floors of one round that differ by more tell of somebody else's load, or of a file system
/// that is catching up.
const DISTURBED: f64 = 1.25;

/// A figure and what it may be at most.
struct Figure {
    name: &'static str,
    value: f64,
    goal: f64,
    detail: String,
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let figures = runtime.block_on(async {
        let is_asked = |name: &str| {
            let mut names = asked.iter().filter(|arg| !arg.starts_with("--")).peekable();
            names.peek().is_none() || names.any(|wanted| wanted == name)
        };
        let mut all = Vec::new();
        // Each is shown as it comes: on a busy machine all of them take a while.
        if is_asked("sandbox") {
            all.extend(shown(sandboxed_start().await));
        }
        if is_asked("candidate") {
            all.extend(shown(candidate_landed().await));
        }
        if is_asked("flood") {
            all.extend(shown(flood().await));
        }
        if is_asked("worktree") {
            all.extend(shown(worktree_ready().await));
        }
        if is_asked("chatty") {
            all.extend(shown(chatty().await));
        }
        // A box leaves its control group a moment after its command; a product's next start would
        // clear up.
        reaper::reap(&store()).await.unwrap();
        all
    });
    if asked.iter().any(|arg| arg == "--json") {
        let fields: Vec<String> = figures
            .iter()
            .map(|figure| format!("\"{}\": {:.4}", figure.name, figure.value))
            .collect();
        println!("{{{}}}", fields.join(", "));
    }
}

fn shown(figures: Vec<Figure>) -> Vec<Figure> {
    for Figure { name, value, goal, detail } in &figures {
        let verdict = if value <= goal { "ok" } else { "MISSED" };
        println!("{name:<24} {value:>8.3}  (goal ≤ {goal})  {verdict:<6}  {detail}");
    }
    figures
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (below, above) = ((values.len() - 1) / 2, values.len() / 2);
    f64::midpoint(values[below], values[above])
}

fn timed<T>(work: impl FnOnce() -> T) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64()
}

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        .args(args)
        .current_dir(dir)
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "Person")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "p@example.org")))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn repository(files: usize) -> TempDir {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let repo = dir.path().join("repo");
    for number in 0..files {
        let folder = repo.join(format!("src/{}", number / 200));
        if number % 200 == 0 {
            fs::create_dir_all(&folder).unwrap();
        }
        fs::write(folder.join(format!("file{number}")), format!("line {number}\n").repeat(20))
            .unwrap();
    }
    git(&repo, &["init", "--quiet", "--initial-branch=main"]);
    git(&repo, &["add", "--all"]);
    git(&repo, &["commit", "--quiet", "-m", "start"]);
    git(&repo, &["repack", "-a", "-d", "--quiet"]);
    dir
}

/// A tree of 50,000 files, against `git worktree add`.
async fn worktree_ready() -> Vec<Figure> {
    const FILES: usize = 50_000;
    let dir = repository(FILES);
    let path = dir.path().join("repo");
    let repo = Repository::open(&path).await.unwrap();
    let head = repo.resolve("HEAD").await.unwrap();
    let (mut ratios, mut last, mut disturbed) = (Vec::new(), 0.0, 0);
    for round in 0..TRIES_MAX {
        let before = plain_tree(&path, &dir.path().join(format!("before-{round}")));
        nix::unistd::sync();
        let begun = Instant::now();
        let tree = Worktree::prepare(&repo, &dir.path().join(format!("w{round}/tree")), &head)
            .await
            .unwrap();
        let ours = begun.elapsed().as_secs_f64();
        let after = plain_tree(&path, &dir.path().join(format!("after-{round}")));
        let kept = tree.keep("bench").await.unwrap();
        tree.remove(kept).await.unwrap();
        for plain in ["before", "after"].map(|when| format!("../{when}-{round}")) {
            git(&path, &["worktree", "remove", "--force", &plain]);
        }
        if before.max(after) / before.min(after) > DISTURBED {
            disturbed += 1;
            continue;
        }
        last = ours;
        ratios.push(ours / f64::midpoint(before, after));
        if ratios.len() == ROUNDS {
            break;
        }
    }
    if ratios.is_empty() {
        println!(
            "worktree_ratio: no round of {TRIES_MAX} was undisturbed; try again when it is quiet"
        );
        return Vec::new();
    }
    let detail = format!("{FILES} files in {:.0} ms; {disturbed} thrown away", last * 1e3);
    vec![Figure { name: "worktree_ratio", value: median(ratios), goal: 1.1, detail }]
}

/// How long git alone takes. What an earlier round still has to write is not charged to it.
fn plain_tree(repo: &Path, tree: &Path) -> f64 {
    nix::unistd::sync();
    timed(|| git(repo, &["worktree", "add", "--quiet", "--detach", tree.to_str().unwrap()]))
}

async fn sandbox(stage: Option<BoxProgram>) -> Sandbox {
    match Sandbox::look_for(&Wanted { backend: Backend::Bubblewrap, stage, image: None }).await {
        Sandboxing::Usable(found) => found,
        Sandboxing::Unusable { reason, .. } => panic!("{reason}"),
    }
}

fn box_program() -> BoxProgram {
    BoxProgram { path: env!("CARGO_BIN_EXE_kapelle-box").into(), args: Vec::new() }
}

/// Of this run alone: another one may be at work.
fn store() -> String {
    format!("bench{}", std::process::id())
}

fn spec(dir: &Path, command: &str) -> Spec {
    Spec {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), command.into()],
        dir: dir.into(),
        env: BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]),
        lease: Lease { store: store(), fence: Fence(1) },
        log: dir.join("log"),
        hold: Hold::default(),
    }
}

/// A process with every layer, as the product starts it, against bubblewrap with the same mounts and
/// nothing else; both until the command says its first word.
async fn sandboxed_start() -> Vec<Figure> {
    const STARTS: u32 = 20;
    let dir = repository(10);
    let repo = Repository::open(&dir.path().join("repo")).await.unwrap();
    let head = repo.resolve("HEAD").await.unwrap();
    let tree = Worktree::prepare(&repo, &dir.path().join("a/tree"), &head).await.unwrap();
    let walls = tree.walls(&dir.path().join("a/git")).await.unwrap();
    let (bare, full) = (sandbox(None).await, sandbox(Some(box_program())).await);
    let word = || spec(tree.dir(), "exec echo word");
    let (mut ratios, mut last) = (Vec::new(), (0.0, 0.0));
    for _ in 0..7 {
        let (mut floor, mut ours) = (0.0, 0.0);
        for _ in 0..STARTS {
            let begun = Instant::now();
            let plain = bare.wrap(word(), &walls).unwrap();
            let mut command = Command::new(&plain.program);
            command.args(&plain.args).current_dir(&plain.dir).env_clear().envs(&plain.env);
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            floor += begun.elapsed().as_secs_f64();
            assert!(child.wait().unwrap().success());
            let begun = Instant::now();
            let mut boxed = spawn(full.wrap(word(), &walls).unwrap()).await.unwrap();
            boxed.activity().changed().await.unwrap();
            ours += begun.elapsed().as_secs_f64();
            assert_eq!(boxed.wait().await.unwrap().code, Some(0));
        }
        last = (floor, ours);
        ratios.push(ours / floor);
    }
    let each = |seconds: f64| seconds * 1e3 / f64::from(STARTS);
    let detail = format!("{:.1} ms against {:.1} ms", each(last.1), each(last.0));
    vec![Figure { name: "sandbox_start_ratio", value: median(ratios), goal: 1.5, detail }]
}

/// A candidate built and landed, against the git commands that this needs.
async fn candidate_landed() -> Vec<Figure> {
    const LANDINGS: usize = 7;
    let dir = repository(2_000);
    let path = dir.path().join("repo");
    let repo = Repository::open(&path).await.unwrap();
    let base = git(&path, &["rev-parse", "HEAD"]);
    fs::write(path.join("main"), "").unwrap();
    git(&path, &["add", "--all"]);
    git(&path, &["commit", "--quiet", "-m", "main"]);
    let onto: Commit = git(&path, &["rev-parse", "HEAD"]).parse().unwrap();
    git(&path, &["checkout", "--quiet", "--detach", &base]);
    let (mut ratios, mut last) = (Vec::new(), (0.0, 0.0));
    let (mut floor, mut ours_took) = (0.0, 0.0);
    for number in 1..=7 * LANDINGS {
        fs::write(path.join("side"), number.to_string()).unwrap();
        git(&path, &["add", "--all"]);
        git(&path, &["commit", "--quiet", "-m", "side"]);
        let change: Commit = git(&path, &["rev-parse", "HEAD"]).parse().unwrap();
        let [plain, ours] = ["plain", "ours"].map(|kind| format!("{kind}{number}"));
        for branch in [&plain, &ours] {
            git(&path, &["branch", branch, onto.as_str()]);
        }
        floor += timed(|| {
            let tree = git(&path, &["merge-tree", "--write-tree", onto.as_str(), change.as_str()]);
            let parents = ["-p", onto.as_str(), "-p", change.as_str()];
            let commit = git(
                &path,
                &[["commit-tree", "-m", "merge"].as_slice(), &parents, &[&tree]].concat(),
            );
            git(&path, &["update-ref", &format!("refs/heads/{plain}"), &commit, onto.as_str()]);
        });
        let begun = Instant::now();
        let built = candidate::build(&repo, &onto, &change, "merge", &[]).await.unwrap();
        let Candidate::Built(built) = built else { panic!("{built:?}") };
        repo.advance(&ours, &onto, &built).await.unwrap();
        ours_took += begun.elapsed().as_secs_f64();
        if number % LANDINGS == 0 {
            last = (std::mem::take(&mut floor), std::mem::take(&mut ours_took));
            ratios.push(last.1 / last.0);
        }
    }
    let each = |seconds: f64| seconds * 1e3 / LANDINGS as f64;
    let detail = format!("{:.1} ms against {:.1} ms", each(last.1), each(last.0));
    vec![Figure { name: "candidate_ratio", value: median(ratios), goal: 1.5, detail }]
}

fn cpu_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// The most that there was at any moment since [`forget_peak`].
fn peak_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// What it costs us to listen to 50 processes that print a line every ten milliseconds.
async fn chatty() -> Vec<Figure> {
    const PROCESSES: usize = 50;
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut running = Vec::new();
    for number in 0..PROCESSES {
        let command = "perl -e '$|=1; for (1..500) { print qq(line $_ of a build that prints a lot\\n); select(undef, undef, undef, 0.01) }'";
        let mut one = spec(dir.path(), command);
        one.log = dir.path().join(format!("log{number}"));
        running.push(one);
    }
    let (begun, before) = (Instant::now(), cpu_seconds());
    let mut started = Vec::new();
    for one in running {
        started.push(spawn(one).await.unwrap());
    }
    for one in &mut started {
        one.wait().await.unwrap();
    }
    let (wall, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - before);
    let detail = format!("{cpu:.2} s of a processor in {wall:.1} s, for {} lines", PROCESSES * 500);
    vec![Figure { name: "chatty_cpu_share", value: cpu / wall, goal: 0.25, detail }]
}

/// A gigabyte of output, against `cat` reading the same; and what it leaves in our memory.
async fn flood() -> Vec<Figure> {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let flood = "exec head -c 1000000000 /dev/zero";
    let (mut ratios, mut grown, mut rate) = (Vec::new(), 0f64, 0.0);
    for _ in 0..3 {
        let floor = timed(|| {
            let mut writer =
                Command::new("/bin/sh").args(["-c", flood]).stdout(Stdio::piped()).spawn().unwrap();
            let reader = Command::new("cat")
                .stdin(writer.stdout.take().unwrap())
                .stdout(Stdio::null())
                .status();
            assert!(reader.unwrap().success() && writer.wait().unwrap().success());
        });
        forget_peak();
        let before = peak_mib();
        let begun = Instant::now();
        spawn(spec(dir.path(), flood)).await.unwrap().wait().await.unwrap();
        let ours = begun.elapsed();
        grown = grown.max(peak_mib() - before);
        rate = 1.0 / ours.max(Duration::from_millis(1)).as_secs_f64();
        ratios.push(ours.as_secs_f64() / floor);
    }
    let detail = format!("{rate:.2} GB a second");
    vec![
        Figure { name: "flood_ratio", value: median(ratios), goal: 3.0, detail },
        Figure { name: "flood_memory_mib", value: grown, goal: 16.0, detail: "grown".into() },
    ]
}
