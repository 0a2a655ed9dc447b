//! TLS, for the commands that reach the network: a build of local files starts without it.

/// Sets the one TLS provider of the process. Where that was done before, it stays.
pub(crate) fn install() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
