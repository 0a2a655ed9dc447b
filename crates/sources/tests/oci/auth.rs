//! Who asks: passwords, tokens and certificates, and where they go.

use roadstead_outbound::{ClientIdentity, Secret};
use roadstead_sources::oci::{KnownRegistry, RegistryLogin, RegistryLogins};
use roadstead_sources::{AttemptError, OciError, OciRequest, Outcome};

use crate::fetch::{fetch, fetched};
use crate::registry::{Fault, Registry, Wants, login, way_to};

#[tokio::test]
async fn passwords_and_tokens_let_in_and_are_kept_for_the_next_look() {
    for wants in [Wants::Basic, Wants::Bearer { anonymous: false }] {
        let registry = Registry::start(true, wants).await;
        registry.push("app", "latest", &[("a", "a")]);
        let known_registry = KnownRegistry::default();
        let right = OciRequest { logins: login("right"), known_registry, ..registry.request() };
        let found = fetched(right.clone()).await;
        registry.seen();
        let again = OciRequest { known: Some(found.revision.clone()), ..right };
        assert!(matches!(fetch(again).await.unwrap(), Outcome::Unchanged(_)));
        assert_eq!(registry.seen().len(), 1, "who asks is known");
        for (logins, had) in [(login("wr0ng"), true), (RegistryLogins::default(), false)] {
            let error = fetch(OciRequest { logins, ..registry.request() }).await.unwrap_err();
            let OciError::Auth { had_credentials, .. } = &error else { panic!("{error}") };
            assert_eq!(*had_credentials, had);
            assert!(!error.to_string().contains("wr0ng"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_token_is_asked_for_this_repository_whatever_the_challenge_says() {
    let registry = Registry::start(true, Wants::Bearer { anonymous: true }).await;
    registry.push("app", "latest", &[("a", "a")]);
    fetched(registry.request()).await;
    let seen = registry.seen();
    let token = seen.iter().find(|seen| seen.what.contains("/token")).unwrap();
    assert_eq!(token.what, "GET /token?service=here&scope=repository%3Aapp%3Apull");
    assert_eq!(token.authorization, None);
    registry.wants(Wants::Identity);
    let logins = RegistryLogins::everywhere(RegistryLogin::Identity("identity".into()));
    fetched(OciRequest { logins, ..registry.request() }).await;
}

#[tokio::test]
async fn layers_elsewhere_are_had_without_credentials() {
    let registry = Registry::start(true, Wants::Basic).await;
    let elsewhere = Registry::start(true, Wants::Nothing).await;
    registry.push("app", "latest", &[("a", "a")]);
    elsewhere.push("app", "latest", &[("a", "a")]);
    registry.fault(Fault::LayersAt(format!("https://{}", elsewhere.address)));
    let both = [&registry, &elsewhere].map(|one| one.authority.as_ref().unwrap().pem()).concat();
    let request = OciRequest {
        logins: login("right"),
        ca: Some(both.into_bytes()),
        guard: way_to(&[registry.address, elsewhere.address]),
        ..registry.request()
    };
    fetched(request.clone()).await;
    let seen = elsewhere.seen();
    assert!(seen.len() == 1 && seen[0].authorization.is_none(), "{seen:?}");
    // One that asks who it is there learns nothing.
    elsewhere.wants(Wants::Basic);
    assert!(matches!(fetch(request.clone()).await, Err(OciError::Auth { .. })));
    assert!(elsewhere.seen().iter().all(|seen| seen.authorization.is_none()));
    // Nor is it reached where the operator does not allow it, or in the clear.
    let narrow = OciRequest { guard: way_to(&[registry.address]), ..request.clone() };
    let error = fetch(narrow).await.unwrap_err();
    assert!(error.to_string().contains("--allow-network oci="), "{error}");
    registry.fault(Fault::LayersAt(format!("http://{}", elsewhere.address)));
    assert!(matches!(fetch(request).await, Err(OciError::Attempt(AttemptError::RedirectRefused { .. }))));
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn credentials_leave_neither_tls_nor_the_registry() {
    let service = Registry::start(false, Wants::Bearer { anonymous: true }).await;
    let realm = format!("http://{}/token", service.address);
    // A registry with TLS names a service without.
    let registry = Registry::start(true, Wants::BearerOf(realm.clone())).await;
    registry.push("app", "latest", &[("a", "a")]);
    let request = OciRequest {
        logins: login("right"),
        guard: way_to(&[registry.address, service.address]),
        ..registry.request()
    };
    assert!(matches!(fetch(request).await, Err(OciError::TokenService { .. })));
    // A registry without TLS names another server.
    let plain = Registry::start(false, Wants::BearerOf(realm)).await;
    plain.push("app", "latest", &[("a", "a")]);
    let request = OciRequest {
        logins: login("right"),
        guard: way_to(&[plain.address, service.address]),
        ..plain.request()
    };
    assert!(matches!(fetch(request.clone()).await, Err(OciError::PlainCredentials { .. })));
    assert!(plain.seen().is_empty(), "nothing is asked in the clear");
    let allowed = OciRequest { plain_http_credentials: true, ..request };
    assert!(matches!(fetch(allowed).await, Err(OciError::TokenService { .. })));
    assert!(service.seen().is_empty(), "the token service was asked");
}

#[tokio::test]
async fn servers_are_trusted_by_their_authority_and_clients_by_their_certificate() {
    let registry = Registry::start(true, Wants::Nothing).await;
    registry.push("app", "latest", &[("a", "a")]);
    let error = fetch(OciRequest { ca: None, ..registry.request() }).await.unwrap_err();
    assert!(matches!(error, OciError::Attempt(AttemptError::Untrusted { .. })), "{error}");
    assert!(registry.seen().is_empty());

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
    let strict = Registry::with(Some(config.into()), None, Wants::Nothing).await;
    strict.push("app", "latest", &[("a", "a")]);
    let (certificate, key) = sign("client");
    let identity =
        |key: String| ClientIdentity { certificates: certificate.pem().into_bytes(), key: Secret::new(key) };
    let nobody = OciRequest { insecure: false, ca: Some(ca.pem().into_bytes()), ..strict.request() };
    assert!(fetch(nobody.clone()).await.is_err());
    fetched(OciRequest { identity: Some(identity(key.serialize_pem())), ..nobody.clone() }).await;
    let error =
        fetch(OciRequest { identity: Some(identity("hunter2".to_owned())), ..nobody }).await.unwrap_err();
    let OciError::CertificatesUnusable { .. } = &error else { panic!("{error}") };
    assert!(!error.to_string().contains("hunter2"), "{error}");
}
