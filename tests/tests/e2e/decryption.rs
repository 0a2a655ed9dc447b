//! `decryption`: objects that the real `sops` encrypted, by keys of the hub and of the cluster, with what must stay where it is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubSetup, PATIENCE, clients, config_map, eventually, kustomization, unique};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _};

use crate::secrets::{Place, Word, dump, search};

/// A folder with keys, and the programs that use them.
pub(crate) struct Keys {
    folder: PathBuf,
}

/// An age key: what files are encrypted to, and what decrypts them.
pub(crate) struct AgeKey {
    pub(crate) recipient: String,
    pub(crate) identity: String,
}

impl Keys {
    pub(crate) fn new(setup: &HubSetup) -> Result<Self> {
        let folder = setup.folder().join("keys");
        std::fs::create_dir_all(folder.join("gnupg"))?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(folder.join("gnupg"), mode)?;
        Ok(Self { folder })
    }

    fn run(&self, program: impl AsRef<Path>, args: &[&str]) -> Result<String> {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.folder).env("GNUPGHOME", self.folder.join("gnupg"));
        let done = command.output().with_context(|| format!("start {}", program.display()))?;
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        ensure!(done.status.success(), "{} {args:?}: {err}", program.display());
        Ok(out.into_owned())
    }

    /// An OpenPGP key without a passphrase; its fingerprint.
    fn openpgp(&self) -> Result<String> {
        let to = "Fleet <fleet@example.com>";
        self.run(
            "gpg",
            &["--batch", "--passphrase", "", "--quick-generate-key", to, "default", "default", "never"],
        )?;
        let listed = self.run("gpg", &["--list-secret-keys", "--with-colons"])?;
        let fingerprint =
            listed.lines().find_map(|line| line.strip_prefix("fpr:")).context("a fingerprint")?;
        Ok(fingerprint.trim_matches(':').to_owned())
    }

    /// An age key, made by its rule: the recipient is the identity's public point.
    pub(crate) fn age(&self) -> Result<AgeKey> {
        let text = self.run(age_keygen()?, &[])?;
        let identity =
            text.lines().find(|line| line.starts_with("AGE-SECRET-KEY-")).context("an identity")?;
        let recipient =
            text.lines().find_map(|line| line.strip_prefix("# public key: ")).context("a recipient")?;
        Ok(AgeKey { recipient: recipient.to_owned(), identity: identity.to_owned() })
    }

    /// Encrypts a file by the real sops.
    pub(crate) fn encrypt(&self, name: &str, text: &str, args: &[&str]) -> Result<String> {
        std::fs::write(self.folder.join(name), text)?;
        let args = [args, &["--encrypt", name]].concat();
        self.run(clients()?.join("bin/sops"), &args)
    }

    pub(crate) fn encrypt_secret(&self, text: &str, to: &AgeKey) -> Result<String> {
        let args = ["--age", &to.recipient, "--encrypted-regex", "^(data|stringData)$"];
        self.encrypt("secret.yaml", text, &args)
    }
}

fn age_keygen() -> Result<PathBuf> {
    Ok(clients()?.join("bin/age-keygen"))
}

pub(crate) fn secret(namespace: &str, name: &str, key: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  namespace: {namespace}\nstringData:\n  {key}: {value}\n"
    )
}

/// A Kustomization `app` that Git has in a namespace of its own: what it names in the cluster is looked up there.
pub(crate) fn at_home(namespace: &str, more: &[&str], path: &str) -> String {
    let annotation =
        format!("  name: app\n  annotations: {{fleet.roadstead.dev/git-namespace: {namespace}}}\n");
    kustomization("app", "app", path, more).replacen("  name: app\n", &annotation, 1)
}

/// Waits until a Secret of the cluster has this value.
pub(crate) async fn has(fleet: &Fleet, namespace: &str, name: &str, key: &str, value: &str) -> Result<()> {
    eventually(&format!("Secret {name} has its value"), PATIENCE, || async {
        let object = fleet.cluster.kubectl().get(&["secret", name, "--namespace", namespace]).await?;
        ensure!(
            object["data"][key] == BASE64.encode(value),
            "{} {}",
            object["data"],
            tail(fleet, "app").await
        );
        Ok(())
    })
    .await
}

async fn tail(fleet: &Fleet, name: &str) -> String {
    format!("{:?}", fleet.condition(&format!("kustomization/{name}"), "Ready").await)
}

pub(crate) async fn lookups(fleet: &Fleet, name: &str) -> Result<Value> {
    Ok(fleet.get(&format!("kustomization/{name}")).await?["status"]["lookups"].clone())
}

/// Checks that a status names these master keys as those that were decrypted with.
pub(crate) async fn decrypted_with(fleet: &Fleet, name: &str, keys: &[String]) -> Result<()> {
    let status = fleet.get(&format!("kustomization/{name}")).await?["status"].clone();
    ensure!(status["decryptedWith"] == serde_json::json!(keys), "{keys:?}: {status}");
    Ok(())
}

/// All memory of a process that can be read.
pub(crate) fn memory(id: u32) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let maps = std::fs::read_to_string(format!("/proc/{id}/maps"))?;
    let file = std::fs::File::open(format!("/proc/{id}/mem"))?;
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split(' ').next().and_then(|range| range.split_once('-')).context("a range")?;
        let (from, to) = (u64::from_str_radix(from, 16)?, u64::from_str_radix(to, 16)?);
        let mut part = vec![0; usize::try_from(to - from)?];
        // What goes away meanwhile, and what no one may read, has nothing.
        if file.read_exact_at(&mut part, from).is_ok() {
            all.extend(part);
        }
    }
    ensure!(all.len() > 1 << 20, "{} bytes are not the memory of a process", all.len());
    Ok(all)
}

/// The specification's own lines, with OpenPGP.
#[tokio::test]
async fn the_walk_through_of_the_specification() -> Result<()> {
    let fleet = Fleet::start("sops-gpg").await?;
    let space = fleet.cluster.namespace("sops-gpg").await?;
    let ns = space.name();
    let keys = Keys::new(&fleet.setup)?;
    let fingerprint = keys.openpgp()?;
    let plain = secret(ns, "my-secret", "token", "t0ken-of-the-walk");
    let pgp = format!("--pgp={fingerprint}");
    let encrypted =
        keys.encrypt("my-secret.yaml", &plain, &[&pgp, "--encrypted-regex", "^(data|stringData)$"])?;
    ensure!(encrypted.contains("ENC[AES256_GCM") && !encrypted.contains("t0ken-of"), "{encrypted}");
    fleet.repository("my-secrets", &Commit::new().file("my-secret.yaml", encrypted)).await?;
    let armored = keys.run("gpg", &["--export-secret-keys", "--armor", &fingerprint])?;
    let create =
        ["create", "secret", "generic", "sops-gpg", "--from-file=sops.asc=/dev/stdin", "--namespace", "apps"];
    fleet.kubectl().run_with(&create, &armored).await?;
    let manifest = |secret: &str| {
        format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1alpha1\nkind: Kustomization\nmetadata:\n  name: my-secrets\nspec:\n  interval: \
             5m\n  path: \"./\"\n  prune: true\n  sourceRef:\n    kind: GitRepository\n    name: my-secrets\n  decryption:\n    provider: \
             sops\n    secretRef:\n      name: {secret}\n"
        )
    };
    let default = ["annotate", "namespace", "apps", "fleet.roadstead.dev/default-cluster=edge"];
    fleet.kubectl().run(&default).await?;
    // The slip of the specification: the message names what was meant, nothing guesses it.
    fleet.apply(&manifest("sops-pgp")).await?;
    fleet.fails("kustomization/my-secrets", "BuildFailed", &["sops-pgp", "not found", "'sops-gpg'"]).await?;
    fleet.apply(&manifest("sops-gpg")).await?;
    fleet.ready("kustomization/my-secrets").await?;
    has(&fleet, ns, "my-secret", "token", "t0ken-of-the-walk").await?;
    let found = lookups(&fleet, "my-secrets").await?;
    ensure!(found[0]["name"] == "sops-gpg" && found[0]["location"] == "Hub", "{found}");
    decrypted_with(&fleet, "my-secrets", &[format!("pgp {fingerprint}")]).await
}

#[tokio::test]
async fn a_key_of_the_hub_never_goes_to_an_agent_and_can_be_rotated() -> Result<()> {
    let fleet = Fleet::start("sops-age").await?;
    let space = fleet.cluster.namespace("sops-age").await?;
    let ns = space.name();
    let keys = Keys::new(&fleet.setup)?;
    let (first, second) = (keys.age()?, keys.age()?);
    let value = unique("hush-of-age");
    let of = |value: &str, key: &AgeKey| keys.encrypt_secret(&secret(ns, "token", "token", value), key);
    // Another kind of object, too, and a map that is not encrypted.
    let hidden = unique("hidden-map");
    let args = ["--age", &first.recipient, "--encrypted-regex", "^data$"];
    let map = keys.encrypt("map.yaml", &config_map(ns, "encrypted", &hidden), &args)?;
    let files = Commit::new()
        .file("secret.yaml", of(&value, &first)?)
        .file("map.yaml", map)
        .file("plain.yaml", config_map(ns, "plain", "open"));
    let repository = fleet.repository("app", &files).await?;
    let literal = format!("--from-literal=age.agekey={}", first.identity);
    fleet.run(&["create", "secret", "generic", "sops-age", &literal]).await?;
    let decryption = ["decryption: {provider: sops, secretRef: {name: sops-age}}"];
    fleet.apply(&kustomization("app", "app", "./", &decryption)).await?;
    fleet.ready("kustomization/app").await?;
    has(&fleet, ns, "token", "token", &value).await?;
    fleet.cluster.has_word(ns, "encrypted", Some(&hidden)).await?;
    fleet.cluster.has_word(ns, "plain", Some("open")).await?;

    // The agent has what it applied, and nothing that opens other files.
    let master = Word::new("the age identity", &first.identity);
    let agent = memory(fleet.agent.id())?;
    ensure!(Word::new("the name of the namespace", ns).is_in(&agent), "the agent's memory was not read");
    ensure!(!master.is_in(&agent), "the agent has the master key");
    let words =
        [Word::new("a decrypted value", &value), Word::new("a decrypted ConfigMap's value", &hidden), master];
    let mut places = dump(&mut fleet.setup.database().connect().await?).await?;
    places.push(Place::new("the hub's log", fleet.hub.logs()));
    places.push(Place::new("the agent's log", fleet.agent.logs()));
    search(&words, &places)?;

    // A drifted value is put back, from what the agent has.
    let patch = r#"{"data":{"token":"Ym9ndXM="}}"#;
    let cluster = fleet.cluster.kubectl();
    cluster.run(&["patch", "secret", "token", "--namespace", ns, "--type=merge", "-p", patch]).await?;
    has(&fleet, ns, "token", "token", &value).await?;

    // The same, encrypted again, is another file and no write.
    let version = async || {
        let secret = cluster.get(&["secret", "token", "--namespace", ns]).await?;
        anyhow::Ok(secret["metadata"]["resourceVersion"].clone())
    };
    let before = version().await?;
    let head = repository.commit("main", "Anew", &Commit::new().file("secret.yaml", of(&value, &first)?))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    ensure!(version().await? == before, "it was written");

    // A rotated key: the file comes first, and waits for its key.
    let newer = unique("hush-of-age");
    repository.commit("main", "Rotated", &Commit::new().file("secret.yaml", of(&newer, &second)?))?;
    fleet.fetch("app").await?;
    let parts = ["decryption failed for 'Secret/", "cannot recover the data key", &second.recipient];
    fleet.fails("kustomization/app", "BuildFailed", &parts).await?;
    let both = format!(r#"{{"stringData":{{"new.agekey":"{}"}}}}"#, second.identity);
    fleet.run(&["patch", "secret", "sops-age", "--type=merge", "-p", &both]).await?;
    has(&fleet, ns, "token", "token", &newer).await?;
    fleet.ready("kustomization/app").await?;

    // Without its key nothing is applied, and nothing goes.
    fleet.run(&["delete", "secret", "sops-age"]).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["sops-age", "not found on the hub"]).await?;
    has(&fleet, ns, "token", "token", &newer).await?;
    fleet
        .run(&[
            "create",
            "secret",
            "generic",
            "sops-age",
            &format!("--from-literal=old.agekey={}", first.identity),
            &format!("--from-literal=age.agekey={}", second.identity),
        ])
        .await?;
    fleet.ready("kustomization/app").await.map(drop)
}

#[tokio::test]
async fn with_the_key_in_the_cluster_the_hub_never_sees_plaintext() -> Result<()> {
    let fleet = Fleet::start("sops-here").await?;
    let target = fleet.cluster.namespace("sops-here").await?;
    let (home, ns) = (fleet.cluster.namespace("sops-home").await?, target.name());
    let keys = Keys::new(&fleet.setup)?;
    let key = keys.age()?;
    let canary = unique("canary-in-the-cluster");
    let name = unique("sops-age");
    let literal = format!("--from-literal=age.agekey={}", key.identity);
    let args = ["create", "secret", "generic", &name, "--namespace", home.name(), &literal];
    fleet.cluster.kubectl().run(&args).await?;
    let text = keys.encrypt_secret(&secret(ns, "token", "token", &canary), &key)?;
    // Encrypted whole, as the value of a Secret.
    let file =
        keys.encrypt("settings.json", &format!(r#"{{"password":"{canary}"}}"#), &["--age", &key.recipient])?;
    let generator = format!(
        "namespace: {ns}\nresources: [secret.yaml]\nsecretGenerator:\n- name: settings\n  files: [settings.json]\n  options: \
         {{disableNameSuffixHash: true}}\n"
    );
    let files = Commit::new()
        .file("app/secret.yaml", text)
        .file("app/settings.json", file.clone())
        .file("app/kustomization.yaml", generator.clone());
    let repository = fleet.repository("app", &files).await?;
    let decryption =
        format!("decryption: {{provider: sops, location: Cluster, secretRef: {{name: {name}}}}}");
    fleet.apply(&at_home(home.name(), &[&decryption], "./app")).await?;
    fleet.ready("kustomization/app").await?;
    has(&fleet, ns, "token", "token", &canary).await?;
    let live = fleet.cluster.kubectl().get(&["secret", "settings", "--namespace", ns]).await?;
    let opened = BASE64.decode(live["data"]["settings.json"].as_str().unwrap_or_default())?;
    let opened: Value = serde_json::from_slice(&opened)?;
    ensure!(opened["password"] == canary.as_str(), "{opened}");
    let found = lookups(&fleet, "app").await?;
    ensure!(found[0]["name"] == name.as_str() && found[0]["location"] == "Cluster", "{found}");
    decrypted_with(&fleet, "app", &[format!("age {}", key.recipient)]).await?;

    // A file that was changed since: refused by its MAC, and named.
    let changed = file.replacen("\"lastmodified\": \"20", "\"lastmodified\": \"19", 1);
    ensure!(changed != file, "{file}");
    repository.commit("main", "Changed", &Commit::new().file("app/settings.json", changed))?;
    fleet.fetch("app").await?;
    fleet.fails("kustomization/app", "BuildFailed", &["Secret/", "settings.json", "MAC"]).await?;
    let lenient = decryption.replace("location: Cluster,", "location: Cluster, mac: Warn,");
    fleet.apply(&at_home(home.name(), &[&lenient], "./app")).await?;
    fleet.ready("kustomization/app").await?;

    // Build inputs that the hub would have to decrypt are refused by name, with what to do.
    let hashed = generator.replace("\n  options: {disableNameSuffixHash: true}", "");
    repository.commit(
        "main",
        "Hashed",
        &Commit::new().file("app/settings.json", file).file("app/kustomization.yaml", hashed),
    )?;
    fleet.fetch("app").await?;
    fleet.fails("kustomization/app", "BuildFailed", &["settings.json", "disableNameSuffixHash"]).await?;

    let words = [Word::new("the canary", &canary), Word::new("the age identity", &key.identity)];
    let mut places = dump(&mut fleet.setup.database().connect().await?).await?;
    places.push(Place::new("the hub's log", fleet.hub.logs()));
    let hub = memory(fleet.hub.id())?;
    ensure!(Word::new("the name of the namespace", ns).is_in(&hub), "the hub's memory was not read");
    places.push(Place::new("the hub's memory", hub));
    let path = "/fleet/v1/appliers/Kustomization/apps/app/reconciliations";
    places.push(Place::new("the history", fleet.kubectl().run(&["get", "--raw", path]).await?));
    search(&words, &places)
}

#[tokio::test]
async fn what_is_encrypted_is_never_applied_as_it_is() -> Result<()> {
    let fleet = Fleet::start("sops-not").await?;
    let space = fleet.cluster.namespace("sops-not").await?;
    let ns = space.name();
    let keys = Keys::new(&fleet.setup)?;
    let key = keys.age()?;
    let value = unique("typed-secret");
    let text = keys.encrypt_secret(&secret(ns, "token", "token", &value), &key)?;
    let repository = fleet.repository("app", &Commit::new().file("secret.yaml", text)).await?;
    fleet.apply(&kustomization("app", "app", "./", &[])).await?;
    let parts = [&*format!("Secret/{ns}/token"), "is SOPS encrypted, configuring decryption is required"];
    fleet.fails("kustomization/app", "", &parts).await?;
    fleet.apply(&kustomization("app", "app", "./", &["decryption: {provider: sops}"])).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["spec.decryption.secretRef is not set"]).await?;
    let bad = "--from-literal=age.agekey=hush-not-a-key";
    fleet.run(&["create", "secret", "generic", "sops-age", bad]).await?;
    let decryption = ["decryption: {provider: sops, secretRef: {name: sops-age}}"];
    fleet.apply(&kustomization("app", "app", "./", &decryption)).await?;
    let parts = ["failed to import 'age.agekey' data from sops decryption Secret 'apps/sops-age'"];
    let message = fleet.fails("kustomization/app", "BuildFailed", &parts).await?;
    ensure!(!message.contains("hush"), "{message}");
    let right = format!(r#"{{"stringData":{{"age.agekey":"{}"}}}}"#, key.identity);
    fleet.run(&["patch", "secret", "sops-age", "--type=merge", "-p", &right]).await?;
    has(&fleet, ns, "token", "token", &value).await?;
    fleet.ready("kustomization/app").await?;

    // What the apiserver says of a decrypted value does not tell it.
    let number = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: typed\n  namespace: {ns}\nbinaryData:\n  word: {value}!\n"
    );
    let args = ["--age", &key.recipient, "--encrypted-regex", "^binaryData$"];
    let number = keys.encrypt("typed.yaml", &number, &args)?;
    repository.commit("main", "Typed", &Commit::new().file("typed.yaml", number))?;
    fleet.fetch("app").await?;
    let message = fleet.fails("kustomization/app", "", &["typed"]).await?;
    ensure!(!message.contains(&value), "{message}");
    let words = [Word::new("a decrypted value", &value)];
    let mut places = dump(&mut fleet.setup.database().connect().await?).await?;
    places.push(Place::new("the hub's log", fleet.hub.logs()));
    places.push(Place::new("the agent's log", fleet.agent.logs()));
    search(&words, &places)
}

#[tokio::test]
async fn what_children_need_is_decrypted_on_the_hub() -> Result<()> {
    let fleet = Fleet::start("sops-child").await?;
    let space = fleet.cluster.namespace("sops-child").await?;
    let ns = space.name();
    let keys = Keys::new(&fleet.setup)?;
    let key = keys.age()?;
    let value = unique("value-for-a-child");
    let variables = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: words\nstringData:\n  word: VALUE\n"
        .replace("VALUE", &value);
    let map = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: made\n  namespace: {ns}\nstringData:\n  word: ${{word}}\n"
    );
    let child = kustomization(
        "child",
        "app",
        "./child",
        &["postBuild: {substituteFrom: [{kind: Secret, name: words}]}"],
    );
    let files = Commit::new()
        .file("parent/child.yaml", child)
        .file("parent/words.yaml", keys.encrypt_secret(&variables, &key)?)
        .file("child/made.yaml", map);
    fleet.repository("app", &files).await?;
    let target = format!("targetNamespace: {ns}");
    let elsewhere =
        [&*target, "decryption: {provider: sops, location: Cluster, secretRef: {name: sops-age}}"];
    fleet.apply(&kustomization("parent", "app", "./parent", &elsewhere)).await?;
    fleet.fails("kustomization/parent", "BuildFailed", &["words is encrypted and goes to the hub"]).await?;
    let literal = format!("--from-literal=age.agekey={}", key.identity);
    fleet.run(&["create", "secret", "generic", "sops-age", &literal]).await?;
    let here = ["decryption: {provider: sops, secretRef: {name: sops-age}}"];
    fleet.apply(&kustomization("parent", "app", "./parent", &here)).await?;
    fleet.ready("kustomization/parent").await?;
    has(&fleet, ns, "made", "word", &value).await
}

/// Env files, patches, and files whose content becomes part of a name: as Flux has them, and the names are those of the plain files.
#[tokio::test]
async fn encrypted_build_inputs_are_decrypted_by_the_hub_and_stored_nowhere() -> Result<()> {
    let mut fleet = Fleet::start("sops-build").await?;
    let space = fleet.cluster.namespace("sops-build").await?;
    let ns = space.name();
    let keys = Keys::new(&fleet.setup)?;
    let key = keys.age()?;
    let (value, patched, visible) =
        (unique("value-of-an-env"), unique("value-of-a-patch"), unique("in-the-open"));
    let generator = format!(
        "namespace: {ns}\nresources: [map.yaml]\nsecretGenerator:\n- name: env\n  envs: [words.env]\n- name: file\n  files: \
         [settings.json]\npatches: [{{path: patch.yaml}}]\n"
    );
    let inputs = |value: &str| {
        let patch = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map, namespace: {ns}}}\ndata: {{word: {patched}}}\n"
        );
        let json = format!("{{\n\t\"password\": \"{value}\"\n}}\n");
        [("words.env", format!("password={value}\n")), ("settings.json", json), ("patch.yaml", patch)]
    };
    let commit = |value: &str, encrypted: bool| {
        let mut files = Commit::new()
            .file("app/kustomization.yaml", generator.clone())
            .file("app/map.yaml", config_map(ns, "map", &visible));
        for (name, text) in inputs(value) {
            let rule = if name == "patch.yaml" { "^data$" } else { "" };
            let mut args = vec!["--age", &key.recipient];
            if !rule.is_empty() {
                args.extend(["--encrypted-regex", rule]);
            }
            let text = if encrypted { keys.encrypt(name, &text, &args)? } else { text };
            files = files.file(&format!("app/{name}"), text);
        }
        anyhow::Ok(files)
    };
    let repository = fleet.repository("app", &commit(&value, true)?).await?;
    let literal = format!("--from-literal=age.agekey={}", key.identity);
    fleet.run(&["create", "secret", "generic", "sops-age", &literal]).await?;
    let decryption = ["decryption: {provider: sops, secretRef: {name: sops-age}}", "prune: true"];
    fleet.apply(&kustomization("app", "app", "./app", &decryption)).await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(ns, "map", Some(&patched)).await?;
    let names = names_of_secrets(&fleet, ns).await?;
    ensure!(names.len() == 2, "{names:?}");
    for name in &names {
        let secret = fleet.cluster.kubectl().get(&["secret", name, "--namespace", ns]).await?;
        let data = secret["data"].as_object().and_then(|data| data.values().next()).and_then(Value::as_str);
        let data = BASE64.decode(data.unwrap_or_default())?;
        ensure!(String::from_utf8_lossy(&data).contains(&value), "{name}: {secret}");
    }

    // The hub is killed before its agent has asked for the build: it is rendered once more. What is frozen counts as away after a while,
    // so there is nothing left to do then but to render and to dispatch.
    fleet.suspend("app", true).await?;
    let newer = unique("value-of-an-env");
    let head = repository.commit("main", "Newer", &commit(&newer, true)?)?;
    fleet.fetch("app").await?;
    fleet.agent.freeze()?;
    fleet.suspend("app", false).await?;
    eventually("it is dispatched", PATIENCE, || async {
        let revision = fleet.get("kustomization/app").await?["status"]["lastAttemptedRevision"].clone();
        ensure!(revision.as_str().is_some_and(|revision| revision.ends_with(&head)), "{revision}");
        Ok(())
    })
    .await?;
    fleet.hub.kill9().await?;
    fleet.hub = roadstead_tests::HubProcess::start(&fleet.setup).await?;
    fleet.agent.thaw()?;
    fleet.applied("app", &head).await?;

    // The values are in the cluster and nowhere else; what is not secret is found in the database.
    let mut places = dump(&mut fleet.setup.database().connect().await?).await?;
    let known = Word::new("the name of the namespace", ns);
    ensure!(places.iter().any(|place| known.is_in(place.bytes())), "nothing was searched");
    places.push(Place::new("the hub's log", fleet.hub.logs()));
    places.push(Place::new("the agent's log", fleet.agent.logs()));
    let words = [
        Word::new("a value of an env file", &value),
        Word::new("a newer value of an env file", &newer),
        Word::new("a value of a patch", &patched),
    ];
    search(&words, &places)?;

    // The same names as of plain files: nothing is renamed by encryption.
    let encrypted = names_of_secrets(&fleet, ns).await?;
    let head = repository.commit("main", "Plain", &commit(&newer, false)?)?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    let plain = names_of_secrets(&fleet, ns).await?;
    ensure!(encrypted == plain && plain != names, "{encrypted:?} and {plain:?}, at first {names:?}");

    // What would store a decrypted value on the hub is refused, and so is a patch that fails, without its value.
    let child = kustomization("child", "app", "./none", &[]);
    let patch = format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: child}}\nspec: {{namePrefix: {patched}}}\n"
    );
    let patch =
        keys.encrypt("patch.yaml", &patch, &["--age", &key.recipient, "--encrypted-regex", "^namePrefix$"])?;
    let files = Commit::new()
        .file("app/child.yaml", child)
        .file("app/patch.yaml", patch)
        .file("app/kustomization.yaml", "resources: [child.yaml]\npatches: [{path: patch.yaml}]\n");
    repository.commit("main", "Child", &files)?;
    fleet.fetch("app").await?;
    let message =
        fleet.fails("kustomization/app", "BuildFailed", &["Kustomization/child goes to the hub"]).await?;
    ensure!(!message.contains(&patched), "{message}");
    Ok(())
}

async fn names_of_secrets(fleet: &Fleet, ns: &str) -> Result<Vec<String>> {
    let listed = fleet.cluster.kubectl().run(&["get", "secrets", "--namespace", ns, "-o", "name"]).await?;
    Ok(listed.lines().map(|line| line.trim_start_matches("secret/").to_owned()).collect())
}

/// A server that speaks the protocol of Vault's transit engine for one token, and counts what it was asked.
struct Vault {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Vault {
    const TOKEN: &str = "vault-token-of-the-test";

    async fn start() -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let (port, asked) = (listener.local_addr()?.port(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Self::serve(stream, Arc::clone(&seen)));
            }
        });
        Ok(Self { port, asked })
    }

    /// One request; its base64 is "wrapped" by a prefix.
    async fn serve(stream: tokio::net::TcpStream, asked: Arc<Mutex<Vec<String>>>) -> Result<()> {
        let mut stream = tokio::io::BufReader::new(stream);
        let (mut first, mut length, mut token) = (String::new(), 0, String::new());
        stream.read_line(&mut first).await?;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse()?,
                "x-vault-token" => token = value.to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        asked.lock().map_err(|_| anyhow::anyhow!("poisoned"))?.push(format!("{} by {token}", first.trim()));
        let body: Value = serde_json::from_slice(&body)?;
        let (status, answer) = if token != Self::TOKEN {
            ("403 Forbidden", json!({ "errors": ["permission denied"] }))
        } else if first.contains("/encrypt/") {
            let text = body["plaintext"].as_str().unwrap_or_default();
            ("200 OK", json!({ "data": { "ciphertext": format!("vault:v1:{text}") } }))
        } else {
            let text = body["ciphertext"].as_str().unwrap_or_default().trim_start_matches("vault:v1:");
            ("200 OK", json!({ "data": { "plaintext": text } }))
        };
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            answer.len()
        );
        stream.write_all((head + &answer).as_bytes()).await?;
        Ok(())
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How often it was asked to decrypt.
    fn decrypted(&self) -> usize {
        self.asked.lock().map_or(0, |asked| asked.iter().filter(|line| line.contains("/decrypt/")).count())
    }
}

// The real sops is run while the server answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_service_is_asked_by_the_hub_once_and_only_where_its_credentials_belong() -> Result<()> {
    let (vault, other) = (Vault::start().await?, Vault::start().await?);
    let setup = HubSetup::new("sops-vault").await?;
    let setup = setup.arg(&format!("--allow-network=kms=127.0.0.1:{}", vault.port));
    let setup = setup.arg(&format!("--allow-network=kms=127.0.0.1:{}", other.port));
    let mut fleet = Fleet::start_on(setup).await?;
    let space = fleet.cluster.namespace("sops-vault").await?;
    let ns = space.name();
    let keys = Keys::new(&fleet.setup)?;
    let value = unique("value-by-vault");
    let encrypt = |vault: &Vault| {
        let key = format!("{}/v1/transit/keys/fleet", vault.address());
        let token = format!("VAULT_TOKEN={}", Vault::TOKEN);
        let args = [
            "--hc-vault-transit",
            &key,
            "--encrypted-regex",
            "^(data|stringData)$",
            "--encrypt",
            "secret.yaml",
        ];
        std::fs::write(keys.folder.join("secret.yaml"), secret(ns, "token", "token", &value))?;
        let sops = clients()?.join("bin/sops");
        let sops = sops.to_str().context("a path in UTF-8")?;
        keys.run("env", &[&[&*token, sops], &args[..]].concat())
    };
    let encrypted = tokio::task::block_in_place(|| encrypt(&vault))?;
    let repository = fleet.repository("app", &Commit::new().file("secret.yaml", encrypted)).await?;
    let token = format!("--from-literal=sops.vault-token={}", Vault::TOKEN);
    fleet.run(&["create", "secret", "generic", "sops-vault", &token]).await?;
    let decryption = ["decryption: {provider: sops, secretRef: {name: sops-vault}}"];
    fleet.apply(&kustomization("app", "app", "./", &decryption)).await?;
    // Whoever holds the token has to say where it may go.
    let parts = ["decryption failed for", "hc_vault", &*vault.address()];
    let message = fleet.fails("kustomization/app", "BuildFailed", &parts).await?;
    ensure!(message.contains("sops.vault-address") && vault.decrypted() == 0, "{message}");
    let address = format!(r#"{{"stringData":{{"sops.vault-address":"{}"}}}}"#, vault.address());
    fleet.run(&["patch", "secret", "sops-vault", "--type=merge", "-p", &address]).await?;
    has(&fleet, ns, "token", "token", &value).await?;
    fleet.ready("kustomization/app").await?;
    ensure!(vault.decrypted() == 1, "it was asked {} times", vault.decrypted());

    // Nothing has changed: nobody is asked.
    fleet.run(&["annotate", "kustomization/app", "reconcile.fluxcd.io/requestedAt=again"]).await?;
    eventually("it was reconciled", PATIENCE, || async {
        let handled = fleet.get("kustomization/app").await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == "again", "{handled}");
        Ok(())
    })
    .await?;
    ensure!(vault.decrypted() == 1, "it was asked {} times", vault.decrypted());

    // A committer who names a server of their own gets no token.
    let elsewhere = tokio::task::block_in_place(|| encrypt(&other))?;
    repository.commit("main", "Elsewhere", &Commit::new().file("secret.yaml", elsewhere))?;
    fleet.fetch("app").await?;
    fleet.fails("kustomization/app", "BuildFailed", &["hc_vault", &*other.address()]).await?;
    ensure!(other.decrypted() == 0, "the token went to a server that only a committer chose");

    // Neither did the agent get it.
    let token = Word::new("the Vault token", Vault::TOKEN);
    ensure!(!token.is_in(&memory(fleet.agent.id())?), "the agent has the token");
    let mut places = dump(&mut fleet.setup.database().connect().await?).await?;
    places.push(Place::new("the hub's log", fleet.hub.logs()));
    places.push(Place::new("the agent's log", fleet.agent.logs()));
    search(&[token, Word::new("a decrypted value", &value)], &places)?;

    // With the credentials in the cluster it is the agent that asks, and as seldom.
    let networks = format!("kms=127.0.0.1:{}", vault.port);
    fleet.agent.kill9().await?;
    fleet.agent.restart_with_env(&[("ROADSTEAD_ALLOW_NETWORK", &networks)])?;
    let (home, name) = (fleet.cluster.namespace("sops-home").await?, unique("sops-vault"));
    let cluster = fleet.cluster.kubectl();
    let token = format!("--from-literal=sops.vault-token={}", Vault::TOKEN);
    let address = format!("--from-literal=sops.vault-address={}", vault.address());
    cluster
        .run(&["create", "secret", "generic", &name, "--namespace", home.name(), &token, &address])
        .await?;
    let here = format!("decryption: {{provider: sops, location: Cluster, secretRef: {{name: {name}}}}}");
    fleet.apply(&at_home(home.name(), &[&here], "./")).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["hc_vault", &*other.address()]).await?;
    ensure!(other.decrypted() == 0, "the token went to a server that only a committer chose");
    let encrypted = tokio::task::block_in_place(|| encrypt(&vault))?;
    let head = repository.commit("main", "Here", &Commit::new().file("secret.yaml", encrypted))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    ensure!(vault.decrypted() == 2, "it was asked {} times", vault.decrypted());
    fleet
        .run(&["annotate", "--overwrite", "kustomization/app", "reconcile.fluxcd.io/requestedAt=once-more"])
        .await?;
    eventually("it was reconciled", PATIENCE, || async {
        let handled = fleet.get("kustomization/app").await?["status"]["lastHandledReconcileAt"].clone();
        ensure!(handled == "once-more", "{handled}");
        Ok(())
    })
    .await?;
    ensure!(vault.decrypted() == 2, "it was asked {} times", vault.decrypted());
    Ok(())
}
