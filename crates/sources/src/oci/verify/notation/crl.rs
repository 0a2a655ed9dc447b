//! Lists of revoked certificates (RFC 5280, 5), as far as a signature of notation needs them: whether one was made by the issuer of a
//! certificate, still counts, and has that certificate. Pure; the bytes are anyone's.
//!
//! A list may have a hundred thousand entries, so it is walked over and not read into memory as something else.

use x509_parser::certificate::X509Certificate;

use super::revocation::{self, Point};
use crate::oci::verify::keys::PublicKey;
use crate::oci::verify::{Unfit, der};

/// Entries of one certificate in one list. There is one; in a list of changes there may be two.
const MOST_ENTRIES: usize = 16;
/// What begins each of the identifiers of extensions.
const EXTENSION: [u8; 2] = [0x55, 0x1d];
const NUMBER: u8 = 20;
const REASON: u8 = 21;
const INVALID_FROM: u8 = 24;
const CHANGES: u8 = 27;
const SCOPE: u8 = 28;
const FRESHEST: u8 = 46;
/// Tags that depend on where they stand: `[0]` that has something else in it, and plain `[1]` to `[5]`.
const ZERO: u8 = 0xa0;
const ONE: u8 = 0x81;
const TWO: u8 = 0x82;
const FOUR: u8 = 0x84;
const FIVE: u8 = 0x85;

/// A list, taken apart.
pub(super) struct List<'a> {
    issuer: &'a [u8],
    next_update: Option<i64>,
    /// One behind the other.
    entries: &'a [u8],
    number: Option<&'a [u8]>,
    /// Where it is a list of changes: the oldest list that they are changes of.
    changes_of: Option<&'a [u8]>,
    /// Where a list of changes since it is.
    pub(super) freshest: Vec<Point>,
    scope: Scope,
    has_unknown: bool,
    signed: &'a [u8],
    signature: &'a [u8],
}

/// Which certificates a list is about.
#[derive(Default)]
struct Scope {
    no_authorities: bool,
    only_authorities: bool,
    /// Those of other issuers, or something else than certificates.
    others: bool,
}

/// What a list says of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    at: i64,
    reason: Reason,
    /// Since when its key is not to be trusted.
    invalid_from: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// It may be taken back.
    Hold,
    /// It was taken back.
    Removed,
    /// For good.
    Other,
}

impl<'a> List<'a> {
    /// Takes a list apart.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Unfit> {
        let mut parts = der::only(bytes, der::SEQUENCE)?;
        let signed = der::next(&mut parts)?;
        let algorithm = der::next(&mut parts)?;
        let signature = der::bits(der::take(&mut parts, der::BITS)?)?;
        if signed.tag != der::SEQUENCE || !parts.is_empty() {
            return Err(Unfit::new("it is not a list of revoked certificates"));
        }
        let mut row = signed.content;
        der::maybe(&mut row, der::INTEGER)?;
        if der::next(&mut row)?.whole != algorithm.whole {
            return Err(Unfit::new("it is signed with another algorithm than it says"));
        }
        let issuer = der::next(&mut row)?.whole;
        der::time(&der::next(&mut row)?)?;
        let has_next = matches!(row.first(), Some(&(der::TIME | der::UTC_TIME)));
        let next_update = if has_next { Some(der::time(&der::next(&mut row)?)?) } else { None };
        let entries = der::maybe(&mut row, der::SEQUENCE)?.unwrap_or_default();
        let extensions = der::maybe(&mut row, ZERO)?;
        let mut list = Self {
            issuer,
            next_update,
            entries,
            number: None,
            changes_of: None,
            freshest: Vec::new(),
            scope: Scope::default(),
            has_unknown: !row.is_empty(),
            signed: signed.whole,
            signature,
        };
        if let Some(extensions) = extensions {
            list.extend(der::only(extensions, der::SEQUENCE)?)?;
        }
        Ok(list)
    }

    fn extend(&mut self, mut row: &'a [u8]) -> Result<(), Unfit> {
        while !row.is_empty() {
            let (id, is_critical, value) = extension(&mut row)?;
            match id {
                Some(NUMBER) => self.number = Some(digits(der::only(value, der::INTEGER)?)),
                Some(CHANGES) => self.changes_of = Some(digits(der::only(value, der::INTEGER)?)),
                Some(SCOPE) => self.scope = Scope::parse(value)?,
                Some(FRESHEST) => self.freshest = revocation::points(value)?,
                _ => self.has_unknown |= is_critical,
            }
        }
        Ok(())
    }

    /// Whether the issuer of a certificate made it, it is about that certificate, and it still counts.
    pub(super) fn check(
        &self,
        certificate: &X509Certificate<'_>,
        issuer: &X509Certificate<'_>,
        now: i64,
    ) -> Result<(), Unfit> {
        let may_sign = issuer.key_usage().ok().flatten().is_none_or(|usage| usage.value.crl_sign());
        let key = PublicKey::of(issuer.public_key()).map_err(Unfit::new)?;
        if !may_sign || self.issuer != issuer.subject().as_raw() || !key.made(self.signature, self.signed) {
            return Err(Unfit::new("it was not made by the issuer of the certificate"));
        }
        match self.next_update {
            None => return Err(Unfit::new("it does not say until when it counts")),
            Some(until) if until < now => return Err(Unfit::new("it is out of date")),
            Some(_) => {}
        }
        let is_authority = certificate.basic_constraints().ok().flatten().is_some_and(|found| found.value.ca);
        let Scope { no_authorities, only_authorities, others } = self.scope;
        if others || (no_authorities && is_authority) || (only_authorities && !is_authority) {
            return Err(Unfit::new("it is about other certificates"));
        }
        if self.has_unknown {
            return Err(Unfit::new("it has a critical extension that is not known"));
        }
        Ok(())
    }

    /// Whether these are changes of that list.
    pub(super) fn changes(&self, base: &List<'_>) -> Result<(), Unfit> {
        let (Some(of), Some(number), Some(base)) = (self.changes_of, self.number, base.number) else {
            return Err(Unfit::new("it is not a list of changes"));
        };
        let order = |number: &[u8]| (number.len(), number.to_vec());
        if order(of) > order(base) || order(number) <= order(base) {
            return Err(Unfit::new("it is a list of changes of another list"));
        }
        Ok(())
    }

    /// Whether it has all certificates, and not changes only.
    pub(super) fn is_whole(&self) -> bool {
        self.changes_of.is_none()
    }

    /// What it says of the certificate with this serial number.
    pub(super) fn entries_of(&self, serial: &[u8]) -> Result<Vec<Entry>, Unfit> {
        let (mut row, mut found) = (self.entries, Vec::new());
        while !row.is_empty() {
            let mut entry = der::take(&mut row, der::SEQUENCE)?;
            if digits(der::take(&mut entry, der::INTEGER)?) == digits(serial) {
                found.push(Entry::parse(entry)?);
                if found.len() > MOST_ENTRIES {
                    return Err(Unfit::new("it has one certificate many times"));
                }
            }
        }
        Ok(found)
    }
}

/// Whether entries come to it that a certificate is revoked, for what was signed at a time that is proven.
pub(super) fn is_revoked(entries: &[Entry], at: Option<i64>) -> bool {
    let is_before = |entry: &Entry| matches!((at, entry.invalid_from), (Some(at), Some(from)) if at < from);
    if entries.iter().any(is_before) {
        return false;
    }
    if entries.iter().any(|entry| entry.reason == Reason::Other) {
        return true;
    }
    // Of several that may be taken back the last one counts; of two of one second, that it is revoked.
    let last = entries.iter().max_by_key(|entry| (entry.at, entry.reason == Reason::Hold));
    last.is_some_and(|entry| entry.reason == Reason::Hold)
}

impl Entry {
    fn parse(mut row: &[u8]) -> Result<Self, Unfit> {
        let at = der::time(&der::next(&mut row)?)?;
        let mut entry = Self { at, reason: Reason::Other, invalid_from: None };
        let mut extensions = der::maybe(&mut row, der::SEQUENCE)?.unwrap_or_default();
        while !extensions.is_empty() {
            let (id, is_critical, value) = extension(&mut extensions)?;
            match id {
                Some(REASON) => {
                    entry.reason = match der::only(value, der::ENUMERATED)? {
                        [6] => Reason::Hold,
                        [8] => Reason::Removed,
                        _ => Reason::Other,
                    };
                }
                Some(INVALID_FROM) => {
                    let mut value = value;
                    entry.invalid_from = Some(der::time(&der::next(&mut value)?)?);
                }
                _ if is_critical => {
                    return Err(Unfit::new("it has an entry with a critical extension that is not known"));
                }
                _ => {}
            }
        }
        Ok(entry)
    }
}

impl Scope {
    fn parse(value: &[u8]) -> Result<Self, Unfit> {
        let mut row = der::only(value, der::SEQUENCE)?;
        let mut scope = Self::default();
        while !row.is_empty() {
            let item = der::next(&mut row)?;
            let is_true = item.content != [0];
            match item.tag {
                ONE => scope.no_authorities |= is_true,
                TWO => scope.only_authorities |= is_true,
                FOUR | FIVE => scope.others |= is_true,
                // Where it is, and for which reasons: all lists of a certificate are looked at.
                _ => {}
            }
        }
        Ok(scope)
    }
}

/// Takes an extension off: the last byte of its identifier where it is one of X.509's own, whether it is critical, and its value.
pub(super) fn extension<'a>(row: &mut &'a [u8]) -> Result<(Option<u8>, bool, &'a [u8]), Unfit> {
    let mut parts = der::take(row, der::SEQUENCE)?;
    let id = match der::take(&mut parts, der::OID)? {
        [first, second, last] if [*first, *second] == EXTENSION => Some(*last),
        _ => None,
    };
    let is_critical = der::maybe(&mut parts, der::BOOLEAN)?.is_some_and(|value| value != [0]);
    Ok((id, is_critical, der::only(parts, der::OCTETS)?))
}

/// The digits of a number that is not negative, without leading zeros.
pub(super) fn digits(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|digit| **digit == 0).count();
    &number[zeros..]
}
