//! What an applier waits for: the objects that `spec.dependsOn` names, of its own kind or of another one that the hub serves, and
//! cycles among those of its own.

use std::collections::{BTreeMap, HashMap, VecDeque};

use roadstead_api::kustomization::{DependencyReference, MAX_DEPENDENCIES};
use roadstead_api::{ApplierSpec, Condition, KindId, Reference, Scope};
use roadstead_cel::Expression;
use roadstead_hub_plan::{Denial, Dependency, DependencyState};
use roadstead_hub_store::{DependencyRow, Reach, ReachedDependency, Stored};
use roadstead_model::Reason;

use crate::HubError;
use crate::delivery::Delivery;
use crate::identity::access::Standing;
use crate::objects::conditions::{self, READY};

/// Dependencies are followed to this many Kustomizations in search of a cycle.
const MAX_REACHED: usize = 1_000;

/// All expressions of one pass together may take this part of what a single evaluation may otherwise: many passes are made at once.
const SHARE: u32 = 20;

/// Namespace and name.
type Name = (String, String);

/// An entry of `spec.dependsOn`.
pub(super) struct DependsOn {
    kind: KindId,
    name: Name,
    /// What says that it is ready, in the place of its Ready condition.
    ready: Option<Expression>,
}

impl DependsOn {
    /// For messages: those of the applier's own kind need no word for it.
    fn shown(&self, own: KindId) -> String {
        let (namespace, name) = &self.name;
        if self.kind == own {
            format!("{namespace}/{name}")
        } else {
            format!("{}/{namespace}/{name}", self.kind)
        }
    }
}

impl Delivery {
    /// The entries of `spec.dependsOn`; what is wrong with them, or not allowed, goes to `denials`.
    pub(super) async fn depends_on(
        &self,
        stored: &Stored,
        standing: &Standing,
        spec: &ApplierSpec,
        denials: &mut Vec<Denial>,
    ) -> Result<Vec<DependsOn>, HubError> {
        if spec.depends_on.len() > MAX_DEPENDENCIES {
            denials.push(too_many_dependencies(spec.depends_on.len()));
            return Ok(Vec::new());
        }
        let mut all = Vec::with_capacity(spec.depends_on.len());
        for (index, reference) in spec.depends_on.iter().enumerate() {
            match depends_on(stored, reference) {
                Ok(one) => all.push(one),
                Err((reason, why)) => {
                    let message = format!("spec.dependsOn[{index}]{why}");
                    denials.push(Denial { reason, message });
                }
            }
        }
        for one in all.iter().filter(|one| one.name.0 != stored.namespace) {
            let to = (one.name.0.as_str(), one.name.1.as_str());
            if let Err(why) = self.access.may_refer_to(stored, standing, one.kind, to).await? {
                let message = format!("{} '{}/{}' of spec.dependsOn {why}", one.kind, to.0, to.1);
                denials.push(Denial { reason: Reason::AccessDenied, message });
            }
        }
        Ok(all)
    }

    /// The dependencies' states, in the order of `spec.dependsOn`. `source` is the one whose revision counts.
    pub(super) async fn dependencies(
        &self,
        stored: &Stored,
        source: Option<&Reference>,
        all: &[DependsOn],
    ) -> Result<Vec<Dependency>, HubError> {
        let mut names: BTreeMap<KindId, Vec<Name>> = BTreeMap::new();
        for one in all.iter().filter(|one| one.ready.is_none()) {
            names.entry(one.kind).or_default().push(one.name.clone());
        }
        let mut found: HashMap<(KindId, Name), DependencyState> = HashMap::with_capacity(all.len());
        for (kind, names) in names {
            for row in self.store.dependencies(kind, &names).await? {
                let state = dependency_state(kind, source, &row)?;
                found.insert((kind, (row.namespace, row.name)), state);
            }
        }
        // In turn, so that one object is in memory at a time.
        let expressions = all.iter().filter(|one| one.ready.is_some()).count();
        let among = u32::try_from(expressions).unwrap_or(u32::MAX).saturating_mul(SHARE);
        let mut dependencies = Vec::with_capacity(all.len());
        for one in all {
            let state = match &one.ready {
                Some(expression) => self.ready_by(expression, among, stored, one).await?,
                None => {
                    let state = found.get(&(one.kind, one.name.clone())).cloned();
                    state.unwrap_or(DependencyState::Missing)
                }
            };
            dependencies.push(Dependency { state, name: one.shown(stored.kind) });
        }
        Ok(dependencies)
    }

    /// Whether a dependency is ready by its `readyExpr`, over the objects as they are: `self` and `dep`. As in Flux, nothing else
    /// counts then.
    async fn ready_by(
        &self,
        expression: &Expression,
        among: u32,
        stored: &Stored,
        one: &DependsOn,
    ) -> Result<DependencyState, HubError> {
        let (namespace, name) = &one.name;
        let Some(found) = self.store.get(one.kind, namespace, name).await? else {
            return Ok(DependencyState::Missing);
        };
        let (expression, own) = (expression.clone(), stored.object.clone());
        // It may take tens of milliseconds, which those that serve requests do not have. The data of a Secret is not part of it.
        let evaluated = tokio::task::spawn_blocking(move || {
            expression.evaluate_bool_among(&[("self", &own), ("dep", &found.object)], among)
        });
        let answer = evaluated.await.map_err(|error| {
            HubError::Internal(format!("the evaluation of a readyExpr was cut short: {error}"))
        })?;
        Ok(match answer {
            Ok(true) => DependencyState::Ready,
            Ok(false) => DependencyState::NotReadyBy("according to readyExpr".to_owned()),
            Err(error) => DependencyState::NotReadyBy(format!("because its readyExpr failed: {error}")),
        })
    }

    /// The names along a cycle of dependencies that leads back to `stored`.
    pub(super) async fn cycle(
        &self,
        stored: &Stored,
        all: &[DependsOn],
    ) -> Result<Option<Vec<String>>, HubError> {
        let start = (stored.namespace.clone(), stored.name.clone());
        let names: Vec<Name> =
            all.iter().filter(|one| one.kind == stored.kind).map(|one| one.name.clone()).collect();
        let reach = Reach { appliers: MAX_REACHED, entries: MAX_DEPENDENCIES };
        let reached = self.store.reached_dependencies(stored.kind, &start, &names, reach).await?;
        Ok(cycle(&start, &names, &reached))
    }
}

/// One entry; or the reason and what is wrong, as it goes on behind the entry's path.
fn depends_on(stored: &Stored, reference: &DependencyReference) -> Result<DependsOn, (Reason, String)> {
    let kind = match &reference.kind {
        None => stored.kind,
        Some(kind) => {
            let version = reference.api_version.as_deref();
            KindId::referred(version, kind).ok_or_else(|| {
                let api_version = version.map(|version| format!(" of {version}")).unwrap_or_default();
                (Reason::DependencyNotReady, format!(".kind: {kind}{api_version} is not served by the hub"))
            })?
        }
    };
    let ready = reference
        .ready_expr
        .as_deref()
        .map(|text| Expression::parse_over(text, &["self", "dep"]))
        .transpose();
    let ready = ready.map_err(|error| (Reason::InvalidCELExpression, format!(".readyExpr: {error}")))?;
    let namespace = reference.namespace.clone().unwrap_or_else(|| stored.namespace.clone());
    let namespace = if kind.get().scope == Scope::Namespaced { namespace } else { String::new() };
    Ok(DependsOn { kind, name: (namespace, reference.name.clone()), ready })
}

/// The shortest way from `start` by one of `first` back to it. One pointer for each Kustomization, to the one by which it was
/// reached: memory is linear in their number.
fn cycle(start: &Name, first: &[Name], reached: &[ReachedDependency]) -> Option<Vec<String>> {
    let end = reached.iter().position(|one| one.name == *start)?;
    let mut from: Vec<Option<usize>> = vec![None; reached.len()];
    let mut seen: Vec<bool> = reached.iter().map(|one| first.contains(&one.name)).collect();
    let mut ahead: VecDeque<usize> = (0..reached.len()).filter(|at| seen[*at]).collect();
    while let Some(at) = ahead.pop_front() {
        if at == end {
            break;
        }
        for next in reached[at].next.iter().copied().filter(|next| *next < reached.len()) {
            if !std::mem::replace(&mut seen[next], true) {
                from[next] = Some(at);
                ahead.push_back(next);
            }
        }
    }
    let shown = |name: &Name| format!("{}/{}", name.0, name.1);
    let mut way = vec![shown(start)];
    let mut at = from[end];
    while let Some(before) = at {
        way.push(shown(&reached[before].name));
        at = from[before];
    }
    way.push(shown(start));
    way.reverse();
    Some(way)
}

fn dependency_state(
    kind: KindId,
    source: Option<&Reference>,
    dependency: &DependencyRow,
) -> Result<DependencyState, HubError> {
    let unreadable = |error: serde_json::Error| {
        HubError::Internal(format!("{kind} {}/{}: {error}", dependency.namespace, dependency.name))
    };
    let conditions: Option<Vec<Condition>> =
        serde_json::from_value(dependency.conditions.clone()).map_err(unreadable)?;
    let conditions = conditions.unwrap_or_default();
    // A kind of which nobody says whether it is ready is so when it is there.
    let silent = conditions.is_empty() && !kind.get().reconciled;
    if dependency.deleting || !(silent || conditions::is_true(&conditions, READY, dependency.generation)) {
        return Ok(DependencyState::NotReady);
    }
    let shared =
        source.is_some_and(|source| dependency.refers_to.contains(&source.key())) && !dependency.pinned;
    if !shared || !kind.is_applier() {
        return Ok(DependencyState::Ready);
    }
    let revision = dependency.last_applied_revision.as_deref();
    Ok(DependencyState::ReadyAt(revision.and_then(|text| text.parse().ok())))
}

/// One that was stored by a version that had no bound.
fn too_many_dependencies(count: usize) -> Denial {
    let message = format!(
        "spec.dependsOn has {count} entries, and at most {MAX_DEPENDENCIES} are followed: remove some"
    );
    Denial { reason: Reason::DependencyNotReady, message }
}
