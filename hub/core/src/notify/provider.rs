//! Passes over Providers: whether they could be sent something, before there is something to be sent.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_api::{KindId, Provider, ProviderSpec};
use roadstead_hub_store::Stored;
use roadstead_model::{ApplierUid, Reason, ResourceUid};
use roadstead_notify::{Event, Involved, Level, Next, Unsendable, begin};

use crate::HubError;
use crate::notify::{Fault, LOGGER, Notifier, tell, tell_suspended};
use crate::objects::triggers;

/// How often a Provider is looked at: changes of its spec and its Secrets lead to a pass by themselves.
const INTERVAL: Duration = Duration::from_secs(600);
/// Where nothing is to be done.
const LONG: Duration = Duration::from_secs(3600);

impl Notifier {
    /// Makes a pass over a Provider, and tells when the next one is due.
    ///
    /// # Errors
    /// Where the database fails. What is wrong with the Provider becomes its condition.
    pub async fn process_provider(&self, uid: ResourceUid) -> Result<Timestamp, HubError> {
        let now = self.clock.now();
        let Some(seen) = self.store.get_by_uid(uid).await? else { return Ok(now + LONG) };
        // A Secret's change asks for passes over all that use it.
        if seen.kind != KindId::Provider || seen.deletion_timestamp.is_some() {
            return Ok(now + LONG);
        }
        let spec = seen.decode::<Provider>()?.spec;
        let found = if spec.suspend { None } else { Some(self.inspect(&seen, &spec).await?) };
        let mut tx = self.store.begin().await?;
        let Some(mut stored) = Self::again(&mut tx, &seen).await? else { return Ok(now) };
        match &found {
            None => tell_suspended::<Provider>(&mut tx, &mut stored, now).await?,
            Some(found) => {
                let found =
                    found.as_ref().map(|()| "events can be sent to it".to_owned()).map_err(Clone::clone);
                if tell::<Provider>(&mut tx, &mut stored, &found, now).await?
                    && let Err((_, error)) = &found
                {
                    let provider = format!("{}/{}", seen.namespace, seen.name);
                    tracing::error!(target: LOGGER, provider, error, "events cannot be sent to a Provider");
                }
            }
        }
        // What waits for it may go on: with another Secret, at once.
        triggers::wake_alerts(&mut tx, &stored).await?;
        tx.commit().await?;
        Ok(now + roadstead_hub_plan::jittered(INTERVAL, ApplierUid::from(uid)))
    }

    async fn inspect(&self, stored: &Stored, spec: &ProviderSpec) -> Result<Result<(), Fault>, HubError> {
        let way = match self.way(stored, spec).await? {
            Ok(way) => way,
            Err(fault) => return Ok(Err(fault)),
        };
        match begin(spec.type_, &way.target, &sample(self.clock.now())) {
            Ok(Next::Publish(_)) => match &way.bus {
                Some(bus) => self.may_publish(&way, bus).await,
                None => Ok(Ok(())),
            },
            Ok(next) => self.may_send_all(&way, &next.requests()).await,
            Err(why) => Ok(Err(unsendable(&why))),
        }
    }
}

pub(super) fn unsendable(why: &Unsendable) -> Fault {
    let reason = match why {
        Unsendable::Missing(_) | Unsendable::Address(_) => Reason::ValidationFailed,
        Unsendable::Event(_) | Unsendable::Answer(_) => Reason::NotificationDispatchFailed,
    };
    (reason, why.to_string())
}

/// What a request could be made of. It is never sent.
pub(super) fn sample(now: Timestamp) -> Event {
    Event {
        involved_object: Involved {
            api_version: KindId::Kustomization.get().storage_version().api_version(),
            kind: KindId::Kustomization.to_string(),
            name: "sample".to_owned(),
            namespace: "default".to_owned(),
            uid: String::new(),
            resource_version: String::new(),
        },
        severity: Level::Error,
        timestamp: now.to_string(),
        message: String::new(),
        reason: String::new(),
        // Whatever a type wants to know.
        metadata: BTreeMap::from([
            ("commit".to_owned(), "0".repeat(40)),
            ("change_request".to_owned(), "1".to_owned()),
        ]),
        reporting_controller: String::new(),
        reporting_instance: String::new(),
        relayed_from: None,
        statuses_and_comments: false,
        incident: None,
        rollout: None,
    }
}
