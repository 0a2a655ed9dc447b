//! Bucket: what its spec asks for, as a source.

use roadstead_api::Bucket;
use roadstead_api::source::{BucketProvider, BucketSpec, StsProvider};
use roadstead_hub_store::{StoreError, Stored};
use roadstead_model::{Reason, Revision};
use roadstead_outbound::{Purpose, Secret};
use roadstead_sources::bucket::{AzureProof, BucketLogin, BucketStore, GoogleKey, LdapLogin};
use roadstead_sources::{BucketRequest, Facts, Fetched, Source};
use serde::Deserialize;
use serde_json::Value;

use crate::sources::secrets::{SourceSecret, SourceSecrets};
use crate::sources::{Asked, SourceKind, fetch, notes};

/// Where Google's service accounts get tokens, unless their keys say otherwise.
const GOOGLE_TOKENS: &str = "https://oauth2.googleapis.com/token";

/// The kind.
pub(super) struct Buckets;

impl SourceKind for Buckets {
    fn failed(&self) -> Reason {
        Reason::BucketOperationFailed
    }

    fn unsupported(&self, stored: &Stored) -> Result<Option<&'static str>, StoreError> {
        Ok(unsupported(&stored.decode::<Bucket>()?.spec))
    }

    fn url(&self, stored: &Stored) -> Result<Option<String>, StoreError> {
        let spec = stored.decode::<Bucket>()?.spec;
        Ok(Some(url(&spec)))
    }

    fn stored_message(&self, revision: &Revision) -> String {
        format!("stored artifact: revision '{revision}'")
    }

    fn told(&self, stored: &Stored, fetched: &Fetched) -> Option<String> {
        let Facts::Objects(count) = fetched.facts else { return None };
        let bucket = stored.object["spec"]["bucketName"].as_str().unwrap_or_default();
        Some(format!("stored artifact with {count} fetched files from '{bucket}' bucket"))
    }

    fn observed(&self, stored: &Stored) -> Result<Vec<(&'static str, Value)>, StoreError> {
        Ok(vec![("observedIgnore", stored.object["spec"]["ignore"].clone())])
    }

    fn source(&self, asked: Asked<'_>) -> Result<Result<Box<dyn Source>, String>, StoreError> {
        let spec = asked.stored.decode::<Bucket>()?.spec;
        let options = asked.options;
        let mut request = BucketRequest::new(spec.endpoint.clone(), spec.bucket_name.clone());
        request.store = match provider(&spec) {
            BucketProvider::Generic | BucketProvider::Aws => BucketStore::S3,
            BucketProvider::Gcp => BucketStore::Gcs,
            BucketProvider::Azure => BucketStore::Azure,
        };
        request.region = spec.region.clone();
        request.prefix = spec.prefix.clone();
        request.pinned = asked.pinned.cloned();
        if let Some(workers) = &options.workers {
            request.limits = fetch::bucket_limits(workers, request.limits);
            request.disk = Some(workers.disk.clone());
        }
        request.limits.tree.total_bytes = request.limits.tree.total_bytes.min(asked.most_bytes);
        request.guard = options.outbound.guard(Purpose::Bucket);
        if let Some(authority) = asked.tolerated {
            request.guard = request.guard.lenient_towards(authority);
        }
        request.plain_http_credentials = options.outbound.plain_http_credentials;
        request.insecure = spec.insecure;
        request.timeout = notes::timeout(asked.spec);
        request.ignore = spec.ignore.clone();
        request.known_bucket = asked.known.bucket;
        Ok(match use_secrets(&mut request, &spec, asked.secrets) {
            Ok(()) => Ok(Box::new(request)),
            Err(why) => Err(why),
        })
    }
}

fn provider(spec: &BucketSpec) -> BucketProvider {
    spec.provider.unwrap_or(BucketProvider::Generic)
}

fn url(spec: &BucketSpec) -> String {
    let scheme = if spec.insecure { "http" } else { "https" };
    let endpoint = &spec.endpoint;
    if endpoint.contains("://") { endpoint.clone() } else { format!("{scheme}://{endpoint}") }
}

/// The first field that this version cannot act on.
fn unsupported(spec: &BucketSpec) -> Option<&'static str> {
    let (of_service, has_secret) = (spec.sts.as_ref().map(|sts| sts.provider), spec.secret_ref.is_some());
    match (provider(spec), of_service) {
        // What the Secret holds counts before what a token service would give.
        (BucketProvider::Generic | BucketProvider::Aws, _) if has_secret => None,
        (BucketProvider::Aws, Some(StsProvider::Aws)) => None,
        (BucketProvider::Generic, Some(StsProvider::Ldap)) => None,
        (_, None) => None,
        (_, Some(StsProvider::Aws)) => Some("spec.sts.provider aws with this spec.provider"),
        (_, Some(StsProvider::Ldap)) => Some("spec.sts.provider ldap with this spec.provider"),
    }
}

fn use_secrets(
    request: &mut BucketRequest,
    spec: &BucketSpec,
    secrets: &SourceSecrets,
) -> Result<(), String> {
    if let Some(secret) = &secrets.login {
        request.login = login(provider(spec), secret).map_err(|why| secret.wrong(&why))?;
    } else if let Some(identity) = secrets.cloud() {
        let sts = spec.sts.as_ref().map(|sts| sts.endpoint.clone());
        request.login = BucketLogin::Cloud { identity, sts };
    } else if let Some(sts) = &spec.sts {
        let secret = secrets.sts.as_ref().ok_or("spec.sts.provider ldap requires spec.sts.secretRef")?;
        let mut ldap = ldap(&sts.endpoint, secret).map_err(|why| secret.wrong(&why))?;
        if let Some(secret) = &secrets.sts_certificates {
            (ldap.ca, ldap.identity) = secret.certificates().map_err(|why| secret.wrong(&why))?;
        }
        request.login = BucketLogin::Ldap(Box::new(ldap));
    }
    (request.ca, request.identity) = secrets.of_tls()?;
    request.guard = secrets.way(request.guard.clone())?;
    Ok(())
}

/// What is under a key, without white space around it; none where that is all there is.
fn field(secret: &SourceSecret, key: &str) -> Result<Option<String>, String> {
    let text = secret.text(key)?.map(|text| text.trim().to_owned());
    Ok(text.filter(|text| !text.is_empty()))
}

fn ldap(endpoint: &str, secret: &SourceSecret) -> Result<LdapLogin, String> {
    match (field(secret, "username")?, field(secret, "password")?) {
        (Some(username), Some(password)) => Ok(LdapLogin {
            endpoint: endpoint.to_owned(),
            username,
            password: Secret::new(password),
            ca: None,
            identity: None,
        }),
        _ => Err("required fields 'username' and 'password'".to_owned()),
    }
}

fn login(provider: BucketProvider, secret: &SourceSecret) -> Result<BucketLogin, String> {
    match provider {
        BucketProvider::Generic | BucketProvider::Aws => {
            match (field(secret, "accesskey")?, field(secret, "secretkey")?) {
                (Some(id), Some(key)) => Ok(BucketLogin::AccessKey { id, secret: Secret::new(key) }),
                _ => Err("required fields 'accesskey' and 'secretkey'".to_owned()),
            }
        }
        BucketProvider::Gcp => {
            let key = secret.text("serviceaccount")?.ok_or("required field 'serviceaccount'")?;
            google(&Secret::new(key)).map(BucketLogin::GoogleAccount)
        }
        BucketProvider::Azure => azure(secret),
    }
}

#[derive(Deserialize)]
struct GoogleFile {
    #[serde(rename = "type")]
    kind: String,
    client_email: Option<String>,
    private_key_id: Option<String>,
    private_key: Option<Secret>,
    token_uri: Option<String>,
}

/// The JSON of a service account's key.
fn google(key: &Secret) -> Result<GoogleKey, String> {
    // Exposed to be parsed; what is wrong with it is not told, since that could show some of it.
    let file: GoogleFile = serde_json::from_str(key.expose())
        .map_err(|_| "key serviceaccount is not the JSON of a service account's key")?;
    if file.kind != "service_account" {
        return Err("key serviceaccount is of another type than service_account".to_owned());
    }
    let (Some(email), Some(private_key)) = (file.client_email, file.private_key) else {
        return Err("key serviceaccount has no client_email and private_key".to_owned());
    };
    Ok(GoogleKey {
        email,
        key_id: file.private_key_id.unwrap_or_default(),
        private_key,
        token_uri: file.token_uri.unwrap_or_else(|| GOOGLE_TOKENS.to_owned()),
    })
}

/// The first whole set of keys, in Flux's order.
fn azure(secret: &SourceSecret) -> Result<BucketLogin, String> {
    let tenant = field(secret, "tenantId")?;
    let client_id = field(secret, "clientId")?;
    let authority = field(secret, "authorityHost")?;
    if let (Some(tenant), Some(client_id)) = (tenant, client_id.clone()) {
        if let Some(text) = field(secret, "clientSecret")? {
            let proof = AzureProof::Secret(Secret::new(text));
            return Ok(BucketLogin::AzureApplication { tenant, client_id, proof, authority });
        }
        if let Some(pem) = secret.text("clientCertificate")? {
            if secret.has("clientCertificatePassword") {
                return Err(
                    "key clientCertificatePassword: certificates with a password are not supported by this \
                            version of Roadstead; want PEM without one"
                        .to_owned(),
                );
            }
            let send_chain = field(secret, "clientCertificateSendChain")?
                .is_some_and(|text| text == "1" || text == "true");
            let proof = AzureProof::Certificate { pem: Secret::new(pem), send_chain };
            return Ok(BucketLogin::AzureApplication { tenant, client_id, proof, authority });
        }
    }
    if client_id.is_some() {
        return Err("key clientId alone: managed identities are not supported by this version of Roadstead"
            .to_owned());
    }
    if let Some(key) = field(secret, "accountKey")? {
        return Ok(BucketLogin::AzureAccountKey(Secret::new(key)));
    }
    match field(secret, "sasKey")? {
        Some(key) => Ok(BucketLogin::AzureSas(Secret::new(key))),
        None => Err("requires a 'clientSecret' or 'clientCertificate' with 'tenantId' and 'clientId', an 'accountKey', or a \
                     'sasKey'"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{BucketSpec, unsupported, url};

    fn spec(more: &serde_json::Value) -> BucketSpec {
        let mut spec = json!({ "bucketName": "b", "endpoint": "s3.example", "interval": "1m" });
        let more = more.as_object().cloned().unwrap_or_default();
        spec.as_object_mut().expect("an object").extend(more);
        serde_json::from_value(spec).expect("a spec")
    }

    #[test]
    fn token_services_that_do_not_fit_are_named() {
        let secret = || json!({ "name": "s" });
        let sts = |provider: &str| json!({ "provider": provider, "endpoint": "https://sts" });
        for (more, named) in [
            (json!({}), None),
            (json!({ "sts": sts("ldap") }), None),
            (json!({ "provider": "aws", "secretRef": secret() }), None),
            (json!({ "provider": "aws", "secretRef": secret(), "sts": sts("aws") }), None),
            (json!({ "provider": "azure" }), None),
            (json!({ "provider": "gcp", "secretRef": secret() }), None),
            (json!({ "provider": "gcp" }), None),
            (json!({ "provider": "aws" }), None),
            (json!({ "provider": "aws", "sts": sts("aws") }), None),
            (json!({ "provider": "azure", "serviceAccountName": "a" }), None),
            (json!({ "sts": sts("aws") }), Some("spec.sts.provider aws")),
            (json!({ "provider": "gcp", "sts": sts("ldap") }), Some("spec.sts.provider ldap")),
        ] {
            let found = unsupported(&spec(&more));
            assert_eq!(found.is_some(), named.is_some(), "{more}: {found:?}");
            assert!(found.unwrap_or_default().starts_with(named.unwrap_or_default()), "{more}: {found:?}");
        }
    }

    #[test]
    fn the_url_of_a_bucket_is_its_servers() {
        assert_eq!(url(&spec(&json!({}))), "https://s3.example");
        assert_eq!(url(&spec(&json!({ "insecure": true }))), "http://s3.example");
        assert_eq!(url(&spec(&json!({ "endpoint": "https://a.blob.example" }))), "https://a.blob.example");
    }
}
