//! One entry of the policy, as an operator writes it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::host::Host;
use crate::purpose::Purpose;

/// An entry: `[PURPOSE=]CIDR|HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// For which purpose alone; none for all.
    pub purpose: Option<Purpose>,
    /// What it lets be reached.
    pub target: Target,
    /// On which port alone; none for all.
    pub port: Option<u16>,
}

/// What an entry lets be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The addresses of a network.
    Network(IpNet),
    /// A name, whichever private address it leads to.
    Name(String),
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// Not a purpose.
    #[error("`{0}` is not a purpose: want one of clusters, git, oci, bucket, helm, kms, cloud, oidc, notify")]
    Purpose(String),
    /// Not a network.
    #[error("`{0}` is not a network: want an address and a prefix length, such as 10.20.0.0/16")]
    Network(String),
    /// Not a host.
    #[error("`{0}` is not an address or a host name")]
    Host(String),
    /// Not a port.
    #[error("`{0}` is not a port: want a number from 1 to 65535")]
    Port(String),
}

impl Rule {
    /// An entry for a network, for one purpose.
    #[must_use]
    pub fn network(purpose: Option<Purpose>, network: IpNet) -> Self {
        Self { purpose, target: Target::Network(network), port: None }
    }

    /// Whether it is for this purpose and port.
    pub(crate) fn is_for(&self, purpose: Purpose, port: u16) -> bool {
        self.purpose.is_none_or(|only| only == purpose) && self.port.is_none_or(|only| only == port)
    }

    /// Whether it names one address or host.
    pub(crate) fn is_single(&self) -> bool {
        match &self.target {
            Target::Network(network) => network.prefix_len() == network.max_prefix_len(),
            Target::Name(_) => true,
        }
    }
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let (purpose, rest) = match text.split_once('=') {
            None => (None, text),
            Some((name, rest)) => {
                let purpose = name.trim().parse().map_err(|()| BadRule::Purpose(name.to_owned()))?;
                (Some(purpose), rest)
            }
        };
        let (target, port) = target(rest.trim())?;
        Ok(Self { purpose, target, port })
    }
}

pub(crate) fn target(text: &str) -> Result<(Target, Option<u16>), BadRule> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(0) | Err(_) => Err(BadRule::Port(text.to_owned())),
        Ok(port) => Ok(port),
    };
    if let Some((address, length)) = text.split_once('/') {
        let (length, given) = match length.split_once(':') {
            Some((length, given)) => (length, Some(port(given)?)),
            None => (length, None),
        };
        let address = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
        let network: Result<IpNet, _> = format!("{address}/{length}").parse();
        let network = network.map_err(|_| BadRule::Network(text.to_owned()))?;
        return Ok((Target::Network(network.trunc()), given));
    }
    // An IPv6 address has colons of its own; with a port it stands in brackets.
    let (host, given) = match text.rsplit_once(':') {
        Some(_) if text.parse::<IpAddr>().is_ok() || text.ends_with(']') => (text, None),
        Some((host, given)) => (host, Some(port(given)?)),
        None => (text, None),
    };
    match Host::parse(host) {
        Some(Host::Ip(address)) => {
            Ok((Target::Network(IpNet::from(crate::address::underneath(address))), given))
        }
        Some(Host::Name(name)) => Ok((Target::Name(name), given)),
        None => Err(BadRule::Host(host.to_owned())),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(purpose) = self.purpose {
            write!(f, "{purpose}=")?;
        }
        match (&self.target, self.port) {
            (Target::Network(network), None) => write!(f, "{network}"),
            (Target::Network(network), Some(port)) if self.is_single() => {
                write!(f, "{}:{port}", Host::Ip(network.addr()))
            }
            (Target::Network(network), Some(port)) => write!(f, "{network}:{port}"),
            (Target::Name(name), None) => f.write_str(name),
            (Target::Name(name), Some(port)) => write!(f, "{name}:{port}"),
        }
    }
}
