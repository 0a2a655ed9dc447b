//! What a Secret says of a GitHub App.

use jiff::Timestamp;
use roadstead_outbound::Secret;
use roadstead_signing::{CannotSign, Padding, TokenKey};
use serde_json::json;
use url::Url;

/// The keys of a Secret that say so, in the words of `flux create secret githubapp`.
pub const KEYS: [&str; 5] = [ID, KEY, INSTALLATION_ID, INSTALLATION_OWNER, BASE_URL];
const ID: &str = "githubAppID";
const KEY: &str = "githubAppPrivateKey";
const INSTALLATION_ID: &str = "githubAppInstallationID";
const INSTALLATION_OWNER: &str = "githubAppInstallationOwner";
const BASE_URL: &str = "githubAppBaseURL";

/// The API of github.com.
const PUBLIC: &str = "https://api.github.com";
/// Bytes of a base URL.
const MOST_URL: usize = 2_048;
/// Bytes of a private key: one of 8192 bits has less than 7 KiB.
const MOST_KEY: usize = 16 << 10;
/// Characters of an id or a name.
const MOST_NAME: usize = 100;
/// Seconds that a clock may be ahead of GitHub's, which takes nothing that was made in its future.
const EARLIER: i64 = 60;
/// Seconds until what shows who the App is ends: it is used at once, and GitHub takes ten minutes at most.
const LASTS: i64 = 120;

/// Which installation of an App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installation {
    /// By its number.
    Id(u64),
    /// By the organisation or user that has it.
    Owner(String),
}

/// A GitHub App, and which installation of it is used.
#[derive(Clone)]
pub struct App {
    id: String,
    installation: Installation,
    key: Secret,
    api: Url,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("id", &self.id).field("installation", &self.installation).finish()
    }
}

impl App {
    /// Reads what `text` finds under the keys of a Secret.
    ///
    /// # Errors
    /// What is missing or wrong, by its key and without its value.
    pub fn read(text: impl Fn(&str) -> Result<Option<String>, String>) -> Result<Self, String> {
        let given = |key: &str| {
            let text = text(key)?.map(|text| text.trim().to_owned());
            Ok::<_, String>(text.filter(|text| !text.is_empty()))
        };
        let id = given(ID)?.ok_or_else(|| format!("has no {ID}"))?;
        if !is_name(&id) {
            return Err(format!("key {ID} is not the id of a GitHub App"));
        }
        let installation = match (given(INSTALLATION_ID)?, given(INSTALLATION_OWNER)?) {
            (Some(id), None) => {
                let id = id.parse().ok().filter(|id| *id > 0);
                Installation::Id(id.ok_or_else(|| format!("key {INSTALLATION_ID} is not a number"))?)
            }
            (None, Some(owner)) if is_name(&owner) => Installation::Owner(owner),
            (None, Some(_)) => {
                return Err(format!("key {INSTALLATION_OWNER} is not the name of an organisation or user"));
            }
            (Some(_), Some(_)) => {
                return Err(format!(
                    "has both {INSTALLATION_ID} and {INSTALLATION_OWNER}: only one of them is taken"
                ));
            }
            (None, None) => return Err(format!("has neither {INSTALLATION_ID} nor {INSTALLATION_OWNER}")),
        };
        let key = Secret::new(given(KEY)?.ok_or_else(|| format!("has no {KEY}"))?);
        // Exposed to be measured and parsed.
        if key.expose().len() > MOST_KEY {
            return Err(format!("key {KEY} is longer than {MOST_KEY} bytes"));
        }
        TokenKey::from_pem(key.expose()).map_err(|why| format!("key {KEY}: {why}"))?;
        let api = api(given(BASE_URL)?.as_deref().unwrap_or(PUBLIC))?;
        Ok(Self { id, installation, key, api })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Which installation is used.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The API that gives out its tokens.
    #[must_use]
    pub fn api(&self) -> &Url {
        &self.api
    }

    pub(crate) fn key(&self) -> &Secret {
        &self.key
    }

    /// What shows that it is this App, at `now`.
    ///
    /// # Errors
    /// Where the key cannot sign.
    pub fn assertion(&self, now: Timestamp) -> Result<Secret, CannotSign> {
        // Exposed to be parsed.
        let key = TokenKey::from_pem(self.key.expose())?;
        let now = now.as_second();
        let header = json!({ "alg": "RS256", "typ": "JWT" });
        let claims = json!({ "iss": self.id, "iat": now - EARLIER, "exp": now + LASTS });
        key.sign(&header, &claims, Padding::Pkcs1)
    }
}

/// Whether it can be the id of an App, or the login of who has it.
fn is_name(text: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= MOST_NAME && text.bytes().all(fine) && !text.starts_with('.')
}

/// The URL of an API, to which what shows who the App is may be sent.
fn api(text: &str) -> Result<Url, String> {
    let wrong = || {
        format!(
            "key {BASE_URL} is not the URL of a GitHub API: want https://HOST/api/v3, without credentials or query"
        )
    };
    if text.len() > MOST_URL {
        return Err(wrong());
    }
    let url = Url::parse(text).map_err(|_| wrong())?;
    let is_plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if url.scheme() == "https" && url.host_str().is_some_and(|host| !host.is_empty()) && is_plain {
        Ok(url)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The same key in both forms, which is published in RFC 7515.
    const PKCS8: &str = include_str!("../../kms/tests/rfc7515-a2.pem");
    const PKCS1: &str = include_str!("../tests/rfc7515-a2-pkcs1.pem");

    fn read(changes: &[(&str, &str)]) -> Result<App, String> {
        let mut keys = BTreeMap::from([(ID, "7"), (INSTALLATION_ID, "42"), (KEY, PKCS8)]);
        for (key, value) in changes {
            if value.is_empty() {
                keys.remove(key);
            } else {
                keys.insert(key, value);
            }
        }
        App::read(|key| Ok(keys.get(key).map(|text| (*text).to_owned())))
    }

    pub(crate) fn app(api: &str) -> App {
        read(&[(BASE_URL, api)]).unwrap()
    }

    #[test]
    fn what_a_secret_says() {
        let app = read(&[(ID, " 7\n")]).unwrap();
        assert_eq!((app.id(), app.installation()), ("7", &Installation::Id(42)));
        assert_eq!(app.api().as_str(), "https://api.github.com/");
        let owned = read(&[(INSTALLATION_ID, ""), (INSTALLATION_OWNER, "fleet-org")]).unwrap();
        assert_eq!(owned.installation(), &Installation::Owner("fleet-org".to_owned()));
        assert_eq!(read(&[(BASE_URL, "https://ghe.test/api/v3")]).unwrap().api().path(), "/api/v3");
        let shown = format!("{app:?}");
        assert!(!shown.contains("PRIVATE") && !shown.contains("MII"), "{shown}");
    }

    #[test]
    fn it_shows_the_same_by_both_forms_of_its_key() {
        let now: Timestamp = "2026-11-29T09:00:00Z".parse().unwrap();
        let shown = |key| read(&[(KEY, key)]).unwrap().assertion(now).unwrap();
        let token = shown(PKCS8);
        assert_eq!(token, shown(PKCS1));
        let claims = token.expose().split('.').nth(1).unwrap();
        let claims =
            base64::engine::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, claims).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        let now = now.as_second();
        assert_eq!(claims, json!({ "iss": "7", "iat": now - 60, "exp": now + 120 }));
    }

    #[test]
    fn what_is_missing_or_wrong_is_told_by_its_key() {
        for (changes, told) in [
            (vec![(ID, "")], "has no githubAppID"),
            (vec![(ID, "7/../8")], "githubAppID"),
            (vec![(KEY, "")], "has no githubAppPrivateKey"),
            (vec![(KEY, "CANARY")], "githubAppPrivateKey: not a valid RSA private key of 2048"),
            (vec![(INSTALLATION_ID, "")], "has neither"),
            (vec![(INSTALLATION_OWNER, "o")], "has both"),
            (vec![(INSTALLATION_ID, "-4")], "is not a number"),
            (vec![(INSTALLATION_ID, ""), (INSTALLATION_OWNER, "../x")], "githubAppInstallationOwner"),
            (vec![(BASE_URL, "http://ghe.test/api/v3")], "githubAppBaseURL"),
            (vec![(BASE_URL, "https://a:CANARY@ghe.test/")], "githubAppBaseURL"),
            (vec![(BASE_URL, "https://ghe.test/?CANARY")], "githubAppBaseURL"),
        ] {
            let why = read(&changes).unwrap_err();
            assert!(why.contains(told) && !why.contains("CANARY"), "{changes:?}: {why}");
        }
        for other in [include_str!("../tests/rsa-1024.pem"), include_str!("../tests/ec.pem")] {
            let why = read(&[(KEY, other)]).unwrap_err();
            assert!(why.contains(KEY) && why.contains("RSA"), "{why}");
        }
        let long = "x".repeat(MOST_KEY + 1);
        assert!(read(&[(KEY, &long)]).unwrap_err().contains("longer"));
    }
}
