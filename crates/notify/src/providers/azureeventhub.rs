//! `azureeventhub`: an event of an event hub, by its HTTPS interface.
//!
//! The address is a connection string, whose key signs each request, or the hub's name, with its namespace as the channel and a token of
//! Entra's: that of the Secret, or one that the Provider's identity is given.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use roadstead_model::Secret;
use url::Url;

use crate::event::Event;
use crate::request::Request;
use crate::target::{Target, Unsendable};

const WANTED: Unsendable = Unsendable::Address(
    "a connection string (Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY;EntityPath=HUB) or the name of a hub",
);
/// The domain of namespaces that are named alone.
const DOMAIN: &str = "servicebus.windows.net";
/// What stands in a signature as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// For so long a signature holds.
const LASTS: SignedDuration = SignedDuration::from_mins(10);

/// What a connection string says.
struct Connection<'a> {
    host: String,
    hub: &'a str,
    key_name: &'a str,
    key: &'a str,
}

pub(super) fn request(target: &Target, event: &Event) -> Result<Request, Unsendable> {
    // Exposed to be parsed.
    let address = target.address.expose().trim();
    if address.is_empty() {
        return Err(Unsendable::Missing("no address is set, neither in the spec nor in its Secret"));
    }
    let (url, authorization) = if address.contains(';') {
        let connection = Connection::read(address)?;
        let url = messages(&connection.host, connection.hub)?;
        let signature = connection.signature(target.now);
        (url, signature)
    } else {
        let token = target.bearer_token()?;
        let namespace = target.needed_channel()?;
        let host =
            if namespace.contains('.') { namespace.to_owned() } else { format!("{namespace}.{DOMAIN}") };
        (messages(&host, address)?, format!("Bearer {token}").into())
    };
    Ok(Request::json(url, event).credential("Authorization", authorization))
}

/// Where events of a hub are posted to.
fn messages(host: &str, hub: &str) -> Result<Url, Unsendable> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    // Anything else would lead to another path.
    if hub.is_empty() || !hub.chars().all(is_name) || hub.chars().all(|c| c == '.') {
        return Err(WANTED);
    }
    let url = Url::parse(&format!("https://{host}/{hub}/messages")).map_err(|_| WANTED)?;
    let is_host = url.host_str().is_some_and(|one| one.eq_ignore_ascii_case(host));
    if is_host { Ok(url) } else { Err(WANTED) }
}

impl<'a> Connection<'a> {
    fn read(text: &'a str) -> Result<Self, Unsendable> {
        let part = |name: &str| {
            let mut parts = text.split(';').filter_map(|part| part.split_once('='));
            parts.find(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
        };
        let endpoint = Url::parse(part("Endpoint").ok_or(WANTED)?).map_err(|_| WANTED)?;
        let host = endpoint.host_str().filter(|_| endpoint.scheme() == "sb").ok_or(WANTED)?;
        Ok(Self {
            host: host.to_owned(),
            hub: part("EntityPath").ok_or(WANTED)?,
            key_name: part("SharedAccessKeyName").filter(|name| !name.is_empty()).ok_or(WANTED)?,
            key: part("SharedAccessKey").filter(|key| !key.is_empty()).ok_or(WANTED)?,
        })
    }

    /// Shows for a while who has the key.
    fn signature(&self, now: Timestamp) -> Secret {
        let escaped = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
        let resource = escaped(&format!("https://{}/{}", self.host, self.hub));
        let until = now.saturating_add(LASTS).map_or(i64::MAX, Timestamp::as_second);
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.as_bytes());
        let signed = hmac::sign(&key, format!("{resource}\n{until}").as_bytes());
        let (signed, name) = (escaped(&STANDARD.encode(signed.as_ref())), escaped(self.key_name));
        format!("SharedAccessSignature sr={resource}&sig={signed}&se={until}&skn={name}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against what Python's `hmac` and `urllib.parse.quote_plus` make of the same.
    #[test]
    fn a_signature_is_what_the_service_computes() {
        let text = "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=send+only;SharedAccessKey=a/b+c=;EntityPath=fleet";
        let connection = Connection::read(text).unwrap();
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(connection.signature(now).expose(), EXPECTED);
    }

    const EXPECTED: &str = "SharedAccessSignature sr=https%3A%2F%2Fns.servicebus.windows.net%2Ffleet&sig=fRkU3V0ZE6bsnQk5WLJCYvOrWJ5psk8FZRR8fMctf5Y%3D&se=1700000600&skn=send%2Bonly";

    #[test]
    fn what_is_no_hub_is_refused_without_being_shown() {
        for address in [
            "",
            "Endpoint=https://ns.test/;SharedAccessKeyName=n;SharedAccessKey=canary;EntityPath=h",
            "Endpoint=sb://ns.test/;SharedAccessKeyName=n;SharedAccessKey=canary",
            "Endpoint=sb://ns.test/;SharedAccessKeyName=n;SharedAccessKey=canary;EntityPath=../x",
            "Endpoint=sb://ns.test/;SharedAccessKeyName=;SharedAccessKey=canary;EntityPath=h",
            "canary/../x",
            "..",
        ] {
            let token = Some("canary".into());
            let target =
                Target { address: address.into(), channel: "ns".to_owned(), token, ..Target::default() };
            let event = serde_json::from_str(EVENT).unwrap();
            let why = request(&target, &event).unwrap_err().to_string();
            assert!(!why.contains("canary"), "{why}");
        }
        for channel in ["ns/x", "ns@other.test", "ns:1"] {
            assert!(messages(channel, "hub").is_err(), "{channel}");
        }
    }

    const EVENT: &str = r#"{"involvedObject":{"apiVersion":"v1","kind":"K","name":"n","namespace":"s","uid":"u"},"severity":"info",
        "timestamp":"2026-08-07T10:00:00Z","message":"m","reason":"R","reportingController":"c"}"#;
}
