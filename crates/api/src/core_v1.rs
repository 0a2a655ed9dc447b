//! `Namespace`, `Secret`, `ConfigMap` and `ServiceAccount` of the core group.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::ObjectReference;
use crate::object::{Condition, LocalObjectReference, ObjectMeta, Typed};

/// Namespace provides a scope for names: a tenant's boundary on the hub.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    /// The versioned schema of this representation of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// Standard object's metadata.
    pub metadata: ObjectMeta,
    /// The behaviour of the Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<NamespaceSpec>,
    /// The state of the Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<NamespaceStatus>,
}

impl Typed for Namespace {}

/// NamespaceSpec describes the attributes of a Namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NamespaceSpec {
    /// What must be emptied before the Namespace goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// NamespaceStatus is the state of a Namespace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NamespaceStatus {
    /// Active, or Terminating while its contents are being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<NamespacePhase>,
    /// The conditions of the Namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The phase of a Namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NamespacePhase {
    /// In use.
    Active,
    /// Being deleted.
    Terminating,
}

/// Secret holds secret data. The hub encrypts it at rest.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Secret {
    /// The versioned schema of this representation of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// Standard object's metadata.
    pub metadata: ObjectMeta,
    /// The secret data, in base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Secret data as text; merged into data on writing, never shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub string_data: BTreeMap<String, String>,
    /// What the data is for. Cannot be updated. Defaults to Opaque.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Whether the data can no longer be updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
}

impl Typed for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("metadata", &self.metadata)
            .field("type", &self.type_)
            .finish_non_exhaustive()
    }
}

/// ConfigMap holds configuration data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMap {
    /// The versioned schema of this representation of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// Standard object's metadata.
    pub metadata: ObjectMeta,
    /// The data, as text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// Data that is not a text, in base64.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub binary_data: BTreeMap<String, String>,
    /// Whether the data can no longer be updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immutable: Option<bool>,
}

/// ServiceAccount is an identity for programs: tokens for it are asked for at its `token` subresource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAccount {
    /// The versioned schema of this representation of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// Standard object's metadata.
    pub metadata: ObjectMeta,
    /// The Secrets that may be used with this ServiceAccount.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<ObjectReference>,
    /// The Secrets with which images are pulled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Whether pods get a token of it. Of no meaning on the hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
}
