//! Client certificates, for when nobody can sign in otherwise (`--client-ca-file`): whom one stands for. Its authority has vouched for it
//! before; what it says is held to the same rules as the claims of a token.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use roadstead_model::AuditEntry;
use roadstead_oidc::{Refusal, check_name, is_reserved};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::HubError;
use crate::identity::accounts::CREDENTIAL;
use crate::identity::audit::{REPEATS, by};
use crate::identity::{AuditLog, Authenticator, Identity, MASTERS};

/// Groups of one certificate.
const MOST_GROUPS: usize = 100;

/// A client's certificate for which an authority has vouched.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    username: String,
    groups: Vec<String>,
    fingerprint: String,
    serial: String,
    expires: Timestamp,
}

/// Why a certificate stands for nobody.
#[derive(Debug, thiserror::Error)]
pub enum BadCertificate {
    /// It is none.
    #[error("it is not readable")]
    Form,
    /// There must be one common name, which is the user's.
    #[error("it does not have exactly one common name")]
    NoName,
    /// A name is one that nobody gets in this way.
    #[error("{0} begins with system:, which is reserved")]
    Reserved(&'static str),
    /// A name is none.
    #[error(transparent)]
    Name(#[from] Refusal),
    /// It has more groups than anybody is in.
    #[error("it has more than {MOST_GROUPS} organizations")]
    TooMany,
}

impl ClientCertificate {
    /// Reads one (DER): the common name is the user's, and organizations are groups. `masters` says whether it may be of system:masters.
    ///
    /// # Errors
    /// [`BadCertificate`].
    pub fn read(der: &[u8], masters: bool) -> Result<Self, BadCertificate> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| BadCertificate::Form)?;
        let text = |name: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            name.as_str().map(str::to_owned).map_err(|_| BadCertificate::Form)
        };
        let subject = certificate.subject();
        let mut names = subject.iter_common_name();
        let (Some(username), None) = (names.next(), names.next()) else { return Err(BadCertificate::NoName) };
        let username = text(username)?;
        let groups = subject.iter_organization().take(MOST_GROUPS + 1).map(text);
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        if username.is_empty() {
            return Err(BadCertificate::NoName);
        }
        if groups.len() > MOST_GROUPS {
            return Err(BadCertificate::TooMany);
        }
        check_name("the common name", &username)?;
        if is_reserved(&username) {
            return Err(BadCertificate::Reserved("the common name"));
        }
        for group in &groups {
            check_name("an organization", group)?;
            if is_reserved(group) && !(masters && group == MASTERS) {
                return Err(BadCertificate::Reserved("an organization"));
            }
        }
        let expires = Timestamp::from_second(certificate.validity().not_after.timestamp())
            .map_err(|_| BadCertificate::Form)?;
        let fingerprint = HEXLOWER.encode(digest(&SHA256, der).as_ref());
        let serial = HEXLOWER.encode(certificate.raw_serial());
        Ok(Self { username, groups, fingerprint, serial, expires })
    }
}

impl Authenticator {
    /// Whom a client's certificate stands for. [`AuditLog::note_certificate`] is to come before anything is done by it.
    ///
    /// # Errors
    /// [`HubError::Unauthenticated`] once it has expired; where the database fails.
    pub async fn authenticate_certificate(
        &self,
        certificate: &ClientCertificate,
    ) -> Result<Identity, HubError> {
        let ClientCertificate { username, groups, fingerprint, expires, .. } = certificate;
        if self.clock.now() >= *expires {
            return Err(HubError::Unauthenticated("Unauthorized".to_owned()));
        }
        let mut identity = Identity::authenticated(username, groups.clone());
        identity.extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![format!("X509SHA256={fingerprint}")])]);
        self.permitted(identity).await
    }
}

impl AuditLog {
    /// Writes down that a client's certificate is used: at once, and what follows from the same address within a minute as one entry more.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn note_certificate(
        &self,
        who: &Identity,
        certificate: &ClientCertificate,
    ) -> Result<(), HubError> {
        let ClientCertificate { groups, fingerprint, serial, expires, .. } = certificate;
        let entry = AuditEntry {
            verb: "login".to_owned(),
            kind: "ClientCertificate".to_owned(),
            name: fingerprint.clone(),
            detail: format!("serial {serial} with groups {groups:?} until {expires}"),
            ..by(who)
        };
        if self.note_once(entry, REPEATS).await? {
            tracing::warn!(
                username = who.username,
                serial,
                "a client certificate is used (--client-ca-file)"
            );
        }
        Ok(())
    }
}
