//! Names of those who sign: what a policy has as text (RFC 4514), and what a certificate has as its subject.

use std::collections::BTreeMap;

use x509_parser::prelude::X509Certificate;
use x509_parser::x509::AttributeTypeAndValue;

use crate::oci::verify::Unfit;

/// Bytes of a name.
const MOST: usize = 4 << 10;
/// What a name has at least.
const MANDATORY: [&str; 3] = ["C", "ST", "O"];
/// The attributes that have names.
const KNOWN: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "SERIALNUMBER"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.17", "POSTALCODE"),
];

/// The attributes of a name, by their types.
pub(super) type Name = BTreeMap<String, String>;

/// Whether all that is said of an identity is so of a subject.
pub(super) fn includes(subject: &Name, identity: &Name) -> bool {
    identity.iter().all(|(kind, value)| subject.get(kind) == Some(value))
}

/// Reads a name that a policy has.
pub(super) fn parse(text: &str) -> Result<Name, String> {
    if text.len() > MOST {
        return Err(format!("it is longer than {MOST} bytes"));
    }
    let (mut name, mut rest) = (Name::new(), text);
    loop {
        let (kind, behind) = rest.split_once('=').ok_or("an attribute has no value")?;
        let kind = kind.trim();
        if kind.is_empty() || !kind.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-')) {
            return Err(format!("`{}` is not the type of an attribute", crate::tree::shown(kind)));
        }
        let (value, left) = value(behind)?;
        add(&mut name, &kind.to_ascii_uppercase(), value)?;
        match left {
            Some(left) => rest = left,
            None => break,
        }
    }
    complete(name)
}

/// A value, and what is left behind the comma that ends it.
fn value(text: &str) -> Result<(String, Option<&str>), String> {
    let text = text.trim_start_matches(' ');
    if text.starts_with('#') {
        return Err("a value in hexadecimal (=#) is not supported".to_owned());
    }
    let (mut value, mut kept) = (Vec::new(), 0);
    let mut characters = text.char_indices();
    let mut left = None;
    while let Some((at, character)) = characters.next() {
        match character {
            ',' | ';' => {
                left = Some(&text[at + 1..]);
                break;
            }
            '+' => return Err("an attribute with several values is not supported".to_owned()),
            '\\' => {
                let (_, next) = characters.next().ok_or("a backslash ends it")?;
                if let Some(high) = next.to_digit(16) {
                    let low = characters.next().and_then(|(_, low)| low.to_digit(16));
                    let low = low.ok_or("a backslash is followed by half a byte")?;
                    value.push(u8::try_from(high * 16 + low).unwrap_or_default());
                } else {
                    value.extend(next.encode_utf8(&mut [0; 4]).bytes());
                }
                kept = value.len();
            }
            '"' | '<' | '>' | '\0' => {
                return Err(format!("`{}` is to be escaped", character.escape_default()));
            }
            _ => {
                value.extend(character.encode_utf8(&mut [0; 4]).bytes());
                if character != ' ' {
                    kept = value.len();
                }
            }
        }
    }
    value.truncate(kept);
    let value = String::from_utf8(value).map_err(|_| "a value is not UTF-8")?;
    Ok((value, left))
}

fn add(name: &mut Name, kind: &str, value: String) -> Result<(), String> {
    // Either is written for the state or province.
    let kind = if kind == "S" { "ST" } else { kind };
    match name.insert(kind.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(format!("it has the attribute {} twice", crate::tree::shown(kind))),
    }
}

fn complete(name: Name) -> Result<Name, String> {
    match MANDATORY.iter().find(|kind| name.get(**kind).is_none_or(String::is_empty)) {
        Some(kind) => Err(format!("it has no {kind}: want C, ST (or S) and O at least")),
        None => Ok(name),
    }
}

/// Who a certificate is of.
pub(super) fn of_subject(certificate: &X509Certificate<'_>) -> Result<Name, Unfit> {
    let wrong =
        |why: &str| Unfit::new(format!("the subject of the signer's certificate cannot be compared: {why}"));
    let mut name = Name::new();
    for together in certificate.subject().iter_rdn() {
        let attributes: Vec<&AttributeTypeAndValue<'_>> = together.iter().collect();
        let [attribute] = attributes.as_slice() else {
            return Err(wrong("an attribute with several values is not supported"));
        };
        let kind = attribute.attr_type().to_id_string();
        let known = KNOWN.iter().find(|(id, _)| *id == kind);
        let (_, known) = known.ok_or_else(|| wrong(&format!("attribute {kind} is not supported")))?;
        let value = attribute.as_str().map_err(|_| wrong(&format!("its {known} is not a text")))?;
        add(&mut name, known, value.to_owned()).map_err(|why| wrong(&why))?;
    }
    complete(name).map_err(|why| wrong(&why))
}
