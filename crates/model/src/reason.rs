//! The reasons of the conditions that Roadstead sets: one list, so that none is misspelt.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The `reason` of a condition, as Flux names them where it has one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// The text that stands in the condition.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The reason that `text` names.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $(stringify!($name) => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

impl Reason {
    /// Whether a source that fails for this reason does so until somebody changes its spec, wherever it came from.
    #[must_use]
    pub fn is_of_the_spec(self) -> bool {
        matches!(
            self,
            Self::FeatureGateDisabled
                | Self::InvalidProviderConfiguration
                | Self::InvalidVerificationMode
                | Self::URLInvalid
        )
    }
}

reasons! {
    /// The reconciliation went through.
    ReconciliationSucceeded,
    /// Writing to the cluster failed.
    ReconciliationFailed,
    /// A reconciliation is under way.
    Progressing,
    /// A reconciliation failed, and is tried again.
    ProgressingWithRetry,
    /// A server asks to be left alone for a while.
    RateLimited,
    /// The object is suspended.
    Suspended,
    /// A dependency is not Ready.
    DependencyNotReady,
    /// An object could not be deleted.
    PruneFailed,
    /// What would be deleted is more than may be without a person's confirmation.
    DeletionHeld,
    /// An operator of the cluster has paused its agent.
    PausedInCluster,
    /// Something that was applied cannot be watched.
    WatchForbidden,
    /// Objects differ from what was applied, and that is only reported.
    DriftDetected,
    /// Objects differ from what was applied, and cannot be corrected.
    CorrectionFailed,
    /// Objects were corrected again and again, and are changed each time.
    Contended,
    /// The source has no usable artifact.
    ArtifactFailed,
    /// Files of the source are not in its artifact.
    FilesLeftOut,
    /// Files were decrypted though their MACs do not fit.
    MacNotVerified,
    /// A source of an ArtifactGenerator has no usable artifact.
    SourceFetchFailed,
    /// Reconciliation is turned off by an annotation.
    ReconciliationDisabled,
    /// The manifests could not be built.
    BuildFailed,
    /// A CEL expression cannot be parsed.
    InvalidCELExpression,
    /// An object did not become healthy in time.
    HealthCheckFailed,
    /// The apiserver refused an object; or fields of a spec do not fit together.
    ValidationFailed,
    /// The Secret of a Receiver, or the token in it, is missing.
    TokenNotFound,
    /// No cluster of that name, or none was named.
    ClusterNotFound,
    /// The cluster's agent is not connected.
    ClusterUnreachable,
    /// The cluster's agent is of a version that cannot do what is to be done.
    AgentTooOld,
    /// The database was restored, and has something older than what was applied.
    DatabaseRestored,
    /// This namespace may not do that.
    AccessDenied,
    /// The operator has not allowed this field.
    FeatureGateDisabled,
    /// An event could not be sent, or not be taken.
    NotificationDispatchFailed,
    /// A source was fetched.
    Succeeded,
    /// A repository has no branch.
    EmptyGitRepository,
    /// There is a new artifact of a source.
    NewArtifact,
    /// A source holds another revision than its artifact has.
    NewRevision,
    /// Other artifacts are to be included than those that are in one.
    IncludeChange,
    /// A chart is another one than the artifact has.
    NewChart,
    /// A Git operation failed.
    GitOperationFailed,
    /// The keys that signatures are verified by cannot be had.
    VerificationError,
    /// A tag is to be verified where none is fetched.
    InvalidVerificationMode,
    /// What is to be verified has no signature that could be.
    InvalidGitObject,
    /// The signature of a tag is not one of a trusted key.
    InvalidTagSignature,
    /// The signature of a commit is not one of a trusted key.
    InvalidCommitSignature,
    /// What a source includes is not there.
    NotFound,
    /// What a source includes has no artifact.
    NoArtifact,
    /// What a source includes cannot be put where it is to be.
    IllegalPath,
    /// What a source includes could not be put into its artifact.
    CopyFailure,
    /// Sources include each other.
    IncludeCycle,
    /// An artifact could not be pulled from its registry.
    OCIArtifactPullFailed,
    /// An artifact has not the layer that is asked for, or it cannot be unpacked.
    OCIArtifactLayerOperationFailed,
    /// A bucket could not be listed, or its objects not be fetched.
    BucketOperationFailed,
    /// The index of a Helm repository could not be fetched.
    Failed,
    /// The index of a Helm repository cannot be read.
    IndexationFailed,
    /// The source of a chart is not there, or cannot be looked up.
    SourceUnavailable,
    /// The source of a chart has no artifact yet.
    NoSourceArtifact,
    /// The source of a chart is of a kind that holds no charts.
    UnsupportedSourceKind,
    /// There is no such chart, or not in such a version.
    InvalidChartReference,
    /// A chart could not be received.
    ChartPullError,
    /// The version of a chart could not be changed.
    MetadataPatchError,
    /// Files of values could not be merged.
    ValuesFilesError,
    /// What a chart depends on could not be put into it.
    DependencyBuildError,
    /// A chart could not be packed.
    ChartPackageError,
    /// The signature of a chart could not be verified.
    ChartVerificationError,
    /// A chart was received, and is kept as it came.
    ChartPullSucceeded,
    /// A chart was packed.
    ChartPackageSucceeded,
    /// What a source's reference points to could not be determined.
    ReadOperationFailed,
    /// Credentials of a source are missing or unusable.
    AuthenticationFailed,
    /// The provider of a source and its Secret do not fit together.
    InvalidProviderConfiguration,
    /// The URL of a source is not allowed.
    URLInvalid,
    /// The operator does not allow connections to where the source is.
    AddressNotAllowed,
    /// The timeout is longer than it may be.
    TimeoutCapped,
    /// The fetched tree could not be packed.
    StorageOperationFailed,
    /// An agent is connected.
    AgentConnected,
    /// The agent's link is cut.
    AgentDisconnected,
    /// No agent has joined yet.
    AwaitingAgent,
    /// The agent was installed.
    AgentInstalled,
    /// The agent could not be installed.
    InstallationFailed,
    /// A management cluster does not show its Clusters.
    ClusterApiFailed,
    /// The kubeconfig is missing, or nothing that may be used.
    KubeConfigRefused,
    /// The cluster, or its name, is another Cluster's.
    AlreadyRegistered,
    /// The cluster's own policy does not let its agent run the image.
    UpgradeRefused,
    /// The agent runs the image that it is to run.
    UpToDate,
    /// The agent's turn to run another image comes.
    UpgradePending,
    /// The agent was told to put another image in its place.
    Upgrading,
    /// The agent stays with the image that it had.
    UpgradeFailed,
    /// The agent's image is changed by hand, or on request.
    UpgradeByHand,
    /// The agent's clock and the hub's tell different times.
    ClockSkewed,
    /// The agent cannot remove itself.
    RemovalFailed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
