//! Which resource a URL's path names.

use roadstead_api::{KINDS, Kind, KindId, Version};
use roadstead_hub_core::Address;

/// What comes after a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// Nothing.
    None,
    /// `status`
    Status,
    /// `jointoken` of a Cluster.
    JoinToken,
    /// `token` of a ServiceAccount.
    Token,
    /// `confirm` of a kind that deploys.
    Confirm,
}

/// Whether a kind has a subresource.
type Has = fn(&Kind) -> bool;

/// The subresources that there are, by name, with the kinds that have them.
pub(crate) const SUBRESOURCES: [(&str, Subresource, Has); 4] = [
    ("status", Subresource::Status, |kind| kind.status),
    ("jointoken", Subresource::JoinToken, |kind| kind.id == KindId::Cluster),
    ("confirm", Subresource::Confirm, |kind| kind.id.is_applier()),
    ("token", Subresource::Token, |kind| kind.id == KindId::ServiceAccount),
];

impl Subresource {
    /// The subresource of this name; none where the kind has none such.
    fn of(kind: &Kind, name: &str) -> Option<Self> {
        if name.is_empty() {
            return Some(Self::None);
        }
        let found = SUBRESOURCES.iter().find(|(known, _, has)| *known == name && has(kind));
        found.map(|(_, subresource, _)| *subresource)
    }

    /// As it stands in the path; empty for the object itself.
    pub(crate) fn name(self) -> &'static str {
        SUBRESOURCES.iter().find(|(_, known, _)| *known == self).map_or("", |(name, ..)| name)
    }
}

/// What a path names.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) address: Address,
    pub(crate) subresource: Subresource,
}

/// Reads `/api/v1/…` and `/apis/GROUP/VERSION/…`.
pub(crate) fn parse(path: &str) -> Option<Target> {
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !group.is_empty() => (*group, *version, rest),
        _ => return None,
    };
    let find = |plural: &str, namespaced: bool| -> Option<(&'static Kind, &'static Version)> {
        let kinds = KINDS.iter().filter(|kind| kind.plural == plural && kind.namespaced() == namespaced);
        kinds.into_iter().find_map(|kind| Some((*kind, kind.version(group, version)?)))
    };
    let anywhere = |plural: &str| find(plural, false).or_else(|| find(plural, true));
    let (kind, version, namespace, name, subresource) = match rest {
        // `namespaces/NAME/status` is a subresource, `namespaces/NAME/secrets` a collection.
        ["namespaces", namespace, plural, tail @ ..] if *plural != "status" && *plural != "finalize" => {
            let (kind, version) = find(plural, true)?;
            if namespace.is_empty() {
                return None;
            }
            let (name, subresource) = item(tail)?;
            (kind, version, *namespace, name, subresource)
        }
        [plural] => {
            let (kind, version) = anywhere(plural)?;
            (kind, version, "", "", "")
        }
        [plural, tail @ ..] => {
            let (kind, version) = find(plural, false)?;
            let (name, subresource) = item(tail)?;
            (kind, version, "", name, subresource)
        }
        [] => return None,
    };
    let subresource = Subresource::of(kind, subresource)?;
    // Names are DNS names, so nothing in them is ever percent-encoded: what is, is not a name.
    if name.contains('%') || namespace.contains('%') {
        return None;
    }
    let address = Address { kind: kind.id, version, namespace: namespace.to_owned(), name: name.to_owned() };
    Some(Target { address, subresource })
}

/// For a path in a version that Flux once had and the hub does not serve: the version to use.
pub(crate) fn retired(path: &str) -> Option<String> {
    let (group, rest) = path.strip_prefix("/apis/")?.split_once('/')?;
    let (version, rest) = rest.split_once('/').unwrap_or((rest, ""));
    if !group.ends_with(".toolkit.fluxcd.io") || !matches!(version, "v1beta1" | "v1beta2" | "v1beta3") {
        return None;
    }
    let of_group = || KINDS.iter().filter(|kind| kind.group() == group);
    let named = of_group().find(|kind| rest.split('/').any(|segment| segment == kind.plural));
    let kind = named.or_else(|| of_group().next())?;
    Some(format!(
        "{group}/{version} is not served here; use {} for {}",
        kind.versions[0].api_version(),
        kind.kind
    ))
}

fn item<'a>(tail: &[&'a str]) -> Option<(&'a str, &'a str)> {
    match tail {
        [] => Some(("", "")),
        [name] if !name.is_empty() => Some((name, "")),
        [name, subresource] if !name.is_empty() && !subresource.is_empty() => Some((name, subresource)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{KindId, Subresource, parse};

    #[test]
    fn paths() {
        let some = |path: &str| {
            let target = parse(path).unwrap_or_else(|| panic!("{path}"));
            (target.address.kind, target.address.namespace, target.address.name, target.subresource)
        };
        let of = |kind, namespace: &str, name: &str, subresource| {
            (kind, namespace.to_owned(), name.to_owned(), subresource)
        };
        let none = Subresource::None;
        assert_eq!(some("/api/v1/namespaces"), of(KindId::Namespace, "", "", none));
        assert_eq!(some("/api/v1/namespaces/a"), of(KindId::Namespace, "", "a", none));
        assert_eq!(some("/api/v1/namespaces/a/status"), of(KindId::Namespace, "", "a", Subresource::Status));
        assert_eq!(some("/api/v1/secrets"), of(KindId::Secret, "", "", none));
        assert_eq!(some("/api/v1/namespaces/a/secrets/b"), of(KindId::Secret, "a", "b", none));
        let kustomizations = "/apis/kustomize.toolkit.fluxcd.io/v1alpha1/namespaces/a/kustomizations";
        assert_eq!(some(kustomizations), of(KindId::Kustomization, "a", "", none));
        assert_eq!(
            some(&format!("{kustomizations}/b/status")),
            of(KindId::Kustomization, "a", "b", Subresource::Status)
        );
        assert_eq!(
            some(&format!("{kustomizations}/b/confirm")),
            of(KindId::Kustomization, "a", "b", Subresource::Confirm)
        );
        for bad in [
            "/apis/source.toolkit.fluxcd.io/v1/namespaces/a/gitrepositories/b/confirm",
            "/api/v1",
            "/api/v2/namespaces",
            "/api/v1/secrets/a",
            "/api/v1/namespaces//secrets",
            "/api/v1/namespaces/a/secrets/b/status",
            "/api/v1/namespaces/a/secrets/b%2f",
            "/apis//v1/namespaces",
            "/apis/fleet.roadstead.dev/v1alpha1/namespaces/a/clusters",
            "/apis/fleet.roadstead.dev/v1alpha1/clusters/a/b/c",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
