//! The system calls that a worker may make: an allowlist.
//!
//! A list of what is allowed, and not of what is not, so that what a later kernel brings is refused too. What is refused
//! fails with `EPERM` (and `clone3` with `ENOSYS`, whose arguments no filter can look at: the C library then takes
//! `clone`): a library that tries something which it can do without goes on.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// To compute, to keep memory, to have threads, and to end.
const PLAIN: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// To speak over the pipes, and to have files in the scratch folder, which is all that Landlock leaves.
const FILES: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_ppoll,
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_utimensat,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_umask,
];

/// Older forms of the above, which newer processors do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_chmod,
    libc::SYS_time,
    libc::SYS_dup2,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[libc::c_long] = &[];

/// Refuses all system calls but those of the list, for all threads that this one will have.
pub(crate) fn allow_only_what_is_needed() -> seccompiler::Result<()> {
    // Two filters, of which the stricter counts: one filter has one way to refuse.
    seccompiler::apply_filter(&without_clone3()?)?;
    seccompiler::apply_filter(&allowlist()?)
}

fn without_clone3() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let refusal = SeccompAction::Errno(errno(libc::ENOSYS));
    SeccompFilter::new(rules, SeccompAction::Allow, refusal, std::env::consts::ARCH.try_into()?)?.try_into()
}

fn allowlist() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        PLAIN.iter().chain(FILES).chain(OLD).map(|number| (*number, Vec::new())).collect();
    rules.insert(libc::SYS_clone3, Vec::new());
    // Threads, not processes.
    let thread = u64::try_from(libc::CLONE_THREAD).unwrap_or_default();
    rules.insert(libc::SYS_clone, only(&[(0, SeccompCmpOp::MaskedEq(thread), thread)])?);
    // No memory that can be run: what is not in the program's file is data.
    let run = u64::try_from(libc::PROT_EXEC).unwrap_or_default();
    let no_run = (2, SeccompCmpOp::MaskedEq(run), 0);
    rules.insert(libc::SYS_mprotect, only(std::slice::from_ref(&no_run))?);
    // Nor memory that is shared and of no file: it is in no count of what a process has for itself.
    let (shared, anonymous) =
        (libc::MAP_SHARED.unsigned_abs().into(), libc::MAP_ANONYMOUS.unsigned_abs().into());
    let mut mapped = Vec::new();
    for flags in [0, shared, anonymous] {
        mapped.extend(only(&[no_run.clone(), (3, SeccompCmpOp::MaskedEq(shared | anonymous), flags)])?);
    }
    rules.insert(libc::SYS_mmap, mapped);
    // Its own limits may be read.
    rules.insert(libc::SYS_prlimit64, only(&[(0, SeccompCmpOp::Eq, 0), (2, SeccompCmpOp::Eq, 0)])?);
    // A thread may be named.
    let name = u64::try_from(libc::PR_SET_NAME).unwrap_or_default();
    rules.insert(libc::SYS_prctl, only(&[(0, SeccompCmpOp::Eq, name)])?);
    // It may abort itself.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, only(&[(0, SeccompCmpOp::Eq, own)])?);
    let refusal = SeccompAction::Errno(errno(libc::EPERM));
    SeccompFilter::new(rules, refusal, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// A rule that holds where all of these conditions do: (argument, comparison, value).
fn only(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let conditions = conditions
        .iter()
        .map(|(argument, comparison, value)| {
            SeccompCondition::new(*argument, SeccompCmpArgLen::Qword, comparison.clone(), *value)
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(vec![SeccompRule::new(conditions)?])
}

fn errno(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}
