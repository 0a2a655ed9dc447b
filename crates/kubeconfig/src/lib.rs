//! What an untrusted kubeconfig says of a cluster.
//!
//! A kubeconfig can name programs to run, files to read, and any address to talk to. Nothing of it is run or read here:
//! only inline credentials are taken, everything else is refused by the field's name, and so is every field that is not
//! known. What an operator may allow stands in [`Allowed`]; all of it is off by default.
//!
//! Which addresses may be connected to is not decided here: that is for whoever connects.
//!
//! ```
//! use roadstead_kubeconfig::{Access, Allowed, Refusal};
//!
//! let text = b"apiVersion: v1
//! kind: Config
//! current-context: c
//! clusters: [{name: a, cluster: {server: 'https://edge-1.example:6443'}}]
//! contexts: [{name: c, context: {cluster: a, user: b}}]
//! users: [{name: b, user: {exec: {command: /bin/sh}}}]";
//! let refusal = Access::read(text, &Allowed::default()).unwrap_err();
//! assert_eq!(
//!     refusal.to_string(),
//!     "the kubeconfig's user \"b\" has `exec`, which would run a program on the hub: put a client certificate or a token into it"
//! );
//! ```

mod read;

use roadstead_model::Secret;
use url::Url;

/// The largest kubeconfig that is read, in bytes. Cluster API's have about 6 kB.
pub const MAX_BYTES: usize = 128 * 1024;

/// The most clusters, users or contexts in one.
pub const MAX_ENTRIES: usize = 64;

/// What an operator lets kubeconfigs do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// `server: http://…`: whoever is on the way reads the credentials.
    pub plain_http: bool,
    /// `insecure-skip-tls-verify: true`: any server is believed to be the cluster.
    pub skip_verification: bool,
    /// `proxy-url`: the hub connects to it instead.
    pub proxies: bool,
}

/// Who the hub is to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A client certificate and its key, PEM.
    Certificate {
        /// The certificate.
        certificate: String,
        /// Its key.
        key: Secret,
    },
    /// A bearer token.
    Token(Secret),
}

/// How to reach a cluster, and as whom: a kubeconfig's current context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The apiserver's address, without user, query or fragment.
    pub server: Url,
    /// The name that its certificate must be for, where that is not the address's.
    pub tls_server_name: Option<String>,
    /// The authority that its certificate must be of, PEM; none for the system's.
    pub authority: Option<String>,
    /// Whether its certificate is not looked at.
    pub skip_verification: bool,
    /// The proxy on the way.
    pub proxy: Option<Url>,
    /// As whom.
    pub credentials: Credentials,
}

/// Why a kubeconfig is not used. Names fields and entries, never credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More than [`MAX_BYTES`].
    #[error("the kubeconfig has {0} bytes, more than {MAX_BYTES}")]
    TooLarge(usize),
    /// No YAML, or not of a kubeconfig's shape.
    #[error("the kubeconfig cannot be read: {0}")]
    Malformed(String),
    /// An entry's field that is not taken.
    #[error("the kubeconfig's {entry} has `{field}`, {why}")]
    Field {
        /// `user "admin"`, `cluster "edge-1"`.
        entry: String,
        /// The field.
        field: String,
        /// What is wrong with it, and what to do.
        why: &'static str,
    },
}

#[cfg(test)]
mod tests;
