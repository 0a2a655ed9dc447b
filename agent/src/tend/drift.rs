//! What differs of an applier's objects from what was applied, and goes on doing so: since it is only reported, since somebody changes it
//! again and again, or since it cannot be corrected.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_apply::{Difference, Footprint, Scope};
use roadstead_model::{DispatchKey, DriftState, DriftedObject, FieldDrift, ObjectRef};
use roadstead_proto::DriftReport;
use roadstead_proto::limits::{MAX_CORRECTED_MANAGERS, MAX_DRIFTED};
use tokio::time::Instant;

/// The least time between two reports of one applier.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// How many characters of a manager's name are told.
const MAX_NAME: usize = 128;

/// About how many bytes fields take in memory, with their values.
pub(crate) fn bytes_of(fields: &[FieldDrift]) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let field = |field: &FieldDrift| {
        let values = field.values.as_ref();
        field.path.len() + values.map_or(0, |values| text(&values.live) + text(&values.desired)) + 96
    };
    fields.iter().map(field).sum()
}

/// Managers as they are told.
pub(super) fn named(mut managers: Vec<String>) -> Vec<String> {
    managers.sort();
    managers.dedup();
    managers.truncate(MAX_CORRECTED_MANAGERS);
    managers.iter().map(|name| name.chars().take(MAX_NAME).collect()).collect()
}

/// How one object differs, or differed before it was corrected.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drift {
    pub(crate) missing: bool,
    /// Who changed it, as far as that is known.
    pub(crate) managers: Vec<String>,
    pub(crate) fields: Vec<FieldDrift>,
    /// What tells of it; none where nothing is known of the object but that it may differ.
    pub(super) scope: Option<Scope>,
    /// As it was seen then; none where it was missing.
    pub(super) footprint: Option<Footprint>,
}

impl Drift {
    /// As the engine found it; `writers` are those who have written to it, as far as a watch has told.
    pub(crate) fn new(difference: Difference, writers: impl IntoIterator<Item = String>) -> Self {
        let Difference { scope, missing, fields, managers, footprint } = difference;
        let managers = named(managers.into_iter().chain(writers).collect());
        Self { missing, managers, fields, scope: Some(scope), footprint }
    }

    /// The same without the fields' values.
    pub(crate) fn without_values(mut self) -> Self {
        self.fields.iter_mut().for_each(|field| field.values = None);
        self
    }
}

/// What came of correcting objects of an applier, or of looking at how they differ.
#[derive(Debug, Default)]
pub(crate) struct CorrectionOutcome {
    /// How those differed that were written, or are only reported.
    pub(crate) drift: BTreeMap<ObjectRef, Drift>,
    /// Those that were written.
    pub(crate) written: Vec<ObjectRef>,
    /// Those that differ, and are only reported.
    pub(crate) reported: Vec<ObjectRef>,
    /// Those that were left as they are for now, being deleted or in a namespace that is.
    pub(crate) skipped: Vec<ObjectRef>,
    /// Those that may still be other than they should be.
    pub(crate) unsettled: Vec<ObjectRef>,
    /// Why.
    pub(crate) failure: String,
}

/// What goes on differing of one applier, and what of that was told.
#[derive(Debug, Default)]
pub(super) struct Drifts {
    objects: BTreeMap<ObjectRef, DriftedObject>,
    /// It is to be told.
    is_news: bool,
    told: Option<Instant>,
}

impl Drifts {
    /// About how many bytes its fields and messages take.
    pub(super) fn bytes(&self) -> usize {
        self.objects.values().map(|drifted| bytes_of(&drifted.fields) + drifted.message.len()).sum()
    }

    /// An object goes on differing.
    pub(super) fn add(&mut self, drifted: DriftedObject) {
        if self.objects.get(&drifted.object) != Some(&drifted) {
            self.objects.insert(drifted.object.clone(), drifted);
            self.is_news = true;
        }
    }

    /// An object does not differ any more, unless it is contended: that is over only once it was left alone for a while.
    pub(super) fn settle(&mut self, object: &ObjectRef) {
        if self.objects.get(object).is_some_and(|drifted| drifted.state != DriftState::Contended) {
            self.forget(object);
        }
    }

    fn forget(&mut self, object: &ObjectRef) {
        self.is_news |= self.objects.remove(object).is_some();
    }

    /// Keeps those that are `owned`.
    pub(super) fn retain(&mut self, owned: impl Fn(&ObjectRef) -> bool) {
        let before = self.objects.len();
        self.objects.retain(|object, _| owned(object));
        self.is_news |= before != self.objects.len();
    }

    /// A dispatch has ended: what differs is told of the new one.
    pub(super) fn begin_again(&mut self) {
        self.is_news |= !self.objects.is_empty();
    }

    /// Forgets contended objects that have been left alone. Gives when the next one will have been.
    pub(super) fn expire_contended(
        &mut self,
        now: Instant,
        peace: impl Fn(&ObjectRef) -> Option<Instant>,
    ) -> Option<Instant> {
        let contended = self.objects.iter().filter(|(_, drifted)| drifted.state == DriftState::Contended);
        let (mut over, mut next) = (Vec::new(), None::<Instant>);
        for object in contended.map(|(object, _)| object) {
            match peace(object).filter(|at| *at > now) {
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => over.push(object.clone()),
            }
        }
        over.iter().for_each(|object| self.forget(object));
        next
    }

    /// What is to be told now, or when; none where there is no news.
    pub(super) fn due(&mut self, key: &DispatchKey, now: Instant) -> Option<Result<DriftReport, Instant>> {
        if !self.is_news {
            return None;
        }
        let at = self.told.map_or(now, |told| told + TELL_EVERY);
        if at > now {
            return Some(Err(at));
        }
        (self.is_news, self.told) = (false, Some(now));
        let objects = self.objects.values().take(MAX_DRIFTED).cloned().collect();
        Some(Ok(DriftReport { key: key.clone(), objects, total: self.objects.len() }))
    }
}
