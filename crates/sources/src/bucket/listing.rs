//! Pages of lists of objects, as each object store writes them.

use std::fmt;
use std::io::{BufRead, Read};

use roadstead_s3::list::{self, MOST_PER_PAGE, decoded};
use roadstead_s3::xml;
use serde::Deserialize;
use serde::de::{IgnoredAny, SeqAccess, Visitor};

use super::request::BucketStore;
/// Bytes of what a server calls its next page.
const MOST_NEXT: usize = 4 << 10;

/// An object as a page has it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) key: String,
    pub(super) etag: String,
    pub(super) size: Option<u64>,
    pub(super) generation: u64,
    /// It stands for a folder.
    is_folder: bool,
}

impl Object {
    /// Whether it is one that stands for a folder, and holds nothing.
    pub(super) fn is_folder(&self) -> bool {
        self.is_folder || self.key.ends_with('/')
    }
}

/// What a page says besides.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Page {
    /// What the next one is called; none after the last.
    pub(super) next: Option<String>,
    pub(super) objects: usize,
}

/// Reads a page of a list, and gives its objects to `take`. What is wrong with it is told as text.
pub(super) fn read(
    store: BucketStore,
    page: impl BufRead,
    take: &mut dyn FnMut(Object) -> Result<(), String>,
) -> Result<Page, String> {
    let page = match store {
        BucketStore::S3 => s3(page, take)?,
        BucketStore::Gcs => gcs(page, take)?,
        BucketStore::Azure => azure(page, take)?,
    };
    match &page.next {
        Some(next) if next.len() > MOST_NEXT => Err("its next page has a long name".to_owned()),
        _ => Ok(page),
    }
}

fn counted(page: &mut Page) -> Result<(), String> {
    page.objects += 1;
    if page.objects > MOST_PER_PAGE {
        return Err(format!("a page holds more than {MOST_PER_PAGE} objects"));
    }
    Ok(())
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn s3(from: impl BufRead, take: &mut dyn FnMut(Object) -> Result<(), String>) -> Result<Page, String> {
    let mut page = Page::default();
    let next = list::read(from, &mut |list::Listed { key, etag, size }| {
        page.objects += 1;
        take(Object { key, etag, size, ..Object::default() })
    })?;
    page.next = next;
    Ok(page)
}

fn azure(from: impl BufRead, take: &mut dyn FnMut(Object) -> Result<(), String>) -> Result<Page, String> {
    let (mut page, mut object, mut is_list) = (Page::default(), Object::default(), false);
    xml::read(from, &mut |path, text, encoded| {
        let Some(field) = path.strip_prefix("/EnumerationResults") else { return Ok(()) };
        match field {
            "" => is_list = true,
            "/NextMarker" if !text.is_empty() => page.next = Some(text.to_owned()),
            "/Blobs/Blob/Name" if encoded => object.key = decoded(text)?,
            "/Blobs/Blob/Name" => text.clone_into(&mut object.key),
            "/Blobs/Blob/Properties/Etag" => text.clone_into(&mut object.etag),
            "/Blobs/Blob/Properties/Content-Length" => object.size = number(text),
            "/Blobs/Blob/Properties/ResourceType" => object.is_folder = text == "directory",
            "/Blobs/Blob/Metadata/hdi_isfolder" => object.is_folder = text == "true",
            "/Blobs/Blob" => {
                counted(&mut page)?;
                take(std::mem::take(&mut object))?;
            }
            _ => {}
        }
        Ok(())
    })?;
    if is_list { Ok(page) } else { Err("it is not a list of blobs".to_owned()) }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GcsPage {
    next_page_token: Option<String>,
    #[serde(default)]
    items: Items,
}

#[derive(Deserialize)]
struct GcsObject {
    name: String,
    #[serde(default)]
    etag: String,
    size: Option<String>,
    generation: Option<String>,
}

/// As many as a page may hold: an array of empty objects would take a hundred times its bytes.
#[derive(Default)]
struct Items(Vec<GcsObject>);

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Items;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of objects")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Items, A::Error> {
                let mut items = Vec::new();
                while items.len() < MOST_PER_PAGE {
                    match all.next_element()? {
                        Some(item) => items.push(item),
                        None => return Ok(Items(items)),
                    }
                }
                match all.next_element::<IgnoredAny>()? {
                    None => Ok(Items(items)),
                    Some(_) => Err(serde::de::Error::custom("it holds too many objects")),
                }
            }
        }
        deserializer.deserialize_seq(Seen)
    }
}

fn gcs(from: impl Read, take: &mut dyn FnMut(Object) -> Result<(), String>) -> Result<Page, String> {
    let read: GcsPage = serde_json::from_reader(from).map_err(|error| error.to_string())?;
    let mut page = Page { next: read.next_page_token.filter(|token| !token.is_empty()), objects: 0 };
    for GcsObject { name, etag, size, generation } in read.items.0 {
        page.objects += 1;
        let size = size.as_deref().and_then(number);
        let generation = generation.as_deref().and_then(number).unwrap_or(0);
        take(Object { key: name, etag, size, generation, is_folder: false })?;
    }
    Ok(page)
}

/// What stores call what is wrong. Other words are not repeated: a server could put into one what was sent to it.
const CODES: &[&str] = &[
    "AccessDenied",
    "AccountIsDisabled",
    "AllAccessDisabled",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "AuthorizationHeaderMalformed",
    "AuthorizationPermissionMismatch",
    "ContainerNotFound",
    "ExpiredToken",
    "InternalError",
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidBucketName",
    "InvalidObjectState",
    "InvalidRegion",
    "InvalidToken",
    "KeyBasedAuthenticationNotPermitted",
    "NoAuthenticationInformation",
    "NoSuchBucket",
    "NoSuchKey",
    "PermanentRedirect",
    "PublicAccessNotPermitted",
    "RequestTimeTooSkewed",
    "ResourceNotFound",
    "ServerBusy",
    "ServiceUnavailable",
    "SignatureDoesNotMatch",
    "SlowDown",
    "TemporaryRedirect",
    "forbidden",
    "notFound",
    "rateLimitExceeded",
    "required",
    "userProjectMissing",
];

/// The known word, where it is one.
pub(super) fn known_code(text: &str) -> Option<&'static str> {
    CODES.iter().find(|code| **code == text).copied()
}

#[derive(Deserialize)]
struct GcsRefusal {
    error: GcsFailure,
}

#[derive(Deserialize)]
struct GcsFailure {
    #[serde(default)]
    errors: Vec<GcsReason>,
}

#[derive(Deserialize)]
struct GcsReason {
    reason: String,
}

/// What an answer that says no calls the reason.
pub(super) fn refusal(store: BucketStore, answer: impl BufRead) -> Option<&'static str> {
    match store {
        BucketStore::Gcs => {
            let refusal: GcsRefusal = serde_json::from_reader(answer).ok()?;
            refusal.error.errors.first().and_then(|first| known_code(&first.reason))
        }
        BucketStore::S3 | BucketStore::Azure => list::refusal(answer).and_then(|said| known_code(&said)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Told = (String, String, Option<u64>, bool);

    fn of(store: BucketStore, text: &str) -> Result<(Page, Vec<Told>), String> {
        let mut all = Vec::new();
        let page = read(store, text.as_bytes(), &mut |object| {
            let is_folder = object.is_folder();
            all.push((object.key, object.etag, object.size, is_folder));
            Ok(())
        })?;
        Ok((page, all))
    }

    #[test]
    fn pages_of_s3() {
        let object = |key: &str| {
            format!(
                "<Contents><Key>{key}</Key><Size>3</Size><ETag>&quot;e&quot;</ETag><Owner><ID>x</ID></Owner></Contents>"
            )
        };
        let list = |inner: &str| {
            format!("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3\">{inner}</ListBucketResult>")
        };
        let end = "<NextContinuationToken>n&amp;</NextContinuationToken><IsTruncated>true</IsTruncated>";
        let encoded = list(&format!(
            "{}{}{end}<EncodingType>url</EncodingType>",
            object("a%2Bb+c/%C3%BC"),
            object("d/")
        ));
        let (page, all) = of(BucketStore::S3, &encoded).unwrap();
        assert_eq!(page, Page { next: Some("n&".to_owned()), objects: 2 });
        let etag = || "\"e\"".to_owned();
        assert_eq!(all[0], ("a+b c/ü".to_owned(), etag(), Some(3), false));
        assert!(all[1].3, "a folder");
        let (page, all) = of(BucketStore::S3, &list(&object("a%2Bb+c"))).unwrap();
        assert_eq!((page.next, all[0].0.as_str()), (None, "a%2Bb+c"));
        for bad in [
            list("<IsTruncated>true</IsTruncated>"),
            list(&format!("{}<EncodingType>url</EncodingType>", object("%zz"))),
            list(&format!("{}<EncodingType>url</EncodingType>", object("%ff"))),
            list(&"<Contents/>".repeat(10_001)),
            "<html/>".to_owned(),
            "{}".to_owned(),
            String::new(),
            list(&object("a"))[..100].to_owned(),
        ] {
            assert!(of(BucketStore::S3, &bad).is_err(), "{}", &bad[..bad.len().min(200)]);
        }
    }

    #[test]
    fn pages_of_azure() {
        let blob = |name: &str, more: &str| {
            format!(
                "<Blob><Name{name}</Name><Properties><Etag>0x8D</Etag><Content-Length>7</Content-Length>{more}</Properties></Blob>"
            )
        };
        let blobs = [
            blob(">a b", ""),
            blob(" Encoded=\"true\">a%01b", ""),
            blob(">dir", "<ResourceType>directory</ResourceType>"),
        ];
        let text = format!(
            "\u{feff}<?xml version=\"1.0\"?><EnumerationResults ContainerName=\"c\"><Blobs>{}</Blobs><NextMarker>m</NextMarker></EnumerationResults>",
            blobs.concat()
        );
        let (page, all) = of(BucketStore::Azure, &text).unwrap();
        assert_eq!(page.next.as_deref(), Some("m"));
        let etag = || "0x8D".to_owned();
        assert_eq!(all[0], ("a b".to_owned(), etag(), Some(7), false));
        assert_eq!(all[1].0, "a\u{1}b");
        assert!(all[2].3 && !all[1].3);
        assert!(of(BucketStore::Azure, "<html/>").is_err());
    }

    #[test]
    fn pages_of_google() {
        let text = r#"{"nextPageToken":"t","items":[{"name":"a","etag":"CK=","size":"5","generation":"17"},{"name":"b/"}]}"#;
        let (page, all) = of(BucketStore::Gcs, text).unwrap();
        assert_eq!(page, Page { next: Some("t".to_owned()), objects: 2 });
        assert_eq!(all[0], ("a".to_owned(), "CK=".to_owned(), Some(5), false));
        assert_eq!(of(BucketStore::Gcs, "{}").unwrap().1.len(), 0);
        let many = format!("{{\"items\":[{}]}}", vec!["{\"name\":\"\"}"; 10_001].join(","));
        assert!(of(BucketStore::Gcs, &many).is_err());
        assert!(of(BucketStore::Gcs, "[]x").is_err());
    }

    #[test]
    fn only_known_words_are_repeated() {
        let error = |code: &str| format!("<Error><Code>{code}</Code><Message>x</Message></Error>");
        let of = |store, text: &str| refusal(store, text.as_bytes());
        assert_eq!(of(BucketStore::S3, &error("SignatureDoesNotMatch")), Some("SignatureDoesNotMatch"));
        assert_eq!(of(BucketStore::Azure, &error("AuthenticationFailed")), Some("AuthenticationFailed"));
        assert_eq!(of(BucketStore::S3, &error("hunter2")), None);
        let json = r#"{"error":{"code":403,"errors":[{"reason":"forbidden"}]}}"#;
        assert_eq!(of(BucketStore::Gcs, json), Some("forbidden"));
    }
}
