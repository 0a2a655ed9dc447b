//! Whether the certificates of a chain are revoked: whom to ask, and what the answers come to. Pure: what is still to be asked comes out,
//! is asked outside, and the chain is judged again with the answers.
//!
//! As notation does it, an authority's server (OCSP) is asked first, and its lists (CRL) where that does not say; a certificate that
//! names neither cannot be revoked.

use serde::{Deserialize, Serialize};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};

use super::crl::{self, List};
use super::ocsp::{self, Said};
use crate::oci::verify::{Unfit, der};

/// Bytes of a list, and of what a server of OCSP answers.
pub(in crate::oci) const MOST_LIST: u64 = 8 << 20;
pub(in crate::oci) const MOST_ANSWER: u64 = 64 << 10;
/// Servers, and lists, of one certificate; and places where one list is.
const MOST_SERVERS: usize = 4;
const MOST_POINTS: usize = 8;
const MOST_PLACES: usize = 4;
const MOST_URL: usize = 2_048;
const LISTS: &str = "2.5.29.31";
const FRESHEST: &str = "2.5.29.46";
const AUTHORITY_INFORMATION: &str = "1.3.6.1.5.5.7.1.1";
const OCSP: &str = "1.3.6.1.5.5.7.48.1";
const ZERO: u8 = 0xa0;
const URI: u8 = 0x86;

/// What is to be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::oci) struct Inquiry {
    /// Where: `http` or `https`.
    pub(in crate::oci) url: String,
    /// The question, of a server of OCSP; of a list there is none.
    pub(in crate::oci) question: Option<Vec<u8>>,
}

/// What was asked already.
pub(in crate::oci::verify) trait Answers {
    /// The answer to this, or why there is none; nothing where it is still to be asked.
    fn to(&self, inquiry: &Inquiry) -> Option<Result<Vec<u8>, String>>;
}

/// Places where one list is.
pub(super) type Point = Vec<String>;

/// What is known of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Status {
    Good,
    Revoked,
    /// Nobody says, and why.
    Unknown(String),
    /// This is to be asked first.
    Open(Vec<Inquiry>),
}

/// A certificate, and all that its status depends on.
pub(super) struct Case<'a> {
    pub(super) certificate: &'a X509Certificate<'a>,
    pub(super) issuer: &'a X509Certificate<'a>,
    /// When it was signed, where an authority says so.
    pub(super) at: Option<i64>,
    pub(super) now: i64,
}

/// What a certificate names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    servers: Vec<String>,
    lists: Vec<Point>,
    has_changes: bool,
}

impl Case<'_> {
    /// What the answers come to.
    pub(super) fn status(&self, answers: &dyn Answers) -> Status {
        let named = match Named::of(self.certificate) {
            Ok(named) => named,
            Err(unfit) => return Status::Unknown(unfit.to_string()),
        };
        let mut why = Vec::new();
        for url in &named.servers {
            if !is_web(url) {
                why.push("it names a server of OCSP that is not at an http URL".to_owned());
                continue;
            }
            let question = Some(ocsp::request(self.certificate, self.issuer));
            let inquiry = Inquiry { url: url.clone(), question };
            let Some(answer) = answers.to(&inquiry) else { return Status::Open(vec![inquiry]) };
            let said = answer
                .map_err(Unfit::new)
                .and_then(|answer| ocsp::read(&answer, self.certificate, self.issuer, self.at, self.now));
            match said {
                Ok(Said::Good) => return Status::Good,
                Ok(Said::Revoked) => return Status::Revoked,
                Ok(Said::Unknown) => {
                    why.push(format!("{url}: it does not know the certificate"));
                    break;
                }
                Err(unfit) => why.push(format!("{url}: {unfit}")),
            }
        }
        if named.lists.is_empty() {
            return if named.servers.is_empty() { Status::Good } else { Status::Unknown(why.join("; ")) };
        }
        let mut open = Vec::new();
        for point in &named.lists {
            match self.listed(point, named.has_changes, answers) {
                Status::Good => {}
                Status::Open(inquiries) => open.extend(inquiries),
                Status::Unknown(because) => {
                    why.push(because);
                    return Status::Unknown(why.join("; "));
                }
                Status::Revoked => return Status::Revoked,
            }
        }
        if open.is_empty() { Status::Good } else { Status::Open(open) }
    }

    /// What a list says, which is at each of these places.
    fn listed(&self, point: &Point, has_changes: bool, answers: &dyn Answers) -> Status {
        let mut why = Vec::new();
        for url in point {
            let answer = match ask(url, answers) {
                Ok(answer) => answer,
                Err(open) => return open,
            };
            let status = answer.and_then(|bytes| {
                let list = self.list(&bytes)?;
                if !list.is_whole() {
                    return Err(Unfit::new("it is a list of changes"));
                }
                self.of_list(&list, has_changes, answers)
            });
            match status {
                Ok(status) => return status,
                Err(unfit) => why.push(format!("{url}: {unfit}")),
            }
        }
        if why.is_empty() {
            why.push("it names a list of revoked certificates that is not at an http URL".to_owned());
        }
        Status::Unknown(why.join("; "))
    }

    fn list<'a>(&self, bytes: &'a [u8]) -> Result<List<'a>, Unfit> {
        let list = List::parse(bytes)?;
        list.check(self.certificate, self.issuer, self.now)?;
        Ok(list)
    }

    /// What a list says together with its changes, where it says that there are some.
    fn of_list(&self, list: &List<'_>, has_changes: bool, answers: &dyn Answers) -> Result<Status, Unfit> {
        let serial = self.certificate.raw_serial();
        let mut entries = list.entries_of(serial)?;
        let places: Vec<&String> = list.freshest.iter().flatten().collect();
        if has_changes && places.is_empty() {
            return Err(Unfit::new("the certificate names a list of changes, and its list does not"));
        }
        let mut why = Vec::new();
        for url in &places {
            let answer = match ask(url, answers) {
                Ok(answer) => answer,
                Err(open) => return Ok(open),
            };
            let changes = answer.and_then(|bytes| {
                let changes = self.list(&bytes)?;
                changes.changes(list)?;
                changes.entries_of(serial)
            });
            match changes {
                Ok(changes) => {
                    entries.extend(changes);
                    why.clear();
                    break;
                }
                Err(unfit) => why.push(format!("its changes at {url}: {unfit}")),
            }
        }
        if !why.is_empty() {
            return Err(Unfit::new(why.join("; ")));
        }
        let is_revoked = crl::is_revoked(&entries, self.at);
        Ok(if is_revoked { Status::Revoked } else { Status::Good })
    }
}

/// The list at a place; the error is that it is still to be asked for.
fn ask(url: &str, answers: &dyn Answers) -> Result<Result<Vec<u8>, Unfit>, Status> {
    let inquiry = Inquiry { url: url.to_owned(), question: None };
    match answers.to(&inquiry) {
        Some(answer) => Ok(answer.map_err(Unfit::new)),
        None => Err(Status::Open(vec![inquiry])),
    }
}

impl Named {
    fn of(certificate: &X509Certificate<'_>) -> Result<Self, Unfit> {
        let mut named = Self::default();
        for extension in certificate.extensions() {
            match extension.oid.to_id_string().as_str() {
                LISTS => named.lists = points(extension.value)?,
                FRESHEST => named.has_changes = true,
                AUTHORITY_INFORMATION => {
                    let ParsedExtension::AuthorityInfoAccess(information) = extension.parsed_extension()
                    else {
                        return Err(Unfit::new("what it names of its authority cannot be read"));
                    };
                    let all = information.accessdescs.iter();
                    let servers = all.filter(|one| one.access_method.to_id_string() == OCSP);
                    for server in servers {
                        let GeneralName::URI(url) = server.access_location else { continue };
                        named.servers.push(url.to_owned());
                    }
                    named.servers.truncate(MOST_SERVERS);
                }
                _ => {}
            }
        }
        Ok(named)
    }
}

/// Whether something can be asked there. Other ways to the same list (LDAP) are left out.
fn is_web(url: &str) -> bool {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    url.len() <= MOST_URL && matches!(scheme.as_deref(), Some("http" | "https"))
}

/// Where lists are: of each the places where it can be had over the web, which may be none.
pub(super) fn points(value: &[u8]) -> Result<Vec<Point>, Unfit> {
    let (mut row, mut found) = (der::only(value, der::SEQUENCE)?, Vec::new());
    while !row.is_empty() {
        let mut point = der::take(&mut row, der::SEQUENCE)?;
        let mut name = der::maybe(&mut point, ZERO)?.unwrap_or_default();
        let mut names = der::maybe(&mut name, ZERO)?.unwrap_or_default();
        let mut places = Vec::new();
        while !names.is_empty() {
            let item = der::next(&mut names)?;
            let url = std::str::from_utf8(item.content).ok().filter(|url| item.tag == URI && is_web(url));
            if let Some(url) = url.filter(|_| places.len() < MOST_PLACES) {
                places.push(url.to_owned());
            }
        }
        found.push(places);
        if found.len() > MOST_POINTS {
            return Err(Unfit::new(format!(
                "it names more than {MOST_POINTS} lists of revoked certificates"
            )));
        }
    }
    Ok(found)
}
