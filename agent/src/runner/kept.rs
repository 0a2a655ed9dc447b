//! What is kept in the cluster of what was applied, and how an agent that is started again goes on with it.

use std::collections::HashSet;
use std::time::Duration;

use roadstead_model::{Dispatch, Group, ObjectRef};
use tokio::time::Instant;

use super::{Inner, Runner};
use crate::builds::Kept;
use crate::cluster::Cluster;
use crate::keep::{Content, MOST_KEPT, Packed, Record, Values, may_be_kept};
use crate::tend::LastApplied;

/// So long after its start an agent looks at what the one before it has applied.
const RESUME_AFTER: Duration = Duration::from_secs(10);

impl<C: Cluster> Runner<C> {
    /// Goes on with what an agent before this one has applied: it is looked at in a while, so that a hub that is there can say first what
    /// of it rests. Of what was dispatched since nothing is taken.
    pub(crate) fn resume(&self, records: Vec<Record>) {
        let now = Instant::now();
        let count = records.len();
        let shared = owned_by_several(&records);
        for Record { key, spec, inventory, is_well, inputs, content } in records {
            let mut slots = self.slots();
            let slot = slots.entry(key.applier).or_default();
            if slot.seen.is_some() {
                continue;
            }
            slot.seen = Some(key.clone());
            self.inner.inputs.ended(&key, &inputs);
            drop(slots);
            let applier = key.applier;
            let (tended, healths) = (&self.inner.tended, &self.inner.healths);
            let follow = |last: &LastApplied| {
                if is_well {
                    healths.resume(&last.dispatch, &inventory, now);
                }
            };
            let dispatch = |(given, data_keys)| Dispatch {
                key,
                spec,
                inventory: Vec::new(),
                given,
                data_keys,
                trace: None,
            };
            match content {
                Content::Corrected { builds, values } => {
                    let restore = |Packed { digest, bytes }| self.inner.builds.restore(digest, bytes);
                    let Some(builds) = builds.into_iter().map(restore).collect::<Option<Vec<Kept>>>() else {
                        continue;
                    };
                    let last = LastApplied::new(dispatch(values.into_given()), builds);
                    follow(&last);
                    tended.resume(last, &inventory, &shared, now, now + RESUME_AFTER);
                }
                Content::Watched { watched, .. } => {
                    let last = LastApplied::only_watched(dispatch(Values::default().into_given()));
                    follow(&last);
                    tended.resume_watched(last, &inventory, watched, &shared, now);
                }
            }
            // The hub has said so in between.
            if self.inner.keep.forgets(applier) {
                tended.rest(applier);
                healths.rest(applier);
                self.inner.inputs.forget(applier);
            }
        }
        if count > 0 {
            tracing::info!(count, "going on with what was applied before this agent was started");
        }
    }

    /// No hub was heard of for a while: what was applied before is corrected all the same.
    pub(crate) async fn go_on_without_hub(&self) {
        tokio::time::sleep(RESUME_AFTER).await;
        self.inner.tended.allow_without_hub();
        self.inner.healths.allow_without_hub();
    }

    /// How many appliers are corrected after a restart without a hub, and how many are only watched.
    pub(crate) fn going_on(&self) -> (usize, usize) {
        self.inner.keep.going_on()
    }

    /// Keeps in the cluster what is needed to go on with a dispatch that was carried out: to correct, where that may be and fits; else to
    /// notice what differs. `is_well`: it ended well.
    pub(super) fn keep(&self, dispatch: &Dispatch, inventory: &[ObjectRef], is_well: bool) {
        let Inner { keep, tended, inputs, .. } = &*self.inner;
        let (key, spec) = (&dispatch.key, &dispatch.spec);
        let inputs = inputs.of(key);
        let record = |content| {
            Some(Record {
                key: key.clone(),
                spec: spec.clone(),
                inventory: inventory.to_vec(),
                is_well,
                inputs: inputs.clone(),
                content,
            })
        };
        if may_be_kept(dispatch) {
            let without_builds = Content::Corrected { builds: Vec::new(), values: Values::default() };
            let content = || self.builds_of(dispatch).and_then(record);
            if keep.store(key, without_builds.digest(key, inventory, &inputs, is_well), content) {
                return;
            }
        }
        let content = keep.watched(tended.watched(key.applier));
        keep.store(key, content.digest(key, inventory, &inputs, is_well), || record(content));
    }

    /// The builds of a dispatch, with its values; none where they are too large to be kept.
    fn builds_of(&self, dispatch: &Dispatch) -> Option<Content> {
        let build = |group: &Group| {
            let bytes = self.inner.builds.compressed(group.objects, MOST_KEPT)?;
            Some(Packed { digest: group.objects, bytes })
        };
        let builds = dispatch.spec.groups.iter().map(build).collect::<Option<Vec<Packed>>>()?;
        let bytes: usize = builds.iter().map(|build| build.bytes.len()).sum();
        (bytes <= MOST_KEPT).then(|| Content::Corrected { builds, values: Values::of(dispatch) })
    }
}

/// Objects that more than one of them owns: they were handed over, and their new owner's dispatch was kept before the old owner's next one
/// was. Which one that is the hub knows.
fn owned_by_several(records: &[Record]) -> HashSet<ObjectRef> {
    let (mut seen, mut several) = (HashSet::new(), HashSet::new());
    for object in records.iter().flat_map(|record| &record.inventory) {
        if !seen.insert(object) {
            several.insert(object.clone());
        }
    }
    several
}
