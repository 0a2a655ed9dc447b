//! What it costs to sign a token, to read one, and to verify one: nanoseconds of each, as a mean. With `seed` it prints a token and the
//! keys that verify it, for `fuzz/seeds/oidc_token`.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::hint::black_box;
use std::time::Instant;

use roadstead_oidc::{Expected, Keys, SigningKey, Token, check};
use serde_json::json;

const TIMES: u32 = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let key = SigningKey::read(&SigningKey::generate()?)?;
    let account = json!({ "name": "robot", "uid": "0f9b3c86-8a53-4d8c-9d9c-5c0b6a1f2e11" });
    let claims = json!({
        "iss": "https://hub.test", "aud": ["https://hub.test"], "iat": 1_800_000_000, "nbf": 1_800_000_000, "exp": 1_800_003_600,
        "jti": "5a1d9a5e-91c6-4bfb-8f8a-3c8d6a70b001", "sub": "system:serviceaccount:apps:robot",
        "kubernetes.io": { "namespace": "apps", "serviceaccount": account },
    });
    let published = json!({ "keys": [key.published()] }).to_string();
    let text = key.sign(&claims)?;
    if std::env::args().nth(1).as_deref() == Some("seed") {
        println!("{}\n{published}", text.as_str());
        return Ok(());
    }
    let keys = Keys::parse(published.as_bytes())?;
    let expected =
        Expected { issuers: &["https://hub.test"], audiences: &["https://hub.test"], now: 1_800_000_001 };
    let mean = |what: &str, work: &dyn Fn() -> bool| {
        let began = Instant::now();
        let good = (0..TIMES).filter(|_| black_box(work())).count();
        println!("{what:32} {:>9} ns ({good} of {TIMES})", (began.elapsed() / TIMES).as_nanos());
    };
    mean("sign", &|| key.sign(&claims).is_ok());
    mean("read", &|| Token::parse(&text).is_ok());
    mean("read, verify and check", &|| {
        let verified = Token::parse(&text).and_then(|token| token.verify(&keys));
        verified.is_ok_and(|claims| check(&claims, &expected).is_ok())
    });
    let cut = &text[..text.len() - 4];
    let forged = format!("{cut}AAAA");
    mean("refuse a forged one", &|| Token::parse(&forged).is_ok_and(|token| token.verify(&keys).is_err()));
    Ok(())
}
