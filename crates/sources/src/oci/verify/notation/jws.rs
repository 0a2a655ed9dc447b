//! Envelopes in JSON: JWS (RFC 7515) with one signature. Pure; the bytes are anyone's.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use super::envelope::{AUTHENTIC_TIME, EXPIRY, Envelope, Headers, MOST_HEADERS, SCHEME, TIME};
use crate::oci::manifest::Few;
use crate::oci::verify::Unfit;
use crate::oci::verify::bundle::Bytes;

#[derive(Deserialize)]
struct Written {
    payload: String,
    protected: String,
    header: Unprotected,
    signature: String,
}

#[derive(Deserialize)]
struct Unprotected {
    x5c: Few<Bytes>,
    #[serde(rename = "io.cncf.notary.timestampSignature", default)]
    stamp: Option<Bytes>,
}

/// The headers that are signed, each name once.
struct Protected(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Protected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vec<(String, Value)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("headers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(String, Value)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if entries.len() == MOST_HEADERS {
                        return Err(A::Error::custom(format!("more than {MOST_HEADERS} headers")));
                    }
                    if entries.iter().any(|(other, _)| *other == name) {
                        return Err(A::Error::custom("a header stands there twice"));
                    }
                    entries.push((name, value));
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Entries).map(Self)
    }
}

/// Reads an envelope.
pub(super) fn parse(bytes: &[u8]) -> Result<Envelope, Unfit> {
    let wrong = |error: serde_json::Error| Unfit::new(format!("it is not a signature of notation: {error}"));
    let written: Written = serde_json::from_slice(bytes).map_err(wrong)?;
    let decoded = |text: &str, what: &str| {
        URL_SAFE_NO_PAD.decode(text).map_err(|_| Unfit::new(format!("its {what} is not base64url")))
    };
    let protected: Protected =
        serde_json::from_slice(&decoded(&written.protected, "protected header")?).map_err(wrong)?;
    Ok(Envelope {
        headers: headers(protected)?,
        payload: decoded(&written.payload, "payload")?,
        signed: format!("{}.{}", written.protected, written.payload).into_bytes(),
        signature: decoded(&written.signature, "signature")?,
        chain: written.header.x5c.0.into_iter().map(|bytes| bytes.0).collect(),
        stamp: written.header.stamp.map(|bytes| bytes.0),
    })
}

fn headers(Protected(entries): Protected) -> Result<Headers, Unfit> {
    let mut headers = Headers::default();
    for (name, value) in entries {
        match name.as_str() {
            "alg" => headers.algorithm = text(&name, &value)?.to_owned(),
            "cty" => headers.content_type = text(&name, &value)?.to_owned(),
            SCHEME => headers.scheme = text(&name, &value)?.to_owned(),
            "crit" => {
                let Value::Array(names) = &value else { return Err(wrong(&name)) };
                let names = names.iter().map(|one| text(&name, one).map(str::to_owned));
                headers.critical = names.collect::<Result<_, _>>()?;
            }
            TIME => headers.time = Some(time(&name, &value)?),
            AUTHENTIC_TIME => headers.authentic_time = Some(time(&name, &value)?),
            EXPIRY => headers.expiry = Some(time(&name, &value)?),
            _ => headers.others.push(name),
        }
    }
    Ok(headers)
}

fn wrong(name: &str) -> Unfit {
    Unfit::new(format!("its header '{}' is not what it should be", crate::tree::shown(name)))
}

fn text<'a>(name: &str, value: &'a Value) -> Result<&'a str, Unfit> {
    value.as_str().ok_or_else(|| wrong(name))
}

fn time(name: &str, value: &Value) -> Result<i64, Unfit> {
    let time: Timestamp = text(name, value)?.parse().map_err(|_| wrong(name))?;
    Ok(time.as_second())
}
