//! The hostile suite: one test for each attack, shown to succeed without walls and to fail inside.
//!
//! Run twice: with namespaces, and by `userns.rs` on a machine without (see there).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Duration;

use kapelle_workspace::{Exit, Limits, Walls, Worktree, spawn};

use crate::fixture::{Fixture, assert_stopped, both, prepared, run, run_boxed, sandbox, write};
use crate::userns::is_without_namespaces;

/// What a shell would need a compiler for: one system call, zero if it succeeded.
fn call(number: i64, arguments: &str) -> String {
    format!("perl -e 'exit(syscall({number}, {arguments}) < 0)'")
}

async fn stopped(command: &str) {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    assert_stopped(&both(&fixture, worktree.dir(), &walls, command).await);
}

/// For attacks that only root can make. Whoever runs the suite as somebody else, and the run without
/// namespaces, sees them fail inside; that they work is shown where the suite runs as root.
async fn stopped_for_root(command: &str) {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    if is_root() {
        return assert_stopped(&both(&fixture, worktree.dir(), &walls, command).await);
    }
    let inside = run_boxed(fixture.shell(worktree.dir(), command), &walls).await;
    assert_ne!(inside.code, Some(0), "the walls did not hold: {inside:?}");
}

fn is_root() -> bool {
    nix::unistd::getuid().is_root() && !is_without_namespaces()
}

async fn reading_is_stopped(place: &str) {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    write(&fixture.path(place), "secret");
    let command = format!("grep -q secret {}", fixture.path(place).display());
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &command).await);
}

#[tokio::test]
async fn a_private_key_cannot_be_read() {
    reading_is_stopped("home/.ssh/id_ed25519").await;
}

#[tokio::test]
async fn the_store_cannot_be_read() {
    reading_is_stopped("repo/.kapelle/store.db").await;
}

#[tokio::test]
async fn the_tree_of_another_attempt_cannot_be_read() {
    reading_is_stopped("attempt-2/tree/file").await;
}

/// The line is a comment to whoever reads the file, so that it stays what it is.
async fn appending_is_stopped(place: &str) {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let path = fixture.path(place);
    if !path.exists() {
        write(&path, "before\n");
    }
    let before = std::fs::read_to_string(&path).unwrap();
    let command = format!("echo '# owned' >> {}", path.display());
    run_boxed(fixture.shell(worktree.dir(), &command), &walls).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before, "the walls did not hold");
    run(fixture.shell(worktree.dir(), &command)).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{before}# owned\n"));
}

#[tokio::test]
async fn a_dotfile_cannot_be_changed() {
    appending_is_stopped("home/.bashrc").await;
}

#[tokio::test]
async fn a_hook_cannot_be_changed() {
    appending_is_stopped("repo/.git/hooks/pre-commit").await;
}

#[tokio::test]
async fn the_settings_of_the_repository_cannot_be_changed() {
    appending_is_stopped("repo/.git/config").await;
}

#[tokio::test]
async fn the_tree_of_another_attempt_cannot_be_changed() {
    appending_is_stopped("attempt-2/tree/file").await;
}

#[tokio::test]
async fn a_symbolic_link_leads_nowhere() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    write(&fixture.path("home/token"), "secret");
    let command =
        format!("ln -sfn {} link && grep -q secret link", fixture.path("home/token").display());
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &command).await);
}

/// A hard link in the tree would be the file itself, and would be kept with the tree.
#[tokio::test]
async fn a_hard_link_to_a_file_outside_cannot_be_made() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    write(&fixture.path("home/token"), "secret");
    let command = format!("rm -f hard; ln {} hard", fixture.path("home/token").display());
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &command).await);
}

/// Whoever starts Kapelle may have files open, and programs hand down what they have open.
#[tokio::test]
async fn what_was_open_outside_is_not_open_inside() {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    use std::os::fd::AsRawFd;
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let path = fixture.path("home/token");
    write(&path, "secret");
    let open = std::fs::File::open(&path).unwrap();
    fcntl(&open, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    // Each opens the file anew: where one has read to, the other would begin.
    let attack =
        format!("grep -q secret /proc/self/fd/{0} || grep -q secret <&{0}", open.as_raw_fd());
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &attack).await);
    let dir = std::fs::File::open(fixture.path("home")).unwrap();
    fcntl(&dir, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let attack = format!("test -d /proc/self/fd/{}", dir.as_raw_fd());
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &attack).await);
}

/// A process of the user, for as long as the attack takes.
async fn on_a_victim(attack: impl Fn(i32) -> String) {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let mut spec = fixture.shell(worktree.dir(), "exec sleep 1000");
    spec.env.insert("SECRET_TOKEN".into(), "secret".into());
    let mut victim = spawn(spec).await.unwrap();
    let (outside, inside) = both(&fixture, worktree.dir(), &walls, &attack(victim.pid())).await;
    victim.stop(Duration::ZERO).await.unwrap();
    // Some machines let nobody but root trace what is not their own child.
    if outside.code == Some(0) || is_root() {
        assert_stopped(&(outside, inside));
    } else {
        assert_ne!(inside.code, Some(0), "the walls did not hold: {inside:?}");
    }
}

#[tokio::test]
async fn the_environment_of_another_process_cannot_be_read() {
    on_a_victim(|pid| format!("grep -aq secret /proc/{pid}/environ")).await;
}

#[tokio::test]
async fn files_cannot_be_reached_through_another_process() {
    on_a_victim(|pid| format!("ls /proc/{pid}/root/ /proc/{pid}/cwd/")).await;
}

#[tokio::test]
async fn another_process_cannot_be_traced() {
    let (attach, detach) = (libc::PTRACE_ATTACH, libc::PTRACE_DETACH);
    let ptrace = libc::SYS_ptrace;
    on_a_victim(|pid| {
        format!(
            "perl -e '$a = syscall({ptrace}, {attach}, {pid}, 0, 0); waitpid({pid}, 0x40000000); \
             syscall({ptrace}, {detach}, {pid}, 0, 0); exit($a < 0)'"
        )
    })
    .await;
}

#[tokio::test]
async fn another_process_cannot_be_signalled() {
    on_a_victim(|pid| format!("kill -0 {pid}")).await;
}

#[tokio::test]
async fn settings_of_the_kernel_cannot_be_opened_for_writing() {
    for place in ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches"] {
        let open = format!("sysopen(F, \"{place}\", O_WRONLY) or exit 1");
        stopped_for_root(&format!("perl -MFcntl -e '{open}'")).await;
    }
}

#[tokio::test]
async fn an_abstract_socket_outside_cannot_be_reached() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let name = fixture.lease().store;
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let attack = format!(
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or exit 1; \
         connect(S, pack(\"S a*\", 1, \"\\0{name}\")) or exit 1'"
    );
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &attack).await);
}

#[tokio::test]
async fn raw_packets_cannot_be_sent() {
    stopped_for_root("perl -MSocket -e 'socket(S, AF_INET, SOCK_RAW, 1) or exit 1'").await;
    stopped_for_root("perl -e 'socket(S, 17, 3, 0) or exit 1'").await;
}

/// The way of a question for a name, and of whatever else fits into a datagram.
#[tokio::test]
async fn no_datagram_gets_out() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let attack = |word: &str| {
        format!(
            "perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Proto => \"udp\", \
             PeerAddr => \"127.0.0.1:{port}\") or exit 1; $s->send(\"{word}\") or exit 1'"
        )
    };
    run_boxed(fixture.shell(worktree.dir(), &attack("inside")), &walls).await;
    run(fixture.shell(worktree.dir(), &attack("outside"))).await;
    let mut buffer = [0; 16];
    let count = server.recv(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..count], b"outside", "datagrams arrive in order");
    let resolver = run_boxed(fixture.shell(worktree.dir(), "cat /etc/resolv.conf"), &walls).await;
    assert_ne!(resolver.code, Some(0), "{resolver:?}");
}

fn limited(walls: &Walls, change: impl FnOnce(&mut Limits)) -> Walls {
    let mut walls = walls.clone();
    change(&mut walls.limits);
    walls
}

/// None of the processes ends before the last is there.
const FORK_BOMB: &str = "for (1..200) { $p = fork; if (!defined $p) { kill 9, @p; exit 1 } \
                         if (!$p) { sleep 1000; exit } push @p, $p } kill 9, @p";

#[tokio::test]
async fn a_fork_bomb_is_stopped() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    if nix::unistd::getuid().is_root() || is_without_namespaces() {
        let needed = "the kernel does not count the processes of root otherwise";
        if sandbox().await.cgroups().is_none() {
            eprintln!("SKIPPED: no control groups can be made here; {needed}");
            return;
        }
    }
    let walls = limited(&walls, |limits| limits.processes = 64);
    let attack = format!("perl -e '{FORK_BOMB}'");
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &attack).await);
}

/// Ordinary users have no control groups on many machines. Somebody who is not root runs a bomb
/// in a box without namespaces.
#[tokio::test]
async fn a_fork_bomb_of_an_ordinary_user_is_stopped_without_control_groups() {
    if !nix::unistd::getuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let program = dir.path().join("box");
    std::fs::copy(env!("CARGO_BIN_EXE_kapelle-box"), &program).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let bomb = |limits: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65533", "--regid", "65533", "--clear-groups"]).arg(&program);
        command.args(limits).args(["--", "perl", "-e", FORK_BOMB]).status().unwrap().code()
    };
    assert_eq!(bomb(&[]), Some(0), "the attack itself must work");
    assert_eq!(bomb(&["--processes", "64"]), Some(1));
}

const TAKE_MEMORY: &str =
    "perl -e '$x = \"a\" x $ARGV[0]; $x =~ tr/a/b/; exit(length($x) != $ARGV[0])'";

#[tokio::test]
async fn a_memory_bomb_is_stopped() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let walls = limited(&walls, |limits| limits.memory_bytes = 128 << 20);
    let attack = format!("{TAKE_MEMORY} 300000000");
    assert_stopped(&both(&fixture, worktree.dir(), &walls, &attack).await);
    let modest = format!("{TAKE_MEMORY} 1000000");
    let exit = run_boxed(fixture.shell(worktree.dir(), &modest), &walls).await;
    assert_eq!((exit.code, exit.out_of_memory), (Some(0), false), "{exit:?}");
}

/// Many processes, each below its own limit. Only a control group counts them together.
#[tokio::test]
async fn memory_is_counted_for_the_whole_box_where_the_kernel_can() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    if sandbox().await.cgroups().is_none() {
        eprintln!("SKIPPED: no control groups can be made here");
        return;
    }
    let walls = limited(&walls, |limits| limits.memory_bytes = 96 << 20);
    let attack = "perl -e '$SIG{CHLD} = sub { wait; exit 1 if $? }; for (1..4) { if (!fork) { \
                  $x = \"a\" x 30000000; $x =~ tr/a/b/; sleep 1000 } } sleep 1000'";
    let exit = within_a_minute(run_boxed(fixture.shell(worktree.dir(), attack), &walls)).await;
    assert!(exit.out_of_memory, "{exit:?}");
}

/// Giving up on a box ends it.
async fn within_a_minute(run: impl Future<Output = Exit>) -> Exit {
    let ended = tokio::time::timeout(Duration::from_secs(60), run).await;
    ended.unwrap_or_else(|_| panic!("the walls did not hold"))
}

async fn filling_is_stopped(attack: &str, enough: &str, change: impl FnOnce(&mut Limits)) {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let walls = limited(&walls, change);
    let outside = run(fixture.shell(worktree.dir(), &attack.replace("ENOUGH", enough))).await;
    assert_eq!(outside.code, Some(0), "the attack itself must work: {outside:?}");
    run(fixture.shell(worktree.dir(), "rm -rf filler")).await;
    // Inside it goes on until somebody stops it; if nobody does, the test does.
    let endless = attack.replace("ENOUGH", "1000000000");
    let inside = within_a_minute(run_boxed(fixture.shell(worktree.dir(), &endless), &walls)).await;
    assert!(inside.over_quota.is_some(), "the walls did not hold: {inside:?}");
}

#[tokio::test]
async fn the_disk_cannot_be_filled() {
    let attack = "mkdir filler; for ((i = 0; i < ENOUGH; i++)); do \
                  head -c 1000000 /dev/zero > filler/$((i % 200)) || exit 1; done";
    filling_is_stopped(attack, "40", |limits| limits.disk_bytes = 32 << 20).await;
}

#[tokio::test]
async fn inodes_cannot_be_used_up() {
    let attack = "perl -e 'mkdir \"filler\"; for $i (1..ENOUGH) { open(F, \">\", \
                  \"filler/\" . $i % 20000) or exit 1 }'";
    filling_is_stopped(attack, "5000", |limits| limits.disk_files = 4_000).await;
}

#[tokio::test]
async fn a_single_file_cannot_grow_without_end() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let walls = limited(&walls, |limits| limits.file_bytes = 1 << 20);
    let attack = "head -c 3000000 /dev/zero > big && test $(stat -c %s big) = 3000000";
    assert_stopped(&both(&fixture, worktree.dir(), &walls, attack).await);
}

#[tokio::test]
async fn rights_cannot_be_gained() {
    stopped_for_root(&call(libc::SYS_setuid, "12345")).await;
    stopped_for_root(&call(libc::SYS_chroot, "my $d = \"/tmp\"")).await;
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let command = "grep -E '^(NoNewPrivs|CapEff|CapPrm|CapAmb|Seccomp):' /proc/self/status";
    let inside = run_boxed(fixture.shell(worktree.dir(), command), &walls).await;
    let nothing = "0".repeat(16);
    let expected = format!(
        "CapPrm:\t{nothing}\nCapEff:\t{nothing}\nCapAmb:\t{nothing}\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    );
    assert_eq!(inside.tail, expected);
}

#[tokio::test]
async fn nothing_can_be_mounted() {
    stopped_for_root("mkdir -p mnt && unshare --mount mount -t tmpfs none mnt").await;
}

#[tokio::test]
async fn no_further_namespace_can_be_made() {
    stopped_for_root("unshare --net true").await;
    stopped_for_root("unshare --user true").await;
}

#[tokio::test]
async fn the_keyring_is_closed() {
    let thread_keyring = -1;
    stopped(&format!(
        "perl -e 'my ($t, $n, $v) = (\"user\", \"kapelle-test\", \"x\"); \
         exit(syscall({}, $t, $n, $v, 1, {thread_keyring}) < 0)'",
        libc::SYS_add_key
    ))
    .await;
}

/// What is typed for the user runs with the user's rights, after the box is gone.
#[tokio::test]
async fn nothing_can_be_typed_into_a_terminal() {
    let typing =
        format!("perl -e '\\''my $c = \"x\"; ioctl(STDIN, {}, $c) or exit 1'\\''", libc::TIOCSTI);
    stopped_for_root(&format!("script -qec '{typing}' /dev/null")).await;
}

/// The limits and rules are for good: they are not a matter of asking nicely.
#[tokio::test]
async fn a_limit_cannot_be_raised() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let walls = limited(&walls, |limits| limits.open_files = 100);
    assert_stopped(&both(&fixture, worktree.dir(), &walls, "ulimit -n 200").await);
}

async fn owned(fixture: &Fixture, worktree: &Worktree, walls: &Walls, pipe: &Path) -> (i32, Exit) {
    let command =
        format!("setsid sleep 1000 & (sleep 1000 &); echo > {}; sleep 1000", pipe.display());
    let spec = sandbox().await.wrap(fixture.shell(worktree.dir(), &command), walls).unwrap();
    let mut owner = std::process::Command::new("bash");
    owner.args(["-c", "\"$@\" & wait", "owner"]).arg(&spec.program).args(&spec.args);
    owner.current_dir(&spec.dir).env_clear().envs(&spec.env);
    owner.env("KAPELLE_LEASE", fixture.lease().to_string());
    let mut owner = owner.spawn().unwrap();
    let pipe = pipe.to_owned();
    tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe)).await.unwrap().unwrap();
    let inside = kapelle_workspace::reaper::running(&fixture.lease().store).unwrap().len();
    owner.kill().unwrap();
    owner.wait().unwrap();
    let left = run(fixture.shell(worktree.dir(), "true")).await;
    (i32::try_from(inside).unwrap(), left)
}

/// `kill -9` of Kapelle itself: nobody is left who could clear up.
#[tokio::test]
async fn a_box_dies_with_its_owner() {
    let fixture = Fixture::new();
    let (worktree, walls) = prepared(&fixture).await;
    let pipe = worktree.dir().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (inside, _) = owned(&fixture, &worktree, &walls, &pipe).await;
    assert!(inside >= 4, "{inside} processes");
    let gone = async {
        while !kapelle_workspace::reaper::running(&fixture.lease().store).unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), gone).await;
    assert!(waited.is_ok(), "processes of the box live on");
}
