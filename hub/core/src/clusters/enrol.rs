//! How a cluster comes on board: a single-use join token, a certificate request, a certificate.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use roadstead_api::{Cluster, ConditionStatus, KindId};
use roadstead_deploy::Join;
use roadstead_hub_store::{Checked, Store, Stored, TokenKind};
use roadstead_model::{AuditEntry, AuditOrigin, ClusterUid, KubeSystemUid, Reason};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::clock::Clock;
use crate::clusters::onboard;
use crate::clusters::pki::{AgentCertificate, AgentIdentity, Pki};
use crate::context::Context;
use crate::identity::tokens::{LookUp, Tokens};
use crate::identity::{AuditLog, Identity, audit};
use crate::objects::conditions::{self, READY};
use crate::objects::{events, status};
use crate::{HubError, HubOptions};

const DEFAULT_TTL: Duration = Duration::from_secs(15 * 60);
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
/// So long may an agent ask again with the same key, in case that the answer got lost.
const REPEAT: Duration = Duration::from_secs(10 * 60);

/// What an agent is started with. Does not print its token.
pub struct Invitation {
    /// The cluster's name.
    pub cluster: String,
    /// The token; shown once and stored nowhere.
    pub token: Zeroizing<String>,
    /// After this it is worth nothing.
    pub expires: jiff::Timestamp,
    /// The URL of the API's listener, where to enrol.
    pub hub: String,
    /// The address of the link's listener.
    pub link: String,
    /// The CA of both.
    pub ca_pem: String,
}

impl Invitation {
    /// As the Secret from which the agent joins.
    #[must_use]
    pub fn secret(&self, namespace: &str) -> Value {
        let join = Join {
            cluster: &self.cluster,
            token: &self.token,
            expires: &self.expires.to_string(),
            hub: &self.hub,
            link: &self.link,
            ca_pem: &self.ca_pem,
        };
        join.secret(namespace)
    }
}

/// An agent's first request.
pub struct Enrolment<'a> {
    /// The join token.
    pub token: &'a str,
    /// The certificate request, PEM.
    pub csr_pem: &'a str,
    /// The uid of its cluster's `kube-system` namespace.
    pub kube_system_uid: &'a str,
    /// Where the request comes from.
    pub origin: AuditOrigin,
}

/// What an agent gets for it.
#[derive(Debug, Clone)]
pub struct Enrolled {
    /// Its certificate, PEM.
    pub certificate_pem: String,
    /// The CA of the hub's listeners, PEM.
    pub ca_pem: String,
    /// The address of the link's listener.
    pub link: String,
    /// The cluster's uid on the hub.
    pub cluster: ClusterUid,
    /// The cluster's name on the hub.
    pub name: String,
}

fn refuse(why: &str) -> HubError {
    HubError::Unauthenticated(format!(
        "the join token {why}; make a new one with: roadstead cluster join NAME"
    ))
}

fn hash(token: &str) -> Vec<u8> {
    digest(&SHA256, token.as_bytes()).as_ref().to_vec()
}

/// How agents join.
pub struct Enrolments {
    store: Store,
    clock: Arc<dyn Clock>,
    options: Arc<HubOptions>,
    pki: Arc<Pki>,
    tokens: Arc<Tokens>,
    audit: Arc<AuditLog>,
}

impl Enrolments {
    pub(crate) fn new(
        context: &Context,
        pki: &Arc<Pki>,
        tokens: &Arc<Tokens>,
        audit: &Arc<AuditLog>,
    ) -> Self {
        Self {
            store: context.store.clone(),
            clock: Arc::clone(&context.clock),
            options: Arc::clone(&context.options),
            pki: Arc::clone(pki),
            tokens: Arc::clone(tokens),
            audit: Arc::clone(audit),
        }
    }

    /// Makes a join token for the cluster `name`; `ttl` is bounded, by default 15 minutes.
    ///
    /// # Errors
    /// Where there is no such Cluster or the ttl is out of bounds.
    pub async fn create_join_token(
        &self,
        who: &Identity,
        name: &str,
        ttl: Option<Duration>,
    ) -> Result<Invitation, HubError> {
        let ttl = ttl.unwrap_or(DEFAULT_TTL);
        if ttl.is_zero() || ttl > MAX_TTL {
            return Err(HubError::BadRequest(format!(
                "a join token lives from 1 to {} seconds, not {}",
                MAX_TTL.as_secs(),
                ttl.as_secs()
            )));
        }
        let token = self.store.tokens().make(TokenKind::Join)?;
        let token = Zeroizing::new(token.expose().to_owned());
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(cluster) = tx.get(KindId::Cluster, "", name).await? else {
            return Err(HubError::NotFound { what: format!("clusters.fleet.roadstead.dev \"{name}\"") });
        };
        tx.add_join_token(cluster.uid.into(), &hash(&token), now, now + ttl).await?;
        let mut entry = audit::about(who, "create", KindId::Cluster, "", name);
        entry.kind.push_str("/jointoken");
        entry.detail = format!("until {}", now + ttl);
        tx.note(&entry).await?;
        tx.commit().await?;
        Ok(Invitation {
            cluster: name.to_owned(),
            token,
            expires: now + ttl,
            hub: self.options.api_url.clone(),
            link: self.options.link_address.clone(),
            ca_pem: self.pki.server_ca_pem().to_owned(),
        })
    }

    /// Refuses a join token that this hub cannot have made; asks no database.
    ///
    /// # Errors
    /// [`HubError::Unauthenticated`].
    pub fn check_join_token(&self, token: &str, origin: &AuditOrigin) -> Result<(), HubError> {
        match self.store.tokens().tell(TokenKind::Join, token) {
            Checked::Ours | Checked::Unchecked => Ok(()),
            Checked::Foreign => Err(self.noted(refuse("is not known"), origin)),
        }
    }

    /// A place for an enrolment with a token from before there was a check, which cannot be told from a made-up one: these
    /// wait for each other, before they take anything else, and for nobody else. None for all others.
    ///
    /// # Errors
    /// [`HubError::TooMany`] where too many wait.
    pub async fn enter_unchecked(&self, token: &str) -> Result<Option<LookUp<'_>>, HubError> {
        match self.store.tokens().tell(TokenKind::Join, token) {
            Checked::Unchecked => self.tokens.unchecked().enter().await.map(Some),
            Checked::Ours | Checked::Foreign => Ok(None),
        }
    }

    /// A refusal, of which the audit log tells.
    fn noted(&self, refusal: HubError, origin: &AuditOrigin) -> HubError {
        self.audit.note_refusal(AuditEntry {
            username: "system:anonymous".to_owned(),
            origin: origin.clone(),
            verb: "enrol".to_owned(),
            kind: "JoinToken".to_owned(),
            detail: refusal.to_string(),
            ..AuditEntry::default()
        });
        refusal
    }

    /// Takes an agent on board. Whoever takes enrolments from anonymous clients holds a place of [`Self::enter_unchecked`]
    /// meanwhile.
    ///
    /// # Errors
    /// Where the token is unknown, expired or used, where the cluster is registered under another name already, or
    /// the certificate request is not one.
    pub async fn enrol(&self, request: &Enrolment<'_>) -> Result<Enrolled, HubError> {
        self.check_join_token(request.token, &request.origin)?;
        self.try_enrol(request).await.map_err(|error| match error {
            HubError::Unauthenticated(_) | HubError::Conflict { .. } | HubError::BadRequest(_) => {
                self.noted(error, &request.origin)
            }
            error => error,
        })
    }

    async fn try_enrol(&self, request: &Enrolment<'_>) -> Result<Enrolled, HubError> {
        let kube_system: KubeSystemUid = request
            .kube_system_uid
            .parse()
            .map_err(|_| HubError::BadRequest("kubeSystemUid is not a uid".to_owned()))?;
        let now = self.clock.now();
        let mut tx = self.store.begin().await?;
        let Some(token) = tx.join_token(&hash(request.token)).await? else {
            return Err(refuse("is not known"));
        };
        if now >= token.expires {
            return Err(refuse(&format!("expired at {} (the hub's clock says {now})", token.expires)));
        }
        let certificate = self.pki.sign_agent(request.csr_pem, token.cluster, now)?;
        if let Some((used, key)) = &token.used
            && (*key != certificate.public_key || now > *used + REPEAT)
        {
            return Err(refuse(&format!("was used at {used}")));
        }
        let Some(mut stored) = tx.get_by_uid(token.cluster.into()).await? else {
            return Err(refuse("is for a Cluster that no longer exists"));
        };
        let name = stored.name.clone();
        if let Some(holder) = onboard::claim(&mut tx, token.cluster, &name, kube_system, now).await? {
            drop(tx);
            return self.refuse_claim(&stored, &holder).await;
        }
        tx.use_join_token(token.id, &certificate.public_key, now).await?;
        let replaced = tx.agent_key(token.cluster).await?.is_some_and(|key| key != certificate.public_key);
        tx.set_agent_key(token.cluster, &certificate.public_key, now).await?;
        // Whoever holds the key from before has no part in this cluster any more, also if it is connected.
        let is_cut = replaced && tx.cut_session(token.cluster, now).await?;
        status::write::<Cluster>(&mut tx, &mut stored, now, |status, generation| {
            status.kube_system_uid = Some(kube_system.to_string());
            if is_cut {
                let message = "another agent has joined as this cluster; the previous one is disconnected";
                let (is, reason) = (ConditionStatus::False, Reason::AgentDisconnected);
                conditions::set(&mut status.conditions, READY, is, reason, message, generation, now);
            }
        })
        .await?;
        tx.note(&AuditEntry {
            username: format!("system:roadstead:agent:{name}"),
            origin: request.origin.clone(),
            verb: "enrol".to_owned(),
            group: KindId::Cluster.get().group().to_owned(),
            kind: KindId::Cluster.get().kind.to_owned(),
            name: name.clone(),
            detail: format!("join token {}, kube-system {kube_system}", token.id),
            ..AuditEntry::default()
        })
        .await?;
        tx.commit().await?;
        tracing::info!(cluster = name, "agent enrolled");
        Ok(Enrolled {
            certificate_pem: certificate.pem,
            ca_pem: self.pki.server_ca_pem().to_owned(),
            link: self.options.link_address.clone(),
            cluster: token.cluster,
            name,
        })
    }

    /// An agent says that it runs in a cluster that another Cluster is. Who holds a token is not told which one: whoever runs
    /// the hub is, at both Clusters.
    async fn refuse_claim(&self, claimant: &Stored, holder: &str) -> Result<Enrolled, HubError> {
        let (now, reason) = (self.clock.now(), Reason::AlreadyRegistered.as_str());
        let name = &claimant.name;
        let mut tx = self.store.begin().await?;
        let message = format!(
            "an agent with a join token of this Cluster was refused: its cluster is already registered as Cluster \
             '{holder}' (the uid of namespace kube-system is the same). Delete the one of the two that is wrong"
        );
        events::note(&mut tx, claimant, "Warning", reason, &message, now).await?;
        if let Some(holder) = tx.get(KindId::Cluster, "", holder).await? {
            let message = format!(
                "an agent with a join token of Cluster '{name}' was refused: its cluster is already registered as this \
                 Cluster (the uid of namespace kube-system is the same). Delete the one of the two that is wrong"
            );
            events::note(&mut tx, &holder, "Warning", reason, &message, now).await?;
        }
        tx.commit().await?;
        tracing::warn!(cluster = name, holder, "an enrolment was refused: the cluster is already registered");
        Err(HubError::Conflict {
            what: format!("Cluster '{name}'"),
            why: "this cluster is already registered under another name; see the events of the Cluster on the hub"
                .to_owned(),
        })
    }

    /// A new certificate for an agent that is connected, for the key that it has.
    ///
    /// # Errors
    /// Where the request is for another key.
    pub fn renew(&self, identity: &AgentIdentity, csr_pem: &str) -> Result<AgentCertificate, HubError> {
        let certificate = self.pki.sign_agent(csr_pem, identity.cluster, self.clock.now())?;
        if certificate.public_key != identity.public_key {
            return Err(HubError::Forbidden(
                "a certificate can be renewed only for the same key; to change the key, join again"
                    .to_owned(),
            ));
        }
        Ok(certificate)
    }
}
