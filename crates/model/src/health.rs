//! What says when objects of a kind are healthy, beyond what is known of the kind itself.

use serde::{Deserialize, Serialize};

/// How to tell the health of a kind's objects, as an entry of `spec.healthCheckExprs` says it: each expression is CEL
/// over the object's top-level fields, and answers yes or no.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthExpr {
    /// `apps/v1`. What is before the slash counts: objects of that group are meant in any version.
    pub api_version: String,
    /// `Deployment`; empty for all kinds of the group that no entry names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Whether an object is on its way. Asked first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<String>,
    /// Whether an object is stuck. Asked second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Whether an object is what its spec says. Where this says no too, the object is on its way.
    pub current: String,
}

#[cfg(test)]
mod tests {
    use super::HealthExpr;

    #[test]
    fn what_is_not_said_is_left_out() {
        let text = r#"{"apiVersion":"example.com/v1","kind":"Database","failed":"status.bad","current":"status.ok"}"#;
        let read: HealthExpr = serde_json::from_str(text).unwrap();
        assert_eq!(read.failed.as_deref(), Some("status.bad"));
        assert_eq!(read.in_progress, None);
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}
