//! AWS Signature Version 4.

use roadstead_outbound::Secret;
use zeroize::Zeroizing;

use crate::hash::{hex, hmac_sha256, sha256};

/// Who signs.
#[derive(Debug, Clone)]
pub struct AwsKeys {
    /// The access key's id.
    pub id: String,
    /// The access key's secret.
    pub secret: Secret,
    /// The token of a session, which is sent with the request.
    pub session: Option<Secret>,
}

/// What a signature is for.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'s> {
    /// The region of the service.
    pub region: &'s str,
    /// The service.
    pub service: &'s str,
}

/// A request as it is going to be sent.
#[derive(Debug)]
pub struct AwsRequest<'r> {
    /// HTTP's method.
    pub method: &'r str,
    /// The path, encoded as the service wants it.
    pub path: &'r str,
    /// The query: names and values are encoded, and in order.
    pub query: &'r str,
    /// All headers that are signed, `host` and `x-amz-date` among them: names in small letters.
    pub headers: Vec<(String, Zeroizing<String>)>,
    /// The SHA-256 of the body, as hexadecimal digits.
    pub body: &'r str,
}

impl AwsKeys {
    /// The request's `Authorization`. `time` is what its `x-amz-date` says.
    #[must_use]
    pub fn authorization(&self, request: AwsRequest<'_>, scope: Scope<'_>, time: &str) -> Zeroizing<String> {
        let day = time.get(..8).unwrap_or_default();
        let (canonical, signed) = canonical(request);
        let scoped = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scoped}\n{}", sha256(canonical.as_bytes()));
        // Exposed to be hashed.
        let start = Zeroizing::new(format!("AWS4{}", self.secret.expose()));
        let mut key = Zeroizing::new(start.as_bytes().to_vec());
        for part in [day, scope.region, scope.service, "aws4_request"] {
            key = hmac_sha256(&key, part.as_bytes());
        }
        let signature = hex(&hmac_sha256(&key, text.as_bytes()));
        Zeroizing::new(format!(
            "AWS4-HMAC-SHA256 Credential={}/{scoped}, SignedHeaders={signed}, Signature={signature}",
            self.id
        ))
    }
}

/// The request as it is signed, and the names of the headers that are.
fn canonical(mut request: AwsRequest<'_>) -> (Zeroizing<String>, String) {
    request.headers.sort_by(|one, other| one.0.cmp(&other.0));
    let lines = request.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim()));
    let lines: Zeroizing<String> = Zeroizing::new(lines.collect());
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
    let (signed, AwsRequest { method, path, query, body, .. }) = (names.join(";"), &request);
    let text = format!("{method}\n{path}\n{query}\n{}\n{signed}\n{body}", lines.as_str());
    (Zeroizing::new(text), signed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of AWS's description of signed requests to S3: an object, and a list.
    #[test]
    fn requests_to_s3_are_signed_as_published() {
        let keys = AwsKeys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session: None,
        };
        let empty = sha256(b"");
        let header = |name: &str, value: &str| (name.to_owned(), Zeroizing::new(value.to_owned()));
        let common = || {
            vec![
                header("x-amz-date", "20130524T000000Z"),
                header("host", "examplebucket.s3.amazonaws.com"),
                header("x-amz-content-sha256", &empty),
            ]
        };
        let scope = Scope { region: "us-east-1", service: "s3" };
        let of = |path, query, headers| {
            let request = AwsRequest { method: "GET", path, query, headers, body: &empty };
            keys.authorization(request, scope, "20130524T000000Z").to_string()
        };
        let object = [common(), vec![header("range", "bytes=0-9")]].concat();
        assert_eq!(
            of("/test.txt", "", object),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert!(
            of("/", "max-keys=2&prefix=J", common())
                .ends_with("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")
        );
    }
}
