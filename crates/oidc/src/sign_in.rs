//! Where people sign in: the operator's file, in which each provider is an issuer whose tokens are trusted already.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use crate::Configuration;
use crate::fields::{self, Problems};

const API_VERSION: &str = "fleet.roadstead.dev/v1alpha1";
const KIND: &str = "SignInConfiguration";
/// So many providers: each is a button.
const MAX_PROVIDERS: usize = 16;
const MAX_SCOPES: usize = 32;
const MAX_TEXT: usize = 256;
const PROMPTS: [&str; 3] = ["consent", "login", "select_account"];

/// Why a file does not say where people sign in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sign-in configuration is not valid: {0}")]
pub struct SignInError(String);

/// Where people sign in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignInConfiguration {
    url: Option<String>,
    providers: Vec<SignInProvider>,
}

/// A provider at which people sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInProvider {
    issuer: String,
    name: String,
    client_id: String,
    client_secret_file: Option<PathBuf>,
    scopes: Option<Vec<String>>,
    prompt: Option<String>,
    command_line: Option<CommandLine>,
}

/// As which client the command line signs people in: it can keep no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// The client's id.
    pub client_id: String,
    /// What it asks for; none where the file does not say.
    pub scopes: Option<Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    url: Option<String>,
    providers: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Provider {
    issuer: String,
    name: String,
    #[serde(rename = "clientID")]
    client_id: String,
    client_secret_file: Option<PathBuf>,
    scopes: Option<Vec<String>>,
    prompt: Option<String>,
    command_line: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Program {
    #[serde(rename = "clientID")]
    client_id: String,
    scopes: Option<Vec<String>>,
}

impl SignInConfiguration {
    /// Reads a file; its issuers are among those that are trusted, and its clients among whom their tokens are for.
    ///
    /// # Errors
    /// [`SignInError`] with all that is wrong, each with the path of the field.
    pub fn parse(bytes: &[u8], trusted: &Configuration) -> Result<Self, SignInError> {
        let mut problems = Problems::default();
        let value = fields::value(bytes).map_err(SignInError)?;
        let file: File = problems.read("the file", value);
        if file.api_version != API_VERSION || file.kind != KIND {
            problems.add("the file", format!("must have apiVersion {API_VERSION} and kind {KIND}"));
        }
        let url = file.url.map(|url| check_url(&url, &mut problems));
        let providers: Vec<Provider> = problems.items("providers", file.providers);
        if providers.is_empty() || providers.len() > MAX_PROVIDERS {
            problems.add("providers", format!("must be 1 to {MAX_PROVIDERS}"));
        }
        let mut made: Vec<SignInProvider> = Vec::new();
        for (index, provider) in providers.into_iter().enumerate().take(MAX_PROVIDERS) {
            let path = format!("providers[{index}]");
            if made.iter().any(|other| other.issuer == provider.issuer) {
                problems.add(&format!("{path}.issuer"), "is already used by another item");
            }
            made.push(check(&path, provider, trusted, &mut problems));
        }
        let read = Self { url, providers: made };
        problems.unless_any(read).map_err(|error| SignInError(error.problems()))
    }

    /// The hub's address as browsers reach it, without a slash at its end, where it is said.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// All of them, in their order.
    #[must_use]
    pub fn providers(&self) -> &[SignInProvider] {
        &self.providers
    }
}

impl SignInProvider {
    /// The URL of the issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// What people call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As which client the hub signs people in.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Where the client's secret is, where it has one.
    #[must_use]
    pub fn client_secret_file(&self) -> Option<&Path> {
        self.client_secret_file.as_deref()
    }

    /// What is asked for; none where the file does not say.
    #[must_use]
    pub fn scopes(&self) -> Option<&[String]> {
        self.scopes.as_deref()
    }

    /// What the provider asks people each time, where it is to.
    #[must_use]
    pub fn prompt(&self) -> Option<&str> {
        self.prompt.as_deref()
    }

    /// As which client the command line signs people in, where it does.
    #[must_use]
    pub fn command_line(&self) -> Option<&CommandLine> {
        self.command_line.as_ref()
    }
}

fn check(path: &str, provider: Provider, trusted: &Configuration, problems: &mut Problems) -> SignInProvider {
    let at = |field: &str| format!("{path}.{field}");
    let Provider { issuer, name, client_id, client_secret_file, scopes, prompt, command_line } = provider;
    let known = trusted.issuers().iter().find(|known| known.url() == issuer);
    if known.is_none() {
        problems.add(&at("issuer"), "must be an issuer of --authentication-config");
    }
    let is_sound = |text: &str| text.len() <= MAX_TEXT && !text.chars().any(char::is_control);
    if !is_sound(&name) {
        problems.add(&at("name"), "must be a text of at most 256 bytes");
    }
    let check_client = |field: &str, id: &str, problems: &mut Problems| {
        if id.is_empty() || !is_sound(id) {
            problems.add(&at(field), "is required, with at most 256 bytes");
        } else if known.is_some_and(|known| !known.audiences().iter().any(|audience| audience == id)) {
            problems.add(&at(field), "must be one of the audiences of the issuer in --authentication-config");
        }
    };
    check_client("clientID", &client_id, problems);
    let program: Option<Program> =
        (!command_line.is_null()).then(|| problems.read(&at("commandLine"), command_line));
    if let Some(program) = &program {
        check_client("commandLine.clientID", &program.client_id, problems);
        check_scopes(&at("commandLine.scopes"), program.scopes.as_deref(), problems);
    }
    check_scopes(&at("scopes"), scopes.as_deref(), problems);
    if prompt.as_deref().is_some_and(|prompt| !PROMPTS.contains(&prompt)) {
        problems.add(&at("prompt"), format!("must be one of {}", PROMPTS.join(", ")));
    }
    SignInProvider {
        name: if name.is_empty() { issuer.clone() } else { name },
        issuer,
        client_id,
        client_secret_file,
        scopes,
        prompt,
        command_line: program.map(|Program { client_id, scopes }| CommandLine { client_id, scopes }),
    }
}

/// Each is as RFC 6749 has it: what is printable, and neither a space nor a quote.
fn check_scopes(path: &str, scopes: Option<&[String]>, problems: &mut Problems) {
    let Some(scopes) = scopes else { return };
    let is_sound = |scope: &String| {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        !scope.is_empty() && scope.len() <= MAX_TEXT && scope.bytes().all(plain)
    };
    if scopes.len() > MAX_SCOPES || !scopes.iter().all(is_sound) {
        problems.add(path, format!("must be at most {MAX_SCOPES} scopes, each without spaces and quotes"));
    } else if !scopes.iter().any(|scope| scope == "openid") {
        problems.add(path, "must have openid among them");
    }
}

fn check_url(text: &str, problems: &mut Problems) -> String {
    match Url::parse(text) {
        Ok(url)
            if url.scheme() == "https"
                && url.path() == "/"
                && url.query().is_none()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none() =>
        {
            url.origin().ascii_serialization()
        }
        Ok(_) => {
            problems.add("url", "must be an https URL with a host and nothing behind it");
            String::new()
        }
        Err(error) => {
            problems.add("url", error);
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trusted() -> Configuration {
        let file = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": { "url": "https://login.test", "audiences": ["hub", "cli"], "audienceMatchPolicy": "MatchAny" },
                "claimMappings": { "username": { "claim": "sub", "prefix": "" } },
            }],
        });
        Configuration::parse(file.to_string().as_bytes()).unwrap()
    }

    fn parse(url: Value, providers: Value) -> Result<SignInConfiguration, SignInError> {
        let mut file = json!({ "apiVersion": API_VERSION, "kind": KIND });
        file["url"] = url;
        file["providers"] = providers;
        SignInConfiguration::parse(file.to_string().as_bytes(), &trusted())
    }

    #[test]
    fn what_is_not_said_is_left_to_the_provider() {
        let read =
            parse(Value::Null, json!([{ "issuer": "https://login.test", "clientID": "hub" }])).unwrap();
        let provider = &read.providers()[0];
        assert_eq!((read.url(), provider.name()), (None, "https://login.test"));
        assert_eq!((provider.scopes(), provider.command_line()), (None, None));
        let read = parse(
            json!("https://Hub.test:443/"),
            json!([{
                "issuer": "https://login.test", "clientID": "hub", "name": "Company", "clientSecretFile": "/secret",
                "scopes": ["openid", "groups"], "prompt": "consent", "commandLine": { "clientID": "cli" },
            }]),
        )
        .unwrap();
        let provider = &read.providers()[0];
        assert_eq!((read.url(), provider.name()), (Some("https://hub.test"), "Company"));
        assert_eq!(provider.command_line().map(|program| program.client_id.as_str()), Some("cli"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let provider = |field: &str, value: Value| {
            let mut provider = json!({ "issuer": "https://login.test", "clientID": "hub" });
            provider[field] = value;
            json!([provider])
        };
        for (url, providers, want) in [
            (json!("http://hub.test"), provider("name", json!("x")), "url: must be an https URL"),
            (json!("https://hub.test/path"), provider("name", json!("x")), "url: must be an https URL"),
            (Value::Null, json!([]), "providers: must be 1 to 16"),
            (
                Value::Null,
                provider("issuer", json!("https://other.test")),
                "providers[0].issuer: must be an issuer",
            ),
            (Value::Null, provider("clientID", json!("")), "providers[0].clientID: is required"),
            (
                Value::Null,
                provider("clientID", json!("other")),
                "providers[0].clientID: must be one of the audiences",
            ),
            (
                Value::Null,
                provider("commandLine", json!({ "clientID": "x" })),
                "commandLine.clientID: must be one of",
            ),
            (Value::Null, provider("scopes", json!(["email"])), "providers[0].scopes: must have openid"),
            (
                Value::Null,
                provider("scopes", json!(["openid", "a b"])),
                "providers[0].scopes: must be at most",
            ),
            (Value::Null, provider("prompt", json!("none")), "providers[0].prompt: must be one of"),
            (Value::Null, provider("clientSecret", json!("x")), "unknown field `clientSecret`"),
        ] {
            let error = parse(url, providers).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
        assert!(SignInConfiguration::parse(b"[]", &trusted()).is_err());
    }
}
