//! Envelopes in CBOR: COSE_Sign1 (RFC 9052). Pure; the bytes are anyone's.

use super::cbor::{self, Item};
use super::envelope::{AUTHENTIC_TIME, EXPIRY, Envelope, Headers, MOST_HEADERS, SCHEME, STAMP, TIME};
use crate::oci::verify::Unfit;

/// The tag of what has one signature, as the number and as the byte that such an envelope begins with.
const TAG: u64 = 18;
pub(super) const FIRST: u8 = 0xd2;
/// The tag of a time in seconds.
const SECONDS: u64 = 1;
/// Headers that have numbers.
const ALGORITHM: Item = Item::Integer(1);
const CRITICAL: Item = Item::Integer(2);
const CONTENT_TYPE: Item = Item::Integer(3);
const CHAIN: Item = Item::Integer(33);
/// Algorithms by their numbers, and as JSON has them.
const ALGORITHMS: [(i64, &str); 6] =
    [(-37, "PS256"), (-38, "PS384"), (-39, "PS512"), (-7, "ES256"), (-35, "ES384"), (-36, "ES512")];

/// Reads an envelope.
pub(super) fn parse(bytes: &[u8]) -> Result<Envelope, Unfit> {
    let none = || Unfit::new("it is not a signature of notation: want COSE_Sign1 with its tag");
    let Item::Tagged(TAG, message) = cbor::parse(bytes)? else { return Err(none()) };
    let Item::List(parts) = *message else { return Err(none()) };
    let Ok([protected, unprotected, payload, signature]) = <[Item; 4]>::try_from(parts) else {
        return Err(none());
    };
    let (Item::Bytes(protected), Item::Bytes(payload), Item::Bytes(signature)) =
        (protected, payload, signature)
    else {
        return Err(none());
    };
    let chain = match unprotected.get(&CHAIN) {
        Some(Item::List(chain)) => chain.iter().map(certificate).collect::<Result<_, _>>()?,
        _ => Vec::new(),
    };
    let stamp = match unprotected.get(&Item::Text(STAMP.to_owned())) {
        Some(Item::Bytes(token)) => Some(token.clone()),
        Some(_) => return Err(wrong(&Item::Text(STAMP.to_owned()))),
        None => None,
    };
    Ok(Envelope {
        headers: headers(cbor::parse(&protected)?)?,
        signed: signed(&protected, &payload),
        payload,
        signature,
        chain,
        stamp,
    })
}

fn certificate(item: &Item) -> Result<Vec<u8>, Unfit> {
    match item {
        Item::Bytes(der) => Ok(der.clone()),
        _ => Err(Unfit::new("its envelope has a certificate that is none")),
    }
}

/// What is signed: the protected headers and the payload, as a list with their kind and with no more data.
fn signed(protected: &[u8], payload: &[u8]) -> Vec<u8> {
    // A list of four, the first a text of ten bytes.
    let mut signed = vec![0x84, 0x6a];
    signed.extend(b"Signature1");
    for bytes in [protected, &[], payload] {
        // The shortest form of a length: in the byte of the type, or in one, two, four or eight bytes behind it.
        let length = (bytes.len() as u64).to_be_bytes();
        match bytes.len() {
            0..=23 => signed.push(0x40 | length[7]),
            24..=0xff => signed.extend([0x58, length[7]]),
            0x100..=0xffff => signed.extend([&[0x59], &length[6..]].concat()),
            0x1_0000..=0xffff_ffff => signed.extend([&[0x5a], &length[4..]].concat()),
            _ => signed.extend([&[0x5b], &length[..]].concat()),
        }
        signed.extend(bytes);
    }
    signed
}

fn headers(protected: Item) -> Result<Headers, Unfit> {
    let Item::Map(entries) = protected else { return Err(Unfit::new("its protected header is not a map")) };
    if entries.len() > MOST_HEADERS {
        return Err(Unfit::new(format!("it has more than {MOST_HEADERS} headers")));
    }
    let mut headers = Headers::default();
    for (name, value) in entries {
        match (&name, value) {
            (&ALGORITHM, Item::Integer(number)) => {
                let known = ALGORITHMS.iter().find(|(own, _)| *own == number);
                headers.algorithm = known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned());
            }
            (&CONTENT_TYPE, Item::Text(text)) => headers.content_type = text,
            (&CRITICAL, Item::List(names)) => headers.critical = names.iter().map(shown).collect(),
            (Item::Text(text), value) if is_ours(text) => notary(&mut headers, text, value)?,
            (&ALGORITHM | &CONTENT_TYPE | &CRITICAL, _) => return Err(wrong(&name)),
            (other, _) => headers.others.push(shown(other)),
        }
    }
    Ok(headers)
}

fn is_ours(name: &str) -> bool {
    [SCHEME, TIME, AUTHENTIC_TIME, EXPIRY].contains(&name)
}

fn notary(headers: &mut Headers, name: &str, value: Item) -> Result<(), Unfit> {
    let wrong = || wrong(&Item::Text(name.to_owned()));
    if name == SCHEME {
        let Item::Text(scheme) = value else { return Err(wrong()) };
        headers.scheme = scheme;
        return Ok(());
    }
    let Item::Tagged(SECONDS, time) = value else { return Err(wrong()) };
    let Item::Integer(time) = *time else { return Err(wrong()) };
    match name {
        TIME => headers.time = Some(time),
        AUTHENTIC_TIME => headers.authentic_time = Some(time),
        _ => headers.expiry = Some(time),
    }
    Ok(())
}

/// How messages name a header. A number is none of those that have a text for a name.
fn shown(name: &Item) -> String {
    match name {
        Item::Text(text) => text.clone(),
        Item::Integer(number) => number.to_string(),
        _ => "?".to_owned(),
    }
}

fn wrong(name: &Item) -> Unfit {
    Unfit::new(format!("its header '{}' is not what it should be", crate::tree::shown(&shown(name))))
}
