//! Profiles of the own process's CPU time, in the format of `pprof` (gzipped protocol buffers, with names of functions).
//!
//! The threads that use the CPU are sampled a hundred times a second of CPU time, for as long as a profile is asked to take; nothing is
//! measured at other times.

use std::collections::HashMap;
use std::time::Duration;

use pprof_util::{StackProfile, WeightedStack};
use tokio::sync::{Mutex, MutexGuard};

/// Bytes that a process takes from its first profile on: a table for samples of 64 MiB, which stays, and names of functions while they are looked up.
pub const MEMORY: u64 = 96 << 20;
/// Samples for each second of CPU time. Not 100, or work that a timer starts would be met always or never.
const HERTZ: i32 = 99;
/// Where frames of the handler that takes samples are looked for; it calls a few functions at most.
const HANDLER_DEPTH: usize = 12;
/// Where unwinding is not safe from a signal's handler. Time spent there is not counted.
const NOT_UNWOUND: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];
/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// One is made already: two at once would measure each other.
    #[error("another profile is being made; try again when it is ready")]
    Busy,
    /// The sampler of CPU time failed.
    #[error("take samples of CPU time: {0}")]
    Cpu(#[from] pprof::Error),
    /// The task that writes it ended early.
    #[error("write a profile: {0}")]
    Write(#[from] tokio::task::JoinError),
}

/// Makes profiles of this process, one at a time.
#[derive(Debug, Default)]
pub struct Profiler {
    turn: Mutex<()>,
}

impl Profiler {
    /// Where CPU time goes in the next `duration`. Dropped early, it ends early.
    ///
    /// # Errors
    /// [`ProfileError::Busy`], or no samples can be taken.
    pub async fn cpu(&self, duration: Duration) -> Result<Vec<u8>, ProfileError> {
        let _turn = self.turn()?;
        let sampler =
            pprof::ProfilerGuardBuilder::default().frequency(HERTZ).blocklist(&NOT_UNWOUND).build()?;
        tokio::time::sleep(duration).await;
        tokio::task::spawn_blocking(move || cpu_profile(&sampler)).await?
    }

    fn turn(&self) -> Result<MutexGuard<'_, ()>, ProfileError> {
        self.turn.try_lock().map_err(|_| ProfileError::Busy)
    }
}

fn cpu_profile(sampler: &pprof::ProfilerGuard<'_>) -> Result<Vec<u8>, ProfileError> {
    let report = sampler.report().build_unresolved()?;
    let mut handler = Handler::default();
    let nanoseconds = 1e9 / f64::from(HERTZ);
    let stacks = report.data.iter().map(|(stack, count)| {
        let frames: Vec<usize> = stack.frames.iter().map(|frame| frame.ip().addr()).collect();
        let own = handler.frames(&frames);
        // Written from the outermost to the innermost.
        // A frame below the first of a thread has no address.
        let addrs = frames.into_iter().skip(own).filter(|address| *address > 0).rev().collect();
        #[expect(clippy::cast_precision_loss, reason = "a count of samples is far below 2^52")]
        let weight = *count as f64 * nanoseconds;
        (WeightedStack { addrs, weight }, None)
    });
    let profile = StackProfile {
        annotations: Vec::new(),
        stacks: stacks.collect(),
        mappings: mappings::MAPPINGS.clone().unwrap_or_default(),
    };
    Ok(profile.to_pprof(("cpu", "nanoseconds"), ("cpu", "nanoseconds"), None))
}

/// Tells the frames of the handler that takes samples from those that it has interrupted.
#[derive(Default)]
struct Handler {
    /// Whether an address is in it.
    known: HashMap<usize, bool>,
}

impl Handler {
    /// How many of these frames, innermost first, are of taking the sample: up to the handler, and what the kernel returns to from it.
    fn frames(&mut self, frames: &[usize]) -> usize {
        let found = frames.iter().take(HANDLER_DEPTH).position(|address| self.is_handler(*address));
        found.map_or(0, |position| position + 2)
    }

    fn is_handler(&mut self, address: usize) -> bool {
        *self.known.entry(address).or_insert_with(|| {
            let mut found = false;
            // The address is the one after the call.
            backtrace::resolve(std::ptr::without_provenance_mut(address.saturating_sub(1)), |symbol| {
                found |= symbol.name().is_some_and(|name| name.as_bytes().ends_with(b"perf_signal_handler"));
            });
            found
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[inline(never)]
    fn hard_at_work(ended: &AtomicBool) -> u64 {
        let mut number = 1_u64;
        while !ended.load(Ordering::Relaxed) {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        number
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_uses_the_cpu_is_seen_by_name_and_the_sampler_is_not() {
        let ended = std::sync::Arc::new(AtomicBool::new(false));
        let work = std::sync::Arc::clone(&ended);
        let worker = std::thread::spawn(move || hard_at_work(&work));
        let profiler = Profiler::default();
        let (profile, second) = tokio::join!(profiler.cpu(Duration::from_secs(2)), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            profiler.cpu(Duration::from_secs(1)).await
        });
        ended.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        assert!(matches!(second, Err(ProfileError::Busy)), "{second:?}");
        let mut names = Vec::new();
        flate2::read::GzDecoder::new(profile.unwrap().as_slice()).read_to_end(&mut names).unwrap();
        let names = String::from_utf8_lossy(&names);
        assert!(names.contains("hard_at_work"));
        assert!(!names.contains("perf_signal_handler"));
    }
}
