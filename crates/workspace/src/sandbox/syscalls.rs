//! The filter on system calls.
//!
//! A list of what is refused, not of what is allowed: agents run compilers, browsers and test
//! suites of every kind, and a list of allowed calls would break with each new libc. Refused is
//! what no build needs and what past escapes began with: mounting, namespaces, loading code into
//! the kernel, keys, handles to files by number, rare socket families, typing into a terminal.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
};

use super::mandate::Sockets;

/// Flags of `clone` and `unshare` that make a namespace.
const NAMESPACES: [i32; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWTIME,
];

/// Refused whatever their arguments are.
const REFUSED: [i64; 48] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_fanotify_init,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_mbind,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: [i64; 5] =
    [libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS_ustat];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: [i64; 0] = [];

/// Answered as if the kernel did not know them: programs then take the older call, whose
/// arguments a filter can look at.
const UNKNOWN: [i64; 4] = [
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// On x86_64 numbers from here on are calls of the x32 interface, which some kernels have besides.
/// Nothing that agents run uses it, and under it every refused call has a second number.
#[cfg(target_arch = "x86_64")]
const OTHER_INTERFACE: Option<u32> = Some(0x4000_0000);
#[cfg(not(target_arch = "x86_64"))]
const OTHER_INTERFACE: Option<u32> = None;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Puts the calling thread, and everything that it starts, behind the filter for good.
pub(super) fn confine(sockets: Sockets) -> Result<(), seccompiler::Error> {
    for program in programs(sockets)? {
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

fn programs(sockets: Sockets) -> Result<Vec<BpfProgram>, seccompiler::Error> {
    let mut refused: Rules =
        REFUSED.iter().chain(&REFUSED_HERE).map(|call| (*call, vec![])).collect();
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        let any = NAMESPACES.iter().map(|flag| masked(0, u64::from(flag.unsigned_abs())));
        refused.insert(call, any.collect::<Result<_, _>>()?);
    }
    let typing = [libc::TIOCSTI, libc::TIOCLINUX].into_iter().map(|request| equal(1, request));
    refused.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
    refused.insert(libc::SYS_socket, refused_sockets(sockets)?);
    let unknown: Rules = UNKNOWN.iter().map(|call| (*call, vec![])).collect();
    let mut all = vec![compiled(refused, libc::EPERM)?, compiled(unknown, libc::ENOSYS)?];
    all.extend(OTHER_INTERFACE.map(unknown_from));
    Ok(all)
}

/// Answers every call from this number on as if the kernel did not know it. The kernel tries a
/// new filter on each of its calls, so four instructions are cheaper than a second list.
fn unknown_from(number: u32) -> BpfProgram {
    let at = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let unknown = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    vec![
        // The number comes first in what the kernel shows to a filter.
        at(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        at(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, number),
        at(libc::BPF_RET | libc::BPF_K, 0, 0, unknown),
        at(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Local sockets always; the internet families where the network is the box's own; of netlink
/// only the questions about interfaces that resolvers ask.
fn refused_sockets(sockets: Sockets) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let mut allowed = vec![libc::AF_UNIX];
    if sockets == Sockets::Internet {
        allowed.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    let mut conditions = Vec::new();
    for family in allowed {
        conditions.push(condition(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()))?);
    }
    let mut rules = vec![SeccompRule::new(conditions)?];
    if sockets == Sockets::Internet {
        let netlink = condition(0, SeccompCmpOp::Eq, u64::from(libc::AF_NETLINK.unsigned_abs()))?;
        let other = condition(2, SeccompCmpOp::Ne, u64::from(libc::NETLINK_ROUTE.unsigned_abs()))?;
        rules.push(SeccompRule::new(vec![netlink, other])?);
        let raw = u64::from(libc::SOCK_RAW.unsigned_abs());
        let kind = condition(1, SeccompCmpOp::MaskedEq(SOCKET_KIND_MASK), raw)?;
        let internet = condition(0, SeccompCmpOp::Ne, u64::from(libc::AF_NETLINK.unsigned_abs()))?;
        rules.push(SeccompRule::new(vec![kind, internet])?);
    }
    Ok(rules)
}

/// The kind of a socket without the flags that may be mixed in.
const SOCKET_KIND_MASK: u64 = 0xf;

fn compiled(rules: Rules, errno: i32) -> Result<BpfProgram, seccompiler::Error> {
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?;
    Ok(filter.try_into()?)
}

fn masked(argument: u8, bit: u64) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![condition(argument, SeccompCmpOp::MaskedEq(bit), bit)?])?)
}

fn equal(argument: u8, value: u64) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, value)?])?)
}

/// The kernel looks at 32 bits of these arguments, and so do we: the rest would be a way around.
fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::Error> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel takes programs of up to 4,096 instructions; past that the box would not start.
    #[test]
    fn the_filters_are_small_enough_for_the_kernel() {
        for sockets in [Sockets::Internet, Sockets::Local] {
            for program in programs(sockets).unwrap() {
                assert!((4..4_096).contains(&program.len()), "{} instructions", program.len());
            }
        }
    }
}
