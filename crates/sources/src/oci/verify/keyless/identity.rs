//! Who signed, as the certificate says, and who may have.

use regex::Regex;
use roadstead_go_regex::{Limits, compile};
use serde::{Deserialize, Serialize};
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::Oid;
use x509_parser::der_parser::oid;
use x509_parser::extensions::GeneralName;

use super::{Unfit, der};

/// Identities of one object: each is held against each signature. Bytes of an expression, and what one takes when it is compiled.
const MOST: usize = 50;
const MOST_PATTERN: usize = 1 << 10;
const LIMITS: Limits = Limits { program: 256 << 10, tables: 256 << 10 };
/// The issuer, as text, and as it was written once.
const ISSUER: Oid<'static> = oid!(1.3.6.1.4.1.57264.1.8);
const OLD_ISSUER: Oid<'static> = oid!(1.3.6.1.4.1.57264.1.1);
/// A name that is neither a URI nor an e-mail address.
const OTHER_NAME: Oid<'static> = oid!(1.3.6.1.4.1.57264.1.7);
/// What holds it.
const EXPLICIT: u8 = 0xa0;

/// Who may have signed: regular expressions, as Go reads them, that need not match the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// For who certified who they are.
    pub issuer: String,
    /// For who they are.
    pub subject: String,
}

/// The same, compiled.
pub(super) struct Matcher {
    issuer: Regex,
    subject: Regex,
}

/// Compiles identities.
pub(super) fn matchers(identities: &[Identity]) -> Result<Vec<Matcher>, Unfit> {
    const FIELD: &str = "spec.verify.matchOIDCIdentity";
    if identities.is_empty() {
        return Err(Unfit::new(format!(
            "without an identity anybody's signature would do: name who may sign in {FIELD}"
        )));
    }
    if identities.len() > MOST {
        return Err(Unfit::new(format!("{FIELD} has more than {MOST} entries")));
    }
    let compiled = |number: usize, name: &str, text: &str| {
        let field = format!("{FIELD}[{number}].{name}");
        if text.is_empty() {
            return Err(Unfit::new(format!("{field} is empty, which would match anybody")));
        }
        if text.len() > MOST_PATTERN {
            return Err(Unfit::new(format!("{field} is longer than {MOST_PATTERN} bytes")));
        }
        compile(text, LIMITS).map_err(|error| Unfit::new(format!("{field}: {error}")))
    };
    let both = |(number, identity): (usize, &Identity)| {
        let issuer = compiled(number, "issuer", &identity.issuer)?;
        Ok(Matcher { issuer, subject: compiled(number, "subject", &identity.subject)? })
    };
    identities.iter().enumerate().map(both).collect()
}

/// Whether a certificate is of somebody who may have signed.
pub(super) fn check(certificate: &X509Certificate<'_>, matchers: &[Matcher]) -> Result<(), Unfit> {
    let (issuer, subject) = (issuer(certificate)?, subject(certificate)?);
    let is_one = |one: &Matcher| one.issuer.is_match(&issuer) && one.subject.is_match(&subject);
    if matchers.iter().any(is_one) {
        return Ok(());
    }
    let (issuer, subject) = (crate::tree::shown(&issuer), crate::tree::shown(&subject));
    Err(Unfit::new(format!(
        "it was signed by subject {subject} of issuer {issuer}, which no entry of spec.verify.matchOIDCIdentity matches"
    )))
}

fn unread(_: impl std::error::Error) -> Unfit {
    Unfit::new("an extension of its certificate cannot be read")
}

/// Who certified who they are.
fn issuer(certificate: &X509Certificate<'_>) -> Result<String, Unfit> {
    let value = |oid: &Oid<'_>| {
        certificate.get_extension_unique(oid).map_err(unread).map(|found| found.map(|one| one.value))
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(unread);
    let new = value(&ISSUER)?.map(|bytes| der::only(bytes, der::UTF8).and_then(text)).transpose()?;
    let old = value(&OLD_ISSUER)?.map(text).transpose()?;
    match (new, old) {
        (Some(new), Some(old)) if new != old => Err(Unfit::new("its certificate names two issuers")),
        (Some(issuer), _) | (None, Some(issuer)) if !issuer.is_empty() => Ok(issuer),
        _ => Err(Unfit::new("its certificate does not name the issuer of an identity")),
    }
}

/// Who they are.
fn subject(certificate: &X509Certificate<'_>) -> Result<String, Unfit> {
    let names = certificate.subject_alternative_name().map_err(unread)?;
    let names = names.map(|found| found.value.general_names.as_slice()).unwrap_or_default();
    // With several, it would have to be said which of them counts.
    let [name] = names else { return Err(Unfit::new("its certificate must name exactly one subject")) };
    let subject = match name {
        GeneralName::URI(text) | GeneralName::RFC822Name(text) => (*text).to_owned(),
        GeneralName::OtherName(oid, value) if *oid == OTHER_NAME => {
            let text = der::only(der::only(value, EXPLICIT)?, der::UTF8)?;
            String::from_utf8(text.to_vec()).map_err(unread)?
        }
        _ => {
            let why =
                "the subject of its certificate is neither a URI, an e-mail address nor a name of Sigstore's";
            return Err(Unfit::new(why));
        }
    };
    if subject.is_empty() {
        return Err(Unfit::new("its certificate has no subject"));
    }
    Ok(subject)
}
