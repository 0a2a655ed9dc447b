//! Signatures of requests: AWS Signature Version 4, and Huawei's.

use http::HeaderValue;
use jiff::Timestamp;
use roadstead_outbound::Secret;
use roadstead_signing::{AwsKeys, AwsRequest, Scope, hex, hmac_sha256, sha256};
use zeroize::Zeroizing;

use crate::call::Request;
use crate::error::ServiceError;

/// Signs a request for AWS.
///
/// # Errors
/// Something of it cannot be in a header.
pub fn aws(
    mut request: Request,
    keys: &AwsKeys,
    scope: &Scope<'_>,
    now: Timestamp,
) -> Result<Request, ServiceError> {
    let time = basic_time(now);
    request = request.with_header("x-amz-date", &time)?;
    if let Some(session) = &keys.session {
        request = request.with_secret("x-amz-security-token", session.expose())?;
    }
    let signed = AwsRequest {
        method: request.method.as_str(),
        path: request.url.path(),
        query: request.url.query().unwrap_or_default(),
        headers: headers(&request)?,
        body: &sha256(&request.body),
    };
    let value = keys.authorization(signed, *scope, &time);
    request.with_secret("authorization", &value)
}

/// Signs a request for Huawei Cloud.
///
/// # Errors
/// Something of it cannot be in a header.
pub fn huawei(
    mut request: Request,
    access_key: &str,
    secret_key: &Secret,
    now: Timestamp,
) -> Result<Request, ServiceError> {
    let time = basic_time(now);
    request = request.with_header("x-sdk-date", &time)?;
    let (canonical, signed) = canonical(&request, &format!("{}/", request.url.path().trim_end_matches('/')))?;
    let text = format!("SDK-HMAC-SHA256\n{time}\n{}", sha256(canonical.as_bytes()));
    let signature = hex(&hmac_sha256(secret_key.expose().as_bytes(), text.as_bytes()));
    let value = format!("SDK-HMAC-SHA256 Access={access_key}, SignedHeaders={signed}, Signature={signature}");
    request.with_secret("authorization", &value)
}

/// The headers that are signed: all that were set, and the host.
fn headers(request: &Request) -> Result<Vec<(String, Zeroizing<String>)>, ServiceError> {
    let unusable = || ServiceError::Credential("a header cannot be signed".to_owned());
    let mut headers = vec![("host".to_owned(), Zeroizing::new(crate::call::host(&request.url)))];
    for (name, value) in &request.headers {
        let value = HeaderValue::to_str(value).map_err(|_| unusable())?;
        headers.push((name.as_str().to_owned(), Zeroizing::new(value.trim().to_owned())));
    }
    headers.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(headers)
}

/// The request as Huawei wants it signed, and the names of the headers that are. The paths and queries that are signed here have
/// nothing that would have to be encoded.
fn canonical(request: &Request, path: &str) -> Result<(Zeroizing<String>, String), ServiceError> {
    let headers = headers(request)?;
    let lines = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.as_str()));
    let lines: Zeroizing<String> = Zeroizing::new(lines.collect());
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let (signed, query) = (names.join(";"), request.url.query().unwrap_or_default());
    let body = sha256(&request.body);
    let text = format!("{}\n{path}\n{query}\n{}\n{signed}\n{body}", request.method, lines.as_str());
    Ok((Zeroizing::new(text), signed))
}

fn basic_time(now: Timestamp) -> String {
    now.strftime("%Y%m%dT%H%M%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use url::Url;

    fn signature(request: &Request) -> String {
        let (_, value) = request.headers.iter().find(|(name, _)| name == "authorization").unwrap();
        value.to_str().unwrap().to_owned()
    }

    fn aws_signature(method: Method, body: Option<&str>, session: Option<&str>) -> String {
        let mut request = Request::new(method, Url::parse("https://example.amazonaws.com/").unwrap());
        if let Some(body) = body {
            let body = Zeroizing::new(body.as_bytes().to_vec());
            request = request.with_body("application/x-www-form-urlencoded", body);
        }
        let keys = AwsKeys {
            id: "AKIDEXAMPLE".into(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into()),
            session: session.map(|token| Secret::new(token.to_owned())),
        };
        let scope = Scope { region: "us-east-1", service: "service" };
        signature(&aws(request, &keys, &scope, "2015-08-30T12:36:00Z".parse().unwrap()).unwrap())
    }

    /// The suite of vectors that AWS has published for Signature Version 4.
    #[test]
    fn aws_signs_as_published() {
        let start =
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=";
        let token = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
        for (method, body, session, end) in [
            (
                Method::GET,
                None,
                None,
                "host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                Method::POST,
                None,
                None,
                "host;x-amz-date, Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                Method::POST,
                Some("Param1=value1"),
                None,
                "content-type;host;x-amz-date, Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                Method::POST,
                None,
                Some(token),
                "host;x-amz-date;x-amz-security-token, Signature=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ] {
            assert_eq!(aws_signature(method, body, session), format!("{start}{end}"));
        }
    }

    /// The example in Huawei's description of its signatures.
    #[test]
    fn huawei_signs_as_published() {
        let url = "https://service.region.example.com/v1/77b6a44cba5143ab91d13ab9a8ff44fd/vpcs?limit=2&marker=13551d6b-755d-4757-b956-536f674975c0";
        let request = Request::new(Method::GET, Url::parse(url).unwrap());
        let request = request.with_body("application/json", Zeroizing::default());
        let key = Secret::new("MFyfvK41ba2giqM7Uio6PznpdUKGpownRZlmVmHc".into());
        let now = "2019-11-15T03:36:55Z".parse().unwrap();
        assert_eq!(
            signature(&huawei(request, "QTWAOYTTINDUT2QVKYUC", &key, now).unwrap()),
            "SDK-HMAC-SHA256 Access=QTWAOYTTINDUT2QVKYUC, SignedHeaders=content-type;host;x-sdk-date, \
             Signature=7be6668032f70418fcc22abc52071e57aff61b84a1d2381bb430d6870f4f6ebe"
        );
    }
}
