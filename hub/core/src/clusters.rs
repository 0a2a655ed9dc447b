//! Clusters: how they come on board and go, their agents' sessions, and what agents are told to do with themselves.

mod before;
pub(crate) mod enrol;
pub(crate) mod management;
pub(crate) mod onboard;
pub mod pki;
pub(crate) mod progress;
mod reserved;
mod retire;
pub(crate) mod rollout;
pub(crate) mod session;
mod skew;

pub use before::AccessBefore;
pub use enrol::{Enrolled, Enrolment, Enrolments, Invitation};
pub use management::{
    MANAGEMENT_READ, Management, ManagementJob, ManagementOutcome, ManagementWatch, StepEvidence,
};
pub use onboard::{Failed, Onboarding, OnboardingJob, OnboardingPlan};
pub use progress::Progress;
pub use reserved::{InvalidReservedName, ReservedName};
pub use roadstead_hub_store::SeenAttempt;
pub use rollout::{Agents, ImageSignature, UpgradeReport};
pub use session::{AgentState, Begun, Greeting, NOT_CURRENT, Session, SessionStanding, Sessions};
