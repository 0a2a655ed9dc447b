//! Events of Flux's controllers in the agent's cluster.

use std::collections::BTreeMap;

use roadstead_model::RelayedEvent;

use super::{ConvertError, Result, filled, list, object, sized, text};
use crate::limits::{MAX_DNS_NAME_BYTES, MAX_RELAYED, MAX_RELAYED_METADATA, MAX_RELAYED_METADATA_BYTES};
use crate::v1;

/// A time, a uid or a reason, in bytes.
const MAX_WORD: usize = 256;

impl From<RelayedEvent> for v1::RelayedEvent {
    fn from(event: RelayedEvent) -> Self {
        let RelayedEvent {
            object,
            uid,
            is_error,
            timestamp,
            message,
            reason,
            reporting_controller,
            reporting_instance,
            metadata,
        } = event;
        Self {
            object: Some(object.into()),
            uid,
            is_error,
            timestamp,
            message,
            reason,
            reporting_controller,
            reporting_instance,
            metadata: metadata.into_iter().collect(),
        }
    }
}

impl TryFrom<v1::RelayedEvent> for RelayedEvent {
    type Error = ConvertError;

    fn try_from(event: v1::RelayedEvent) -> Result<Self> {
        let word = |field: &str, value: String| text(field, sized(field, value, MAX_WORD)?);
        let host = |field: &str, value: String| text(field, sized(field, value, MAX_DNS_NAME_BYTES)?);
        let object = object("object", event.object)?;
        if object.namespace.is_empty() {
            // Flux has no kinds without one.
            return Err(ConvertError::missing("object.namespace"));
        }
        if event.metadata.len() > MAX_RELAYED_METADATA {
            let (field, length) = ("metadata".to_owned(), event.metadata.len());
            return Err(ConvertError::TooLong { field, length, unit: "entries", max: MAX_RELAYED_METADATA });
        }
        let mut metadata = BTreeMap::new();
        let mut bytes = 0;
        for (key, value) in event.metadata {
            bytes += key.len() + value.len();
            metadata.insert(text("metadata", key)?, text("metadata", value)?);
        }
        if bytes > MAX_RELAYED_METADATA_BYTES {
            let (field, max) = ("metadata".to_owned(), MAX_RELAYED_METADATA_BYTES);
            return Err(ConvertError::TooLong { field, length: bytes, unit: "bytes", max });
        }
        Ok(Self {
            object,
            uid: word("uid", event.uid)?,
            is_error: event.is_error,
            timestamp: word("timestamp", event.timestamp)?,
            message: text("message", event.message)?,
            reason: word("reason", filled("reason", event.reason)?)?,
            reporting_controller: host("reporting_controller", event.reporting_controller)?,
            reporting_instance: host("reporting_instance", event.reporting_instance)?,
            metadata,
        })
    }
}

/// The events of a message.
///
/// # Errors
/// Where one is not sound, or there are too many.
pub fn relayed_events(message: v1::RelayedEvents) -> Result<Vec<RelayedEvent>> {
    list("events", message.events, MAX_RELAYED)
}
