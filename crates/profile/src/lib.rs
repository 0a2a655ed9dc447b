//! CPU and heap profiles of the own process, in the format of `pprof` (gzipped protocol buffers, with names of functions).
//!
//! A CPU profile samples the threads that use the CPU, a hundred times a second of CPU time, for as long as it is asked to; nothing is
//! measured at other times. A heap profile shows what is allocated now and by whom, estimated from samples that the allocator has
//! taken since the process began: it has to be [started](with_heap_profiles) with that, because what was not sampled when it was
//! allocated cannot be told later.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use jemalloc_pprof::{PROF_CTL, StackProfile, WeightedStack};
use tokio::sync::{Mutex, MutexGuard};

/// Samples for each second of CPU time. Not 100, or work that a timer starts would be met always or never.
const HERTZ: i32 = 99;
/// Where frames of the handler that takes samples are looked for; it calls a few functions at most.
const HANDLER_DEPTH: usize = 12;
/// Where unwinding is not safe from a signal's handler. Time spent there is not counted.
const NOT_UNWOUND: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];
/// What tells the allocator of a starting process what to do.
const ALLOCATOR_VARIABLE: &str = "_RJEM_MALLOC_CONF";
/// A sample for each 512 KiB that are allocated, from the beginning.
const ALLOCATOR_OPTIONS: &str = "prof:true,prof_active:true,lg_prof_sample:19";

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// One is made already: two at once would measure each other.
    #[error("another profile is being made; try again when it is ready")]
    Busy,
    /// The process was not started for it.
    #[error("this process takes no samples of its heap")]
    NoHeapProfiles,
    /// The sampler of CPU time failed.
    #[error("take samples of CPU time: {0}")]
    Cpu(#[from] pprof::Error),
    /// The allocator did not write its samples.
    #[error("write the heap's samples: {0}")]
    Heap(String),
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

    /// What is allocated now, estimated from samples.
    ///
    /// # Errors
    /// [`ProfileError::Busy`], or the allocator takes no samples: see [`with_heap_profiles`].
    pub async fn heap(&self) -> Result<Vec<u8>, ProfileError> {
        let _turn = self.turn()?;
        let control = PROF_CTL.as_ref().ok_or(ProfileError::NoHeapProfiles)?;
        let mut control = std::sync::Arc::clone(control).lock_owned().await;
        let written = tokio::task::spawn_blocking(move || control.dump_pprof()).await?;
        written.map_err(|error| ProfileError::Heap(format!("{error:#}")))
    }

    fn turn(&self) -> Result<MutexGuard<'_, ()>, ProfileError> {
        self.turn.try_lock().map_err(|_| ProfileError::Busy)
    }
}

/// What a process has to find in its environment to take samples of its heap, given what is there; nothing where it takes them already.
/// The allocator reads it before `main`, so that a process starts itself again with it.
#[must_use]
pub fn with_heap_profiles(present: impl Fn(&str) -> Option<OsString>) -> Option<(&'static str, OsString)> {
    let present = present(ALLOCATOR_VARIABLE);
    if present.as_deref().is_some_and(|options| options.to_string_lossy().contains("prof:true")) {
        return None;
    }
    // Options that come later count. What an operator has set stays.
    let mut options = present.unwrap_or_default();
    if !options.is_empty() {
        options.push(OsStr::new(","));
    }
    options.push(ALLOCATOR_OPTIONS);
    Some((ALLOCATOR_VARIABLE, options))
}

/// What a process has in its environment whose memory is limited: its allocator gives back at once what is freed, since what it keeps
/// counts, and has one place for all threads. The allocator that [`with_heap_profiles`] is for keeps more by itself.
pub const FRUGAL: (&str, &str) =
    (ALLOCATOR_VARIABLE, "narenas:1,retain:false,dirty_decay_ms:0,muzzy_decay_ms:0");

fn cpu_profile(sampler: &pprof::ProfilerGuard<'_>) -> Result<Vec<u8>, ProfileError> {
    let report = sampler.report().build_unresolved()?;
    let mut handler = Handler::default();
    let nanoseconds = 1e9 / f64::from(HERTZ);
    let stacks = report.data.iter().map(|(stack, count)| {
        let frames: Vec<usize> = stack.frames.iter().map(|frame| frame.ip().addr()).collect();
        let own = handler.frames(&frames);
        // Written from the outermost to the innermost, as the allocator's are.
        let addrs = frames.into_iter().skip(own).rev().collect();
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
