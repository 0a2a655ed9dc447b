//! Names and ports that no other test has.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

/// A name that starts with `prefix` and that no other test of this or another run has; good for namespaces.
#[must_use]
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{number}", std::process::id())
}

/// A port of the loopback interface that is free, and stays so while a server is killed and started again: it is below
/// the range from which the kernel takes ports for outgoing connections.
///
/// # Errors
/// When none is free.
pub fn free_port() -> Result<u16> {
    const FIRST: u32 = 11_000;
    const COUNT: u32 = 9_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test programs that run at the same time begin in different places.
    let begin = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let offset = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let Ok(port) = u16::try_from(FIRST + offset) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port between {FIRST} and {} is free", FIRST + COUNT)
}
