//! How much memory this process may have: the limit of its control group, or else the machine's. The only I/O of this crate.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a total comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The operator said it.
    Flag,
    /// The control group's limit, or that of one above it.
    Cgroup,
    /// There is no such limit: the machine's memory.
    Machine,
    /// Neither can be read: as `deploy/hub` limits a hub.
    Assumed,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "as given",
            Self::Cgroup => "the control group's limit",
            Self::Machine => "the machine's memory",
            Self::Assumed => "assumed",
        })
    }
}

/// How many bytes this process may have: `given`, or else what its surroundings say.
#[must_use]
pub fn memory(given: Option<u64>) -> (u64, Origin) {
    given.map_or_else(|| memory_at(Path::new("/")), |bytes| (bytes, Origin::Flag))
}

/// As [`memory`], with the system's files below `root`.
fn memory_at(root: &Path) -> (u64, Origin) {
    let machine = machine(root);
    // Version 1 says "no limit" by a number of about eight exbibytes.
    match cgroup(root).filter(|limit| machine.is_none_or(|machine| *limit < machine)) {
        Some(limit) => (limit, Origin::Cgroup),
        None => machine.map_or((1 << 30, Origin::Assumed), |machine| (machine, Origin::Machine)),
    }
}

fn machine(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of this process's groups and those above them.
fn cgroup(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mut least: Option<u64> = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (mount, file) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        // In a container the group's path may be the host's, of which only the root is mounted: that is tried last.
        for folder in folders(path) {
            let limit = std::fs::read_to_string(root.join(mount).join(&folder).join(file)).ok();
            // "max" means that there is no limit.
            let limit = limit.and_then(|text| text.trim().parse::<u64>().ok()).filter(|limit| *limit > 0);
            least = least.into_iter().chain(limit).min();
        }
    }
    least
}

/// A group's folder and all above it, the mount's root last.
fn folders(path: &str) -> Vec<PathBuf> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != "..").collect();
    (0..=names.len()).rev().map(|length| names[..length].iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root folder with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[track_caller]
    fn found(files: &[(&str, &str)], want: (u64, Origin)) {
        assert_eq!(memory_at(root(files).path()), want);
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\n");

    #[test]
    fn version_two_and_the_least_of_those_above() {
        found(
            &[
                MACHINE,
                ("proc/self/cgroup", "0::/pods/pod1/hub\n"),
                ("sys/fs/cgroup/pods/pod1/hub/memory.max", "max\n"),
                ("sys/fs/cgroup/pods/pod1/memory.max", "1048576\n"),
                ("sys/fs/cgroup/pods/memory.max", "2097152\n"),
            ],
            (1 << 20, Origin::Cgroup),
        );
    }

    #[test]
    fn a_container_that_sees_its_group_as_the_root() {
        found(
            &[MACHINE, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "1048576\n")],
            (1 << 20, Origin::Cgroup),
        );
    }

    #[test]
    fn version_one_also_where_the_path_is_the_hosts() {
        let group = ("proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/docker/abc\n0::/\n");
        let limit = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        found(&[MACHINE, group, (limit, "1048576\n")], (1 << 20, Origin::Cgroup));
        found(&[MACHINE, group, (limit, "9223372036854771712\n")], (16 << 20, Origin::Machine));
    }

    #[test]
    fn no_limit_and_no_files() {
        found(&[MACHINE, ("proc/self/cgroup", "0::/\nnonsense\n")], (16 << 20, Origin::Machine));
        found(&[], (1 << 30, Origin::Assumed));
        assert_eq!(memory(Some(5)), (5, Origin::Flag));
    }

    #[test]
    fn this_machine_says_something() {
        assert!(memory(None).0 > 0);
    }
}
