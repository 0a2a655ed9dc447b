//! The names by which a trust policy can mean a repository.

use crate::oci::name::RepositoryName;

/// The names of a repository: as its URL has it, and as it is asked for, which is what Flux takes.
pub(super) fn of_url(url: &str, name: &RepositoryName) -> Vec<String> {
    let written = url.strip_prefix("oci://").unwrap_or(url).trim_end_matches('/').to_owned();
    let mut all = vec![written, format!("{}/{}", name.host(), name.path)];
    all.dedup();
    all
}

/// Whether a policy may name a repository so: `host[:port]/path`.
pub(super) fn check(scope: &str) -> Result<(), String> {
    let wrong = |why: &str| {
        let shown = crate::tree::shown(scope);
        Err(format!("registry scope '{shown}' {why}: want HOST/REPOSITORY without scheme, tag or digest"))
    };
    if scope.contains('*') {
        return wrong("has a wildcard among other characters");
    }
    let Some((host, _)) = scope.split_once('/') else { return wrong("names no repository") };
    if host.bytes().any(|c| !(c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b':'))) {
        return wrong("has no valid host");
    }
    match RepositoryName::parse(&format!("oci://{scope}"), false) {
        Ok(_) if !scope.ends_with('/') => Ok(()),
        _ => wrong("is not the name of a repository"),
    }
}
