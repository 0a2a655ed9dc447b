//! AWS KMS.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

pub(crate) use roadstead_cloud::aws::Sessions;
use roadstead_cloud::aws::{Identities, Place};

use crate::address::Allowed;
use crate::call::{Calls, Reply, Request};
use crate::credentials::AwsCredential;
use crate::error::ServiceError;
use crate::sign;
use roadstead_outbound::Secret;
use roadstead_signing::Scope;

/// What it says of credentials that were given out and do not count any more.
const EXPIRED: [&str; 3] = ["ExpiredTokenException", "UnrecognizedClientException", "InvalidClientTokenId"];

/// What a file says.
pub(crate) struct Key<'k> {
    pub(crate) arn: &'k str,
    pub(crate) role: Option<&'k str>,
    pub(crate) context: &'k BTreeMap<String, String>,
    pub(crate) enc: &'k str,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Plaintext")]
    plaintext: Secret,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(rename = "__type")]
    kind: String,
}

/// Reads a key's ARN: `arn:PARTITION:kms:REGION:ACCOUNT:key/ID`, or `alias/NAME`.
fn place_of_key(arn: &str) -> Result<Place<'_>, ServiceError> {
    let bad = || ServiceError::Key("its ARN is not that of a KMS key".to_owned());
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let ["arn", partition, "kms", region, account, resource] = parts.as_slice() else {
        return Err(bad());
    };
    let named = ["key/", "alias/"]
        .iter()
        .any(|kind| resource.strip_prefix(kind).is_some_and(|name| !name.is_empty()));
    let number = !account.is_empty() && account.chars().all(|c| c.is_ascii_digit());
    let label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fit = (1..=64).contains(&region.len()) && region.chars().all(label);
    if !(named && number && fit) || region.starts_with('-') || region.ends_with('-') {
        return Err(bad());
    }
    let suffix = match *partition {
        "aws" | "aws-us-gov" => Some("amazonaws.com"),
        "aws-cn" => Some("amazonaws.com.cn"),
        other if other.starts_with("aws") => None,
        _ => return Err(bad()),
    };
    Ok(Place { region, suffix })
}

pub(crate) async fn unwrap(
    key: &Key<'_>,
    credential: &AwsCredential,
    sessions: &Sessions,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Zeroizing<Vec<u8>>, ServiceError> {
    let body = json!({ "KeyId": key.arn, "CiphertextBlob": key.enc, "EncryptionContext": key.context });
    let body = Zeroizing::new(body.to_string().into_bytes());
    let asked = Asked { arn: key.arn, role: key.role, target: "TrentService.Decrypt", body };
    let reply = ask(asked, credential, sessions, allowed, calls).await?;
    let answer: Answer = reply.json()?;
    let bytes = STANDARD.decode(answer.plaintext.expose());
    bytes.map(Zeroizing::new).map_err(|_| ServiceError::Malformed(reply.host))
}

/// What a key was wrapped as.
pub(crate) struct Wrapped {
    /// The ARN of the key itself, also where an alias was named.
    pub(crate) arn: String,
    /// In base64.
    pub(crate) ciphertext: String,
}

/// Wraps some bytes by the key of this ARN.
pub(crate) async fn wrap(
    arn: &str,
    context: &BTreeMap<String, String>,
    plain: &[u8],
    credential: &AwsCredential,
    sessions: &Sessions,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Wrapped, ServiceError> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Encrypt<'e> {
        key_id: &'e str,
        plaintext: &'e str,
        encryption_context: &'e BTreeMap<String, String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Encrypted {
        ciphertext_blob: String,
        key_id: String,
    }
    let plaintext = Zeroizing::new(STANDARD.encode(plain));
    let body = Encrypt { key_id: arn, plaintext: &plaintext, encryption_context: context };
    let body = serde_json::to_vec(&body)
        .map_err(|_| ServiceError::Key("what is to be wrapped cannot be written as JSON".to_owned()))?;
    let asked = Asked { arn, role: None, target: "TrentService.Encrypt", body: Zeroizing::new(body) };
    let reply = ask(asked, credential, sessions, allowed, calls).await?;
    let answer: Encrypted = reply.json()?;
    // An answer does not choose where the key is looked for the next time.
    let here = place_of_key(&answer.key_id).is_ok_and(|place| place_of_key(arn) == Ok(place));
    if !here || STANDARD.decode(&answer.ciphertext_blob).is_err() {
        return Err(ServiceError::Malformed(reply.host));
    }
    Ok(Wrapped { arn: answer.key_id, ciphertext: answer.ciphertext_blob })
}

/// An order to KMS.
struct Asked<'a> {
    arn: &'a str,
    role: Option<&'a str>,
    target: &'static str,
    body: Zeroizing<Vec<u8>>,
}

/// Has KMS do something where the key is. What it gives went well.
async fn ask(
    asked: Asked<'_>,
    credential: &AwsCredential,
    sessions: &Sessions,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Reply, ServiceError> {
    let place = place_of_key(asked.arn)?;
    let endpoint = place.endpoint("kms", allowed.aws_kms.as_ref())?;
    let sts = allowed.token_services.aws_sts.as_ref();
    let identities = Identities { place, sts, sessions, calls };
    let mut keys = identities.own(credential).await?;
    if let Some(role) = asked.role {
        keys = identities.assume(role, &keys).await?;
    }
    let request = Request::new(Method::POST, endpoint.join("/")?)
        .with_body("application/x-amz-json-1.1", asked.body)
        .with_header("x-amz-target", asked.target)?;
    let scope = Scope { region: place.region, service: "kms" };
    let request = sign::aws(request, &keys, &scope, Timestamp::now())?;
    let reply = calls.send(&request, is_throttled).await?;
    if !reply.is_ok() {
        let reason = reason(&reply);
        if reason.as_deref().is_some_and(|name| EXPIRED.contains(&name)) {
            sessions.clear();
        }
        return Err(reply.refused(&request, reason.as_deref()));
    }
    Ok(reply)
}

/// Is it the ARN of a key, or of an alias of one?
pub(crate) fn is_key(arn: &str) -> bool {
    place_of_key(arn).is_ok()
}

/// The name of an error, which may have a namespace before it.
fn reason(reply: &Reply) -> Option<String> {
    let failure: Failure = reply.json().ok()?;
    failure.kind.rsplit('#').next().map(str::to_owned)
}

fn is_throttled(reply: &Reply) -> bool {
    const NAMES: [&str; 5] = [
        "ThrottlingException",
        "Throttling",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "KMSInternalException",
    ];
    !reply.is_ok() && reason(reply).is_some_and(|name| NAMES.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    #[test]
    fn where_a_key_is() {
        let of = |arn: &str| place_of_key(arn)?.endpoint("kms", None).map(|address| address.to_string());
        let key =
            |partition: &str, region: &str| format!("arn:{partition}:kms:{region}:123456789012:key/1-2");
        assert_eq!(of(&key("aws", "eu-central-1")).unwrap(), "https://kms.eu-central-1.amazonaws.com");
        assert_eq!(of(&key("aws-cn", "cn-north-1")).unwrap(), "https://kms.cn-north-1.amazonaws.com.cn");
        assert!(of("arn:aws:kms:us-east-1:1:alias/a:b/c").is_ok());
        let elsewhere = key("aws-iso", "us-iso-east-1");
        assert!(of(&elsewhere).is_err());
        let named = Address::parse("https://kms.example").unwrap();
        assert_eq!(place_of_key(&elsewhere).unwrap().endpoint("kms", Some(&named)).unwrap(), named);
        for bad in [
            "",
            "arn:aws:kms:us-east-1:1:key/",
            "arn:aws:s3:us-east-1:1:key/1",
            "arn:aws:kms:evil.example/:1:key/1",
            "arn:aws:kms:evil.example#:1:key/1",
            "arn:aws:kms:-a:1:key/1",
            "arn:aws:kms:us-east-1:x:key/1",
            "arn:aws-elsewhere:kms:us-east-1:1:key/1",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
