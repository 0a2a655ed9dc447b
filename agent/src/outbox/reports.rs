//! Reports that wait to be told, of health and of drift: of each applier the newest one, and one that is on its way.

use std::collections::BTreeMap;

use roadstead_model::{ApplierUid, ObjectRef};
use roadstead_proto::limits::MAX_REPORTED;
use roadstead_proto::{DriftReport, HealthReport, HealthState, ObjectHealth};

/// A report on an applier.
pub(super) trait Report: Clone {
    /// Which applier.
    fn applier(&self) -> ApplierUid;

    /// The later one of two reports, with what the earlier one told that it does not.
    fn joined(earlier: Self, later: Self) -> Self;

    /// Whether it is about a dispatch that is under way; else it is told once the end of that is known.
    fn is_early(&self) -> bool;
}

/// What is pending.
#[derive(Debug)]
pub(super) struct Reports<R> {
    pending: BTreeMap<ApplierUid, Pending<R>>,
    next_number: u64,
}

impl<R> Default for Reports<R> {
    fn default() -> Self {
        Self { pending: BTreeMap::new(), next_number: 0 }
    }
}

/// The reports of one applier.
#[derive(Debug)]
struct Pending<R> {
    /// The one that was sent in this session and is not confirmed, under its number. The hub handles messages side by side: the next
    /// one waits until it is.
    sent: Option<(u64, R)>,
    /// The newest one.
    newest: Option<R>,
}

impl<R> Default for Pending<R> {
    fn default() -> Self {
        Self { sent: None, newest: None }
    }
}

impl<R: Report> Reports<R> {
    /// Takes a report. What one that was not sent yet has told of other objects is told with this one.
    pub(super) fn add(&mut self, report: R) {
        let pending = self.pending.entry(report.applier()).or_default();
        let before = pending.newest.take();
        pending.newest = Some(match before {
            Some(before) => R::joined(before, report),
            None => report,
        });
    }

    /// A session begins: what was sent in the last one and not confirmed may not have been heard.
    pub(super) fn begin_session(&mut self) {
        for pending in self.pending.values_mut() {
            if let Some((_, sent)) = pending.sent.take() {
                pending.newest = Some(match pending.newest.take() {
                    Some(newest) => R::joined(sent, newest),
                    None => sent,
                });
            }
        }
    }

    /// Nothing is told of an applier that was not sent yet.
    pub(super) fn forget(&mut self, applier: ApplierUid) {
        if let Some(pending) = self.pending.get_mut(&applier) {
            pending.newest = None;
            if pending.sent.is_none() {
                self.pending.remove(&applier);
            }
        }
    }

    /// The next report that may be sent, and its number; it counts as sent.
    pub(super) fn next(&mut self, may_be_told: impl Fn(ApplierUid) -> bool) -> Option<(u64, R)> {
        let (_, pending) = self.pending.iter_mut().find(|(applier, pending)| {
            let is_early = pending.newest.as_ref().is_some_and(Report::is_early);
            pending.sent.is_none() && pending.newest.is_some() && (is_early || may_be_told(**applier))
        })?;
        let report = pending.newest.take()?;
        let number = self.next_number;
        self.next_number += 1;
        pending.sent = Some((number, report.clone()));
        Some((number, report))
    }

    /// The hub has taken it in.
    pub(super) fn confirm(&mut self, number: u64) {
        self.pending.retain(|_, pending| {
            pending.sent.take_if(|(sent, _)| *sent == number);
            pending.sent.is_some() || pending.newest.is_some()
        });
    }
}

impl Report for HealthReport {
    fn applier(&self) -> ApplierUid {
        self.key.applier
    }

    /// What the earlier one told of other objects of the same dispatch is kept. That they are healthy again is told where any of the two
    /// says so.
    fn joined(earlier: Self, mut later: Self) -> Self {
        if earlier.key != later.key {
            return later;
        }
        let is_healthy = later.state == HealthState::Healthy;
        later.recovered |= earlier.recovered && is_healthy;
        let mut objects: BTreeMap<ObjectRef, ObjectHealth> =
            earlier.objects.into_iter().map(|one| (one.object.clone(), one)).collect();
        objects.extend(later.objects.into_iter().map(|one| (one.object.clone(), one)));
        later.objects = objects.into_values().take(MAX_REPORTED).collect();
        later
    }

    fn is_early(&self) -> bool {
        self.state == HealthState::Waiting
    }
}

impl Report for DriftReport {
    fn applier(&self) -> ApplierUid {
        self.key.applier
    }

    /// Each says all that there is.
    fn joined(_: Self, later: Self) -> Self {
        later
    }

    fn is_early(&self) -> bool {
        false
    }
}
