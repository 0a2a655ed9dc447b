//! What the way to the database is to be: who can change what goes over it decides what the hub does.

use std::net::IpAddr;

use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::StoreError;

/// What the way to a database is to be that is not on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TLS, with the server's certificate and name checked.
    Verified,
    /// Whatever the URL says, which may be nothing: the operator accepts that others on the way read and change it.
    Insecure,
}

impl Transport {
    /// The options with which to connect. `sslmode=prefer`, which is also what a URL means that says nothing, would go on
    /// without TLS wherever somebody on the way says that there is none: it becomes `verify-full`.
    pub(crate) fn secured(self, options: PgConnectOptions) -> Result<PgConnectOptions, StoreError> {
        if self == Self::Insecure || is_local(&options) {
            return Ok(options);
        }
        let mode = match options.get_ssl_mode() {
            PgSslMode::VerifyFull => return Ok(options),
            PgSslMode::Prefer => return Ok(options.ssl_mode(PgSslMode::VerifyFull)),
            PgSslMode::Disable => "disable",
            PgSslMode::Allow => "allow",
            PgSslMode::Require => "require",
            PgSslMode::VerifyCa => "verify-ca",
        };
        Err(StoreError::Insecure { host: options.get_host().to_owned(), mode: mode.to_owned() })
    }

    /// A failed first connection, with what can be done about it where it is this policy that made it fail.
    pub(crate) fn explained(self, options: &PgConnectOptions, error: MigrateError) -> StoreError {
        let tls = match &error {
            MigrateError::Execute(sqlx::Error::Tls(_)) => true,
            MigrateError::Execute(sqlx::Error::Io(error)) => error.kind() == std::io::ErrorKind::InvalidData,
            _ => false,
        };
        if self == Self::Verified && tls && !is_local(options) {
            return StoreError::Unverified { host: options.get_host().to_owned(), source: error };
        }
        StoreError::Migrate(error)
    }
}

/// Whether nothing between here and there is anybody else's.
fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    if options.get_socket().is_some() || host.starts_with('/') || host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secured(url: &str, transport: Transport) -> Result<String, String> {
        let options: PgConnectOptions = url.parse().unwrap();
        let secured = transport.secured(options).map_err(|error| error.to_string())?;
        Ok(format!("{:?}", secured.get_ssl_mode()))
    }

    #[test]
    fn a_database_elsewhere_is_reached_by_verified_tls_only() {
        let verified = |url: &str| secured(url, Transport::Verified);
        for host in ["db.example.com", "10.0.0.7", "[2001:db8::1]", "0.0.0.0", "localhost.example.com"] {
            let url = format!("postgres://u:hunter2@{host}/d");
            assert_eq!(verified(&url).unwrap(), "VerifyFull");
            assert_eq!(verified(&format!("{url}?sslmode=prefer")).unwrap(), "VerifyFull");
            assert_eq!(verified(&format!("{url}?sslmode=verify-full")).unwrap(), "VerifyFull");
            for mode in ["disable", "allow", "require", "verify-ca"] {
                let asked = format!("{url}?sslmode={mode}");
                let refusal = verified(&asked).unwrap_err();
                assert!(refusal.contains("--allow-insecure-database"), "{refusal}");
                assert!(refusal.contains("sslmode=verify-full") && !refusal.contains("hunter2"), "{refusal}");
                assert!(secured(&asked, Transport::Insecure).is_ok());
            }
        }
    }

    #[test]
    fn a_database_on_this_machine_is_reached_as_its_url_says() {
        for host in ["127.0.0.1", "127.8.8.8", "localhost", "[::1]", "[::ffff:127.0.0.1]"] {
            for mode in ["disable", "prefer", "require"] {
                let url = format!("postgres://u@{host}/d?sslmode={mode}");
                assert!(secured(&url, Transport::Verified).is_ok(), "{url}");
            }
        }
        assert!(secured("postgres:///d?host=/run/postgresql&sslmode=disable", Transport::Verified).is_ok());
    }
}
