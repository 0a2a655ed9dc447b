//! How names become addresses.

use std::io;
use std::net::IpAddr;

use futures::future::BoxFuture;

/// Looks names up.
pub trait Resolve: Send + Sync {
    /// The addresses of a name; an error where there are none.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// By the system: hosts file, DNS.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}
