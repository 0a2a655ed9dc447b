//! Which addresses the hub connects to for a stranger: those of the public internet, and those that the operator allowed.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Allowed, Refusal};

impl Allowed {
    /// Whether the hub may connect there.
    ///
    /// # Errors
    /// [`Refusal::Address`] for one that is neither of the public internet nor in an allowed network.
    pub fn check_address(&self, address: IpAddr) -> Result<(), Refusal> {
        // An IPv4 address in IPv6's clothes is what it is underneath.
        let address = address.to_canonical();
        if is_public(address) || self.networks.iter().any(|network| network.contains(&address)) {
            Ok(())
        } else {
            Err(Refusal::Address { address })
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// By the registry of special-purpose addresses (RFC 6890 and its updates).
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let protocols = a == 192 && b == 0 && c == 0;
    let relays = a == 192 && b == 88 && c == 99;
    let benchmarks = a == 198 && (b == 18 || b == 19);
    !(a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || a >= 240
        || shared
        || protocols
        || relays
        || benchmarks)
}

/// Global unicast is `2000::/3`; of it, what carries an IPv4 address is as public as that one.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, ..] = address.segments();
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match a {
        // NAT64's well-known prefix.
        0x64 if b == 0xff9b && address.segments()[2..6] == [0; 4] => {
            let segments = address.segments();
            inner(segments[6], segments[7])
        }
        // 6to4.
        0x2002 => inner(b, c),
        // Teredo, ORCHID and what else the IETF's protocols have; documentation.
        0x2001 if b < 0x200 || b == 0xdb8 => false,
        0x3fff if b < 0x1000 => false,
        _ => (0x2000..0x4000).contains(&a),
    }
}
