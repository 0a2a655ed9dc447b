//! Credentials that are exchanged for others, which are kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_kms::{
    Allowed, AwsCredential, AzureCredential, AzureProof, Credentials, GcpCredential, Secret, TokenSource,
    VaultCredential, VaultProof,
};
use roadstead_sops::{KeyProvider as _, MasterKey};

use crate::kit::{DATA_KEY, TOKEN, address, aws_key, keys, opened, runtime, told, vault_answer, vault_key};
use crate::server::{Answer, Server};

/// A Kubernetes cluster's token in exchange for one of Vault's.
#[test]
fn a_login_to_vault_is_kept() {
    let (runtime, server) = (
        runtime(),
        Server::start(|request| {
            if request.line == "PUT /v1/auth/kubernetes/login HTTP/1.1" {
                assert_eq!(request.body, r#"{"jwt":"outside","role":"apps_web"}"#);
                return Answer::json(
                    200,
                    &format!(r#"{{"auth":{{"client_token":"{TOKEN}","lease_duration":3600}}}}"#),
                );
            }
            match request.number {
                1 | 2 if request.header("x-vault-token") == Some(TOKEN) => vault_answer(),
                _ => Answer::json(403, r#"{"errors":["permission denied"]}"#),
            }
        }),
    );
    let proof = VaultProof::Login {
        path: "auth/kubernetes/login".into(),
        role: "apps_web".into(),
        jwt: TokenSource::Text(Secret::new("outside".into())),
    };
    let vault = VaultCredential { proof, addresses: vec![address(&server.url())], namespace: None };
    let credentials = Credentials { vault: Some(vault), ..Credentials::default() };
    let keys = keys(&runtime, credentials, Allowed::default());
    let ask = || keys.for_file().unwrap(&vault_key(&server.url()));
    assert!(opened(&ask()) && opened(&ask()));
    assert_eq!(server.requests(), 3);
    assert!(told(ask()).contains("permission denied"));
    assert!(ask().is_err());
    assert_eq!(server.requests(), 6, "a token that was refused is not kept");
}

#[test]
fn identities_of_google() {
    let token = || TokenSource::Text(Secret::new("outside".into()));
    let runtime = runtime();
    for kind in ["key", "federated", "acting"] {
        let server = Server::start(|request| {
            let given = format!(r#"{{"access_token":"{TOKEN}","accessToken":"{TOKEN}","expires_in":3600}}"#);
            match request.line.split(' ').nth(1).unwrap() {
                "/token" if request.body.contains("jwt-bearer&assertion=ey") => Answer::json(200, &given),
                "/v1/token" if request.body.contains("subject_token=outside") => Answer::json(200, &given),
                path if request.header("authorization") != Some(format!("Bearer {TOKEN}").as_str()) => {
                    Answer::json(401, &format!(r#"{{"error":{{"status":"NO {path}"}}}}"#))
                }
                "/v1/projects/-/serviceAccounts/a@p.example:generateAccessToken" => Answer::json(200, &given),
                "/v1/projects/p/locations/l/keyRings/r/cryptoKeys/k:decrypt" => {
                    Answer::json(200, &format!(r#"{{"plaintext":"{}"}}"#, STANDARD.encode(DATA_KEY)))
                }
                _ => Answer::json(404, "{}"),
            }
        });
        let at = || Some(address(&server.url()));
        let mut allowed = Allowed::default();
        (allowed.gcp_kms, allowed.token_services.gcp_sts, allowed.token_services.gcp_iam) =
            (at(), at(), at());
        let credential = match kind {
            "key" => GcpCredential::ServiceAccount {
                email: "a@p.example".into(),
                key_id: "1".into(),
                private_key: Secret::new(include_str!("../rfc7515-a2.pem").into()),
                token_uri: address(&format!("{}/token", server.url())),
            },
            _ => GcpCredential::Federated {
                audience: "//iam.googleapis.com/x".into(),
                token: token(),
                service_account: (kind == "acting").then(|| "a@p.example".to_owned()),
            },
        };
        let credentials = Credentials { gcp: Some(credential), ..Credentials::default() };
        let keys = keys(&runtime, credentials, allowed);
        let resource_id = "projects/p/locations/l/keyRings/r/cryptoKeys/k".to_owned();
        let key = MasterKey::GcpKms { resource_id, enc: "AQ==".into() };
        for _ in 0..2 {
            let answer = keys.for_file().unwrap(&key);
            assert!(opened(&answer), "{kind}: {answer:?}");
        }
        assert_eq!(server.requests(), if kind == "acting" { 4 } else { 3 }, "{kind}: the token is kept");
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
        (allowed.aws_kms, allowed.token_services.aws_sts) = (Some(at.clone()), Some(at));
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
    let certificate = concat!(include_str!("../rfc7515-a2.pem"), include_str!("../azure-client.pem"));
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

/// What the clouds hand out to machines, as their metadata services do.
#[test]
fn identities_of_machines() {
    let server = Server::start(|request| {
        let (token, json) = (Some(TOKEN), |text: &str| Answer::json(200, text));
        let google = format!(r#"{{"access_token":"{TOKEN}","expires_in":3600}}"#);
        let azure = format!(r#"{{"access_token":"{TOKEN}","expires_on":"4102444800"}}"#);
        let role = r#"{"AccessKeyId":"ASIAMACHINE","SecretAccessKey":"s","Token":"session","Expiration":"2099-01-01T00:00:00Z"}"#;
        let imds = "x-aws-ec2-metadata-token";
        match request.line.trim_end_matches(" HTTP/1.1") {
            "PUT /latest/api/token" => json(TOKEN),
            "GET /latest/meta-data/iam/security-credentials/" if request.header(imds) == token => {
                json("web\n")
            }
            "GET /latest/meta-data/iam/security-credentials/web" if request.header(imds) == token => {
                json(role)
            }
            "GET /computeMetadata/v1/instance/service-accounts/default/token"
                if request.header("metadata-flavor") == Some("Google") =>
            {
                json(&google)
            }
            line if line.starts_with("GET /msi?") && request.header("x-identity-header") == Some("x") => {
                json(&azure)
            }
            "POST /" if request.header("x-amz-security-token") == Some("session") => {
                json(&format!(r#"{{"Plaintext":"{}"}}"#, STANDARD.encode(DATA_KEY)))
            }
            line if line.ends_with(":decrypt")
                && request.header("authorization") == Some(&format!("Bearer {TOKEN}")) =>
            {
                json(&format!(r#"{{"plaintext":"{}"}}"#, STANDARD.encode(DATA_KEY)))
            }
            line if line.starts_with("POST /keys/k/decrypt?")
                && request.header("authorization") == Some(&format!("Bearer {TOKEN}")) =>
            {
                json(r#"{"value":"MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"}"#)
            }
            _ => Answer::json(404, "{}"),
        }
    });
    let at = || Some(address(&server.url()));
    let mut allowed = Allowed::default();
    (allowed.aws_kms, allowed.gcp_kms) = (at(), at());
    allowed.add(address(&server.url()));
    let credentials = Credentials {
        aws: Some(AwsCredential::Instance { endpoint: at() }),
        gcp: Some(GcpCredential::Instance { endpoint: at() }),
        azure: Some(AzureCredential::Managed {
            client_id: Some("c".into()),
            endpoint: Some((address(&format!("{}/msi", server.url())), Secret::new("x".into()))),
        }),
        ..Credentials::default()
    };
    let runtime = runtime();
    let keys = keys(&runtime, credentials, allowed);
    let google = "projects/p/locations/l/keyRings/r/cryptoKeys/k".to_owned();
    for key in [
        aws_key(None),
        MasterKey::GcpKms { resource_id: google, enc: "AQ==".into() },
        MasterKey::AzureKeyVault {
            vault_url: server.url(),
            name: "k".into(),
            version: String::new(),
            enc: "AQ".into(),
        },
    ] {
        let answer = keys.for_file().unwrap(&key);
        assert!(opened(&answer), "{key:?}: {answer:?}");
    }
    assert_eq!(server.requests(), 8);
}
