//! How a request shows who asks: signatures of S3 and Azure, tokens, and what stands in a URL.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, IF_MATCH};
use jiff::Timestamp;
use roadstead_outbound::secret_header;
use roadstead_signing::{AwsKeys, hmac_sha256, sha256};
use url::Url;
use zeroize::Zeroizing;

use super::place::Place;

/// Of Azure's protocol.
const AZURE_VERSION: &str = "2021-12-02";
const MS_DATE: HeaderName = HeaderName::from_static("x-ms-date");
const MS_VERSION: HeaderName = HeaderName::from_static("x-ms-version");

/// What a request is signed with.
#[derive(Clone)]
pub(super) enum Signer {
    Nobody,
    Keys(AwsKeys),
    Bearer(HeaderValue),
    AzureKey(Zeroizing<Vec<u8>>),
    /// Names and values.
    AzureSas(Vec<(String, Zeroizing<String>)>),
}

impl Signer {
    /// Whether someone on the way could use what is sent for something else.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self, Self::Bearer(_) | Self::AzureSas(_))
    }

    pub(super) fn is_someone(&self) -> bool {
        !matches!(self, Self::Nobody)
    }
}

/// Why a request could not be signed.
pub(super) struct NotSigned(pub(super) &'static str);

/// Makes a `GET` of `url` one of the signer's.
pub(super) fn sign(
    signer: &Signer,
    url: &mut Url,
    headers: &mut HeaderMap,
    place: &Place,
    now: Timestamp,
) -> Result<(), NotSigned> {
    let unusable = NotSigned("the credentials cannot be sent: they have characters that no header may have");
    match signer {
        Signer::Nobody => {}
        Signer::Bearer(header) => {
            headers.insert(AUTHORIZATION, header.clone());
        }
        Signer::Keys(keys) => {
            let get = (&Method::GET, &*url);
            roadstead_s3::sign(keys, get, &sha256(b""), headers, &place.region, now).ok_or(unusable)?;
        }
        Signer::AzureKey(key) => azure(key, url, headers, &place.account, now).ok_or(unusable)?,
        Signer::AzureSas(pairs) => {
            let mut query = url.query_pairs_mut();
            for (name, value) in pairs {
                query.append_pair(name, value);
            }
        }
    }
    Ok(())
}

/// What all requests to Azure say, whoever asks.
pub(super) fn azure_version(headers: &mut HeaderMap) {
    headers.insert(MS_VERSION, HeaderValue::from_static(AZURE_VERSION));
}

/// Azure's "shared key".
fn azure(key: &[u8], url: &Url, headers: &mut HeaderMap, account: &str, now: Timestamp) -> Option<()> {
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    headers.insert(MS_DATE, HeaderValue::from_str(&date).ok()?);
    let match_ = headers.get(IF_MATCH).map(|value| value.to_str().unwrap_or_default()).unwrap_or_default();
    let mut own: Vec<String> = Vec::new();
    for (name, value) in headers.iter().filter(|(name, _)| name.as_str().starts_with("x-ms-")) {
        own.push(format!("{}:{}\n", name.as_str(), value.to_str().ok()?.trim()));
    }
    own.sort();
    let mut pairs: Vec<String> =
        url.query_pairs().map(|(name, value)| format!("\n{}:{value}", name.to_ascii_lowercase())).collect();
    pairs.sort();
    let (path, own, pairs) = (url.path(), own.concat(), pairs.concat());
    // Content's encoding, language, length, MD5 and type, the date, and conditions on the time: there are none.
    let text = format!("GET\n\n\n\n\n\n\n\n{match_}\n\n\n\n{own}/{account}{path}{pairs}");
    let signature = STANDARD.encode(hmac_sha256(key, text.as_bytes()).as_slice());
    headers.insert(AUTHORIZATION, secret_header(&format!("SharedKey {account}:{signature}")).ok()?);
    Some(())
}
