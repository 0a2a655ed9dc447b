//! The fields of a Kustomization's spec: which test on a real cluster holds each, and those that only the build reads.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, config_map, kustomization};

/// Of each field, the test that shows what it does on a real cluster.
const FIELDS: &[(&str, &str)] = &[
    ("buildMetadata", "fields::what_the_build_reads_is_on_the_cluster"),
    ("clusterRef", "pipeline::a_kustomization_waits_for_its_cluster_and_moves_between_clusters"),
    ("commonMetadata", "fields::what_the_build_reads_is_on_the_cluster"),
    ("components", "fields::what_the_build_reads_is_on_the_cluster"),
    ("decryption", "decryption::the_walk_through_of_the_specification"),
    // Whether a child may act as another account is decided on the hub: these run on a real hub without a cluster.
    ("delegation", "tenancy::a_child_acts_as_its_parents_account_whatever_its_version"),
    ("deletionPolicy", "variables::a_deletion_can_wait_until_everything_is_gone"),
    ("dependsOn", "pipeline::dependencies_are_waited_for_and_cycles_named"),
    ("drift", "drift_reports::drift_is_only_reported_where_that_is_asked_for"),
    ("events", "cluster_events::what_an_attempt_changed_is_told_in_the_cluster_where_that_is_asked_for"),
    ("force", "fields::what_cannot_be_changed_is_recreated_by_force"),
    ("adopt", "adoption::what_flux_keeps_is_taken_over_where_that_is_asked_for"),
    ("guard", "guard::everything_waits_where_nobody_deleted_the_kustomization"),
    ("healthCheckExprs", "rules::health_can_be_told_by_expressions"),
    ("healthChecks", "pipeline::a_deployment_that_never_gets_ready_fails_the_health_check"),
    ("ignore", "rules::ignored_fields_stay_as_somebody_set_them"),
    ("ignoreMissingComponents", "fields::what_the_build_reads_is_on_the_cluster"),
    ("images", "fields::what_the_build_reads_is_on_the_cluster"),
    ("interval", "pipeline::drift_is_mended_at_the_interval_and_not_while_suspended"),
    ("kubeConfig", "onboarding::a_secret_of_cluster_api_makes_a_cluster_and_a_kustomization_goes_there"),
    ("namePrefix", "fields::what_the_build_reads_is_on_the_cluster"),
    ("nameSuffix", "fields::what_the_build_reads_is_on_the_cluster"),
    ("patches", "fields::what_the_build_reads_is_on_the_cluster"),
    ("path", "pipeline::a_commit_becomes_objects_and_the_next_ones_follow"),
    ("pin", "pins::a_pinned_kustomization_stays_while_its_source_moves_on"),
    ("postBuild", "variables::variables_come_from_the_spec_the_hub_and_the_cluster"),
    ("prune", "pipeline::what_leaves_git_leaves_the_cluster_where_prune_is_set"),
    ("retryInterval", "pipeline::rights_are_the_service_accounts_and_objects_have_one_owner"),
    ("serviceAccount", "pipeline::rights_are_the_service_accounts_and_objects_have_one_owner"),
    ("serviceAccountName", "pipeline::rights_are_the_service_accounts_and_objects_have_one_owner"),
    ("sourceRef", "pipeline::a_commit_becomes_objects_and_the_next_ones_follow"),
    ("suspend", "pipeline::drift_is_mended_at_the_interval_and_not_while_suspended"),
    ("targetNamespace", "fields::what_the_build_reads_is_on_the_cluster"),
    ("timeout", "pipeline::a_deployment_that_never_gets_ready_fails_the_health_check"),
    ("validation", "pipeline::a_commit_becomes_objects_and_the_next_ones_follow"),
    ("wait", "pipeline::a_commit_becomes_objects_and_the_next_ones_follow"),
];

/// The fields of a version's spec.
fn fields(version: &str) -> Result<BTreeSet<String>> {
    let kind = roadstead_api::KindId::Kustomization.get();
    let version = kind.versions.iter().find(|one| one.name == version).context("the version")?;
    let schema = roadstead_api::schema::schema(kind, version);
    let spec = schema["properties"]["spec"]["properties"].as_object().context("the spec's schema")?;
    Ok(spec.keys().cloned().collect())
}

#[test]
fn every_field_has_a_test() -> Result<()> {
    let schema: BTreeSet<String> = [fields("v1")?, fields("v1alpha1")?].into_iter().flatten().collect();
    let named: BTreeSet<String> = FIELDS.iter().map(|(field, _)| (*field).to_owned()).collect();
    let missing: Vec<&String> = schema.symmetric_difference(&named).collect();
    ensure!(missing.is_empty(), "FIELDS and the schema do not have the same fields: {missing:?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (field, test) in FIELDS {
        let (module, name) = test.split_once("::").context("module::test")?;
        let here = root.join("tests/e2e").join(format!("{module}.rs"));
        let there = root.join("../hub/core/tests/core").join(format!("{module}.rs"));
        let file = if here.is_file() { here } else { there };
        let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let is_there = text.contains(&format!("fn {name}("));
        ensure!(is_there, "{field}: there is no test {test}");
        let tells =
            text.contains(field) || *field == "sourceRef" || *field == "clusterRef" || *field == "path";
        ensure!(tells, "{field} is not in {}", file.display());
    }
    Ok(())
}

#[tokio::test]
async fn what_the_build_reads_is_on_the_cluster() -> Result<()> {
    let fleet = Fleet::start("fields").await?;
    let space = fleet.cluster.namespace("fields").await?;
    let ns = space.name();
    let pod = "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: pod}\ntemplate:\n  spec:\n    containers: [{name: web, image: \
               \"registry.example/web:1\"}]\n";
    let map = |name: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{word: one}}\n")
    };
    let component =
        "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [extra.yaml]\n";
    let files = Commit::new()
        .file("app/pod.yaml", pod)
        .file("app/map.yaml", map("map"))
        .file("extra/kustomization.yaml", component)
        .file("extra/extra.yaml", map("extra"));
    fleet.repository("app", &files).await?;
    let target = format!("targetNamespace: {ns}");
    let lines = [
        target.as_str(),
        "namePrefix: pre-",
        "nameSuffix: -suf",
        "commonMetadata: {labels: {team: a}, annotations: {note: b}}",
        "images: [{name: registry.example/web, newTag: \"2\"}]",
        "patches: [{patch: \"- {op: add, path: /data/patched, value: here}\", target: {kind: ConfigMap, name: map}}]",
        "components: [../extra, ../missing]",
        "ignoreMissingComponents: true",
        "buildMetadata: [originAnnotations]",
    ];
    fleet.apply(&kustomization("app", "app", "./app", &lines)).await?;
    fleet.ready("kustomization/app").await?;
    let kubectl = fleet.cluster.kubectl();
    let map = kubectl.get(&["configmap", "pre-map-suf", "--namespace", ns]).await?;
    ensure!(map["data"]["patched"] == "here" && map["data"]["word"] == "one", "{map:#}");
    ensure!(map["metadata"]["labels"]["team"] == "a", "{map:#}");
    let annotations = &map["metadata"]["annotations"];
    ensure!(annotations["note"] == "b" && annotations["config.kubernetes.io/origin"].is_string(), "{map:#}");
    let pod = kubectl.get(&["podtemplate", "pre-pod-suf", "--namespace", ns]).await?;
    let image = &pod["template"]["spec"]["containers"][0]["image"];
    ensure!(image == "registry.example/web:2", "{image}");
    kubectl.get(&["configmap", "pre-extra-suf", "--namespace", ns]).await.context("the component's")?;
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_changed_is_recreated_by_force() -> Result<()> {
    let fleet = Fleet::start("force").await?;
    let space = fleet.cluster.namespace("force").await?;
    let ns = space.name();
    let with = |word: &str| Commit::new().file("map.yaml", config_map(ns, "map", word) + "immutable: true\n");
    let repository = fleet.repository("app", &with("one")).await?;
    fleet.apply(&kustomization("app", "app", "./", &["force: false"])).await?;
    fleet.ready("kustomization/app").await?;
    repository.commit("main", "Second", &with("two"))?;
    fleet.fetch("app").await?;
    fleet.fails("kustomization/app", "ValidationFailed", &["immutable"]).await?;
    fleet.cluster.has_word(ns, "map", Some("one")).await?;
    fleet.apply(&kustomization("app", "app", "./", &["force: true"])).await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(ns, "map", Some("two")).await
}

#[tokio::test]
async fn what_the_operator_did_not_allow_is_refused_by_name() -> Result<()> {
    let fleet = Fleet::start("refused").await?;
    let space = fleet.cluster.namespace("refused").await?;
    fleet.repository("app", &Commit::new().file("map.yaml", config_map(space.name(), "map", "one"))).await?;
    fleet
        .apply(&kustomization(
            "app",
            "app",
            "./",
            &["decryption: {provider: sops, serviceAccountName: keys}"],
        ))
        .await?;
    let message = "to use spec.decryption.serviceAccountName for decryption authentication please enable the \
                   ObjectLevelWorkloadIdentity feature gate";
    fleet
        .fails("kustomization/app", "FeatureGateDisabled", &[message, "--object-level-workload-identity"])
        .await?;
    fleet.cluster.has_word(space.name(), "map", None).await
}
