//! How much memory a program and its children hold, and a limit for them as a container has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::unique::unique;

/// VmRSS of process `id` and all that descend from it, in bytes. Processes that have ended meanwhile count for nothing.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn resident(id: u32) -> Result<u64> {
    let mut processes: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("list /proc")? {
        let entry = entry.context("list /proc")?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let parent = field("PPid:").and_then(|parent| u32::try_from(parent).ok()).unwrap_or_default();
        processes.insert(number, (parent, field("VmRSS:").unwrap_or_default() * 1024));
    }
    let descends = |mut process: u32| loop {
        if process == id {
            return true;
        }
        match processes.get(&process) {
            Some((parent, _)) if *parent != 0 => process = *parent,
            _ => return false,
        }
    };
    Ok(processes.iter().filter(|(process, _)| descends(**process)).map(|(_, (_, bytes))| bytes).sum())
}

/// A control group of the kernel that limits the memory of what is in it. Dropping it removes it once it is empty.
#[derive(Debug)]
pub struct MemoryLimit {
    folder: PathBuf,
}

impl MemoryLimit {
    /// A group with this limit in bytes, or none where this user may not make one.
    #[must_use]
    pub fn new(bytes: u64) -> Option<Self> {
        // Version 1 has a hierarchy for memory, version 2 one for all.
        let tried = [
            (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
            (Path::new("/sys/fs/cgroup"), "memory.max"),
        ];
        tried.into_iter().find_map(|(root, file)| {
            let folder = root.join(unique("roadstead-test"));
            std::fs::create_dir(&folder).ok()?;
            let limit = Self { folder };
            std::fs::write(limit.folder.join(file), bytes.to_string()).ok()?;
            Some(limit)
        })
    }

    /// Puts a process into the group, with all children that it starts from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hold(&self, id: u32) -> Result<()> {
        let file = self.folder.join("cgroup.procs");
        std::fs::write(&file, id.to_string()).with_context(|| format!("write {}", file.display()))
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // While something is in it the kernel keeps it: a leftover is an empty folder of its own name.
        let _ = std::fs::remove_dir(&self.folder);
    }
}
