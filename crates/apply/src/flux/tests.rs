//! Ids of inventories, what of them may be ours, and how an object goes back.

use proptest::prelude::*;
use roadstead_model::{ApplierUid, FluxKustomization, MAX_OBJECTS};
use serde_json::{Value, json};

use super::{
    InventoryError, claim, give_back, inventory, is_claimable, is_shielded, owner, parse_id, shield,
};
use crate::OWNER_LABEL;

fn apps() -> FluxKustomization {
    FluxKustomization { namespace: "flux-system".to_owned(), name: "apps".to_owned() }
}

fn of_flux(annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "a", "resourceVersion": "7", "annotations": annotations, "managedFields": [],
            "labels": { "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system" },
        },
    })
}

#[test]
fn ids_are_read_as_flux_writes_them() {
    let object = parse_id("dev_web_apps_Deployment", "v1").expect("an id");
    assert_eq!(
        (object.namespace.as_str(), object.name.as_str(), object.kind.as_str()),
        ("dev", "web", "Deployment")
    );
    assert_eq!((object.group.as_str(), object.version.as_str()), ("apps", "v1"));
    let object =
        parse_id("_system__node-proxier_rbac.authorization.k8s.io_ClusterRoleBinding", "v1").expect("an id");
    assert_eq!((object.namespace.as_str(), object.name.as_str()), ("", "system:node-proxier"));
    let object = parse_id("dev_map__ConfigMap", "v1").expect("of the core group");
    assert_eq!((object.group.as_str(), object.name.as_str()), ("", "map"));
    let wrong = [
        "",
        "_",
        "___",
        "dev_web_Deployment",
        "dev_a_b_apps_Deployment",
        "dev__apps_Deployment",
        "dev_.._apps_Deployment",
        "dev_a/b_apps_Deployment",
        "d/ev_a_apps_Deployment",
        "dev_a_apps/x_Deployment",
        "dev_a_apps_",
        "dev_a_apps_De/ployment",
    ];
    for id in wrong {
        assert_eq!(parse_id(id, "v1"), None, "{id}");
    }
    assert_eq!(parse_id("dev_web_apps_Deployment", ""), None);
}

#[test]
fn an_inventory_is_read_whole_or_not_at_all() {
    let entry = |id: &str| json!({ "id": id, "v": "v1" });
    let of = |entries: Vec<Value>| json!({ "status": { "inventory": { "entries": entries } } });
    assert_eq!(inventory(&json!({})), Ok(Vec::new()));
    let two = inventory(&of(vec![entry("dev_a__ConfigMap"), entry("dev_b__Secret")])).expect("two");
    assert_eq!(two.len(), 2);
    let wrong = inventory(&of(vec![entry("dev_a__ConfigMap"), entry("nothing")]));
    assert_eq!(wrong, Err(InventoryError::Entry { index: 1, id: "nothing".to_owned() }));
    let many = inventory(&of(vec![entry("dev_a__ConfigMap"); MAX_OBJECTS + 1]));
    assert_eq!(many, Err(InventoryError::TooMany { count: MAX_OBJECTS + 1 }));
}

#[test]
fn what_is_not_that_kustomizations_any_more_is_left_alone() {
    let map = parse_id("dev_a__ConfigMap", "v1").expect("an id");
    let live = of_flux(&json!({}));
    assert!(is_claimable(&map, &live, &apps()));
    let other = FluxKustomization { name: "other".to_owned(), ..apps() };
    assert!(!is_claimable(&map, &live, &other));
    for key in ["prune", "reconcile"] {
        let asked = of_flux(&json!({ format!("kustomize.toolkit.fluxcd.io/{key}"): "disabled" }));
        assert!(!is_claimable(&map, &asked, &apps()), "{key}");
    }
    let mut owned = live.clone();
    owned["metadata"]["labels"][OWNER_LABEL] = "somebody".into();
    assert!(!is_claimable(&map, &owned, &apps()), "another applier's");
    // Flux itself.
    let mut part = live.clone();
    part["metadata"]["labels"]["app.kubernetes.io/part-of"] = "flux".into();
    assert!(!is_claimable(&map, &part, &apps()));
    for id in [
        "dev_a_kustomize.toolkit.fluxcd.io_Kustomization",
        "dev_a_helm.toolkit.fluxcd.io_HelmRelease",
        "dev_a_fluxcd.controlplane.io_FluxInstance",
        "_gitrepositories.source.toolkit.fluxcd.io_apiextensions.k8s.io_CustomResourceDefinition",
    ] {
        let object = parse_id(id, "v1").expect("an id");
        assert!(!is_claimable(&object, &live, &apps()), "{id}");
    }
}

#[test]
fn a_claim_changes_whose_it_is_and_nothing_else() {
    let by = ApplierUid::random();
    let mut live = of_flux(&json!({}));
    let patch: json_patch::Patch =
        serde_json::from_value(claim(&live, by).expect("a patch")).expect("a patch");
    json_patch::patch(&mut live, &patch).expect("it fits");
    assert_eq!(owner(&live), None);
    assert_eq!(live["metadata"]["labels"], json!({ OWNER_LABEL: by.to_string() }));
}

#[test]
fn what_shields_from_flux_is_told_apart_from_what_people_ask_for() {
    let mut plain = json!({ "metadata": { "name": "a" } });
    shield(&mut plain);
    assert!(is_shielded(&plain));
    assert_eq!(plain["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/prune"], "disabled");
    for map in ["annotations", "labels"] {
        let asked = json!({ "metadata": { map: { "kustomize.toolkit.fluxcd.io/prune": "disabled" } } });
        let mut object = asked.clone();
        shield(&mut object);
        assert!(!is_shielded(&object), "{map}");
    }
}

#[test]
fn what_goes_back_is_as_if_flux_had_applied_it() {
    let by = ApplierUid::random();
    let mut live = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": { "word": "a" },
        "metadata": {
            "name": "a", "resourceVersion": "7", "labels": { OWNER_LABEL: by.to_string(), "app": "web" },
            "annotations": { "note": "a" },
        },
    });
    shield(&mut live);
    let entry = |manager: &str, fields: Value| json!({ "manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsV1": fields });
    let label = format!("f:{OWNER_LABEL}");
    live["metadata"]["managedFields"] = json!([
        entry(
            "roadstead",
            json!({ "f:data": { "f:word": {} }, "f:metadata": {
            "f:labels": { label: {}, "f:app": {} },
            "f:annotations": { "f:note": {}, "f:kustomize.toolkit.fluxcd.io/prune": {}, "f:fleet.roadstead.dev/adopted-from": {} },
        } })
        ),
        entry("helm", json!({ "f:data": { "f:other": {} } })),
    ]);
    assert_eq!(give_back(&live, ApplierUid::random()), None, "another's");
    let patch = give_back(&live, by).expect("a patch");
    assert_eq!(patch[0], json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" }));
    let patch: json_patch::Patch = serde_json::from_value(patch).expect("a patch");
    json_patch::patch(&mut live, &patch).expect("it fits");
    let metadata = &live["metadata"];
    assert_eq!(metadata["labels"], json!({ "app": "web" }));
    assert_eq!(metadata["annotations"], json!({ "note": "a" }));
    let entries = metadata["managedFields"].as_array().expect("entries");
    let managers: Vec<_> = entries.iter().map(|entry| entry["manager"].as_str()).collect();
    assert_eq!(managers, [Some("helm"), Some("kustomize-controller")]);
    let fields = json!({ "f:data": { "f:word": {} }, "f:metadata": {
        "f:labels": { "f:app": {} }, "f:annotations": { "f:note": {} },
    } });
    assert_eq!(entries[1]["fieldsV1"], fields);
    assert_eq!(live["data"], json!({ "word": "a" }));
}

proptest! {
    #[test]
    fn whatever_an_id_is_it_is_an_object_or_none(id in "\\PC{0,60}", version in "\\PC{0,8}") {
        let _ = parse_id(&id, &version);
    }

    #[test]
    fn what_flux_writes_is_read_back(
        namespace in "([a-z][a-z0-9-]{0,8})?", name in "[a-z][a-z0-9.:-]{0,10}[a-z0-9]", group in "([a-z]{1,8}\\.io)?", kind in "[A-Z][a-zA-Z]{0,10}",
    ) {
        let id = format!("{namespace}_{}_{group}_{kind}", name.replace(':', "__"));
        let object = parse_id(&id, "v1").expect("an id");
        prop_assert_eq!((object.namespace, object.name, object.group, object.kind), (namespace, name, group, kind));
    }
}
