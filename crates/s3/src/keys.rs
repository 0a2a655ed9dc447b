//! Who asks: the operator's access key, or what a cloud gives out.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use roadstead_cloud::aws::{Identities, Place as Region, Sessions};
use roadstead_cloud::call::{Budget, Calls};
use roadstead_cloud::{Address, AwsCredential, Network, ServiceError};
use roadstead_outbound::Secret;
use roadstead_signing::AwsKeys;

/// Of a file with an access key.
const FILE_BYTES: u64 = 64 << 10;

/// How a bucket is told who asks.
pub enum Credential {
    /// By an access key in a file, which is read for each request: it may be replaced.
    File(CredentialFile),
    /// By what the environment or the machine gives out.
    Cloud {
        /// What it is given out for.
        credential: AwsCredential,
        /// Where STS is, if not in its own place.
        sts: Option<Address>,
        /// The way there.
        network: Arc<Network>,
    },
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "Credential(file)",
            Self::Cloud { .. } => "Credential(cloud)",
        })
    }
}

/// A file as AWS's tools have it: `aws_access_key_id = …` and `aws_secret_access_key = …` in a line each, and perhaps
/// `aws_session_token = …`; of several sections the first.
#[derive(Debug, Clone)]
pub struct CredentialFile(PathBuf);

impl CredentialFile {
    /// The file at this path, which is not read yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// What is in it.
    ///
    /// # Errors
    /// It cannot be read, or has no access key.
    pub fn read(&self) -> Result<AwsKeys, String> {
        let shown = self.0.display();
        let file = std::fs::File::open(&self.0).map_err(|error| format!("read {shown}: {error}"))?;
        let mut text = zeroize::Zeroizing::new(String::new());
        file.take(FILE_BYTES).read_to_string(&mut text).map_err(|error| format!("read {shown}: {error}"))?;
        parse(&text).ok_or_else(|| {
            format!("{shown} does not have the lines aws_access_key_id = … and aws_secret_access_key = …")
        })
    }
}

fn parse(text: &str) -> Option<AwsKeys> {
    let (mut id, mut secret, mut session, mut sections) = (None, None, None, 0);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            sections += 1;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| sections < 2) else { continue };
        let value = Some(value.trim()).filter(|value| !value.is_empty());
        match name.trim() {
            "aws_access_key_id" => id = value,
            "aws_secret_access_key" => secret = value,
            "aws_session_token" => session = value,
            _ => {}
        }
    }
    let secret_of = |text: &str| Secret::new(text.to_owned());
    Some(AwsKeys { id: id?.to_owned(), secret: secret_of(secret?), session: session.map(secret_of) })
}

/// A credential, and what was given out for it.
pub(crate) struct Keys {
    pub(crate) credential: Credential,
    sessions: Sessions,
    /// Those who want the same wait for the first.
    turn: tokio::sync::Mutex<()>,
}

impl Keys {
    pub(crate) fn new(credential: Credential) -> Self {
        Self { credential, sessions: Sessions::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Forgets what was given out. Says whether that may change anything.
    pub(crate) fn forget(&self) -> bool {
        self.sessions.clear();
        matches!(self.credential, Credential::Cloud { .. })
    }

    pub(crate) async fn get(&self, region: &str) -> Result<AwsKeys, ServiceError> {
        match &self.credential {
            Credential::File(file) => {
                let file = file.clone();
                let read = tokio::task::spawn_blocking(move || file.read()).await;
                read.map_err(|error| ServiceError::Credential(error.to_string()))?
                    .map_err(ServiceError::Credential)
            }
            Credential::Cloud { credential, sts, network } => {
                let _turn = self.turn.lock().await;
                let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
                let (budget, place) = (Budget::new(None), Region { region, suffix: Some(suffix) });
                let calls = Calls::new(network, &budget)?;
                let identities =
                    Identities { place, sts: sts.as_ref(), sessions: &self.sessions, calls: &calls };
                identities.own(credential).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_as_aws_has_them() {
        let keys = parse(
            "[default]\naws_access_key_id = A\naws_secret_access_key=s=/+\n[other]\naws_access_key_id=B\n",
        );
        let keys = keys.unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.expose()), ("A", "s=/+"));
        assert!(keys.session.is_none());
        let keys = parse("aws_session_token=t\naws_secret_access_key=s\naws_access_key_id=A").unwrap();
        assert_eq!(keys.session.unwrap().expose(), "t");
        for bad in [
            "",
            "A:s",
            "aws_access_key_id=A",
            "aws_access_key_id=\naws_secret_access_key=s",
            "[a]\n[b]\naws_access_key_id=A\naws_secret_access_key=s",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
