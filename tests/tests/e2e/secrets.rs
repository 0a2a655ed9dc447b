//! What is secret stays so: of a Secret on the hub, a Secret in Git, a join token, an agent's key and an administrator's
//! token nothing is found in Postgres, in logs, in conditions, in views, or in files that others may read.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flate2::read::GzDecoder;
use roadstead_tests::gitserver::{Commit, GitServer, Options, install_crypto};
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, PATIENCE, TestCluster, config_map, eventually, git_repository,
    kustomization,
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};

/// What must be found nowhere, and how to call it in a failure.
pub(crate) struct Word {
    what: &'static str,
    forms: Vec<Vec<u8>>,
}

impl Word {
    /// As it is, in hexadecimal, and in base64 wherever in a longer text it begins.
    pub(crate) fn new(what: &'static str, word: impl AsRef<[u8]>) -> Self {
        let word = word.as_ref();
        assert!(word.len() >= 12, "{what} is too short to tell from chance");
        let hexadecimal: String = word.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut forms =
            vec![word.to_vec(), hexadecimal.clone().into_bytes(), hexadecimal.to_uppercase().into_bytes()];
        for before in 0..3 {
            let mut padded = vec![0; before];
            padded.extend_from_slice(word);
            for engine in [STANDARD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
                // Characters at either end hold bits of neighbours.
                let whole = engine.trim_end_matches('=').as_bytes();
                forms.push(whole[(before * 8).div_ceil(6)..whole.len() - 1].to_vec());
            }
        }
        // Twice over: the base64 of a Secret within a JSON text that was itself encoded.
        forms.push(STANDARD.encode(STANDARD.encode(word)).trim_end_matches('=').as_bytes().to_vec());
        forms.sort();
        forms.dedup();
        Self { what, forms }
    }

    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.forms.iter().any(|form| contains(bytes, form))
    }
}

pub(crate) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A place that was searched.
pub(crate) struct Place {
    name: String,
    bytes: Vec<u8>,
}

impl Place {
    pub(crate) fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }

    /// What was found in it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Itself and, where it is compressed, what it holds.
    fn unpacked(self) -> Vec<Self> {
        let mut inside = Vec::new();
        if self.bytes.starts_with(&[0x1f, 0x8b])
            && GzDecoder::new(&*self.bytes).read_to_end(&mut inside).is_ok()
        {
            let name = format!("{}, unpacked", self.name);
            let mut places = vec![self];
            places.extend(Self::new(name, inside).unpacked());
            return places;
        }
        vec![self]
    }
}

/// Every value of every row of every table: as text, and bytes also as what they are.
pub(crate) async fn dump(connection: &mut PgConnection) -> Result<Vec<Place>> {
    let query = "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns \
                 WHERE table_schema = 'public' ORDER BY 1, ordinal_position";
    let columns: Vec<(String, String, String)> = sqlx::query_as(query).fetch_all(&mut *connection).await?;
    ensure!(columns.len() > 50, "{} columns are not all", columns.len());
    let mut places = Vec::new();
    for (table, column, kind) in columns {
        let name = format!("{table}.{column}");
        // Names of our own schema.
        if kind == "bytea" {
            let query = format!("SELECT \"{column}\" FROM \"{table}\" WHERE \"{column}\" IS NOT NULL");
            let values: Vec<Vec<u8>> =
                sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(&mut *connection).await?;
            places.extend(values.into_iter().flat_map(|value| Place::new(&*name, value).unpacked()));
        }
        for cast in ["::text", "::text::bytea::text"] {
            let query =
                format!("SELECT (\"{column}\"{cast}) FROM \"{table}\" WHERE \"{column}\" IS NOT NULL");
            // Not every text is one of bytes; the first form holds it in any case.
            let Ok(values) =
                sqlx::query_scalar::<_, String>(AssertSqlSafe(query)).fetch_all(&mut *connection).await
            else {
                continue;
            };
            places.extend(values.into_iter().map(|value| Place::new(&*name, value)));
        }
    }
    Ok(places)
}

/// Fails with each place in which one of the words is.
pub(crate) fn search(words: &[Word], places: &[Place]) -> Result<()> {
    let mut found: Vec<String> = Vec::new();
    for place in places {
        for word in words.iter().filter(|word| word.is_in(&place.bytes)) {
            found.push(format!("{} is in {}", word.what, place.name));
        }
    }
    found.sort();
    found.dedup();
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

fn mode(path: &Path) -> Result<u32> {
    let metadata = std::fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    Ok(metadata.permissions().mode() & 0o777)
}

fn secret(namespace: &str, name: &str, more: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {namespace}}}\n{more}\n")
}

const PASSWORD: &str = "git-Anchor7-password";
const OLD_PASSWORD: &str = "git-Anchor6-password";
const WRONG_PASSWORD: &str = "git-Anchor5-password";
const TEXT: &str = "text-Bollard3-value";
const NEW_TEXT: &str = "text-Bollard4-value";
const DATA: &str = "data-Capstan9-value";
const GENERATED: &str = "made-Davit2-literal";
const PATCHED: &str = "patch-Eyelet8-value";
const MISTYPED: &str = "typed-Fairlead1-value";
const MALFORMED: &str = "broken-Gaff6-value";
const IMMUTABLE: &str = "fixed-Hawser5-value";
const VISIBLE: &str = "visible-Jib-value";

/// What lies in Git: a path for each Kustomization.
fn repository(namespace: &str, text: &str, fixed: &str) -> Commit {
    let encoded = STANDARD.encode(DATA);
    Commit::new()
        .file("plain/map.yaml", config_map(namespace, "plain", VISIBLE))
        .file("sound/secret.yaml", secret(namespace, "sound", &format!("stringData: {{text: {text}}}\ndata: {{data: {encoded}}}")))
        .file(
            "made/kustomization.yaml",
            format!(
                "namespace: {namespace}\nresources: [base.yaml]\nsecretGenerator:\n- name: made\n  literals: [word={GENERATED}]\n\
                 patches:\n- patch: |\n    apiVersion: v1\n    kind: Secret\n    metadata: {{name: base}}\n    stringData: \
                 {{word: {PATCHED}}}\n"
            ),
        )
        .file("made/base.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: base}\nstringData: {word: none}\n")
        .file("mistyped/secret.yaml", secret(namespace, "mistyped", &format!("stringData: {{word: [{MISTYPED}]}}")))
        .file("illegal/secret.yaml", secret(namespace, "illegal", &format!("data: {{word: \"{MISTYPED}!\"}}")))
        .file("malformed/secret.yaml", secret(namespace, "malformed", &format!("stringData:\n  word: {MALFORMED}\n bad: [{MALFORMED}")))
        .file(
            "patchless/kustomization.yaml",
            format!(
                "patches:\n- patch: |\n    apiVersion: v1\n    kind: Secret\n    metadata: {{name: nowhere}}\n    stringData: \
                 {{word: {MALFORMED}}}\n"
            ),
        )
        .file("fixed/secret.yaml", secret(namespace, "fixed", &format!("immutable: true\nstringData: {{word: {fixed}}}")))
}

/// A fleet that says a lot in its logs, with a Git server that wants a password.
async fn fleet() -> Result<Fleet> {
    install_crypto();
    let setup = HubSetup::new("secrets").await?;
    let scratch = setup.folder().join("scratch");
    std::fs::create_dir(&scratch)?;
    // A file of the kubeconfig's interim name that others may read, as a crash could leave it.
    let interim = setup.folder().join("admin.new");
    std::fs::write(&interim, "")?;
    std::fs::set_permissions(&interim, PermissionsExt::from_mode(0o666))?;
    let setup = setup.env("TMPDIR", scratch).env("RUST_LOG", "debug");
    let hub = HubProcess::start(&setup).await?;
    hub.kubectl().run(&["create", "namespace", "apps"]).await?;
    let cluster = TestCluster::second()?;
    let join = setup.folder().join("join-edge.json");
    std::fs::write(&join, AgentProcess::invited(&hub, "edge").await?)?;
    let agent = AgentProcess::start_logging(&hub, "edge", &cluster, join, Some("debug"))?;
    let login = Some(("deployer".to_owned(), PASSWORD.to_owned()));
    let git = GitServer::start(Options { login, ..Options::default() }).await?;
    let fleet = Fleet { agent, hub, git, cluster, setup };
    // As a person does it: created, replaced, patched; each leaves its mark in the change log.
    let old = format!("password={OLD_PASSWORD}");
    fleet.trust("git", &fleet.git, &["username=deployer", &old]).await?;
    fleet.trust("git", &fleet.git, &["username=deployer", &format!("password={PASSWORD}")]).await?;
    let again = json!({"stringData": {"password": PASSWORD}}).to_string();
    fleet.run(&["patch", "secret", "git", "--type=merge", "-p", &again]).await?;
    fleet.trust("wrong", &fleet.git, &["username=deployer", &format!("password={WRONG_PASSWORD}")]).await?;
    let gone = format!("--from-literal=word={OLD_PASSWORD}");
    fleet.run(&["create", "secret", "generic", "gone", &gone]).await?;
    fleet.run(&["delete", "secret", "gone"]).await?;
    fleet.ready("cluster/edge").await?;
    Ok(fleet)
}

#[tokio::test]
async fn no_secret_is_found_where_it_does_not_belong() -> Result<()> {
    let fleet = fleet().await?;
    let target = fleet.cluster.namespace("secrets").await?;
    let namespace = target.name();
    let git = fleet.repository("app", &repository(namespace, TEXT, "fixed-at-first")).await?;
    let wrong = git_repository("wrong", &fleet.git.url("app.git"), "secretRef: {name: wrong}");
    fleet.apply(&wrong).await?;
    let sound = ["plain", "sound", "made", "fixed"];
    let broken = ["mistyped", "illegal", "malformed", "patchless"];
    for name in sound.iter().chain(&broken) {
        fleet.apply(&kustomization(name, "app", &format!("./{name}"), &[])).await?;
    }
    for name in sound {
        fleet.ready(&format!("kustomization/{name}")).await?;
    }
    git.commit("main", "Second", &repository(namespace, NEW_TEXT, IMMUTABLE))?;
    fleet.fetch("app").await?;
    let cluster = fleet.cluster.kubectl();
    eventually("the new value has arrived", PATIENCE, || async {
        let seen = cluster.get(&["secret", "sound", "-n", namespace]).await?;
        ensure!(seen["data"]["text"] == STANDARD.encode(NEW_TEXT), "{seen}");
        ensure!(seen["data"]["data"] == STANDARD.encode(DATA), "{seen}");
        Ok(())
    })
    .await?;
    for (name, reasons) in [
        ("mistyped", &["BuildFailed", "ValidationFailed", "ReconciliationFailed"][..]),
        ("illegal", &["BuildFailed", "ValidationFailed", "ReconciliationFailed"]),
        ("malformed", &["BuildFailed"]),
        ("patchless", &["BuildFailed"]),
        ("fixed", &["ValidationFailed", "ReconciliationFailed"]),
    ] {
        eventually(&format!("{name} has failed"), PATIENCE, || async {
            let seen = fleet.condition(&format!("kustomization/{name}"), "Ready").await?;
            ensure!(seen.0 == "False" && reasons.contains(&&*seen.1), "{seen:?}");
            Ok(())
        })
        .await?;
    }
    fleet.fails("gitrepository/wrong", "", &[]).await?;

    let words = words(&fleet).await?;
    let mut places = dump(&mut fleet.setup.database().connect().await?).await?;
    places.push(Place::new("the hub's log", fleet.hub.logs()));
    places.push(Place::new("the agent's log", fleet.agent.logs()));
    for kind in ["kustomizations", "gitrepositories", "clusters", "namespaces"] {
        let text = fleet.kubectl().run(&["get", kind, "--all-namespaces", "-o", "json"]).await?;
        places.push(Place::new(format!("the hub's {kind}"), text));
        let text = fleet.kubectl().run(&["get", kind, "--all-namespaces"]).await?;
        places.push(Place::new(format!("the hub's table of {kind}"), text));
    }
    let table = fleet.kubectl().run(&["get", "secrets", "--all-namespaces"]).await?;
    places.push(Place::new("the hub's table of Secrets", table));
    for name in sound.iter().chain(&broken) {
        let path = format!("/fleet/v1/appliers/Kustomization/apps/{name}/reconciliations");
        let view = fleet.kubectl().run(&["get", "--raw", &path]).await?;
        places.push(Place::new(format!("the reconciliations of {name}"), view));
    }
    let home = ["get", "configmaps,leases,events", "-n", fleet.agent.namespace(), "-o", "json"];
    places.push(Place::new("the agent's namespace", cluster.run(&home).await?));

    // What is not a secret is found, so that secrets would be: in a build, in the history, in both logs, in a view.
    let visible = Word::new("a ConfigMap's value", VISIBLE);
    ensure!(
        places.iter().any(|place| place.name.contains("unpacked") && visible.is_in(&place.bytes)),
        "no build was searched"
    );
    let name = Word::new("the name of the namespace", namespace);
    for place in ["the hub's kustomizations", "reconciliation.change_set", "the reconciliations of sound"] {
        let found = places.iter().any(|searched| searched.name == place && name.is_in(&searched.bytes));
        ensure!(found, "{place} was not searched");
    }
    for log in ["the hub's log", "the agent's log"] {
        let full = places.iter().any(|place| place.name == log && contains(&place.bytes, b"sound"));
        ensure!(full, "{log} tells nothing");
    }
    search(&words, &places)?;
    private_files(&fleet, &words)
}

/// All that is secret in this fleet.
async fn words(fleet: &Fleet) -> Result<Vec<Word>> {
    let mut words: Vec<Word> = [
        ("the Git password", PASSWORD),
        ("the Git password before", OLD_PASSWORD),
        ("a wrong Git password", WRONG_PASSWORD),
        ("a Secret's stringData", TEXT),
        ("a Secret's stringData, as it was changed", NEW_TEXT),
        ("a Secret's data", DATA),
        ("a generated Secret's literal", GENERATED),
        ("a Secret's patch", PATCHED),
        ("a mistyped Secret's value", MISTYPED),
        ("a malformed Secret's value", MALFORMED),
        ("an immutable Secret's new value", IMMUTABLE),
    ]
    .map(|(what, word)| Word::new(what, word))
    .into();
    let join = files(fleet.setup.folder())?.into_iter().find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("join-"))
    });
    let join: Value = serde_json::from_slice(&std::fs::read(join.context("the join manifest")?)?)?;
    let token = STANDARD.decode(join["data"]["token"].as_str().context("a token")?)?;
    words.push(Word::new("the join token", token));

    let line = ["secret", "roadstead-agent-identity", "-n", fleet.agent.namespace()];
    let identity = fleet.cluster.kubectl().get(&line).await?;
    let key = STANDARD.decode(identity["data"]["tls.key"].as_str().context("a key")?)?;
    let key = String::from_utf8(key)?;
    let body: String = key.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = STANDARD.decode(&body)?;
    // The private part of an EC key in PKCS#8 (RFC 5958, RFC 5915): 32 bytes behind this.
    let start = der.windows(4).position(|window| window == [2, 1, 1, 4]).context("an EC private key")?;
    ensure!(der[start + 4] == 32, "the private key has {} bytes", der[start + 4]);
    words.push(Word::new("the agent's private key", &der[start + 5..start + 37]));
    words.push(Word::new("the agent's private key, PEM", &body[..64.min(body.len())]));
    words.push(Word::new("a private key, PEM", "PRIVATE KEY-----"));

    let path = "jsonpath={.users[0].user.token}";
    let token = fleet.kubectl().run(&["config", "view", "--raw", "-o", path]).await?;
    words.push(Word::new("the administrator's token", token));
    let key = std::fs::read_to_string(fleet.setup.folder().join("hub.key"))?;
    words.push(Word::new("the hub's key", STANDARD.decode(key.trim())?));
    Ok(words)
}

/// Files with secrets are for their owner alone, others hold none, and nothing is left of what was fetched.
fn private_files(fleet: &Fleet, words: &[Word]) -> Result<()> {
    let folder = fleet.setup.folder();
    for name in ["hub.key", "admin.kubeconfig"] {
        let mode = mode(&folder.join(name))?;
        ensure!(mode == 0o600, "{name} has mode {mode:o}");
    }
    let mut left = files(&folder.join("scratch"))?;
    // The workers' folder is in use as long as the hub is, which its empty lock says.
    left.retain(|path| !(path.ends_with("in-use") && path.metadata().is_ok_and(|file| file.len() == 0)));
    ensure!(left.is_empty(), "left of what was fetched: {left:?}");
    let mut places = Vec::new();
    for path in files(folder)? {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // Those that are secret themselves; join manifests are the test's own.
        if name == "hub.key" || name == "admin.kubeconfig" || name.starts_with("join-") {
            continue;
        }
        places.push(Place::new(path.display().to_string(), std::fs::read(&path)?));
    }
    ensure!(!places.is_empty(), "no file was searched");
    search(words, &places)
}

#[tokio::test]
async fn a_key_file_that_others_can_read_is_refused() -> Result<()> {
    let setup = HubSetup::new("open-key").await?;
    for mode in [0o644, 0o640, 0o604] {
        let key = setup.folder().join("hub.key");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode))?;
        let Err(error) = HubProcess::start(&setup).await else {
            bail!("it takes a key file of mode {mode:o}")
        };
        let error = format!("{error:#}");
        ensure!(error.contains("can be read by others") && error.contains("chmod 600"), "{error}");
    }
    Ok(())
}
