//! What kind of address an IP address is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// How far an address is from the public internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Of the public internet.
    Public,
    /// Of a private network, or of another range that is not routed on the internet.
    Private,
    /// Of the local link.
    LinkLocal,
    /// Of this machine.
    Loopback,
    /// Where a cloud hands out credentials to the machines in it.
    Metadata,
    /// Nothing can be reached there: multicast, broadcast.
    Unusable,
}

/// Where clouds hand out credentials, as far as they have published it. Some of these would pass as private or even as
/// public addresses.
const METADATA: [IpAddr; 13] = [
    // AWS, Azure, Google Cloud, DigitalOcean, OpenStack, Oracle and others.
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // Credentials of ECS tasks and of EKS pods; Tencent; Scaleway.
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 0, 23)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 42, 42)),
    // Alibaba Cloud; Oracle Cloud, classic; Azure's wire server, which is a public address.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // AWS; EKS pods; Google Cloud; Scaleway; Oracle.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
];

/// The address that is behind one which only carries another: IPv4-mapped and IPv4-compatible ones, those of NAT64's
/// well-known prefix, and 6to4. What is judged is always this one.
#[must_use]
pub fn underneath(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let [a, b, c, .., g, h] = v6.segments();
    if a == 0x2002 {
        return v4(b, c);
    }
    let nat64 = (a, b) == (0x64, 0xff9b) && v6.segments()[2..6] == [0; 4];
    let mapped = v6.segments()[..5] == [0; 5] && matches!(v6.segments()[5], 0 | 0xffff);
    if nat64 || mapped && !v6.is_loopback() && !v6.is_unspecified() { v4(g, h) } else { address }
}

fn v4(high: u16, low: u16) -> IpAddr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// What kind of address this is.
#[must_use]
pub fn classify(address: IpAddr) -> Class {
    let address = underneath(address);
    if METADATA.contains(&address) {
        return Class::Metadata;
    }
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

/// By the registry of special-purpose addresses (RFC 6890 and its updates).
fn classify_v4(address: Ipv4Addr) -> Class {
    let [a, b, c, _] = address.octets();
    // `0.0.0.0` is this machine where it is connected to.
    if address.is_loopback() || a == 0 {
        return Class::Loopback;
    }
    if address.is_link_local() {
        return Class::LinkLocal;
    }
    if address.is_multicast() || a >= 240 {
        return Class::Unusable;
    }
    let shared = a == 100 && (64..128).contains(&b);
    let protocols = a == 192 && b == 0 && c == 0;
    let relays = a == 192 && b == 88 && c == 99;
    let benchmarks = a == 198 && (b == 18 || b == 19);
    if address.is_private() || address.is_documentation() || shared || protocols || relays || benchmarks {
        Class::Private
    } else {
        Class::Public
    }
}

/// Global unicast is `2000::/3`.
fn classify_v6(address: Ipv6Addr) -> Class {
    let [a, b, c, .., g, h] = address.segments();
    if address.is_loopback() || address.is_unspecified() {
        return Class::Loopback;
    }
    if address.is_multicast() {
        return Class::Unusable;
    }
    if address.is_unicast_link_local() {
        return Class::LinkLocal;
    }
    match a {
        // NAT64's prefix for local use: where the IPv4 address in it stands depends on the network; mostly at the end.
        0x64 if b == 0xff9b && c == 1 => classify(v4(g, h)).max(Class::Private),
        // Teredo, ORCHID and what else the IETF's protocols have; documentation.
        0x2001 if b < 0x200 || b == 0xdb8 => Class::Private,
        0x3fff if b < 0x1000 => Class::Private,
        _ if (0x2000..0x4000).contains(&a) => Class::Public,
        _ => Class::Private,
    }
}

/// Whether a network has addresses of this class alone, so that whoever names it means them.
pub(crate) fn is_only(network: IpNet, class: Class) -> bool {
    if network.prefix_len() == network.max_prefix_len() {
        return true;
    }
    let v4 = |a, b, length| Ipv4Net::new(Ipv4Addr::new(a, b, 0, 0), length).ok().map(IpNet::V4);
    let v6 = |a, length| Ipv6Net::new(Ipv6Addr::new(a, 0, 0, 0, 0, 0, 0, 0), length).ok().map(IpNet::V6);
    let within = match class {
        Class::Public | Class::Private => return true,
        Class::Loopback => [v4(127, 0, 8), v4(0, 0, 8)],
        Class::LinkLocal => [v4(169, 254, 16), v6(0xfe80, 10)],
        Class::Metadata | Class::Unusable => return false,
    };
    within.into_iter().flatten().any(|outer| outer.contains(&network))
}
