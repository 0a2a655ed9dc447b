//! Layouts of Flux repositories on the hub, unchanged: what of each comes to the hub, what is dispatched, and what is refused why.
//! Agents and Git servers are played: every dispatch ends well, and every source holds the whole repository.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::support::{Site, config_map, file, git_repository, kustomization};
use anyhow::{Context as _, Result, ensure};
use roadstead_api::KindId;
use serde_json::{Value, json};

const K: KindId = KindId::Kustomization;

type Files = Vec<(String, String)>;

/// What became of each Kustomization, by `namespace/name`: nothing where it was dispatched, else reason and message.
type Ended = BTreeMap<String, Option<(String, String)>>;

/// Looks at everything until nothing new happens.
async fn settle(site: &Site, files: &[(String, String)]) -> Result<Ended> {
    let mut ended = Ended::new();
    for _ in 0..12 {
        for source in site.all(KindId::GitRepository).await? {
            if source.object["status"]["artifact"].is_null() {
                site.fetched(&source.namespace, &source.name, files).await?;
            }
        }
        for generator in site.all(KindId::ArtifactGenerator).await? {
            site.hub.generators.process_generator(generator.uid).await?;
        }
        let before = ended.clone();
        for one in site.all(K).await? {
            let key = format!("{}/{}", one.namespace, one.name);
            let (reason, message) = site.process(&one.namespace, &one.name).await?;
            let newest = site.store.newest_reconciliation(one.uid.into()).await?;
            let open = newest.as_ref().is_some_and(|newest| newest.finished.is_none());
            if open {
                site.succeed(&one.namespace, &one.name).await?;
                ended.insert(key, None);
            } else if site.ready(K, &one.namespace, &one.name).await?.0 != "Succeeded" && !reason.is_empty() {
                ended.insert(key, Some((reason, message)));
            }
        }
        if ended == before {
            break;
        }
    }
    Ok(ended)
}

fn names<'a>(ended: &'a Ended, is: impl Fn(&Option<(String, String)>) -> bool + 'a) -> BTreeSet<&'a str> {
    ended.iter().filter(|(_, end)| is(end)).map(|(name, _)| name.as_str()).collect()
}

/// Says how a layout ended; fails where another one than `waiting` was not dispatched.
fn report(layout: &str, ended: &Ended, waiting: &[(&str, &str)]) -> Result<()> {
    let done = names(ended, Option::is_none);
    println!("{layout}: {} of {} Kustomizations build and are dispatched", done.len(), ended.len());
    for (name, end) in ended {
        let Some((reason, message)) = end else { continue };
        println!("  {name}: {reason}: {message}");
        let expected = waiting.iter().any(|(known, part)| known == name && message.contains(part));
        ensure!(expected, "{layout}: {name} was not dispatched: {reason}: {message}");
    }
    for (name, _) in waiting {
        ensure!(
            ended.get(*name).is_some_and(Option::is_some),
            "{layout}: {name} was not expected to be dispatched"
        );
    }
    Ok(())
}

fn unpacked() -> Result<tempfile::TempDir> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/flux-repositories.tar.gz");
    ensure!(
        archive.is_file(),
        "the example repositories are missing: {} is to lie beside the clone",
        archive.display()
    );
    let folder = tempfile::tempdir()?;
    let done = Command::new("tar")
        .arg("xzf")
        .arg(&archive)
        .arg("-C")
        .arg(folder.path())
        .status()
        .context("run tar")?;
    ensure!(done.success(), "tar: {done}");
    Ok(folder)
}

/// The files of a repository as they are, with what `flux bootstrap` writes for each path.
fn repository(root: &Path, bootstrapped: &[&str]) -> Result<Files> {
    let mut files = Files::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(root)?.to_str().context("a path")?.to_owned();
            files.push((name, String::from_utf8_lossy(&std::fs::read(&path)?).into_owned()));
        }
    }
    for path in bootstrapped {
        let sync = format!("{path}/flux-system/gotk-sync.yaml");
        files.retain(|(name, _)| *name != sync);
        files.push(file(&sync, &bootstrap("flux-system", path)));
    }
    Ok(files)
}

/// `gotk-sync.yaml`: the source, and the root that holds itself.
fn bootstrap(namespace: &str, path: &str) -> [Value; 2] {
    let mut source = git_repository(namespace, "flux-system", "https://git.example.com/fleet.git");
    source["spec"]["ref"] = json!({ "branch": "main" });
    source["spec"]["secretRef"] = json!({ "name": "flux-system" });
    let mut root = kustomization(namespace, "flux-system", &format!("./{path}"), json!({}));
    root["spec"]["sourceRef"]["name"] = json!("flux-system");
    [source, root]
}

/// Writes a bootstrapped repository's root as a person does on the hub: as Git has it, and in a namespace of its cluster.
async fn root(
    site: &Site,
    cluster: &str,
    path: &str,
    files: &[(String, String)],
    more: Value,
    annotated: Value,
) -> Result<()> {
    site.namespace(cluster).await?;
    site.cluster(cluster, json!([{ "namespace": cluster, "agentRights": true }])).await?;
    site.apply(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": cluster, "name": "flux-system" },
        "stringData": { "username": "git", "password": "token" } }))
        .await?;
    let [source, mut root] = bootstrap(cluster, path);
    site.apply(source).await?;
    site.fetched(cluster, "flux-system", files).await?;
    root["spec"]["clusterRef"] = json!({ "name": cluster });
    for (key, value) in more.as_object().into_iter().flatten() {
        root["spec"][key] = value.clone();
    }
    root["metadata"]["annotations"] = annotated;
    site.apply(root).await?;
    Ok(())
}

#[tokio::test]
async fn a_repository_with_infrastructure_and_apps_works_unchanged_for_two_clusters() -> Result<()> {
    let folder = unpacked()?;
    let (staging, production) = ("clusters/staging", "clusters/production");
    let files = repository(&folder.path().join("flux2-kustomize-helm-example"), &[staging, production])?;
    let site = Site::new().await?;
    root(&site, "staging", staging, &files, json!({}), json!({})).await?;
    root(&site, "production", production, &files, json!({}), json!({})).await?;
    let ended = settle(&site, &files).await?;
    // Its Kustomizations take their files from what its ArtifactGenerators make.
    report("flux2-kustomize-helm-example, two clusters", &ended, &[])?;
    ensure!(ended.len() == 8, "{ended:?}");
    // The same with the whole repository in the place of those artifacts: all of it is dispatched.
    let files: Files = files
        .into_iter()
        .map(|(path, text)| {
            let text = if path.starts_with("clusters/") {
                text.replace(
                    "kind: ExternalArtifact\n    name: infrastructure",
                    "kind: GitRepository\n    name: flux-system",
                )
                .replace(
                    "kind: ExternalArtifact\n    name: apps",
                    "kind: GitRepository\n    name: flux-system",
                )
                .replace("path: ./controllers", "path: ./infrastructure/controllers")
                .replace("path: ./configs", "path: ./infrastructure/configs")
                .replace("path: ./staging", "path: ./apps/staging")
                .replace("path: ./production", "path: ./apps/production")
            } else {
                text
            };
            (path, text)
        })
        .collect();
    let site = Site::new().await?;
    root(&site, "staging", staging, &files, json!({}), json!({})).await?;
    root(&site, "production", production, &files, json!({}), json!({})).await?;
    let ended = settle(&site, &files).await?;
    report("flux2-kustomize-helm-example without ArtifactGenerator, two clusters", &ended, &[])?;
    ensure!(ended.len() == 8, "{ended:?}");
    for (namespace, cluster) in [("staging", "staging"), ("production", "production")] {
        let (at, account) = site.dispatched(namespace, "apps").await?;
        ensure!(at.0 == site.stored(KindId::Cluster, "", cluster).await?.uid.0 && account.is_empty());
    }
    Ok(())
}

#[tokio::test]
async fn a_repository_of_several_tenants_works_unchanged_for_two_clusters() -> Result<()> {
    let folder = unpacked()?;
    let (staging, production) = ("clusters/staging", "clusters/production");
    let mut files = repository(&folder.path().join("flux2-multi-tenancy"), &[staging, production])?;
    // What the tenant's own branch holds.
    files.push(file("staging/map.yaml", &[config_map("apps", "tenant")]));
    files.push(file("production/map.yaml", &[config_map("apps", "tenant")]));
    let more = json!({ "serviceAccountName": "kustomize-controller", "delegation": { "serviceAccounts": ["apps/dev-team"] } });
    let annotated = json!({ "fleet.roadstead.dev/git-namespace": "flux-system" });
    let site = Site::new().await?;
    for (cluster, path) in [("staging", staging), ("production", production)] {
        root(&site, cluster, path, &files, more.clone(), annotated.clone()).await?;
    }
    let ended = settle(&site, &files).await?;
    // Theirs is an artifact in a registry, which is not there for a test.
    let absent = "/kyverno-controller' has no artifact: it has not been fetched yet";
    let mut waiting = Vec::new();
    for name in ["staging/kyverno-controller", "production/kyverno-controller"] {
        waiting.push((name, absent));
    }
    report("flux2-multi-tenancy, two clusters", &ended, &waiting)?;
    for cluster in ["staging", "production"] {
        ensure!(site.dispatched(cluster, "flux-system").await?.1 == "flux-system/kustomize-controller");
        ensure!(site.dispatched(cluster, "tenants").await?.1 == "flux-system/kustomize-controller");
        ensure!(site.dispatched(cluster, "dev-team").await?.1 == "apps/dev-team");
    }
    // Without the delegation the tenant's account is refused, by name.
    let site = Site::new().await?;
    let more = json!({ "serviceAccountName": "kustomize-controller" });
    root(&site, "staging", staging, &files, more, annotated).await?;
    let ended = settle(&site, &files).await?;
    let (reason, message) = ended.get("staging/tenants").cloned().flatten().context("a refusal")?;
    ensure!(
        reason == "AccessDenied"
            && message.contains("spec.delegation.serviceAccounts of Kustomization staging/flux-system")
    );
    ensure!(message.contains("apps/dev-team"), "{message}");
    Ok(())
}

#[tokio::test]
async fn a_repository_of_a_hub_and_its_clusters_works_unchanged() -> Result<()> {
    let folder = unpacked()?;
    let files = repository(&folder.path().join("flux2-hub-spoke-example"), &["hub"])?;
    let site = Site::new().await?;
    for (name, namespace) in [("edge-staging", "staging"), ("edge-production", "production")] {
        site.namespace(namespace).await?;
        let made = site
            .apply(json!({ "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "Cluster", "metadata": { "name": name },
                "spec": {
                    "kubeConfig": { "secretRef": { "namespace": namespace, "name": "cluster-kubeconfig" } },
                    "access": [{ "namespace": "flux-hub", "agentRights": true }],
                } }))
            .await?;
        site.connect(made["metadata"]["uid"].as_str().context("a uid")?.parse()?).await?;
    }
    let more = json!({ "delegation": {
        "clusters": ["edge-staging", "edge-production"],
        "namespaces": { "staging": "staging", "production": "production" },
    } });
    root(&site, "flux-hub", "hub", &files, more, json!({})).await?;
    let ended = settle(&site, &files).await?;
    // All of it, each to its own cluster.
    report("flux2-hub-spoke-example", &ended, &[])?;
    let at = site.dispatched("staging", "tenants").await?.0;
    ensure!(at.0 == site.stored(KindId::Cluster, "", "edge-staging").await?.uid.0);
    Ok(())
}

/// A layout: what the root on the hub has beyond `path: ./root`, what its repository holds, and what is not dispatched.
struct Layout {
    name: &'static str,
    root: Value,
    files: Files,
    refused: &'static [(&'static str, &'static str)],
}

fn ks(namespace: &str, name: &str, path: &str, more: Value) -> Value {
    kustomization(namespace, name, path, more)
}

fn kustomize(path: &str, resources: &[&str], more: Value) -> (String, String) {
    let mut object = json!({ "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources });
    if let Value::Object(fields) = more {
        for (key, value) in fields {
            object[key] = value;
        }
    }
    file(&format!("{path}/kustomization.yaml"), &[object])
}

fn old(mut object: Value, version: &str) -> Value {
    object["apiVersion"] = json!(format!("kustomize.toolkit.fluxcd.io/{version}"));
    object
}

const FLUX_NS: &str = "flux-system";

fn layouts() -> Vec<Layout> {
    let none = || json!({});
    let map = |path: &str, namespace: &str, name: &str| {
        file(&format!("{path}/{name}.yaml"), &[config_map(namespace, name)])
    };
    let from = |namespace: &str| json!({ "sourceRef": { "kind": "GitRepository", "name": "fleet", "namespace": namespace } });
    let layout = |name, root, files, refused| Layout { name, root, files, refused };
    vec![
        layout("one flat folder", none(), vec![map("root", "apps", "a"), map("root", "apps", "b")], &[]),
        layout(
            "base and overlay",
            none(),
            vec![
                map("base", "apps", "a"),
                kustomize("base", &["a.yaml"], none()),
                kustomize("root", &["../base"], json!({ "namePrefix": "edge-" })),
            ],
            &[],
        ),
        layout(
            "infrastructure before apps",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[
                        ks(FLUX_NS, "infra", "./infra", none()),
                        ks(FLUX_NS, "apps", "./apps", json!({ "dependsOn": [{ "name": "infra" }] })),
                    ],
                ),
                map("infra", "infra", "i"),
                map("apps", "apps", "a"),
            ],
            &[],
        ),
        layout(
            "dependencies across Git's namespaces",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[
                        ks("infra", "infra", "./infra", from(FLUX_NS)),
                        ks("apps", "apps", "./apps", {
                            let mut spec = from(FLUX_NS);
                            spec["dependsOn"] = json!([{ "name": "infra", "namespace": "infra" }]);
                            spec
                        }),
                        ks(FLUX_NS, "more", "./apps", none()),
                    ],
                ),
                map("infra", "infra", "i"),
                map("apps", "apps", "a"),
            ],
            &[],
        ),
        layout(
            "children of children",
            none(),
            vec![
                file("root/a.yaml", &[ks(FLUX_NS, "a", "./a", none())]),
                file("a/b.yaml", &[ks(FLUX_NS, "b", "./b", none())]),
                file("b/c.yaml", &[ks(FLUX_NS, "c", "./c", none())]),
                map("c", "apps", "c"),
            ],
            &[],
        ),
        layout(
            "a root that holds itself",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[ks(FLUX_NS, "root", "./root", none()), ks(FLUX_NS, "web", "./web", none())],
                ),
                map("web", "apps", "w"),
            ],
            &[],
        ),
        layout(
            "a root that holds itself and its source",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[
                        git_repository(FLUX_NS, "fleet", "https://git.example.com/fleet.git"),
                        ks(FLUX_NS, "root", "./root", none()),
                        ks(FLUX_NS, "web", "./web", none()),
                    ],
                ),
                map("web", "apps", "w"),
            ],
            &[],
        ),
        layout(
            "a source of its own for a tenant",
            none(),
            vec![
                file(
                    "root/tenant.yaml",
                    &[
                        git_repository("tenant", "tenant", "https://git.example.com/tenant.git"),
                        ks(
                            "tenant",
                            "tenant",
                            "./web",
                            json!({ "sourceRef": { "kind": "GitRepository", "name": "tenant" } }),
                        ),
                    ],
                ),
                map("web", "tenant", "w"),
            ],
            &[],
        ),
        layout(
            "an account for each child, by a root without one",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[
                        ks(
                            "one",
                            "one",
                            "./web",
                            json!({ "serviceAccountName": "one", "sourceRef": { "kind": "GitRepository", "name": "fleet", "namespace": FLUX_NS } }),
                        ),
                        ks(FLUX_NS, "two", "./web", json!({ "serviceAccountName": "two" })),
                    ],
                ),
                map("web", "apps", "w"),
            ],
            &[],
        ),
        layout(
            "an account for each child, delegated",
            json!({ "serviceAccountName": "root", "delegation": { "serviceAccounts": ["one/*"] } }),
            vec![
                file("root/all.yaml", &[ks("one", "one", "./web", json!({ "serviceAccountName": "one" }))]),
                map("web", "apps", "w"),
            ],
            &[],
        ),
        layout(
            "an account for a child, not delegated",
            json!({ "serviceAccountName": "root" }),
            vec![
                file("root/all.yaml", &[ks("one", "one", "./web", json!({ "serviceAccountName": "one" }))]),
                map("web", "apps", "w"),
            ],
            &[("home/root", "spec.delegation.serviceAccounts")],
        ),
        layout(
            "two of one name in two namespaces",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[ks("one", "web", "./web", none()), ks("two", "web", "./web", none())],
                ),
                map("web", "apps", "w"),
            ],
            &[("home/root", "spec.delegation.namespaces")],
        ),
        layout(
            "two of one name, each with its place",
            json!({ "delegation": { "namespaces": { "one": "place-1", "two": "place-2" } } }),
            vec![
                file(
                    "root/all.yaml",
                    &[
                        ks("one", "web", "./web", from("one-of-none")),
                        ks("two", "web", "./web", from(FLUX_NS)),
                        ks(FLUX_NS, "x", "./web", none()),
                    ],
                ),
                map("web", "apps", "w"),
            ],
            &[("place-1/web", "another namespace")],
        ),
        layout(
            "older versions",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[
                        old(ks(FLUX_NS, "one", "./web", json!({ "validation": "client" })), "v1beta1"),
                        old(
                            ks(
                                FLUX_NS,
                                "two",
                                "./web",
                                json!({ "patchesStrategicMerge": [{ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "w", "namespace": "apps" }, "data": { "x": "y" } }] }),
                            ),
                            "v1beta2",
                        ),
                        old(ks(FLUX_NS, "three", "./web", none()), "v1alpha1"),
                    ],
                ),
                map("web", "apps", "w"),
            ],
            &[],
        ),
        layout(
            "alerts and providers beside",
            none(),
            vec![file(
                "root/all.yaml",
                &[
                    json!({ "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider", "metadata": { "name": "chat", "namespace": FLUX_NS }, "spec": { "type": "slack", "channel": "x", "secretRef": { "name": "chat" } } }),
                    json!({ "apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Alert", "metadata": { "name": "all", "namespace": FLUX_NS }, "spec": { "providerRef": { "name": "chat" }, "eventSources": [{ "kind": "Kustomization", "name": "*" }] } }),
                    config_map("apps", "a"),
                ],
            )],
            &[],
        ),
        layout(
            "Helm sources beside releases",
            none(),
            vec![file(
                "root/all.yaml",
                &[
                    json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmRepository", "metadata": { "name": "charts", "namespace": "apps" }, "spec": { "interval": "1h", "url": "https://charts.example.com" } }),
                    json!({ "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": { "name": "web", "namespace": "apps" }, "spec": { "interval": "1h", "chart": { "spec": { "chart": "web", "sourceRef": { "kind": "HelmRepository", "name": "charts" } } } } }),
                ],
            )],
            &[],
        ),
        layout(
            "no namespaces in Git",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[{
                        let mut object = ks("x", "web", "./web", none());
                        object["metadata"] = json!({ "name": "web" });
                        object
                    }],
                ),
                map("web", "apps", "w"),
            ],
            &[],
        ),
        layout(
            "a namespace by kustomize",
            none(),
            vec![
                kustomize("root", &["all.yaml"], json!({ "namespace": "tenant" })),
                file("root/all.yaml", &[ks("x", "web", "./web", none())]),
                map("web", "apps", "w"),
            ],
            &[],
        ),
        layout(
            "variables that a child refers to",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[
                        config_map(FLUX_NS, "vars"),
                        ks(
                            FLUX_NS,
                            "web",
                            "./web",
                            json!({ "postBuild": { "substituteFrom": [{ "kind": "ConfigMap", "name": "vars" }] } }),
                        ),
                    ],
                ),
                map("web", "apps", "w"),
            ],
            &[],
        ),
        layout(
            "a cluster that is not the root's",
            none(),
            vec![
                file(
                    "root/all.yaml",
                    &[ks(FLUX_NS, "web", "./web", json!({ "clusterRef": { "name": "other" } }))],
                ),
                map("web", "apps", "w"),
            ],
            &[("home/root", "spec.delegation.clusters")],
        ),
        layout(
            "several clusters from one root",
            json!({ "delegation": { "clusters": ["other"] } }),
            vec![
                file(
                    "root/all.yaml",
                    &[
                        ks(FLUX_NS, "web", "./web", json!({ "clusterRef": { "name": "other" } })),
                        ks(FLUX_NS, "here", "./web", none()),
                    ],
                ),
                map("web", "apps", "w"),
            ],
            &[],
        ),
        layout(
            "for a Flux that lives in the cluster",
            none(),
            vec![file(
                "root/all.yaml",
                &[{
                    let mut object = ks(FLUX_NS, "web", "./web", none());
                    object["metadata"]["annotations"] = json!({ "fleet.roadstead.dev/target": "Cluster" });
                    object
                }],
            )],
            &[],
        ),
    ]
}

#[tokio::test]
async fn layouts_of_our_own_are_dispatched_or_refused_by_name() -> Result<()> {
    let (mut whole, mut count) = (0, 0);
    for Layout { name, root, files, refused } in layouts() {
        let site = Site::new().await?;
        for namespace in ["home", "place-1", "place-2"] {
            site.namespace(namespace).await?;
        }
        for cluster in ["edge", "other"] {
            site.cluster(cluster, json!([{ "namespace": "home", "agentRights": true }])).await?;
        }
        site.source("home", "fleet", &files).await?;
        let mut spec = json!({ "clusterRef": { "name": "edge" } });
        for (key, value) in root.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        site.apply(kustomization("home", "root", "./root", spec)).await?;
        let ended = settle(&site, &files).await?;
        report(name, &ended, refused)?;
        ensure!(ended.contains_key("home/root"), "{name}: {ended:?}");
        count += 1;
        whole += usize::from(refused.is_empty());
        site.close().await;
    }
    println!(
        "{whole} of {count} layouts are dispatched as they are; each of the others names what refuses it"
    );
    ensure!(count >= 20);
    Ok(())
}
