//! What this process takes of its machine, by the names that Prometheus' clients give it.

use std::fs;
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::{Real, signed};

/// Ticks of a second in the kernel's files: all of Linux's platforms have this many.
const TICKS: f64 = 100.0;

/// A process.
#[derive(Debug)]
pub struct Process {
    /// When it began, in seconds since 1970.
    began: f64,
}

impl Process {
    /// This one, which has just begun.
    #[must_use]
    pub fn this() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { began: now.as_secs_f64() }
    }

    /// Adds what it takes now. What the kernel does not say is left out.
    pub fn register(&self, registry: &mut Registry) {
        let began = Real::default();
        began.set(self.began);
        registry.register_with_unit(
            "process_start_time",
            "When the process began, since 1970",
            Unit::Seconds,
            began,
        );
        if let Some(used) = cpu() {
            let counter = Counter::<f64, std::sync::atomic::AtomicU64>::default();
            counter.inc_by(used.as_secs_f64());
            registry.register_with_unit(
                "process_cpu",
                "CPU time that the process has used",
                Unit::Seconds,
                counter,
            );
        }
        if let Some(resident) = resident() {
            let gauge = Gauge::<i64>::default();
            gauge.set(signed(resident));
            registry.register_with_unit(
                "process_resident_memory",
                "Memory of the process that is in RAM",
                Unit::Bytes,
                gauge,
            );
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            let gauge = Gauge::<i64>::default();
            gauge.set(signed(files.count()));
            registry.register("process_open_fds", "Open files and connections of the process", gauge);
        }
    }
}

/// CPU time of this process, of all its threads.
fn cpu() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    cpu_of(&stat)
}

fn cpu_of(stat: &str) -> Option<Duration> {
    // The name of the program stands in brackets, and may have spaces and brackets in it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(Duration::from_secs_f64((f64::from(user) + f64::from(system)) / TICKS))
}

/// Bytes of this process that are in RAM.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_may_have_anything_in_it() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 1 0 100 1000 50";
        assert_eq!(cpu_of(stat), Some(Duration::from_secs(4)));
        assert_eq!(cpu_of("42 (a"), None);
        assert_eq!(cpu_of("42 (a) S 1"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_takes_something() {
        assert!(resident().is_some_and(|bytes| bytes > 1 << 20));
        assert!(cpu().is_some());
    }
}
