//! Fields of appliers' specs that are Roadstead's own, as annotations: so that one file suits a Flux too, and a check against Flux's schemas.
//! And what there are annotations for only.
//!
//! What the spec says wins. `spec.delegation` has no such form: it gives rights, and is taken from direct writes only.

use roadstead_model::Revision;
use serde_json::{Map, Value, json};

use crate::KindId;
use crate::cluster::Lookup;
use crate::kustomization::{Adopt, Drift, EventsIn, GuardSpec, MAX_DEPENDENCIES, MacCheck};
use crate::object::Typed;
use crate::rules::{is_dns_label, is_dns_subdomain};
use crate::validate::FieldError;

const PREFIX: &str = "fleet.roadstead.dev/";

/// The annotations' names without their prefix; the fields of the spec have the same, but for those below.
const FIELDS: [&str; 8] =
    ["adopt", DECRYPTION_LOCATION, DECRYPTION_MAC, DEPENDS_ON, "drift", "events", "guard", "pin"];

/// `spec.decryption.location` and `spec.decryption.mac`.
const DECRYPTION_LOCATION: &str = "decryption-location";
const DECRYPTION_MAC: &str = "decryption-mac";

/// Entries of `spec.dependsOn` with a kind: `Kind/name` or `Kind/namespace/name`, separated by commas.
const DEPENDS_ON: &str = "depends-on";

/// Names the Cluster that an applier deploys to whose spec names none: its `spec.clusterRef` is written from it.
pub const CLUSTER: &str = "fleet.roadstead.dev/cluster";

/// The Cluster that an applier's annotation [`CLUSTER`] names.
///
/// # Errors
/// Where it is not a name.
pub fn cluster(object: &Value) -> Result<Option<&str>, &'static str> {
    match object["metadata"]["annotations"].get(CLUSTER).map(Value::as_str) {
        None => Ok(None),
        Some(Some(name)) if is_dns_subdomain(name) => Ok(Some(name)),
        Some(_) => Err("want the name of a Cluster"),
    }
}

/// Names the appliers from which one takes over what they do not build any more: `namespace/name`, separated by commas.
pub const TAKES_OVER: &str = "fleet.roadstead.dev/takes-over";

/// No more appliers than this are named.
const MAX_TAKES_OVER: usize = 16;

/// Names the Kustomizations of a Flux in the cluster whose inventories are read in where `spec.adopt` has Flux: `namespace/name`,
/// separated by commas.
pub const ADOPT_INVENTORY: &str = "fleet.roadstead.dev/adopt-inventory";

/// Says that an applier that is deleted gives what it has applied to a Flux in the cluster.
pub const GIVE_BACK: &str = "fleet.roadstead.dev/give-back";

/// The Kustomizations of a Flux that an applier's annotation [`ADOPT_INVENTORY`] names: their namespaces and names.
///
/// # Errors
/// Where it is anything else than a list of those.
pub fn adopt_inventory(object: &Value) -> Result<Vec<(&str, &str)>, &'static str> {
    named(object, ADOPT_INVENTORY)
}

/// Whether an applier that is deleted gives back what it has, by its annotation [`GIVE_BACK`].
///
/// # Errors
/// Where it says anything else than Flux.
pub fn gives_back(object: &Value) -> Result<bool, &'static str> {
    match object["metadata"]["annotations"].get(GIVE_BACK).map(Value::as_str) {
        None => Ok(false),
        Some(Some("Flux")) => Ok(true),
        Some(_) => Err("want Flux"),
    }
}

/// The appliers that an applier's annotation [`TAKES_OVER`] names: their namespaces and names.
///
/// # Errors
/// Where it is anything else than a list of those.
pub fn takes_over(object: &Value) -> Result<Vec<(&str, &str)>, &'static str> {
    named(object, TAKES_OVER)
}

/// The Kustomizations that an annotation names.
fn named<'a>(object: &'a Value, annotation: &str) -> Result<Vec<(&'a str, &'a str)>, &'static str> {
    let Some(text) = object["metadata"]["annotations"].get(annotation).and_then(Value::as_str) else {
        return Ok(Vec::new());
    };
    let want = "want namespace/name of at most 16 Kustomizations, separated by commas";
    let named = text.split(',').map(|one| {
        let (namespace, name) = one.trim().split_once('/')?;
        (is_dns_label(namespace) && is_dns_subdomain(name)).then_some((namespace, name))
    });
    let named: Vec<_> = named.collect::<Option<_>>().ok_or(want)?;
    if named.len() > MAX_TAKES_OVER { Err(want) } else { Ok(named) }
}

/// What an applier's annotation says of objects of other kinds that it depends on, as entries of `spec.dependsOn`.
pub(crate) fn depends_on(object: &Value) -> Vec<Value> {
    let text = object["metadata"]["annotations"].get(format!("{PREFIX}{DEPENDS_ON}"));
    text.and_then(Value::as_str).and_then(dependencies).unwrap_or_default()
}

/// Entries of `spec.dependsOn` that a text names; none where it is anything else than a list of those.
fn dependencies(text: &str) -> Option<Vec<Value>> {
    let dependency = |one: &str| {
        let parts: Vec<&str> = one.trim().split('/').collect();
        let (kind, namespace, name) = match parts.as_slice() {
            [kind, name] => (kind, None, name),
            [kind, namespace, name] => (kind, Some(namespace), name),
            _ => return None,
        };
        let is_named = is_dns_subdomain(name) && namespace.is_none_or(|namespace| is_dns_label(namespace));
        (is_named && KindId::referred(None, kind).is_some()).then(|| match namespace {
            Some(namespace) => json!({ "kind": kind, "namespace": namespace, "name": name }),
            None => json!({ "kind": kind, "name": name }),
        })
    };
    let named: Vec<Value> =
        text.split(',').take(MAX_DEPENDENCIES + 1).map(dependency).collect::<Option<_>>()?;
    (named.len() <= MAX_DEPENDENCIES).then_some(named)
}

/// The fields that annotations say, as they would stand in the spec, and what is wrong with the others.
fn fields(object: &Value) -> (Map<String, Value>, Vec<FieldError>) {
    let (mut fields, mut errors) = (Map::new(), Vec::new());
    for field in FIELDS {
        let name = format!("{PREFIX}{field}");
        let Some(text) = object["metadata"]["annotations"].get(&name).and_then(Value::as_str) else {
            continue;
        };
        match read(field, text) {
            Ok(value) => drop(fields.insert(field.to_owned(), value)),
            Err(why) => {
                let at = format!("metadata.annotations[{name}]");
                errors.push(FieldError::invalid(at, &text.into(), why));
            }
        }
    }
    (fields, errors)
}

fn read(field: &str, text: &str) -> Result<Value, String> {
    match field {
        "drift" => {
            let value = json!(text);
            serde_json::from_value::<Drift>(value.clone()).map_err(|_| "want Correct or Report")?;
            Ok(value)
        }
        "events" => {
            let value = json!(text);
            serde_json::from_value::<EventsIn>(value.clone()).map_err(|_| "want Hub or Cluster")?;
            Ok(value)
        }
        DECRYPTION_LOCATION => {
            let value = json!(text);
            serde_json::from_value::<Lookup>(value.clone()).map_err(|_| "want Hub or Cluster")?;
            Ok(value)
        }
        DECRYPTION_MAC => {
            let value = json!(text);
            serde_json::from_value::<MacCheck>(value.clone()).map_err(|_| "want Verify or Warn")?;
            Ok(value)
        }
        DEPENDS_ON => dependencies(text).map(Value::Array).ok_or_else(|| {
            "want Kind/name or Kind/namespace/name of objects that the hub serves, separated by commas"
                .to_owned()
        }),
        "adopt" => {
            let tools: Vec<&str> = text.split(',').map(str::trim).filter(|tool| !tool.is_empty()).collect();
            let value = json!(tools);
            serde_json::from_value::<Vec<Adopt>>(value.clone()).map_err(|_| "want Flux")?;
            Ok(value)
        }
        "pin" => {
            text.parse::<Revision>().map_err(|error| error.to_string())?;
            Ok(json!({ "revision": text }))
        }
        _ => {
            let want = "want JSON with mode, maxDeletionPercent or maxDeletions, as spec.guard has them";
            let value: Value = serde_json::from_str(text).map_err(|error| format!("{want}: {error}"))?;
            let guard: GuardSpec =
                serde_json::from_value(value.clone()).map_err(|error| format!("{want}: {error}"))?;
            let known = ["mode", "maxDeletionPercent", "maxDeletions"];
            let is_known = |key: &String| known.contains(&key.as_str());
            if !value.as_object().is_some_and(|fields| fields.keys().all(is_known)) {
                return Err(want.to_owned());
            }
            if guard.max_deletion_percent.is_some_and(|percent| percent > 100) {
                return Err("maxDeletionPercent must be at most 100".to_owned());
            }
            Ok(value)
        }
    }
}

/// What is wrong with annotations of an applier that stand for fields.
pub(crate) fn check(object: &Value) -> Vec<FieldError> {
    let (fields, mut errors) = fields(object);
    let decrypts = object["spec"]["decryption"].is_object();
    for field in [DECRYPTION_LOCATION, DECRYPTION_MAC].into_iter().filter(|_| !decrypts) {
        if let Some(value) = fields.get(field) {
            let at = format!("metadata.annotations[{PREFIX}{field}]");
            errors.push(FieldError::invalid(at, value, "spec.decryption is not set"));
        }
    }
    for (annotation, wrong) in [
        (CLUSTER, cluster(object).err()),
        (TAKES_OVER, takes_over(object).err()),
        (ADOPT_INVENTORY, adopt_inventory(object).err()),
        (GIVE_BACK, gives_back(object).err()),
    ] {
        let Some(why) = wrong else { continue };
        let at = format!("metadata.annotations[{annotation}]");
        errors.push(FieldError::invalid(at, &object["metadata"]["annotations"][annotation], why));
    }
    errors
}

/// The annotations that say what is wanted: where one is changed, something else is.
#[must_use]
pub fn wanted(object: &Value) -> Vec<(&'static str, &Value)> {
    let annotations = &object["metadata"]["annotations"];
    let given = |field: &'static str| Some((field, annotations.get(format!("{PREFIX}{field}"))?));
    let more = [TAKES_OVER, ADOPT_INVENTORY, GIVE_BACK];
    let more = more.into_iter().filter_map(|name| Some((name, annotations.get(name)?)));
    FIELDS.into_iter().filter_map(given).chain(more).collect()
}

/// Whether an annotation is one of those, by its name.
#[must_use]
pub fn is_wanted(annotation: &str) -> bool {
    [TAKES_OVER, ADOPT_INVENTORY, GIVE_BACK].contains(&annotation)
        || annotation.strip_prefix(PREFIX).is_some_and(|field| FIELDS.contains(&field))
}

/// The object with the fields in its spec that annotations say, and the spec does not; none where it stays the same.
pub(crate) fn merged(object: &Value) -> Option<Value> {
    let (fields, _) = fields(object);
    if fields.is_empty() {
        return None;
    }
    let mut merged = object.clone();
    let spec = merged["spec"].as_object_mut()?;
    for (field, value) in fields {
        let (within, key) = match field.as_str() {
            DECRYPTION_LOCATION => (spec.get_mut("decryption").and_then(Value::as_object_mut), "location"),
            DECRYPTION_MAC => (spec.get_mut("decryption").and_then(Value::as_object_mut), "mac"),
            DEPENDS_ON => {
                let named = spec.entry("dependsOn").or_insert_with(|| json!([]));
                if named.is_null() {
                    *named = json!([]);
                }
                if let (Some(named), Value::Array(more)) = (named.as_array_mut(), value) {
                    named.extend(more);
                }
                continue;
            }
            field => (Some(&mut *spec), field),
        };
        let Some(within) = within else { continue };
        if within.get(key).is_none_or(Value::is_null) {
            within.insert(key.to_owned(), value);
        }
    }
    (merged != *object).then_some(merged)
}

/// Reads an applier with what annotations say of its spec.
pub(crate) fn read_merged<T: Typed>(object: &Value) -> Result<T, serde_json::Error> {
    match merged(object) {
        Some(merged) => T::deserialize(&merged),
        None => T::deserialize(object),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        ADOPT_INVENTORY, GIVE_BACK, TAKES_OVER, adopt_inventory, check, gives_back, merged, takes_over,
        wanted,
    };
    use crate::cluster::Lookup;
    use crate::kustomization::MacCheck;
    use crate::references::Reference;
    use crate::{AnyApplier, KindId, Kustomization, Typed as _};

    fn object(annotations: &Value, spec: &Value) -> Value {
        json!({ "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": { "name": "app", "namespace": "apps", "annotations": annotations }, "spec": spec })
    }

    #[test]
    fn annotations_say_what_the_spec_does_not() {
        let annotations = json!({
            "fleet.roadstead.dev/drift": "Report",
            "fleet.roadstead.dev/adopt": "Flux",
            "fleet.roadstead.dev/pin": "main@sha1:0d27ef211864b632e7576147f5111bab8a2be737",
            "fleet.roadstead.dev/guard": "{\"mode\":\"Stop\",\"maxDeletions\":3}",
            "fleet.roadstead.dev/delegation": "{\"clusters\":[\"*\"]}",
        });
        let said = object(&annotations, &json!({ "interval": "5m", "prune": true }));
        assert!(check(&said).is_empty());
        let spec = AnyApplier::from_object(&said).unwrap().spec;
        let as_fields = json!({ "interval": "5m", "prune": true, "drift": "Report", "adopt": ["Flux"],
            "pin": { "revision": "main@sha1:0d27ef211864b632e7576147f5111bab8a2be737" },
            "guard": { "mode": "Stop", "maxDeletions": 3 } });
        assert_eq!(spec, AnyApplier::from_object(&object(&json!({}), &as_fields)).unwrap().spec);
        assert!(spec.delegation.is_none(), "rights are not given by annotations");
        let both = object(&annotations, &json!({ "interval": "5m", "drift": "Correct" }));
        assert_eq!(merged(&both).unwrap()["spec"]["drift"], "Correct");
        assert_eq!(merged(&object(&json!({ "other": "x" }), &json!({ "interval": "5m" }))), None);
        assert_eq!(wanted(&said).len(), 4);
    }

    #[test]
    fn what_is_said_within_a_field_is_joined_to_it() {
        let annotations = json!({
            "fleet.roadstead.dev/decryption-location": "Cluster",
            "fleet.roadstead.dev/decryption-mac": "Warn",
            "fleet.roadstead.dev/depends-on": "GitRepository/app, Kustomization/infra/base,Cluster/edge-1",
        });
        let spec = json!({ "interval": "5m", "prune": true, "path": "./", "dependsOn": [{ "name": "first" }],
            "sourceRef": { "kind": "GitRepository", "name": "app" },
            "decryption": { "provider": "sops", "mac": "Verify" } });
        let said = object(&annotations, &spec);
        assert!(check(&said).is_empty(), "{:?}", check(&said));
        let spec = Kustomization::from_object(&said).unwrap().spec;
        let decryption = spec.decryption.unwrap();
        assert_eq!((decryption.location, decryption.mac), (Some(Lookup::Cluster), Some(MacCheck::Verify)));
        let names: Vec<_> =
            spec.depends_on.iter().map(|one| (one.kind.as_deref(), one.name.as_str())).collect();
        let kinds = [Some("GitRepository"), Some("Kustomization"), Some("Cluster")];
        assert_eq!(names, [(None, "first"), (kinds[0], "app"), (kinds[1], "base"), (kinds[2], "edge-1")]);
        assert_eq!(AnyApplier::from_object(&said).unwrap().spec.depends_on.len(), 4);
        let references: Vec<String> =
            KindId::Kustomization.references(&said, "apps").iter().map(Reference::key).collect();
        assert!(references.iter().any(|key| key.ends_with("/infra/base")), "{references:?}");
        assert!(references.iter().any(|key| key.ends_with("edge-1")), "{references:?}");
        let across: Vec<String> =
            KindId::Kustomization.references_across(&said, "apps").iter().map(Reference::key).collect();
        assert!(across.iter().any(|key| key.ends_with("/infra/base")), "{across:?}");
    }

    #[test]
    fn what_comes_from_a_flux_and_goes_back_is_named() {
        let said = |name: &str, text: &str| object(&json!({ name: text }), &json!({}));
        let inventories = said(ADOPT_INVENTORY, "flux-system/apps,team/two");
        assert_eq!(adopt_inventory(&inventories), Ok(vec![("flux-system", "apps"), ("team", "two")]));
        assert_eq!(wanted(&inventories).len(), 1, "it is tried again at once");
        assert_eq!(gives_back(&said(GIVE_BACK, "Flux")), Ok(true));
        assert_eq!(gives_back(&object(&json!({}), &json!({}))), Ok(false));
        assert!(gives_back(&said(GIVE_BACK, "")).is_err());
    }

    #[test]
    fn the_owners_that_are_taken_over_from_are_named() {
        let said = |text: &str| object(&json!({ TAKES_OVER: text }), &json!({}));
        assert_eq!(takes_over(&said("apps/one, team/two")), Ok(vec![("apps", "one"), ("team", "two")]));
        assert_eq!(takes_over(&object(&json!({}), &json!({}))), Ok(vec![]));
        assert_eq!(wanted(&said("apps/one")).len(), 1, "it is tried again at once");
        assert!(takes_over(&said(&vec!["apps/one"; 17].join(","))).is_err());
    }

    #[test]
    fn what_is_wrong_with_one_is_said_and_it_counts_for_nothing() {
        for (name, text, why) in [
            ("drift", "Maybe", "want Correct or Report"),
            ("decryption-location", "Hub", "spec.decryption is not set"),
            ("decryption-location", "Here", "want Hub or Cluster"),
            ("decryption-mac", "Ignore", "want Verify or Warn"),
            ("depends-on", "app", "want Kind/name"),
            ("depends-on", "Pod/app", "objects that the hub serves"),
            ("depends-on", "GitRepository/a/b/c", "want Kind/name"),
            ("depends-on", "GitRepository/A", "want Kind/name"),
            ("events", "Everywhere", "want Hub or Cluster"),
            ("adopt", "Flux,Argo", "want Flux"),
            ("pin", "", "fleet.roadstead.dev/pin"),
            ("guard", "strict", "want JSON"),
            ("guard", "{\"maxDeletion\":3}", "want JSON"),
            ("guard", "{\"maxDeletionPercent\":101}", "at most 100"),
            ("takes-over", "app", "want namespace/name"),
            ("adopt-inventory", "flux-system", "want namespace/name"),
            ("give-back", "flux", "want Flux"),
            ("takes-over", "apps/one,", "want namespace/name"),
            ("takes-over", "apps/One", "want namespace/name"),
        ] {
            let annotations = json!({ format!("fleet.roadstead.dev/{name}"): text });
            let object = object(&annotations, &json!({ "interval": "5m" }));
            let errors: Vec<String> = check(&object).iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), 1, "{name}: {text}: {errors:?}");
            assert!(errors[0].contains(why) && errors[0].starts_with("metadata.annotations["), "{errors:?}");
            assert_eq!(merged(&object), None, "{name}: {text}");
        }
    }
}
