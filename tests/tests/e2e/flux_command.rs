//! The real `flux` program on a hub: it makes, shows, reconciles, suspends, exports and deletes sources of all kinds, and Receivers; and
//! `roadstead source fetch`, which needs no hub.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_tests::gitserver::{Commit, Fault, GitServer, Options, SshKey, SshServer, install_crypto};
use roadstead_tests::{
    ChartServer, HubProcess, HubSetup, Kubectl, LOGIN, ObjectStore, PATIENCE, Registry, binary, clients,
    config_map, eventually, folder,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// What `flux` calls the kinds of sources that it makes, with what they are called here.
const SOURCES: [(&str, &str, &str); 5] = [
    ("git", "app", "GitRepository"),
    ("oci", "app", "OCIRepository"),
    ("helm", "charts", "HelmRepository"),
    ("chart", "app", "HelmChart"),
    ("bucket", "data", "Bucket"),
];

/// What a program prints, on both of its ways; an error where it fails.
async fn run(command: &mut Command, line: &str) -> Result<String> {
    let (out, error) = printed(command, line).await?;
    Ok(out + &error)
}

/// What a program prints, and what it says on standard error; an error where it fails.
async fn printed(command: &mut Command, line: &str) -> Result<(String, String)> {
    let output = tokio::time::timeout(PATIENCE * 2, command.kill_on_drop(true).output());
    let output = output.await.with_context(|| format!("{line}: not done in time"))?.context("run it")?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (said(&output.stdout), said(&output.stderr));
    ensure!(output.status.success(), "{line}: {out}{error}");
    Ok((out, error))
}

/// A server for each kind of source, each with a password and an authority of its own.
struct Servers {
    git: GitServer,
    registry: Registry,
    charts: ChartServer,
    store: ObjectStore,
    folder: TempDir,
}

impl Servers {
    async fn start() -> Result<Self> {
        install_crypto();
        let login = Some((LOGIN.0.to_owned(), LOGIN.1.to_owned()));
        let git = GitServer::start(Options { login, ..Options::default() }).await?;
        let servers = Self {
            git,
            registry: Registry::start().await?,
            charts: ChartServer::start().await?,
            store: ObjectStore::s3().await?,
            folder: folder()?,
        };
        let repository = servers.git.add_repository("app.git")?;
        repository.commit("main", "First", &Commit::new().file("a.yaml", config_map("x", "a", "git")))?;
        let files = servers.file("files/a.yaml", &config_map("x", "a", "oci"))?;
        servers.registry.push("app", "v1", Path::new(&files).parent().context("a folder")?).await?;
        servers.charts.put(
            "/charts/index.yaml",
            "apiVersion: v1\nentries:\n  app:\n  - {name: app, version: 1.0.0, urls: [app-1.0.0.tgz]}\n",
        );
        servers.charts.put("/charts/app-1.0.0.tgz", chart()?);
        servers.store.bucket("data", &[("a.yaml", &config_map("x", "a", "bucket"))]).await?;
        servers.file("git.pem", servers.git.ca_pem().context("an authority")?)?;
        servers.file("charts.pem", servers.charts.pem())?;
        servers.file("password", &format!("{}\n", LOGIN.1))?;
        Ok(servers)
    }

    /// Writes a file, and says where it is.
    fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    /// Where such a file is.
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

/// A packed chart.
fn chart() -> Result<Vec<u8>> {
    let text = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best()));
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(text.len() as u64);
    tar.append_data(&mut header, "app/Chart.yaml", text.as_bytes())?;
    Ok(tar.into_inner()?.finish()?)
}

/// A hub, and `flux` on it.
pub(crate) struct Site {
    hub: HubProcess,
    home: TempDir,
    _setup: HubSetup,
}

impl Site {
    pub(crate) async fn start(setup: HubSetup) -> Result<Self> {
        let hub = HubProcess::start(&setup).await?;
        hub.kubectl().run(&["create", "namespace", "apps"]).await?;
        Ok(Self { hub, home: folder()?, _setup: setup })
    }

    pub(crate) fn kubectl(&self) -> &Kubectl {
        self.hub.kubectl()
    }

    async fn flux(&self, line: &str) -> Result<String> {
        let mut command = Command::new(clients()?.join("bin/flux"));
        command.env_clear().env("HOME", self.home.path()).args(["--namespace=apps", "--timeout=60s"]);
        command.arg("--kubeconfig").arg(self.kubectl().kubeconfig()).args(line.split(' '));
        run(&mut command, &format!("flux {line}")).await
    }

    /// Runs `flux`, and looks for what it is to say.
    pub(crate) async fn says(&self, line: &str, parts: &[&str]) -> Result<String> {
        let said = self.flux(line).await?;
        for part in parts {
            ensure!(said.contains(part), "flux {line}: no `{part}` in:\n{said}");
        }
        Ok(said)
    }

    /// Runs `flux`, which is to fail and to say why.
    async fn refuses(&self, line: &str, part: &str) -> Result<()> {
        let Err(error) = self.flux(line).await else { anyhow::bail!("flux {line} has succeeded") };
        ensure!(format!("{error:#}").contains(part), "{error:#}");
        Ok(())
    }

    pub(crate) async fn get(&self, object: &str) -> Result<Value> {
        self.kubectl().get(&[object, "--namespace", "apps"]).await
    }

    /// The headings of a table of kubectl's.
    async fn headings(&self, kind: &str, wide: &[&str]) -> Result<(Vec<String>, String)> {
        let table = self.kubectl().run(&[&["get", kind, "--namespace=apps"], wide].concat()).await?;
        let head = table.lines().next().unwrap_or_default().split("  ");
        Ok((head.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect(), table))
    }
}

/// Has `flux` make a source of each kind, with the Secrets that it makes for them.
async fn make_sources(site: &Site, servers: &Servers) -> Result<()> {
    let (name, password) = LOGIN;
    let login = format!("--username={name} --password={password}");
    let (git, registry, charts) = (servers.git.url("app.git"), &servers.registry, servers.charts.url());
    let pem = servers.path("git.pem");
    let line = format!("create secret git git --url={git} {login} --ca-crt-file={pem}");
    site.says(&line, &["git secret 'git' created in 'apps' namespace"]).await?;
    let line = format!("create secret oci login --url={} {login}", registry.host());
    site.says(&line, &["oci secret 'login' created"]).await?;
    let line = format!("create secret tls ca --ca-crt-file={}", registry.ca().display());
    site.says(&line, &["tls secret 'ca' created"]).await?;
    site.says(&format!("create secret helm helm {login}"), &["helm secret 'helm' created"]).await?;

    let line = format!("create source git app --url={git} --branch=main --secret-ref=git --interval=1h");
    site.says(&line, &["GitRepository source created", "fetched revision: main@sha1:"]).await?;
    let line = format!(
        "create source oci app --url={} --tag=v1 --secret-ref=login --cert-ref=ca --interval=1h",
        registry.url("app")
    );
    site.says(&line, &["OCIRepository created", "fetched revision: v1@sha256:"]).await?;
    let pem = servers.path("charts.pem");
    let line =
        format!("create source helm charts --url={charts}/charts {login} --ca-file={pem} --interval=1h");
    site.says(&line, &["source created", "fetched revision: sha256:"]).await?;
    let line = "create source chart app --source=HelmRepository/charts --chart=app --interval=1h";
    site.says(line, &["source created", "fetched revision: 1.0.0"]).await?;
    let (key, secret) = servers.store.keys();
    let line = format!(
        "create source bucket data --bucket-name=data --endpoint={} --access-key={key} --secret-key={secret} --interval=1h",
        servers.store.host()
    );
    site.says(&line, &["Bucket source created", "fetched revision: sha256:"]).await?;
    Ok(())
}

#[tokio::test]
async fn sources_are_made_shown_and_deleted_by_flux() -> Result<()> {
    let servers = Servers::start().await?;
    let mut setup = HubSetup::new("flux-command").await?;
    for purpose in ["oci", "helm", "bucket"] {
        setup = setup.arg(&format!("--allow-network={purpose}=127.0.0.0/8"));
    }
    // `flux create source bucket` names no authority: it is that of the hub's machine.
    let site = Site::start(setup.env("SSL_CERT_FILE", servers.store.ca())).await?;
    site.refuses("get sources external", "no ExternalArtifact objects found").await?;
    make_sources(&site, &servers).await?;
    for (kind, name, ours) in SOURCES {
        let object = format!("{}/{name}", ours.to_lowercase());
        let shown = site.says(&format!("get sources {kind}"), &[name, "True"]).await?;
        ensure!(shown.lines().nth(1).is_some_and(|row| row.contains("False")), "suspended? {shown}");
        let fetched = ["annotated", "fetched revision"];
        site.says(&format!("reconcile source {kind} {name}"), &fetched).await?;
        site.says(&format!("suspend source {kind} {name}"), &["suspended"]).await?;
        ensure!(site.get(&object).await?["spec"]["suspend"] == true);
        site.refuses(&format!("reconcile source {kind} {name}"), "resource is suspended").await?;
        site.says(&format!("resume source {kind} {name}"), &["resumed", "fetched revision"]).await?;
        ensure!(site.get(&object).await?["spec"]["suspend"] != true);
        // What is exported is what the hub has: it takes it back, and nothing changes.
        let exported = site.says(&format!("export source {kind} --all"), &[&format!("kind: {ours}")]).await?;
        let before = site.get(&object).await?["metadata"]["generation"].clone();
        site.kubectl()
            .run_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &exported)
            .await?;
        ensure!(site.get(&object).await?["metadata"]["generation"] == before, "{exported}");
    }
    let with_credentials = site.flux("export source bucket data --with-credentials").await?;
    ensure!(with_credentials.contains("kind: Secret"), "{with_credentials}");
    composed(&site).await?;
    columns(&site).await?;
    for (kind, name, ours) in SOURCES.into_iter().rev() {
        site.says(&format!("delete source {kind} {name} -s"), &["deleted"]).await?;
        let object = format!("{}/{name}", ours.to_lowercase());
        eventually("it is gone", PATIENCE, || async {
            ensure!(site.get(&object).await.is_err(), "{object} is still there");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// An ArtifactGenerator and what it makes, and all of them in one table.
async fn composed(site: &Site) -> Result<()> {
    let generator = r#"
apiVersion: source.extensions.fluxcd.io/v1beta1
kind: ArtifactGenerator
metadata: {name: made, namespace: apps}
spec:
  sources: [{alias: app, kind: GitRepository, name: app}]
  artifacts: [{name: made, copy: [{from: "@app/**", to: "@artifact/"}]}]
"#;
    site.kubectl().apply(generator).await?;
    eventually("it is made", PATIENCE, || async {
        site.says("get sources external", &["made", "True", "ArtifactGenerator/apps/made"]).await
    })
    .await?;
    site.says("get artifacts generators", &["made", "generated 1 artifact(s)"]).await?;
    site.says("tree artifact generator made", &["ExternalArtifact/apps/made"]).await?;
    site.says("export source external --all", &["kind: ExternalArtifact", "name: made"]).await?;
    let all: Vec<String> =
        SOURCES.iter().map(|(_, name, ours)| format!("{}/{name}", ours.to_lowercase())).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).chain(["externalartifact/made"]).collect();
    site.says("get sources all", &all).await.map(drop)
}

/// The columns of `kubectl get` are those of Flux's definitions, and kinds are found by Flux's categories.
async fn columns(site: &Site) -> Result<()> {
    for (kind, expected) in [
        ("gitrepositories", "NAME URL AGE READY STATUS"),
        ("ocirepositories", "NAME URL READY STATUS AGE"),
        ("buckets", "NAME ENDPOINT AGE READY STATUS"),
        ("helmrepositories", "NAME URL AGE READY STATUS"),
        ("helmcharts", "NAME CHART VERSION SOURCE-KIND SOURCE-NAME AGE READY STATUS"),
        ("externalartifacts", "NAME AGE READY STATUS SOURCE"),
        ("artifactgenerators", "NAME AGE READY STATUS"),
    ] {
        let expected: Vec<String> = expected.split(' ').map(|name| name.replace('-', " ")).collect();
        let (head, table) = site.headings(kind, &[]).await?;
        ensure!(head == expected && table.contains("True"), "{kind}: {table}");
        let (wide, table) = site.headings(kind, &["-o", "wide"]).await?;
        let has_revision = kind != "artifactgenerators";
        let revision = has_revision.then(|| "REVISION".to_owned());
        let expected: Vec<String> = expected.into_iter().chain(revision).collect();
        ensure!(wide == expected, "{kind}: {table}");
        ensure!(!has_revision || table.contains("sha") || table.contains("1.0.0"), "{kind}: {table}");
    }
    let sources = site.kubectl().run(&["get", "fluxcd-sources", "--namespace=apps", "-o", "name"]).await?;
    // Five that flux made, and the two of the generator.
    ensure!(sources.lines().count() == 7, "{sources}");
    Ok(())
}

#[tokio::test]
async fn receivers_are_made_called_and_deleted_by_flux() -> Result<()> {
    let site = Site::start(HubSetup::new("flux-receivers").await?).await?;
    install_crypto();
    let git = GitServer::start(Options { tls: false, ..Options::default() }).await?;
    git.add_repository("app.git")?.commit("main", "First", &Commit::new().file("a", "1"))?;
    let url = git.url("app.git");
    site.says(&format!("create source git app --url={url} --branch=main --interval=1h"), &["fetched"])
        .await?;
    site.says(
        "create secret receiver hook --token=tok --type=generic --hostname=h.example",
        &["'hook' created"],
    )
    .await?;
    // A kind of Flux's image controllers, which the hub has not, does not keep the others from being reconciled.
    let line = "create receiver app --type=generic --secret-ref=hook --resource=ImageRepository/app --resource=GitRepository/app";
    site.says(line, &["Receiver created", "Receiver app is ready", "generated webhook URL /hook/"]).await?;
    site.says("get receivers", &["app", "True", "Receiver initialized for path: /hook/"]).await?;
    let (head, table) = site.headings("receivers", &[]).await?;
    ensure!(head == ["NAME", "AGE", "READY", "STATUS"], "{table}");
    let exported = site.says("export receiver --all", &["kind: Receiver", "kind: ImageRepository"]).await?;
    let again = site.kubectl().command(&["apply", "--server-side", "--force-conflicts", "-f", "-"]);
    let warned = warnings(again, &exported).await?;
    ensure!(warned.contains("this hub has no objects of kind ImageRepository"), "{warned}");
    site.says("reconcile receiver app", &["Receiver reconciliation completed"]).await?;
    trigger(&site).await?;
    site.says("suspend receiver app", &["receiver suspended"]).await?;
    site.refuses("reconcile receiver app", "resource is suspended").await?;
    site.says("resume receiver app", &["receiver resumed"]).await?;
    site.says("delete receiver app -s", &["receiver deleted"]).await?;
    site.refuses("get receivers", "no Receiver objects found").await
}

/// What kubectl says on stderr of what it is given.
async fn warnings(mut command: Command, input: &str) -> Result<String> {
    use tokio::io::AsyncWriteExt as _;
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn()?;
    child.stdin.take().context("a pipe")?.write_all(input.as_bytes()).await?;
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await??;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{said}");
    Ok(said)
}

/// `flux trigger receiver` computes the same path, and the source is looked at.
async fn trigger(site: &Site) -> Result<()> {
    let config = site.kubectl().run(&["config", "view", "--raw", "-o", "json"]).await?;
    let config: Value = serde_json::from_str(&config)?;
    let ca = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str().context("a CA")?;
    let file = site.home.path().join("hub.pem");
    std::fs::write(&file, STANDARD.decode(ca)?)?;
    let mut command = Command::new(clients()?.join("bin/flux"));
    command.env_clear().env("HOME", site.home.path()).env("SSL_CERT_FILE", &file);
    command.args(["--namespace=apps", "trigger", "receiver", "app", "--token=tok", "--retries=0"]);
    command.arg(format!("--url=https://127.0.0.1:{}", site.hub.api_port()));
    run(&mut command, "flux trigger receiver").await?;
    eventually("the source is looked at", PATIENCE, || async {
        let source = site.get("gitrepository/app").await?;
        let asked = source["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"].clone();
        ensure!(asked.is_string() && source["status"]["lastHandledReconcileAt"] == asked, "{source:#}");
        Ok(())
    })
    .await
}

/// A password that nobody has.
const WRONG: &str = "wr0ng";

/// What `roadstead source fetch` prints with a password, and nothing of this process' environment. How far it is goes to
/// standard error where it takes long, and is not in it.
async fn fetch(args: &[&str], password: &str) -> Result<String> {
    let mut command = Command::new(binary("roadstead")?);
    command.env_clear().env("ROADSTEAD_SOURCE_PASSWORD", password).args(["source", "fetch"]).args(args);
    Ok(printed(&mut command, &format!("roadstead source fetch {args:?}")).await?.0)
}

/// The same, which is to fail and to say why.
async fn not_fetched(args: &[&str], password: &str, part: &str) -> Result<()> {
    let Err(error) = fetch(args, password).await else { anyhow::bail!("{args:?} was fetched") };
    let error = format!("{error:#}");
    ensure!(error.contains("error: ") && error.contains(part), "no `{part}` in: {error}");
    ensure!(password != WRONG || !error.contains(WRONG), "it shows the password: {error}");
    Ok(())
}

#[tokio::test]
async fn sources_of_each_kind_are_tried_without_a_hub() -> Result<()> {
    let servers = Servers::start().await?;
    let (name, password) = LOGIN;
    let file = servers.path("password");
    let (pem, git) = (servers.path("git.pem"), servers.git.url("app.git"));
    let login = ["--username", name];
    let git_line = [&[git.as_str(), "--ca-file", &pem], &login[..]].concat();
    let out = servers.path("out.tar.gz");
    let told =
        fetch(&[&git_line[..], &["--branch=main", "--artifact", &out, "-o", "json"]].concat(), password)
            .await?;
    let told: Value = serde_json::from_str(&told)?;
    ensure!(told["kind"] == "GitRepository" && told["files"] == 1, "{told:#}");
    ensure!(told["revision"].as_str().is_some_and(|revision| revision.starts_with("main@sha1:")), "{told:#}");
    ensure!(told["size"].as_u64() == Some(std::fs::metadata(&out)?.len()), "{told:#}");
    let hash = Command::new("sha256sum").arg(&out).output().await?;
    let digest =
        format!("sha256:{}", String::from_utf8_lossy(&hash.stdout).split(' ').next().unwrap_or_default());
    ensure!(told["digest"] == digest, "{told:#} is not {digest}");
    not_fetched(&git_line, WRONG, "error: ").await?;
    not_fetched(&[&git], password, "--ca-file").await?;
    not_fetched(&[&git_line[..], &["--branch=none"]].concat(), password, "none").await?;

    let ca = servers.registry.ca().display().to_string();
    let oci = servers.registry.url("app");
    let line = [oci.as_str(), "--tag=v1", "--ca-file", &ca, "--username", name, "--password-file", &file];
    let told = fetch(&[&line[..], &["-o", "yaml"]].concat(), "").await?;
    ensure!(told.contains("revision: v1@sha256:") && told.contains("files: 1"), "{told}");
    not_fetched(&[&line[..], &["--branch=main"]].concat(), "", "--branch is not for the kind OCIRepository")
        .await?;

    let (url, pem) = (format!("{}/charts", servers.charts.url()), servers.path("charts.pem"));
    let line = [url.as_str(), "--kind=helm", "--ca-file", &pem, "--username", name];
    let told = fetch(&line, password).await?;
    ensure!(told.contains("Kind:      HelmRepository\n") && told.contains("Revision:  sha256:"), "{told}");
    not_fetched(&line, WRONG, "401").await
}

#[tokio::test]
async fn a_key_for_ssh_and_a_server_that_leads_elsewhere() -> Result<()> {
    install_crypto();
    let server = SshServer::start()?;
    server.add_repository("app.git")?.commit("main", "First", &Commit::new().file("a", "1"))?;
    let key = SshKey::make(&["-t", "ed25519"], "correct-horse")?;
    server.authorize(&key)?;
    let at = folder()?;
    let (identity, hosts) =
        (at.path().join("id").display().to_string(), at.path().join("hosts").display().to_string());
    std::fs::write(&identity, &key.identity)?;
    std::fs::write(&hosts, server.scan()?)?;
    let url = server.url("app.git");
    let line = [url.as_str(), "--ssh-key-file", &identity, "--known-hosts-file", &hosts];
    let told = fetch(&line, "correct-horse").await?;
    ensure!(told.contains("Revision:  ") && told.contains("@sha1:"), "{told}");
    not_fetched(&[&url], "", "--ssh-key-file").await?;

    // Both are at private addresses; the one that was named may be connected to, and the other one not.
    let plain = || GitServer::start(Options { tls: false, ..Options::default() });
    let (named, other) = (plain().await?, plain().await?);
    for git in [&named, &other] {
        git.add_repository("app.git")?.commit("main", "First", &Commit::new().file("a", "1"))?;
    }
    let url = named.url("app.git");
    fetch(&[&url], "").await?;
    named.fault(Fault::Redirect(other.base_url()));
    not_fetched(&[&url], "", "--allow-network").await?;
    ensure!(other.take_seen().is_empty(), "it was asked");
    let to = format!("--allow-network={}", other.address());
    fetch(&[&url, &to], "").await?;
    ensure!(!other.take_seen().is_empty(), "it was not asked");

    // One that says nothing: what is waited for is told, and it ends in time.
    named.fault(Fault::HangBeforeAnswer);
    not_fetched(&[&url, "--timeout=3"], "", "was not fetched within 3s").await?;
    not_fetched(&[&url, "--timeout=3"], "", &format!("fetching {url}: 1s of 3s")).await
}
