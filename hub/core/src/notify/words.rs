//! What expressions make of an event: its message and metadata, as an Alert tells them, and the id of a commit status.

use std::collections::BTreeMap;

use roadstead_api::AlertSpec;
use roadstead_cel::Expression;
use roadstead_hub_store::Stored;
use roadstead_model::{Reason, chain};
use roadstead_notify::Event;
use serde_json::{Value, json};

use crate::notify::Fault;

/// What an evaluation may take, as a part of what an expression may: an Alert has some, and there are many Alerts.
const AMONG: u32 = 100;
/// Bytes of a message, and of a value of the metadata, that an expression makes.
const MAX_MESSAGE: usize = 32 << 10;
const MAX_VALUE: usize = 1 << 10;

/// How an Alert words its events.
#[derive(Default)]
pub(super) struct Words {
    message: Option<Expression>,
    metadata: BTreeMap<String, Expression>,
}

impl Words {
    /// Of an Alert.
    pub(super) fn of(spec: &AlertSpec) -> Result<Self, Fault> {
        let parse = |field: String, text: &str| {
            Expression::parse_over(text, &["event", "incident"])
                .map_err(|error| (Reason::ValidationFailed, format!("spec.{field}: {}", chain(&error))))
        };
        let message = spec.message_expr.as_deref().map(|text| parse("messageExpr".to_owned(), text));
        let metadata = spec
            .event_metadata_exprs
            .iter()
            .map(|(key, text)| Ok((key.clone(), parse(format!("eventMetadataExprs[{key}]"), text)?)));
        Ok(Self { message: message.transpose()?, metadata: metadata.collect::<Result<_, Fault>>()? })
    }

    /// The event in these words. Where an expression fails, what stood there before stays, and the message says why: whoever is to hear of a
    /// failure hears of it.
    pub(super) async fn tell(&self, mut event: Event) -> Event {
        if self.message.is_none() && self.metadata.is_empty() {
            return event;
        }
        let incident = json!(event.incident);
        let of_event = json!(event);
        let known = || vec![("event", of_event.clone()), ("incident", incident.clone())];
        let mut failed = Vec::new();
        for (key, expression) in &self.metadata {
            match text(expression, known()).await {
                Ok(value) => {
                    event.metadata.insert(key.clone(), cut(value, MAX_VALUE));
                }
                Err(why) => failed.push(format!("spec.eventMetadataExprs[{key}]: {why}")),
            }
        }
        if let Some(expression) = &self.message {
            match text(expression, known()).await {
                Ok(message) => event.message = cut(message, MAX_MESSAGE),
                Err(why) => failed.push(format!("spec.messageExpr: {why}")),
            }
        }
        if !failed.is_empty() {
            event.message = format!("{}\n(of the Alert, {})", event.message, failed.join("; "));
        }
        event
    }
}

/// What the Provider's expression makes the id of the event's commit status.
pub(super) async fn status_id(
    expression: &Expression,
    alert: &Stored,
    provider: &Stored,
    event: &Event,
) -> Result<String, String> {
    let known =
        vec![("event", json!(event)), ("provider", provider.object.clone()), ("alert", alert.object.clone())];
    let made = text(expression, known).await;
    made.map_err(|why| format!("spec.commitStatusExpr of the Provider: {why}"))
}

/// The text that an expression comes to. Evaluated off the threads that serve others: it takes its time.
async fn text(expression: &Expression, known: Vec<(&'static str, Value)>) -> Result<String, String> {
    let expression = expression.clone();
    let made = tokio::task::spawn_blocking(move || {
        let known: Vec<(&str, &Value)> = known.iter().map(|(name, value)| (*name, value)).collect();
        expression.evaluate_json(&known, AMONG)
    });
    match made.await {
        Ok(Ok(Value::String(text))) => Ok(text),
        Ok(Ok(_)) => Err("it does not come to a text".to_owned()),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err("it could not be evaluated".to_owned()),
    }
}

fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(spec: Value) -> Result<Words, Fault> {
        let mut alert = json!({ "providerRef": { "name": "p" }, "eventSources": [] });
        if let (Some(alert), Value::Object(more)) = (alert.as_object_mut(), spec) {
            alert.extend(more);
        }
        Words::of(&serde_json::from_value(alert).unwrap())
    }

    fn event() -> Event {
        serde_json::from_value(json!({
            "involvedObject": { "apiVersion": "v1", "kind": "Kustomization", "name": "web", "namespace": "apps", "uid": "1" },
            "severity": "error", "timestamp": "2026-08-07T10:00:00Z", "message": "it fails", "reason": "BuildFailed",
            "reportingController": "c", "metadata": { "cluster": "edge-1" },
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn events_are_told_in_the_alerts_words() {
        let words = words(json!({
            "messageExpr": "event.metadata.cluster + ': ' + event.message.upperAscii() + (incident == null ? '' : '!')",
            "eventMetadataExprs": { "team": "event.involvedObject.name == 'web' ? 'frontend' : 'other'" },
        }))
        .unwrap();
        let told = words.tell(event()).await;
        assert_eq!((told.message.as_str(), told.metadata["team"].as_str()), ("edge-1: IT FAILS", "frontend"));
    }

    #[tokio::test]
    async fn what_cannot_be_made_keeps_nobody_from_hearing_of_a_failure() {
        for (expression, part) in [
            ("event.metadata.none", "none"),
            ("event.metadata.size() + 1", "does not come to a text"),
            (
                "[1,2,3,4,5,6,7,8,9,0].map(a, [1,2,3,4,5,6,7,8,9,0].map(b, [1,2,3,4,5,6,7,8,9,0].map(c, \
                 [1,2,3,4,5,6,7,8,9,0].map(d, [1,2,3,4,5,6,7,8,9,0].map(e, a+b+c+d+e))))).size() > 3 ? 'x' : 'y'",
                "cost too much",
            ),
        ] {
            let told = words(json!({ "messageExpr": expression })).unwrap().tell(event()).await;
            assert!(
                told.message.starts_with("it fails\n(of the Alert, spec.messageExpr: "),
                "{}",
                told.message
            );
            assert!(told.message.contains(part), "{}", told.message);
        }
        for (spec, field) in [
            (json!({ "messageExpr": "hub.secrets" }), "spec.messageExpr: "),
            (json!({ "eventMetadataExprs": { "a": "1 +" } }), "spec.eventMetadataExprs[a]: "),
        ] {
            let (reason, why) = words(spec).err().unwrap();
            assert!(reason == Reason::ValidationFailed && why.starts_with(field), "{why}");
        }
    }
}
