//! Services that hang, flood, throttle, redirect and refuse.

use std::time::{Duration, Instant};

use roadstead_cloud::ServiceError;

use crate::identities::{Stand, TOKEN, clouds, until};
use crate::server::{Answer, Server};

const CLOUDS: [&str; 3] = ["aws", "azure", "gcp"];

async fn refused(stand: &Stand, cloud: &str) -> ServiceError {
    let asked = stand.identity(cloud, "uid@1").registry(&stand.url(), until()).await;
    let error = asked.unwrap_err();
    let told = format!("{error} {error:?}");
    assert!(!told.contains(TOKEN) && !told.contains("c4n4ry") && !told.contains("session"), "{told}");
    error
}

#[tokio::test]
async fn a_gigabyte_is_not_taken() {
    for chunked in [false, true] {
        let stand = Stand::new(move |_| Answer::flood(chunked));
        for cloud in CLOUDS {
            let error = refused(&stand, cloud).await;
            assert!(matches!(error, ServiceError::TooLarge(_)), "{cloud}: {error}");
        }
        let sent = tokio::task::spawn_blocking(move || stand.server.sent_after_end()).await.unwrap();
        assert!(sent < 64 << 20, "{sent}");
    }
}

#[tokio::test]
async fn what_hangs_holds_nobody_longer_than_they_have() {
    let stand = Stand::new(|_| Answer::hang());
    let began = Instant::now();
    let soon = tokio::time::Instant::now() + Duration::from_millis(500);
    let error = stand.identity("aws", "uid@1").registry(&stand.url(), soon).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(error.may_pass(), "{error}");
}

#[tokio::test]
async fn what_throttles_is_asked_again_and_what_refuses_is_not() {
    let stand =
        Stand::new(|request| if request.number == 0 { Answer::json(503, "{}") } else { clouds(request) });
    for cloud in CLOUDS {
        stand.identity(cloud, "uid@1").registry(&stand.url(), until()).await.unwrap();
    }
    let stand = Stand::new(|_| Answer::json(403, "<E><Code>AccessDenied</Code></E>"));
    let error = refused(&stand, "aws").await;
    assert!(error.to_string().contains("HTTP 403, AccessDenied"), "{error}");
    assert_eq!(stand.server.requests(), 1);
}

/// Wherever it leads, nothing that was shown to one is shown to another.
#[tokio::test]
async fn no_redirect_is_followed() {
    let other = Server::start(|_| Answer::json(200, "{}"));
    let elsewhere = format!("{}/v1/token", other.url());
    for status in [301, 302, 307, 308] {
        let to = elsewhere.clone();
        let stand = Stand::new(move |_| Answer::json(status, "").with_header("location", &to));
        for cloud in CLOUDS {
            let error = refused(&stand, cloud).await;
            assert!(matches!(error, ServiceError::Redirect { .. }), "{cloud}: {error}");
        }
    }
    assert_eq!(other.requests(), 0);
}

#[tokio::test]
async fn nonsense_is_no_token() {
    let stand = Stand::new(|request| match request.number {
        0 => Answer::nonsense(),
        1 => Answer::drip(),
        _ => Answer::json(200, r#"{"x":"s.c4n4ry-t0k3n"}"#),
    });
    let soon = tokio::time::Instant::now() + Duration::from_secs(2);
    for cloud in ["azure", "azure", "gcp"] {
        let asked = stand.identity(cloud, "uid@1").registry(&stand.url(), soon).await;
        assert!(asked.is_err(), "{cloud}");
    }
    let stand = Stand::new(|_| Answer::json(200, "[]"));
    for cloud in CLOUDS {
        let error = refused(&stand, cloud).await;
        assert!(matches!(error, ServiceError::Malformed(_)), "{cloud}: {error}");
    }
}

/// Other purposes' entries let nobody to token services and metadata, and the other way round.
#[tokio::test]
async fn the_operator_lets_it_there_by_an_entry_of_its_own() {
    let stand = Stand::by("oci=127.0.0.1", clouds);
    let error = refused(&stand, "aws").await;
    assert!(error.to_string().contains("--allow-network cloud=127.0.0.1"), "{error}");
    assert_eq!(stand.server.requests(), 0);
}
