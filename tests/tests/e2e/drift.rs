//! Drift by watch: what others change is corrected at once, also while the hub is away; with the exceptions that people expect.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{AgentRequests, Fleet, HubProcess, PATIENCE, config_map, eventually, kustomization};
use serde_json::Value;

/// How long a correction may take here, on a machine that does much else. The aim is a second.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A fleet with a Kustomization `app` of ConfigMaps, which is not looked at again for an hour.
async fn start(name: &str, ns: &str, fleet: &Fleet, more: &Commit) -> Result<String> {
    let repository = fleet.repository(name, more).await?;
    let head = repository.git(["rev-parse", "main"], &[], b"")?;
    fleet.apply(&kustomization(name, name, "./", &[])).await?;
    fleet.applied(name, &head).await.with_context(|| format!("in {ns}"))?;
    Ok(head)
}

async fn patch(fleet: &Fleet, ns: &str, object: &str, patch: &str) -> Result<()> {
    let args = ["patch", object, "--namespace", ns, "--type=merge", "-p", patch];
    fleet.cluster.kubectl().run(&args).await.map(drop)
}

async fn view(fleet: &Fleet, query: &str) -> Result<Vec<Value>> {
    let path = format!("/fleet/v1/drift?{query}");
    let view: Value = serde_json::from_str(&fleet.kubectl().run(&["get", "--raw", &path]).await?)?;
    Ok(view["items"].as_array().cloned().unwrap_or_default())
}

/// Waits until a correction is recorded whose message has all of these parts.
async fn recorded(fleet: &Fleet, name: &str, parts: &[&str]) -> Result<()> {
    eventually(&format!("a correction is recorded: {parts:?}"), PATIENCE, || async {
        let items = view(fleet, &format!("applier={name}")).await?;
        let messages: Vec<&str> = items.iter().filter_map(|item| item["message"].as_str()).collect();
        let is_it = |message: &&str| parts.iter().all(|part| message.contains(part));
        ensure!(messages.iter().any(is_it), "{messages:#?}");
        Ok(())
    })
    .await
}

/// Asks for a reconciliation of `app`, and waits until that is done.
async fn reconcile(fleet: &Fleet) -> Result<()> {
    fleet.run(&["annotate", "kustomization/app", "reconcile.fluxcd.io/requestedAt=now"]).await?;
    eventually("it was reconciled", PATIENCE, || async {
        let handled = fleet.get("kustomization/app").await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == "now", "{handled}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_others_change_is_corrected_at_once_and_recorded() -> Result<()> {
    let fleet = Fleet::start("drift").await?;
    let space = fleet.cluster.namespace("drift").await?;
    let ns = space.name();
    let files = Commit::new()
        .file("map.yaml", config_map(ns, "map", "git"))
        .file("other.yaml", config_map(ns, "other", "git"));
    start("app", ns, &fleet, &files).await?;
    let cluster = fleet.cluster.kubectl();

    // Changed, deleted, and without its label.
    let began = Instant::now();
    patch(&fleet, ns, "configmap/map", r#"{"data":{"word":"by hand","more":"of it"}}"#).await?;
    fleet.cluster.has_word(ns, "map", Some("git")).await?;
    let took = began.elapsed();
    println!("a change was corrected after {took:?}");
    ensure!(took < AT_ONCE, "a change was corrected after {took:?}");
    recorded(&fleet, "app", &["Corrected", "map", "/data/word", "/data/more", "kubectl-patch"]).await?;
    let began = Instant::now();
    cluster.run(&["delete", "configmap", "map", "--namespace", ns]).await?;
    fleet.cluster.has_word(ns, "map", Some("git")).await?;
    ensure!(began.elapsed() < AT_ONCE, "a deletion was corrected after {:?}", began.elapsed());
    recorded(&fleet, "app", &["map", "it had been deleted"]).await?;
    cluster.run(&["label", "configmap", "other", "--namespace", ns, "fleet.roadstead.dev/owner-"]).await?;
    eventually("the label is back", AT_ONCE, || async {
        let map = cluster.get(&["configmap", "other", "--namespace", ns]).await?;
        ensure!(map["metadata"]["labels"]["fleet.roadstead.dev/owner"].is_string(), "{map:#}");
        Ok(())
    })
    .await?;

    // Kubernetes-style: an Event on the hub, and the Kustomization stays as ready as it was.
    eventually("there is an event", PATIENCE, || async {
        let events = fleet.run(&["get", "events", "-o", "json"]).await?;
        ensure!(events.contains("configured") && events.contains(ns), "{events}");
        Ok(())
    })
    .await?;
    let ready = fleet.condition("kustomization/app", "Ready").await?;
    ensure!(ready.0 == "True" && ready.1 == "ReconciliationSucceeded", "{ready:?}");

    // What is not ours is left, and so is an object that asks for it.
    patch(
        &fleet,
        ns,
        "configmap/map",
        r#"{"metadata":{"annotations":{"kustomize.toolkit.fluxcd.io/reconcile":"disabled"}}}"#,
    )
    .await?;
    patch(&fleet, ns, "configmap/map", r#"{"data":{"word":"by hand"}}"#).await?;
    patch(&fleet, ns, "configmap/other", r#"{"data":{"word":"by hand"}}"#).await?;
    fleet.cluster.has_word(ns, "other", Some("git")).await?;
    let word = fleet.cluster.word(ns, "map").await?;
    ensure!(word.as_deref() == Some("by hand"), "it asks not to be reconciled, and says {word:?}");
    Ok(())
}

/// A policy of the cluster that takes no `refused` with our label in this namespace.
fn policy(ns: &str) -> String {
    format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: {ns}}}\nspec:\n  matchConstraints:\n    \
         namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {ns}}}}}\n    resourceRules: [{{apiGroups: [''], apiVersions: [v1], \
         operations: [CREATE, UPDATE], resources: [configmaps]}}]\n  validations:\n  - message: it is not wanted here\n    expression: >-\n      \
         object.metadata.name != 'refused' || !has(object.metadata.labels) || !('fleet.roadstead.dev/owner' in object.metadata.labels)\n---\n\
         apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: {ns}}}\nspec: {{policyName: {ns}, \
         validationActions: [Deny]}}\n"
    )
}

#[tokio::test]
async fn what_cannot_be_corrected_holds_up_nothing_else() -> Result<()> {
    let fleet = Fleet::start("refused").await?;
    let space = fleet.cluster.namespace("refused").await?;
    let ns = space.name();
    let names = ["refused", "other"];
    let files = names
        .iter()
        .fold(Commit::new(), |files, name| files.file(&format!("{name}.yaml"), config_map(ns, name, "git")));
    start("app", ns, &fleet, &files).await?;
    let cluster = fleet.cluster.kubectl();
    cluster.apply(&policy(ns)).await?;
    eventually("the policy is in force", PATIENCE, || async {
        let write = ["annotate", "configmap", "refused", "a=b", "--dry-run=server", "--namespace", ns];
        let refused = cluster.run(&write).await;
        ensure!(refused.is_err(), "it is taken: {refused:?}");
        Ok(())
    })
    .await?;
    let labelled = async |name: &str| -> Result<bool> {
        let map = cluster.get(&["configmap", name, "--namespace", ns]).await?;
        Ok(map["metadata"]["labels"]["fleet.roadstead.dev/owner"].is_string())
    };
    cluster
        .run(&["label", "configmap", "refused", "other", "--namespace", ns, "fleet.roadstead.dev/owner-"])
        .await?;
    eventually("the other one has its label again", AT_ONCE, || async {
        ensure!(labelled("other").await?, "it has none");
        Ok(())
    })
    .await?;
    eventually("it is told which one could not be corrected", PATIENCE, || async {
        let seen = fleet.kubectl().run(&["get", "--raw", "/fleet/v1/drift/objects?ongoing=true"]).await?;
        let seen: Value = serde_json::from_str(&seen)?;
        let [only] = seen["items"].as_array().map(Vec::as_slice).unwrap_or_default() else {
            anyhow::bail!("{seen:#}")
        };
        let text = only.to_string();
        ensure!(text.contains("refused") && text.contains("it is not wanted here"), "{only:#}");
        Ok(())
    })
    .await?;
    ensure!(!labelled("refused").await?, "the policy lets it through");
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        cluster.run(&["delete", kind, ns]).await?;
    }
    eventually("it has its label again", PATIENCE, || async {
        ensure!(labelled("refused").await?, "it has none");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nothing_is_corrected_of_what_is_suspended() -> Result<()> {
    let fleet = Fleet::start("rest").await?;
    let space = fleet.cluster.namespace("rest").await?;
    let ns = space.name();
    start("app", ns, &fleet, &Commit::new().file("map.yaml", config_map(ns, "map", "git"))).await?;
    start("mark", ns, &fleet, &Commit::new().file("map.yaml", config_map(ns, "mark", "git"))).await?;
    fleet.suspend("app", true).await?;
    eventually("it says that it is suspended", PATIENCE, || async {
        let (status, _, _) = fleet.condition("kustomization/app", "Suspended").await?;
        ensure!(status == "True", "{status}");
        Ok(())
    })
    .await?;
    eventually("what is suspended stays as it is, and the agent was told", PATIENCE, || async {
        patch(&fleet, ns, "configmap/map", r#"{"data":{"word":"by hand"}}"#).await?;
        // Two corrections of the other, one after the other, take longer than one of this would.
        for _ in 0..2 {
            patch(&fleet, ns, "configmap/mark", r#"{"data":{"word":"by hand"}}"#).await?;
            fleet.cluster.has_word(ns, "mark", Some("git")).await?;
        }
        let word = fleet.cluster.word(ns, "map").await?;
        ensure!(word.as_deref() == Some("by hand"), "{word:?}");
        Ok(())
    })
    .await?;
    // Resumed, it is reconciled at once.
    fleet.suspend("app", false).await?;
    fleet.cluster.has_word(ns, "map", Some("git")).await?;
    // And it is tended again.
    eventually("it is corrected as before", PATIENCE, || async {
        patch(&fleet, ns, "configmap/map", r#"{"data":{"word":"by hand"}}"#).await?;
        fleet.cluster.has_word(ns, "map", Some("git")).await
    })
    .await
}

#[tokio::test]
async fn a_cluster_is_corrected_while_its_hub_is_away() -> Result<()> {
    let fleet = Fleet::start("away").await?;
    let space = fleet.cluster.namespace("away").await?;
    let ns = space.name().to_owned();
    start("app", &ns, &fleet, &Commit::new().file("map.yaml", config_map(&ns, "map", "git"))).await?;
    let Fleet { agent, hub, git, cluster, setup } = fleet;
    drop(hub);
    let began = Instant::now();
    cluster.kubectl().run(&["delete", "configmap", "map", "--namespace", &ns]).await?;
    cluster.has_word(&ns, "map", Some("git")).await?;
    ensure!(began.elapsed() < AT_ONCE, "it was corrected after {:?}", began.elapsed());
    let hub = HubProcess::start(&setup).await?;
    let fleet = Fleet { agent, hub, git, cluster, setup };
    recorded(&fleet, "app", &["map", "it had been deleted"]).await
}

/// Jobs and Deployments, which nothing runs here; one of each is to be left alone, and one tells that its kind's watch is heard.
fn workloads(ns: &str) -> Commit {
    let pod = "{metadata: {labels: {app: web}}, spec: {restartPolicy: RESTART, containers: [{name: web, image: web}]}}";
    let job = |name: &str| {
        let pod = pod.replace("RESTART", "Never").replace("labels: {app: web}", "");
        format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, namespace: {ns}}}\nspec: {{template: {pod}}}\n"
        )
    };
    let deployment = |name: &str| {
        let pod = pod.replace("RESTART", "Always").replace("app: web", &format!("app: {name}"));
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: {ns}}}\n\
             spec: {{replicas: 2, selector: {{matchLabels: {{app: {name}}}}}, template: {pod}}}\n"
        )
    };
    Commit::new()
        .file("job.yaml", job("once") + "---\n" + &job("mark"))
        .file("deployment.yaml", deployment("web") + "---\n" + &deployment("mark"))
        .file("map.yaml", config_map(ns, "map", "git"))
}

#[tokio::test]
async fn jobs_restarts_and_scales_are_left_until_the_next_reconciliation() -> Result<()> {
    let fleet = Fleet::start("left").await?;
    let space = fleet.cluster.namespace("left").await?;
    let ns = space.name();
    start("app", ns, &fleet, &workloads(ns)).await?;
    let cluster = fleet.cluster.kubectl();
    let deployment = async || cluster.get(&["deployment", "web", "--namespace", ns]).await;
    cluster.run(&["delete", "job", "once", "--namespace", ns]).await?;
    cluster.run(&["rollout", "restart", "deployment/web", "--namespace", ns]).await?;
    cluster.run(&["scale", "deployment/web", "--replicas=5", "--namespace", ns]).await?;
    // What is corrected after them, and told by the same watches, tells that they were seen.
    for mark in ["job/mark", "deployment/mark"] {
        patch(&fleet, ns, mark, r#"{"metadata":{"annotations":{"fleet.roadstead.test/by":"hand"}}}"#).await?;
        eventually(&format!("{mark} is corrected"), PATIENCE, || async {
            let object = cluster.get(&[mark, "--namespace", ns]).await?;
            let left = &object["metadata"]["annotations"]["fleet.roadstead.test/by"];
            ensure!(left.is_null(), "{object:#}");
            Ok(())
        })
        .await?;
    }
    let jobs = cluster.run(&["get", "jobs", "--namespace", ns, "-o", "name"]).await?;
    ensure!(jobs.trim() == "job.batch/mark", "{jobs}");
    let restarted = |object: &Value| {
        object["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].is_string()
    };
    let now = deployment().await?;
    ensure!(restarted(&now) && now["spec"]["replicas"] == 5, "{now:#}");

    // A reconciliation creates the Job again and sets the scale; the restart stays: nothing was changed in Git.
    reconcile(&fleet).await?;
    cluster.run(&["get", "job", "once", "--namespace", ns]).await?;
    let now = deployment().await?;
    ensure!(now["spec"]["replicas"] == 2, "{now:#}");
    ensure!(restarted(&now), "{now:#}");
    Ok(())
}

/// The number of the newest attempt.
async fn newest(fleet: &Fleet, name: &str) -> Result<i64> {
    let path = format!("/fleet/v1/reconciliations?applier={name}");
    let view: Value = serde_json::from_str(&fleet.kubectl().run(&["get", "--raw", &path]).await?)?;
    view["items"][0]["attempt"].as_i64().with_context(|| format!("{view:#}"))
}

/// Waits until there are so many attempts more.
async fn attempts_later(fleet: &Fleet, name: &str, more: i64) -> Result<()> {
    let from = newest(fleet, name).await?;
    eventually(&format!("{more} more attempts of {name}"), PATIENCE, || async {
        let now = newest(fleet, name).await?;
        ensure!(now >= from + more, "from {from} to {now}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nothing_is_done_at_the_interval_where_all_is_seen_to_stand() -> Result<()> {
    let mut fleet = Fleet::start("stands").await?;
    let space = fleet.cluster.namespace("stands").await?;
    let ns = space.name();
    let repository = fleet.repository("app", &workloads(ns)).await?;
    let head = repository.git(["rev-parse", "main"], &[], b"")?;
    let child = "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {name: chat}\nspec: {type: \
                 slack, channel: alerts}\n";
    let files = Commit::new().file("map.yaml", config_map(ns, "mark", "git")).file("child.yaml", child);
    let other = fleet.repository("mark", &files).await?;
    let marked = other.git(["rev-parse", "main"], &[], b"")?;
    fleet.apply(&kustomization("app", "app", "./", &["interval: 2s"])).await?;
    // What is applied to the hub is looked at again and again.
    fleet.apply(&kustomization("mark", "mark", "./", &["interval: 2s"])).await?;
    fleet.applied("app", &head).await?;
    fleet.applied("mark", &marked).await?;
    eventually("it is left alone", PATIENCE, || async {
        let before = newest(&fleet, "app").await?;
        attempts_later(&fleet, "mark", 3).await?;
        let after = newest(&fleet, "app").await?;
        ensure!(after == before, "from {before} to {after}");
        Ok(())
    })
    .await?;
    // What is new is applied all the same, and so is what someone asks for.
    let next =
        repository.commit("main", "Next", &workloads(ns).file("more.yaml", config_map(ns, "more", "git")))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &next).await?;
    fleet.cluster.has_word(ns, "more", Some("git")).await?;

    // What a watch does not correct, the next interval does.
    let cluster = fleet.cluster.kubectl();
    cluster.run(&["delete", "job", "once", "--namespace", ns]).await?;
    eventually("the Job is created again", PATIENCE, || async {
        cluster.run(&["get", "job", "once", "--namespace", ns]).await.map(drop)
    })
    .await?;

    // The Job is there before the attempt that made it has ended: an agent that is killed then goes on with that one.
    let open = "SELECT count(*) FROM reconciliation JOIN resource ON uid = applier WHERE name = 'app' AND finished_at IS NULL";
    eventually("the attempt has ended", PATIENCE, || async {
        let mut database = fleet.setup.database().connect().await?;
        let open: i64 = sqlx::query_scalar(open).fetch_one(&mut database).await?;
        ensure!(open == 0, "{open} go on");
        Ok(())
    })
    .await?;
    // An agent that was restarted has nothing in mind.
    fleet.agent.kill9().await?;
    fleet.agent.restart()?;
    attempts_later(&fleet, "app", 1).await?;
    patch(&fleet, ns, "configmap/map", r#"{"data":{"word":"by hand"}}"#).await?;
    fleet.cluster.has_word(ns, "map", Some("git")).await
}

/// How many objects a large Kustomization has here, and how many of them are changed by others at once.
const MANY: usize = 1_000;
const EDITS: usize = 100;

/// How long the newest attempt took.
async fn took(fleet: &Fleet) -> Result<Duration> {
    let mut database = fleet.setup.database().connect().await?;
    let newest =
        "SELECT extract(epoch FROM finished_at - started_at)::float8 FROM reconciliation WHERE NOT corrects
                  ORDER BY started_at DESC LIMIT 1";
    let seconds: f64 = sqlx::query_scalar(newest).fetch_one(&mut database).await?;
    Ok(Duration::from_secs_f64(seconds))
}

#[tokio::test]
async fn requests_go_with_what_changed() -> Result<()> {
    let (fleet, requests) = AgentRequests::of_fleet("many").await?;
    let space = fleet.cluster.namespace("many").await?;
    let ns = space.name();
    let maps = |first: &str| {
        let word = |number| if number == 0 { first } else { "git" };
        let maps = (0..MANY).map(|number| config_map(ns, &format!("map-{number}"), word(number)));
        Commit::new().file("maps.yaml", maps.collect::<Vec<_>>().join("---\n"))
    };
    let repository = fleet.repository("app", &maps("git")).await?;
    let first = repository.git(["rev-parse", "main"], &[], b"")?;
    fleet.apply(&kustomization("app", "app", "./", &["timeout: 2m"])).await?;
    fleet.applied("app", &first).await?;
    let all = took(&fleet).await?;
    let tended = "SELECT count(*) FROM tended WHERE until IS NULL";
    eventually("all of it is watched", PATIENCE, || async {
        let mut database = fleet.setup.database().connect().await?;
        let count: i64 = sqlx::query_scalar(tended).fetch_one(&mut database).await?;
        ensure!(count == 1, "{count} are");
        Ok(())
    })
    .await?;
    let before = requests.by_verb().await?;
    let second = repository.commit("main", "Second", &maps("two"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &second).await?;
    fleet.cluster.has_word(ns, "map-0", Some("two")).await?;
    let one = took(&fleet).await?;
    let for_one = requests.since(&before).await?;
    let before = requests.by_verb().await?;
    reconcile(&fleet).await?;
    let full = took(&fleet).await?;
    let for_all = requests.since(&before).await?;
    println!(
        "measured: {MANY} objects: all created {all:?}, one changed {one:?}, none changed and all asked about {full:?}"
    );
    println!("measured: requests for one that changed {for_one:?}, for all {for_all:?}");
    ensure!(for_one.values().sum::<u64>() < 20, "for one of {MANY}: {for_one:?}");
    ensure!(for_one["dry_run"] == 1 && for_one["apply"] >= 1, "for one of {MANY}: {for_one:?}");
    ensure!(for_all["dry_run"] == MANY as u64, "all {MANY} were to be asked about: {for_all:?}");
    // The answers tell that they are as they were.
    ensure!(for_all.get("read").copied().unwrap_or_default() < 20, "for all: {for_all:?}");

    // Many edits at once.
    let began = Instant::now();
    let names = (1..=EDITS).map(|number| format!("configmap/map-{number}")).collect::<Vec<_>>();
    let mut args = vec!["annotate", "--overwrite", "--namespace", ns];
    args.extend(names.iter().map(String::as_str));
    args.push("fleet.roadstead.test/by=hand");
    fleet.cluster.kubectl().run(&args).await?;
    let edited = began.elapsed();
    eventually("none of them is left", PATIENCE, || async {
        let list = fleet.cluster.kubectl().get(&["configmaps", "--namespace", ns]).await?;
        let left = list["items"].as_array().into_iter().flatten();
        let left =
            left.filter(|map| map["metadata"]["annotations"]["fleet.roadstead.test/by"].is_string()).count();
        ensure!(left == 0, "{left} are left");
        Ok(())
    })
    .await?;
    println!(
        "measured: {EDITS} edits took {edited:?}; all were corrected {:?} after the first began",
        began.elapsed()
    );
    Ok(())
}
