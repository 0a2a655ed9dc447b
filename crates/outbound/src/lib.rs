//! The guarded way out: every connection to an address that a user chose is opened here.
//!
//! A [`Policy`] says which addresses may be connected to besides those of the public internet; a [`Guard`] opens
//! connections by it, for one [`Purpose`]. Whatever notation an address was written in, and wherever a name leads at that
//! moment, each address is judged right before it is connected to, and once more by what the connection says of its other
//! end. So a redirect, a name that changes, and an address in another's clothes all come to the same check.
//!
//! Addresses of private networks need an entry. Those of this machine, of the local link, of metadata services, the
//! database and the listeners of this process are in no wider entry: they need one of their own.
//!
//! [`Connector`] is for hyper's clients (kube's too), [`Client`] an HTTP client over it; whatever speaks something else
//! reads and writes [`Connection::stream`], and goes on over TLS by [`Tls`].
//!
//! ```
//! use roadstead_outbound::{Candidate, Host, Policy, Purpose};
//!
//! let policy = Policy::new(vec!["git=10.20.0.0/16".parse().unwrap()]);
//! let check = |purpose, host: &str| {
//!     let host = Host::parse(host).unwrap();
//!     let Host::Ip(address) = host else { unreachable!() };
//!     policy.check(&Candidate { purpose, host: &host, address, port: 443, own: false })
//! };
//! assert!(check(Purpose::Git, "10.20.1.1").is_ok());
//! assert!(check(Purpose::Git, "0x0a.20.257").is_ok());
//! assert!(check(Purpose::Oci, "10.20.1.1").is_err());
//! assert!(check(Purpose::Git, "169.254.169.254").unwrap_err().to_string().contains("--allow-network git=169.254.169.254/32"));
//! ```

mod address;
mod connect;
mod host;
mod http;
mod identity;
mod listed;
mod policy;
mod proxy;
mod purpose;
mod redirect;
mod resolve;
mod rule;
mod socks;
mod tls;
mod trust;
mod wire;

pub use crate::http::{Client, ClientError, Connector, SendError, Stream, Veil, refusal, secret_header};
pub use address::{Class, classify, underneath};
pub use connect::{ConnectError, Connection, Guard, connect};
pub use host::{Authority, Host, Scheme};
pub use identity::ClientIdentity;
pub use listed::{ListedHost, ListedHosts, Unlisted};
pub use policy::{Candidate, Detail, Policy, Refusal};
pub use proxy::{Proxies, ProxyServer};
pub use purpose::Purpose;
pub use redirect::{RedirectRefused, Trail, credentials_belong};
pub use resolve::{Resolve, SystemResolver};
pub use roadstead_model::Secret;
pub use rule::{BadRule, Rule, Target};
pub use tls::Tls;
pub use wire::Wire;

#[cfg(test)]
mod tests;
