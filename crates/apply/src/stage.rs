//! Applying, stage by stage: the whole stage is validated by dry-run before anything of it is written. Where each object is by itself,
//! those that fail hold up no others.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use roadstead_model::{Action, Confidential, ObjectRef, PendingDeletion, Stage};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::answer::{Told, told};
use crate::difference::{differ, tell_difference};
use crate::directives::{Directives, Ssa};
use crate::discovery::get;
use crate::engine::Engine;
use crate::error::{FailureKind, ObjectFailure};
use crate::failure::explain;
use crate::order::Part;
use crate::pointer::{self, Pointer};
use crate::prepare::Planned;
use crate::run::{Event, Outcome, Run};
use crate::side_by_side::side_by_side;
use crate::takeover::Restarts;
use crate::transport::{Answer, Call, Form, Refusal};
use crate::volumes::volume_held;
use crate::wait::{Goal, wait};
use crate::{
    Applied, Error, FIELD_MANAGER, Footprint, OWNER_LABEL, Prepared, Scope, compare, flux, takeover,
};

/// How long a kind whose CRD was just established may be answered with 404.
const NEW_KIND_GRACE: Duration = Duration::from_secs(10);

/// How often a write is sent that someone else's write got in the way of.
const CONFLICT_TRIES: usize = 4;

/// What a dry-run showed that there is to do.
pub(crate) enum Verdict {
    Create,
    Configure { takeover: Option<(Value, Restarts)>, adopts: bool, ignored: Vec<Pointer> },
    Recreate,
    Unchanged,
    Skip,
}

impl Verdict {
    fn action(&self) -> Action {
        match self {
            Self::Create => Action::Created,
            Self::Configure { adopts: false, .. } => Action::Configured,
            Self::Configure { adopts: true, .. } => Action::Adopted,
            Self::Recreate => Action::Recreated,
            Self::Unchanged => Action::Unchanged,
            Self::Skip => Action::Skipped,
        }
    }
}

pub(crate) async fn apply(
    engine: &Engine,
    prepared: &Prepared,
    previous: &[ObjectRef],
    run: &mut Run<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut owned: BTreeSet<ObjectRef> = previous.iter().cloned().collect();
    let mut left = Left::default();
    for stage in &prepared.stages {
        if let Err(error) = apply_stage(engine, stage, run, &mut outcome, &mut owned, &mut left).await {
            outcome.error = Some(error);
            break;
        }
    }
    if let (None, Some(stage)) = (&outcome.error, left.stage) {
        outcome.error = Some(Error::objects(stage, left.failures));
    }
    outcome.inventory = owned.into_iter().collect();
    outcome
}

/// What could not be applied, of objects that are each by itself.
#[derive(Default)]
struct Left {
    /// How far the first of them got; none where there are none.
    stage: Option<Stage>,
    failures: Vec<ObjectFailure>,
}

impl Left {
    /// Takes the failures of a stage; they are the stage's error where its objects belong together.
    fn take(&mut self, engine: &Engine, stage: Stage, failures: Vec<ObjectFailure>) -> Result<(), Error> {
        if failures.is_empty() {
            return Ok(());
        }
        if !engine.each_by_itself {
            return Err(Error::objects(stage, failures));
        }
        self.stage.get_or_insert(stage);
        self.failures.extend(failures);
        Ok(())
    }
}

/// An object, and what there is to do with it.
type Judged = (Arc<Planned>, Verdict);

async fn apply_stage(
    engine: &Engine,
    stage: &[Arc<Planned>],
    run: &mut Run<'_>,
    outcome: &mut Outcome,
    owned: &mut BTreeSet<ObjectRef>,
    left: &mut Left,
) -> Result<(), Error> {
    let began = Instant::now();
    let judged = validate_stage(engine, stage, run, left).await;
    outcome.spent(Stage::Validate, began);
    let judged = judged?;

    let began = Instant::now();
    let definitions = definitions(&judged);
    let written = write_stage(engine, judged, run, outcome, owned, left).await;
    let usable = match written {
        // What is observed may not be there to be waited for.
        Ok(()) if engine.observes => Ok(()),
        Ok(()) => wait_usable(engine, &definitions, run).await,
        Err(error) => Err(error),
    };
    outcome.spent(Stage::Apply, began);
    usable
}

/// Dry-runs every object of a stage. All failures are collected, so that all of them can be mended at once.
async fn validate_stage(
    engine: &Engine,
    stage: &[Arc<Planned>],
    run: &mut Run<'_>,
    left: &mut Left,
) -> Result<Vec<Judged>, Error> {
    run.check(Stage::Validate)?;
    let mut verdicts: Vec<Option<Verdict>> = std::iter::repeat_with(|| None).take(stage.len()).collect();
    let mut failures = Vec::new();
    let work = stage
        .iter()
        .cloned()
        .enumerate()
        .map(|(index, planned)| async move { (index, validate(engine, &planned).await) });
    let Run { cancel, events, .. } = run;
    side_by_side(engine.options.concurrency, work, &|| !cancel.is_cancelled(), &mut |(index, result)| {
        match result {
            Ok(verdict) => {
                events(Event::Validated { object: stage[index].reference.clone(), action: verdict.action() });
                verdicts[index] = Some(verdict);
            }
            Err(failure) => failures.push(failure),
        }
    })
    .await;
    // What failed for want of time says less than that the time is over.
    if !failures.is_empty() && failures.iter().all(|failure| failure.kind == FailureKind::Unavailable) {
        run.check(Stage::Validate)?;
    }
    let failed = failures.len();
    left.take(engine, Stage::Validate, failures)?;
    let judged: Vec<Judged> = stage
        .iter()
        .zip(verdicts)
        .filter_map(|(planned, verdict)| Some((Arc::clone(planned), verdict?)))
        .collect();
    // Only a cancelled run leaves any of them open.
    if judged.len() + failed < stage.len() {
        return Err(Error::Cancelled { stage: Stage::Validate });
    }
    Ok(judged)
}

/// Writes what differs: first everything but the webhook configurations, then those.
async fn write_stage(
    engine: &Engine,
    judged: Vec<Judged>,
    run: &mut Run<'_>,
    outcome: &mut Outcome,
    owned: &mut BTreeSet<ObjectRef>,
    left: &mut Left,
) -> Result<(), Error> {
    run.check(Stage::Apply)?;
    let mut waves = [Vec::new(), Vec::new()];
    for (planned, verdict) in judged {
        owned.insert(planned.reference.clone());
        match verdict {
            Verdict::Unchanged | Verdict::Skip => {
                let result = outcome.changed(planned.reference.clone(), verdict.action());
                run.tell(Event::Applied(result));
            }
            Verdict::Create | Verdict::Configure { .. } | Verdict::Recreate if engine.observes => {
                let result = outcome.changed(planned.reference.clone(), Action::Drifted);
                run.tell(Event::Applied(result));
            }
            Verdict::Create | Verdict::Configure { .. } | Verdict::Recreate => {
                waves[usize::from(planned.place.is_last())].push((planned, verdict));
            }
        }
    }
    for wave in waves {
        let mut failures = Vec::new();
        let work = wave.into_iter().map(|(planned, verdict)| async move {
            let mut held = None;
            let written = write(engine, &planned, verdict, &mut held).await;
            (planned, held, written)
        });
        let Run { cancel, events, .. } = &mut *run;
        side_by_side(engine.options.concurrency, work, &|| !cancel.is_cancelled(), &mut |(
            planned,
            held,
            result,
        )| {
            outcome.held.extend(held);
            match result {
                Ok(action) => events(Event::Applied(outcome.changed(planned.reference.clone(), action))),
                Err(failure) => failures.push(failure),
            }
        })
        .await;
        left.take(engine, Stage::Apply, failures)?;
        run.check(Stage::Apply)?;
    }
    Ok(())
}

/// The CRDs of a stage that later ones may need.
fn definitions(judged: &[Judged]) -> Vec<ObjectRef> {
    let is_crd = |(planned, _): &&Judged| {
        planned.place.part == Part::Definitions && planned.reference.kind == "CustomResourceDefinition"
    };
    judged.iter().filter(is_crd).map(|(planned, _)| planned.reference.clone()).collect()
}

/// Waits until later stages can use the CRDs of this one.
async fn wait_usable(engine: &Engine, crds: &[ObjectRef], run: &mut Run<'_>) -> Result<(), Error> {
    if crds.is_empty() {
        return Ok(());
    }
    let waited = wait(engine, crds, Goal::Healthy, run).await;
    // Their names are `<plural>.<group>`.
    for (_, group) in crds.iter().filter_map(|crd| crd.name.split_once('.')) {
        engine.discovery.forget(group);
    }
    match waited.error {
        None => Ok(()),
        // Not the health that people asked for: without these, the rest cannot be applied.
        Some(Error::NotHealthy { unhealthy, total, timed_out, .. }) => {
            Err(Error::NotHealthy { stage: Stage::Apply, unhealthy, total, timed_out })
        }
        Some(other) => Err(other),
    }
}

/// The PATCH that applies an object.
fn patch(planned: &Planned, dry_run: bool) -> Call {
    let path = planned.resource.path(&planned.reference);
    let dry_run = if dry_run { "&dryRun=All" } else { "" };
    Call {
        method: Method::PATCH,
        path: format!("{path}?fieldManager={FIELD_MANAGER}&force=true{dry_run}"),
        // JSON is YAML.
        content_type: "application/apply-patch+yaml",
        body: planned.body.clone(),
        form: Form::Whole,
    }
}

/// Sends the PATCH; again where another write got in between, or where the kind is so new that it is not served yet.
async fn send_patch(engine: &Engine, planned: &Planned, dry_run: bool) -> Result<Answer, Refusal> {
    let call = patch(planned, dry_run);
    let began = Instant::now();
    let mut tries = 0;
    loop {
        let refusal = match engine.transport.send(&call).await {
            Ok(answer) => return Ok(answer),
            Err(refusal) => refusal,
        };
        tries += 1;
        let is_race = match &refusal {
            Refusal::Status(status) => status.code == 409 && tries < CONFLICT_TRIES,
            Refusal::Unreachable(_) | Refusal::TooLarge(_) => false,
        };
        if is_race && failure(planned, &refusal).kind == FailureKind::Conflict {
            continue;
        }
        if !is_kind_missing(planned, &refusal) {
            return Err(refusal);
        }
        if !planned.is_new_kind || began.elapsed() > NEW_KIND_GRACE {
            engine.discovery.forget(&planned.reference.group);
            return Err(refusal);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Whether a 404 is about the kind itself, not about a namespace that is not there.
fn is_kind_missing(planned: &Planned, refusal: &Refusal) -> bool {
    let Refusal::Status(status) = refusal else { return false };
    let names_something = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && (planned.reference.namespace.is_empty() || !names_something)
}

fn failure(planned: &Planned, refusal: &Refusal) -> ObjectFailure {
    explain(&planned.reference, refusal, planned.sensitive)
}

pub(crate) async fn validate(engine: &Engine, planned: &Planned) -> Result<Verdict, ObjectFailure> {
    if planned.directives.ssa == Ssa::Ignore || planned.directives.never_reconcile {
        return Ok(Verdict::Skip);
    }
    if engine.ledger.as_ref().is_some_and(|ledger| ledger.stands(&planned.reference, &planned.digest)) {
        return Ok(Verdict::Unchanged);
    }
    let mut tries = 0;
    loop {
        tries += 1;
        let wanted = match send_patch(engine, planned, true).await {
            // An apply answers 201 exactly where there was no object, in a dry-run too: it saves a read.
            Ok(answer) if answer.status == StatusCode::CREATED => return Ok(created(engine, planned)),
            Ok(answer) => answer.value,
            // What it stands in is gone, too.
            Err(refusal) if engine.observes && refusal.is_not_found() => return Ok(created(engine, planned)),
            Err(refusal) if engine.each_by_itself && refusal.is_of_ending_namespace() => {
                return Ok(Verdict::Skip);
            }
            Err(refusal) => return refused(engine, planned, &refusal).await,
        };
        let ignored = planned.ignore.fields(&planned.reference, &wanted);
        let live = match told(engine, planned, &wanted, !ignored.is_empty()) {
            Some(Told::Changed) => return Ok(Verdict::Configure { takeover: None, adopts: false, ignored }),
            Some(Told::Unchanged) => Cow::Borrowed(&wanted),
            None => match read_live(engine, planned).await? {
                Some(live) => Cow::Owned(live),
                None => return Ok(created(engine, planned)),
            },
        };
        if leaves_alone(planned, &live) {
            note(engine, planned, &live, Noted::Left);
            return Ok(Verdict::Skip);
        }
        if live.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()) {
            if engine.each_by_itself {
                return Ok(Verdict::Skip);
            }
            let message = "it is being deleted; it can be applied again once it is gone".to_owned();
            return Err(ObjectFailure {
                object: planned.reference.clone(),
                kind: FailureKind::Conflict,
                message,
            });
        }
        if let Some(failure) = is_of_flux(planned, &live) {
            return Err(failure);
        }
        let takes_over = |restarts| {
            let overrides = planned.directives.ssa == Ssa::Override;
            overrides.then(|| takeover::takeover(&live, restarts, &planned.adopts)).flatten()
        };
        let takeover = takes_over(Restarts::Stay);
        let differs = differs(planned, &live, &wanted, &ignored);
        let extras = match takeover {
            Some(_) => takeover::extras(&live, &wanted, Restarts::Stay, &planned.adopts),
            None => Vec::new(),
        };
        // Whose its fields are is nobody's concern where nothing is written.
        if !differs && (takeover.is_none() || engine.observes && extras.is_empty()) {
            let noted = if takeover.is_none() { Noted::AsSent } else { Noted::Shared };
            note(engine, planned, &live, noted);
            return Ok(Verdict::Unchanged);
        }
        // What another wrote between the two is not a difference of ours: a controller writes to what was just applied.
        if takeover.is_none() && version(&live) != version(&wanted) && tries < CONFLICT_TRIES {
            continue;
        }
        // A restart that somebody asked for stays until what is to be applied is something else.
        let was_other = engine.ledger.as_ref().and_then(|l| l.was_other(&planned.reference, &planned.digest));
        // Nor does it go because the object changes hands: no pod is restarted for that.
        let is_adopted = planned.adopts.flux && flux::owner(&live).is_some();
        let is_other = differs && was_other != Some(false) && !is_adopted;
        let restarts = if is_other { Restarts::Go } else { Restarts::Stay };
        let takeover = if is_other { takes_over(restarts) } else { takeover };
        let takeover = takeover.map(|patch| (patch, restarts));
        tell_difference(engine, planned, |difference| {
            differ(engine, difference, planned, &live, &wanted, &ignored, extras);
        });
        return Ok(Verdict::Configure { takeover, adopts: !is_owned(planned, &live), ignored });
    }
}

/// That an object has to be created.
fn created(engine: &Engine, planned: &Planned) -> Verdict {
    tell_difference(engine, planned, |difference| difference.missing = true);
    Verdict::Create
}

/// Whether applying would change more than what is ignored. Whose an object is, is never ignored.
fn differs(planned: &Planned, live: &Value, wanted: &Value, ignored: &[Pointer]) -> bool {
    if ignored.is_empty() {
        return compare::differs(live, wanted);
    }
    !is_owned(planned, live)
        || compare::differs(&pointer::without(live, ignored), &pointer::without(wanted, ignored))
}

/// Whether an object that is there bears the label of its owner to be.
fn is_owned(planned: &Planned, live: &Value) -> bool {
    let label = live.pointer("/metadata/labels").and_then(|labels| labels.get(OWNER_LABEL));
    label.and_then(Value::as_str).is_some_and(|owner| owner == planned.owner.to_string())
}

/// The version that an object has; that of a dry-run's answer is the version that it would have changed.
fn version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str)
}

/// What a refused dry-run means: nothing, where the live object is to be left alone; a recreation, where that is
/// allowed and would help.
async fn refused(engine: &Engine, planned: &Planned, refusal: &Refusal) -> Result<Verdict, ObjectFailure> {
    let failure = failure(planned, refusal);
    if !matches!(failure.kind, FailureKind::Invalid | FailureKind::Immutable | FailureKind::Conflict) {
        return Err(failure);
    }
    let Ok(Some(live)) = read_live(engine, planned).await else { return Err(failure) };
    if leaves_alone(planned, &live) {
        note(engine, planned, &live, Noted::Left);
        return Ok(Verdict::Skip);
    }
    if failure.kind != FailureKind::Immutable || !(planned.force || engine.observes) {
        return Err(failure);
    }
    tell_difference(engine, planned, |difference| {
        difference.footprint = Some(Footprint::of(&live, &engine.hashes.footprints));
    });
    Ok(Verdict::Recreate)
}

pub(crate) async fn read_live(engine: &Engine, planned: &Planned) -> Result<Option<Value>, ObjectFailure> {
    engine.read_at(&planned.reference, planned.resource.path(&planned.reference)).await
}

/// Whether an object that is there is not to be touched.
fn leaves_alone(planned: &Planned, live: &Value) -> bool {
    let asked = Directives::of(live);
    asked.never_reconcile
        || matches!(asked.ssa, Ssa::IfNotPresent | Ssa::Ignore)
        || planned.directives.ssa == Ssa::IfNotPresent
}

/// How a live object is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Noted {
    /// As it was sent.
    AsSent,
    /// The same, but others have fields of it, which they could change without a trace.
    Shared,
    /// It was left as it is.
    Left,
}

/// Why an object is not written that a Flux in the cluster keeps, unless it is to be taken over, or is to have just these labels.
fn is_of_flux(planned: &Planned, live: &Value) -> Option<ObjectFailure> {
    let owner = flux::owner(live).filter(|_| !planned.adopts.flux)?;
    // Of our own making, so that it reads.
    let wanted: Value = serde_json::from_slice(&planned.body).unwrap_or_default();
    (flux::owner(&wanted).as_ref() != Some(&owner)).then(|| ObjectFailure {
        object: planned.reference.clone(),
        kind: FailureKind::Conflict,
        message: format!(
            "it is owned by Kustomization {owner} of the Flux in this cluster: to take it over, set spec.adopt: [Flux] of the Kustomization or the Cluster"
        ),
    })
}

/// Keeps how an object was applied.
fn note(engine: &Engine, planned: &Planned, live: &Value, noted: Noted) {
    let Some(ledger) = &engine.ledger else { return };
    let applied = Applied {
        sent: planned.digest,
        scope: Scope::of(&planned.reference, &planned.resource),
        footprint: Footprint::of(live, &engine.hashes.footprints),
        is_as_sent: noted != Noted::Left,
        is_shared: noted == Noted::Shared,
    };
    ledger.note(&planned.reference, applied);
}

async fn write(
    engine: &Engine,
    planned: &Planned,
    verdict: Verdict,
    held: &mut Option<PendingDeletion>,
) -> Result<Action, ObjectFailure> {
    let action = verdict.action();
    let (takeover, ignored) = match verdict {
        Verdict::Unchanged | Verdict::Skip => return Ok(action),
        Verdict::Recreate => return recreate(engine, planned, held).await,
        Verdict::Create => (None, Vec::new()),
        Verdict::Configure { takeover, ignored, .. } => (takeover, ignored),
    };
    if let Some((patch, restarts)) = takeover {
        take_over(engine, planned, patch, restarts).await?;
    }
    let sent = if ignored.is_empty() {
        send_patch(engine, planned, false).await
    } else {
        send_leaving(engine, planned, &ignored).await
    };
    let refusal = match sent {
        Ok(answer) => {
            note(engine, planned, &answer.value, Noted::AsSent);
            return Ok(match (answer.status, action) {
                (StatusCode::CREATED, _) => Action::Created,
                // Somebody made it since the dry-run; or we did, and did not hear the answer.
                (_, Action::Created) => Action::Configured,
                (_, action) => action,
            });
        }
        Err(refusal) => refusal,
    };
    let failure = failure(planned, &refusal);
    // Some fields are found immutable only when written.
    if failure.kind == FailureKind::Immutable && planned.force {
        return recreate(engine, planned, held).await;
    }
    Err(failure)
}

/// Sends the PATCH with ignored fields as they are on the live object at that moment; again where it changed meanwhile.
async fn send_leaving(engine: &Engine, planned: &Planned, ignored: &[Pointer]) -> Result<Answer, Refusal> {
    let mut tries = 0;
    loop {
        tries += 1;
        let live = match engine.transport.send(&get(planned.resource.path(&planned.reference))).await {
            Ok(answer) => answer.value,
            // Deleted meanwhile: it is created with every field as desired.
            Err(refusal) if refusal.is_not_found() => return send_patch(engine, planned, false).await,
            Err(refusal) => return Err(refusal),
        };
        // An object that changes all the time has its status changed; the last try does not insist.
        let insists = tries < CONFLICT_TRIES;
        let call = Call { body: body_leaving(planned, &live, ignored, insists), ..patch(planned, false) };
        match engine.transport.send(&call).await {
            Err(refusal) if insists && refusal.code() == Some(409) => {}
            answered => return answered,
        }
    }
}

/// What is sent of an object of which fields are ignored; if it `insists`, for the live object in this version only.
fn body_leaving(planned: &Planned, live: &Value, ignored: &[Pointer], insists: bool) -> Bytes {
    // Of our own making, so that it reads.
    let mut body: Confidential = serde_json::from_slice::<Value>(&planned.body).unwrap_or_default().into();
    pointer::leave(&mut body, live, ignored);
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(OWNER_LABEL.to_owned(), planned.owner.to_string().into());
        }
        if let Some(version) = version(live).filter(|_| insists) {
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
    }
    Bytes::from_owner(body.to_bytes())
}

/// The PATCH that changes whose an object at `path` is.
pub(crate) fn json_patch(path: &str, patch: &Value) -> Call {
    Call {
        method: Method::PATCH,
        path: format!("{path}?fieldManager={FIELD_MANAGER}"),
        content_type: "application/json-patch+json",
        body: Bytes::from(patch.to_string()),
        form: Form::Whole,
    }
}

/// Makes the fields of earlier tools ours, with a fresh look where the object changed since.
async fn take_over(
    engine: &Engine,
    planned: &Planned,
    mut patch: Value,
    restarts: Restarts,
) -> Result<(), ObjectFailure> {
    for _ in 0..CONFLICT_TRIES {
        let call = json_patch(&planned.resource.path(&planned.reference), &patch);
        let refusal = match engine.transport.send(&call).await {
            Ok(_) => return Ok(()),
            Err(refusal) if refusal.is_not_found() => return Ok(()),
            Err(refusal) => refusal,
        };
        // The patch's test of the resource version fails as 422.
        if !matches!(refusal.code(), Some(409 | 422)) {
            return Err(failure(planned, &refusal));
        }
        let Some(live) = read_live(engine, planned).await? else { return Ok(()) };
        match takeover::takeover(&live, restarts, &planned.adopts) {
            Some(fresh) => patch = fresh,
            None => return Ok(()),
        }
    }
    let message = "other clients keep changing it while it is being taken over".to_owned();
    Err(ObjectFailure { object: planned.reference.clone(), kind: FailureKind::Conflict, message })
}

/// Deletes the object, waits until it is gone, and applies it again; not a volume that is in use and has to be confirmed.
async fn recreate(
    engine: &Engine,
    planned: &Planned,
    held: &mut Option<PendingDeletion>,
) -> Result<Action, ObjectFailure> {
    if let Some(live) = read_live(engine, planned).await? {
        *held = volume_held(engine, planned, &live);
        if held.is_some() {
            return Ok(Action::Skipped);
        }
        delete(engine, &planned.reference, planned.resource.path(&planned.reference), &live).await?;
    }
    let mut pause = Duration::from_millis(50);
    while read_live(engine, planned).await?.is_some() {
        if engine.transport.is_over() {
            let message = "it was deleted to be recreated, but its deletion is not complete yet".to_owned();
            return Err(ObjectFailure {
                object: planned.reference.clone(),
                kind: FailureKind::Conflict,
                message,
            });
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
    match send_patch(engine, planned, false).await {
        Ok(answer) => {
            note(engine, planned, &answer.value, Noted::AsSent);
            Ok(Action::Recreated)
        }
        Err(refusal) => Err(failure(planned, &refusal)),
    }
}

/// Deletes exactly the object that `live` is, with what it owns in the background. One that is gone is success.
pub(crate) async fn delete(
    engine: &Engine,
    object: &ObjectRef,
    path: String,
    live: &Value,
) -> Result<(), ObjectFailure> {
    if let Some(gate) = &engine.gate {
        let refused =
            |message| ObjectFailure { object: object.clone(), kind: FailureKind::Forbidden, message };
        gate.before_deletion(object).await.map_err(refused)?;
    }
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        "preconditions": {"uid": live.pointer("/metadata/uid")},
    });
    let call = Call {
        method: Method::DELETE,
        path,
        content_type: "application/json",
        body: Bytes::from(options.to_string()),
        form: Form::Whole,
    };
    match engine.transport.send(&call).await {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.is_not_found() => Ok(()),
        Err(refusal) => Err(explain(object, &refusal, crate::engine::is_secret(object))),
    }
}
