//! Registries of clouds, which are logged in to by what a cloud gives out.

use roadstead_model::Reason;
use roadstead_sources::oci::KnownRegistry;
use roadstead_sources::{FetchError, OciError, OciRequest, Outcome};

use crate::clouds_stand::{OUTSIDE, TokenStand};
use crate::fetch::{fetch, fetched};
use crate::registry::{Fault, Registry, Wants, way_to};

#[tokio::test]
async fn a_password_of_the_cloud_is_kept_and_asked_for_once_more_where_it_is_refused() {
    for wants in [Wants::BasicAs("oauth2accesstoken"), Wants::BearerAs("oauth2accesstoken")] {
        let (registry, stand) = (Registry::start(true, wants).await, TokenStand::new(&["stale", "right"]));
        registry.push("app", "latest", &[("a", "a")]);
        let cloud = Some(stand.identity("gcp", &[registry.address]));
        let known_registry = KnownRegistry::default();
        let request = OciRequest { cloud, known_registry, ..registry.request() };
        let found = fetched(request.clone()).await;
        assert_eq!(stand.server.requests(), 2, "a token that is refused is asked for again, once");
        registry.seen();
        let again = OciRequest { known: Some(found.revision), ..request.clone() };
        assert!(matches!(fetch(again).await.unwrap(), Outcome::Unchanged(_)));
        assert_eq!((stand.server.requests(), registry.seen().len()), (2, 1), "who asks is known");
    }
}

#[tokio::test]
async fn an_identity_that_may_not_pull_is_told_and_shown_nowhere() {
    let registry = Registry::start(true, Wants::BasicAs("oauth2accesstoken")).await;
    let stand = TokenStand::new(&["wr0ng"]);
    registry.push("app", "latest", &[("a", "a")]);
    let cloud = Some(stand.identity("gcp", &[registry.address]));
    let error = fetch(OciRequest { cloud, ..registry.request() }).await.unwrap_err();
    assert!(matches!(error, OciError::CloudDenied { status: 401, .. }), "{error}");
    assert_eq!((error.reason(), stand.server.requests()), (Reason::AuthenticationFailed, 2));
    let told = format!("{error} {error:?}");
    assert!(!told.contains("wr0ng") && !told.contains(OUTSIDE), "{told}");
}

#[tokio::test]
async fn a_registry_that_is_not_of_the_cloud_gets_no_token() {
    let registry = Registry::start(true, Wants::BasicAs("oauth2accesstoken")).await;
    let stand = TokenStand::new(&["right"]);
    registry.push("app", "latest", &[("a", "a")]);
    for cloud in ["gcp", "aws"] {
        let cloud = Some(stand.identity(cloud, &[]));
        let error = fetch(OciRequest { cloud, ..registry.request() }).await.unwrap_err();
        assert_eq!(error.reason(), Reason::InvalidProviderConfiguration, "{error}");
        assert!(error.to_string().contains("--allow-cloud-host"), "{error}");
        assert!(FetchError::Oci(error).is_stalled());
    }
    assert_eq!((stand.server.requests(), registry.seen().len()), (0, 0));
    // Without TLS anyone on the way could read it.
    let plain = Registry::start(false, Wants::BasicAs("oauth2accesstoken")).await;
    let cloud = Some(stand.identity("gcp", &[plain.address]));
    let error = fetch(OciRequest { cloud, ..plain.request() }).await.unwrap_err();
    assert!(matches!(error, OciError::PlainCredentials { .. }), "{error}");
    assert_eq!((stand.server.requests(), plain.seen().len()), (0, 0));
}

#[tokio::test]
async fn layers_elsewhere_are_had_without_the_token() {
    let registry = Registry::start(true, Wants::BasicAs("oauth2accesstoken")).await;
    let (elsewhere, stand) = (Registry::start(true, Wants::Nothing).await, TokenStand::new(&["right"]));
    registry.push("app", "latest", &[("a", "a")]);
    elsewhere.push("app", "latest", &[("a", "a")]);
    registry.fault(Fault::LayersAt(format!("https://{}", elsewhere.address)));
    let both = [&registry, &elsewhere].map(|one| one.authority.as_ref().unwrap().pem()).concat();
    let request = OciRequest {
        cloud: Some(stand.identity("gcp", &[registry.address])),
        ca: Some(both.into_bytes()),
        guard: way_to(&[registry.address, elsewhere.address]),
        ..registry.request()
    };
    fetched(request).await;
    let seen = elsewhere.seen();
    assert!(seen.len() == 1 && seen[0].authorization.is_none(), "{seen:?}");
}
