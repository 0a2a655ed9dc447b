//! The real nats-server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::BASE32_NOPAD;
use roadstead_nats::{Login, PublishError, Refusal};
use roadstead_outbound::ClientIdentity;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::To;

/// The program: what the run of all tests built, or what is built now.
fn program() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(given) = std::env::var_os("ROADSTEAD_TEST_NATS") {
            return PathBuf::from(given);
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/nats/install.sh");
        let output = Command::new(script).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    };
    FOLDER.get_or_init(build).join("bin/nats-server")
}

/// A server with a configuration. Dropping it kills it.
struct Server {
    child: Child,
    address: String,
    _folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(configuration: &str, files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let ports = folder.path().to_str().unwrap();
        let text = format!("listen: \"127.0.0.1:-1\"\nports_file_dir: \"{ports}\"\n{configuration}");
        std::fs::write(folder.path().join("nats.conf"), text).unwrap();
        let mut command = Command::new(program());
        command.args(["-c", "nats.conf"]).current_dir(folder.path()).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let file = folder.path().join(format!("nats-server_{}.ports", child.id()));
        let deadline = Instant::now() + Duration::from_secs(20);
        let address = loop {
            let found =
                std::fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
            if let Some(address) = found.as_ref().and_then(|ports| ports["nats"][0].as_str()) {
                break address.replace("tls://", "nats://");
            }
            assert!(Instant::now() < deadline, "nats-server says no port: {configuration}");
            std::thread::sleep(Duration::from_millis(20));
        };
        Self { child, address, _folder: folder }
    }

    /// Listens to all subjects, as somebody.
    fn listen(&self, login: &Value) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.address.trim_start_matches("nats://")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut stream = BufReader::new(stream);
        line(&mut stream);
        let said = format!("CONNECT {login}\r\nSUB > 1\r\nPING\r\n");
        stream.get_mut().write_all(said.as_bytes()).unwrap();
        while line(&mut stream) != "PONG\r\n" {}
        stream
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    assert!(stream.read_line(&mut line).unwrap() > 0, "the server has gone");
    line
}

/// The lines of the next message.
fn message(stream: &mut BufReader<TcpStream>) -> Vec<String> {
    (0..5).map(|_| line(stream).trim_end().to_owned()).collect()
}

fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ (u16::from(*byte) << 8), |sum, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 }
        })
    })
}

/// Somebody with a key: an operator, an account, a user.
struct Somebody {
    pair: Ed25519KeyPair,
    kind: u8,
    seed: String,
}

const OPERATOR: u8 = 14 << 3;
const ACCOUNT: u8 = 0;
const USER: u8 = 20 << 3;

impl Somebody {
    fn new(kind: u8, bytes: [u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&bytes).unwrap();
        let seed = written(&[&[(18 << 3) | (kind >> 5), kind << 3], &bytes[..]].concat());
        Self { pair, kind, seed }
    }

    fn public(&self) -> String {
        written(&[&[self.kind], self.pair.public_key().as_ref()].concat())
    }

    /// What this one says of another.
    fn says(&self, of: &Self, what: &Value) -> String {
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let head = part(json!({ "typ": "JWT", "alg": "ed25519-nkey" }));
        let claims = json!({ "jti": "1", "iat": 1_700_000_000, "iss": self.public(), "sub": of.public(), "name": "test", "nats": what });
        let signed = format!("{head}.{}", part(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes()).as_ref());
        format!("{signed}.{signature}")
    }
}

fn written(bytes: &[u8]) -> String {
    BASE32_NOPAD.encode(&[bytes, &crc(bytes).to_le_bytes()].concat())
}

#[tokio::test]
async fn a_message_arrives_with_what_tells_a_repeat() {
    let server = Server::start("", &[]);
    let mut heard = server.listen(&json!({ "verbose": false, "headers": true }));
    To::new(&server.address).publish("fleet.events", b"{\"message\":\"it fails\"}").await.unwrap();
    let said = message(&mut heard);
    assert!(said[0].starts_with("HMSG fleet.events 1 "), "{said:?}");
    assert_eq!(said[1..], ["NATS/1.0", "Nats-Msg-Id: delivery-7", "", "{\"message\":\"it fails\"}"]);
}

#[tokio::test]
async fn each_login_is_taken_and_a_wrong_one_is_not() {
    let user = Somebody::new(USER, [3; 32]);
    let other = Somebody::new(USER, [4; 32]);
    let password = |password: &str| Login::Password { username: "u".to_owned(), password: password.into() };
    let key = |one: &Somebody| Login::of_seed(&one.seed).unwrap();
    let nkeys = format!("authorization: {{ users: [ {{ nkey: {} }} ] }}", user.public());
    for (configuration, right, wrong) in [
        ("authorization: { user: u, password: p }", password("p"), password("canary")),
        ("authorization: { token: t }", Login::Token("t".into()), Login::Token("canary".into())),
        (nkeys.as_str(), key(&user), key(&other)),
    ] {
        let server = Server::start(configuration, &[]);
        let to = |login| To { login, may_be_clear: true, ..To::new(&server.address) };
        to(right).publish("a", b"{}").await.unwrap();
        for wrong in [wrong, Login::Nobody] {
            let why = to(wrong).publish("a", b"{}").await.unwrap_err();
            // A server that asks for no nonce takes no key.
            assert!(matches!(why, PublishError::Refused(Refusal::Login)), "{configuration}: {why}");
            assert!(!why.to_string().contains("canary"), "{why}");
        }
    }
    let open = Server::start("", &[]);
    let why = To { login: key(&user), ..To::new(&open.address) }.publish("a", b"{}").await.unwrap_err();
    assert!(matches!(why, PublishError::NoNonce), "{why}");
}

#[tokio::test]
async fn a_credentials_file_is_taken() {
    let [operator, account, user] =
        [(OPERATOR, 1), (ACCOUNT, 2), (USER, 3)].map(|(kind, byte)| Somebody::new(kind, [byte; 32]));
    let limits = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1 });
    let of_operator = operator.says(&operator, &json!({ "type": "operator", "version": 2 }));
    let of_account = operator.says(&account, &json!({ "type": "account", "version": 2, "limits": limits }));
    let of_user = account.says(
        &user,
        &json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": { "allow": ["fleet.>"] }, "sub": {} }),
    );
    let configuration = format!(
        "operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_account} }}",
        account.public()
    );
    let server = Server::start(&configuration, &[]);
    let file = |seed: &str| {
        format!(
            "-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{seed}\n\
             ------END USER NKEY SEED------\n"
        )
    };
    let to = |seed: &str| To {
        login: Login::of_file(&file(seed)).unwrap(),
        may_be_clear: true,
        ..To::new(&server.address)
    };
    to(&user.seed).publish("fleet.events", b"{}").await.unwrap();
    let why = to(&user.seed).publish("other.events", b"{}").await.unwrap_err();
    assert!(matches!(why, PublishError::Refused(Refusal::Subject)), "{why}");
    let other = Somebody::new(USER, [4; 32]);
    let why = to(&other.seed).publish("fleet.events", b"{}").await.unwrap_err();
    assert!(matches!(why, PublishError::Refused(Refusal::Login)), "{why}");
}

#[tokio::test]
async fn it_goes_on_over_tls_where_the_server_wants_that() {
    let of = |name: &str| rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let (server_cert, client) = (of("127.0.0.1"), of("client"));
    let (cert, key) = (server_cert.cert.pem(), server_cert.signing_key.serialize_pem());
    let files = [("cert.pem", cert.as_str()), ("key.pem", key.as_str())];
    let tls = "tls { cert_file: cert.pem, key_file: key.pem }\nauthorization: { user: u, password: p }";
    let server = Server::start(tls, &files);
    let login = || Login::Password { username: "u".to_owned(), password: "p".into() };
    // Nothing is said in the clear: the server asks for TLS itself.
    let trusting = To { login: login(), ca: Some(cert.as_bytes()), ..To::new(&server.address) };
    trusting.publish("a", b"{}").await.unwrap();
    let why = To { login: login(), ..To::new(&server.address) }.publish("a", b"{}").await.unwrap_err();
    assert!(matches!(why, PublishError::Tls), "{why}");
    // One that wants to see a certificate.
    let client_cert = client.cert.pem();
    let more = [files[0], files[1], ("ca.pem", client_cert.as_str())];
    let both = "tls { cert_file: cert.pem, key_file: key.pem, ca_file: ca.pem, verify: true }";
    let server = Server::start(both, &more);
    let identity = ClientIdentity {
        certificates: client_cert.clone().into_bytes(),
        key: client.signing_key.serialize_pem().into(),
    };
    let to = |identity| To { ca: Some(cert.as_bytes()), identity, ..To::new(&server.address) };
    to(Some(&identity)).publish("a", b"{}").await.unwrap();
    assert!(to(None).publish("a", b"{}").await.is_err());
}
