//! Key services that misbehave, credentials that would go astray, and tokens that are given out in exchange for others. The services are the
//! tests' own, on loopback.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_kms::{
    Address, Allowed, AwsCredential, AzureCredential, AzureProof, Credentials, GcpCredential, Imported, Keys,
    Network, Secret, TokenSource, VaultCredential,
};
use roadstead_outbound::Policy;
use roadstead_sops::{DataKey, KeyError, KeyProvider as _, MasterKey};
use server::{Answer, Server};
use tokio::runtime::{Builder, Runtime};

const TOKEN: &str = "s.c4n4ry-t0k3n";
const DATA_KEY: &[u8] = b"01234567890123456789012345678901";

fn runtime() -> Runtime {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The hub's policy, with an operator who allows this machine.
fn network() -> Network {
    Network::new(&Arc::new(Policy::new(vec!["kms=127.0.0.1".parse().unwrap()])), None)
}

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

fn keys(runtime: &Runtime, credentials: Credentials, allowed: Allowed) -> Keys {
    let mut imported = Imported::default();
    imported.credentials = credentials;
    Keys::new(imported, allowed, network(), runtime.handle().clone())
}

fn vault_credentials(addresses: Vec<Address>) -> Credentials {
    let token = Secret::new(TOKEN.to_owned());
    Credentials {
        vault: Some(VaultCredential { token, addresses, namespace: None }),
        ..Credentials::default()
    }
}

fn vault_key(address: &str) -> MasterKey {
    MasterKey::Vault {
        address: address.to_owned(),
        engine_path: "sops".into(),
        key_name: "first".into(),
        enc: "vault:v1:x".into(),
    }
}

fn vault_answer() -> Answer {
    Answer::json(200, &format!(r#"{{"data":{{"plaintext":"{}"}}}}"#, STANDARD.encode(DATA_KEY)))
}

/// Asks a Vault that is allowed.
fn ask_vault(server: &Server) -> Result<Option<DataKey>, KeyError> {
    let runtime = runtime();
    let url = server.url();
    keys(&runtime, vault_credentials(vec![address(&url)]), Allowed::default())
        .for_file()
        .unwrap(&vault_key(&url))
}

fn opened(result: &Result<Option<DataKey>, KeyError>) -> bool {
    matches!(result, Ok(Some(key)) if key.expose() == DATA_KEY)
}

/// What an error says, which holds nothing of the token.
fn told(result: Result<Option<DataKey>, KeyError>) -> String {
    let told = format!("{} {0:?}", result.unwrap_err());
    assert!(!told.contains(TOKEN) && !told.contains("c4n4ry"), "{told}");
    told
}

#[test]
fn a_vault_that_works() {
    let server = Server::start(|request| {
        assert_eq!(request.header("x-vault-token"), Some(TOKEN));
        assert_eq!(request.line, "PUT /v1/sops/decrypt/first HTTP/1.1");
        vault_answer()
    });
    assert!(opened(&ask_vault(&server)));
}

#[test]
fn one_that_hangs_is_left_after_ten_seconds() {
    std::thread::scope(|scope| {
        for answer in [Answer::hang(), Answer::drip()] {
            scope.spawn(move || {
                let server = Server::start(move |_| answer.clone());
                let started = Instant::now();
                let told = told(ask_vault(&server));
                assert!(told.contains("did not answer in time"), "{told}");
                assert!((9..13).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
            });
        }
    });
}

#[test]
fn one_that_takes_five_seconds_is_waited_for() {
    let server = Server::start(|_| {
        std::thread::sleep(Duration::from_secs(5));
        vault_answer()
    });
    assert!(opened(&ask_vault(&server)));
}

#[test]
fn redirects_are_refused() {
    let other = Server::start(|_| vault_answer());
    for status in [301, 302, 303, 307, 308] {
        let location = other.url();
        let server = Server::start(move |_| Answer::json(status, "{}").with_header("location", &location));
        let told = told(ask_vault(&server));
        assert!(told.contains("redirect") && told.contains(&status.to_string()), "{told}");
    }
    assert_eq!(other.requests(), 0, "the token went on");
}

#[test]
fn one_that_answers_a_gigabyte_is_cut_off() {
    for chunked in [false, true] {
        let server = Server::start(move |_| Answer::flood(chunked));
        let started = Instant::now();
        let told = told(ask_vault(&server));
        assert!(told.contains("more than 64 KiB"), "{told}");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert!(server.sent_after_end() < 64 << 20, "it read {} bytes", server.sent_after_end());
    }
}

#[test]
fn one_that_throttles_is_asked_again() {
    let throttle = |answers: usize, throttled: Answer| {
        Server::start(
            move |request| if request.number < answers { throttled.clone() } else { vault_answer() },
        )
    };
    let busy = Answer::json(429, r#"{"errors":["rate limit quota exceeded"]}"#);
    let server = throttle(3, busy.clone());
    assert!(opened(&ask_vault(&server)));
    assert_eq!(server.requests(), 4);

    let server = throttle(usize::MAX, busy.clone());
    let started = Instant::now();
    let says = told(ask_vault(&server));
    assert!(says.contains("HTTP 429, rate limit quota exceeded"), "{says}");
    assert!(server.requests() <= 5 && started.elapsed() < Duration::from_secs(11));

    // Longer than it is waited.
    let server = throttle(usize::MAX, busy.with_header("retry-after", "3600"));
    let started = Instant::now();
    assert!(told(ask_vault(&server)).contains("HTTP 429"));
    assert!(server.requests() == 1 && started.elapsed() < Duration::from_secs(2));
}

#[test]
fn what_is_not_an_answer_is_an_error() {
    for body in
        ["", "{", "[]", r#"{"data":{}}"#, r#"{"data":{"plaintext":"***"}}"#, r#"{"data":{"plaintext":1}}"#]
    {
        let server = Server::start(move |_| Answer::json(200, body));
        assert!(told(ask_vault(&server)).contains("is not one of such a service"), "{body}");
    }
    let server = Server::start(|_| Answer::nonsense());
    assert!(told(ask_vault(&server)).contains("cannot be reached"));
}

#[test]
fn what_a_service_says_is_not_the_token() {
    for (says, shown) in [
        ("permission denied", true),
        (TOKEN, false),
        ("bad token s.c4n4ry-t0k3n", false),
        ("s.c4n4ry-", false),
        ("xs.c4n4ry-t0k3ny", false),
        ("<script>", false),
    ] {
        let body = format!(r#"{{"errors":["{says}"]}}"#);
        let server = Server::start(move |_| Answer::json(403, &body));
        let told = told(ask_vault(&server));
        assert_eq!(told.contains(says), shown, "{told}");
        assert!(told.contains("HTTP 403"), "{told}");
    }
}

#[test]
fn a_token_goes_nowhere_that_only_the_file_names() {
    let (runtime, right, wrong) =
        (runtime(), Server::start(|_| vault_answer()), Server::start(|_| vault_answer()));
    let keys = keys(&runtime, vault_credentials(vec![address(&right.url())]), Allowed::default());
    assert!(opened(&keys.for_file().unwrap(&vault_key(&right.url()))));
    let told = told(keys.for_file().unwrap(&vault_key(&wrong.url())));
    assert!(told.contains("--allow-key-service") && told.contains(&wrong.url()), "{told}");
    for key in [
        MasterKey::Vault {
            address: right.url(),
            engine_path: "../x".into(),
            key_name: "k".into(),
            enc: "x".into(),
        },
        MasterKey::Vault {
            address: right.url(),
            engine_path: "x".into(),
            key_name: "a/b".into(),
            enc: "x".into(),
        },
        MasterKey::AzureKeyVault {
            vault_url: wrong.url(),
            name: "k".into(),
            version: String::new(),
            enc: "x".into(),
        },
    ] {
        let credentials = Credentials {
            azure: Some(AzureCredential::Token(Secret::new(TOKEN.to_owned()))),
            ..vault_credentials(vec![address(&right.url())])
        };
        let keys = self::keys(&runtime, credentials, Allowed::default());
        assert!(keys.for_file().unwrap(&key).is_err());
    }
    assert_eq!((right.requests(), wrong.requests()), (1, 0));
}

#[test]
fn the_guard_decides_about_addresses_all_the_same() {
    let (runtime, server) = (runtime(), Server::start(|_| vault_answer()));
    let mut imported = Imported::default();
    imported.credentials = vault_credentials(vec![address(&server.url())]);
    imported.credentials.aws = Some(AwsCredential::Instance);
    imported.credentials.gcp = Some(GcpCredential::Instance);
    let network = Network::new(&Arc::new(Policy::default()), None);
    let keys = Keys::new(imported, Allowed::default(), network, runtime.handle().clone());
    let vault = told(keys.for_file().unwrap(&vault_key(&server.url())));
    assert!(vault.contains("--allow-network kms=127.0.0.1/32"), "{vault}");
    let aws = told(keys.for_file().unwrap(&aws_key(None)));
    assert!(aws.contains("--allow-network kms=169.254.169.254/32"), "{aws}");
    assert_eq!(server.requests(), 0);
}

#[test]
fn a_file_has_so_many_requests() {
    let (runtime, server) = (runtime(), Server::start(|_| Answer::json(403, "{}")));
    let keys = keys(&runtime, vault_credentials(vec![address(&server.url())]), Allowed::default());
    let file = keys.for_file();
    let key = vault_key(&server.url());
    for _ in 0..64 {
        assert!(told(file.unwrap(&key)).contains("HTTP 403"));
    }
    assert!(told(file.unwrap(&key)).contains("more than 64 requests"));
    assert_eq!(server.requests(), 64);
    assert!(told(keys.for_file().unwrap(&key)).contains("HTTP 403"), "another file has its own");
}

#[test]
fn nothing_is_asked_without_credentials() {
    let runtime = runtime();
    let keys = keys(&runtime, Credentials::default(), Allowed::default());
    for key in [vault_key("https://vault.example"), aws_key(None)] {
        assert_eq!(keys.for_file().unwrap(&key), Ok(None));
    }
    assert!(!format!("{keys:?} {:?}", vault_credentials(Vec::new())).contains("c4n4ry"));
}

fn aws_key(role: Option<&str>) -> MasterKey {
    MasterKey::AwsKms {
        arn: "arn:aws:kms:eu-central-1:123456789012:key/1-2".into(),
        role: role.map(str::to_owned),
        context: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        profile: String::new(),
        enc: "AQ==".into(),
    }
}

/// KMS, STS and what hands out credentials to containers, in one.
fn aws() -> Server {
    Server::start(|request| {
        let authorization = request.header("authorization").unwrap_or_default().to_owned();
        if request.line.starts_with("GET /container ") {
            assert_eq!(authorization, TOKEN);
            return Answer::json(
                200,
                r#"{"AccessKeyId":"ASIACONTAINER","SecretAccessKey":"s","Token":"session","Expiration":"2099-01-01T00:00:00Z"}"#,
            );
        }
        if request.body.starts_with("Action=") {
            let kind = if request.body.contains(&format!("WebIdentityToken={TOKEN}")) {
                "ASIAWEB"
            } else {
                "ASIAROLE"
            };
            return Answer::json(
                200,
                &format!(
                    "<R><Credentials><AccessKeyId>{kind}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>session</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>"
                ),
            );
        }
        assert_eq!(request.header("x-amz-target"), Some("TrentService.Decrypt"));
        assert!(request.body.contains(r#""EncryptionContext":{"a":"b"}"#), "{}", request.body);
        if request.number == 0 {
            return Answer::json(400, r#"{"__type":"com.amazonaws.kms#ThrottlingException"}"#);
        }
        let id = authorization.split("Credential=").nth(1).and_then(|rest| rest.split('/').next());
        if !id.is_some_and(|id| ["AKIASTATIC", "ASIAWEB", "ASIAROLE", "ASIACONTAINER"].contains(&id)) {
            return Answer::json(400, r#"{"__type":"AccessDeniedException"}"#);
        }
        Answer::json(200, &format!(r#"{{"Plaintext":"{}"}}"#, STANDARD.encode(DATA_KEY)))
    })
}

fn static_key(id: &str) -> AwsCredential {
    AwsCredential::Static {
        access_key_id: id.to_owned(),
        secret_access_key: Secret::new(TOKEN.to_owned()),
        session_token: None,
    }
}

#[test]
fn identities_of_aws() {
    let role = "arn:aws:iam::123456789012:role/sops";
    let token = || TokenSource::Text(Secret::new(TOKEN.to_owned()));
    let runtime = runtime();
    for kind in ["static", "role", "web", "container", "refused"] {
        let server = aws();
        let at = address(&server.url());
        let credential = match kind {
            "web" => {
                AwsCredential::WebIdentity { role_arn: role.into(), token: token(), session_name: "x".into() }
            }
            "container" => AwsCredential::Container {
                url: address(&format!("{}/container", server.url())),
                authorization: Some(token()),
            },
            "refused" => static_key("AKIAOTHER"),
            _ => static_key("AKIASTATIC"),
        };
        let mut allowed = Allowed::default();
        (allowed.aws_kms, allowed.aws_sts) = (Some(at.clone()), Some(at));
        let credentials = Credentials { aws: Some(credential), ..Credentials::default() };
        let keys = keys(&runtime, credentials, allowed);
        let key = aws_key((kind == "role").then_some(role));
        let answer = keys.for_file().unwrap(&key);
        if kind == "refused" {
            let told = told(answer);
            assert!(told.contains("AccessDeniedException"), "{told}");
            continue;
        }
        assert!(opened(&answer), "{kind}: {answer:?}");
        let before = server.requests();
        assert!(opened(&keys.for_file().unwrap(&key)), "{kind}");
        assert_eq!(server.requests(), before + 1, "{kind}: what was given out is kept");
    }
}

/// Entra and a vault.
fn azure(check: fn(&str) -> bool) -> Server {
    Server::start(move |request| {
        if request.line.contains("/oauth2/v2.0/token") {
            let fine = check(&request.body) && request.body.contains("client_credentials");
            return if fine {
                Answer::json(200, &format!(r#"{{"access_token":"{TOKEN}","expires_in":3600}}"#))
            } else {
                Answer::json(401, r#"{"error":"invalid_client"}"#)
            };
        }
        assert_eq!(request.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
        assert!(request.line.starts_with("POST /keys/k/1/decrypt?api-version="), "{}", request.line);
        assert!(request.body.contains("RSA-OAEP-256"));
        Answer::json(200, r#"{"value":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"}"#)
    })
}

#[test]
fn identities_of_azure() {
    let certificate = concat!(include_str!("rfc7515-a2.pem"), include_str!("azure-client.pem"));
    let runtime = runtime();
    for kind in ["secret", "certificate", "federated", "refused"] {
        let server = azure(match kind {
            "secret" => |body| body.contains("client_secret=pass"),
            "certificate" => |body| body.contains("client_assertion=ey") && body.contains("jwt-bearer"),
            "federated" => |body| body.contains("client_assertion=outside"),
            _ => |_| false,
        });
        let proof = match kind {
            "certificate" => {
                AzureProof::Certificate { pem: Secret::new(certificate.to_owned()), send_chain: true }
            }
            "federated" => AzureProof::Federated(TokenSource::Text(Secret::new("outside".into()))),
            _ => AzureProof::Secret(Secret::new("pass".into())),
        };
        let mut allowed = Allowed::default();
        allowed.add(address(&server.url()));
        let credential = AzureCredential::Application {
            tenant: "t".into(),
            client_id: "c".into(),
            proof,
            authority: Some(address(&server.url())),
        };
        let credentials = Credentials { azure: Some(credential), ..Credentials::default() };
        let keys = keys(&runtime, credentials, allowed);
        let key = MasterKey::AzureKeyVault {
            vault_url: server.url(),
            name: "k".into(),
            version: "1".into(),
            enc: "AQ".into(),
        };
        let answer = keys.for_file().unwrap(&key);
        if kind == "refused" {
            let told = told(answer);
            assert!(told.contains("HTTP 401, invalid_client"), "{told}");
            continue;
        }
        assert!(opened(&answer), "{kind}: {answer:?}");
        assert!(opened(&keys.for_file().unwrap(&key)));
        assert_eq!(server.requests(), 3, "{kind}: the token is kept");
    }
}
