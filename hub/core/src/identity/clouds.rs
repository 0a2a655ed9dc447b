//! Cloud identities of service accounts of the hub (`spec.decryption.serviceAccountName`, `spec.serviceAccountName` of sources), by
//! Flux's annotations.
//!
//! Where a service has to be asked, the hub signs a token of the account for that service alone, which exchanges it for one of its own.
//! Nothing is signed while what is needed is known.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use roadstead_api::KindId;
use roadstead_hub_store::Stored;
use roadstead_kms::{
    AwsCredential, AzureCredential, AzureProof, GcpCredential, MakesTokens, Secret, TokenSource,
};
use roadstead_model::{ResourceUid, chain};

use crate::address::Address;
use crate::identity::{AccountTokenOrder, Authenticator, Identity};

/// As short as tokens may be: it is exchanged at once.
const LASTS: Duration = Duration::from_secs(600);
/// Bytes of a session's name, as AWS has it.
const SESSION_BYTES: usize = 64;
/// Bytes of an annotation that names an identity.
const ANNOTATION_BYTES: usize = 2048;

const AWS_ROLE: &str = "eks.amazonaws.com/role-arn";
const GCP_PROVIDER: &str = "gcp.auth.fluxcd.io/workload-identity-provider";
const GCP_ACCOUNT: &str = "iam.gke.io/gcp-service-account";
const AZURE_TENANT: &str = "azure.workload.identity/tenant-id";
const AZURE_CLIENT: &str = "azure.workload.identity/client-id";

/// Signs tokens of one account.
struct Tokens {
    identity: Arc<Authenticator>,
    account: Address,
    uid: ResourceUid,
}

impl MakesTokens for Tokens {
    fn token<'t>(&'t self, audience: &'t str) -> BoxFuture<'t, Result<Secret, String>> {
        Box::pin(async move {
            let Address { namespace, name, .. } = &self.account;
            let order = AccountTokenOrder {
                audiences: vec![audience.to_owned()],
                lasts: Some(LASTS),
                ..AccountTokenOrder::default()
            };
            let made = self.identity.create_account_token(&Identity::hub(), &self.account, order).await;
            let failed = |why: &str| {
                format!("a token of ServiceAccount '{namespace}/{name}' could not be made: {why}")
            };
            let made = made.map_err(|error| failed(&chain(&error)))?;
            if made.account != self.uid {
                return Err(failed("there is another one of that name now"));
            }
            Ok(Secret::new(made.token.expose().to_owned()))
        })
    }
}

/// What an account stands for at clouds.
pub(crate) struct CloudIdentities {
    /// Tokens of the account.
    pub(crate) token: TokenSource,
    pub(crate) aws: Option<AwsCredential>,
    pub(crate) azure: Option<AzureCredential>,
    pub(crate) gcp: Option<GcpCredential>,
}

/// What an account stands for at clouds, by its annotations; or which of these is not valid. `field` is what names the account.
pub(crate) fn identities(
    account: &Stored,
    identity: &Arc<Authenticator>,
    field: &str,
) -> Result<CloudIdentities, String> {
    let version = KindId::ServiceAccount.get().storage_version();
    let Stored { namespace, name, uid, .. } = account;
    let address =
        Address { kind: KindId::ServiceAccount, version, namespace: namespace.clone(), name: name.clone() };
    let tokens: Arc<dyn MakesTokens> =
        Arc::new(Tokens { identity: Arc::clone(identity), account: address, uid: *uid });
    named(account, TokenSource::Made(tokens), field)
}

fn named(account: &Stored, token: TokenSource, field: &str) -> Result<CloudIdentities, String> {
    let Stored { namespace, name, object, .. } = account;
    let annotations = &object["metadata"]["annotations"];
    let annotation = |key: &str, form: &str, is: &dyn Fn(&str) -> bool| match annotations[key].as_str() {
        None | Some("") => Ok(None),
        Some(text) if text.len() <= ANNOTATION_BYTES && is(text) => Ok(Some(text.to_owned())),
        Some(text) => {
            let text: String = text.chars().take(200).collect();
            Err(format!(
                "ServiceAccount '{namespace}/{name}' of {field} has an invalid annotation {key}: '{text}'; \
                 want {form}"
            ))
        }
    };
    let session_name: String = format!("{name}.{namespace}.roadstead").chars().take(SESSION_BYTES).collect();
    let aws = annotation(AWS_ROLE, "arn:aws:iam::ACCOUNT:role/NAME", &is_role)?;
    let provider = "projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER";
    let gcp = annotation(GCP_PROVIDER, provider, &is_provider)?;
    let acts_as = annotation(GCP_ACCOUNT, "NAME@PROJECT.iam.gserviceaccount.com", &is_email)?;
    let tenant = annotation(AZURE_TENANT, "the id of a tenant", &is_id)?;
    let client = annotation(AZURE_CLIENT, "the id of an application", &is_id)?;
    Ok(CloudIdentities {
        aws: aws.map(|role_arn| AwsCredential::WebIdentity { role_arn, token: token.clone(), session_name }),
        azure: tenant.zip(client).map(|(tenant, client_id)| AzureCredential::Application {
            tenant,
            client_id,
            proof: AzureProof::Federated(token.clone()),
            authority: None,
        }),
        gcp: gcp.map(|provider| GcpCredential::Federated {
            audience: format!("//iam.googleapis.com/{provider}"),
            token: token.clone(),
            service_account: acts_as,
        }),
        token,
    })
}

fn is_role(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "+=,.@_/-".contains(c);
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    matches!(parts.as_slice(), ["arn", partition, "iam", "", account, role]
        if partition.starts_with("aws")
            && partition.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !account.is_empty()
            && account.chars().all(|c| c.is_ascii_digit())
            && role.strip_prefix("role/").is_some_and(|name| !name.is_empty() && name.chars().all(fine)))
}

fn is_provider(text: &str) -> bool {
    let fine = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let parts: Vec<&str> = text.split('/').collect();
    matches!(parts.as_slice(),
        ["projects", project, "locations", "global", "workloadIdentityPools", pool, "providers", provider]
        if fine(project) && fine(pool) && fine(provider))
}

fn is_email(text: &str) -> bool {
    let fine = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
    };
    text.split_once('@').is_some_and(|(name, host)| fine(name) && fine(host))
}

fn is_id(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn kinds(annotations: &Value) -> Result<Vec<&'static str>, String> {
        let object = json!({ "metadata": { "annotations": annotations } });
        let account = Stored::new(KindId::ServiceAccount, "apps", "keys", Timestamp::UNIX_EPOCH, object);
        let token = TokenSource::Text(Secret::new("t".into()));
        let found = named(&account, token, "spec.decryption.serviceAccountName")?;
        let kinds = [
            ("kms", found.aws.is_some()),
            ("azure_kv", found.azure.is_some()),
            ("gcp_kms", found.gcp.is_some()),
        ];
        Ok(kinds.into_iter().filter(|(_, held)| *held).map(|(kind, _)| kind).collect())
    }

    #[test]
    fn annotations_say_which_identities_an_account_has() {
        let provider = "projects/1/locations/global/workloadIdentityPools/p/providers/x";
        let all = json!({
            AWS_ROLE: "arn:aws:iam::111122223333:role/path/keys", GCP_PROVIDER: provider,
            GCP_ACCOUNT: "a@p.iam.gserviceaccount.com", AZURE_TENANT: "1-2", AZURE_CLIENT: "3-4",
        });
        assert_eq!(kinds(&all).unwrap(), ["kms", "azure_kv", "gcp_kms"]);
        assert_eq!(kinds(&json!({})).unwrap(), [""; 0]);
        assert_eq!(kinds(&json!({ AZURE_CLIENT: "3-4", GCP_ACCOUNT: "a@b.c" })).unwrap(), [""; 0]);
        for (key, bad) in [
            (AWS_ROLE, "keys"),
            (AWS_ROLE, "arn:aws:iam::1:user/x"),
            (AWS_ROLE, "arn:aws:iam::1:role/a&Action=x"),
            (GCP_PROVIDER, "//iam.googleapis.com/projects/1"),
            (GCP_PROVIDER, "projects/../locations/global/workloadIdentityPools/p/providers/x"),
            (GCP_ACCOUNT, "a/b@c"),
            (AZURE_TENANT, "../x"),
        ] {
            let error = kinds(&json!({ key: bad })).unwrap_err();
            assert!(error.contains(key) && error.contains("apps/keys"), "{error}");
        }
    }
}
