//! Fuzzes calls of webhooks: the first byte is the type of the Receiver; headers come line by line, then an empty line and the body.
#![no_main]

#[path = "../oracle.rs"]
mod oracle;

use http::{HeaderMap, HeaderName, HeaderValue};
use oracle::{Allowance, hold};
use roadstead_api::ReceiverType;
use roadstead_hooks::{
    Call, Payload, Token, WebhookPath, bearer, event, is_cd_event, is_listened_to, payload, prove,
};
use roadstead_oidc::{Expected, Keys, check};

const ALLOWANCE: Allowance = Allowance { bytes: 200, nanos: 20_000 };
const TYPES: [ReceiverType; 13] = [
    ReceiverType::Generic,
    ReceiverType::GenericHmac,
    ReceiverType::GenericOidc,
    ReceiverType::Github,
    ReceiverType::Gitlab,
    ReceiverType::Bitbucket,
    ReceiverType::Harbor,
    ReceiverType::Dockerhub,
    ReceiverType::Quay,
    ReceiverType::Gcr,
    ReceiverType::Nexus,
    ReceiverType::Acr,
    ReceiverType::Cdevents,
];
/// The types that are proven by what a call shows of the token. Nobody who fuzzes knows it.
const SECRET: [ReceiverType; 6] = [
    ReceiverType::GenericHmac,
    ReceiverType::Github,
    ReceiverType::Gitlab,
    ReceiverType::Bitbucket,
    ReceiverType::Harbor,
    ReceiverType::Nexus,
];

fn headers(text: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n').take(64) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hold(bytes, ALLOWANCE, |bytes| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let type_ = TYPES[usize::from(*which) % TYPES.len()];
    let end = rest.windows(2).position(|pair| pair == b"\n\n").unwrap_or(rest.len());
    let (head, body) = (&rest[..end], rest.get(end + 2..).unwrap_or_default());
    let headers = headers(head);
    let call = Call { headers: &headers, body };
    let Some(token) = Token::new(b"what nobody guesses: 8c3f5d".to_vec()) else { return };
    let proven = prove(type_, &token, &call);
    assert_eq!(proven.is_err(), SECRET.contains(&type_), "{proven:?}");
    let _ = is_listened_to(type_, &["push".to_owned()], &call);
    let _ = event(type_, &call);
    if let Ok(Payload::Json(json)) = payload(type_, &call)
        && json.len() < 4096
        && let Ok(value) = serde_json::from_slice(&json)
    {
        let _ = is_cd_event(&call, &value);
        let expected = Expected { issuers: &["https://issuer.test"], audiences: &["me"], now: 1_800_000_000 };
        let _ = check(&value, &expected);
    }
    let keys = Keys::parse(body).unwrap_or_default();
    if let Ok(token) = bearer(&call) {
        let _ = token.verify(&keys);
        assert!(token.verify(&Keys::default()).is_err(), "it is signed by no key at all");
    }
    if let Some(path) = std::str::from_utf8(body).ok().and_then(WebhookPath::parse) {
        assert_eq!(path.to_string().as_bytes(), body);
    }
}));
