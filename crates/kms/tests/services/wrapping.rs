//! The keys of a program, kept by key services that answer as a test says.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_kms::{
    Allowed, AwsCredential, Credentials, Entry, KeyBytes, KeyWrapper as _, KeyWrappers, PlainFile, Secret,
    WrappingError, WrappingKey,
};
use serde_json::{Value, json};

use crate::kit::{TOKEN, address, network, runtime, vault_credentials};
use crate::server::{Answer, Request, Server};

const ARN: &str = "arn:aws:kms:eu-central-1:123456789012:key/1-2";
const ALIAS: &str = "arn:aws:kms:eu-central-1:123456789012:alias/hub";
const KEY: [u8; 32] = *b"the-key-of-a-hub-in-thirty-two-b";

fn key() -> KeyBytes {
    KeyBytes::new(KEY)
}

fn aws_credentials() -> Credentials {
    let aws = AwsCredential::Static {
        access_key_id: "AKID".into(),
        secret_access_key: Secret::new(TOKEN.into()),
        session_token: None,
    };
    Credentials { aws: Some(aws), ..Credentials::default() }
}

fn wrappers(server: &Server, credentials: Credentials) -> KeyWrappers {
    let at = address(&server.url());
    let mut allowed = Allowed::default();
    (allowed.aws_kms, allowed.token_services.aws_sts) = (Some(at.clone()), Some(at));
    let network = network(&server.url().replace("http://", "kms="));
    KeyWrappers::new(credentials, allowed, Arc::clone(&network), network)
}

fn of_vault(server: &Server) -> WrappingKey {
    WrappingKey::vault_transit(&format!("{}/v1/transit/keys/hub", server.url())).unwrap()
}

fn body(request: &Request) -> Value {
    serde_json::from_str(&request.body).unwrap()
}

/// Answers that hold what was asked, as base64 of base64.
fn vault(request: &Request) -> Answer {
    assert_eq!(request.header("x-vault-token"), Some(TOKEN));
    let asked = body(request);
    let text = |name: &str| asked[name].as_str().unwrap().to_owned();
    let data = match request.line.as_str() {
        "PUT /v1/transit/encrypt/hub HTTP/1.1" => {
            json!({ "ciphertext": format!("vault:v1:{}", STANDARD.encode(text("plaintext"))) })
        }
        "PUT /v1/transit/decrypt/hub HTTP/1.1" => {
            let inner = STANDARD.decode(&text("ciphertext")["vault:v1:".len()..]).unwrap();
            json!({ "plaintext": String::from_utf8(inner).unwrap() })
        }
        other => panic!("{other}"),
    };
    Answer::json(200, &json!({ "data": data }).to_string())
}

fn aws(request: &Request) -> Answer {
    let asked = body(request);
    assert_eq!(asked["EncryptionContext"], json!({ "roadstead": "key-file" }));
    match request.header("x-amz-target").unwrap() {
        "TrentService.Encrypt" => {
            assert_eq!(asked["KeyId"], ALIAS);
            let wrapped = STANDARD.encode(asked["Plaintext"].as_str().unwrap());
            Answer::json(200, &json!({ "KeyId": ARN, "CiphertextBlob": wrapped }).to_string())
        }
        "TrentService.Decrypt" => {
            assert_eq!(asked["KeyId"], ARN);
            let inner = STANDARD.decode(asked["CiphertextBlob"].as_str().unwrap()).unwrap();
            let plain = String::from_utf8(inner).unwrap();
            Answer::json(200, &json!({ "KeyId": ARN, "Plaintext": plain }).to_string())
        }
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_wrapped_is_unwrapped() {
    let runtime = runtime();
    for service in ["file", "vault", "aws"] {
        let server = Server::start(if service == "aws" { aws } else { vault });
        let by = match service {
            "file" => None,
            "vault" => Some(of_vault(&server)),
            _ => Some(WrappingKey::aws_kms(ALIAS).unwrap()),
        };
        let credentials =
            Credentials { aws: aws_credentials().aws, ..vault_credentials(vec![address(&server.url())]) };
        let wrappers = wrappers(&server, credentials);
        let line = runtime.block_on(wrappers.wrapper(by.as_ref()).wrap(&key())).unwrap();
        assert_eq!(line.contains(&STANDARD.encode(KEY)), service == "file", "{service}");
        let entry = Entry::parse(&line).unwrap();
        assert_eq!(*runtime.block_on(wrappers.unwrap(&entry)).unwrap(), KEY, "{service}");
        if let Entry::Wrapped(envelope) = &entry {
            // An alias may be moved to another key; the envelope says which one it is of.
            assert!(service == "vault" || envelope.by == WrappingKey::aws_kms(ARN).unwrap());
            assert_eq!(envelope.to_string(), *line);
            let other = runtime.block_on(PlainFile.unwrap(&entry));
            assert_eq!(other.unwrap_err(), WrappingError::OtherKind);
        }
    }
}

/// An answer that names a key elsewhere would choose who is asked at the next start.
#[test]
fn an_answer_does_not_choose_the_next_server() {
    for arn in ["arn:aws:kms:us-east-1:123456789012:key/1", "arn:aws:kms:evil.example:1:key/1", ""] {
        let answer = json!({ "KeyId": arn, "CiphertextBlob": "AQID" }).to_string();
        let server = Server::start(move |_| Answer::json(200, &answer));
        let wrappers = wrappers(&server, aws_credentials());
        let by = WrappingKey::aws_kms(ALIAS).unwrap();
        let told = runtime().block_on(wrappers.wrapper(Some(&by)).wrap(&key())).unwrap_err().to_string();
        assert!(told.contains("is not one of such a service"), "{arn}: {told}");
    }
}

fn failed(server: &Server, line: &str) -> (String, bool) {
    let credentials =
        Credentials { aws: aws_credentials().aws, ..vault_credentials(vec![address(&server.url())]) };
    let wrappers = wrappers(server, credentials);
    let error = runtime().block_on(wrappers.unwrap(&Entry::parse(line).unwrap())).unwrap_err();
    let told = format!("{error} {error:?}");
    assert!(!told.contains(TOKEN), "{told}");
    (told, error.may_pass())
}

#[test]
fn what_aws_says_is_told_with_what_to_do() {
    for (name, expected) in [
        ("AccessDeniedException", "allow kms:Decrypt on the key"),
        ("DisabledException", "aws kms enable-key"),
        ("KMSInvalidStateException", "cancel-key-deletion"),
        ("NotFoundException", "no such key"),
        ("IncorrectKeyException", "restore the key file from its backup"),
        ("InvalidCiphertextException", "restore the key file from its backup"),
        ("UnrecognizedClientException", "renew them"),
    ] {
        let answer = json!({ "__type": name }).to_string();
        let server = Server::start(move |_| Answer::json(400, &answer));
        let (told, may_pass) = failed(&server, &format!("aws-kms:{ARN}:AQID"));
        assert!(told.contains(expected) && told.contains(name) && told.contains(ARN), "{told}");
        assert!(!may_pass, "{name}");
    }
}

#[test]
fn what_vault_says_is_told_with_what_to_do() {
    for (status, error, expected) in [
        (403, "permission denied", "capabilities = [\"update\"]"),
        (400, "invalid ciphertext: could not decrypt", "restore the key file from its backup"),
        (400, "encryption key not found", "VAULT_NAMESPACE"),
        (404, "no handler for route", "no transit engine at transit"),
        (503, "Vault is sealed", "unseal it"),
    ] {
        let answer = json!({ "errors": [error] }).to_string();
        let server = Server::start(move |_| Answer::json(status, &answer));
        let by = format!("{}/v1/transit/keys/hub", server.url());
        let (told, may_pass) = failed(&server, &format!("vault-transit:{by}:vault:v1:AQID"));
        assert!(told.contains(expected) && told.contains(&by), "{told}");
        assert_eq!(may_pass, status == 503, "{error}");
    }
}

#[test]
fn what_is_unwrapped_has_to_be_a_key() {
    let server =
        Server::start(|_| Answer::json(200, &json!({ "data": { "plaintext": "c2hvcnQ=" } }).to_string()));
    let line = format!("vault-transit:{}/v1/transit/keys/hub:vault:v1:AQID", server.url());
    let (told, may_pass) = failed(&server, &line);
    assert!(told.contains("not a key of 32 bytes") && !told.contains("c2hvcnQ") && !may_pass, "{told}");
}

#[test]
fn one_that_cannot_be_reached_may_be_later() {
    let server = Server::start(|_| Answer::nonsense());
    let (told, may_pass) = failed(&server, &format!("aws-kms:{ARN}:AQID"));
    assert!(
        may_pass && told.contains("cannot be reached") && told.contains("--allow-network kms="),
        "{told}"
    );
}

/// Nobody is asked without credentials, or where only the file says that the server is to be trusted.
#[test]
fn credentials_go_only_where_the_operator_says() {
    let runtime = runtime();
    let server = Server::start(|request| panic!("asked: {}", request.line));
    let line = format!("vault-transit:{}/v1/transit/keys/hub:vault:v1:AQID", server.url());
    let ask = |credentials: Credentials, line: &str| {
        let wrappers = wrappers(&server, credentials);
        runtime.block_on(wrappers.unwrap(&Entry::parse(line).unwrap())).unwrap_err()
    };
    let error = ask(vault_credentials(Vec::new()), &line);
    assert!(matches!(error, WrappingError::NotAllowed { .. }) && error.to_string().contains("VAULT_ADDR"));
    let error = ask(Credentials::default(), &line);
    assert!(error.to_string().contains("give VAULT_TOKEN"), "{error}");
    let error = ask(Credentials::default(), &format!("aws-kms:{ARN}:AQID"));
    assert!(error.to_string().contains("give AWS_ACCESS_KEY_ID"), "{error}");
    assert_eq!(server.requests(), 0);
}
