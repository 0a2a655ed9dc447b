//! How a worker limits itself, before it reads the first byte of a job.

use std::fmt;
use std::io;
#[cfg(target_os = "linux")]
use std::path::Path;

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::process::Setup;
use crate::usage;

/// Bytes of the main thread's stack.
const STACK: u64 = 16 << 20;
/// How far a worker steps back where CPU time is short: the process that runs it answers requests and keeps sessions alive.
const NICE: i32 = 10;

/// Which protections of a worker are on. Limits of memory, files and core dumps always are: no worker starts without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protections {
    /// No program that it runs could gain rights.
    pub no_new_privileges: bool,
    /// System calls outside of an allowlist fail: no sockets, processes, signals, tracing.
    pub seccomp: bool,
    /// How far files outside of its scratch folder are out of reach.
    pub files: FileAccess,
    /// Where memory runs out on the machine, the system ends a worker rather than the process that runs it.
    pub first_to_go: bool,
}

/// How far files outside of a worker's scratch folder are out of reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Out of reach (Landlock).
    Confined,
    /// Out of reach, as far as this kernel's older Landlock knows of kinds of access.
    MostlyConfined,
    /// Whatever this user may open: the kernel has no Landlock, or it is off.
    Open,
}

impl Protections {
    /// Whether all are on.
    #[must_use]
    pub fn all(self) -> bool {
        self.no_new_privileges && self.seccomp && self.files == FileAccess::Confined && self.first_to_go
    }

    /// Before a worker has said anything.
    pub(crate) fn none() -> Self {
        Self { no_new_privileges: false, seccomp: false, files: FileAccess::Open, first_to_go: false }
    }

    pub(crate) fn encode(self) -> [u8; 4] {
        let files = match self.files {
            FileAccess::Confined => 2,
            FileAccess::MostlyConfined => 1,
            FileAccess::Open => 0,
        };
        [u8::from(self.no_new_privileges), u8::from(self.seccomp), files, u8::from(self.first_to_go)]
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let &[no_new_privileges, seccomp, files, first_to_go] = bytes else { return None };
        let files = match files {
            2 => FileAccess::Confined,
            1 => FileAccess::MostlyConfined,
            _ => FileAccess::Open,
        };
        Some(Self {
            no_new_privileges: no_new_privileges == 1,
            seccomp: seccomp == 1,
            files,
            first_to_go: first_to_go == 1,
        })
    }
}

impl fmt::Display for Protections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |on| if on { "on" } else { "off" };
        let files = match self.files {
            FileAccess::Confined => "on",
            FileAccess::MostlyConfined => "partly on (an older kernel)",
            FileAccess::Open => "off",
        };
        write!(
            f,
            "limits: on, no new privileges: {}, seccomp: {}, Landlock: {files}, first to go without memory: {}",
            word(self.no_new_privileges),
            word(self.seccomp),
            word(self.first_to_go),
        )
    }
}

/// Limits this process; it stays so until it ends.
///
/// # Errors
/// Where a limit cannot be set. What the kernel does not have is told in the result.
pub(crate) fn apply(setup: &Setup) -> io::Result<Protections> {
    close_inherited();
    // To make oneself a better victim is always allowed.
    let first_to_go = std::fs::write("/proc/self/oom_score_adj", "1000").is_ok();
    die_with_the_starter()?;
    // To step back is always allowed. Its threads do so as well; there are none yet.
    let _ = rustix::process::setpriority_process(None, NICE);
    limits(setup)?;
    let no_new_privileges = no_new_privileges();
    let files = confine_files(setup);
    let seccomp = filter_system_calls();
    Ok(Protections { no_new_privileges, seccomp, files, first_to_go })
}

/// Closes what whoever started the program left open to its children: the pipes are all that a worker has.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // The list's own is closed already.
        let _ = nix::unistd::close(fd);
    }
}

fn limits(setup: &Setup) -> io::Result<()> {
    let set = |resource, most: u64| {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).map_err(io::Error::from)
    };
    // What the program itself has mapped is its file, which all processes of it share.
    let program = usage::own_address_space().unwrap_or(0);
    set(Resource::As, setup.memory.saturating_add(setup.mapped).saturating_add(program))?;
    set(Resource::Data, setup.memory)?;
    set(Resource::Stack, STACK)?;
    set(Resource::Nofile, setup.files)?;
    set(Resource::Fsize, setup.file_size)?;
    set(Resource::Core, 0)
}

#[cfg(target_os = "linux")]
fn die_with_the_starter() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, Signal};
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Processes of the same user can neither trace it nor read its memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn no_new_privileges() -> bool {
    rustix::thread::set_no_new_privs(true).is_ok()
}

#[cfg(target_os = "linux")]
fn filter_system_calls() -> bool {
    crate::syscalls::allow_only_what_is_needed().is_ok()
}

#[cfg(target_os = "linux")]
fn confine_files(setup: &Setup) -> FileAccess {
    use landlock::RulesetStatus;
    match restrict(&setup.scratch, &setup.readable) {
        Ok(RulesetStatus::FullyEnforced) => FileAccess::Confined,
        Ok(RulesetStatus::PartiallyEnforced) => FileAccess::MostlyConfined,
        Ok(RulesetStatus::NotEnforced) | Err(_) => FileAccess::Open,
    }
}

#[cfg(target_os = "linux")]
fn restrict(
    scratch: &Path,
    readable: &[std::path::PathBuf],
) -> Result<landlock::RulesetStatus, landlock::RulesetError> {
    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
        RulesetCreatedAttr as _, Scope, path_beneath_rules,
    };
    // Of Linux 6.12: all kinds of access to files and TCP, and that nothing outside is signalled or spoken to.
    let newest = ABI::V6;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(newest))?
        .handle_access(AccessNet::from_all(newest))?
        .scope(Scope::from_all(newest))?
        .create()?
        .add_rules(path_beneath_rules([scratch], AccessFs::from_all(newest)))?
        .add_rules(path_beneath_rules(readable, AccessFs::from_read(newest)))?;
    Ok(ruleset.restrict_self()?.ruleset)
}

#[cfg(not(target_os = "linux"))]
fn die_with_the_starter() -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn no_new_privileges() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn filter_system_calls() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn confine_files(_setup: &Setup) -> FileAccess {
    FileAccess::Open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_arrives_and_is_shown() {
        for files in [FileAccess::Confined, FileAccess::MostlyConfined, FileAccess::Open] {
            for bits in 0..8 {
                let some = Protections {
                    no_new_privileges: bits & 1 != 0,
                    seccomp: bits & 2 != 0,
                    files,
                    first_to_go: bits & 4 != 0,
                };
                assert_eq!(Protections::decode(&some.encode()), Some(some));
                assert_eq!(
                    some.all(),
                    !some.to_string().contains("off") && !some.to_string().contains("part")
                );
            }
        }
        assert_eq!(Protections::decode(b""), None);
    }
}
