//! The Secrets that a source's spec names, and what is in them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_api::object::LocalObjectReference;
use roadstead_api::{KindId, SourceSpec};
use roadstead_cloud::CloudIdentity;
use roadstead_hub_store::{SecretData, Store, Stored};
use roadstead_model::Reason;
use roadstead_outbound::{ClientIdentity, Guard, ProxyServer, Secret};
use url::Url;

use crate::HubError;
use crate::identity::AccessRules;
use crate::identity::access::ALLOWED_HOSTS;
use crate::sources::clouds::{AtCloud, Clouds};
use crate::sources::{Sources, kind, pull};

/// Those that a spec names.
#[derive(Default)]
pub(super) struct SourceSecrets {
    /// Of `spec.secretRef`.
    pub(super) login: Option<SourceSecret>,
    /// Of `spec.certSecretRef`.
    pub(super) certificates: Option<SourceSecret>,
    /// Of `spec.proxySecretRef`.
    pub(super) proxy: Option<SourceSecret>,
    /// Of `spec.verify.secretRef`.
    pub(super) signers: Option<SourceSecret>,
    /// Of `spec.verify.trustedRootSecretRef`, where there is none of the former.
    pub(super) trusted_root: Option<SourceSecret>,
    /// Of `spec.sts.secretRef`.
    pub(super) sts: Option<SourceSecret>,
    /// Of `spec.sts.certSecretRef`.
    pub(super) sts_certificates: Option<SourceSecret>,
    /// Of the `imagePullSecrets` of `spec.serviceAccountName`, in their order.
    pub(super) pull: Vec<SourceSecret>,
    /// The resource version of that account.
    pub(super) account: i64,
    /// Who it is at its cloud.
    pub(super) cloud: Option<AtCloud>,
}

/// One of them.
pub(crate) struct SourceSecret {
    /// For messages.
    full: String,
    version: i64,
    data: Option<SecretData>,
}

impl SourceSecrets {
    /// Their resource versions.
    pub(super) fn versions(&self) -> Vec<i64> {
        let all = [
            &self.login,
            &self.certificates,
            &self.proxy,
            &self.signers,
            &self.trusted_root,
            &self.sts,
            &self.sts_certificates,
        ];
        let mut versions = all.map(|secret| secret.as_ref().map_or(0, |secret| secret.version)).to_vec();
        versions.push(self.cloud.as_ref().map_or(0, |cloud| cloud.version));
        versions.push(self.account);
        versions.extend(self.pull.iter().map(|secret| secret.version));
        versions
    }
}

impl SourceSecrets {
    /// Who it is at its cloud.
    pub(super) fn cloud(&self) -> Option<CloudIdentity> {
        self.cloud.as_ref().map(|cloud| cloud.identity.clone())
    }

    /// The resource version of that with the proxy.
    pub(super) fn proxy_version(&self) -> i64 {
        self.proxy.as_ref().map_or(0, |secret| secret.version)
    }

    /// Whom to trust, and what to show, by `spec.certSecretRef`.
    pub(super) fn of_tls(&self) -> Result<(Option<Vec<u8>>, Option<ClientIdentity>), String> {
        let Some(secret) = &self.certificates else { return Ok((None, None)) };
        secret.certificates().map_err(|why| secret.wrong(&why))
    }

    /// The way out, through the proxy of `spec.proxySecretRef` where there is one.
    pub(super) fn way(&self, guard: Guard) -> Result<Guard, String> {
        let Some(secret) = &self.proxy else { return Ok(guard) };
        let proxy = secret.proxy().map_err(|why| secret.wrong(&why))?;
        Ok(guard.through(proxy))
    }
}

impl SourceSecret {
    /// A Secret of the hub.
    pub(crate) fn of(found: &Stored) -> Self {
        let full = format!("Secret '{}/{}'", found.namespace, found.name);
        Self { full, version: found.resource_version, data: found.secret.clone() }
    }

    /// How messages name it.
    pub(super) fn named(&self) -> &str {
        &self.full
    }

    /// A message about it.
    pub(crate) fn wrong(&self, why: &str) -> String {
        format!("{}: {why}", self.full)
    }

    /// Whether it has a key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.data.as_ref().is_some_and(|data| data.expose(key).is_some())
    }

    /// What it has under a key, if that is text.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, String> {
        let Some(encoded) = self.data.as_ref().and_then(|data| data.expose(key)) else { return Ok(None) };
        let bytes = STANDARD.decode(encoded).map_err(|_| format!("key {key} is not base64"))?;
        let text = String::from_utf8(bytes).map_err(|_| format!("key {key} is not text"))?;
        Ok(Some(text))
    }

    /// All that it has, by key, as far as it can be read.
    pub(super) fn entries(&self) -> Vec<(&str, Vec<u8>)> {
        let keys = self.data.iter().flat_map(SecretData::keys);
        let value = |key: &str| STANDARD.decode(self.data.as_ref()?.expose(key)?).ok();
        keys.filter_map(|key| value(key).map(|bytes| (key, bytes))).collect()
    }

    /// All that it has that is text, by key.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, String)> {
        let keys = self.data.iter().flat_map(SecretData::keys);
        keys.filter_map(|key| self.text(key).ok().flatten().map(|text| (key, text)))
    }

    /// The same by the first of several keys that is there: Flux once had other names.
    fn first(&self, keys: [&str; 2]) -> Result<Option<String>, String> {
        match self.text(keys[0])? {
            Some(text) => Ok(Some(text)),
            None => self.text(keys[1]),
        }
    }

    /// Authorities to trust, and the certificate to show: what `spec.certSecretRef` names has one of them at least.
    pub(crate) fn certificates(&self) -> Result<(Option<Vec<u8>>, Option<ClientIdentity>), String> {
        let ca = self.first(["ca.crt", "caFile"])?.map(String::into_bytes);
        let identity = self.identity_of(["tls.crt", "certFile"], ["tls.key", "keyFile"])?;
        if ca.is_none() && identity.is_none() {
            return Err("has neither ca.crt nor tls.crt and tls.key".to_owned());
        }
        Ok((ca, identity))
    }

    /// Whether it has any of these.
    pub(super) fn has_certificates(&self) -> bool {
        ["ca.crt", "caFile", "tls.crt", "certFile", "tls.key", "keyFile"].iter().any(|key| self.has(key))
    }

    /// The certificate to show, by the names that are read beside a login.
    pub(super) fn identity(&self) -> Result<Option<ClientIdentity>, String> {
        self.identity_of(["tls.crt"; 2], ["tls.key"; 2])
    }

    fn identity_of(&self, certificate: [&str; 2], key: [&str; 2]) -> Result<Option<ClientIdentity>, String> {
        match (self.first(certificate)?, self.first(key)?) {
            (Some(certificates), Some(key)) => {
                Ok(Some(ClientIdentity { certificates: certificates.into_bytes(), key: Secret::new(key) }))
            }
            (None, None) => Ok(None),
            (Some(_), None) => Err("has tls.crt but no tls.key".to_owned()),
            (None, Some(_)) => Err("has tls.key but no tls.crt".to_owned()),
        }
    }

    /// The proxy that `spec.proxySecretRef` names.
    pub(crate) fn proxy(&self) -> Result<ProxyServer, String> {
        const MOST: usize = 2_048;
        let address = self.text("address")?.ok_or("has no address")?;
        let unusable = "its address is not that of a proxy: want http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT";
        if address.len() > MOST {
            return Err(format!("its address is longer than {MOST} bytes"));
        }
        let mut url = Url::parse(address.trim()).map_err(|_| unusable)?;
        if let Some(username) = self.text("username")? {
            let password = self.text("password")?;
            // These fail for URLs without a host, which are refused below.
            let _ = url.set_username(&username);
            let _ = url.set_password(password.as_deref());
        }
        ProxyServer::of_any_url(&url).ok_or_else(|| unusable.to_owned())
    }
}

impl Sources {
    /// The Secrets of a source that it may use, as [`SecretReader::of`] has them.
    pub(super) async fn secrets_of(
        &self,
        stored: &Stored,
        whose: &Stored,
        spec: &SourceSpec,
    ) -> Result<Result<SourceSecrets, (Reason, String)>, HubError> {
        SecretReader { store: &self.store, access: &self.access, clouds: &self.clouds }
            .of(stored, whose, spec)
            .await
    }
}

/// Reads the Secrets of sources.
pub(super) struct SecretReader<'a> {
    pub(super) store: &'a Store,
    pub(super) access: &'a AccessRules,
    pub(super) clouds: &'a Clouds,
}

impl SecretReader<'_> {
    /// The Secrets of a source that it may use, or the reason and the message of its condition. `whose` spec names those that are sent: of
    /// a chart, that of its repository.
    pub(super) async fn of(
        &self,
        stored: &Stored,
        whose: &Stored,
        spec: &SourceSpec,
    ) -> Result<Result<SourceSecrets, (Reason, String)>, HubError> {
        let mut all = SourceSecrets::default();
        let sts = spec.sts.as_ref();
        let login = sts.and_then(|sts| sts.secret_ref.clone());
        let certificates = sts.and_then(|sts| sts.cert_secret_ref.clone());
        let named: [(&str, &Option<LocalObjectReference>, &mut Option<SourceSecret>); 5] = [
            ("secretRef", &spec.secret_ref, &mut all.login),
            ("certSecretRef", &spec.cert_secret_ref, &mut all.certificates),
            ("proxySecretRef", &spec.proxy_secret_ref, &mut all.proxy),
            ("sts.secretRef", &login, &mut all.sts),
            ("sts.certSecretRef", &certificates, &mut all.sts_certificates),
        ];
        for (field, reference, place) in named {
            let Some(reference) = reference else { continue };
            let full = format!("Secret '{}/{}'", stored.namespace, reference.name);
            let Some(found) = self.store.get(KindId::Secret, &stored.namespace, &reference.name).await?
            else {
                let why = format!("{full} of spec.{field} not found");
                return Ok(Err((Reason::AuthenticationFailed, why)));
            };
            let secret = SourceSecret { full, version: found.resource_version, data: found.secret.clone() };
            let is_shown = match field {
                // What is for a proxy goes to the address that stands beside it.
                "proxySecretRef" => false,
                // Whom to trust is public.
                "certSecretRef" | "sts.certSecretRef" => secret.has("tls.key") || secret.has("keyFile"),
                _ => true,
            };
            let to = match sts {
                Some(sts) if field.starts_with("sts.") => &sts.endpoint,
                _ => &spec.url,
            };
            if is_shown && let Err(why) = self.access.may_send(whose, &found, to).await? {
                return Ok(Err((Reason::AccessDenied, why)));
            }
            if field == "secretRef"
                && let Err(why) = self.may_pass_on(whose, &found).await?
            {
                return Ok(Err((Reason::AccessDenied, why)));
            }
            *place = Some(secret);
        }
        if whose.kind == KindId::OciRepository {
            match pull::of_account(self, whose, &spec.url).await? {
                Ok((account, pull)) => (all.account, all.pull) = (account, pull),
                Err(why) => return Ok(Err(why)),
            }
        }
        // What a chart is packed of is here.
        if whose.uid == stored.uid || whose.kind == KindId::HelmRepository {
            match self.clouds.of(self.store, self.access, whose, &spec.url).await? {
                Ok(cloud) => all.cloud = cloud,
                Err(why) => return Ok(Err(why)),
            }
        }
        match self.signers_of(stored).await? {
            Ok(signers) => (all.signers, all.trusted_root) = signers,
            Err(why) => return Ok(Err((Reason::VerificationError, why))),
        }
        let kind = kind(stored.kind);
        let unverifiable = kind.map(|kind| kind.unverifiable(stored, &all)).transpose()?.flatten();
        Ok(unverifiable.map_or(Ok(all), |why| Err((Reason::VerificationError, why))))
    }

    /// Whether a HelmRepository may send a Secret to all hosts that its index names, where it asks for that: one that Git wrote only where
    /// the Secret may go anywhere.
    async fn may_pass_on(&self, whose: &Stored, secret: &Stored) -> Result<Result<(), String>, HubError> {
        const ANYWHERE: &str = "https://*";
        if whose.object["spec"]["passCredentials"] != true {
            return Ok(Ok(()));
        }
        let allowed = self.access.may_send(whose, secret, ANYWHERE).await?;
        Ok(allowed.map_err(|_| {
            format!(
                "a Kustomization wrote this source, and with spec.passCredentials Secret '{}/{}' would go to any host that its index \
                 names: to allow that, annotate the Secret: {ALLOWED_HOSTS}=*",
                secret.namespace, secret.name
            )
        }))
    }

    /// Whose signatures a source trusts, by keys or by a root, or why that cannot be known. It is sent nowhere.
    async fn signers_of(&self, stored: &Stored) -> Result<Result<Signers, String>, HubError> {
        let verify = &stored.object["spec"]["verify"];
        let keys = verify["secretRef"]["name"].as_str();
        let root = verify["trustedRootSecretRef"]["name"].as_str();
        let (field, what, name) = match (keys, root) {
            (Some(name), _) => ("secretRef", "public keys", name),
            (None, Some(name)) => ("trustedRootSecretRef", "trusted root", name),
            (None, None) => return Ok(Ok((None, None))),
        };
        let full = format!("Secret '{}/{name}'", stored.namespace);
        let Some(found) = self.store.get(KindId::Secret, &stored.namespace, name).await? else {
            return Ok(Err(format!("{what} secret error: {full} of spec.verify.{field} not found")));
        };
        let secret = Some(SourceSecret { full, version: found.resource_version, data: found.secret });
        Ok(Ok(if keys.is_some() { (secret, None) } else { (None, secret) }))
    }
}

/// The Secrets of keys, and of a trusted root: one of them, if any.
type Signers = (Option<SourceSecret>, Option<SourceSecret>);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    /// The proxy of a Secret with these texts.
    fn proxy(texts: &[(&str, &str)]) -> Result<String, String> {
        let data: BTreeMap<String, String> =
            texts.iter().map(|(key, text)| ((*key).to_owned(), STANDARD.encode(text))).collect();
        let mut stored = Stored::new(KindId::Secret, "team-a", "proxy", Timestamp::UNIX_EPOCH, json!({}));
        stored.secret = Some(SecretData::new(data));
        SourceSecret::of(&stored).proxy().map(|proxy| proxy.to_string())
    }

    #[test]
    fn a_proxy_has_one_of_three_protocols_and_a_port_by_it() {
        let login = [("username", "me"), ("password", "hunter2")];
        for (address, at) in [
            ("http://proxy.example:3128", "proxy.example:3128"),
            ("http://proxy.example", "proxy.example:80"),
            ("https://proxy.example:3129", "proxy.example:3129"),
            ("https://proxy.example", "proxy.example:443"),
            (" https://proxy.example/\n", "proxy.example:443"),
            ("socks5://proxy.example", "proxy.example:1080"),
        ] {
            assert_eq!(proxy(&[("address", address)]).as_deref(), Ok(at), "{address}");
            assert_eq!(proxy(&[("address", address), login[0], login[1]]).as_deref(), Ok(at), "{address}");
        }
        for address in ["socks4://proxy.example", "ftp://proxy.example", "proxy.example:3128", "https://", ""]
        {
            let told = proxy(&[("address", address), login[0], login[1]]).unwrap_err();
            assert!(
                told.contains("want http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"),
                "{told}"
            );
            assert!(!told.contains("hunter2"));
        }
        assert_eq!(proxy(&login), Err("has no address".to_owned()));
        assert!(
            proxy(&[("address", &format!("https://{}", "x".repeat(2_048)))]).unwrap_err().contains("longer")
        );
    }
}
