//! Huawei Cloud KMS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::address::{Address, Allowed, protected};
use crate::call::{Calls, Request};
use crate::credentials::HuaweiCredential;
use crate::error::ServiceError;
use crate::sign;
use roadstead_outbound::Secret;

#[derive(Deserialize)]
struct Answer {
    plain_text: Secret,
}

#[derive(Deserialize)]
struct Failure {
    error: Code,
}

#[derive(Deserialize)]
struct Code {
    error_code: String,
}

/// Region and id.
fn parse(key_id: &str) -> Option<(&str, &str)> {
    let (region, id) = key_id.split_once(':')?;
    let of_region = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let of_id = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let fits =
        |text: &str, fine: &dyn Fn(char) -> bool| (1..=64).contains(&text.len()) && text.chars().all(fine);
    let fit =
        fits(region, &of_region) && !region.starts_with('-') && !region.ends_with('-') && fits(id, &of_id);
    fit.then_some((region, id))
}

fn endpoint(region: &str, allowed: &Allowed) -> Result<Address, ServiceError> {
    if let Some((_, address)) = allowed.huawei_kms.iter().find(|(name, _)| name == region) {
        return Ok(address.clone());
    }
    // Its European part is a cloud of its own.
    let suffix = if region == "eu-west-101" { "eu" } else { "com" };
    Address::parse(&format!("https://kms.{region}.myhuaweicloud.{suffix}"))
        .map_err(|error| ServiceError::Key(error.to_string()))
}

pub(crate) async fn unwrap(
    key_id: &str,
    enc: &str,
    credential: &HuaweiCredential,
    allowed: &Allowed,
    calls: &Calls<'_>,
) -> Result<Zeroizing<Vec<u8>>, ServiceError> {
    let parsed = parse(key_id);
    let (region, id) =
        parsed.ok_or_else(|| ServiceError::Key("it is not of the form REGION:ID".to_owned()))?;
    let project = credential.project_id.as_str();
    if project.is_empty() || !project.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return Err(ServiceError::Credential("the project's id is not valid".to_owned()));
    }
    let url = endpoint(region, allowed)?.join(&format!("/v1.0/{project}/kms/decrypt-data"))?;
    protected(&url)?;
    let body =
        json!({ "cipher_text": enc, "encryption_algorithm": "SYMMETRIC_DEFAULT", "key_id": id }).to_string();
    let mut request = Request::new(Method::POST, url)
        .with_body("application/json", Zeroizing::new(body.into_bytes()))
        .with_header("x-project-id", project)?;
    if let Some(token) = &credential.security_token {
        request = request.with_secret("x-security-token", token.expose())?;
    }
    let request = sign::huawei(request, &credential.access_key, &credential.secret_key, Timestamp::now())?;
    let reply = calls.send(&request, |_| false).await?;
    if !reply.is_ok() {
        let failure: Option<Failure> = reply.json().ok();
        return Err(reply.refused(&request, failure.map(|failure| failure.error.error_code).as_deref()));
    }
    let answer: Answer = reply.json()?;
    let bytes = STANDARD.decode(answer.plain_text.expose());
    bytes.map(Zeroizing::new).map_err(|_| ServiceError::Malformed(reply.host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_lead_elsewhere() {
        assert_eq!(parse("eu-west-101:11111111-2222"), Some(("eu-west-101", "11111111-2222")));
        for bad in ["", "x", ":1", "eu-west-101:", "a.b:1", "a/b:1", "A:1", "a@b:1", "a:1/2", "-a:1"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let of = |region| endpoint(region, &Allowed::default()).unwrap().to_string();
        assert_eq!(of("eu-west-101"), "https://kms.eu-west-101.myhuaweicloud.eu");
        assert_eq!(of("cn-north-4"), "https://kms.cn-north-4.myhuaweicloud.com");
    }
}
