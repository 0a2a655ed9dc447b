//! Names of Clusters that not every namespace may give: without this, a Secret `prod-kubeconfig` of any namespace would make the Cluster
//! `prod` its own before that comes on board.

use std::fmt;
use std::str::FromStr;

/// Names that are for Clusters of one namespace: `NAME=NAMESPACE`, where the name may end in `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedName {
    /// The name, or how it begins.
    name: String,
    /// Whether all names that begin so are meant.
    is_prefix: bool,
    /// Whose Secrets and ManagementClusters may make Clusters of that name.
    namespace: String,
}

/// What is no [`ReservedName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be NAME=NAMESPACE, where NAME may end in *, such as prod-*=platform")]
pub struct InvalidReservedName;

impl FromStr for ReservedName {
    type Err = InvalidReservedName;

    fn from_str(text: &str) -> Result<Self, InvalidReservedName> {
        let (name, namespace) = text.split_once('=').ok_or(InvalidReservedName)?;
        let (start, is_prefix) = name.strip_suffix('*').map_or((name, false), |start| (start, true));
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let is_name = |text: &str| !text.is_empty() && text.len() <= 253 && text.chars().all(is_plain);
        if !(is_name(start) || is_prefix && start.is_empty()) || !is_name(namespace) {
            return Err(InvalidReservedName);
        }
        Ok(Self { name: start.to_owned(), is_prefix, namespace: namespace.to_owned() })
    }
}

impl fmt::Display for ReservedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}={}", self.name, if self.is_prefix { "*" } else { "" }, self.namespace)
    }
}

impl ReservedName {
    fn is_for(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&self.name) } else { name == self.name }
    }
}

/// Whether something in a namespace of the hub may make a Cluster of this name: everybody may, where nothing of `all` is for it.
///
/// # Errors
/// The first entry that is for the name, where none names the namespace.
pub(crate) fn may_make<'a>(
    all: &'a [ReservedName],
    name: &str,
    namespace: &str,
) -> Result<(), &'a ReservedName> {
    let mut meant = all.iter().filter(|reserved| reserved.is_for(name)).peekable();
    match meant.peek().copied() {
        Some(first) if !meant.any(|reserved| reserved.namespace == namespace) => Err(first),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_for_the_namespaces_that_have_it() {
        let all: Vec<ReservedName> = ["prod=platform", "eu-*=platform", "eu-*=europe"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        for (name, namespace, wanted) in [
            ("prod", "platform", None),
            ("prod", "team", Some("prod=platform")),
            ("prod-2", "team", None),
            ("eu-1", "platform", None),
            ("eu-1", "europe", None),
            ("eu-1", "team", Some("eu-*=platform")),
            ("eu", "team", None),
        ] {
            let refused = may_make(&all, name, namespace).err().map(ToString::to_string);
            assert_eq!(refused.as_deref(), wanted, "{name} of {namespace}");
        }
        assert!(may_make(&["*=platform".parse().unwrap()], "anything", "team").is_err());
        assert_eq!(may_make(&[], "prod", "team"), Ok(()));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for text in ["", "prod", "=platform", "prod=", "p*d=platform", "Prod=platform", "prod=a/b", "prod=*"]
        {
            assert_eq!(text.parse::<ReservedName>(), Err(InvalidReservedName), "{text}");
        }
    }
}
