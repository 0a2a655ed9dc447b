//! Reports of health that wait to be told: of each applier the newest one, and one that is on its way.

use std::collections::BTreeMap;

use roadstead_model::{ApplierUid, ObjectRef};
use roadstead_proto::limits::MAX_REPORTED;
use roadstead_proto::{HealthReport, HealthState, ObjectHealth};

/// What is pending.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pending: BTreeMap<ApplierUid, Pending>,
    next_number: u64,
}

/// The reports of one applier.
#[derive(Debug, Default)]
struct Pending {
    /// The one that was sent in this session and is not confirmed, under its number. The hub handles messages side by side: the next
    /// one waits until it is.
    sent: Option<(u64, HealthReport)>,
    /// The newest one.
    newest: Option<HealthReport>,
}

impl Reports {
    /// Takes a report. What one that was not sent yet has told of other objects is told with this one.
    pub(super) fn add(&mut self, report: HealthReport) {
        let pending = self.pending.entry(report.key.applier).or_default();
        let before = pending.newest.take();
        pending.newest = Some(match before {
            Some(before) => joined(before, report),
            None => report,
        });
    }

    /// A session begins: what was sent in the last one and not confirmed may not have been heard.
    pub(super) fn begin_session(&mut self) {
        for pending in self.pending.values_mut() {
            if let Some((_, sent)) = pending.sent.take() {
                pending.newest = Some(match pending.newest.take() {
                    Some(newest) => joined(sent, newest),
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
    pub(super) fn next(&mut self, may_be_told: impl Fn(ApplierUid) -> bool) -> Option<(u64, HealthReport)> {
        let (_, pending) = self.pending.iter_mut().find(|(applier, pending)| {
            let is_waiting = pending.newest.as_ref().is_some_and(|one| one.state == HealthState::Waiting);
            pending.sent.is_none() && pending.newest.is_some() && (is_waiting || may_be_told(**applier))
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

/// The later one of two reports, with what the earlier one told of other objects of the same dispatch. That they are healthy again
/// is told where any of the two says so.
fn joined(earlier: HealthReport, mut later: HealthReport) -> HealthReport {
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
