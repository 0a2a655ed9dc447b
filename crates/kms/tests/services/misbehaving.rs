//! Services that misbehave, and credentials that would go astray.

use std::sync::Arc;
use std::time::{Duration, Instant};

use roadstead_kms::{
    Allowed, AwsCredential, AzureCredential, Credentials, GcpCredential, Imported, Keys, Network, Secret,
};
use roadstead_outbound::{Policy, Purpose};
use roadstead_sops::{KeyProvider as _, MasterKey};

use crate::kit::{
    TOKEN, address, ask_vault, ask_vault_by, aws_key, keys, opened, runtime, told, vault_answer,
    vault_credentials, vault_key,
};
use crate::server::{Answer, Server};

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

/// Where a whole network is allowed, what listens where in it is not told.
#[test]
fn of_a_network_less_is_told() {
    let server = Server::start(|_| Answer::nonsense());
    let told = told(ask_vault_by(&server, "kms=127.0.0.0/8"));
    assert!(told.contains("cannot be reached: the connection failed"), "{told}");
}

/// Many files may name it, and each would wait.
#[test]
fn one_that_hung_is_not_asked_again_at_once() {
    let (runtime, server) = (runtime(), Server::start(|_| Answer::hang()));
    let keys = keys(&runtime, vault_credentials(vec![address(&server.url())]), Allowed::default());
    assert!(keys.for_file().unwrap(&vault_key(&server.url())).is_err());
    let started = Instant::now();
    let told = told(keys.for_file().unwrap(&vault_key(&server.url())));
    assert!(told.contains("did not answer a moment ago"), "{told}");
    assert!(started.elapsed() < Duration::from_secs(1) && server.requests() == 1);
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
        let keys = crate::kit::keys(&runtime, credentials, Allowed::default());
        assert!(keys.for_file().unwrap(&key).is_err());
    }
    assert_eq!((right.requests(), wrong.requests()), (1, 0));
}

#[test]
fn the_guard_decides_about_addresses_all_the_same() {
    let (runtime, server) = (runtime(), Server::start(|_| vault_answer()));
    let mut imported = Imported::default();
    imported.credentials = vault_credentials(vec![address(&server.url())]);
    imported.credentials.aws = Some(AwsCredential::Instance { endpoint: None });
    imported.credentials.gcp = Some(GcpCredential::Instance { endpoint: None });
    let network = Arc::new(Network::new(Purpose::Kms, &Arc::new(Policy::default()), None));
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
