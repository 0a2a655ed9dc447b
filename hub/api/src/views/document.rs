//! OpenAPI of the fleet views, made from the types that they answer.

use std::sync::OnceLock;

use roadstead_hub_core::identity::AuditItem;
use roadstead_hub_core::views::{
    ApplierItem, AttemptItem, BuildDiff, ClusterItem, DeliveryItem, DriftItem, EventItem, FleetChange,
    FleetPage, HealthCount, IncidentItem, InventoryItem, Reconciliations, SilenceItem, SourceItem,
};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// (name, type, what it does)
type Parameter = (&'static str, &'static str, &'static str);

const LIMIT: Parameter = ("limit", "integer", "The maximum number of items: 100 by default, 500 at most.");
const CONTINUE: Parameter = ("continue", "string", "The `continue` of the page before.");
const CLUSTER: Parameter = ("cluster", "string", "Only of this Cluster.");
const APPLIER_KIND: Parameter = ("applierKind", "string", "Only of appliers of this kind.");
const APPLIER_NAMESPACE: Parameter = ("applierNamespace", "string", "Only of appliers in this namespace.");
const APPLIER: Parameter = ("applier", "string", "Only of appliers of this name.");
/// Parameters from before there were other appliers than Kustomizations.
const OLDER: [Parameter; 2] = [
    ("kustomization", "string", "The same as `applierKind=Kustomization` with this `applier`."),
    (
        "kustomizationNamespace",
        "string",
        "The same as `applierKind=Kustomization` with this `applierNamespace`.",
    ),
];
const OLDER_NAMESPACE: Parameter = ("namespace", "string", "The same as `applierNamespace`.");
const BEFORE: Parameter =
    ("before", "string", "Only what began before this time: `started` of the last item of a page.");

/// What entries of the audit log are asked for by.
const AUDIT: [Parameter; 13] = [
    ("limit", "integer", "The maximum number of entries: 500 by default, 1000 at most."),
    CONTINUE,
    ("order", "string", "`oldest` first, as by default, or `newest`."),
    ("since", "string", "Only what is not older than this time."),
    ("until", "string", "Only what is older than this time."),
    ("user", "string", "Only of this user, or of who was taken for another one."),
    ("verb", "string", "Only with this verb."),
    ("kind", "string", "Only about objects of this kind."),
    ("namespace", "string", "Only about objects in this namespace."),
    ("name", "string", "Only about objects of this name."),
    ("outcome", "string", "Only with this outcome: `ok` or `refused`."),
    ("request", "string", "Only of this request: what its answer had in the header `Audit-Id`."),
    ("administrator", "boolean", "Only by an administrator's credential."),
];

/// Paths from before there were other appliers than Kustomizations.
const KUSTOMIZATIONS: &str = "/fleet/v1/kustomizations";
const KUSTOMIZATION_RECONCILIATIONS: &str =
    "/fleet/v1/namespaces/{namespace}/kustomizations/{name}/reconciliations";

/// What is under `/fleet/v1`, as OpenAPI 3.0.
#[must_use]
pub fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(build)
}

fn build() -> Value {
    let settings = SchemaSettings::openapi3();
    let mut generator = settings.into_generator();
    let mut schema = |name: &'static str| -> Value {
        match name {
            "clusters" => generator.subschema_for::<FleetPage<ClusterItem>>().to_value(),
            "appliers" => generator.subschema_for::<FleetPage<ApplierItem>>().to_value(),
            "sources" => generator.subschema_for::<FleetPage<SourceItem>>().to_value(),
            "events" => generator.subschema_for::<FleetPage<EventItem>>().to_value(),
            "health" => generator.subschema_for::<FleetPage<HealthCount>>().to_value(),
            "inventory" => generator.subschema_for::<FleetPage<InventoryItem>>().to_value(),
            "drift" => generator.subschema_for::<FleetPage<DriftItem>>().to_value(),
            "incidents" => generator.subschema_for::<FleetPage<IncidentItem>>().to_value(),
            "silences" => generator.subschema_for::<FleetPage<SilenceItem>>().to_value(),
            "deliveries" => generator.subschema_for::<FleetPage<DeliveryItem>>().to_value(),
            "audit" => generator.subschema_for::<FleetPage<AuditItem>>().to_value(),
            "attempts" => generator.subschema_for::<FleetPage<AttemptItem>>().to_value(),
            _ => generator.subschema_for::<FleetChange>().to_value(),
        }
    };
    let mut paths = Map::new();
    let mut add = |path: &str, id: &str, what: &str, query: &[Parameter], content: (&str, Value)| {
        paths.insert(path.to_owned(), json!({ "get": operation(id, what, query, content) }));
    };
    let json_type = "application/json";
    add(
        "/fleet/v1/clusters",
        "listClusters",
        "All clusters, by name, with what is on them.",
        &[("names", "string", "Only the Clusters of these names, with commas between them; at most 100.")],
        (json_type, schema("clusters")),
    );
    let appliers = [
        ("kind", "string", "Only of this kind, as `Kustomization`."),
        LIMIT,
        CONTINUE,
        CLUSTER,
        ("namespace", "string", "Only in this namespace."),
        ("name", "string", "Only those whose names hold this."),
        (
            "state",
            "string",
            "Only those whose Ready is `True`, `False` or `Unknown`, or those that are `Suspended`.",
        ),
        ("sourceKind", "string", "Only those with a source of this kind."),
        ("source", "string", "Only those with a source of this name."),
        ("sourceNamespace", "string", "Only those with a source in this namespace."),
    ];
    add(
        "/fleet/v1/appliers",
        "listAppliers",
        "Objects of the hub that deploy, of all kinds and namespaces, by namespace, name and kind, with their clusters and \
         states.",
        &appliers,
        (json_type, schema("appliers")),
    );
    add(
        KUSTOMIZATIONS,
        "listKustomizations",
        "The same as `/fleet/v1/appliers?kind=Kustomization`.",
        &appliers[1..],
        (json_type, schema("appliers")),
    );
    add(
        "/fleet/v1/sources",
        "listSources",
        "Objects of the hub that say what is fetched, of all kinds and namespaces, by namespace, name and kind, with their \
         revisions and states.",
        &[&[("kind", "string", "Only of this kind, as `GitRepository`.")], &appliers[1..3], &appliers[4..7]]
            .concat(),
        (json_type, schema("sources")),
    );
    let events = [
        LIMIT,
        CONTINUE,
        ("before", "string", "Only what last happened before this time."),
        ("cluster", "string", "Only what Flux's controllers reported in the Cluster of this name."),
        ("kind", "string", "Only about objects of this kind."),
        ("namespace", "string", "Only about objects in this namespace."),
        ("name", "string", "Only about objects whose names hold this."),
        ("type", "string", "`Normal` or `Warning`."),
    ];
    add(
        "/fleet/v1/events",
        "listEvents",
        "What happened to objects of the hub, and what Flux's controllers in clusters reported lately, the newest first.",
        &events,
        (json_type, schema("events")),
    );
    add(
        "/fleet/v1/health",
        "getHealth",
        "How many appliers, sources and Clusters are in which state, by namespace and cluster.",
        &[],
        (json_type, schema("health")),
    );
    let inventory = [
        LIMIT,
        CONTINUE,
        CLUSTER,
        ("kind", "string", "Only of this kind."),
        ("namespace", "string", "Only in this namespace of their cluster."),
        ("name", "string", "Only those whose names hold this."),
        ("labels", "string", "Only those with these labels: `app=web,tier`; as they were applied last."),
        APPLIER_KIND,
        APPLIER_NAMESPACE,
        APPLIER,
        OLDER[0],
        OLDER[1],
    ];
    add(
        "/fleet/v1/inventory",
        "searchInventory",
        "The objects that appliers own, on all clusters.",
        &inventory,
        (json_type, schema("inventory")),
    );
    let attempts = [
        ("failed", "boolean", "Only those that failed."),
        LIMIT,
        BEFORE,
        CLUSTER,
        APPLIER_KIND,
        APPLIER_NAMESPACE,
        APPLIER,
        OLDER_NAMESPACE,
        OLDER[0],
        OLDER[1],
    ];
    add(
        "/fleet/v1/reconciliations",
        "listReconciliations",
        "Attempts at reconciling, of all appliers, the newest first.",
        &attempts,
        (json_type, schema("attempts")),
    );
    add(
        "/fleet/v1/drift",
        "listDrift",
        "Attempts that changed an object though the build was the one that had been applied: someone else had changed it.",
        &attempts[1..],
        (json_type, schema("attempts")),
    );
    let drift = [
        ("ongoing", "boolean", "Only those that still differ."),
        LIMIT,
        (
            "before",
            "string",
            "Only what was last told before this time: `lastSeen` of the last item of a page.",
        ),
        CLUSTER,
        APPLIER_KIND,
        APPLIER_NAMESPACE,
        APPLIER,
    ];
    add(
        "/fleet/v1/drift/objects",
        "listDriftedObjects",
        "Objects that differ from what was applied, and those that did and were corrected, with fields, values and managers, \
         the latest first.",
        &drift,
        (json_type, schema("drift")),
    );
    let deliveries = [
        ("namespace", "string", "Only those of Alerts in this namespace."),
        ("alert", "string", "Only those of Alerts of this name."),
        ("state", "string", "Only those in this state: `waiting`, `sent` or `failed`."),
        LIMIT,
        (
            "before",
            "integer",
            "Only those made before the one with this `id`: that of the last item of a page.",
        ),
    ];
    add(
        "/fleet/v1/deliveries",
        "listDeliveries",
        "Events that Alerts send, and what came of it, the latest first.",
        &deliveries,
        (json_type, schema("deliveries")),
    );
    let incidents = [
        ("namespace", "string", "Only those of Alerts in this namespace."),
        ("alert", "string", "Only those of Alerts of this name."),
        ("open", "boolean", "Only those that are not over."),
        LIMIT,
        ("before", "string", "Only those opened before then: `opened` of the last item of a page."),
    ];
    add(
        "/fleet/v1/incidents",
        "listIncidents",
        "Failures that have one cause, of which Alerts with `spec.group` tell as one thing, the latest first.",
        &incidents,
        (json_type, schema("incidents")),
    );
    add(
        "/fleet/v1/silences",
        "listSilences",
        "Silences that are not over for long, by namespace and name: who keeps what from being sent, until when, and why.",
        &[("namespace", "string", "Only those in this namespace."), LIMIT],
        (json_type, schema("silences")),
    );
    add(
        "/fleet/v1/audit",
        "listAudit",
        "Entries of the audit log, the oldest first: who did, read or was refused what. For those who may read the log.",
        &AUDIT,
        (json_type, schema("audit")),
    );
    add(
        "/fleet/v1/changes",
        "followChanges",
        "Changes of appliers, sources and Clusters as they happen: server-sent events `change`, each with its \
         resource version as id, by which a reader that comes back goes on. An event `gone` says that it has to start over.",
        &[("resourceVersion", "string", "Changes after this version. Without it, changes from now on.")],
        ("text/event-stream", schema("changes")),
    );
    let reconciliations = generated::<Reconciliations>(&mut generator);
    let diff = generated::<BuildDiff>(&mut generator);
    let of_attempts: [Parameter; 3] = [
        ("limit", "integer", "The maximum number of attempts: 20 by default and at most."),
        ("before", "integer", "Only attempts before this one: `attempt` of the last item of a page."),
        ("changedOnly", "boolean", "Change sets without the objects that were unchanged."),
    ];
    let of_builds: [Parameter; 2] = [
        (
            "from",
            "string",
            "The older build, by an attempt's number or a revision. By default the newest before `to` that is another.",
        ),
        ("to", "string", "The newer build. By default the newest."),
    ];
    let mut add_one = |path: &str,
                       id: &str,
                       what: &str,
                       in_path: &[&str],
                       query: &[Parameter],
                       schema: &Value| {
        let mut one = operation(id, what, query, (json_type, schema.clone()));
        if let Some(parameters) = one["parameters"].as_array_mut() {
            parameters.extend(in_path.iter().map(
                |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }),
            ));
        }
        paths.insert(path.to_owned(), json!({ "get": one }));
    };
    add_one(
        "/fleet/v1/appliers/{kind}/{namespace}/{name}/reconciliations",
        "getReconciliations",
        "The last attempts of an applier with their change sets, and what an agent is doing right now. The kind is its name, as \
         `Kustomization`.",
        &["kind", "namespace", "name"],
        &of_attempts,
        &reconciliations,
    );
    add_one(
        "/fleet/v1/appliers/{kind}/{namespace}/{name}/diff",
        "getDiff",
        "What differs between two builds of an applier, object by object and field by field, before variables are substituted.",
        &["kind", "namespace", "name"],
        &of_builds,
        &diff,
    );
    add_one(
        KUSTOMIZATION_RECONCILIATIONS,
        "getKustomizationReconciliations",
        "The same as `/fleet/v1/appliers/Kustomization/{namespace}/{name}/reconciliations`.",
        &["namespace", "name"],
        &of_attempts,
        &reconciliations,
    );
    add_one(
        "/fleet/v1/sources/{kind}/{namespace}/{name}/artifact",
        "getArtifact",
        "An artifact of a source, as a tar that is packed by gzip; by default the newest. Its `ETag` is its digest, `Roadstead-Revision` the \
         revision that it was made of, and parts of it can be asked for.",
        &["kind", "namespace", "name"],
        &[
            ("digest", "string", "The artifact with this digest."),
            ("revision", "string", "The artifact of this revision."),
            ("at", "string", "The artifact that was the newest at this time."),
        ],
        &json!({ "type": "string", "format": "binary" }),
    );
    if let Some(path) = paths.get_mut("/fleet/v1/sources/{kind}/{namespace}/{name}/artifact") {
        let content = path["get"]["responses"]["200"]["content"].take();
        path["get"]["responses"]["200"]["content"] = json!({ "application/gzip": content[json_type] });
        path["put"] = upload(path["get"]["parameters"].clone());
    }
    for older in [KUSTOMIZATIONS, KUSTOMIZATION_RECONCILIATIONS] {
        if let Some(path) = paths.get_mut(older) {
            path["get"]["deprecated"] = json!(true);
        }
    }
    json!({
        "openapi": "3.0.3",
        "info": { "title": "Roadstead fleet views", "version": env!("CARGO_PKG_VERSION") },
        "security": [{ "bearer": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// The upload of an artifact, at the path of which it is had.
fn upload(mut parameters: Value) -> Value {
    let told = [
        ("digest", "The digest of the body, where no header Repr-Digest, Content-Digest or Digest says it."),
        ("revision", "Which revision it is: `<name>@<algorithm>:<digest>`, or a version."),
    ];
    let mut kept = parameters.as_array_mut().map(std::mem::take).unwrap_or_default();
    kept.retain(|parameter| parameter["name"] != "at");
    for (name, what) in told {
        for parameter in kept.iter_mut().filter(|parameter| parameter["name"] == name) {
            parameter["description"] = json!(what);
        }
    }
    json!({
        "operationId": "putArtifact",
        "description": "Uploads the next artifact of an ExternalArtifact: a tar that is packed by gzip. It is checked, stored as it is, and named \
                        in the ExternalArtifact's status.",
        "parameters": kept,
        "requestBody": {
            "required": true,
            "content": { "application/gzip": { "schema": { "type": "string", "format": "binary" } } },
        },
        "responses": { "201": { "description": "It is stored, and its users are processed." } },
    })
}

fn generated<T: JsonSchema>(generator: &mut schemars::SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn operation(id: &str, what: &str, query: &[Parameter], (media_type, schema): (&str, Value)) -> Value {
    let parameters: Vec<Value> = query
        .iter()
        .map(|(name, type_, what)| {
            json!({ "name": name, "in": "query", "description": what, "schema": { "type": type_ } })
        })
        .collect();
    let mut content = Map::new();
    content.insert(media_type.to_owned(), json!({ "schema": schema }));
    let refused = json!({ "description": "A Kubernetes `Status` that says why not." });
    json!({
        "operationId": id, "description": what, "parameters": parameters,
        "responses": {
            "200": { "description": "What was found.", "content": content },
            "400": refused, "401": refused, "403": refused, "404": refused,
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::document;

    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_field_is_described() {
        let document = document();
        let mut found = Vec::new();
        references(document, &mut found);
        assert!(found.len() >= 8, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference}"));
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            for (field, inner) in schema["properties"].as_object().into_iter().flatten() {
                assert!(inner.get("description").is_some(), "{name}.{field} is not described");
            }
        }
    }
}
