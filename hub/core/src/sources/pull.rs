//! The Secrets with which a service account pulls (`imagePullSecrets`), by which an OCIRepository of its namespace may log in.

use roadstead_api::KindId;
use roadstead_cloud::Cloud;
use roadstead_hub_store::Stored;
use roadstead_model::Reason;
use serde_json::Value;

use crate::HubError;
use crate::sources::oci::logins;
use crate::sources::secrets::{SecretReader, SourceSecret};

/// Secrets of one account.
const MOST: usize = 50;
/// Bytes of those of them that are for one registry.
const MOST_BYTES: usize = 1 << 20;

/// The account's resource version and its Secrets, or the reason and the message of a condition.
type Found = Result<(i64, Vec<SourceSecret>), (Reason, String)>;

/// The Secrets of the account that an OCIRepository names; none where it names none, or where that is who it is at its cloud.
pub(super) async fn of_account(
    reader: &SecretReader<'_>,
    source: &Stored,
    url: &str,
) -> Result<Found, HubError> {
    let spec = &source.object["spec"];
    let is_at_a_cloud = spec["provider"].as_str().and_then(Cloud::parse).is_some();
    let name = spec["serviceAccountName"].as_str().filter(|name| !name.is_empty() && !is_at_a_cloud);
    let Some(name) = name else { return Ok(Ok((0, Vec::new()))) };
    let failed = |why: String| Ok(Err((Reason::AuthenticationFailed, why)));
    let account = format!("ServiceAccount '{}/{name}'", source.namespace);
    let Some(found) = reader.store.get(KindId::ServiceAccount, &source.namespace, name).await? else {
        return failed(format!("{account} of spec.serviceAccountName not found"));
    };
    let names = names(&found.object);
    if names.len() > MOST {
        return failed(format!("{account} has more than {MOST} imagePullSecrets"));
    }
    let (mut all, mut bytes) = (Vec::new(), 0);
    for name in names {
        let Some(secret) = reader.store.get(KindId::Secret, &source.namespace, name).await? else {
            let full = format!("Secret '{}/{name}'", source.namespace);
            return failed(format!("{full} of the imagePullSecrets of {account} not found"));
        };
        let pull = SourceSecret::of(&secret);
        // What is for other registries goes nowhere.
        let is_sent = match logins(&pull) {
            Ok(logins) => logins.are_for(url, spec["insecure"] == true),
            Err(why) => return failed(pull.wrong(&format!("{why} (of the imagePullSecrets of {account})"))),
        };
        if is_sent {
            if let Err(why) = reader.access.may_send(source, &secret, url).await? {
                return Ok(Err((Reason::AccessDenied, why)));
            }
            bytes += pull.entries().iter().map(|(_, value)| value.len()).sum::<usize>();
            if bytes > MOST_BYTES {
                let what = format!("the imagePullSecrets of {account} for this registry");
                return failed(format!("{what} have more than {MOST_BYTES} bytes together"));
            }
            all.push(pull);
        }
    }
    Ok(Ok((found.resource_version, all)))
}

/// The names in `imagePullSecrets`, each once; one more than are allowed at most.
fn names(account: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for entry in account["imagePullSecrets"].as_array().into_iter().flatten() {
        let name = entry["name"].as_str().unwrap_or_default();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
        if names.len() > MOST {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::names;

    #[test]
    fn each_secret_is_looked_at_once_and_in_its_order() {
        let account = json!({ "imagePullSecrets": [{ "name": "b" }, {}, { "name": "a" }, { "name": "b" }, { "name": "" }] });
        assert_eq!(names(&account), ["b", "a"]);
        assert!(names(&json!({})).is_empty());
        let many: Vec<_> = (0..1_000).map(|number| json!({ "name": number.to_string() })).collect();
        assert_eq!(names(&json!({ "imagePullSecrets": many })).len(), super::MOST + 1);
    }
}
