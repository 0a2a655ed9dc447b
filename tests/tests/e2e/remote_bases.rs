//! Remote resources of kustomizations: off, and from listed hosts once they are on.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, Fault, GitServer, Options, install_crypto};
use roadstead_tests::{Fleet, HubProcess, HubSetup, PATIENCE, config_map, eventually, kustomization};
use tempfile::TempDir;

/// How long a Kustomization of these tests is not checked.
const INTERVAL: &str = "interval: 5s";

/// A Git server for remote resources: the hub trusts it as its machine does.
struct Elsewhere {
    git: GitServer,
    folder: TempDir,
}

impl Elsewhere {
    async fn start() -> Result<Self> {
        install_crypto();
        let folder = tempfile::tempdir().context("make a folder")?;
        let git = GitServer::start(Self::options(&folder, "127.0.0.1:0".parse()?)?).await?;
        Ok(Self { git, folder })
    }

    fn options(folder: &TempDir, listen: SocketAddr) -> Result<Options> {
        let (root, authority) = (folder.path().join("git"), folder.path().join("ca"));
        std::fs::create_dir_all(&root).context("make a folder for repositories")?;
        Ok(Options { listen, root: Some(root), authority: Some(authority), ..Options::default() })
    }

    /// A hub that trusts it.
    async fn setup(&self, name: &str) -> Result<HubSetup> {
        let ca = self.folder.path().join("ca.pem");
        std::fs::write(&ca, self.git.ca_pem().context("it has a certificate")?).context("write the CA")?;
        Ok(HubSetup::new(name).await?.env("SSL_CERT_FILE", ca))
    }
}

/// A commit with a kustomization of these resources.
fn naming(resources: &[&str]) -> Commit {
    Commit::new().file("kustomization.yaml", format!("resources:\n- {}\n", resources.join("\n- ")))
}

#[tokio::test]
async fn remote_bases_are_refused_by_name_and_followed_once_their_host_is_listed() -> Result<()> {
    let elsewhere = Elsewhere::start().await?;
    let fleet = Fleet::start_on(elsewhere.setup("remote-bases").await?).await?;
    let space = fleet.cluster.namespace("remote-bases").await?;
    let map = |name: &str, word: &str| config_map(space.name(), name, word);
    let base = elsewhere.git.add_repository("base.git")?;
    let of_base = |word: &str| {
        let overlay = "namePrefix: far-\nresources: [../common, map.yaml]\n";
        Commit::new()
            .file("app/kustomization.yaml", overlay)
            .file("app/map.yaml", map("base", word))
            .file("common/kustomization.yaml", "resources: [map.yaml]\n")
            .file("common/map.yaml", map("common", "one"))
    };
    base.commit("main", "First", &of_base("one"))?;
    elsewhere.git.put_file("plain.yaml", map("plain", "one"));
    let urls = [format!("{}//app?ref=main", elsewhere.git.url("base.git")), elsewhere.git.url("plain.yaml")];
    fleet.repository("app", &naming(&[&urls[0], &urls[1]])).await?;
    let more = [INTERVAL, "retryInterval: 2s"];
    fleet.apply(&kustomization("app", "app", ".", &more)).await?;
    let told = ["is not fetched", urls[0].as_str(), "--remote-bases 127.0.0.1"];
    fleet.fails("kustomization/app", "BuildFailed", &told).await?;
    ensure!(elsewhere.git.take_seen().is_empty(), "it was asked without the flag");

    // The flag alone changes it: the source has no new commit.
    let Fleet { agent, mut hub, git, cluster, setup } = fleet;
    hub.kill9().await?;
    let setup = setup.arg("--remote-bases=127.0.0.1,github.com");
    let hub = HubProcess::start(&setup).await?;
    let fleet = Fleet { agent, hub, git, cluster, setup };
    for name in ["far-base", "far-common", "plain"] {
        fleet.cluster.has_word(space.name(), name, Some("one")).await?;
    }
    fleet.ready("kustomization/app").await?;

    // A branch that moved, and a file that changed, are seen without a commit in the source.
    base.commit("main", "Second", &of_base("two"))?;
    fleet.cluster.has_word(space.name(), "far-base", Some("two")).await?;
    elsewhere.git.put_file("plain.yaml", map("plain", "two"));
    fleet.cluster.has_word(space.name(), "plain", Some("two")).await?;
    fleet.ready("kustomization/app").await?;

    // What has not changed costs one small request at each interval, and is not built or sent again.
    let written = || async {
        let args = [
            "get",
            "configmap",
            "far-base",
            "plain",
            "-n",
            space.name(),
            "-o",
            "jsonpath={.items[*].metadata.resourceVersion}",
        ];
        fleet.cluster.kubectl().run(&args).await
    };
    let before = written().await?;
    elsewhere.git.take_seen();
    let mut all = Vec::new();
    eventually("it is checked three times", PATIENCE, || {
        all.extend(elsewhere.git.take_seen());
        let checks = all.iter().filter(|seen| seen.what.contains("plain.yaml")).count();
        let seen = format!("{all:?}");
        async move {
            ensure!(checks >= 3, "it was asked: {seen}");
            Ok(())
        }
    })
    .await?;
    let checks: Vec<&str> = all.iter().map(|seen| seen.what.as_str()).collect();
    let of_git = checks.iter().filter(|what| what.contains("base.git")).count();
    ensure!((2..=4).contains(&of_git), "{checks:?}");
    let is_small = |what: &&&str| what.ends_with("ls-refs") || what.contains("GET /plain.yaml");
    ensure!(checks.iter().filter(is_small).count() == checks.len(), "{checks:?}");
    ensure!(all.iter().all(|seen| !seen.had_credentials), "it was asked with credentials");
    ensure!(written().await? == before, "it was written again");

    // Away: as Flux has it the build fails, and what was applied stays.
    elsewhere.git.fault(Fault::Status(502));
    fleet.fails("kustomization/app", "BuildFailed", &["cannot fetch remote resource", "HTTP 502"]).await?;
    fleet.cluster.has_word(space.name(), "plain", Some("two")).await?;
    elsewhere.git.fault(Fault::None);
    fleet.ready("kustomization/app").await?;
    Ok(())
}

#[tokio::test]
async fn one_repository_is_fetched_once_for_all_that_name_it_and_what_it_names_too() -> Result<()> {
    let elsewhere = Elsewhere::start().await?;
    let setup = elsewhere.setup("remote-shared").await?.arg("--remote-bases=127.0.0.1");
    let fleet = Fleet::start_on(setup).await?;
    let space = fleet.cluster.namespace("remote-shared").await?;
    let map = |name: &str| config_map(space.name(), name, "one");
    let (lib, base, module) = (
        elsewhere.git.add_repository("lib.git")?,
        elsewhere.git.add_repository("base.git")?,
        elsewhere.git.add_repository("module.git")?,
    );
    let lib_url = format!("{}//l?ref=v1", elsewhere.git.url("lib.git"));
    let component =
        "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncommonLabels: {from: component}\n";
    let of_lib = Commit::new()
        .file("l/kustomization.yaml", "resources: [map.yaml]\n")
        .file("l/map.yaml", map("lib"))
        .file("c/kustomization.yaml", component);
    let tagged = lib.commit("main", "Lib", &of_lib)?;
    lib.annotated_tag("v1", &tagged)?;
    let in_module =
        Commit::new().file("kustomization.yaml", "resources: [map.yaml]\n").file("map.yaml", map("module"));
    let pinned = module.commit("main", "Module", &in_module)?;
    let modules = "[submodule \"m\"]\n\tpath = m\n\turl = ../module.git\n";
    let of_base = Commit::new()
        .file("a/kustomization.yaml", format!("resources: [map.yaml, '{lib_url}', ../m]\n"))
        .file("a/map.yaml", map("a"))
        .file(
            "b/kustomization.yaml",
            format!("resources: [map.yaml]\ncomponents: ['{}//c?ref=v1']\n", elsewhere.git.url("lib.git")),
        )
        .file("b/map.yaml", map("b"))
        .file(".gitmodules", modules)
        .submodule("m", &pinned);
    let commit = base.commit("main", "Base", &of_base)?;
    let url = elsewhere.git.url("base.git");
    let at = |path: &str| format!("{url}/{path}?ref={commit}");
    fleet
        .repository(
            "app",
            &Commit::new()
                .file("one/kustomization.yaml", format!("resources: ['{}']\n", at("a")))
                .file("two/kustomization.yaml", format!("resources: ['{}']\n", at("b"))),
        )
        .await?;
    fleet
        .apply(&[kustomization("one", "app", "one", &[]), kustomization("two", "app", "two", &[])].concat())
        .await?;
    fleet.ready("kustomization/one").await?;
    fleet.ready("kustomization/two").await?;
    for name in ["a", "lib", "module", "b"] {
        fleet.cluster.has_word(space.name(), name, Some("one")).await?;
    }
    let b = fleet.cluster.kubectl().run(&["get", "configmap", "b", "-n", space.name(), "-o", "yaml"]).await?;
    ensure!(b.contains("from: component"), "{b}");
    let seen: Vec<String> = elsewhere.git.take_seen().into_iter().map(|seen| seen.what).collect();
    for name in ["/base.git/", "/lib.git/", "/module.git/"] {
        let packs = seen.iter().filter(|what| what.contains(name) && what.ends_with("fetch")).count();
        ensure!(packs == 1, "{name}: {packs} packs of {seen:?}");
    }
    // A commit by its id is not asked about any more.
    fleet.reconcile("kustomization/two").await?;
    fleet.ready("kustomization/two").await?;
    let asked = || elsewhere.git.take_seen().into_iter().any(|seen| seen.what.contains("/base.git/"));
    ensure!(!asked(), "a pinned commit was asked about again");
    Ok(())
}

#[tokio::test]
async fn what_a_repository_may_not_have_fetched_is_named() -> Result<()> {
    let elsewhere = Elsewhere::start().await?;
    let options = Elsewhere::options(&elsewhere.folder, SocketAddr::new(IpAddr::from([127, 0, 0, 2]), 0))?;
    let private = GitServer::start(options).await?;
    let setup = elsewhere.setup("remote-refused").await?.without_git();
    let setup = setup
        .arg("--allow-network=git=127.0.0.1")
        .arg("--remote-bases=127.0.0.1")
        .arg("--remote-bases=127.0.0.2");
    let fleet = Fleet::start_on(setup).await?;
    let at = |name: &str| elsewhere.git.url(name);
    let cycle = elsewhere.git.add_repository("cycle.git")?;
    cycle.commit("main", "Cycle", &naming(&[&format!("{}//?ref=main", at("cycle.git"))]))?;
    let deep = elsewhere.git.add_repository("deep.git")?;
    for n in 1..8 {
        let next = format!("{}//?ref=v{}", at("deep.git"), n + 1);
        deep.tag(&format!("v{n}"), &deep.commit("main", "Deep", &naming(&[&next]))?)?;
    }
    let out = elsewhere.git.add_repository("out.git")?;
    out.commit(
        "main",
        "Out",
        &Commit::new().file("a/kustomization.yaml", "resources: [../../app/x.yaml]\n"),
    )?;
    elsewhere.git.put_file("large.yaml", "# large\n".repeat(2 << 20));
    let private_url = format!("{}/x.yaml", private.base_url());
    let of = |text: &str| format!("https://{text}@127.0.0.1/a/b.git");
    let cases: Vec<(&str, String, Vec<&str>)> = vec![
        ("unlisted", "https://localhost/a/b//c".to_owned(), vec!["--remote-bases localhost"]),
        ("metadata", "https://169.254.169.254/a.yaml".to_owned(), vec!["--remote-bases 169.254.169.254"]),
        ("private", private_url, vec!["127.0.0.2", "--allow-network git=127.0.0.2/32"]),
        ("cycle", format!("{}//?ref=main", at("cycle.git")), vec!["cycle"]),
        ("deep", format!("{}//?ref=v1", at("deep.git")), vec!["more than 5 deep"]),
        ("out", format!("{}//a", at("out.git")), vec!["leaves the root"]),
        ("large", at("large.yaml"), vec!["large.yaml", "more than", "bytes"]),
        ("missing", at("missing.yaml"), vec!["HTTP 404"]),
        ("branch", format!("{}//a?ref=nothing", at("out.git")), vec!["has no reference `nothing`"]),
        ("password", of("me:hunter2"), vec!["holds a user name or a password"]),
        ("ssh", "git@github.com:org/repo".to_owned(), vec!["neither SSH"]),
        ("plain", "http://127.0.0.1/a/b//c".to_owned(), vec!["nor http://"]),
    ];
    let moved = format!("resources: ['{}']\n", at("moved.yaml"));
    let mut all = Commit::new().file("moved/kustomization.yaml", moved);
    for (name, url, _) in &cases {
        all = all.file(&format!("{name}/kustomization.yaml"), format!("resources: ['{url}']\n"));
    }
    fleet.repository("app", &all).await?;
    let objects: Vec<String> = cases.iter().map(|(name, ..)| kustomization(name, "app", name, &[])).collect();
    fleet.apply(&objects.concat()).await?;
    for (name, _, parts) in &cases {
        let message = fleet.fails(&format!("kustomization/{name}"), "BuildFailed", parts).await?;
        ensure!(!message.contains("hunter2"), "{message}");
    }
    ensure!(!fleet.hub.logs().contains("hunter2"), "the hub's log has a password");
    // A redirect leads nowhere else than a URL could.
    elsewhere.git.fault(Fault::RedirectTo("https://localhost/evil.yaml".to_owned()));
    fleet.apply(&kustomization("moved", "app", "moved", &[])).await?;
    let told = ["cannot fetch remote resource", "moved.yaml", "--remote-bases localhost"];
    fleet.fails("kustomization/moved", "BuildFailed", &told).await?;
    Ok(())
}
