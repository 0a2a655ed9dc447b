//! One source in two hands: Flux's own source-controller on a cluster, and a hub. Both fetch from the same servers.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roadstead_tests::{Fleet, FluxSources, Kubectl, PATIENCE, eventually};
use serde_json::Value;

use super::content::Content;
use super::differences::DIFFERENCES;
use crate::artifact_store::artifact_of;
use crate::parity::{Finding, Names, Told, told};

/// Flux's controller works on two sources of a kind at once, so that one may wait for others.
const WAIT: Duration = Duration::from_secs(2 * PATIENCE.as_secs());

/// Both sides of one scenario: a source of its name, in a namespace of the same name on both.
pub(super) struct Pair<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) flux: &'a FluxSources,
    pub(super) ns: &'a str,
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    names: Names,
    asked: RefCell<Option<String>>,
    /// What differed at each stage.
    pub(super) findings: RefCell<Vec<Finding>>,
}

impl<'a> Pair<'a> {
    pub(super) fn new(
        (fleet, flux): (&'a Fleet, &'a FluxSources),
        ns: &'a str,
        (kind, name): (&'static str, &'static str),
    ) -> Self {
        Self {
            fleet,
            flux,
            ns,
            kind,
            name,
            names: Names::from([(ns.to_owned(), "NAMESPACE".to_owned())]),
            asked: RefCell::default(),
            findings: RefCell::default(),
        }
    }

    /// The kind, by a name that no other group has.
    fn plural(&self) -> String {
        let kind = self.kind.to_lowercase();
        let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
        format!("{plural}.source.toolkit.fluxcd.io")
    }

    /// Writes the scenario's source with these lines of its spec, on both sides.
    pub(super) async fn source(&self, lines: &[&str]) -> Result<()> {
        self.other(self.kind, self.name, lines).await
    }

    /// Waits until another source has its artifact on both sides.
    pub(super) async fn ready(&self, object: &str) -> Result<()> {
        for kubectl in self.sides() {
            let wait = ["wait", object, "--for=condition=Ready", "--timeout=60s", "--namespace", self.ns];
            kubectl.run(&wait).await?;
        }
        Ok(())
    }

    /// Writes another source.
    pub(super) async fn other(&self, kind: &str, name: &str, lines: &[&str]) -> Result<()> {
        let interval =
            if lines.iter().any(|line| line.starts_with("interval:")) { "" } else { "interval: 1h" };
        let manifest = format!(
            "apiVersion: source.toolkit.fluxcd.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {}, annotations: \
             {{event.toolkit.fluxcd.io/stage: test}}}}\nspec:\n  {interval}\n  {}\n",
            self.ns,
            lines.join("\n  ")
        );
        self.everywhere(&manifest).await
    }

    /// Writes objects on both sides.
    pub(super) async fn everywhere(&self, manifest: &str) -> Result<()> {
        for kubectl in self.sides() {
            kubectl.apply(manifest).await?;
        }
        Ok(())
    }

    /// Keeps texts in a Secret on both sides.
    pub(super) async fn secret(&self, name: &str, texts: &[(&str, &str)]) -> Result<()> {
        let texts: serde_json::Map<String, Value> =
            texts.iter().map(|(key, text)| ((*key).to_owned(), Value::from(*text))).collect();
        let secret = serde_json::json!({ "apiVersion": "v1", "kind": "Secret", "stringData": texts,
                                         "metadata": { "name": name, "namespace": self.ns } });
        self.everywhere(&secret.to_string()).await
    }

    /// A line of kubectl about the source, on both sides.
    pub(super) async fn both(&self, verb: &[&str], rest: &[&str]) -> Result<()> {
        let object = format!("{}/{}", self.plural(), self.name);
        let args = [verb, &[object.as_str()], rest, &["--namespace", self.ns]].concat();
        for kubectl in self.sides() {
            kubectl.run(&args).await?;
        }
        Ok(())
    }

    /// Asks both to look now, which the next stage waits for.
    pub(super) async fn ask(&self) -> Result<()> {
        // The same on both sides, and in each run.
        let count = self.asked.borrow().as_deref().map_or(0, str::len);
        let token = "again".to_owned() + &"!".repeat(count.saturating_sub("again".len()) + 1);
        let annotation = format!("reconcile.fluxcd.io/requestedAt={token}");
        self.both(&["annotate", "--overwrite"], &[&annotation]).await?;
        *self.asked.borrow_mut() = Some(token);
        Ok(())
    }

    /// Flux's side, and the hub's.
    fn sides(&self) -> [&Kubectl; 2] {
        [self.flux.kubectl(), self.fleet.kubectl()]
    }

    async fn object(&self, kubectl: &Kubectl) -> Result<Option<Value>> {
        let objects = kubectl.get(&[&self.plural(), "--namespace", self.ns]).await?;
        let is_it = |one: &&Value| one["metadata"]["name"] == self.name;
        Ok(objects["items"].as_array().into_iter().flatten().find(is_it).cloned())
    }

    async fn tells(&self, kubectl: &Kubectl) -> Result<Told> {
        let object = self.object(kubectl).await?;
        let events = kubectl.get(&["events", "--namespace", self.ns]).await?;
        let events = events["items"].as_array().into_iter().flatten();
        let about = |event: &&Value| {
            event["involvedObject"]["kind"] == self.kind && event["involvedObject"]["name"] == self.name
        };
        let events: Vec<Value> = events.filter(about).cloned().collect();
        let mut told = told(object.as_ref(), &events, &self.names);
        // Messages differ; whether something is told is the same.
        for event in &events {
            let [type_, reason] = ["type", "reason"].map(|key| event[key].as_str().unwrap_or_default());
            told.fields.insert(format!("events.{type_} {reason}"), "told".to_owned());
        }
        Ok(told)
    }

    /// Waits until Flux has got to `ready` (`STATUS REASON`) with `part` in the message, and the hub to all that Flux tells but for what
    /// is known to differ; what differs besides is noted. Where both have an artifact, its content is compared, too.
    pub(super) async fn same(&self, stage: &str, ready: &str, part: &str) -> Result<()> {
        eventually(&format!("Flux: {} {stage}", self.name), WAIT, || async {
            let told = self.tells(self.flux.kubectl()).await?;
            let is = |key: &str| told.fields.get(key).map(String::as_str).unwrap_or_default();
            ensure!(is("Ready") == ready && is("Ready.message").contains(part), "it tells {told:#?}");
            if let Some(asked) = &*self.asked.borrow() {
                ensure!(is("lastHandledReconcileAt") == asked, "it has not handled {asked}: {told:#?}");
            }
            Ok(())
        })
        .await
        .with_context(|| of(&self.flux.logs(), self.name))?;
        self.compare(stage).await
    }

    /// Waits until a file of what is included is in the artifacts of both sides. Flux looks where it is asked to.
    pub(super) async fn included(&self, file: &str) -> Result<()> {
        eventually(&format!("{file} is included"), WAIT, || async {
            self.ask().await?;
            if let [Some(flux), Some(hub)] = self.artifacts().await? {
                let contents =
                    [Content::of(self.kind, &flux)?.to_string(), Content::of(self.kind, &hub)?.to_string()];
                ensure!(contents.iter().all(|content| content.contains(file)), "they hold {contents:#?}");
                return Ok(());
            }
            anyhow::bail!("there is no artifact")
        })
        .await
    }

    /// Waits until the source is gone on both sides.
    pub(super) async fn gone(&self, stage: &str) -> Result<()> {
        eventually(&format!("{} is gone", self.name), WAIT, || async {
            for kubectl in self.sides() {
                ensure!(self.object(kubectl).await?.is_none(), "it is there");
            }
            Ok(())
        })
        .await?;
        self.compare(stage).await
    }

    /// Compares until nothing unexpected differs, or for as long as one has patience; then what differs is noted.
    async fn compare(&self, stage: &str) -> Result<()> {
        let at = format!("{}/{stage}", self.name);
        let seen = RefCell::new(Vec::new());
        let alike: Result<()> = eventually(&at, PATIENCE / 6, || async {
            let [mut flux, mut hub] =
                [self.tells(self.flux.kubectl()).await?, self.tells(self.fleet.kubectl()).await?];
            let contents = self.contents().await?;
            for (told, content) in [&mut flux, &mut hub].into_iter().zip(contents) {
                told.fields.extend(content.map(|content| ("artifact.content".to_owned(), content)));
            }
            let all = Finding::all(&at, &flux, &hub);
            let unlisted: Vec<String> =
                all.iter().filter(|one| one.listed(DIFFERENCES).is_none()).map(ToString::to_string).collect();
            seen.replace(all);
            ensure!(unlisted.is_empty(), "{}", unlisted.join("\n"));
            Ok(())
        })
        .await;
        let seen = seen.take();
        if seen.is_empty() {
            return alike.with_context(|| format!("{at}: nothing was compared"));
        }
        // That it differs is told at the end, with all else that does.
        self.findings.borrow_mut().extend(seen);
        Ok(())
    }

    /// The artifacts of both sides, where there are any.
    async fn artifacts(&self) -> Result<[Option<Vec<u8>>; 2]> {
        let is_there = |object: &Value| object["status"]["artifact"].is_object();
        let flux = self.object(self.flux.kubectl()).await?.filter(is_there);
        let flux = flux.map(|object| self.flux.artifact(&object)).transpose()?;
        if self.object(self.fleet.kubectl()).await?.filter(is_there).is_none() {
            return Ok([flux, None]);
        }
        let source = format!("{}/{}/{}", self.kind, self.ns, self.name);
        let (status, bytes) = artifact_of(self.fleet.kubectl(), &source, None).await?;
        ensure!(status.is_success(), "the hub answers {status} to who asks for an artifact");
        Ok([flux, Some(bytes)])
    }

    /// What is in them, where that is not the same.
    async fn contents(&self) -> Result<[Option<String>; 2]> {
        let [flux, hub] = self.artifacts().await?;
        let shown = |bytes: Option<Vec<u8>>| bytes.map(|bytes| Content::of(self.kind, &bytes)).transpose();
        let (flux, hub) = (shown(flux)?, shown(hub)?);
        if flux == hub {
            return Ok([None, None]);
        }
        Ok([flux, hub].map(|content| content.map(|content| content.to_string())))
    }
}

/// The lines of a log that are about a source.
fn of(log: &str, name: &str) -> String {
    let named = format!("\"name\":\"{name}\"");
    log.lines().filter(|line| line.contains(&named)).collect::<Vec<_>>().join("\n")
}
