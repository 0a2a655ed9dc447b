//! How clusters come on board, stay, and go; who is not let in; and what happens when the link is cut.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use reqwest::{Method, StatusCode};
use roadstead_tests::gitserver::{Commit, install_crypto};
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, Kubectl, PATIENCE, Process, Proxy, TestCluster, binary,
    config_map, eventually, kustomization, unique,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A link that is cut counts as noticed in time within this, on a loaded machine: three heartbeats are three seconds.
const NOTICED: Duration = Duration::from_secs(15);

/// The exit code of an agent that the hub refuses to enrol.
const REFUSED: i32 = 3;

const IDENTITY: &str = "roadstead-agent-identity";

fn cluster(name: &str) -> String {
    format!(
        "apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec: {{access: [{{namespace: '*', agentRights: true}}]}}\n"
    )
}

/// Waits until a Cluster's Ready has this status and reason, and gives the message.
async fn has_ready(kubectl: &Kubectl, name: &str, status: &str, reason: &str) -> Result<String> {
    eventually(&format!("Cluster {name} has Ready {status} {reason}"), PATIENCE, || async {
        let seen = kubectl.condition(&["cluster", name], "Ready").await?;
        ensure!((seen.0.as_str(), seen.1.as_str()) == (status, reason), "it has {seen:?}");
        Ok(seen.2)
    })
    .await
}

/// A join manifest as JSON.
async fn join(hub: &HubProcess, name: &str) -> Result<Value> {
    serde_json::from_str(&AgentProcess::token(hub, name).await?).context("a join manifest is JSON")
}

/// Keeps a join manifest for an agent.
fn keep(setup: &HubSetup, manifest: &Value) -> Result<PathBuf> {
    let path = setup.folder().join(format!("{}.json", unique("join")));
    std::fs::write(&path, manifest.to_string()).context("write a join manifest")?;
    Ok(path)
}

/// Text in the data of a Secret.
fn text(secret: &Value, key: &str) -> Result<String> {
    let encoded = secret["data"][key].as_str().with_context(|| format!("no {key} in the Secret"))?;
    String::from_utf8(STANDARD.decode(encoded)?).with_context(|| format!("{key} is not UTF-8"))
}

/// Waits until an agent has ended because it was not let in, with all of `parts` in its log.
async fn is_refused(agent: &mut Process, parts: &[&str]) -> Result<()> {
    let status = agent.wait(PATIENCE).await?;
    let logs = agent.logs();
    ensure!(status.code() == Some(REFUSED), "the agent ended with {status}:\n{logs}");
    for part in parts {
        ensure!(logs.contains(part), "no `{part}` in the agent's log:\n{logs}");
    }
    Ok(())
}

/// Requests to the API without kubectl.
struct Api {
    client: reqwest::Client,
    url: String,
}

impl Api {
    fn new(hub: &HubProcess, ca: &str) -> Result<Self> {
        install_crypto();
        let ca = reqwest::Certificate::from_pem(ca.as_bytes())?;
        let client = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().timeout(PATIENCE);
        Ok(Self { client: client.build()?, url: format!("https://127.0.0.1:{}", hub.api_port()) })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        authorization: Option<&str>,
    ) -> Result<(StatusCode, Value)> {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        read(request.send().await?).await
    }

    async fn enrol(&self, body: impl Into<reqwest::Body>) -> Result<(StatusCode, Value)> {
        let request = self.client.post(format!("{}/fleet/v1/enrol", self.url));
        read(request.header("content-type", "application/json").body(body).send().await?).await
    }
}

async fn read(response: reqwest::Response) -> Result<(StatusCode, Value)> {
    let (status, body) = (response.status(), response.bytes().await?);
    let value = serde_json::from_slice(&body)
        .with_context(|| format!("{status} with {}", String::from_utf8_lossy(&body)))?;
    Ok((status, value))
}

#[tokio::test]
async fn a_cluster_joins_by_a_secret_that_is_applied_in_it() -> Result<()> {
    let setup = HubSetup::new("onboard").await?;
    let hub = HubProcess::start(&setup).await?;
    let target = TestCluster::first()?;
    hub.kubectl().apply(&cluster("edge")).await?;
    let message = has_ready(hub.kubectl(), "edge", "False", "AwaitingAgent").await?;
    ensure!(message.contains("roadstead cluster join edge"), "{message}");
    let table = hub.kubectl().run(&["get", "clusters"]).await?;
    ensure!(table.contains("edge") && table.contains("False"), "{table}");
    let no_agent = AgentProcess::token(&hub, "elsewhere").await;
    let no_agent = no_agent.err().context("a token for a Cluster that is not there")?.to_string();
    ensure!(no_agent.contains("elsewhere") && no_agent.contains("not found"), "{no_agent}");

    // What the command prints is applied as it is; the agent looks for it, and waits until it is there.
    let namespace = target.namespace("agent").await?;
    let mut command = std::process::Command::new(binary("roadstead-agent")?);
    command.arg("--kubeconfig").arg(target.kubectl().kubeconfig()).args(["--namespace", namespace.name()]);
    let mut agent = Process::start("the agent", &mut command, &setup.folder().join("agent.log"))?;
    eventually("the agent asks for a manifest", PATIENCE, || async {
        ensure!(agent.logs().contains("apply the join manifest"), "{}", agent.logs());
        Ok(())
    })
    .await?;
    ensure!(
        !agent.logs().contains('\u{1b}'),
        "there are escape codes in a log that is a file: {}",
        agent.logs()
    );
    let mut joins = tokio::process::Command::new(binary("roadstead")?);
    joins.args(["cluster", "join", "edge", "--secret-only", "--agent-namespace", namespace.name()]);
    let output = joins.env("KUBECONFIG", hub.kubectl().kubeconfig()).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.kubectl().apply(&String::from_utf8(output.stdout)?).await?;
    let message = has_ready(hub.kubectl(), "edge", "True", "AgentConnected").await?;
    ensure!(message.contains("is connected"), "{message}");

    let version: Value = serde_json::from_str(&target.kubectl().run(&["get", "--raw", "/version"]).await?)?;
    let version = version["gitVersion"].as_str().context("a version")?;
    let table = hub.kubectl().run(&["get", "clusters"]).await?;
    let (head, row) = table.split_once('\n').context("two lines")?;
    ensure!(head.contains("KUBERNETES") && head.contains("AGENT"), "{table}");
    for part in ["edge", "True", version, env!("CARGO_PKG_VERSION")] {
        ensure!(row.contains(part), "no `{part}` in:\n{table}");
    }
    let status = &hub.kubectl().get(&["cluster", "edge"]).await?["status"];
    let uid = target.kubectl().get(&["namespace", "kube-system"]).await?["metadata"]["uid"].clone();
    ensure!(status["kubeSystemUID"] == uid, "{status}");

    // SIGTERM: it ends well, and the condition says so; started again, it needs no token.
    let ended = agent.sigterm(PATIENCE).await?;
    ensure!(ended.success(), "after SIGTERM it ended with {ended}:\n{}", agent.logs());
    let message = has_ready(hub.kubectl(), "edge", "False", "AgentDisconnected").await?;
    ensure!(message.contains("the agent ended it"), "{message}");
    target.kubectl().run(&["delete", "secret", "roadstead-join", "-n", namespace.name()]).await?;
    let _agent = Process::start("the agent", &mut command, &setup.folder().join("agent-2.log"))?;
    has_ready(hub.kubectl(), "edge", "True", "AgentConnected").await?;
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_wrong_expired_or_used_lets_nobody_in() -> Result<()> {
    let setup = HubSetup::new("tokens").await?;
    let mut hub = HubProcess::start(&setup).await?;
    let target = TestCluster::second()?;
    hub.kubectl().apply(&cluster("edge")).await?;
    let sound = join(&hub, "edge").await?;
    let api = Api::new(&hub, &text(&sound, "ca.crt")?)?;

    let mut wrong = sound.clone();
    wrong["data"]["token"] = STANDARD.encode("kq3v-not-a-token").into();
    let mut agent = AgentProcess::start(&hub, "wrong", &target, keep(&setup, &wrong)?)?;
    is_refused(&mut agent, &["401", "the join token is not known", "roadstead cluster join"]).await?;
    ensure!(!agent.logs().contains("kq3v-not-a-token"), "the token is in the log:\n{}", agent.logs());

    let mut command = tokio::process::Command::new(binary("roadstead")?);
    command
        .args(["cluster", "join", "edge", "--secret-only", "-o", "json", "--ttl", "1"])
        .env("KUBECONFIG", hub.kubectl().kubeconfig());
    let output = command.output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expiring: Value = serde_json::from_slice(&output.stdout)?;
    // A request that is not a request tells whether the token is still good, and does not use it up.
    let probe = json!({"token": text(&expiring, "token")?, "csr": "none", "kubeSystemUid":
        "4d1d26fd-6b35-4b34-8b7f-3b0f7b0a3c11"});
    eventually("the token has expired", PATIENCE, || async {
        let (status, answer) = api.enrol(probe.to_string()).await?;
        ensure!(status == StatusCode::UNAUTHORIZED, "{status} {answer}");
        Ok(())
    })
    .await?;
    let mut agent = AgentProcess::start(&hub, "expired", &target, keep(&setup, &expiring)?)?;
    is_refused(&mut agent, &["the join token expired at"]).await?;

    // None of that has used up or harmed the sound one. Then it is used: another agent, with another key, gets nothing.
    let first = AgentProcess::start(&hub, "edge", &target, keep(&setup, &sound)?)?;
    has_ready(hub.kubectl(), "edge", "True", "AgentConnected").await?;
    let mut second = AgentProcess::start(&hub, "edge", &target, keep(&setup, &sound)?)?;
    is_refused(&mut second, &["the join token was used at"]).await?;

    // What is not a manifest ends the agent at once, without showing what was in it.
    for (manifest, part) in [
        (json!({"kind": "Secret"}), "is of type `Opaque`"),
        (
            json!({"type": "fleet.roadstead.dev/join", "data": {"hub": "aHR0cDovL3g="}}),
            "`link`: it is missing",
        ),
        (json!("kq3v: ["), "is not a Kubernetes Secret"),
    ] {
        let mut agent = AgentProcess::start(&hub, "malformed", &target, keep(&setup, &manifest)?)?;
        let status = agent.wait(PATIENCE).await?;
        ensure!(status.code() == Some(1), "{manifest} ended it with {status}");
        let logs = agent.logs();
        ensure!(logs.contains(part) && !logs.contains("kq3v"), "no `{part}` in:\n{logs}");
    }
    // A hub that the manifest's CA does not vouch for gets no token: it is tried again, and said why.
    let mut other_ca = join(&hub, "edge").await?;
    let ca = rcgen::generate_simple_self_signed(["localhost".to_owned()])?.cert.pem();
    other_ca["data"]["ca.crt"] = STANDARD.encode(ca).into();
    let mut agent = AgentProcess::start(&hub, "other-ca", &target, keep(&setup, &other_ca)?)?;
    eventually("the certificate is refused", PATIENCE, || async {
        let logs = agent.logs();
        ensure!(logs.contains("invalid peer certificate"), "{logs}");
        Ok(())
    })
    .await?;
    agent.check()?;

    strange_lifetimes_are_refused(&setup, &hub).await?;
    hub.check()?;
    first.says("connected to the hub", PATIENCE).await?;
    ensure!(first.logs().matches("connected to the hub").count() == 1, "{}", first.logs());
    let seen = hub.kubectl().condition(&["cluster", "edge"], "Ready").await?;
    ensure!(seen.0 == "True", "{seen:?}");
    Ok(())
}

async fn strange_lifetimes_are_refused(setup: &HubSetup, hub: &HubProcess) -> Result<()> {
    for ttl in ["0", "86401", "soon"] {
        let mut command = tokio::process::Command::new(binary("roadstead")?);
        command.args(["cluster", "join", "edge", "--ttl", ttl]).env("KUBECONFIG", hub.kubectl().kubeconfig());
        let output = command.output().await?;
        ensure!(!output.status.success() && output.stdout.is_empty(), "--ttl {ttl} was taken");
    }
    let file = setup.folder().join("request.json");
    for body in [json!({"ttlSeconds": 0}), json!({"ttlSeconds": 1_000_000}), json!({"ttlSeconds": "long"})] {
        std::fs::write(&file, body.to_string())?;
        let path = "/apis/fleet.roadstead.dev/v1alpha1/clusters/edge/jointoken";
        let line = ["create", "--raw", path, "-f", &file.display().to_string()];
        let error = hub.kubectl().run(&line).await.err().with_context(|| format!("{body} was taken"))?;
        ensure!(format!("{error:#}").contains("seconds"), "{body}: {error:#}");
    }
    Ok(())
}

#[tokio::test]
async fn one_cluster_has_one_name_and_one_agent() -> Result<()> {
    let setup = HubSetup::new("names").await?;
    let hub = HubProcess::start(&setup).await?;
    let target = TestCluster::first()?;
    let mut first = AgentProcess::join(&hub, "first", &target).await?;
    has_ready(hub.kubectl(), "first", "True", "AgentConnected").await?;

    let mut second = AgentProcess::join(&hub, "second", &target).await?;
    is_refused(&mut second, &["409", "Cluster 'second'", "already registered under another name"]).await?;
    has_ready(hub.kubectl(), "second", "False", "AwaitingAgent").await?;
    // Who holds a token is not told of other Clusters; whoever runs the hub is, at both.
    ensure!(!second.logs().contains("'first'"), "{}", second.logs());
    for (cluster, other) in [("first", "Cluster 'second'"), ("second", "Cluster 'first'")] {
        let selector = format!("involvedObject.name={cluster},reason=AlreadyRegistered");
        let events = ["get", "events", "-A", "--field-selector", &selector, "-o", "json"];
        let events = hub.kubectl().run(&events).await?;
        ensure!(events.contains(other), "{cluster}: {events}");
    }

    // Another agent of the same cluster takes the first one's place; the first one's certificate is worth nothing then.
    let path = keep(&setup, &join(&hub, "first").await?)?;
    let successor = AgentProcess::start(&hub, "first", &target, path)?;
    eventually("the first agent is told", PATIENCE, || async {
        let logs = first.logs();
        ensure!(logs.contains("another agent has since joined as Cluster 'first'"), "{logs}");
        Ok(())
    })
    .await?;
    has_ready(hub.kubectl(), "first", "True", "AgentConnected").await?;
    first.check()?;
    first.kill9().await?;
    has_ready(hub.kubectl(), "first", "True", "AgentConnected").await?;

    // Where the name is given up, the other one is free, and the token that was refused is still good.
    hub.kubectl().run(&["delete", "cluster", "first"]).await?;
    eventually("the session has ended", PATIENCE, || async {
        let logs = successor.logs();
        ensure!(logs.contains("a Cluster that no longer exists on the hub"), "{logs}");
        Ok(())
    })
    .await?;
    second.restart()?;
    has_ready(hub.kubectl(), "second", "True", "AgentConnected").await?;
    Ok(())
}

#[tokio::test]
async fn a_hub_that_was_replaced_is_not_trusted_until_someone_says_so() -> Result<()> {
    let setup = HubSetup::new("first-hub").await?;
    let mut hub = HubProcess::start(&setup).await?;
    let target = TestCluster::second()?;
    let mut agent = AgentProcess::join(&hub, "edge", &target).await?;
    has_ready(hub.kubectl(), "edge", "True", "AgentConnected").await?;

    // Another database, and so other authorities, at the same address.
    hub.sigterm(PATIENCE).await?;
    let other = HubSetup::new("second-hub").await?.in_place_of(&setup);
    let hub = HubProcess::start(&other).await?;
    hub.kubectl().apply(&cluster("edge")).await?;
    eventually("the agent says what is wrong", PATIENCE, || async {
        let logs = agent.logs();
        ensure!(logs.contains("is not the hub that this agent joined"), "{logs}");
        Ok(())
    })
    .await?;
    agent.check()?;
    has_ready(hub.kubectl(), "edge", "False", "AwaitingAgent").await?;

    // It is told by a join Secret in its cluster, and finds it without being started again.
    agent.sigterm(PATIENCE).await?;
    agent.restart_without_join()?;
    let mut manifest = join(&hub, "edge").await?;
    manifest["metadata"]["namespace"] = agent.namespace().into();
    target.kubectl().apply(&manifest.to_string()).await?;
    has_ready(hub.kubectl(), "edge", "True", "AgentConnected").await.with_context(|| agent.logs())?;
    agent.says("enrolled again", PATIENCE).await?;
    Ok(())
}

#[tokio::test]
async fn a_certificate_is_worth_nothing_in_another_cluster() -> Result<()> {
    let setup = HubSetup::new("stolen").await?;
    let hub = HubProcess::start(&setup).await?;
    let (home, away) = (TestCluster::first()?, TestCluster::second()?);
    let agent = AgentProcess::join(&hub, "home", &home).await?;
    has_ready(hub.kubectl(), "home", "True", "AgentConnected").await?;
    let session = session_of(&setup, "home").await?;

    // A token for it, used in another cluster.
    let path = keep(&setup, &join(&hub, "home").await?)?;
    let mut thief = AgentProcess::start(&hub, "home", &away, path)?;
    is_refused(&mut thief, &["409", "Cluster 'home'", "it was joined by another cluster"]).await?;

    // Its whole identity, key and all, in another cluster.
    let namespace = thief.namespace().to_owned();
    let mut identity = home.kubectl().get(&["secret", IDENTITY, "-n", agent.namespace()]).await?;
    identity["metadata"] = json!({"name": IDENTITY, "namespace": namespace});
    away.kubectl().run(&["delete", "secret", IDENTITY, "-n", &namespace, "--ignore-not-found"]).await?;
    away.kubectl().run_with(&["create", "-f", "-"], &identity.to_string()).await?;
    thief.restart()?;
    eventually("the stolen identity is refused, again and again", PATIENCE, || async {
        let logs = thief.logs();
        let times = logs.matches("the agent runs in another cluster").count();
        ensure!(times >= 2, "{times} refusals:\n{logs}");
        Ok(())
    })
    .await?;
    ensure!(!thief.logs().contains("connected to the hub"), "{}", thief.logs());
    // The rightful one has not noticed.
    ensure!(session_of(&setup, "home").await? == session, "home has another session");
    let seen = hub.kubectl().condition(&["cluster", "home"], "Ready").await?;
    ensure!(seen.0 == "True", "{seen:?}");
    agent.says("connected to the hub", PATIENCE).await?;
    ensure!(agent.logs().matches("connected to the hub").count() == 1, "{}", agent.logs());
    Ok(())
}

/// The newest session of a Cluster.
async fn session_of(setup: &HubSetup, name: &str) -> Result<String> {
    let mut connection = setup.database().connect().await?;
    let query = "SELECT s.session::text FROM agent_session s JOIN resource r ON r.uid = s.cluster_uid WHERE r.name = $1";
    sqlx::query_scalar(query).bind(name).fetch_one(&mut connection).await.context("look up a session")
}

/// A certificate chain and its key, PEM.
type Pair = (String, String);

/// A certificate for `subject` by an authority that calls itself the hub's.
fn forged(subject: &str) -> Result<Pair> {
    let named = |name: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut authority = named("Roadstead agent CA");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let issuer = Issuer::new(authority, KeyPair::generate()?);
    let mut leaf = named(subject);
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    Ok((leaf.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
}

/// What the link port sends to a client with this certificate after TLS, as far as it lets it in.
async fn link_answers(port: u16, ca: &str, certificate: Option<&Pair>) -> Result<Vec<u8>> {
    install_crypto();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match certificate {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain: Vec<_> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?;
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let talk = async {
        let name = ServerName::try_from("127.0.0.1")?;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        // The HTTP/2 preface and empty settings: whoever is let in gets settings back.
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await?;
        stream.flush().await?;
        let mut answer = vec![0; 9];
        stream.read_exact(&mut answer).await?;
        Ok(answer)
    };
    tokio::time::timeout(PATIENCE, talk).await.context("the link port neither answers nor refuses")?
}

#[tokio::test]
async fn the_link_port_lets_in_who_has_a_certificate_of_the_hubs_own() -> Result<()> {
    let setup = HubSetup::new("mtls").await?;
    let mut hub = HubProcess::start(&setup).await?;
    let target = TestCluster::first()?;
    let agent = AgentProcess::join(&hub, "edge", &target).await?;
    has_ready(hub.kubectl(), "edge", "True", "AgentConnected").await?;
    let identity = target.kubectl().get(&["secret", IDENTITY, "-n", agent.namespace()]).await?;
    let (ca, uid) = (text(&identity, "ca.crt")?, text(&identity, "cluster-uid")?);
    let port = hub.link_port();

    // Some that never say anything are in nobody's way.
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(("127.0.0.1", port)).await?);
    }
    let mut noise = TcpStream::connect(("127.0.0.1", port)).await?;
    noise.write_all(&[0x5a; 4096]).await?;

    // So that what follows does not pass for another reason than the certificate.
    let sound = (text(&identity, "tls.crt")?, text(&identity, "tls.key")?);
    let answer = link_answers(port, &ca, Some(&sound)).await?;
    ensure!(answer[3] == 4, "an agent's certificate gets {answer:?}, no settings");

    let own = rcgen::generate_simple_self_signed([uid.clone()])?;
    let self_signed = (own.cert.pem(), own.signing_key.serialize_pem());
    // The rightful certificate without its key.
    let other_key = (sound.0.clone(), KeyPair::generate()?.serialize_pem());
    for (what, pair) in [
        ("no certificate", None),
        ("a self-signed certificate", Some(self_signed)),
        ("a certificate for the cluster's uid by another authority of the same name", Some(forged(&uid)?)),
        ("the agent's certificate with another key", Some(other_key)),
    ] {
        if let Ok(answer) = link_answers(port, &ca, pair.as_ref()).await {
            bail!("{what} got {answer:?}");
        }
    }
    hub.check()?;
    let seen = hub.kubectl().condition(&["cluster", "edge"], "Ready").await?;
    ensure!(seen.0 == "True", "{seen:?}");
    agent.says("connected to the hub", PATIENCE).await?;
    ensure!(agent.logs().matches("connected to the hub").count() == 1, "{}", agent.logs());
    Ok(())
}

#[tokio::test]
async fn the_api_takes_nothing_without_a_token_and_no_garbage_for_one() -> Result<()> {
    let setup = HubSetup::new("api").await?;
    let mut hub = HubProcess::start(&setup).await?;
    hub.kubectl().apply(&cluster("edge")).await?;
    let manifest = join(&hub, "edge").await?;
    let (ca, token) = (text(&manifest, "ca.crt")?, text(&manifest, "token")?);
    let api = Api::new(&hub, &ca)?;

    let reads = [
        "/api",
        "/apis",
        "/version",
        "/openapi/v3",
        "/api/v1/namespaces",
        "/api/v1/secrets",
        "/api/v1/namespaces/default/secrets/git",
        "/apis/fleet.roadstead.dev/v1alpha1/clusters?watch=true",
        "/fleet/v1/appliers/Kustomization/apps/app/reconciliations",
        "/nothing/here",
    ];
    let join_token = format!("Bearer {token}");
    let headers =
        [None, Some("Bearer wrong"), Some("Bearer "), Some("Basic YWRtaW46YWRtaW4="), Some(&*join_token)];
    for authorization in headers {
        for path in reads {
            let (status, answer) = api.ask(Method::GET, path, authorization).await?;
            ensure!(status == StatusCode::UNAUTHORIZED, "{path} with {authorization:?}: {status} {answer}");
            ensure!(
                answer["kind"] == "Status" && answer["code"] == 401 && answer["reason"] == "Unauthorized",
                "{path} with {authorization:?}: {answer}"
            );
        }
        for (method, path) in [
            (Method::POST, "/apis/fleet.roadstead.dev/v1alpha1/clusters/edge/jointoken"),
            (Method::POST, "/apis/fleet.roadstead.dev/v1alpha1/clusters"),
            (Method::DELETE, "/apis/fleet.roadstead.dev/v1alpha1/clusters/edge"),
            (Method::PATCH, "/apis/fleet.roadstead.dev/v1alpha1/clusters/edge/status"),
        ] {
            let (status, answer) = api.ask(method, path, authorization).await?;
            ensure!(status == StatusCode::UNAUTHORIZED, "{path} with {authorization:?}: {status} {answer}");
        }
    }

    let uid = "4d1d26fd-6b35-4b34-8b7f-3b0f7b0a3c11";
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let bodies = [
        String::new(),
        "nonsense".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        "null".to_owned(),
        deep,
        format!("{{\"token\": {}}}", "{\"a\":".repeat(50_000)),
        json!({"token": 1, "csr": [], "kubeSystemUid": {}}).to_string(),
        json!({"token": "x".repeat(500_000), "csr": "", "kubeSystemUid": uid}).to_string(),
        json!({"token": "\u{0}", "csr": "", "kubeSystemUid": uid}).to_string(),
        json!({"token": token, "csr": "", "kubeSystemUid": ""}).to_string(),
        json!({"token": token, "csr": "nonsense", "kubeSystemUid": uid}).to_string(),
        json!({"token": token, "csr": "x".repeat(100_000), "kubeSystemUid": uid}).to_string(),
        json!({"token": token, "csr": ca, "kubeSystemUid": uid}).to_string(),
    ];
    for body in bodies {
        let shown: String = body.chars().take(120).collect();
        let (status, answer) = api.enrol(body).await.with_context(|| shown.clone())?;
        ensure!(status.is_client_error(), "{shown}: {status} {answer}");
        ensure!(answer["kind"] == "Status" && answer["message"].is_string(), "{shown}: {answer}");
        ensure!(!answer.to_string().contains(&token), "{shown}: the token is in {answer}");
    }
    let (status, answer) = api.enrol(&b"{\"token\": \"\xff\xfe\"}"[..]).await?;
    ensure!(status.is_client_error(), "{status} {answer}");
    // The hub need not read all of it, so its answer may be lost; but it says no.
    if let Ok((status, answer)) = api.enrol(vec![b' '; 64 << 20]).await {
        ensure!(status.is_client_error(), "64 MiB: {status} {answer}");
    }
    hub.check()?;
    // None of it has used the token up.
    let target = TestCluster::second()?;
    let _agent = AgentProcess::start(&hub, "edge", &target, keep(&setup, &manifest)?)?;
    has_ready(hub.kubectl(), "edge", "True", "AgentConnected").await?;
    Ok(())
}

/// A fleet whose agent's link goes through a proxy.
pub(crate) async fn fleet_through_proxy(name: &str) -> Result<(Fleet, Proxy)> {
    install_crypto();
    let setup = HubSetup::new(name).await?;
    let hub = HubProcess::start(&setup).await?;
    let cluster = TestCluster::first()?;
    let proxy = Proxy::start(hub.link_port()).await?;
    let agent = AgentProcess::join_through(&hub, "edge", &cluster, &proxy).await?;
    Ok((Fleet::of(setup, hub, cluster, agent).await?, proxy))
}

#[tokio::test]
async fn a_cut_or_frozen_link_is_noticed_and_what_was_dispatched_meanwhile_arrives() -> Result<()> {
    let (fleet, proxy) = fleet_through_proxy("link").await?;
    let namespace = fleet.cluster.namespace("link").await?;
    let word = |word: &str| Commit::new().file("app/map.yaml", config_map(namespace.name(), "map", word));
    let repository = fleet.repository("app", &word("first")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[])).await?;
    fleet.ready("kustomization/app").await?;

    // Cut: both sides are told at once.
    let began = Instant::now();
    proxy.cut();
    has_ready(fleet.kubectl(), "edge", "False", "AgentDisconnected").await?;
    println!("measured: a dropped connection was shown after {:?}", began.elapsed());
    ensure!(began.elapsed() < NOTICED, "noticed after {:?}", began.elapsed());
    let commit = repository.commit("main", "Second", &word("second"))?;
    fleet.fetch("app").await?;
    fleet.fails("kustomization/app", "ClusterUnreachable", &["cluster edge", "not connected"]).await?;
    fleet.cluster.has_word(namespace.name(), "map", Some("first")).await?;
    let began = Instant::now();
    proxy.open();
    fleet.ready("cluster/edge").await?;
    println!("measured: reconnected {:?} after the link was there again", began.elapsed());
    fleet.applied("app", &commit).await?;
    println!("measured: what was committed meanwhile was Ready after {:?}", began.elapsed());
    fleet.cluster.has_word(namespace.name(), "map", Some("second")).await?;

    // Half open: nobody is told, and the hub dispatches into the void.
    let began = Instant::now();
    proxy.freeze();
    let commit = repository.commit("main", "Third", &word("third"))?;
    fleet.fetch("app").await?;
    has_ready(fleet.kubectl(), "edge", "False", "AgentDisconnected").await?;
    println!("measured: a frozen link was shown after {:?}", began.elapsed());
    ensure!(began.elapsed() < NOTICED, "noticed after {:?}", began.elapsed());
    eventually("the agent has noticed as well", PATIENCE, || async {
        let logs = fleet.agent.logs();
        ensure!(logs.contains("the connection was closed"), "{logs}");
        Ok(())
    })
    .await?;
    fleet.cluster.has_word(namespace.name(), "map", Some("second")).await?;
    let began = Instant::now();
    proxy.open();
    fleet.ready("cluster/edge").await?;
    println!("measured: reconnected {:?} after the thaw", began.elapsed());
    fleet.applied("app", &commit).await?;
    println!("measured: what was dispatched into the void was Ready after {:?}", began.elapsed());
    fleet.cluster.has_word(namespace.name(), "map", Some("third")).await?;
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_is_deleted_ends_its_session_and_leaves_its_objects() -> Result<()> {
    let mut fleet = Fleet::start("deleted").await?;
    let namespace = fleet.cluster.namespace("deleted").await?;
    let commit = Commit::new().file("app/map.yaml", config_map(namespace.name(), "map", "ahoy"));
    fleet.repository("app", &commit).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[])).await?;
    fleet.ready("kustomization/app").await?;

    let began = Instant::now();
    fleet.kubectl().run(&["delete", "cluster", "edge"]).await?;
    fleet.fails("kustomization/app", "ClusterNotFound", &["'edge'", "not found on the hub"]).await?;
    eventually("the agent's session has ended", PATIENCE, || async {
        let logs = fleet.agent.logs();
        ensure!(logs.contains("a Cluster that no longer exists on the hub"), "{logs}");
        Ok(())
    })
    .await?;
    println!("measured: a deleted Cluster's session had ended after {:?}", began.elapsed());
    fleet.agent.check()?;
    fleet.cluster.has_word(namespace.name(), "map", Some("ahoy")).await?;
    // Nobody's agent corrects nothing: what is changed now stays so until the cluster is somebody's again.
    let patch = r#"{"data":{"word":"by hand"}}"#;
    let args = ["patch", "configmap", "map", "--namespace", namespace.name(), "--type=merge", "-p", patch];
    fleet.cluster.kubectl().run(&args).await?;

    // A Cluster of that name that is made again is another one: the old certificate is worth nothing, a new token is.
    fleet.kubectl().apply(&cluster("edge")).await?;
    has_ready(fleet.kubectl(), "edge", "False", "AwaitingAgent").await?;
    fleet.fails("kustomization/app", "ClusterUnreachable", &["cluster edge"]).await?;
    let word = fleet.cluster.word(namespace.name(), "map").await?;
    ensure!(word.as_deref() == Some("by hand"), "it says {word:?}");
    let _agent = AgentProcess::join(&fleet.hub, "edge", &fleet.cluster).await?;
    fleet.ready("cluster/edge").await?;
    fleet.ready("kustomization/app").await?;
    fleet.cluster.has_word(namespace.name(), "map", Some("ahoy")).await?;

    // Deleting the Kustomization prunes again: it owns its objects on the new Cluster as on the old one.
    fleet.run(&["delete", "kustomization", "app"]).await?;
    fleet.cluster.has_word(namespace.name(), "map", None).await
}
