//! What each type of Provider is sent: a file each.

mod alertmanager;
mod azuredevops;
mod azureeventhub;
mod bitbucket;
mod bitbucketserver;
mod comment;
mod datadog;
mod discord;
mod generic;
mod gitea;
mod github;
mod gitlab;
mod googlechat;
mod googlepubsub;
mod grafana;
mod incidentio;
mod lark;
mod matrix;
mod msteams;
mod nats;
mod opsgenie;
mod otel;
mod pagerduty;
mod post;
mod rocket;
mod sentry;
mod slack;
mod status;
mod telegram;
mod webex;
mod zoom;
mod zulip;

use roadstead_api::ProviderType;

use self::comment::Thread;
pub use self::nats::Publication;
use self::status::CommitStatus;
use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};

/// Metadata that a message shows: there may be any number of it.
const MOST_FACTS: usize = 25;
/// Characters of one of them.
const FACT: usize = 1_000;
/// What is asked only of types that it is asked of.
const NOT_ASKED: Unsendable = Unsendable::Answer("a Provider of this type asks no such thing");
/// The reason of what is under way.
pub(crate) const PROGRESSING: &str = "Progressing";

/// What comes next in telling an event.
#[derive(Debug)]
pub enum Next {
    /// These requests, in their order; each may be sent again. None where the service knows it already.
    Tell(Vec<Request>),
    /// This one, for its answer, of which [`heard`] makes what follows. An answer of 404 is one without a body where
    /// [`Question::may_be_absent`].
    Ask(Request, Question),
    /// This message, on a bus that is not spoken with by requests.
    Publish(Publication),
}

impl Next {
    /// The requests that come next.
    #[must_use]
    pub fn requests(self) -> Vec<Request> {
        match self {
            Self::Tell(requests) => requests,
            Self::Ask(request, _) => vec![request],
            Self::Publish(_) => Vec::new(),
        }
    }
}

/// What was asked of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Which statuses a commit has.
    Statuses,
    /// Who the token's user is.
    Author,
    /// Which comments there are.
    Comments {
        /// The number of the token's user.
        author: u64,
        /// From 1.
        page: u32,
    },
}

impl Question {
    /// Whether such a service answers that there is no such thing where nothing was told yet.
    #[must_use]
    pub fn may_be_absent(self, type_: ProviderType) -> bool {
        let is_by_key = matches!(type_, ProviderType::Bitbucket | ProviderType::Bitbucketserver);
        is_by_key && self == Self::Statuses
    }
}

/// How telling an event, as the Alert tells it ([`Event::told_by`]), begins.
///
/// # Errors
/// [`Unsendable`]: the Provider is not complete, or the event is not one for it.
pub fn begin(type_: ProviderType, target: &Target, event: &Event) -> Result<Next, Unsendable> {
    use ProviderType as T;
    let one = match type_ {
        T::Generic => generic::plain(target, event),
        T::GenericHmac => generic::signed(target, event),
        T::Slack => slack::request(target, event),
        T::Discord => discord::request(target, event),
        T::Rocket => rocket::request(target, event),
        T::Msteams => msteams::request(target, event),
        T::Googlechat => googlechat::request(target, event),
        T::Webex => webex::request(target, event),
        T::Telegram => telegram::request(target, event),
        T::Matrix => matrix::request(target, event),
        T::Lark => lark::request(target, event),
        T::Zulip => zulip::request(target, event),
        T::Zoom => zoom::request(target, event),
        T::IncidentIo => incidentio::request(target, event),
        T::Opsgenie => opsgenie::request(target, event),
        T::Alertmanager => alertmanager::request(target, event),
        T::Grafana => grafana::request(target, event),
        T::Datadog => datadog::request(target, event),
        T::Sentry => sentry::request(target, event),
        T::Otel => otel::request(target, event),
        T::Azureeventhub => azureeventhub::request(target, event),
        T::Googlepubsub => googlepubsub::request(target, event),
        T::Githubdispatch => github::dispatch(target, event),
        T::Pagerduty => return pagerduty::requests(target, event).map(Next::Tell),
        T::Nats => return nats::publication(target, event),
        other => return ask_first(other, target, event),
    };
    one.map(|one| Next::Tell(vec![one]))
}

/// What is asked, of types that have to know what is there before they tell anything.
fn ask_first(type_: ProviderType, target: &Target, event: &Event) -> Result<Next, Unsendable> {
    if let Some(status) = statuses(type_) {
        return Ok(Next::Ask(status(target, event)?.ask, Question::Statuses));
    }
    if let Some(thread) = comments(type_) {
        return Ok(Next::Ask(thread(target, comment::number(event)?)?.author(), Question::Author));
    }
    Err(NOT_ASKED)
}

/// What follows from the answer to a question.
///
/// # Errors
/// [`Unsendable`]: the answer says too little, or the event cannot be told there.
pub fn heard(
    type_: ProviderType,
    target: &Target,
    event: &Event,
    question: Question,
    answer: &[u8],
) -> Result<Next, Unsendable> {
    let status = || statuses(type_).ok_or(NOT_ASKED)?(target, event);
    let thread = || comments(type_).ok_or(NOT_ASKED)?(target, comment::number(event)?);
    match question {
        Question::Statuses => Ok(status()?.heard(answer)),
        Question::Author => thread()?.author_is(answer),
        Question::Comments { author, page } => thread()?.listed(target, event, author, page, answer),
    }
}

/// The status that an event gives a commit.
type Status = fn(&Target, &Event) -> Result<CommitStatus, Unsendable>;
/// The comments of a pull or merge request, by its number.
type Find = fn(&Target, u64) -> Result<Thread, Unsendable>;

/// The types that make a commit's status.
fn statuses(type_: ProviderType) -> Option<Status> {
    match type_ {
        ProviderType::Github => Some(github::status),
        ProviderType::Gitlab => Some(gitlab::status),
        ProviderType::Gitea => Some(gitea::status),
        ProviderType::Bitbucket => Some(bitbucket::status),
        ProviderType::Bitbucketserver => Some(bitbucketserver::status),
        ProviderType::Azuredevops => Some(azuredevops::status),
        _ => None,
    }
}

/// The types that comment on a pull or merge request.
fn comments(type_: ProviderType) -> Option<Find> {
    match type_ {
        ProviderType::Githubpullrequestcomment => Some(github::thread),
        ProviderType::Gitlabmergerequestcomment => Some(gitlab::thread),
        ProviderType::Giteapullrequestcomment => Some(gitea::thread),
        _ => None,
    }
}

/// Whether a type is that of a Git service, where what an event is about has to be there.
#[must_use]
pub fn is_git(type_: ProviderType) -> bool {
    statuses(type_).is_some() || comments(type_).is_some() || type_ == ProviderType::Githubdispatch
}

/// Whether a type makes the statuses of commits.
#[must_use]
pub fn makes_statuses(type_: ProviderType) -> bool {
    statuses(type_).is_some()
}

/// Whether a type is sent an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// It is.
    Always,
    /// It is where the object failed when the Alert last told of it; else it is not news.
    Recovery,
    /// It is not.
    Never,
}

/// Whether a type is sent such an event at all. That all is well again and again is for commit statuses, and for programs; what is under way
/// opens and closes no incident; and commit statuses and comments need to know of which commit and request they are.
#[must_use]
pub fn takes(type_: ProviderType, event: &Event) -> Takes {
    use ProviderType as T;
    let is_closing = event.metadata.get("commit_status").is_some_and(|status| status == "update");
    let is_under_way = event.reason == PROGRESSING;
    let only = |takes: bool| if takes { Takes::Always } else { Takes::Never };
    match type_ {
        // Of which commit and request it is, only its cluster says.
        _ if event.relayed_from.is_some()
            && !event.statuses_and_comments
            && (statuses(type_).is_some() || comments(type_).is_some()) =>
        {
            Takes::Never
        }
        T::Generic | T::GenericHmac if event.rollout.is_none() => Takes::Always,
        // It is about no object that could be opened or closed, and about no commit.
        _ if event.is_summary() => only(
            !is_git(type_) && !matches!(type_, T::Pagerduty | T::Opsgenie | T::IncidentIo | T::Alertmanager),
        ),
        // It is the status of a commit, and for nobody else.
        _ if event.rollout.is_some() => only(makes_statuses(type_)),
        // It is told because it is news.
        _ if event.incident.is_some() => Takes::Always,
        _ if statuses(type_).is_some() => {
            let is_of_commit = is_closing || event.is_error() || event.metadata.contains_key("commit");
            only(is_of_commit && (!is_under_way || type_ == T::Gitea))
        }
        T::Pagerduty | T::IncidentIo if is_under_way => Takes::Never,
        T::Otel if event.involved_object.kind == "HelmRepository" => Takes::Never,
        _ if comments(type_).is_some() && !event.metadata.contains_key("change_request") => Takes::Never,
        _ if is_closing => Takes::Recovery,
        _ => Takes::Always,
    }
}

/// What a service calls the message that it was sent, where more that is told of one incident can be told there.
#[must_use]
pub fn thread(type_: ProviderType, target: &Target, answer: &[u8]) -> Option<String> {
    match type_ {
        ProviderType::Slack => slack::thread(target, answer),
        _ => None,
    }
}

/// Why a service did not take what it answered 2xx to, where its answer says so. Of its own words only codes are told.
#[must_use]
pub fn refused(type_: ProviderType, target: &Target, body: &[u8]) -> Option<String> {
    match type_ {
        ProviderType::Slack => slack::refused(target, body),
        ProviderType::Lark => lark::refused(body),
        ProviderType::Telegram => telegram::refused(body),
        ProviderType::Zulip => zulip::refused(body),
        _ => None,
    }
}

/// What a message shows of the metadata.
fn facts(event: &Event) -> impl Iterator<Item = (&str, &str)> {
    event.facts().into_iter().take(MOST_FACTS)
}
