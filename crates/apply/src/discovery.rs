//! Which kinds the cluster serves, under which resource name and scope: asked group-version by group-version, as
//! needed, and kept.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::Method;
use roadstead_model::ObjectRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::transport::{Call, Form, Refusal, Transport};

/// How a kind is reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Resource {
    pub(crate) group: String,
    /// The version that is asked for.
    pub(crate) version: String,
    /// The name in paths, as `deployments`.
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

impl Resource {
    /// The path of the collection, in `namespace` where it has one.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let mut path = group_version_path(&self.group, &self.version);
        if self.namespaced && !namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        path
    }

    /// The path of one object.
    pub(crate) fn path(&self, object: &ObjectRef) -> String {
        format!("{}/{}", self.collection(&object.namespace), encode(&object.name))
    }
}

/// Percent-encodes what may not stand in a path's segment or a query's value.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

type Kinds = HashMap<String, Resource>;

/// What is known so far.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    known: RwLock<HashMap<(String, String), Arc<Kinds>>>,
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<ListedResource>,
}

#[derive(Deserialize)]
struct ListedResource {
    name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct GroupList {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    preferred_version: GroupVersion,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

/// API groups of which all kinds are asked for; clusters have a few dozen.
const MAX_GROUPS: usize = 1_000;

impl Discovery {
    /// The resource of a kind in exactly this version; `None` if the cluster serves none. A kind that is not known is
    /// asked for again, since its CRD may have come.
    pub(crate) async fn resource(
        &self,
        transport: &Transport,
        group: &str,
        version: &str,
        kind: &str,
    ) -> Result<Option<Resource>, Refusal> {
        if let Some(resource) = self.known(group, version, kind) {
            return Ok(Some(resource));
        }
        let Some(kinds) = fetch(transport, group, version).await? else { return Ok(None) };
        let resource = kinds.get(kind).cloned();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert((group.to_owned(), version.to_owned()), Arc::new(kinds));
        Ok(resource)
    }

    fn known(&self, group: &str, version: &str, kind: &str) -> Option<Resource> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&(group.to_owned(), version.to_owned()))?.get(kind).cloned()
    }

    /// The resource of a kind in this version or, where that is not served any more, in the version that the cluster
    /// prefers; `None` if the cluster does not know the kind at all.
    pub(crate) async fn resource_in_any_version(
        &self,
        transport: &Transport,
        object: &ObjectRef,
    ) -> Result<Option<Resource>, Refusal> {
        let (group, kind) = (&object.group, &object.kind);
        if let Some(resource) = self.resource(transport, group, &object.version, kind).await? {
            return Ok(Some(resource));
        }
        if group.is_empty() {
            return Ok(None);
        }
        let answer = match transport.send(&get(format!("/apis/{group}"))).await {
            Ok(answer) => answer.value,
            Err(refusal) if refusal.is_not_found() => {
                // It may be somebody on the way who does not find it. What is not there is not among all groups either.
                let groups = groups(transport).await?;
                if groups.iter().any(|other| other.name == *group) {
                    return Err(refusal);
                }
                return Ok(None);
            }
            Err(refusal) => return Err(refusal),
        };
        let versions = answer.get("versions").and_then(Value::as_array).into_iter().flatten();
        for version in versions.filter_map(|entry| entry.get("version")?.as_str()).take(20) {
            if let Some(resource) = self.resource(transport, group, version, kind).await? {
                return Ok(Some(resource));
            }
        }
        Ok(None)
    }

    /// All kinds that can be listed and deleted, in the versions that the cluster prefers. Nothing that is known from before is used: what
    /// counts is what there is now.
    pub(crate) async fn deletable(&self, transport: &Transport) -> Result<Vec<(String, Resource)>, Refusal> {
        let groups = groups(transport).await?;
        let mut all = listed(transport, "", "v1", true).await?.unwrap_or_default();
        for Group { name, preferred_version } in groups.into_iter().take(MAX_GROUPS) {
            all.extend(listed(transport, &name, &preferred_version.version, true).await?.unwrap_or_default());
        }
        Ok(all)
    }

    /// Forgets a group: its CRDs changed.
    pub(crate) fn forget(&self, group: &str) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _), _| of != group);
    }
}

pub(crate) fn get(path: String) -> Call {
    Call { method: Method::GET, path, content_type: "", body: Bytes::new(), form: Form::Whole }
}

/// All groups that are served.
async fn groups(transport: &Transport) -> Result<Vec<Group>, Refusal> {
    let answer = transport.send(&get("/apis".to_owned())).await?.value;
    let list: GroupList = serde_json::from_value(answer)
        .map_err(|error| Refusal::Unreachable(format!("its discovery does not parse: {error}")))?;
    Ok(list.groups)
}

/// The kinds of a group-version; `None` if it is not served.
async fn fetch(transport: &Transport, group: &str, version: &str) -> Result<Option<Kinds>, Refusal> {
    let listed = listed(transport, group, version, false).await?;
    Ok(listed.map(|kinds| kinds.into_iter().collect()))
}

/// The kinds of a group-version, or those of them that can be listed and deleted; `None` if it is not served.
async fn listed(
    transport: &Transport,
    group: &str,
    version: &str,
    deletable: bool,
) -> Result<Option<Vec<(String, Resource)>>, Refusal> {
    let answer = match transport.send(&get(group_version_path(group, version))).await {
        Ok(answer) => answer,
        Err(refusal) if refusal.is_not_found() => return Ok(None),
        Err(refusal) => return Err(refusal),
    };
    let list: ResourceList = serde_json::from_value(answer.value).map_err(|error| {
        Refusal::Unreachable(format!("its discovery of {group}/{version} does not parse: {error}"))
    })?;
    let can = |listed: &ListedResource, verb: &str| listed.verbs.iter().any(|one| one == verb);
    let resources = list.resources.into_iter().filter(|resource| !resource.name.contains('/'));
    let resources = resources.filter(|listed| !deletable || can(listed, "list") && can(listed, "delete"));
    let kinds = resources.map(|listed| {
        let resource = Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: listed.name,
            namespaced: listed.namespaced,
        };
        (listed.kind, resource)
    });
    Ok(Some(kinds.collect()))
}
