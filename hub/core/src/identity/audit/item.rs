//! Entries of the audit log as they are shown.

use roadstead_hub_store::AuditRecord;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::AuditImpersonation;

/// An entry as it is exported.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditItem {
    /// Its number.
    pub id: i64,
    /// When it was written.
    pub at: String,
    /// Who; where somebody asked to be taken for somebody else, the latter.
    pub user: String,
    /// Who asked to be taken for that one.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub impersonator: String,
    /// As what, beside the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AuditImpersonation>")]
    pub impersonated: Option<Value>,
    /// Whether that was by an administrator's credential, one that may do all, or by somebody who was taken for an administrator.
    pub administrator: bool,
    /// The client's address, as the hub saw it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub address: String,
    /// The request's id: what its answer had in the header `Audit-Id`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub request: String,
    /// What.
    pub verb: String,
    /// API group of what it was about.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `ok` or `refused`.
    pub outcome: &'static str,
    /// What else is to be known.
    pub detail: String,
    /// How often, where it was counted.
    pub times: i64,
    /// What of the object changed: fields with their old (`from`) and new (`to`) values. Of Secrets, and of what is encrypted, there
    /// are keyed hashes in the place of values, which are equal where the values are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<AuditChange>>")]
    pub changes: Option<Value>,
    /// The batch in which it is sealed, if it is yet; 0 for what is from before the log was sealed.
    pub batch: Option<i64>,
    /// Whether it is what a hub with this key wrote.
    pub signed: bool,
}

impl From<AuditRecord> for AuditItem {
    fn from(record: AuditRecord) -> Self {
        let AuditRecord { id, at, entry, batch, signed } = record;
        Self {
            id,
            at: at.to_string(),
            user: entry.username,
            verb: entry.verb,
            group: entry.group,
            kind: entry.kind,
            namespace: entry.namespace,
            name: entry.name,
            outcome: entry.outcome.as_str(),
            detail: entry.detail,
            impersonator: entry.impersonator,
            impersonated: entry.impersonated.map(read),
            administrator: entry.origin.administrator,
            address: entry.origin.address,
            request: entry.origin.request,
            times: entry.times.max(1),
            changes: entry.changes.map(read),
            batch,
            signed,
        }
    }
}

/// What is stored as JSON. What somebody else wrote there is shown as the text that it is.
fn read(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// A field that changed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditChange {
    /// `.spec.containers[0].image`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The old value; none where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// The new value; none where there is none any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
    /// In the place of a field: why there is not all. Fields behind it have keyed hashes in the place of values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
