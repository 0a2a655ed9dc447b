//! Who packed a chart: provenance files as the real `helm` and `gpg` make them, and as somebody would forge them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use roadstead_model::{Digest, Reason};
use roadstead_sources::git::TrustedKeys;
use roadstead_sources::helm::{ChartOrigin, HelmError};
use roadstead_sources::{Fetched, HelmChartRequest, OciRequest};
use serde_json::json;

use crate::kit::{RIGHT, chart_of, error, fetched, index, index_of, login, packed, request, values};
use crate::oracle::Helm;
use crate::registry::{Registry, Wants};
use crate::server::{Fault, Server};
use crate::signer::Signer;

const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";

fn trusted(entries: &[&str]) -> Option<TrustedKeys> {
    let mut keys = TrustedKeys::default();
    for (number, text) in entries.iter().enumerate() {
        keys.add(&format!("{number}.asc"), text);
    }
    Some(keys)
}

/// What is in a provenance: a chart of this name and version, and these files with their digests.
fn body(name: &str, version: &str, files: &[(&str, &[u8])]) -> String {
    let mut text =
        format!("apiVersion: v2\nmaintainers:\n- name: a\nname: {name}\nversion: {version}\n\n...\nfiles:\n");
    for (file, bytes) in files {
        text.push_str(&format!("  {file}: sha256:{}\n", Digest::of(bytes).hex()));
    }
    text
}

impl Signer {
    fn signer(&self, name: &str) -> String {
        self.make(&["--quick-generate-key", &format!("{name} <{name}@example.com>"), "ed25519", "sign", "1y"])
    }

    /// What gpg makes of a text.
    fn sign(&self, key: &str, how: &[&str], text: &str) -> String {
        let mut command = Command::new("gpg");
        command.args(["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]);
        command.args(["--local-user", key]).args(how).env("GNUPGHOME", self.home.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{how:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn clear(&self, key: &str, text: &str) -> String {
        self.sign(key, &["--clear-sign"], text)
    }
}

/// A server with chart `app` 1.0.0, of which the index is there.
struct Repository {
    server: Server,
    kept: Fetched,
    chart: Vec<u8>,
}

impl Repository {
    async fn start() -> Self {
        let server = Server::start(true).await;
        let chart = packed("app", "1.0.0", &[("values.yaml", "a: 1\n")]);
        server.put("/charts/app-1.0.0.tgz", chart.clone());
        server.put("/index.yaml", index(&[("app", "1.0.0", "charts/app-1.0.0.tgz", &chart)]));
        let kept = fetched(&index_of(&server)).await;
        Self { server, kept, chart }
    }

    fn request(&self, keys: &[&str]) -> HelmChartRequest {
        let chart = chart_of(self.server.repository(), &self.kept, "app", "");
        HelmChartRequest { provenance: trusted(keys), ..chart }
    }

    fn put(&self, provenance: impl Into<Vec<u8>>) {
        self.server.put("/charts/app-1.0.0.tgz.prov", provenance);
    }

    async fn refused(&self, keys: &[&str], said: &str) {
        unverified(&error(&self.request(keys)).await, said);
    }
}

fn unverified(error: &HelmError, said: &str) {
    assert_eq!(error.reason(), Some(Reason::ChartVerificationError), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("chart verification error: ") && text.contains(said), "{said}: {text}");
}

// Helm asks nobody, but takes its time.
#[tokio::test(flavor = "multi_thread")]
async fn what_helm_signs_is_verified_and_what_it_refuses_is_refused() {
    let (helm, signer, server) = (Helm::new(), Signer::new(), Server::start(false).await);
    helm.application("app", "");
    let mut kinds = Vec::new();
    for (name, kind) in [("ed", "ed25519"), ("rsa", "rsa3072")] {
        let user = format!("{name} <{name}@example.com>");
        let key = signer.make(&["--quick-generate-key", &user, kind, "sign", "1y"]);
        kinds.push((user, signer.public(&key), key));
    }
    let (secret, public) = (helm.path("secret.gpg"), helm.path("public.gpg"));
    let (secret, public) = (secret.to_str().unwrap(), public.to_str().unwrap());
    signer.gpg(&["--output", secret, "--export-secret-keys"]);
    signer.gpg(&["--output", public, "--export"]);
    for (number, (user, own, key)) in kinds.iter().enumerate() {
        for version in [format!("1.{number}.0"), format!("1.{number}.1-rc.1+build")] {
            let sign = ["package", "app", "--sign", "--key", user, "--keyring", secret];
            helm.run(&[&sign[..], &["--version", &version, "--destination", "charts"]].concat());
            helm.run(&["repo", "index", "charts"]);
            for (name, bytes) in helm.files("charts") {
                server.put(&format!("/{name}"), bytes);
            }
            let kept = fetched(&index_of(&server)).await;
            let plain = chart_of(server.repository(), &kept, "app", &version);
            let asked = HelmChartRequest { provenance: trusted(&[own]), ..plain.clone() };
            let file = format!("charts/app-{version}.tgz");
            let chart = fetched(&asked).await;
            let told = format!("verified signature of version {version} with key '{}'", &key[24..]);
            assert_eq!(chart.verified.as_deref(), Some(told.as_str()));
            assert!(helm.files("charts")[&format!("app-{version}.tgz")] == chart.artifact.bytes);
            let agreed = helm.run(&["verify", &file, "--keyring", public]);
            assert!(agreed.contains("Chart Hash Verified"), "{agreed}");
            // Another key; then another text under the same signature. Helm refuses what is refused here.
            let (_, other, _) = &kinds[1 - number];
            let others = HelmChartRequest { provenance: trusted(&[other]), ..plain.clone() };
            unverified(&error(&others).await, "no matching key");
            let good = String::from_utf8(helm.files("charts")[&format!("app-{version}.tgz.prov")].clone());
            let forged = good.unwrap().replace("name: app", "name: ape");
            server.put(&format!("/app-{version}.tgz.prov"), forged.clone());
            unverified(&error(&asked).await, "it is over something else");
            helm.write(&format!("{file}.prov"), &forged);
            helm.fails(&["verify", &file, "--keyring", public]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_is_stored_with_a_provenance_that_counts_and_not_without() {
    let (repository, signer) = (Repository::start().await, Signer::new());
    let (key, other) = (signer.signer("a"), signer.signer("b"));
    let (public, others) = (signer.public(&key), signer.public(&other));
    let chart = repository.chart.as_slice();
    let text = body("app", "1.0.0", &[("app-1.0.0.tgz", chart)]);
    repository.refused(&[&public], "the chart is not signed").await;

    let good = signer.clear(&key, &text);
    let told = format!("verified signature of version 1.0.0 with key '{}'", &key[24..]);
    let windows = good.replace('\n', "\r\n");
    let two = body("app", "1.0.0", &[("aaa.tgz", b"other"), ("app-1.0.0.tgz", chart)]);
    let blanks = good.replacen("name: app\n", "name: app \t\n", 1);
    for provenance in [good.clone(), windows, signer.clear(&key, &two), blanks, format!("{good}\n\n")] {
        repository.put(provenance);
        let found = fetched(&repository.request(&[&others, &public])).await;
        assert_eq!(found.verified.as_deref(), Some(told.as_str()));
        assert_eq!(found.artifact.bytes, chart);
    }
    // It is packed again here, of what was signed.
    let changed = HelmChartRequest {
        values: values(&["values.yaml", "values.yaml"], false),
        build_metadata: Some("1".to_owned()),
        ..repository.request(&[&public])
    };
    let found = fetched(&changed).await;
    assert!(found.chart().unwrap().is_packaged);
    assert_eq!(found.verified.as_deref(), Some(told.as_str()));
    repository.refused(&[&others], "no matching key").await;

    let said = "not what `helm package --sign` writes";
    for (provenance, said) in [
        (good.replacen("name: app", "name: ape", 1), "it is over something else"),
        (format!("version: 2.0.0\n{good}"), said),
        (format!("{good}\nfiles: {{}}\n"), said),
        (good.replacen("Hash: ", "Comment: a\nHash: ", 1), said),
        (good[..good.len() / 2].to_owned(), said),
        (good[..good.len() - 40].to_owned(), said),
        (text.clone(), said),
        (String::new(), said),
        (signer.sign(&key, &["--armor", "--sign"], &text), said),
    ] {
        repository.put(provenance.clone());
        repository.refused(&[&public], said).await;
    }
    // What is signed by somebody who is trusted, and is not this chart.
    let file = ("app-1.0.0.tgz", chart);
    for (text, said) in [
        (body("app", "1.0.0", &[("app-1.0.0.tgz", b"other")]), "sha256 sum does not match"),
        (body("app", "1.0.0", &[("app-1.0.1.tgz", chart)]), "a SHA for a file named 'app-1.0.0.tgz'"),
        (body("other", "1.0.0", &[file]), "what was signed is chart 'other' in version '1.0.0'"),
        (body("app", "0.9.0", &[file]), "what was signed is chart 'app' in version '0.9.0'"),
        (body("app", "1.0.0", &[file, file]), "digests in its provenance cannot be read"),
        (body("app", "1.0.0", &[]), "no digests of files"),
        (text.replace("\n...\n", "\n"), "it has not two parts"),
        (format!("{text}...\nfiles: {{}}\n"), "it has not two parts"),
    ] {
        repository.put(signer.clear(&key, &text));
        repository.refused(&[&public], said).await;
    }
    // A signature over the same bytes that is not one over text; and one by a hash that anybody can make collide.
    let detached = signer.sign(&key, &["--armor", "--detach-sign"], text.trim_end());
    let frame = good.split("-----BEGIN PGP SIGNATURE-----").next().unwrap().to_owned();
    repository.put(frame + &detached);
    repository.refused(&[&public], "is not one over text").await;
    let sha1 = signer.make(&["--quick-generate-key", "c <c@example.com>", "rsa2048", "sign", "1y"]);
    let weak = ["--digest-algo", "SHA1", "--allow-weak-digest-algos", "--clear-sign"];
    repository.put(signer.sign(&sha1, &weak, &text));
    repository.refused(&[&signer.public(&sha1)], "a hash that is not safe any more").await;
    // More than is read of anybody.
    repository.put(good.replacen("Hash: ", &format!("{}Hash: ", "Hash: a\n".repeat(200_000)), 1));
    repository.refused(&[&public], "more than 1048576 bytes of provenance").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_expired_or_revoked_count_for_nothing() {
    let (repository, signer) = (Repository::start().await, Signer::new());
    let text = body("app", "1.0.0", &[("app-1.0.0.tgz", &repository.chart)]);
    let past = ["--faked-system-time", "20200101T000000!"];
    let made = ["--quick-generate-key", "a <a@example.com>", "ed25519", "sign", "10d"];
    let key = signer.make(&[&past[..], &made].concat());
    repository.put(signer.sign(&key, &[&past[..], &["--clear-sign"]].concat(), &text));
    repository.refused(&[&signer.public(&key)], "the key is expired").await;
    signer.gpg(&["--quick-set-expire", &key, "0"]);
    let longer = signer.public(&key);
    assert!(fetched(&repository.request(&[&longer])).await.verified.is_some());
    let certificate = signer.home.path().join(format!("openpgp-revocs.d/{key}.rev"));
    let certificate = std::fs::read_to_string(certificate).unwrap().replace(":-----BEGIN", "-----BEGIN");
    let file = signer.home.path().join("revocation");
    std::fs::write(&file, certificate).unwrap();
    signer.gpg(&["--import", file.to_str().unwrap()]);
    repository.refused(&[&signer.public(&key), &longer], "the key is revoked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_is_another_one_or_is_called_otherwise_is_refused() {
    let (server, signer) = (Server::start(true).await, Signer::new());
    let key = signer.signer("a");
    let public = signer.public(&key);
    let (signed, other) = (packed("app", "1.0.0", &[]), packed("app", "1.0.0", &[("evil.yaml", "a")]));
    let provenance = signer.clear(&key, &body("app", "1.0.0", &[("app-1.0.0.tgz", &signed)]));
    // Whoever has the repository writes its index.
    for (file, version, chart, said) in [
        ("app-1.0.0.tgz", "1.0.0", &other, "sha256 sum does not match"),
        ("a.tgz", "1.0.0", &signed, "a SHA for a file named 'a.tgz'"),
        ("app-1.0.0.tgz", "2.0.0", &signed, "and not chart 'app' in version '2.0.0'"),
    ] {
        server.put(&format!("/{file}"), chart.clone());
        server.put(&format!("/{file}.prov"), provenance.clone());
        server.put("/index.yaml", index(&[("app", version, file, chart)]));
        let kept = fetched(&index_of(&server)).await;
        let chart = chart_of(server.repository(), &kept, "app", "");
        unverified(&error(&HelmChartRequest { provenance: trusted(&[&public]), ..chart }).await, said);
    }
    // The file says that it is another chart than the one that was signed with its digest.
    let liar = packed("other", "1.0.0", &[]);
    server.put("/app-1.0.0.tgz", liar.clone());
    let text = body("app", "1.0.0", &[("app-1.0.0.tgz", &liar)]);
    server.put("/app-1.0.0.tgz.prov", signer.clear(&key, &text));
    server.put("/index.yaml", index(&[("app", "1.0.0", "app-1.0.0.tgz", &liar)]));
    let kept = fetched(&index_of(&server)).await;
    let chart = chart_of(server.repository(), &kept, "app", "");
    let said = "and the file has chart 'other' in version '1.0.0'";
    unverified(&error(&HelmChartRequest { provenance: trusted(&[&public]), ..chart }).await, said);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provenance_is_asked_for_where_and_as_whom_its_chart_is() {
    let (repository, signer) = (Repository::start().await, Signer::new());
    let key = signer.signer("a");
    let public = signer.public(&key);
    let text = body("app", "1.0.0", &[("app-1.0.0.tgz", &repository.chart)]);
    repository.put(signer.clear(&key, &text));
    let server = &repository.server;
    server.wants(RIGHT);
    let mut asked = repository.request(&[&public]);
    if let ChartOrigin::Repository { server, .. } = &mut asked.origin {
        server.login = login("right");
    }
    server.seen();
    fetched(&asked).await;
    let seen = server.seen();
    assert!(seen.iter().all(crate::server::Seen::has_credentials));
    let paths: Vec<&str> = seen.iter().map(|seen| seen.path.as_str()).collect();
    assert_eq!(paths, ["/charts/app-1.0.0.tgz", "/charts/app-1.0.0.tgz.prov"]);
    // A server that fails does not say that the chart is not signed.
    server.fault("/charts/app-1.0.0.tgz.prov", Fault::Status(503));
    let failed = error(&asked).await;
    assert_eq!(failed.reason(), Some(Reason::ChartPullError), "{failed}");
    assert!(failed.is_transient());
}

/// Pushes a chart as Helm does, with its provenance beside it.
fn push(registry: &Registry, tag: &str, layers: &[(&str, &[u8])]) {
    let manifest = registry.manifest(layers, &json!({}));
    registry.tag("charts/app", tag, manifest["digest"].as_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_of_registries_have_it_as_a_layer() {
    let (registry, signer) = (Registry::start(true, Wants::Nothing).await, Signer::new());
    let key = signer.signer("a");
    let public = signer.public(&key);
    let chart = packed("app", "1.0.0+b", &[]);
    let text = body("app", "1.0.0+b", &[("app-1.0.0+b.tgz", &chart)]);
    let good = signer.clear(&key, &text);
    let of = |url: &str| {
        let url = format!("oci://{}/{url}", registry.address);
        let origin = ChartOrigin::Registry(Box::new(OciRequest { url, ..registry.request() }));
        HelmChartRequest { provenance: trusted(&[&public]), ..request(origin, "app", "1.x") }
    };
    let asked = of("charts/app");
    push(&registry, "1.0.0_b", &[(CHART, &chart), (PROVENANCE, good.as_bytes())]);
    let found = fetched(&asked).await;
    let told = format!("verified signature of version 1.0.0+b with key '{}'", &key[24..]);
    assert_eq!((found.artifact.bytes.as_slice(), found.verified), (chart.as_slice(), Some(told)));
    let forged = good.replacen("name: app", "name: ape", 1);
    let large = vec![b'a'; (1 << 20) + 1];
    let named = signer.clear(&key, &body("app", "1.0.0+b", &[("app.tgz", &chart)]));
    for (layers, said) in [
        (vec![(CHART, chart.as_slice())], "the chart is not signed"),
        (vec![(CHART, &chart), (PROVENANCE, forged.as_bytes())], "it is over something else"),
        (vec![(CHART, &chart), (PROVENANCE, &large)], "more than 1048576"),
        (vec![(CHART, &chart), (PROVENANCE, named.as_bytes())], "a file named 'app-1.0.0+b.tgz'"),
    ] {
        push(&registry, "1.0.0_b", &layers);
        unverified(&error(&asked).await, said);
    }
    // A signed version under a newer one's tag.
    push(&registry, "1.1.0", &[(CHART, &chart), (PROVENANCE, good.as_bytes())]);
    unverified(&error(&asked).await, "and not chart 'app' in version '1.1.0'");
}
