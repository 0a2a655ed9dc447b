//! Which service account a token is of, and what the token is called: read from the token itself, which the hub is not sent.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use zeroize::Zeroizing;

/// Where the hub lists and rotates its keys.
pub(super) const KEYS: &str = "/fleet/v1/account-keys";
/// More bytes than any token has that the hub takes.
const MAX_TOKEN: u64 = 16 << 10;

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccountName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl AccountName {
    /// Both become parts of a path.
    fn new(namespace: &str, name: &str) -> Option<Self> {
        let is_sound = |text: &str| {
            let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
            !text.is_empty() && text.len() <= 253 && text.bytes().all(known)
        };
        let sound = is_sound(namespace) && is_sound(name);
        sound.then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl FromStr for AccountName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('/').and_then(|(namespace, name)| Self::new(namespace, name));
        parts.ok_or_else(|| "want NAMESPACE/NAME".to_owned())
    }
}

/// A token in a file.
pub(super) fn read(file: &Path) -> Result<Zeroizing<String>> {
    let what = || format!("read {}", file.display());
    let from: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(file).with_context(what)?)
    };
    let mut text = Zeroizing::new(String::new());
    from.take(MAX_TOKEN + 1).read_to_string(&mut text).with_context(what)?;
    ensure!(text.len() as u64 <= MAX_TOKEN, "{} is longer than any token", file.display());
    Ok(text)
}

/// What a token says of itself: its account, and its claim `jti`. Whether that is true is not looked at: only the hub's own tokens count there.
pub(super) fn named_by(token: &str) -> Result<(AccountName, String)> {
    let claims = token.trim().split('.').nth(1).context("it is not a token of a service account")?;
    let claims = URL_SAFE_NO_PAD.decode(claims).context("its claims are not base64")?;
    let claims: Value = serde_json::from_slice(&claims).context("its claims are not JSON")?;
    let own = &claims["kubernetes.io"];
    let named = own["namespace"].as_str().zip(own["serviceaccount"]["name"].as_str());
    let account = named.and_then(|(namespace, name)| AccountName::new(namespace, name));
    let is_id = |id: &&str| !id.is_empty() && id.bytes().all(|c| c.is_ascii_hexdigit() || c == b'-');
    let id = claims["jti"].as_str().filter(is_id);
    let (account, id) = account.zip(id).context("it is not a token of a service account")?;
    Ok((account, id.to_owned()))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::{Value, json};

    use super::{AccountName, named_by};

    #[test]
    fn a_token_says_whose_it_is() {
        let token = |claims: Value| format!("e30.{}.c2ln\n", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let good = json!({ "jti": "0a-1f", "kubernetes.io": { "namespace": "apps", "serviceaccount": { "name": "robot" } } });
        let (account, id) = named_by(&token(good.clone())).unwrap();
        assert_eq!((account, id.as_str()), ("apps/robot".parse().unwrap(), "0a-1f"));
        for (pointer, bad) in [
            ("/jti", json!("../x")),
            ("/jti", Value::Null),
            ("/kubernetes.io/namespace", json!("a/b")),
            ("/kubernetes.io/serviceaccount/name", json!("")),
        ] {
            let mut claims = good.clone();
            *claims.pointer_mut(pointer).unwrap() = bad;
            assert!(named_by(&token(claims)).is_err(), "{pointer}");
        }
        for bad in ["", "rsdt_00", "a.b", "a.!.c", "a.e30.c"] {
            assert!(named_by(bad).is_err(), "{bad}");
        }
        for bad in ["", "apps", "/robot", "apps/", "apps/a/b", "apps/A", "apps/a%2f"] {
            assert!(bad.parse::<AccountName>().is_err(), "{bad}");
        }
    }
}
