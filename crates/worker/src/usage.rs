//! What a child process uses, as the system counts it.

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
