//! Who asks: how requests are signed, and what credentials are changed for.

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use roadstead_outbound::{ClientIdentity, Secret};
use roadstead_sources::bucket::{AzureProof, BucketLogin, BucketStore, GoogleKey, LdapLogin, Why};
use roadstead_sources::{AttemptError, BucketRequest};
use roadstead_test_gitserver::Authority;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::fetch::{fetch, fetched};
use crate::server::{Fault, Server};

const KEY: &str = include_str!("../../../kms/tests/rfc7515-a2.pem");

fn key(password: &str) -> BucketLogin {
    BucketLogin::AccessKey { id: "AKID".to_owned(), secret: password.into() }
}

#[tokio::test]
async fn a_region_that_a_server_names_is_signed_for_and_remembered() {
    let server = Server::start(BucketStore::S3, false).await;
    server.put("a", "a");
    server.fault(Fault::Region("eu-central-9".to_owned()));
    let request = BucketRequest { login: key("hunter2"), ..server.request() };
    fetched(request.clone()).await;
    let seen = server.seen();
    assert!(seen[0].authorization().contains("/us-east-1/s3/aws4_request"), "{seen:?}");
    assert!(seen[1..].iter().all(|seen| seen.authorization().contains("/eu-central-9/s3/aws4_request")));
    assert!(seen.iter().all(|seen| seen.headers.contains_key("x-amz-content-sha256")));
    fetched(request).await;
    assert!(server.seen()[0].authorization().contains("/eu-central-9/"));
    server.fault(Fault::Region("../evil".to_owned()));
    let error = fetch(BucketRequest { login: key("hunter2"), ..server.request() }).await.unwrap_err();
    assert!(error.to_string().contains("AuthorizationHeaderMalformed"), "{error}");
}

/// A name and a password are changed for keys, over TLS with the service's own authority, and once for many fetches.
#[tokio::test]
async fn ldap_passwords_are_changed_for_keys_of_a_session() {
    let (server, service) =
        (Server::start(BucketStore::S3, false).await, Server::start(BucketStore::S3, true).await);
    server.put("a", "a");
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3_600);
    service.token(&format!(
        "<AssumeRoleWithLDAPIdentityResponse xmlns=\"x\"><AssumeRoleWithLDAPIdentityResult><Credentials><AccessKeyId>SESSION\
         </AccessKeyId><SecretAccessKey>k</SecretAccessKey><Expiration>{until}</Expiration><SessionToken>t&amp;t</SessionToken>\
         </Credentials></AssumeRoleWithLDAPIdentityResult></AssumeRoleWithLDAPIdentityResponse>"
    ));
    let ldap = |ca: Option<&Authority>| {
        BucketLogin::Ldap(Box::new(LdapLogin {
            endpoint: format!("{}/token", service.url()),
            username: "ann".to_owned(),
            password: "hunter 2".into(),
            ca: ca.map(|authority| authority.pem().as_bytes().to_vec()),
            identity: None,
        }))
    };
    let guard = crate::server::way_to(&[server.address, service.address]);
    let request = |ca| BucketRequest { login: ldap(ca), guard: guard.clone(), ..server.request() };
    let error = fetch(request(None)).await.unwrap_err();
    assert!(error.to_string().starts_with("failed to get credentials from `https://127.0.0.1"), "{error}");
    let trusting = request(service.authority.as_ref());
    fetched(trusting.clone()).await;
    let asked = service.seen();
    assert_eq!(asked.len(), 1);
    let form = "Action=AssumeRoleWithLDAPIdentity&Version=2011-06-15&LDAPUsername=ann&LDAPPassword=hunter+2";
    assert_eq!((asked[0].what.as_str(), asked[0].body.as_str()), ("POST /token", form));
    for seen in server.seen() {
        assert!(seen.authorization().starts_with("AWS4-HMAC-SHA256 Credential=SESSION/"), "{seen:?}");
        assert!(seen.authorization().contains("x-amz-security-token"));
        assert_eq!(seen.headers["x-amz-security-token"], "t&t");
    }
    fetched(trusting.clone()).await;
    assert!(service.seen().is_empty(), "the session is used again");
    // Sessions that were taken back are asked for again, once.
    server.fault(Fault::Status(403, String::new()));
    fetch(trusting).await.unwrap_err();
    assert_eq!(service.seen().len(), 1);
    // What listens at an address that is not public is not told, however slow it is, and a redirect is not followed with a password.
    service.fault(Fault::Hang);
    let network: roadstead_outbound::Rule = "127.0.0.0/8".parse().unwrap();
    let policy = roadstead_outbound::Policy::new(vec![network]);
    let coarse =
        roadstead_outbound::Guard::new(std::sync::Arc::new(policy), roadstead_outbound::Purpose::Bucket);
    let slow = std::time::Duration::from_millis(500);
    let insecure =
        BucketRequest { guard: coarse, timeout: slow, plain_http_credentials: true, ..request(None) };
    let BucketLogin::Ldap(mut plain) = ldap(None) else { panic!() };
    let silent = Server::start(BucketStore::S3, false).await;
    silent.fault(Fault::Hang);
    plain.endpoint = format!("{}/token", silent.url());
    let error = fetch(BucketRequest { login: BucketLogin::Ldap(plain), ..insecure }).await.unwrap_err();
    assert!(matches!(*error.why, Why::Attempt(AttemptError::NotReached { .. })), "{error}");
    service.fault(Fault::Status(307, String::new()));
    let error = fetch(request(service.authority.as_ref())).await.unwrap_err();
    assert!(matches!(*error.why, Why::RedirectRefused { .. }), "{error}");
    service.fault(Fault::None);
    service.token("");
    let error = fetch(request(service.authority.as_ref())).await.unwrap_err();
    assert_eq!(error.reason().as_str(), "AuthenticationFailed", "{error}");
    assert!(!error.to_string().contains("hunter"), "{error}");
}

#[tokio::test]
async fn a_client_is_known_by_its_certificate() {
    roadstead_test_gitserver::install_crypto();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    let sign = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let verifier = rustls::server::WebPkiClientVerifier::builder(roots.into()).build().unwrap();
    let (certificate, key) = sign("127.0.0.1");
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let server = Server::with(BucketStore::S3, Some(config.into()), None).await;
    server.put("a", "a");
    let (certificate, key) = sign("client");
    let identity =
        |key: String| ClientIdentity { certificates: certificate.pem().into_bytes(), key: Secret::new(key) };
    let nobody = BucketRequest { insecure: false, ca: Some(ca.pem().into_bytes()), ..server.request() };
    assert!(fetch(nobody.clone()).await.is_err());
    fetched(BucketRequest { identity: Some(identity(key.serialize_pem())), ..nobody.clone() }).await;
    let unusable = BucketRequest { identity: Some(identity("hunter2".to_owned())), ..nobody };
    let error = fetch(unusable).await.unwrap_err();
    assert_eq!(error.reason().as_str(), "AuthenticationFailed", "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test]
async fn passwords_and_tokens_are_not_sent_in_the_clear() {
    let server = Server::start(BucketStore::S3, false).await;
    let ldap = LdapLogin {
        endpoint: format!("{}/token", server.url()),
        username: "ann".to_owned(),
        password: "hunter2".into(),
        ca: None,
        identity: None,
    };
    let azure = Server::start(BucketStore::Azure, false).await;
    for request in [
        BucketRequest { login: BucketLogin::Ldap(Box::new(ldap)), ..server.request() },
        BucketRequest { login: BucketLogin::AzureSas("sig=hunter2".into()), ..azure.request() },
    ] {
        let error = fetch(request).await.unwrap_err();
        assert!(matches!(*error.why, Why::PlainCredentials { .. }), "{error}");
        assert_eq!(error.reason().as_str(), "AuthenticationFailed");
    }
    assert!(server.seen().is_empty() && azure.seen().is_empty());
}

#[tokio::test]
async fn a_service_account_of_google_is_shown_by_a_signed_token() {
    let server = Server::start(BucketStore::Gcs, true).await;
    server.put("a", "a");
    server.token("{\"access_token\":\"given\",\"expires_in\":3600,\"token_type\":\"Bearer\"}");
    server.wants("Bearer given");
    let token_uri = format!("{}/token", server.url());
    let account = GoogleKey {
        email: "reader@project".to_owned(),
        key_id: "k1".to_owned(),
        private_key: KEY.into(),
        token_uri: token_uri.clone(),
    };
    let request = BucketRequest { login: BucketLogin::GoogleAccount(account.clone()), ..server.request() };
    fetched(request.clone()).await;
    fetched(request).await;
    let asked: Vec<_> = server.seen().into_iter().filter(|seen| seen.what.starts_with("POST")).collect();
    assert_eq!(asked.len(), 1, "a token is used again");
    let form: Vec<(String, String)> =
        url::form_urlencoded::parse(asked[0].body.as_bytes()).into_owned().collect();
    assert_eq!(form[0], ("grant_type".to_owned(), "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned()));
    let parts: Vec<&str> = form[1].1.split('.').collect();
    let json =
        |part: &str| -> Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap() };
    assert_eq!(json(parts[0])["kid"], "k1");
    let claims = json(parts[1]);
    assert_eq!(
        (claims["iss"].as_str(), claims["aud"].as_str()),
        (Some("reader@project"), Some(token_uri.as_str()))
    );
    assert_eq!(claims["scope"], "https://www.googleapis.com/auth/devstorage.read_only");
    // The public half of the key says who signed.
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from_pem_slice(KEY.as_bytes());
    let pair = match private {
        Ok(key) => aws_lc_rs::signature::RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
        Err(_) => {
            let key = rustls::pki_types::PrivatePkcs1KeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
            aws_lc_rs::signature::RsaKeyPair::from_der(key.secret_pkcs1_der())
        }
    };
    let public = aws_lc_rs::signature::KeyPair::public_key(&pair.unwrap()).as_ref().to_vec();
    let signature = URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
    let text = format!("{}.{}", parts[0], parts[1]);
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &public).verify(text.as_bytes(), &signature).unwrap();
    // Refused.
    server.token("");
    let login = BucketLogin::GoogleAccount(account);
    let error = fetch(BucketRequest { login, ..server.request() }).await.unwrap_err();
    assert_eq!(error.reason().as_str(), "AuthenticationFailed", "{error}");
    let broken =
        GoogleKey { email: String::new(), key_id: String::new(), private_key: "hunter2".into(), token_uri };
    let login = BucketLogin::GoogleAccount(broken);
    let error = fetch(BucketRequest { login, ..server.request() }).await.unwrap_err();
    assert!(
        error.to_string().contains("not a valid RSA private key") && !error.to_string().contains("hunter2")
    );
}

#[tokio::test]
async fn applications_and_keys_of_azure() {
    let server = Server::start(BucketStore::Azure, true).await;
    server.put("a", "a");
    server.token("{\"access_token\":\"given\"}");
    server.wants("Bearer given");
    let certificate = format!("{KEY}{}", include_str!("../../../kms/tests/azure-client.pem"));
    for (proof, field) in [
        (AzureProof::Secret("hunter2".into()), "client_secret=hunter2"),
        (
            AzureProof::Certificate { pem: certificate.as_str().into(), send_chain: true },
            "client_assertion_type=",
        ),
    ] {
        let login = BucketLogin::AzureApplication {
            tenant: "tenant-1".to_owned(),
            client_id: "client-1".to_owned(),
            proof,
            authority: Some(server.url()),
        };
        fetched(BucketRequest { login, ..server.request() }).await;
        let seen = server.seen();
        assert_eq!(seen[0].what, "POST /tenant-1/oauth2/v2.0/token");
        let start = "grant_type=client_credentials&client_id=client-1&scope=https%3A%2F%2Fstorage.azure.com%2F.default";
        assert!(seen[0].body.starts_with(start) && seen[0].body.contains(field), "{}", seen[0].body);
        assert!(seen[1..].iter().all(|seen| seen.headers.contains_key("x-ms-version")));
    }
    let open = Server::start(BucketStore::Azure, true).await;
    open.put("a", "a");
    let sas = BucketLogin::AzureSas("?sv=2021&sig=a%2Bb%3D".into());
    fetched(BucketRequest { login: sas, ..open.request() }).await;
    for seen in open.seen() {
        assert!(
            seen.what.ends_with("sv=2021&sig=a%2Bb%3D") && seen.authorization().is_empty(),
            "{}",
            seen.what
        );
    }
    let login = BucketLogin::AzureAccountKey(STANDARD.encode("key").as_str().into());
    fetched(BucketRequest { login, ..open.request() }).await;
    assert!(open.seen().iter().all(|seen| seen.authorization().starts_with("SharedKey 127:")));
    let login = BucketLogin::AzureAccountKey("hunter2!".into());
    let error = fetch(BucketRequest { login, ..open.request() }).await.unwrap_err();
    assert_eq!(error.to_string(), "the account key is not base64");
}
