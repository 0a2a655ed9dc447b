//! Two teams on one cluster, as the README sets them up: each tries to reach the other's everything.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use roadstead_tests::gitserver::{Commit, GitServer, Options};
use roadstead_tests::{
    AgentProcess, HubProcess, HubSetup, PATIENCE, TestCluster, TestNamespace, config_map, eventually,
};
use serde_json::{Value, json};

/// The YAML of the README that follows this mark.
fn readme(part: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let text = std::fs::read_to_string(path)?;
    let mark = format!("<!-- two-teams: {part} -->\n```yaml\n");
    let (_, after) = text.split_once(&mark).with_context(|| format!("{mark} in the README"))?;
    let (yaml, _) = after.split_once("```").context("its end")?;
    Ok(yaml.to_owned())
}

struct Site {
    hub: HubProcess,
    _agent: AgentProcess,
    git: GitServer,
    cluster: TestCluster,
    /// The teams' namespaces, of one name on the hub and on the cluster; the groups have it too.
    teams: [TestNamespace; 2],
    setup: HubSetup,
}

impl Site {
    async fn start() -> Result<Self> {
        let setup = HubSetup::new("teams").await?;
        let hub = HubProcess::start(&setup).await?;
        let cluster = TestCluster::first()?;
        let agent = AgentProcess::join(&hub, "edge-1", &cluster).await?;
        let git = GitServer::start(Options::default()).await?;
        let teams = [cluster.namespace("team-a").await?, cluster.namespace("team-b").await?];
        let site = Self { hub, _agent: agent, git, cluster, teams, setup };
        let base = site.git.add_repository("base.git")?;
        base.commit("main", "Base", &Commit::new().file("base.yaml", named("base", "shared")))?;
        site.hub.kubectl().apply(&site.here(&readme("platform")?, 0)).await?;
        site.hub
            .kubectl()
            .apply("{apiVersion: fleet.roadstead.dev/v1alpha1, kind: Cluster, metadata: {name: edge-2}}")
            .await?;
        for namespace in ["platform", site.teams[0].name(), site.teams[1].name()] {
            site.trust(namespace).await?;
        }
        for team in &site.teams {
            let (name, kubectl) = (team.name(), site.cluster.kubectl());
            kubectl.run(&["create", "serviceaccount", "deployer", "-n", name]).await?;
            // Nothing fills `admin` where there is an apiserver alone.
            let account = format!("--serviceaccount={name}:deployer");
            let bind =
                ["create", "rolebinding", "deployer", "--clusterrole=cluster-admin", &account, "-n", name];
            kubectl.run(&bind).await?;
        }
        Ok(site)
    }

    /// What the README has, with the names that there are here; `team` is the one that writes.
    fn here(&self, yaml: &str, team: usize) -> String {
        let [a, b] = [self.teams[team].name(), self.teams[1 - team].name()];
        let url = self.git.url("");
        yaml.replace("team-a", "{a}")
            .replace("team-b", "{b}")
            .replace("{a}", a)
            .replace("{b}", b)
            .replace("url: \"https://git.example.com/", &format!("secretRef: {{name: git}}, url: \"{url}"))
    }

    async fn trust(&self, namespace: &str) -> Result<()> {
        let file = self.setup.folder().join("git-ca.pem");
        std::fs::write(&file, self.git.ca_pem().context("a server over HTTPS")?)?;
        let file = format!("--from-file=ca.crt={}", file.display());
        self.hub.kubectl().run(&["create", "secret", "generic", "git", &file, "-n", namespace]).await?;
        Ok(())
    }

    /// kubectl on the hub as somebody of this team.
    async fn of(&self, team: usize, args: &[&str]) -> Result<String> {
        let group = format!("--as-group={}", self.teams[team].name());
        self.hub.kubectl().run(&[args, &["--as=somebody", &group]].concat()).await
    }

    async fn apply_of(&self, team: usize, manifest: &str) -> Result<String> {
        let group = format!("--as-group={}", self.teams[team].name());
        self.hub.kubectl().run_with(&["apply", "-f", "-", "--as=somebody", &group], manifest).await
    }

    /// That this is not a team's to do.
    async fn refused(&self, team: usize, args: &[&str]) -> Result<()> {
        match self.of(team, args).await {
            Ok(answer) => bail!("{args:?} is allowed: {answer}"),
            Err(error) => {
                let error = format!("{error:#}");
                ensure!(error.contains("orbidden"), "{args:?}: {error}");
                Ok(())
            }
        }
    }

    async fn apply_refused(&self, team: usize, manifest: &str) -> Result<()> {
        match self.apply_of(team, manifest).await {
            Ok(answer) => bail!("it is allowed: {answer}\n{manifest}"),
            Err(error) => {
                let error = format!("{error:#}");
                ensure!(error.contains("orbidden"), "{error}\n{manifest}");
                Ok(())
            }
        }
    }

    /// Reason and message of Ready, once it is False, or True, for what is wanted now.
    async fn ends(&self, team: usize, object: &str, ready: &str) -> Result<(String, String)> {
        let args = [object, "-n", self.teams[team].name()];
        eventually(&format!("{object} is Ready={ready}"), PATIENCE, || async {
            let object = self.hub.kubectl().get(&args).await?;
            let generation = &object["metadata"]["generation"];
            let conditions = object["status"]["conditions"].as_array().context("no conditions")?;
            let found = conditions.iter().find(|one| one["type"] == "Ready").context("no Ready")?;
            ensure!(found["status"] == ready && found["observedGeneration"] == *generation, "{found:#}");
            let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
            Ok((text("reason"), text("message")))
        })
        .await
    }

    async fn word(&self, team: usize, name: &str) -> Result<Option<String>> {
        let name = format!("configmap/{name}");
        let args = [
            "get",
            &name,
            "-n",
            self.teams[team].name(),
            "--ignore-not-found",
            "-o",
            "jsonpath={.data.word}",
        ];
        Ok(Some(self.cluster.kubectl().run(&args).await?).filter(|word| !word.is_empty()))
    }
}

/// A ConfigMap that says in no namespace.
fn named(name: &str, word: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{word: {word}}}}}\n")
}

#[tokio::test]
async fn two_teams_share_a_cluster_and_what_the_platform_grants_and_nothing_else() -> Result<()> {
    let site = Site::start().await?;
    let mut repositories = Vec::new();
    for team in 0..2 {
        let (own, other) = (site.teams[team].name(), site.teams[1 - team].name());
        let repository = site.git.add_repository(&format!("{own}.git"))?;
        let commit = Commit::new()
            .file("app.yaml", config_map(own, "app", own))
            // What it would like to have on the other's side.
            .file("attack/app.yaml", config_map(other, "app", own))
            .file("attack/kustomization.yaml", "resources: [app.yaml]\n")
            // And what the other one does not have yet.
            .file("squat/later.yaml", config_map(other, "later", own))
            .file("kustomization.yaml", "resources: [app.yaml]\n");
        repository.commit("main", "App", &commit)?;
        repositories.push(repository);
        site.may(team).await?;
        site.apply_of(team, &site.here(&readme("team")?, team)).await?;
    }
    for team in 0..2 {
        for name in ["app", "base"] {
            site.ends(team, &format!("kustomization/{name}"), "True").await?;
        }
        ensure!(site.word(team, "app").await?.as_deref() == Some(site.teams[team].name()));
        ensure!(site.word(team, "base").await?.as_deref() == Some("shared"));
    }
    for team in 0..2 {
        site.reaches_nothing_by_the_api(team).await?;
        site.is_nobody_else(team).await?;
        site.is_on_record(team).await?;
        site.sees_its_part_of_the_fleet(team).await?;
        site.reaches_nothing_by_what_it_writes(team).await?;
    }
    for team in 0..2 {
        ensure!(site.word(team, "app").await?.as_deref() == Some(site.teams[team].name()), "it was changed");
        let app = site.hub.kubectl().get(&["kustomization/app", "-n", site.teams[team].name()]).await?;
        ensure!(app["metadata"]["generation"] == 1, "{app:#}");
    }
    // What one named in the other's namespace is the other's all the same.
    for (team, repository) in repositories.iter().enumerate() {
        let own = site.teams[team].name();
        let later = Commit::new()
            .file("later.yaml", config_map(own, "later", own))
            .file("kustomization.yaml", "resources: [app.yaml, later.yaml]\n");
        repository.commit("main", "Later", &later)?;
        let ask = ["annotate", "gitrepository", "app", "reconcile.fluxcd.io/requestedAt=later", "-n", own];
        site.of(team, &ask).await?;
        eventually("it is applied", PATIENCE, || async {
            ensure!(site.word(team, "later").await?.as_deref() == Some(own));
            Ok(())
        })
        .await?;
    }
    // What the platform takes back is over for both, and what was applied by it stays until it is decided about.
    site.hub.kubectl().run(&["delete", "referencegrant", "base", "-n", "platform"]).await?;
    for team in 0..2 {
        let (reason, message) = site.ends(team, "kustomization/base", "False").await?;
        ensure!(message.contains("ReferenceGrant in namespace 'platform'"), "{reason}: {message}");
        ensure!(site.word(team, "base").await?.as_deref() == Some("shared"));
    }
    Ok(())
}

impl Site {
    /// Waits until the team's rights are known.
    async fn may(&self, team: usize) -> Result<()> {
        let namespace = self.teams[team].name();
        eventually("the team may", PATIENCE, || async {
            self.of(team, &["auth", "can-i", "create", "kustomizations", "-n", namespace]).await?;
            self.of(team, &["auth", "can-i", "use", "clusters.fleet.roadstead.dev/edge-1"]).await?;
            Ok(())
        })
        .await
    }

    async fn reaches_nothing_by_the_api(&self, team: usize) -> Result<()> {
        let (own, other) = (self.teams[team].name(), self.teams[1 - team].name());
        let kinds = self.kinds(&["--namespaced=true"]).await?;
        ensure!(kinds.len() > 20, "{kinds:?}");
        for kind in &kinds {
            let kind = kind.as_str();
            for reach in [["-n", other].as_slice(), &["-A"], &["-n", "platform"]] {
                self.refused(team, &[&["get", kind], reach].concat()).await?;
            }
            self.refused(team, &["delete", kind, "--all", "-n", other]).await?;
        }
        for kind in self.kinds(&["--namespaced=false"]).await? {
            self.refused(team, &["get", &kind]).await?;
        }
        for (args, what) in [
            (["get", "kustomization", "app"].as_slice(), other),
            (&["annotate", "kustomization", "app", "reconcile.fluxcd.io/requestedAt=now"], other),
            (&["annotate", "kustomization", "app", "fleet.roadstead.dev/drift=Report"], other),
            (&["patch", "kustomization", "app", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#], other),
            (&["delete", "kustomization", "app"], other),
            (&["get", "secret", "git"], other),
            (&["create", "token", "default"], other),
            (&["create", "rolebinding", "mine", "--clusterrole=view", "--user=somebody"], other),
            // Nor does it get more in its own.
            (&["create", "rolebinding", "mine", "--clusterrole=cluster-admin", "--user=somebody"], own),
            (&["patch", "quota", "team", "--type=merge", "-p", r#"{"spec":{"hard":null}}"#], own),
            (&["delete", "quota", "team"], own),
        ] {
            self.refused(team, &[args, &["-n", what]].concat()).await?;
        }
        for args in [
            ["create", "clusterrolebinding", "mine", "--clusterrole=view", "--user=somebody"].as_slice(),
            &["get", "clusters"],
            &["get", "cluster", "edge-2"],
            &["patch", "cluster", "edge-1", "--type=merge", "-p", r#"{"spec":{"access":[]}}"#],
            &["delete", "namespace", other],
            &["label", "namespace", own, "deploys-to=edge-2", "--overwrite"],
            &["get", "--raw", "/fleet/v1/audit"],
            &["get", "--raw", "/fleet/v1/tokens"],
        ] {
            self.refused(team, args).await?;
        }
        let kustomizations =
            format!("/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/{other}/kustomizations?watch=true");
        let artifact = format!("/fleet/v1/sources/GitRepository/{other}/app/artifact");
        for path in [kustomizations, artifact].into_iter().chain(
            [
                "namespaces/{}/kustomizations/app/reconciliations",
                "namespaces/{}/kustomizations/app/diff",
                "appliers/Kustomization/{}/app/reconciliations",
                "appliers/Kustomization/{}/app/diff",
            ]
            .map(|path| format!("/fleet/v1/{}", path.replace("{}", other))),
        ) {
            // It is there, and for the other team; there is no earlier build to compare with yet.
            if !path.ends_with("watch=true") && !path.ends_with("/diff") {
                self.of(1 - team, &["get", "--raw", &path]).await.with_context(|| path.clone())?;
            }
            self.refused(team, &["get", "--raw", &path]).await?;
        }
        Ok(())
    }

    /// As somebody of the other team, or as one who may do everything; and once its own token is taken back, as nobody.
    async fn is_nobody_else(&self, team: usize) -> Result<()> {
        let (own, other) = (self.teams[team].name(), self.teams[1 - team].name());
        let kubectl = self.hub.kubectl();
        let wanted = json!({ "username": "somebody", "groups": [own] }).to_string();
        let made = kubectl.run_with(&["create", "--raw", "/fleet/v1/tokens", "-f", "-"], &wanted).await?;
        let made: Value = serde_json::from_str(&made)?;
        let token = format!("--token={}", made["token"].as_str().with_context(|| made.to_string())?);
        let list = ["get", "kustomizations", "-n", own, &token];
        kubectl.run(&list).await?;
        for group in [other, "system:masters"] {
            let group = format!("--as-group={group}");
            let of_others = ["get", "kustomizations", "-n", other, &token, "--as=somebody-else", &group];
            let error = kubectl.run(&of_others).await.err().with_context(|| group.clone())?;
            ensure!(format!("{error:#}").contains("cannot impersonate"), "{error:#}");
        }
        let path = format!("/fleet/v1/tokens/{}", made["id"].as_str().with_context(|| made.to_string())?);
        kubectl.run(&["delete", "--raw", &path]).await?;
        // It is remembered for two seconds.
        eventually("a token that was taken back is worth nothing", PATIENCE, || async {
            let error = kubectl.run(&list).await.err().context("it is taken")?;
            ensure!(format!("{error:#}").contains("must be logged in"), "{error:#}");
            Ok(())
        })
        .await
    }

    /// The names of the kinds that the hub lists.
    async fn kinds(&self, which: &[&str]) -> Result<Vec<String>> {
        let args = [&["api-resources", "--verbs=list,delete", "-o", "name"], which].concat();
        Ok(self.hub.kubectl().run(&args).await?.lines().map(str::to_owned).collect())
    }

    /// What somebody of a team was refused is on record, with what was wanted of whom.
    async fn is_on_record(&self, team: usize) -> Result<()> {
        let other = self.teams[1 - team].name();
        let user = format!("insider-{team}");
        let whom = [format!("--as={user}"), format!("--as-group={}", self.teams[team].name())];
        let wanted = [
            ["get", "kustomization", "app"].as_slice(),
            &["delete", "kustomization", "app"],
            &["get", "secret", "git"],
            &["create", "token", "default"],
            &["get", "secrets"],
        ];
        for args in wanted {
            let refused = self.hub.kubectl().run(&[args, &["-n", other, &whom[0], &whom[1]]].concat()).await;
            ensure!(refused.is_err(), "{args:?} is allowed");
        }
        let path = format!("/fleet/v1/audit?outcome=refused&user={user}&limit=1000");
        eventually("what was refused is on record", PATIENCE, || async {
            let shown = self.hub.kubectl().run(&["get", "--raw", &path]).await?;
            let shown: Value = serde_json::from_str(&shown)?;
            let mut entries: Vec<_> = shown["items"]
                .as_array()
                .context("no entries")?
                .iter()
                .map(|one| {
                    ["verb", "kind", "namespace", "name"].map(|field| one[field].as_str().unwrap_or_default())
                })
                .collect();
            entries.sort_unstable();
            let expected = [
                ["create", "ServiceAccount/token", other, "default"],
                ["delete", "Kustomization", other, "app"],
                ["get", "Kustomization", other, "app"],
                ["get", "Secret", other, "git"],
                ["list", "Secret", other, ""],
            ];
            ensure!(entries == expected, "{shown:#}");
            Ok(())
        })
        .await
    }

    async fn sees_its_part_of_the_fleet(&self, team: usize) -> Result<()> {
        let quota = self.of(team, &["describe", "quota", "team", "-n", self.teams[team].name()]).await?;
        let sources = quota.lines().find(|line| line.contains("count/sources.fleet.roadstead.dev"));
        let numbers = sources.unwrap_or_default().split_whitespace().skip(1).collect::<Vec<_>>();
        ensure!(numbers == ["1", "20"], "{quota}");
        let (own, other) = (self.teams[team].name(), self.teams[1 - team].name());
        let views = [
            "appliers",
            "inventory",
            "reconciliations",
            "drift",
            "drift/objects",
            "events",
            "health",
            "clusters",
        ];
        for view in views {
            let path = format!("/fleet/v1/{view}");
            match self.of(team, &["get", "--raw", &path]).await {
                Ok(answer) => {
                    let shown: Value = serde_json::from_str(&answer).with_context(|| path.clone())?;
                    ensure!(!shown.to_string().contains(other), "{path}: {shown:#}");
                    if view == "appliers" {
                        ensure!(shown.to_string().contains(own), "{path} shows nothing: {shown:#}");
                    }
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    ensure!(view != "appliers" && error.contains("orbidden"), "{path}: {error}");
                }
            }
        }
        Ok(())
    }

    /// What it may write, and gets nothing by; and what is refused when it is written.
    async fn reaches_nothing_by_what_it_writes(&self, team: usize) -> Result<()> {
        let (own, other) = (self.teams[team].name(), self.teams[1 - team].name());
        let kustomization = |version: &str, name: &str, more: &str| {
            let source =
                if more.contains("sourceRef") { "" } else { ", sourceRef: {kind: GitRepository, name: app}" };
            let cluster = if more.contains("clusterRef") { "" } else { ", clusterRef: {name: edge-1}" };
            format!(
                "apiVersion: kustomize.toolkit.fluxcd.io/{version}\nkind: Kustomization\nmetadata: {{name: {name}, namespace: \
                 {own}}}\nspec: {{interval: 10m, prune: true, path: ./attack{source}{cluster}{more}}}\n"
            )
        };
        let deployer = ", serviceAccountName: deployer";
        let theirs = format!("{deployer}, sourceRef: {{kind: GitRepository, name: app, namespace: {other}}}");
        let waits = format!("{deployer}, dependsOn: [{{name: app, namespace: {other}}}]");
        let as_other = format!(", serviceAccount: {{name: deployer, namespace: {other}}}");
        for (version, name, more, why) in [
            ("v1", "spy", theirs.as_str(), "ReferenceGrant in namespace"),
            ("v1", "waits", &waits, "ReferenceGrant in namespace"),
            ("v1alpha1", "as-other", &as_other, "may not act as service account"),
            ("v1", "as-agent", "", "as a service account only"),
            ("v1", "there", deployer, "is owned by Kustomization"),
            ("v1", "squat", deployer, "forbidden"),
        ] {
            let path = if name == "squat" { "./squat" } else { "./attack" };
            let manifest = kustomization(version, name, more).replace("./attack", path);
            self.apply_of(team, &manifest).await.context(name)?;
            let (reason, message) =
                self.ends(team, &format!("kustomization/{name}"), "False").await.context(name)?;
            ensure!(message.contains(why), "{name}: {reason}: {message}");
        }
        let elsewhere = format!("resources: [{{kind: GitRepository, name: app, namespace: {other}}}]");
        let receiver = format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1\nkind: Receiver\nmetadata: {{name: push, namespace: {own}}}\nspec: \
             {{type: generic, secretRef: {{name: git}}, {elsewhere}}}\n"
        );
        let generator = format!(
            "apiVersion: source.extensions.fluxcd.io/v1beta1\nkind: ArtifactGenerator\nmetadata: {{name: copy, namespace: {own}}}\n\
             spec: {{sources: [{{alias: app, kind: GitRepository, name: app, namespace: {other}}}], artifacts: [{{name: copy, \
             originRevision: \"@app\", copy: [{{from: \"@app/**\", to: \"@artifact/\"}}]}}]}}\n"
        );
        let provider = format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: own, namespace: {own}}}\nspec: \
             {{type: generic, address: \"https://hooks.example.com/\"}}\n"
        );
        self.apply_of(team, &provider).await?;
        let alert = |name: &str, source: &str| {
            format!(
                "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {{name: {name}, namespace: {own}}}\n\
                 spec: {{providerRef: {{name: own}}, eventSources: [{{kind: Kustomization, {source}}}]}}\n"
            )
        };
        let hears = alert("hears", &format!("name: app, namespace: {other}"));
        let hears_all = alert("hears-all", &format!("name: \"*\", namespace: {other}"));
        let include = format!(
            "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {{name: includes, namespace: {own}}}\nspec: \
             {{interval: 10m, url: \"{}\", secretRef: {{name: git}}, ref: {{branch: main}}, include: [{{repository: {{name: app, \
             namespace: {other}}}}}]}}\n",
            self.git.url(&format!("{own}.git"))
        );
        for (object, manifest) in [
            ("receiver/push", &receiver),
            ("artifactgenerator/copy", &generator),
            ("alert/hears", &hears),
            ("alert/hears-all", &hears_all),
            ("gitrepository/includes", &include),
        ] {
            self.apply_of(team, manifest).await.context(object)?;
            let (reason, message) = self.ends(team, object, "False").await?;
            ensure!(
                reason == "AccessDenied" && message.contains("ReferenceGrant"),
                "{object}: {reason}: {message}"
            );
        }
        let delegation = format!("{deployer}, delegation: {{namespaces: {{x: {other}}}}}");
        let grant = format!(
            "apiVersion: fleet.roadstead.dev/v1alpha1\nkind: ReferenceGrant\nmetadata: {{name: mine, namespace: {other}}}\nspec: \
             {{from: [{{group: kustomize.toolkit.fluxcd.io, kind: Kustomization, namespace: {own}}}], to: [{{group: \
             source.toolkit.fluxcd.io, kind: GitRepository}}]}}\n"
        );
        let silence = format!(
            "apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Silence\nmetadata: {{name: hush, namespace: {other}}}\nspec: \
             {{reason: quiet, until: \"2100-01-01T00:00:00Z\"}}\n"
        );
        for manifest in [
            silence,
            kustomization(
                "v1",
                "other-cluster",
                ", clusterRef: {name: edge-2}, serviceAccountName: deployer",
            ),
            kustomization("v1", "delegates", &delegation),
            grant,
            kustomization("v1", "planted", deployer)
                .replace(&format!("namespace: {own}"), &format!("namespace: {other}")),
        ] {
            self.apply_refused(team, &manifest).await?;
        }
        Ok(())
    }
}
