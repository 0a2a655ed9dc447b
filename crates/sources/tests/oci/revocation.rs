//! Certificates that may be revoked, and countersignatures of the time: what is made of them, and of what authorities say, is what
//! notation's own library makes of it (`notation/signed.json` has both). The authorities are behind a proxy, which plays all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_outbound::Proxies;
use roadstead_sources::OciRequest;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::fetch::{fetch, fetched};
use crate::notation::{Kit, policy, strict};
use crate::registry::way_to;
use crate::verify::unverified;

#[derive(Deserialize)]
struct Page {
    status: u16,
    #[serde(default)]
    data: Option<String>,
    #[serde(default)]
    question: Option<String>,
}

#[derive(Deserialize)]
struct Made {
    pages: BTreeMap<String, Page>,
    revocation: BTreeMap<String, String>,
    stamps: BTreeMap<String, bool>,
}

impl Made {
    fn load() -> Self {
        serde_json::from_slice(include_bytes!("notation/signed.json")).unwrap()
    }
}

/// What the authorities do instead of answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Hang,
    Flood,
    Redirect,
}

/// A URL that was asked, and what was sent.
type Asked = (String, Vec<u8>);

/// All authorities.
#[derive(Clone)]
struct Authorities {
    address: std::net::SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Authorities {
    async fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let own = Self { address, asked: Arc::default() };
        let (shared, made) = (own.clone(), Arc::new(Made::load()));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (own, made) = (shared.clone(), Arc::clone(&made));
                // A client that goes ends it.
                tokio::spawn(async move { own.serve(stream, &made, fault).await.ok() });
            }
        });
        own
    }

    async fn serve(&self, mut stream: TcpStream, made: &Made, fault: Fault) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let length = head
            .to_lowercase()
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let url = head.split(' ').nth(1).unwrap().to_owned();
        assert!(!head.to_lowercase().contains("authorization"), "{head}");
        self.asked.lock().unwrap().push((url.clone(), body));
        let host = url.trim_start_matches("http://").trim_end_matches('/');
        let page = made.pages.get(&url).or_else(|| made.pages.get(host));
        let (status, data) = page.map_or((404, Vec::new()), |page| {
            (page.status, STANDARD.decode(page.data.as_deref().unwrap_or_default()).unwrap())
        });
        let start = |status: u16, more: &str, length: usize| {
            format!("HTTP/1.1 {status} X\r\n{more}content-length: {length}\r\nconnection: close\r\n\r\n")
        };
        match fault {
            Fault::None => stream.write_all(start(status, "", data.len()).as_bytes()).await?,
            Fault::Hang => std::future::pending().await,
            Fault::Redirect => {
                let to = "location: http://lists.example.com/list-empty.crl\r\n";
                return stream.write_all(start(302, to, 0).as_bytes()).await;
            }
            Fault::Flood => {
                stream.write_all(start(200, "", 1 << 30).as_bytes()).await?;
                loop {
                    stream.write_all(&[0x30; 64 << 10]).await?;
                }
            }
        }
        stream.write_all(&data).await
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// A request whose way out is through them.
    fn reached(&self, kit: &Kit, request: OciRequest) -> OciRequest {
        let proxies = Proxies::all_through(&format!("http://{}", self.address), "127.0.0.1");
        let guard = way_to(&[kit.registry.address, self.address]).with_proxies(Arc::new(proxies));
        OciRequest { guard, ..request }
    }
}

#[tokio::test]
async fn what_authorities_say_is_taken_as_notation_takes_it() {
    let (kit, authorities, made) = (Kit::load().await, Authorities::start(Fault::None).await, Made::load());
    let kinds = ["good", "revoked", "unknown"]
        .map(|verdict| made.revocation.values().filter(|of| *of == verdict).count());
    assert!(kinds.iter().all(|count| *count > 8), "{kinds:?}");
    for (tag, verdict) in &made.revocation {
        let scheme = |one: &mut serde_json::Value| {
            one["trustStores"] = json!(["ca:own", "signingAuthority:own"]);
        };
        let request =
            |level: &str| authorities.reached(&kit, kit.request(tag, &policy(level, scheme), &["revoking"]));
        // For other purposes than this: notation's library takes such an answer.
        let verdict = if tag == "revocation-server-purpose" { "unknown" } else { verdict.as_str() };
        if verdict == "good" {
            let fetched = fetched(request("strict")).await;
            assert!(fetched.verified.is_some() && fetched.notes.is_empty(), "{tag}: {:?}", fetched.notes);
        } else {
            let message = unverified(fetch(request("strict")).await);
            let why = if verdict == "revoked" {
                "CN=signer' is revoked"
            } else {
                "may be revoked, which is not known: "
            };
            let why = if tag == "revocation-between" { "CN=under' is revoked" } else { why };
            assert!(message.contains(why) && message.len() < 1_500, "{tag}: want `{why}` in: {message}");
        }
        // Where it is only told, it counts all the same.
        let fetched = fetched(request("permissive")).await;
        assert!(fetched.verified.is_some(), "{tag}: {:?}", fetched.notes);
        for (url, question) in authorities.asked() {
            let host = url.trim_start_matches("http://").trim_end_matches('/');
            if let Some(expected) = made.pages.get(host).and_then(|page| page.question.as_ref()) {
                assert_eq!(question, STANDARD.decode(expected).unwrap(), "{tag}: what {host} was asked");
            }
        }
    }
}

#[tokio::test]
async fn countersignatures_are_taken_as_notation_takes_them() {
    let (kit, authorities, made) = (Kit::load().await, Authorities::start(Fault::None).await, Made::load());
    let with = |stamp: Option<&str>| {
        policy("strict", |one| {
            one["trustStores"] = json!(["ca:own", "tsa:own"]);
            one["signatureVerification"]["verifyTimestamp"] = json!(stamp);
        })
    };
    let request = |tag: &str, policy: &serde_json::Value, names: &[&str]| {
        authorities.reached(&kit, kit.request(tag, policy, names))
    };
    let all = ["stamped", "stamping", "stamping-alone"];
    assert!(made.stamps.len() == 40 && made.stamps.values().filter(|good| **good).count() == 12);
    for (tag, is_good) in &made.stamps {
        let outcome = fetch(request(tag, &with(None), &all)).await;
        if *is_good {
            assert!(outcome.is_ok(), "{tag}: {outcome:?}");
            continue;
        }
        let message = unverified(outcome);
        let why = match tag.rsplit('-').next().unwrap() {
            "none" => "the policy asks for a timestamp, and it has none",
            "late" => "CN=signer' expired on ",
            "early" => "is not valid before",
            "other" => "its timestamp is of another signature",
            "foreign" | "unled" => "its timestamp is not of an authority that is trusted",
            "code" | "both" | "uncritical" => "is not for timestamps alone",
            "expired" => "CN=stamping' expired on ",
            "revoked" => "CN=stamping' is revoked",
            "lost" => "CN=stamping' may be revoked, which is not known: ",
            "empty" => "it has bytes that are not DER",
            _ => "its timestamp was not made by a certificate that it brings along",
        };
        assert!(message.contains(why), "{tag}: want `{why}` in: {message}");
        // A policy that does not ask for one does not look at it: its certificates are good now, or are not.
        let plain = fetch(request(tag, &strict(), &["stamped"])).await;
        assert_eq!(plain.is_ok(), !tag.ends_with("late"), "{tag}: {plain:?}");
        let after = fetch(request(tag, &with(Some("afterCertExpiry")), &all)).await;
        assert_eq!(after.is_ok(), !tag.ends_with("late"), "{tag}: {after:?}");
    }
    // Who says when is trusted apart from who signs: by the policy's stores, and by the certificates.
    unverified(fetch(request("stamp-jws-good", &strict(), &all)).await);
    unverified(fetch(request("stamp-jws-good", &with(None), &["stamped"])).await);
    assert!(fetch(request("stamp-jws-good", &with(Some("afterCertExpiry")), &all)).await.is_ok());
    let unproven = policy("audit", |one| one["trustStores"] = json!(["ca:own", "tsa:own"]));
    authorities.asked();
    let fetched = fetched(request("stamp-jws-listed", &unproven, &["stamping"])).await;
    assert!(fetched.verified.is_none() && authorities.asked().is_empty(), "{:?}", fetched.notes);
}

#[tokio::test]
async fn nobody_is_asked_where_it_decides_nothing() {
    let (kit, authorities) = (Kit::load().await, Authorities::start(Fault::None).await);
    let reached = |policy: &serde_json::Value, names: &[&str]| {
        authorities.reached(&kit, kit.request("revocation-list-revoked", policy, names))
    };
    // What somebody wrote into a certificate who is not trusted.
    let audit = policy("audit", |_| {});
    let unproven = fetched(reached(&audit, &["root"])).await;
    assert!(unproven.verified.is_none() && unproven.notes.len() == 1, "{:?}", unproven.notes);
    unverified(fetch(reached(&strict(), &["root"])).await);
    // Where the policy does not want to know.
    let skip =
        policy("strict", |one| one["signatureVerification"]["override"] = json!({ "revocation": "skip" }));
    assert!(fetched(reached(&skip, &["revoking"])).await.verified.is_some());
    // A signature that does not count anyhow.
    let other = policy("strict", |one| one["trustedIdentities"] = json!(["x509.subject: C=FR, ST=a, O=b"]));
    unverified(fetch(reached(&other, &["revoking"])).await);
    assert!(authorities.asked().is_empty());
    // And each once.
    unverified(fetch(reached(&strict(), &["revoking"])).await);
    assert_eq!(authorities.asked().len(), 1);
}

#[tokio::test]
async fn an_authority_that_floods_hangs_or_leads_elsewhere_is_not_followed() {
    let kit = Kit::load().await;
    for (fault, list, server) in [
        (Fault::Flood, "it sends more than 8388608 bytes", "it sends more than 65536 bytes"),
        (Fault::Redirect, "it answered HTTP 302", "it answered HTTP 302"),
        (Fault::Hang, "no answer within 10 s", "no answer within 10 s"),
    ] {
        let authorities = Authorities::start(fault).await;
        let began = std::time::Instant::now();
        for (tag, why) in [("revocation-list-good", list), ("revocation-server-good", server)] {
            let request = kit.request(tag, &strict(), &["revoking"]);
            let request = OciRequest { timeout: Duration::from_secs(60), ..request };
            let message = unverified(fetch(authorities.reached(&kit, request)).await);
            assert!(message.contains(why), "{fault:?} {tag}: {message}");
            assert_eq!(authorities.asked().len(), 1);
        }
        assert!(began.elapsed() < Duration::from_secs(50), "{fault:?}: {:?}", began.elapsed());
    }
    // Nothing on the way out allows an authority to be on this machine.
    let request = kit.request("revocation-list-good", &strict(), &["revoking"]);
    let message = unverified(fetch(request).await);
    assert!(message.contains("http://lists.example.com/list-good.crl: "), "{message}");
}
