//! `Provider`, `Alert` (`notification.toolkit.fluxcd.io/v1beta3`) and `Receiver` (`v1`).

use std::collections::BTreeMap;

use roadstead_model::GoDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cron::CronSchedule;
use crate::kustomization::is_false;
use crate::object::{Condition, LocalObjectReference, Time, duration_schema};
use crate::object::{Object, Typed};
use crate::rbac::LabelSelector;

/// A stored Receiver.
pub type Receiver = Object<ReceiverSpec, ReceiverStatus>;

impl Typed for Receiver {}

/// A stored Provider: a place that events are sent to.
pub type Provider = Object<ProviderSpec, NotificationStatus>;

impl Typed for Provider {}

/// A stored Alert, which says which events are sent to a Provider.
pub type Alert = Object<AlertSpec, NotificationStatus>;

impl Typed for Alert {}

/// NotificationStatus records whether a Provider can be sent events, or an Alert's events arrive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotificationStatus {
    /// The last reconciled generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last manual reconciliation request that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// What became of what was to be sent, as it was some seconds ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliveries: Option<DeliveryCounts>,
}

/// DeliveryCounts says what became of the events that an Alert, or all Alerts of a Provider, were to send.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryCounts {
    /// How many wait to be sent.
    pub waiting: i64,
    /// How many arrived.
    pub sent: i64,
    /// How many were not taken, or were given up.
    pub failed: i64,
    /// When one last arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_sent_time: Option<Time>,
    /// When an attempt last failed. Most are made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub last_failure_time: Option<Time>,
    /// Why that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
}

/// ProviderSpec says where events are sent, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderSpec {
    /// What is at the address.
    #[serde(rename = "type")]
    pub type_: ProviderType,
    /// Deprecated and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub interval: Option<GoDuration>,
    /// The channel, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub channel: Option<String>,
    /// The name under which messages are posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub username: Option<String>,
    /// The address: a URL, or what the type calls so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub address: Option<String>,
    /// Timeout of sending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub timeout: Option<GoDuration>,
    /// Deprecated: the proxy's URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^(http|https)://.*$"))]
    pub proxy: Option<String>,
    /// The Secret that holds the proxy's address and credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,
    /// The Secret that holds the address, the token, headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// The service account whose cloud identity authenticates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The Secret that holds tls.crt, tls.key and ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
    /// Whether sending is held back.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// A CEL expression that makes the identifier of commit statuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_status_expr: Option<String>,
    /// When what happened since is told as one message, in the place of a message each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<CronSchedule>,
}

/// What events can be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are names of products")]
pub enum ProviderType {
    Slack,
    Discord,
    Msteams,
    Rocket,
    Generic,
    #[serde(rename = "generic-hmac")]
    GenericHmac,
    Github,
    Gitlab,
    Gitea,
    Giteapullrequestcomment,
    Bitbucketserver,
    Bitbucket,
    Azuredevops,
    Googlechat,
    Googlepubsub,
    Webex,
    Sentry,
    Azureeventhub,
    Telegram,
    Lark,
    Matrix,
    Opsgenie,
    Alertmanager,
    Grafana,
    Githubdispatch,
    Githubpullrequestcomment,
    Gitlabmergerequestcomment,
    Pagerduty,
    Datadog,
    Nats,
    Zulip,
    Zoom,
    #[serde(rename = "incident.io")]
    IncidentIo,
    Otel,
}

/// AlertSpec says which events are sent where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertSpec {
    /// The Provider that they are sent to.
    pub provider_ref: LocalObjectReference,
    /// The lowest severity that is sent. Defaults to info; with group, to error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_severity: Option<Severity>,
    /// The objects whose events are sent.
    pub event_sources: Vec<CrossNamespaceObjectReference>,
    /// Regular expressions of which one must match the message, where there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inclusion_list: Vec<String>,
    /// What is added to each event's metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub event_metadata: BTreeMap<String, String>,
    /// Regular expressions of which none may match the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclusion_list: Vec<String>,
    /// Deprecated: a summary that is added to each event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub summary: Option<String>,
    /// Whether sending is held back.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// A CEL expression that makes the message, of event and, where the Alert groups, incident.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_expr: Option<String>,
    /// CEL expressions that make values of the event's metadata, of the same. They win over other values of their keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub event_metadata_exprs: BTreeMap<String, String>,
    /// Tells failures with one cause as one incident, which is opened, grows and is resolved. To a Provider that makes commit statuses it tells one
    /// status of each revision and environment, which counts the clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<AlertGroup>,
}

impl AlertSpec {
    /// Whether failures only are sent. What ends an incident is sent all the same.
    #[must_use]
    pub fn is_for_errors(&self) -> bool {
        match self.event_severity {
            Some(severity) => severity == Severity::Error,
            // Whoever wants one message for a hundred failures does not want a hundred for what went well.
            None => self.group.is_some(),
        }
    }
}

/// AlertGroup says when incidents are told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertGroup {
    /// How long failures are gathered before an incident is told, and how long all must be well before it is resolved; 1h at most. Defaults
    /// to 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub wait: Option<GoDuration>,
    /// How long after a message it is told at the earliest that more objects fail; 10s at least. Defaults to 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub interval: Option<GoDuration>,
    /// How long after a message it is told that the incident goes on. 0s is never. Defaults to 4h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub repeat_interval: Option<GoDuration>,
    /// Of commit statuses: the label of Clusters whose values are environments, each of which has a status of its own. Defaults to one for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 317))]
    pub environment_label: Option<String>,
}

/// How bad an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// News.
    Info,
    /// A failure.
    Error,
}

/// CrossNamespaceObjectReference names objects, perhaps of another namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrossNamespaceObjectReference {
    /// API version of the referent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the referent.
    pub kind: EventSourceKind,
    /// Name of the referent; `*` for all.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The Cluster whose events are meant, as Flux's controllers there report them to its agent: its name, or `*` for all. Needs the writer's
    /// right to get clusters/events, or the Cluster's spec.eventReaders to name the namespace. Without it, the hub's own objects are meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub cluster: Option<String>,
    /// Beside cluster: such events also become commit statuses and comments, where the Provider makes those. Without it they do not, since
    /// only the cluster says of which commit and request they are. Not beside spec.group.
    #[serde(default, skip_serializing_if = "is_false")]
    pub statuses_and_comments: bool,
    /// Namespace of the referent; `*` for all. Defaults to the object's own. Those of other namespaces need the writer's right to get them,
    /// or a ReferenceGrant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
    /// Labels that must have these values when the event happens.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Which namespaces of the hub, by their labels, where the namespace is `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// On which Clusters, by their labels. Events that are about no Cluster, such as those of sources, are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<LabelSelector>,
}

/// The kinds that have events to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "they are names of kinds")]
pub enum EventSourceKind {
    Bucket,
    GitRepository,
    Kustomization,
    HelmRelease,
    HelmChart,
    HelmRepository,
    ImageRepository,
    ImagePolicy,
    ImageUpdateAutomation,
    #[serde(rename = "OCIRepository")]
    OciRepository,
    ArtifactGenerator,
    ExternalArtifact,
}

impl EventSourceKind {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Bucket,
        Self::GitRepository,
        Self::Kustomization,
        Self::HelmRelease,
        Self::HelmChart,
        Self::HelmRepository,
        Self::ImageRepository,
        Self::ImagePolicy,
        Self::ImageUpdateAutomation,
        Self::OciRepository,
        Self::ArtifactGenerator,
        Self::ExternalArtifact,
    ];

    /// The API group that the kind has in Flux.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::Bucket
            | Self::GitRepository
            | Self::HelmChart
            | Self::HelmRepository
            | Self::OciRepository
            | Self::ExternalArtifact => "source.toolkit.fluxcd.io",
            Self::Kustomization => "kustomize.toolkit.fluxcd.io",
            Self::HelmRelease => "helm.toolkit.fluxcd.io",
            Self::ImageRepository | Self::ImagePolicy | Self::ImageUpdateAutomation => {
                "image.toolkit.fluxcd.io"
            }
            Self::ArtifactGenerator => "source.extensions.fluxcd.io",
        }
    }

    /// The kind's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bucket => "Bucket",
            Self::GitRepository => "GitRepository",
            Self::Kustomization => "Kustomization",
            Self::HelmRelease => "HelmRelease",
            Self::HelmChart => "HelmChart",
            Self::HelmRepository => "HelmRepository",
            Self::ImageRepository => "ImageRepository",
            Self::ImagePolicy => "ImagePolicy",
            Self::ImageUpdateAutomation => "ImageUpdateAutomation",
            Self::OciRepository => "OCIRepository",
            Self::ArtifactGenerator => "ArtifactGenerator",
            Self::ExternalArtifact => "ExternalArtifact",
        }
    }
}

/// ReceiverSpec says which webhook makes which objects reconcile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverSpec {
    /// Who calls.
    #[serde(rename = "type")]
    pub type_: ReceiverType,
    /// The interval at which the Receiver is looked at. Defaults to 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub interval: Option<GoDuration>,
    /// The events that are listened to, as the caller names them. Empty is all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// The objects that are reconciled.
    pub resources: Vec<ReceiverResource>,
    /// A CEL expression that must hold for an object to be reconciled, over the call's body (req) and the object's metadata (res).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_filter: Option<String>,
    /// The Secret that holds the token by which callers are known. Needed by all types but generic-oidc, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Whose tokens callers may show. For type generic-oidc, which needs one at least.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub oidc_providers: Vec<OidcProvider>,
    /// Whether calls are passed over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

/// ReceiverResource names objects that are reconciled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverResource {
    /// API version of the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the objects.
    pub kind: EventSourceKind,
    /// Name of the object; `*` for all that have the labels.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the objects. Defaults to the Receiver's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
    /// Labels that must have these values. Needed where the name is `*`, and passed over elsewhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// A CEL expression that must hold for one of these to be reconciled, as resourceFilter for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// OidcProvider is an issuer of OpenID Connect tokens, and what must hold of those that callers show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcProvider {
    /// The issuer's URL, as its tokens have it.
    #[serde(rename = "issuerURL")]
    #[schemars(regex(pattern = r"^https?://"))]
    pub issuer_url: String,
    /// For whom the tokens are. Defaults to notification-controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Values that validations use as vars.NAME, each made of the claims and those before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<OidcVariable>,
    /// What must hold.
    #[schemars(length(min = 1))]
    pub validations: Vec<OidcValidation>,
}

/// OidcVariable is a value with a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcVariable {
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The CEL expression that makes it.
    #[schemars(length(min = 1))]
    pub expression: String,
}

/// OidcValidation is something that must hold of a token's claims.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcValidation {
    /// The CEL expression, over claims and vars.
    #[schemars(length(min = 1))]
    pub expression: String,
    /// What is said in the log where it does not hold.
    #[schemars(length(min = 1))]
    pub message: String,
}

/// Who calls a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are names of products")]
pub enum ReceiverType {
    Generic,
    #[serde(rename = "generic-hmac")]
    GenericHmac,
    #[serde(rename = "generic-oidc")]
    GenericOidc,
    Github,
    Gitlab,
    Bitbucket,
    Harbor,
    Dockerhub,
    Quay,
    Gcr,
    Nexus,
    Acr,
    Cdevents,
}

/// ReceiverStatus records where the webhook is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverStatus {
    /// The last reconciled generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions of the Receiver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The path that is to be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_path: Option<String>,
    /// The last manual reconciliation request that was handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
