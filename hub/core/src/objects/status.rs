//! The one way in which the hub writes a status: the write has its manager, news of readiness becomes an Event in the same unit
//! of work, and whoever has to do with what changed is processed again.

use jiff::Timestamp;
use roadstead_api::{
    Alert, AnyApplier, AnyApplierStatus, AnySource, AnySourceStatus, ArtifactGenerator,
    ArtifactGeneratorStatus, Cluster, ClusterStatus, Condition, ConditionStatus, KindId, ManagementCluster,
    ManagementClusterStatus, NotificationStatus, Provider, Receiver, ReceiverStatus, Typed,
};
use roadstead_hub_store::{StoreError, Stored, Tx, Whom};
use roadstead_model::{Queue, Reason, ResourceUid};
use serde::Serialize;

use crate::objects::conditions::{self, READY};
use crate::objects::{events, managers, triggers};

/// A kind whose status the hub writes.
pub(crate) trait HasStatus: Typed {
    /// What its status says.
    type Status: Clone + Default + PartialEq + Serialize + Send;

    /// The status of an object.
    fn into_status(self) -> Option<Self::Status>;

    /// Its conditions.
    fn conditions(status: &Self::Status) -> &[Condition];

    /// Who is to be processed again after a change of it, of an object with this generation: by default its parent, where Ready says
    /// something else.
    fn concerned(before: &Self::Status, after: &Self::Status, _generation: i64) -> Whom {
        let verdicts = [before, after].map(|status| verdict(Self::conditions(status)));
        Whom { parent: verdicts[0] != verdicts[1], ..Whom::default() }
    }
}

/// How it is told what Ready says, where that is not told as it stands there.
pub(crate) enum News {
    /// In none.
    Nothing,
    /// As what waits for something else, which is what is wrong: no failure of this object.
    Waiting,
    /// By this reason, and this message.
    Ready(Reason, String),
}

/// A status that was written.
#[derive(Debug, Default)]
pub(crate) struct WrittenStatus {
    /// Where its users are processed again: those that were known when it was written.
    pub(crate) users: Option<Vec<ResourceUid>>,
    /// What Ready says now was not said before, as far as Events are kept.
    pub(crate) is_news: bool,
}

/// Changes an object's status in `tx`; `change` is given the object's generation. None where nothing changed; then nothing is
/// written.
pub(crate) async fn write<K: HasStatus>(
    tx: &mut Tx,
    stored: &mut Stored,
    now: Timestamp,
    change: impl FnOnce(&mut K::Status, i64) + Send,
) -> Result<Option<WrittenStatus>, StoreError> {
    write_telling::<K>(tx, stored, now, change, |_, _| None).await
}

/// The same, where readiness may be told in other words: those that `telling` gives for the status before and the one after, or as in
/// [`write`] where it gives none.
pub(crate) async fn write_telling<K: HasStatus>(
    tx: &mut Tx,
    stored: &mut Stored,
    now: Timestamp,
    change: impl FnOnce(&mut K::Status, i64) + Send,
    telling: impl FnOnce(&K::Status, &K::Status) -> Option<News> + Send,
) -> Result<Option<WrittenStatus>, StoreError> {
    let before = stored.decode::<K>()?.into_status().unwrap_or_default();
    let mut status = before.clone();
    change(&mut status, stored.generation);
    if status == before {
        return Ok(None);
    }
    managers::set_status(stored, &status, now)?;
    tx.put(stored.clone()).await?;
    let is_news = match telling(&before, &status) {
        Some(News::Nothing) => false,
        Some(News::Ready(reason, message)) => {
            let told = ("Normal", reason.as_str(), message.as_str());
            events::note_condition(tx, stored, Some(READY), told, now).await?
        }
        telling => {
            let (before, after) = (K::conditions(&before), K::conditions(&status));
            events::on_ready(tx, stored, (before, after), telling.is_some(), now).await?
        }
    };
    // What said that something fails says nothing any more: that is over, and not news.
    let (was, is) = (K::conditions(&before), K::conditions(&status));
    let fails = |condition: &&Condition| condition.status == ConditionStatus::False;
    if triggers::is_told_of(stored.kind)
        && was.iter().filter(fails).any(|one| conditions::find(is, &one.type_).is_none())
    {
        let kind = stored.kind.get().kind;
        let alerts = tx.alerts_of_failing(kind, &stored.namespace, &stored.name).await?;
        tx.enqueue(Queue::Alert, &alerts).await?;
    }
    let whom = K::concerned(&before, &status, stored.generation);
    let (namespace, name) = (&stored.namespace, &stored.name);
    let mut written = WrittenStatus { is_news, ..WrittenStatus::default() };
    if whom != Whom::default() {
        let concerned = tx.concerned(stored.kind, namespace, name, whom).await?;
        tx.enqueue(Queue::Applier, &concerned.users).await?;
        tx.enqueue(Queue::Source, &concerned.sources).await?;
        // Of what is neither, only ArtifactGenerators refer to sources.
        tx.enqueue(Queue::Generator, &concerned.others).await?;
        tx.enqueue(Queue::Applier, concerned.parent.as_slice()).await?;
        // A commit has a status from its beginning.
        tx.enqueue(Queue::Alert, &concerned.alerts).await?;
        written.users = whom.users.then_some(concerned.users);
    }
    if whom.sources && stored.kind == KindId::HelmRepository {
        // Its index may have now what they lack.
        triggers::wake_charts_without_dependencies(tx, namespace).await?;
    }
    Ok(Some(written))
}

impl HasStatus for AnyApplier {
    type Status = AnyApplierStatus;

    fn into_status(self) -> Option<Self::Status> {
        self.status
    }

    fn conditions(status: &Self::Status) -> &[Condition] {
        &status.applier.conditions
    }

    fn concerned(before: &Self::Status, after: &Self::Status, generation: i64) -> Whom {
        let ready = |status: &Self::Status| {
            (
                conditions::is_true(&status.applier.conditions, READY, generation),
                status.applier.last_applied_revision.clone(),
            )
        };
        // A parent that waits says why its child is not Ready, too.
        let parent = verdict(&before.applier.conditions) != verdict(&after.applier.conditions);
        Whom { users: ready(before) != ready(after), sources: false, parent }
    }
}

impl HasStatus for AnySource {
    type Status = AnySourceStatus;

    fn into_status(self) -> Option<Self::Status> {
        self.status
    }

    fn conditions(status: &Self::Status) -> &[Condition] {
        &status.source.conditions
    }

    fn concerned(before: &Self::Status, after: &Self::Status, _: i64) -> Whom {
        let artifact = |status: &Self::Status| {
            status
                .source
                .artifact
                .as_ref()
                .map(|artifact| (artifact.digest.clone(), artifact.revision.clone()))
        };
        let sources = artifact(after) != artifact(before);
        // Without an artifact, users show the source's own message, once there is one.
        let is_known = |ready: &Condition| ready.status != ConditionStatus::Unknown;
        let says_why = || conditions::ready(&after.source.conditions).is_some_and(is_known);
        let users = sources || after.source.artifact.is_none() && says_why();
        Whom { users, sources, parent: true }
    }
}

/// A kind that has its conditions at the top of its status.
macro_rules! has_status {
    ($kind:ty, $status:ty $(, $concerned:item)?) => {
        impl HasStatus for $kind {
            type Status = $status;

            fn into_status(self) -> Option<Self::Status> {
                self.status
            }

            fn conditions(status: &Self::Status) -> &[Condition] {
                &status.conditions
            }

            $($concerned)?
        }
    };
    ($kind:ty, $status:ty; nobody is concerned) => {
        has_status! { $kind, $status, fn concerned(_: &Self::Status, _: &Self::Status, _: i64) -> Whom {
            Whom::default()
        } }
    };
}

has_status! { Receiver, ReceiverStatus }
has_status! { ArtifactGenerator, ArtifactGeneratorStatus }
// Whoever changes what others go by (an agent's session) says so.
has_status! { Cluster, ClusterStatus; nobody is concerned }
has_status! { ManagementCluster, ManagementClusterStatus; nobody is concerned }
// No deployment waits for a chat.
has_status! { Provider, NotificationStatus; nobody is concerned }
has_status! { Alert, NotificationStatus; nobody is concerned }

/// What Ready says, without when it came to that.
fn verdict(conditions: &[Condition]) -> Option<(ConditionStatus, &str, Option<i64>)> {
    let ready = conditions::ready(conditions)?;
    Some((ready.status, &ready.message, ready.observed_generation))
}
