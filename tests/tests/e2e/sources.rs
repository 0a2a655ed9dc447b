//! Sources, and what a repository or a Git server can get wrong: each fault is named where its user looks, and holds up
//! nobody else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::{Commit, Fault, GitServer, Options, init_bare};
use roadstead_tests::lasting_git;
use roadstead_tests::{
    ConnectProxy, Fleet, PATIENCE, config_map, eventually, folder, free_port, git_repository, kustomization,
};

/// A GitRepository of `url` for another reference than a branch.
fn at_reference(name: &str, url: &str, reference: &str) -> String {
    git_repository(name, url, "secretRef: {name: git}")
        .replace("ref: {branch: main}", &format!("ref: {reference}"))
}

/// The revision of a source's artifact.
async fn revision(fleet: &Fleet, source: &str) -> Result<String> {
    let object = fleet.get(&format!("gitrepository/{source}")).await?;
    let revision = object["status"]["artifact"]["revision"].as_str();
    revision.map(str::to_owned).with_context(|| format!("no artifact: {}", object["status"]))
}

#[tokio::test]
async fn a_branch_a_tag_and_a_commit_are_followed_each_in_its_way() -> Result<()> {
    let fleet = Fleet::start("refs").await?;
    let space = fleet.cluster.namespace("refs").await?;
    let ns = space.name();
    let repository = fleet.git.add_repository("app.git")?;
    let url = fleet.git.url("app.git");
    let word = |word: &str| {
        ["main", "tag", "commit"].iter().fold(Commit::new(), |commit, by| {
            commit.file(&format!("{by}/config.yaml"), config_map(ns, &format!("by-{by}"), word))
        })
    };
    let first = repository.commit("main", "First", &word("one"))?;
    repository.annotated_tag("v1.0.0", &first)?;
    let second = repository.commit("main", "Second", &word("two"))?;
    let main = at_reference("main", &url, "{branch: main}").replace("interval: 1h", "interval: 1s");
    fleet.apply(&main).await?;
    fleet.apply(&at_reference("tag", &url, "{tag: v1.0.0}")).await?;
    fleet.apply(&at_reference("commit", &url, &format!("{{commit: {first}}}"))).await?;
    for (by, expected, text) in [
        ("main", format!("main@sha1:{second}"), "two"),
        ("tag", format!("v1.0.0@sha1:{first}"), "one"),
        ("commit", format!("sha1:{first}"), "one"),
    ] {
        fleet.apply(&kustomization(by, by, by, &[])).await?;
        let message = fleet.ready(&format!("kustomization/{by}")).await?;
        ensure!(message == format!("Applied revision: {expected}"), "{message}");
        ensure!(revision(&fleet, by).await? == expected, "{by}: {}", revision(&fleet, by).await?);
        fleet.cluster.has_word(ns, &format!("by-{by}"), Some(text)).await?;
    }
    // The branch is looked at every second, and nobody asks; a moved tag is seen when someone does.
    let third = repository.commit("main", "Third", &word("three"))?;
    repository.tag("v1.0.0", &third)?;
    fleet.applied("main", &third).await?;
    ensure!(revision(&fleet, "tag").await? == format!("v1.0.0@sha1:{first}"), "who looked at the tag?");
    fleet.fetch("tag").await?;
    fleet.applied("tag", &third).await?;
    fleet.cluster.has_word(ns, "by-tag", Some("three")).await?;
    // Another spec is another artifact; one that is not there is said so, and what is applied stays.
    fleet.apply(&at_reference("tag", &url, "{tag: v9}")).await?;
    fleet.fails("gitrepository/tag", "GitOperationFailed", &["v9", &url]).await?;
    let tag = fleet.get("gitrepository/tag").await?;
    // As in Flux: what is tried again has not been observed yet.
    let (observed, generation) = (&tag["status"]["observedGeneration"], &tag["metadata"]["generation"]);
    ensure!(observed.as_i64() < generation.as_i64(), "{tag:#}");
    fleet.cluster.has_word(ns, "by-tag", Some("three")).await?;
    fleet.apply(&at_reference("tag", &url, "{branch: main}")).await?;
    fleet.ready("gitrepository/tag").await?;
    fleet.applied("tag", &third).await?;
    ensure!(
        revision(&fleet, "tag").await? == format!("main@sha1:{third}"),
        "the artifact is of the old spec"
    );
    Ok(())
}

#[tokio::test]
async fn credentials_and_an_own_authority_come_from_a_secret() -> Result<()> {
    let fleet = Fleet::start("auth").await?;
    let login = Some(("reader".to_owned(), "right".to_owned()));
    let git = GitServer::start(Options { login, ..Options::default() }).await?;
    let repository = git.add_repository("app.git")?;
    let space = fleet.cluster.namespace("auth").await?;
    repository.commit(
        "main",
        "First",
        &Commit::new().file("config.yaml", config_map(space.name(), "auth", "hi")),
    )?;
    let url = git.url("app.git");
    fleet.apply(&git_repository("app", &url, "secretRef: {name: login}")).await?;
    fleet.fails("gitrepository/app", "AuthenticationFailed", &["apps/login", "not found"]).await?;
    // Who asks for a fetch that cannot begin is answered, too.
    fleet.fetch("app").await?;

    fleet.trust("login", &git, &["username=reader", "password=wr0ng"]).await?;
    let message = fleet.fails("gitrepository/app", "AuthenticationFailed", &["401", &url]).await?;
    ensure!(!message.contains("wr0ng"), "the password is in the condition");
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    fleet.fails("kustomization/app", "ArtifactFailed", &["apps/app", "401"]).await?;
    // It is looked at once an hour: the Secret's change is what mends it, and the Kustomization follows.
    fleet.trust("login", &git, &["username=reader", "password=right"]).await?;
    fleet.ready("gitrepository/app").await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(space.name(), "auth", Some("hi")).await?;
    ensure!(!fleet.hub.logs().contains("wr0ng"), "the password is in the log");

    // Without the authority, and with another one's.
    fleet.apply(&git_repository("bare", &fleet.git.url("none.git"), "")).await?;
    fleet.fails("gitrepository/bare", "GitOperationFailed", &["not trusted", "ca.crt"]).await?;
    fleet.trust("other", &fleet.git, &["username=reader", "password=right"]).await?;
    fleet.apply(&git_repository("other", &url, "secretRef: {name: other}")).await?;
    fleet.fails("gitrepository/other", "GitOperationFailed", &["not trusted", &url]).await?;
    ensure!(
        git.take_seen().iter().all(|seen| !seen.what.contains("other")),
        "it spoke to a server that it does not trust"
    );
    Ok(())
}

#[tokio::test]
async fn an_artifact_stays_usable_while_the_server_is_away() -> Result<()> {
    let fleet = Fleet::start("away").await?;
    let space = fleet.cluster.namespace("away").await?;
    let ns = space.name();
    let folder = folder()?;
    let options = lasting_git(folder.path(), free_port()?)?;
    let git = GitServer::start(options.clone()).await?;
    let repository = git.add_repository("app.git")?;
    let files = Commit::new()
        .file("before/config.yaml", config_map(ns, "before", "one"))
        .file("during/config.yaml", config_map(ns, "during", "one"));
    let first = repository.commit("main", "First", &files)?;
    fleet.trust("lasting", &git, &[]).await?;
    let url = git.url("app.git");
    fleet.apply(&git_repository("app", &url, "secretRef: {name: lasting}")).await?;
    fleet.apply(&kustomization("before", "app", "before", &[])).await?;
    fleet.applied("before", &first).await?;

    drop(git);
    fleet.fetch("app").await?;
    fleet.fails("gitrepository/app", "GitOperationFailed", &[&url]).await?;
    ensure!(revision(&fleet, "app").await? == format!("main@sha1:{first}"), "the artifact is gone");
    fleet.ready("kustomization/before").await?;
    // Drift is still mended, and what is new is still applied.
    fleet.cluster.kubectl().run(&["delete", "configmap", "before", "--namespace", ns]).await?;
    fleet.run(&["annotate", "kustomization/before", "reconcile.fluxcd.io/requestedAt=now"]).await?;
    fleet.cluster.has_word(ns, "before", Some("one")).await?;
    fleet.apply(&kustomization("during", "app", "during", &[])).await?;
    fleet.applied("during", &first).await?;

    // It comes back: seen without anyone asking, as a failure is looked at again sooner than once an hour.
    let short = r#"{"spec":{"interval":"5s"}}"#;
    fleet.run(&["patch", "gitrepository/app", "--type=merge", "-p", short]).await?;
    let second = repository.commit(
        "main",
        "Second",
        &Commit::new().file("before/config.yaml", config_map(ns, "before", "two")),
    )?;
    let _git = GitServer::start(options).await?;
    fleet.applied("before", &second).await?;
    fleet.ready("gitrepository/app").await?;
    fleet.cluster.has_word(ns, "before", Some("two")).await?;

    // A source that is deleted takes nothing along; when it is there again, all is as before.
    fleet.run(&["delete", "gitrepository/app"]).await?;
    fleet.fails("kustomization/before", "ArtifactFailed", &["apps/app", "not found"]).await?;
    ensure!(fleet.cluster.word(ns, "before").await?.is_some(), "the objects went with their source");
    fleet.apply(&git_repository("app", &url, "secretRef: {name: lasting}")).await?;
    fleet.ready("kustomization/before").await.map(|_| ())
}

#[tokio::test]
async fn servers_that_hang_or_lie_are_named_and_delay_nobody() -> Result<()> {
    let fleet = Fleet::start("faults").await?;
    let space = fleet.cluster.namespace("faults").await?;
    let files = Commit::new().file("config.yaml", config_map(space.name(), "fine", "hi"));

    // More of them than fetches go to one host at once, each for longer than the test.
    let hangs = GitServer::start(Options::default()).await?;
    hangs.add_repository("app.git")?.commit("main", "First", &files)?;
    hangs.fault(Fault::HangBeforeAnswer);
    fleet.trust("hangs", &hangs, &[]).await?;
    // Another host than that of the source which is to be fetched: the ports of one host share its places.
    let url = hangs.url("app.git").replace("127.0.0.1", "localhost");
    let hanging: String = (0..12)
        .map(|n| {
            format!(
                "{}  timeout: 10m\n---\n",
                git_repository(&format!("hangs-{n}"), &url, "secretRef: {name: hangs}")
            )
        })
        .collect();
    fleet.apply(&hanging).await?;
    eventually("the server hangs", PATIENCE, || async {
        let seen = hangs.take_seen().len();
        ensure!(seen > 0, "nobody has come");
        Ok(())
    })
    .await?;
    let began = std::time::Instant::now();
    fleet.repository("fine", &files).await?;
    fleet.apply(&kustomization("fine", "fine", ".", &[])).await?;
    fleet.ready("kustomization/fine").await?;
    let took = began.elapsed();
    ensure!(took < Duration::from_secs(30), "it took {took:?} beside sources that hang");
    for n in 0..12 {
        let (status, reason, _) = fleet.condition(&format!("gitrepository/hangs-{n}"), "Ready").await?;
        ensure!(status == "Unknown" && reason == "Progressing", "hangs-{n} does not hang: {status} {reason}");
    }
    eprintln!("beside 12 sources that hang, a commit took {took:?} to be applied");

    // The same with a timeout, and everything that a server can get wrong.
    let mut servers = Vec::new();
    for (name, fault, parts) in [
        ("hang", Fault::HangBeforeAnswer, &["not fetched within 3s"] as &[&str]),
        ("hang-in-pack", Fault::HangInPack, &["not fetched within 3s"]),
        ("trickle", Fault::Trickle(Duration::from_millis(200)), &["not fetched within 3s"]),
        ("endless", Fault::EndlessReferences, &["references"]),
        ("corrupt", Fault::CorruptPack, &["something invalid"]),
        ("truncate", Fault::TruncatePack, &[]),
        ("cut", Fault::CutInPack, &[]),
        ("status", Fault::Status(503), &["503"]),
        ("page", Fault::WebPage, &["something invalid"]),
        ("redirect", Fault::RedirectTo("http://127.0.0.1:1/app.git/info/refs".to_owned()), &["redirects to"]),
    ] {
        let server = GitServer::start(Options::default()).await?;
        let repository = server.add_repository("app.git")?;
        repository.commit("main", "First", &files)?;
        server.fault(fault);
        fleet.trust(name, &server, &[]).await?;
        // Only what never ends runs out of time, however slow the machine is.
        let ends = parts.iter().any(|part| !part.starts_with("not fetched within"));
        let timeout = if ends { "1m" } else { "3s" };
        let secret = format!("secretRef: {{name: {name}}}\n  timeout: {timeout}");
        fleet.apply(&git_repository(name, &server.url("app.git"), &secret)).await?;
        servers.push((name, server, parts));
    }
    // One that answers with another commit than it was asked for.
    let liar = GitServer::start(Options::default()).await?;
    let repository = liar.add_repository("app.git")?;
    let other = repository.commit("main", "First", &files)?;
    repository.commit("main", "Second", &files.clone().file("second", "2"))?;
    liar.fault(Fault::OtherPack(other));
    fleet.trust("liar", &liar, &[]).await?;
    fleet
        .apply(&git_repository("liar", &liar.url("app.git"), "secretRef: {name: liar}\n  timeout: 1m"))
        .await?;
    servers.push(("liar", liar, &["something invalid"]));
    for (name, server, parts) in &servers {
        let url = server.url("app.git");
        let parts = [&[url.as_str()], *parts].concat();
        let message = fleet.fails(&format!("gitrepository/{name}"), "GitOperationFailed", &parts).await?;
        eprintln!("{name}: {message}");
    }
    // Nothing of it is left behind: once its server behaves, each is fetched, in the time that a slow machine needs.
    for (name, server, _) in &servers {
        server.fault(Fault::None);
        let secret = format!("secretRef: {{name: {name}}}\n  timeout: 1m");
        fleet.apply(&git_repository(name, &server.url("app.git"), &secret)).await?;
    }
    for (name, ..) in &servers {
        fleet.fetch(name).await?;
        fleet.ready(&format!("gitrepository/{name}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_in_a_repository_is_named_and_others_go_on() -> Result<()> {
    let fleet = Fleet::start("bad").await?;
    let space = fleet.cluster.namespace("bad").await?;
    let ns = space.name();
    let service = |kind: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: backend, namespace: {ns}}}\nspec:\n  type: {kind}\n  ports: \
             [{{port: 80}}]\n"
        )
    };
    let files = Commit::new()
        .file("yaml/fine.yaml", config_map(ns, "yaml", "hi"))
        .file("yaml/broken.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: broken\n data: {}\n")
        .file("rejected/config.yaml", config_map(ns, "rejected", "hi"))
        .file("rejected/service.yaml", service("Ingress"))
        .file(
            "unknown/crontab.yaml",
            "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: unknown}\n",
        )
        .file("fine/config.yaml", config_map(ns, "fine", "hi"));
    let repository = fleet.repository("app", &files).await?;
    for (name, path) in
        [("yaml", "yaml"), ("path", "./not/there"), ("rejected", "rejected"), ("unknown", "unknown")]
    {
        fleet.apply(&kustomization(name, "app", path, &["retryInterval: 1s"])).await?;
    }
    fleet.fails("kustomization/yaml", "BuildFailed", &["yaml/broken.yaml:5"]).await?;
    fleet.fails("kustomization/path", "ArtifactFailed", &["not/there"]).await?;
    // The seed's own example.
    let object = format!("Service/{ns}/backend");
    let parts = [object.as_str(), "spec.type: Unsupported value", "Ingress"];
    let message = fleet.fails("kustomization/rejected", "ValidationFailed", &parts).await?;
    fleet.fails("kustomization/unknown", "ValidationFailed", &["CronTab", "stable.example.com/v1"]).await?;
    // They keep failing, every second, and another one of the same cluster goes on.
    fleet.apply(&kustomization("fine", "app", "fine", &[])).await?;
    fleet.ready("kustomization/fine").await?;
    for name in ["yaml", "rejected"] {
        ensure!(fleet.cluster.word(ns, name).await?.is_none(), "something of {name} was written");
    }
    // Not the first of its errors where the hub looked at it before the source's first artifact.
    let line = fleet.log_line("apps/rejected", |line| line["error"] == message).await?;
    ensure!(line["level"] == "error", "{line:#}");
    // Mended in Git, it goes through.
    let mended = repository.commit(
        "main",
        "Mended",
        &Commit::new().file("rejected/service.yaml", service("ClusterIP")),
    )?;
    fleet.fetch("app").await?;
    fleet.applied("rejected", &mended).await?;
    ensure!(fleet.cluster.word(ns, "rejected").await?.is_some(), "it is Ready and not applied");

    // Links are left out, wherever they lead, and that is told.
    let links = Commit::new()
        .link("fine/passwd", "../../../../../etc/passwd")
        .link("fine/shadow", "/etc/shadow")
        .link("fine/itself.yaml", "map.yaml");
    let linked = repository.commit("main", "Links", &links)?;
    fleet.fetch("app").await?;
    ensure!(revision(&fleet, "app").await? == format!("main@sha1:{linked}"), "the artifact is an older one");
    fleet.applied("fine", &linked).await?;
    let about =
        "--field-selector=involvedObject.kind=GitRepository,involvedObject.name=app,reason=FilesLeftOut";
    let told =
        fleet.run(&["get", "events", about, "--output=jsonpath={.items[*]['type', 'message']}"]).await?;
    ensure!(told.starts_with("Warning 3 symbolic links are left out, `fine/"), "{told}");

    // A path on the hub's own machine, readable for the hub, and refused.
    let folder = folder()?;
    let local = init_bare(&folder.path().join("local.git"))?;
    local.commit("main", "First", &files)?;
    let url = format!("file://{}", local.path().display());
    fleet.apply(&git_repository("local", &url, "")).await?;
    fleet.fails("gitrepository/local", "URLInvalid", &[&url, "--dev"]).await?;
    fleet.apply(&kustomization("local", "local", "fine", &[])).await?;
    fleet.fails("kustomization/local", "ArtifactFailed", &["apps/local", "--dev"]).await.map(|_| ())
}

#[tokio::test]
async fn a_proxy_that_a_user_names_is_on_the_way() -> Result<()> {
    let fleet = Fleet::start("git-proxy").await?;
    let proxy = ConnectProxy::start().await?;
    let repository = fleet.git.add_repository("app.git")?;
    let first = repository.commit("main", "First", &Commit::new().file("a", "1"))?;
    let url = fleet.git.url("app.git");
    let proxy_url = proxy.url();
    let parts = proxy_url.strip_prefix("http://").and_then(|rest| rest.split_once('@'));
    let (login, host) = parts.context("a proxy with a login")?;
    let (name, right) = login.split_once(':').context("a login with a password")?;
    let address = format!("--from-literal=address=http://{host}");
    let name = format!("--from-literal=username={name}");
    let secret = async |password: &str| -> Result<()> {
        let password = format!("--from-literal=password={password}");
        let args = [
            "create",
            "secret",
            "generic",
            "proxy",
            &address,
            &name,
            &password,
            "--dry-run=client",
            "-o",
            "yaml",
        ];
        fleet.apply(&fleet.run(&args).await?).await.map(|_| ())
    };
    secret("wr0ng").await?;
    let spec = "secretRef: {name: git}\n  proxySecretRef: {name: proxy}";
    fleet.apply(&git_repository("app", &url, spec)).await?;
    let message = fleet.fails("gitrepository/app", "GitOperationFailed", &["cannot reach"]).await?;
    ensure!(!message.contains("wr0ng"), "{message}");
    ensure!(fleet.git.take_seen().is_empty(), "it went another way");
    secret(right).await?;
    let message = fleet.ready("gitrepository/app").await?;
    ensure!(message.contains(&first), "{message}");
    let to = fleet.git.address().to_string();
    let asked = proxy.asked();
    ensure!(!asked.is_empty() && asked.iter().all(|asked| *asked == to), "{asked:?}");
    ensure!(!fleet.hub.logs().contains("wr0ng"), "the password is in the log");
    // A proxy is not for SSH.
    fleet.apply(&git_repository("app", "ssh://git@127.0.0.1:1/app.git", spec)).await?;
    fleet.fails("gitrepository/app", "AuthenticationFailed", &["apps/git", "identity"]).await?;
    let spec = "proxySecretRef: {name: proxy}";
    fleet.apply(&git_repository("app", "ssh://git@127.0.0.1:1/app.git", spec)).await?;
    fleet.fails("gitrepository/app", "AuthenticationFailed", &["apps/proxy", "SOCKS5"]).await?;
    Ok(())
}

#[tokio::test]
async fn some_folders_of_a_repository_are_taken() -> Result<()> {
    let fleet = Fleet::start("sparse").await?;
    let space = fleet.cluster.namespace("sparse").await?;
    let repository = fleet.git.add_repository("app.git")?;
    let config = |word: &str| config_map(space.name(), "sparse", word);
    let files = Commit::new().file("apps/a.yaml", config("one")).file("apps-old/a.yaml", config("old"));
    let first = repository.commit("main", "First", &files)?;
    let url = fleet.git.url("app.git");
    let spec = "secretRef: {name: git}\n  sparseCheckout: [./apps]";
    fleet.apply(&git_repository("app", &url, spec)).await?;
    fleet.apply(&kustomization("app", "app", ".", &[])).await?;
    fleet.applied("app", &first).await?;
    fleet.cluster.has_word(space.name(), "sparse", Some("one")).await?;
    let source = fleet.get("gitrepository/app").await?;
    ensure!(source["status"]["observedSparseCheckout"] == serde_json::json!(["./apps"]), "{source:#}");
    let spec = spec.replace("./apps", "none");
    fleet.apply(&git_repository("app", &url, &spec)).await?;
    fleet
        .fails(
            "gitrepository/app",
            "GitOperationFailed",
            &["sparse checkout dir 'none' does not exist in repository"],
        )
        .await?;
    let spec = |more: &str| git_repository("app", &url, &format!("secretRef: {{name: git}}\n  {more}"));
    fleet.apply(&spec("provider: azure")).await?;
    let parts = ["spec.provider azure alone", "--hub-cloud-identity): name a ServiceAccount"];
    fleet.fails("gitrepository/app", "AccessDenied", &parts).await?;
    let refused = fleet.apply(&spec("serviceAccountName: git")).await;
    let why = "serviceAccountName can only be set when provider is 'azure' or 'aws'";
    ensure!(refused.as_ref().is_err_and(|error| error.to_string().contains(why)), "{refused:?}");
    fleet.cluster.has_word(space.name(), "sparse", Some("one")).await
}
