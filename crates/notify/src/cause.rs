//! What failures have in common: the cause that is left of a message without what differs from object to object and from time to time.
//!
//! One bad commit fails on a hundred clusters with a hundred messages, each with times, ids, addresses and the names of its own cluster and
//! object. [`Cause::of`] takes these out. What it takes out too much merges failures of two causes into one incident, and what it leaves in
//! tells one cause twice: `tests/causes.txt` has messages with what belongs together.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use roadstead_model::Digest;

use crate::event::Event;
use crate::text;

/// Bytes of a message that count: causes stand at the beginning, and lists of objects behind.
const COUNTS: usize = 4 << 10;
/// Names shorter than that are not looked for inside of a message: they are words, too.
const SHORTEST_NAME: usize = 3;

/// Why something fails, as far as others may fail for the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The message without what differs.
    pub text: String,
    /// Of the kind, the name without that of the cluster, the reason and the text: failures for one cause have the same.
    pub digest: Digest,
}

impl Cause {
    /// Of a failure on a cluster, if it is about one.
    #[must_use]
    pub fn of(event: &Event, cluster: Option<&str>) -> Self {
        let object = &event.involved_object;
        let stem = stem(&object.name, cluster);
        let text = normalised(&event.message, &object.name, &object.namespace, cluster);
        let parts = [object.kind.as_str(), &stem, &event.reason, &text];
        let lengths = parts.iter().map(|part| format!("{}:{part}", part.len()));
        let digest = Digest::of(lengths.collect::<String>().as_bytes());
        Self { text, digest }
    }
}

/// An object's name without that of its cluster: `web` of `web-edge-1` on `edge-1`.
fn stem<'a>(name: &'a str, cluster: Option<&str>) -> Cow<'a, str> {
    match cluster {
        Some(cluster) => replaced(name, cluster, ""),
        None => Cow::Borrowed(name),
    }
}

/// A message without what differs between those who fail for one cause.
fn normalised(message: &str, name: &str, namespace: &str, cluster: Option<&str>) -> String {
    let message = text::cut_bytes(message.trim(), COUNTS);
    let mut text = Cow::Borrowed(message.as_str());
    // The longest first: one may be a part of another.
    let mut names = vec![(name, "<name>"), (namespace, "<namespace>")];
    names.extend(cluster.map(|cluster| (cluster, "<cluster>")));
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    for (name, place) in names {
        if name.len() >= SHORTEST_NAME {
            text = Cow::Owned(replaced(&text, name, place).into_owned());
        }
    }
    let text = DIFFERS.replace_all(&text, |found: &Captures<'_>| placed(found));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text with another one in each place where a name stands on its own: between characters that no name has, or `-` and `.`.
fn replaced<'a>(text: &'a str, name: &str, by: &str) -> Cow<'a, str> {
    if name.is_empty() || !text.contains(name) {
        return Cow::Borrowed(text);
    }
    let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (mut out, mut rest, mut before) = (String::with_capacity(text.len()), text, None);
    while let Some(at) = rest.find(name) {
        let (head, found) = rest.split_at(at);
        let tail = &found[name.len()..];
        let stands_alone = !is_inside(head.chars().next_back().or(before)) && !is_inside(tail.chars().next());
        out.push_str(head);
        out.push_str(if stands_alone { by } else { name });
        before = name.chars().next_back();
        rest = tail;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Letters and digits of what Kubernetes makes at random.
const RANDOM: &str = "[bcdfghjklmnpqrstvwxz2456789]";

/// What differs from time to time. The first alternative that fits wins.
static DIFFERS: LazyLock<Regex> = LazyLock::new(|| {
    let pod = format!(r"-(?:{RANDOM}{{8,10}}-)?{RANDOM}{{5}}");
    let all = [
        // Codes tell causes apart.
        r"(?P<code>(?i:\b(?:http(?:/\d(?:\.\d)?)?|status(?:[ -]?code)?|exit(?:ed)?(?: with)?(?: code| status)?|code|error)\b[ :=]*)\d{1,3}\b)",
        r"(?P<time>\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?: ?(?:Z|[+-]\d\d:?\d\d)\b)?(?: (?:UTC|GMT|CET|CEST)\b)?(?: m=[+-][\d.]+)?)",
        r"(?P<date>\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d? [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d(?: [A-Z]{3}| [+-]\d{4})?\b)",
        r"(?P<clock>\b\d\d?:\d\d:\d\d(?:\.\d+)?\b)",
        r"(?P<uuid>\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b)",
        r"(?P<digest>\b(?:sha1|sha256|sha384|sha512|md5)[:=][0-9a-f]{6,}\b)",
        r"(?P<v4>\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?:[:/]\d{1,5})?\b)",
        r"(?P<v6>\[[0-9a-fA-F:]*:[0-9a-fA-F:.]*\](?::\d{1,5})?|\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,7}\b)",
        r"(?P<duration>\b\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h|d)(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))*\b)",
        // The names of containers on nodes go on behind a `_`, which does not end a word.
        &format!(r"(?P<pod>{pod}(?:\b|_))"),
        r"(?P<base64>\b[A-Za-z0-9+/]{40,}={0,2})",
        r"(?P<token>\b[A-Za-z0-9+]{7,}={0,2})",
        r"(?P<number>\b\d+(?:\.\d+)?)",
    ];
    #[expect(clippy::expect_used, reason = "a test compiles it")]
    Regex::new(&all.join("|")).expect("the expression of what differs is valid")
});

/// What stands in the place of something that differs; itself where it only looked so.
fn placed(found: &Captures<'_>) -> String {
    let whole = &found[0];
    let has = |group: &str| found.name(group).is_some();
    if has("code") {
        return whole.to_owned();
    }
    let place = if has("time") || has("date") || has("clock") {
        "<time>"
    } else if has("uuid") {
        "<id>"
    } else if has("digest") {
        "<digest>"
    } else if has("v4") || has("v6") {
        "<address>"
    } else if has("duration") {
        "<duration>"
    } else if has("pod") {
        // Words may be made of these letters: `-https`.
        let end = if whole.ends_with('_') { "_" } else { "" };
        let is_random = whole.bytes().any(|byte| byte.is_ascii_digit());
        return if is_random { format!("-<id>{end}") } else { whole.to_owned() };
    } else if has("base64") {
        return base64(whole).to_owned();
    } else if has("token") {
        return token(whole).to_owned();
    } else {
        "<number>"
    };
    place.to_owned()
}

/// Whether a word is one that nobody wrote: a commit, the id of a request.
fn token(word: &str) -> &str {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte.to_ascii_lowercase());
    if digits == word.len() {
        return "<number>";
    }
    if digits > 0 && word.bytes().all(hex) {
        return "<id>";
    }
    let mixed = word.bytes().any(|byte| byte.is_ascii_uppercase()) && digits >= 2;
    if word.len() >= 12 && mixed || word.len() >= 20 && digits >= 4 { "<id>" } else { word }
}

/// Whether what may be a path is base64: that has letters of both sorts and digits all over.
fn base64(text: &str) -> &str {
    if !text.contains('/') {
        return token(text);
    }
    let count = |is: fn(&u8) -> bool| text.bytes().filter(is).count();
    let least =
        [u8::is_ascii_uppercase, u8::is_ascii_lowercase, u8::is_ascii_digit].map(count).into_iter().min();
    if least.is_some_and(|least| least >= text.len() / 12) { "<id>" } else { text }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn cause(name: &str, cluster: Option<&str>, message: &str) -> Cause {
        let event: Event = serde_json::from_value(json!({
            "involvedObject": { "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": name,
                "namespace": "apps", "uid": "1" },
            "severity": "error", "timestamp": "2026-08-07T10:00:00Z", "message": message, "reason": "BuildFailed",
            "reportingController": "c",
        }))
        .unwrap();
        Cause::of(&event, cluster)
    }

    #[test]
    fn what_differs_is_taken_out() {
        for (message, left) in [
            ("timeout after 2m30s at 2026-08-07T10:00:00Z", "timeout after <duration> at <time>"),
            ("dial tcp 10.0.0.1:443: i/o timeout", "dial tcp <address>: i/o timeout"),
            ("dial tcp [fe80::1]:443: refused", "dial tcp <address>: refused"),
            ("HTTP 404 from /x", "HTTP 404 from /x"),
            ("exit code 128", "exit code 128"),
            ("pod web-7d9c6b5f4-x2x9z crashed", "pod web-<id> crashed"),
            ("object 4711 of 12", "object <number> of <number>"),
            ("main@sha1:0123456789abcdef", "main@<digest>"),
            ("commit 0123456789abcdef is bad", "commit <id> is bad"),
            ("deadbeef and facade", "deadbeef and facade"),
            ("apps/v1beta2 of kube-https", "<namespace>/v1beta2 of kube-https"),
            ("request id: 7QX3K9VM2PZT0A1B", "request id: <id>"),
        ] {
            assert_eq!(cause("none", None, message).text, left, "{message}");
        }
    }

    #[test]
    fn names_of_object_and_cluster_do_not_tell_causes_apart() {
        let one = cause("web-edge-1", Some("edge-1"), "edge-1: Deployment/apps/web-edge-1 is not found");
        let two = cause("web-edge-22", Some("edge-22"), "edge-22: Deployment/apps/web-edge-22 is not found");
        assert_eq!(one, two);
        assert_ne!(
            one.digest,
            cause("api-edge-1", Some("edge-1"), "edge-1: Deployment/apps/api-edge-1 is not found").digest
        );
        // Only where a name stands on its own.
        assert_eq!(cause("web", Some("edge"), "webhook of the ledge").text, "webhook of the ledge");
        assert_eq!(cause("web", None, "web-web.web/web").text, "<name>-<name>.<name>/<name>");
    }

    proptest! {
        #[test]
        fn any_message_has_a_cause_which_has_itself(message in ".{0,300}", name in "[a-z][a-z0-9.-]{0,20}") {
            let once = cause(&name, Some("edge-1"), &message);
            prop_assert_eq!(&once, &cause(&name, Some("edge-1"), &message));
            prop_assert!(once.text.len() <= message.len() * 12 + 12);
        }
    }
}
