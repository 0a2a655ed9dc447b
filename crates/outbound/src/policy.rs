//! Which addresses may be connected to. Pure: names are looked up elsewhere, and each address is judged here.

use std::fmt;
use std::net::IpAddr;

use crate::address::{Class, classify, is_only, underneath};
use crate::host::Host;
use crate::purpose::Purpose;
use crate::rule::{Rule, Target};

/// What may be connected to besides the public internet, and what may not in any case. Without entries: the public
/// internet alone.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    reserved: Vec<(Host, u16)>,
    reserved_ports: Vec<u16>,
    everything: bool,
}

/// An address that is about to be connected to, and how it was come by.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// What for.
    pub purpose: Purpose,
    /// The host as it was asked for.
    pub host: &'a Host,
    /// The address that it leads to.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Whether this is an endpoint of the operator's own: the database, a listener of this process.
    pub own: bool,
}

/// How much of what happens on a connection may be told to whoever chose the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// All of it: a public address, or one endpoint that the operator named with its port.
    Full,
    /// Not whether anything listens there: the address is not public, and the entry that allows it covers more than one
    /// endpoint, so that a whole network could be scanned by what is told.
    Coarse,
}

/// A connection that is refused. Says which flag would allow it, and the same whatever is at the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    purpose: Purpose,
    /// The host as it was asked for.
    pub host: Host,
    /// What the entry would have to be; none where no entry allows it.
    pub entry: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(entry) = &self.entry else {
            return write!(f, "{} is not an address that can be connected to", self.host);
        };
        let purpose = self.purpose;
        write!(
            f,
            "{} is not on the public internet, and is not among the networks that the operator allows: start the hub \
             with --allow-network {purpose}={entry} to allow it",
            self.host
        )?;
        if purpose == Purpose::Clusters {
            write!(f, " (--allow-cluster-network {entry} means the same)")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

impl Policy {
    /// A policy with these entries.
    #[must_use]
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Anything may be connected to: for a program that acts for whoever types, with no more rights than they have.
    #[must_use]
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// Adds an entry.
    pub fn allow(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Keeps an endpoint out of all entries that do not name it with its port: the database, say.
    pub fn reserve(&mut self, host: Host, port: u16) {
        self.reserved.push((host, port));
    }

    /// Does the same for a port of every address of this machine: for a listener on all of them.
    pub fn reserve_local_port(&mut self, port: u16) {
        self.reserved_ports.push(port);
    }

    /// The reserved names on a port: who connects there looks them up, to know whether it would get there.
    pub fn reserved_names(&self, port: u16) -> impl Iterator<Item = &str> {
        self.reserved.iter().filter_map(move |(host, reserved)| match host {
            Host::Name(name) if *reserved == port => Some(name.as_str()),
            Host::Name(_) | Host::Ip(_) => None,
        })
    }

    /// Whether an endpoint is reserved by its address.
    #[must_use]
    pub fn is_reserved(&self, address: IpAddr, port: u16) -> bool {
        let address = underneath(address);
        self.reserved.iter().any(|(host, reserved)| {
            *reserved == port && matches!(host, Host::Ip(own) if underneath(*own) == address)
        })
    }

    /// Whether a port is reserved on all addresses of this machine.
    #[must_use]
    pub fn is_reserved_local_port(&self, port: u16) -> bool {
        self.reserved_ports.contains(&port)
    }

    /// Whether this address may be connected to.
    ///
    /// # Errors
    /// [`Refusal`] for one that is neither of the public internet nor in an entry that covers it.
    pub fn check(&self, candidate: &Candidate<'_>) -> Result<Detail, Refusal> {
        let address = underneath(candidate.address);
        let class = classify(address);
        if self.everything || class == Class::Public && !candidate.own {
            return Ok(Detail::Full);
        }
        let covering = self
            .rules
            .iter()
            .filter(|rule| rule.is_for(candidate.purpose, candidate.port))
            .filter(|rule| class != Class::Unusable && covers(rule, candidate, address, class));
        let detail = covering.map(|rule| match (rule.is_single(), rule.port) {
            (true, Some(_)) => Detail::Full,
            _ => Detail::Coarse,
        });
        detail.min().ok_or_else(|| Refusal {
            purpose: candidate.purpose,
            host: candidate.host.clone(),
            entry: entry(candidate, address, class),
        })
    }

    /// Judges a name without knowing where it leads: a proxy looks it up.
    ///
    /// # Errors
    /// [`Refusal`] for a name that only means something inside a network, and for a reserved one.
    pub fn check_name(&self, purpose: Purpose, name: &str, port: u16) -> Result<Detail, Refusal> {
        if self.everything {
            return Ok(Detail::Full);
        }
        let named = |rule: &&Rule| {
            rule.is_for(purpose, port) && matches!(&rule.target, Target::Name(allowed) if allowed == name)
        };
        let reserved = self.reserved_names(port).any(|reserved| reserved == name);
        let entries = self.rules.iter().filter(named);
        let detail = entries
            .filter(|rule| !reserved || rule.port.is_some())
            .map(|rule| if rule.port.is_some() { Detail::Full } else { Detail::Coarse })
            .min();
        match detail {
            Some(detail) => Ok(detail),
            None if !reserved && !is_internal(name) => Ok(Detail::Full),
            None => Err(Refusal {
                purpose,
                host: Host::Name(name.to_owned()),
                entry: Some(if reserved { format!("{name}:{port}") } else { name.to_owned() }),
            }),
        }
    }
}

fn covers(rule: &Rule, candidate: &Candidate<'_>, address: IpAddr, class: Class) -> bool {
    if candidate.own && !(rule.is_single() && rule.port.is_some()) {
        return false;
    }
    match (&rule.target, candidate.host) {
        (Target::Network(network), _) => network.contains(&address) && is_only(*network, class),
        (Target::Name(allowed), Host::Name(name)) if allowed == name => match class {
            Class::Public | Class::Private => true,
            // Whoever writes the name's records must not lead it into the hub's own machine.
            Class::Loopback => is_localhost(name),
            Class::LinkLocal | Class::Metadata | Class::Unusable => false,
        },
        (Target::Name(_), _) => false,
    }
}

/// What would allow it.
fn entry(candidate: &Candidate<'_>, address: IpAddr, class: Class) -> Option<String> {
    if class == Class::Unusable {
        return None;
    }
    if candidate.own {
        return Some(format!("{}:{}", Host::Ip(address), candidate.port));
    }
    Some(format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 }))
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Names that only mean something inside a network: those of one label, and the endings that are kept for it (RFC 6761,
/// 6762, 8375, ICANN's `internal`) or widely used so.
fn is_internal(name: &str) -> bool {
    const ENDINGS: [&str; 14] = [
        "localhost",
        "local",
        "localdomain",
        "internal",
        "intranet",
        "private",
        "corp",
        "home",
        "lan",
        "home.arpa",
        "svc",
        "onion",
        "test",
        "in-addr.arpa",
    ];
    let ends = |ending: &str| name.strip_suffix(ending).is_some_and(|rest| rest.ends_with('.'));
    !name.contains('.') || ENDINGS.iter().any(|ending| ends(ending))
}
