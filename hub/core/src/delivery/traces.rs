//! An attempt as a span of its trace, and the steps that its agent took as spans under it.
//!
//! The row of an attempt has the context of the pass that opened it; all else is derived of that, so that whichever replica sends it or
//! takes its result notes the same spans. What an agent did is told by the timings that it reports anyway, so that no cluster needs a
//! collector of its own: how long each stage took is known, and that one followed the other, so they end when the result came.

use std::time::Duration;

use jiff::Timestamp;
use roadstead_hub_store::{AttemptInputs, Stored};
use roadstead_model::{Attempt, AttemptKind, Reason, Step, StepTiming, TraceContext};
use roadstead_trace::Finished;

/// Steps of one attempt that become spans; there are rarely more than four.
const MOST_STEPS: usize = 50;

/// An attempt that has ended.
pub(super) struct Ended<'a> {
    /// What the pass was part of that opened it.
    pub(super) trace: TraceContext,
    pub(super) of: &'a Stored,
    pub(super) cluster: &'a str,
    pub(super) attempt: Attempt,
    pub(super) inputs: &'a AttemptInputs,
    pub(super) steps: &'a [Step],
    pub(super) timings: &'a [StepTiming],
    pub(super) reason: Reason,
    /// When the result came.
    pub(super) came: Timestamp,
    /// When it was recorded.
    pub(super) recorded: Timestamp,
}

/// The context of an attempt's own span.
pub(super) fn of_attempt(trace: TraceContext, attempt: Attempt) -> TraceContext {
    trace.derived(&format!("attempt {}", attempt.0))
}

/// Notes that an attempt that began at `started` has been sent.
pub(super) fn sent(trace: TraceContext, attempt: Attempt, started: Timestamp, cluster: &str) {
    if !roadstead_trace::is_on() {
        return;
    }
    let own = of_attempt(trace, attempt);
    let span = Finished::new(own.derived("queue"), Some(own.span), "queue", (started, Timestamp::now()));
    roadstead_trace::record(span.with("cluster", cluster).with("attempt", attempt.0));
}

/// Notes an attempt that has ended.
pub(super) fn ended(ended: &Ended<'_>) {
    if roadstead_trace::is_on() && ended.trace.sampled {
        spans(ended).into_iter().for_each(roadstead_trace::record);
    }
}

fn spans(ended: &Ended<'_>) -> Vec<Finished> {
    let Ended { trace, of, cluster, attempt, inputs, reason, came, recorded, .. } = *ended;
    let own = of_attempt(trace, attempt);
    let mut dispatch = Finished::new(own, Some(trace.span), "dispatch", (inputs.started, recorded))
        .with("kind", of.kind.to_string())
        .with("namespace", of.namespace.as_str())
        .with("name", of.name.as_str())
        .with("cluster", cluster)
        .with("attempt", attempt.0)
        .with("result", reason.as_str());
    if let Some(revision) = &inputs.revision {
        dispatch = dispatch.with("revision", revision.to_string());
    }
    let does = match inputs.kind {
        AttemptKind::Apply => "apply",
        AttemptKind::Delete => "delete",
        AttemptKind::Read => "read",
    };
    dispatch = dispatch.with("does", does);
    dispatch.failed = reason != Reason::ReconciliationSucceeded;
    let status = Finished::new(own.derived("status"), Some(own.span), "status", (came, recorded))
        .with("result", reason.as_str());
    let mut all = steps(ended, own);
    all.extend([status, dispatch]);
    all
}

/// The steps, and the stages of those that had several.
fn steps(ended: &Ended<'_>, own: TraceContext) -> Vec<Finished> {
    let micros =
        |timings: &[StepTiming]| timings.iter().map(|timing| timing.micros).fold(0, u64::saturating_add);
    let since = |from: Timestamp, micros| {
        let end = from.checked_add(Duration::from_micros(micros)).unwrap_or(ended.came);
        end.clamp(ended.inputs.started.min(ended.came), ended.came)
    };
    let took = Duration::from_micros(micros(ended.timings));
    let first = ended.came.checked_sub(took).unwrap_or(Timestamp::UNIX_EPOCH);
    let (mut at, mut spans) = (first.clamp(ended.inputs.started.min(ended.came), ended.came), Vec::new());
    for timings in ended.timings.chunk_by(|one, next| one.step == next.step).take(MOST_STEPS) {
        let Some(StepTiming { step, .. }) = timings.first() else { continue };
        let end = since(at, micros(timings));
        let known = step.and_then(|index| Some((index, ended.steps.get(index)?)));
        let span = own.derived(&format!("step {}", known.map_or(-1, |(index, _)| index as i64)));
        let name = known.map_or("step", |(_, step)| name_of(step));
        let mut noted = Finished::new(span, Some(own.span), name, (at, end));
        if let Some((index, step)) = known {
            noted = noted.with("step", index).with("label", step.label.as_str());
        }
        if let [StepTiming { stage, .. }] = timings {
            noted = noted.with("stage", stage.as_str());
        } else {
            for timing in timings {
                let (begun, ended) = (at, since(at, timing.micros));
                let name = timing.stage.as_str();
                spans.push(Finished::new(span.derived(name), Some(span.span), name, (begun, ended)));
                at = ended;
            }
        }
        spans.push(noted);
        at = end;
    }
    spans
}

fn name_of(step: &Step) -> &'static str {
    match step.kind.as_str() {
        "apply" => "step apply",
        "prune" => "step prune",
        "wait" => "step wait",
        "delete" => "step delete",
        "hook" => "step hook",
        "read" => "step read",
        _ => "step",
    }
}

#[cfg(test)]
mod tests {
    use roadstead_api::KindId;
    use roadstead_model::{ApplierUid, Generation, Stage, StepKind};
    use roadstead_trace::Value;
    use serde_json::json;

    use super::*;

    fn timing(step: usize, stage: Stage, millis: u64) -> StepTiming {
        StepTiming { step: Some(step), label: None, stage, micros: millis * 1_000 }
    }

    fn told(timings: &[StepTiming], check: impl FnOnce(&[Finished], TraceContext)) {
        let started = Timestamp::from_second(1_000).unwrap();
        let applier = ApplierUid(Default::default());
        let inputs = AttemptInputs {
            applier,
            cluster: None,
            generation: Generation(1),
            revision: Some("main@sha1:5f3a0a2c0b7a4f0e8b6a0d5c1f2e3d4c5b6a7988".parse().unwrap()),
            artifact: None,
            build: None,
            request: None,
            kind: AttemptKind::Apply,
            trigger: None,
            rendered_by: Default::default(),
            started,
        };
        let object = json!({ "metadata": { "name": "app", "namespace": "apps" } });
        let of = Stored::new(KindId::Kustomization, "apps", "app", started, object);
        let steps: Vec<Step> = [StepKind::Apply { group: 0 }, StepKind::Prune].map(Step::from).into();
        let trace: TraceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
        let ended = Ended {
            trace,
            of: &of,
            cluster: "edge",
            attempt: Attempt(7),
            inputs: &inputs,
            steps: &steps,
            timings,
            reason: Reason::ReconciliationSucceeded,
            came: started + Duration::from_secs(2),
            recorded: started + Duration::from_secs(3),
        };
        check(&spans(&ended), trace);
    }

    #[test]
    fn steps_follow_each_other_up_to_the_result() {
        let timings =
            [timing(0, Stage::Validate, 100), timing(0, Stage::Apply, 200), timing(1, Stage::Prune, 300)];
        told(&timings, |spans, trace| {
            let names: Vec<_> = spans.iter().map(|span| span.name).collect();
            assert_eq!(names, ["validate", "apply", "step apply", "step prune", "status", "dispatch"]);
            let [validate, stage, apply, prune, status, dispatch] = spans else { panic!("{spans:?}") };
            assert_eq!(dispatch.parent, Some(trace.span));
            for span in [apply, prune, status] {
                assert_eq!(span.parent, Some(dispatch.context.span));
                assert!(span.start >= dispatch.start && span.end <= dispatch.end);
            }
            assert_eq!((validate.parent, stage.parent), (Some(apply.context.span), Some(apply.context.span)));
            assert_eq!((validate.end, stage.end, apply.end), (stage.start, apply.end, prune.start));
            assert_eq!(prune.end, status.start);
            assert_eq!(prune.attributes[0], ("step", Value::Number(1)));
            assert!(dispatch.attributes.contains(&("attempt", Value::Number(7))) && !dispatch.failed);
        });
    }

    #[test]
    fn timings_that_cannot_be_stay_within_their_attempt() {
        let timings = [timing(0, Stage::Apply, u64::MAX / 1_000), timing(9, Stage::Wait, u64::MAX / 1_000)];
        told(&timings, |spans, _| {
            let dispatch = spans.last().unwrap();
            for span in spans {
                assert!(span.start >= dispatch.start && span.end <= dispatch.end && span.start <= span.end);
            }
        });
    }

    #[test]
    fn an_agent_makes_no_more_spans_than_there_can_be_steps() {
        let timings: Vec<_> = (0..10_000).map(|step| timing(step, Stage::Apply, 1)).collect();
        told(&timings, |spans, _| assert_eq!(spans.len(), MOST_STEPS + 2));
    }
}
