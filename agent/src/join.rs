//! The join manifest: what a new agent needs to find its hub, to trust it, and to be let in once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;
use roadstead_model::Digest;
use zeroize::Zeroizing;

/// The `type` of a join Secret.
pub const JOIN_TYPE: &str = "fleet.roadstead.dev/join";

/// How large a join manifest may be.
const MAX_MANIFEST_BYTES: u64 = 256 * 1024;

/// A single-use secret word that lets an agent in. Does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// The word itself, for the one request that it is for.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What to keep of a token so as to know it again.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What a join Secret says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// The hub's API port, as `https://host:port`.
    pub hub: String,
    /// The hub's link port, as `host:port`.
    pub link: String,
    /// The CA of the hub's server certificates, PEM; nothing else is trusted.
    pub ca: String,
    /// Lets the agent in once.
    pub token: Token,
    /// The name of the Cluster on the hub.
    pub cluster: String,
}

/// Why a join manifest is not usable.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The file cannot be read.
    #[error("read the join manifest {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is too large to be one.
    #[error("the join manifest {} has more than {MAX_MANIFEST_BYTES} bytes: is it the right file?", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a Secret in YAML or JSON.
    #[error("the join manifest {} is not a Kubernetes Secret in YAML or JSON: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        why: String,
    },
    /// A Secret of another type.
    #[error("the join Secret is of type `{found}`, want `{JOIN_TYPE}`")]
    WrongType {
        /// Its type.
        found: String,
    },
    /// A key is missing, empty or not text.
    #[error("the join Secret has no usable key `{key}`: {why}")]
    Key {
        /// The key.
        key: &'static str,
        /// What is wrong.
        why: &'static str,
    },
}

impl Join {
    /// From a manifest in a file.
    ///
    /// # Errors
    /// [`JoinError`] names the file, or the key within the Secret.
    pub fn from_file(path: &Path) -> Result<Self, JoinError> {
        let read = |source| JoinError::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(read)?.len() > MAX_MANIFEST_BYTES {
            return Err(JoinError::TooLarge { path: path.to_owned() });
        }
        let text = Zeroizing::new(std::fs::read_to_string(path).map_err(read)?);
        // A parser's own message may quote the text, token and all: only the place is taken from it.
        let secret: Secret = match serde_json::from_str(&text) {
            Ok(secret) => secret,
            Err(_) => serde_saphyr::from_str(&text).map_err(|_| JoinError::Malformed {
                path: path.to_owned(),
                why: "it is neither valid YAML nor valid JSON".to_owned(),
            })?,
        };
        Self::from_secret(&secret)
    }

    /// From a Secret, wherever it was read.
    ///
    /// # Errors
    /// [`JoinError`] names the key.
    pub fn from_secret(secret: &Secret) -> Result<Self, JoinError> {
        match secret.type_.as_deref() {
            Some(JOIN_TYPE) => {}
            found => return Err(JoinError::WrongType { found: found.unwrap_or("Opaque").to_owned() }),
        }
        let empty = BTreeMap::new();
        let plain = secret.string_data.as_ref().unwrap_or(&empty);
        let get = |key: &'static str| -> Result<String, JoinError> {
            let text = match (plain.get(key), secret.data.as_ref().and_then(|data| data.get(key))) {
                (Some(text), _) => text.clone(),
                (None, Some(bytes)) => String::from_utf8(bytes.0.clone())
                    .map_err(|_| JoinError::Key { key, why: "it is not UTF-8 text" })?,
                (None, None) => return Err(JoinError::Key { key, why: "it is missing" }),
            };
            let text = text.trim().to_owned();
            if text.is_empty() { Err(JoinError::Key { key, why: "it is empty" }) } else { Ok(text) }
        };
        let join = Self {
            hub: get("hub")?,
            link: get("link")?,
            ca: get("ca.crt")?,
            token: Token(Zeroizing::new(get("token")?)),
            cluster: get("cluster")?,
        };
        let hub: Option<http::Uri> = join.hub.parse().ok();
        if hub.is_none_or(|hub| hub.scheme_str() != Some("https") || hub.host().is_none()) {
            return Err(JoinError::Key { key: "hub", why: "it is not an https URL" });
        }
        check_link(&join.link).map_err(|why| JoinError::Key { key: "link", why })?;
        Ok(join)
    }
}

/// Whether `link` is `host:port`, and no more.
///
/// # Errors
/// What is wrong with it.
pub fn check_link(link: &str) -> Result<(), &'static str> {
    let authority: Option<http::uri::Authority> = link.parse().ok();
    match authority {
        Some(authority) if authority.port_u16().is_some() && !link.contains('@') => Ok(()),
        _ => Err("it is not host:port"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Join, JoinError};
    use std::io::Write as _;

    const MANIFEST: &str = "
apiVersion: v1
kind: Secret
metadata: {name: roadstead-join, namespace: roadstead-system}
type: fleet.roadstead.dev/join
stringData:
  hub: https://hub.example:8443
  link: hub.example:8444
  ca.crt: |
    -----BEGIN CERTIFICATE-----
    -----END CERTIFICATE-----
  token: s3cret-word
data:
  cluster: ZWRnZS0x
";

    fn read(text: &str) -> Result<Join, JoinError> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        Join::from_file(file.path())
    }

    #[test]
    fn a_manifest_is_read_from_yaml_and_json() {
        let join = read(MANIFEST).expect("sound");
        assert_eq!((join.cluster.as_str(), join.token.expose()), ("edge-1", "s3cret-word"));
        let json = r#"{"apiVersion":"v1","kind":"Secret","type":"fleet.roadstead.dev/join","stringData":
            {"hub":"https://h:1","link":"h:2","ca.crt":"PEM","token":"t","cluster":"edge-1"}}"#;
        assert_eq!(read(json).expect("sound").link, "h:2");
    }

    #[test]
    fn what_is_wrong_is_named_and_the_token_is_not() {
        for (from, to, want) in [
            ("https://hub", "http://hub", "no usable key `hub`: it is not an https URL"),
            ("link: hub.example:8444", "link: hub.example", "no usable key `link`: it is not host:port"),
            ("  token: s3cret-word\n", "", "no usable key `token`: it is missing"),
            ("cluster: ZWRnZS0x", "cluster: ''", "no usable key `cluster`: it is empty"),
            ("dev/join", "dev/other", "is of type `fleet.roadstead.dev/other`"),
            ("stringData:", "stringData: [", "is not a Kubernetes Secret"),
        ] {
            let error = read(&MANIFEST.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(want), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(!format!("{:?}", read(MANIFEST)).contains("s3cret"));
    }
}
