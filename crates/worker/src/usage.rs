//! What a child process uses, as the system counts it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// CPU time of all threads of a process until now; none where the system does not tell.
pub(crate) fn cpu(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    ticks(&stat).map(|ticks| {
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Duration::from_millis(ticks.saturating_mul(1000) / per_second)
    })
}

/// User and system time, the 14th and 15th field. The second one, the program's name, may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// Bytes that a process has in memory for itself: without the program's file, which all share. None where the system does
/// not tell.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(pages(&statm, 1)?.saturating_sub(pages(&statm, 2)?))
}

/// Bytes of address space that this process has mapped.
pub(crate) fn own_address_space() -> Option<u64> {
    pages(&std::fs::read_to_string("/proc/self/statm").ok()?, 0)
}

/// Bytes on the disk of all files in a folder, and of those that a process removed and still has open. None where there are
/// more than `most` files and folders. The folder is the process's own, and may change meanwhile: what is gone counts nothing.
pub(crate) fn files(pid: u32, folder: &Path, most: usize) -> Option<u64> {
    // As the system counts: 512 bytes a block, whatever the file system's own are.
    let size = |found: std::io::Result<std::fs::Metadata>| found.map_or(0, |of| of.blocks() * 512);
    let mut bytes: u64 = 0;
    let mut count: usize = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            count += 1;
            if count > most {
                return None;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
            // Of a link, the link's own.
            bytes = bytes.saturating_add(size(entry.metadata()));
        }
    }
    // Only the system's administrator may look at the open files of a process that nobody may trace.
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let open = open.filter_map(|entry| std::fs::metadata(entry.path()).ok());
    let removed = open.filter(|of| of.is_file() && of.nlink() == 0);
    Some(removed.fold(bytes, |bytes, of| bytes.saturating_add(size(Ok(of)))))
}

fn pages(statm: &str, field: usize) -> Option<u64> {
    let pages: u64 = statm.split_ascii_whitespace().nth(field)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_whatever_the_program_is_called() {
        let stat = "17 (a ) b (c) R 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 1 0 99";
        assert_eq!(ticks(stat), Some(175));
        assert_eq!(ticks("17 (x"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_uses_something() {
        let pid = std::process::id();
        assert!(cpu(pid).is_some());
        assert!(resident(pid).unwrap() > 1 << 16);
        assert!(own_address_space().unwrap() >= resident(pid).unwrap());
        assert_eq!(cpu(u32::MAX), None);
    }
}
