//! Kubernetes' messages, as far as requests bring them.
//!
//! Field numbers are those of Kubernetes' published `generated.proto` files. Fields that only a server sets are passed
//! over.

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Envelope {
    #[prost(message, optional, tag = "1")]
    pub(super) type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TypeMeta {
    #[prost(string, tag = "1")]
    pub(super) api_version: String,
    #[prost(string, tag = "2")]
    pub(super) kind: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) generate_name: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    #[prost(string, tag = "5")]
    pub(super) uid: String,
    #[prost(string, tag = "6")]
    pub(super) resource_version: String,
    #[prost(map = "string, string", tag = "11")]
    pub(super) labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "12")]
    pub(super) annotations: HashMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    pub(super) owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    pub(super) finalizers: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OwnerReference {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) uid: String,
    #[prost(string, tag = "5")]
    pub(super) api_version: String,
    #[prost(bool, optional, tag = "6")]
    pub(super) controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub(super) block_owner_deletion: Option<bool>,
}

/// All that there is of a Namespace for a user to say.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Namespace {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
}

/// Does not print (prost would).
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(super) struct Secret {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(map = "string, bytes", tag = "2")]
    pub(super) data: HashMap<String, Vec<u8>>,
    #[prost(string, tag = "3")]
    pub(super) type_: String,
    #[prost(map = "string, string", tag = "4")]
    pub(super) string_data: HashMap<String, String>,
    #[prost(bool, optional, tag = "5")]
    pub(super) immutable: Option<bool>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ConfigMap {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(map = "string, string", tag = "2")]
    pub(super) data: HashMap<String, String>,
    #[prost(map = "string, bytes", tag = "3")]
    pub(super) binary_data: HashMap<String, Vec<u8>>,
    #[prost(bool, optional, tag = "4")]
    pub(super) immutable: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ServiceAccount {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    pub(super) secrets: Vec<ObjectReference>,
    #[prost(message, repeated, tag = "3")]
    pub(super) image_pull_secrets: Vec<LocalObjectReference>,
    #[prost(bool, optional, tag = "4")]
    pub(super) automount_token: Option<bool>,
}

/// What of a ResourceQuota is a user's to say; a selector of scopes, which nothing here has, is not read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceQuota {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<ResourceQuotaSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceQuotaSpec {
    #[prost(map = "string, message", tag = "1")]
    pub(super) hard: HashMap<String, Quantity>,
    #[prost(string, repeated, tag = "2")]
    pub(super) scopes: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Quantity {
    #[prost(string, tag = "1")]
    pub(super) text: String,
}

/// As far as ServiceAccounts use it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectReference {
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LocalObjectReference {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

/// A Role, and a ClusterRole.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Role {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    pub(super) rules: Vec<PolicyRule>,
    #[prost(message, optional, tag = "3")]
    pub(super) aggregation: Option<Aggregation>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Aggregation {
    #[prost(message, repeated, tag = "1")]
    pub(super) selectors: Vec<LabelSelector>,
}

/// kubectl makes such with labels only.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelSelector {
    #[prost(map = "string, string", tag = "1")]
    pub(super) labels: HashMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    pub(super) expressions: Vec<Requirement>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Requirement {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) operator: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PolicyRule {
    #[prost(string, repeated, tag = "1")]
    pub(super) verbs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) api_groups: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub(super) resources: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(super) resource_names: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(super) non_resource_urls: Vec<String>,
}

/// A RoleBinding, and a ClusterRoleBinding.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Binding {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, repeated, tag = "2")]
    pub(super) subjects: Vec<Subject>,
    #[prost(message, optional, tag = "3")]
    pub(super) role: Option<RoleRef>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Subject {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) api_group: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RoleRef {
    #[prost(string, tag = "1")]
    pub(super) api_group: String,
    #[prost(string, tag = "2")]
    pub(super) kind: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TokenRequest {
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<TokenRequestSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TokenRequestSpec {
    #[prost(string, repeated, tag = "1")]
    pub(super) audiences: Vec<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) bound: Option<BoundObjectReference>,
    #[prost(int64, optional, tag = "4")]
    pub(super) seconds: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BoundObjectReference {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) api_version: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) uid: String,
}

/// It says nothing but its kind.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SelfSubjectReview {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SelfSubjectAccessReview {
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<SelfSubjectAccessReviewSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SelfSubjectAccessReviewSpec {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<ResourceAttributes>,
    #[prost(message, optional, tag = "2")]
    pub(super) path: Option<NonResourceAttributes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceAttributes {
    #[prost(string, tag = "1")]
    pub(super) namespace: String,
    #[prost(string, tag = "2")]
    pub(super) verb: String,
    #[prost(string, tag = "3")]
    pub(super) group: String,
    #[prost(string, tag = "4")]
    pub(super) version: String,
    #[prost(string, tag = "5")]
    pub(super) resource: String,
    #[prost(string, tag = "6")]
    pub(super) subresource: String,
    #[prost(string, tag = "7")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NonResourceAttributes {
    #[prost(string, tag = "1")]
    pub(super) path: String,
    #[prost(string, tag = "2")]
    pub(super) verb: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SelfSubjectRulesReview {
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<SelfSubjectRulesReviewSpec>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SelfSubjectRulesReviewSpec {
    #[prost(string, tag = "1")]
    pub(super) namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteOptions {
    #[prost(message, optional, tag = "2")]
    pub(super) preconditions: Option<Preconditions>,
    #[prost(string, repeated, tag = "5")]
    pub(super) dry_run: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Preconditions {
    #[prost(string, optional, tag = "1")]
    pub(super) uid: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(super) resource_version: Option<String>,
}
