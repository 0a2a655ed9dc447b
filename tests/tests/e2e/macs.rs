//! Encrypted files whose MACs do not fit: refused by name, or told on the hub where they are decrypted all the same.

use anyhow::{Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, HubSetup, PATIENCE, TestNamespace, eventually, kustomization, unique};

use crate::decryption::{Keys, at_home};
use crate::secrets::{Place, Word, dump, search};

/// What says that a file is decrypted in spite of its MAC.
const MISMATCH: &str = "MAC mismatch";
/// What to do about it.
const REPAIR: &str = "restore the file";

/// The Warning Events about MACs of the Kustomization `app`.
async fn warnings(fleet: &Fleet) -> Result<String> {
    let about =
        "--field-selector=involvedObject.kind=Kustomization,involvedObject.name=app,reason=MacNotVerified";
    fleet
        .run(&["get", "events", about, "--output=jsonpath={range .items[*]}{.type} {.message}{'\\n'}{end}"])
        .await
}

/// What the condition of the Kustomization `app` says of MACs; nothing where there is none.
async fn unverified(fleet: &Fleet) -> Result<String> {
    let app = fleet.get("kustomization/app").await?;
    let conditions = app["status"]["conditions"].as_array().into_iter().flatten();
    let of_macs = conditions.into_iter().find(|condition| condition["type"] == "MacNotVerified");
    Ok(of_macs.map_or_else(String::new, |condition| condition["message"].to_string()))
}

/// Waits until a Warning Event names all of these.
async fn warned(fleet: &Fleet, parts: &[&str]) -> Result<String> {
    eventually("a Warning Event tells of the MAC", PATIENCE, || async {
        let told = warnings(fleet).await?;
        for part in [&["Warning decrypted", MISMATCH, REPAIR, "spec.decryption.mac"], parts].concat() {
            ensure!(told.contains(part), "no `{part}` in `{told}`");
        }
        Ok(told)
    })
    .await
}

/// Of an env file, which the hub decrypts for the build, and of a value of a Secret, which the agent decrypts.
#[tokio::test]
async fn what_is_decrypted_in_spite_of_its_mac_is_told_on_the_hub() -> Result<()> {
    let fleet = Fleet::start("sops-macs").await?;
    let space = fleet.cluster.namespace("sops-macs").await?;
    let ns = space.name();
    let keys = Keys::new(&fleet.setup)?;
    let key = keys.age()?;
    let hidden = unique("hidden-value");
    let to = ["--age", &*key.recipient];
    // A value in plain text is what a committer changes.
    let env = keys.encrypt("words.env", &format!("password={hidden}\nnote_unencrypted=first\n"), &to)?;
    let file =
        format!("{{\"password\": \"{hidden}\", \"note_unencrypted\": \"first\", \"more\": \"{hidden}\"}}");
    let file = keys.encrypt("settings.json", &file, &to)?;
    let changed = |text: &str| text.replace("first", "other");
    let generator = format!(
        "namespace: {ns}\nsecretGenerator:\n- name: env\n  envs: [words.env]\n- name: settings\n  files: [settings.json]\n  options: \
         {{disableNameSuffixHash: true}}\n"
    );
    let files = Commit::new()
        .file("app/kustomization.yaml", generator)
        .file("app/words.env", changed(&env))
        .file("app/settings.json", changed(&file));
    let repository = fleet.repository("app", &files).await?;
    let literal = format!("--from-literal=age.agekey={}", key.identity);
    fleet.run(&["create", "secret", "generic", "sops-age", &literal]).await?;

    // Nothing is said about MACs: they are checked, first by the hub, and then by the agent.
    let verify = ["decryption: {provider: sops, secretRef: {name: sops-age}}"];
    fleet.apply(&kustomization("app", "app", "./app", &verify)).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["app/words.env", MISMATCH, REPAIR]).await?;
    repository.commit("main", "Mended", &Commit::new().file("app/words.env", env.clone()))?;
    fleet.fetch("app").await?;
    fleet.fails("kustomization/app", "BuildFailed", &["settings.json", MISMATCH, REPAIR]).await?;
    ensure!(warnings(&fleet).await?.is_empty(), "nothing was decrypted, and something is told");

    let warn = ["decryption: {provider: sops, mac: Warn, secretRef: {name: sops-age}}"];
    fleet.apply(&kustomization("app", "app", "./app", &warn)).await?;
    let message = fleet.ready("kustomization/app").await?;
    ensure!(message.starts_with("Applied revision: main@sha1:") && !message.contains("MAC"), "{message}");
    let message = unverified(&fleet).await?;
    ensure!(message.contains("settings.json") && message.contains(MISMATCH), "{message}");
    let settings = format!("Secret/{ns}/settings, value 'settings.json'");
    let told = warned(&fleet, &[&settings]).await?;
    ensure!(!told.contains("words.env"), "{told}");

    repository.commit("main", "Changed", &Commit::new().file("app/words.env", changed(&env)))?;
    fleet.fetch("app").await?;
    warned(&fleet, &["app/words.env, which secretGenerator 'env' of app reads", &settings]).await?;
    let message = unverified(&fleet).await?;
    for part in ["words.env", "settings.json", MISMATCH] {
        ensure!(message.contains(part), "no `{part}` in: {message}");
    }
    // A commit elsewhere changes nothing of that.
    let head = repository.commit("main", "Elsewhere", &Commit::new().file("other/file", "x"))?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    let message = unverified(&fleet).await?;
    ensure!(message.contains("words.env") && message.contains("settings.json"), "{message}");
    let path = "/fleet/v1/appliers/Kustomization/apps/app/reconciliations";
    let history = fleet.kubectl().run(&["get", "--raw", path]).await?;
    ensure!(history.contains("words.env") && history.contains(MISMATCH), "{history}");

    // Names of files and what to do, and nothing of what was decrypted.
    let words = [Word::new("a decrypted value", &hidden)];
    let mut places = dump(&mut fleet.setup.database().connect().await?).await?;
    places.push(Place::new("the history", history));
    places.push(Place::new("the hub's log", fleet.hub.logs()));
    places.push(Place::new("the agent's log", fleet.agent.logs()));
    search(&words, &places)?;

    // Whole files again: it is over.
    let whole = Commit::new().file("app/words.env", env).file("app/settings.json", file);
    let head = repository.commit("main", "Whole", &whole)?;
    fleet.fetch("app").await?;
    fleet.applied("app", &head).await?;
    let message = unverified(&fleet).await?;
    ensure!(message.is_empty(), "{message}");
    Ok(())
}

/// A hub with this `--sops-mac`, whose agent decrypts a changed file of a Kustomization.
struct Changed {
    fleet: Fleet,
    _space: TestNamespace,
    home: TestNamespace,
    /// The Secret with the key, in the cluster.
    secret: String,
}

impl Changed {
    async fn new(sops_mac: &str) -> Result<Self> {
        let setup = HubSetup::new("sops-macs").await?.arg(&format!("--sops-mac={sops_mac}"));
        let fleet = Fleet::start_on(setup).await?;
        let (space, home) =
            (fleet.cluster.namespace("sops-macs").await?, fleet.cluster.namespace("sops-home").await?);
        let keys = Keys::new(&fleet.setup)?;
        let key = keys.age()?;
        let file = r#"{"password": "hidden", "note_unencrypted": "first"}"#;
        let file = keys.encrypt("settings.json", file, &["--age", &key.recipient])?;
        let generator = format!(
            "namespace: {}\nsecretGenerator:\n- name: settings\n  files: [settings.json]\n  options: {{disableNameSuffixHash: true}}\n",
            space.name()
        );
        let files = Commit::new()
            .file("app/kustomization.yaml", generator)
            .file("app/settings.json", file.replace("first", "other"));
        fleet.repository("app", &files).await?;
        let (secret, literal) = (unique("sops-age"), format!("--from-literal=age.agekey={}", key.identity));
        let args = ["create", "secret", "generic", &secret, "--namespace", home.name(), &literal];
        fleet.cluster.kubectl().run(&args).await?;
        Ok(Self { fleet, _space: space, home, secret })
    }

    /// Applies the Kustomization, with this in its `decryption`.
    async fn apply(&self, mac: &str) -> Result<()> {
        let decryption = format!("decryption: {{provider: sops, {mac}secretRef: {{name: {}}}}}", self.secret);
        self.fleet.apply(&at_home(self.home.name(), &[&decryption], "./app")).await.map(drop)
    }

    async fn fails(&self, parts: &[&str]) -> Result<()> {
        self.fleet.fails("kustomization/app", "BuildFailed", parts).await.map(drop)
    }
}

/// The operator's word counts where a Kustomization says nothing, and one that is stricter may be.
#[tokio::test]
async fn the_operator_can_have_files_decrypted_in_spite_of_their_macs() -> Result<()> {
    let changed = Changed::new("warn").await?;
    changed.apply("").await?;
    changed.fleet.ready("kustomization/app").await?;
    warned(&changed.fleet, &["settings.json", "--sops-mac"]).await?;
    changed.apply("mac: Verify, ").await?;
    changed.fails(&["settings.json", MISMATCH]).await
}

/// Where it is forbidden not to look, the message says what to do.
#[tokio::test]
async fn the_operator_can_forbid_to_pass_over_macs() -> Result<()> {
    let changed = Changed::new("enforce").await?;
    changed.apply("mac: Warn, ").await?;
    let parts = ["spec.decryption.mac Warn is not allowed", "--sops-mac=enforce", "set it to Verify"];
    changed.fails(&parts).await?;
    changed.apply("").await?;
    changed.fails(&["settings.json", MISMATCH, REPAIR]).await
}
