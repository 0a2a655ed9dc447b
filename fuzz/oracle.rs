//! What every target is held to besides not panicking: memory and CPU time in proportion to its input. An input that makes
//! a decoder take more of either than its allowance is a finding, as a panic is: so amplification and quadratic time
//! are found, and not only crashes.

use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Bytes that any input may take, however short: tables that are made once, buffers of a fixed size.
const BASE_BYTES: usize = 4 << 20;
/// Nanoseconds that any input may take.
const BASE_NANOS: u64 = 50_000_000;

/// What a target may take for each byte of its input.
#[derive(Clone, Copy)]
pub(crate) struct Allowance {
    /// Bytes of heap at the peak.
    pub(crate) bytes: usize,
    /// Nanoseconds of this thread's CPU time, in the fuzzer's build: it counts edges, and takes about three times as long.
    pub(crate) nanos: u64,
}

/// Runs `work` on `input`, and panics where it took more than its allowance.
///
/// # Panics
/// With what was taken and allowed. That is how libFuzzer learns of a finding.
pub(crate) fn hold(input: &[u8], allowance: Allowance, work: impl Fn(&[u8])) {
    let allowed_bytes = BASE_BYTES + allowance.bytes * input.len();
    let allowed_nanos = BASE_NANOS + allowance.nanos * input.len() as u64;
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let nanos = timed(&work, input);
    let bytes = HEAP.peak_usage().saturating_sub(before);
    assert!(
        bytes <= allowed_bytes,
        "{bytes} bytes of memory for an input of {} bytes, more than {allowed_bytes}",
        input.len()
    );
    // Once more before it counts: the first run may have paid for page faults or a frequency change.
    let nanos = if nanos > allowed_nanos { nanos.min(timed(&work, input)) } else { nanos };
    assert!(
        nanos <= allowed_nanos,
        "{nanos} ns of CPU time for an input of {} bytes, more than {allowed_nanos}",
        input.len()
    );
}

fn timed(work: &impl Fn(&[u8]), input: &[u8]) -> u64 {
    let begin = now();
    work(input);
    now().saturating_sub(begin)
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}
