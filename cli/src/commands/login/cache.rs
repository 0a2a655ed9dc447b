//! What `roadstead login` keeps of a sign-in: a file that only its owner reads, and that one process at a time renews.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use roadstead_oidc::Token;
use roadstead_oidc::code::{Answer, IdToken, NoTokens};
use serde::{Deserialize, Serialize};

use super::provider::{Place, Provider};

const MAX_FILE: u64 = 256 * 1024;
/// A token that ends sooner is renewed, in seconds: a request with it takes some time.
const LEAD: i64 = 30;

/// A sign-in. Does not print.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Signed {
    pub(super) issuer: String,
    pub(super) client_id: String,
    pub(super) certificate_authority: Option<String>,
    /// Not in files of versions before it was asked for.
    #[serde(default)]
    pub(super) discovery_url: Option<String>,
    pub(super) id_token: String,
    pub(super) refresh_token: Option<String>,
}

impl Signed {
    /// What its token says of itself.
    pub(super) fn said(&self) -> Result<IdToken> {
        let token = Token::parse(&self.id_token).context("read the ID token")?;
        Ok(Answer { client_id: &self.client_id, nonce: None, subject: None }.check(&token)?)
    }
}

/// Where the sign-in to a hub is kept.
pub(super) fn path(server: &str, issuer: &str) -> Result<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = match state {
        Some(state) => state,
        None => std::env::home_dir().context("find the home folder")?.join(".local/state"),
    };
    let name = roadstead_model::Digest::of(format!("{server}\n{issuer}").as_bytes()).to_string();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    Ok(state.join("roadstead/sign-in").join(format!("{name}.json")))
}

/// Writes it whole or not at all.
pub(super) fn write(path: &Path, signed: &Signed) -> Result<()> {
    let folder = path.parent().context("a folder")?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("make the folder {}", folder.display()))?;
    let text = zeroize::Zeroizing::new(serde_json::to_vec(signed).context("write a sign-in")?);
    replace(path, &text)
}

/// Puts a file that only its owner reads in the place of what is there.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let what = || format!("write {}", path.display());
    let mut name = path.file_name().context("a file")?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let written = || -> std::io::Result<()> {
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    written().inspect_err(|_| drop(fs::remove_file(&beside))).with_context(what)
}

fn read(path: &Path) -> Result<Signed> {
    let what = || format!("read {}: sign in with roadstead login", path.display());
    let mut text = zeroize::Zeroizing::new(Vec::new());
    File::open(path).with_context(what)?.take(MAX_FILE + 1).read_to_end(&mut text).with_context(what)?;
    if text.len() as u64 > MAX_FILE {
        bail!("{} is too large: sign in again with roadstead login", path.display());
    }
    // The parser's message may quote the tokens.
    serde_json::from_slice(&text)
        .map_err(|_| anyhow::anyhow!("{} is damaged: sign in again with roadstead login", path.display()))
}

pub(super) fn remove(path: &Path) -> Result<()> {
    for path in [path.to_owned(), path.with_extension("lock")] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A token that is good, and until when, in seconds since 1970. Of processes that want one at once, one renews it.
pub(crate) fn cached_token(path: &Path) -> Result<(String, i64)> {
    let signed = read(path)?;
    if let Some(good) = good(&signed)? {
        return Ok(good);
    }
    let lock = path.with_extension("lock");
    let what = || format!("lock {}", lock.display());
    let lock_file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock)
        .with_context(what)?;
    lock_file.lock().with_context(what)?;
    // Another process may have renewed it meanwhile.
    let signed = read(path)?;
    if let Some(good) = good(&signed)? {
        return Ok(good);
    }
    let renewed = renew(signed)?;
    write(path, &renewed)?;
    let expires = renewed.said()?.expires;
    Ok((renewed.id_token, expires))
}

fn good(signed: &Signed) -> Result<Option<(String, i64)>> {
    let expires = signed.said()?.expires;
    Ok((expires > now() + LEAD).then(|| (signed.id_token.clone(), expires)))
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn renew(before: Signed) -> Result<Signed> {
    let again = "your sign-in has ended: sign in again with roadstead login";
    let Some(refresh) = before.refresh_token.as_deref() else { bail!("{again}") };
    crate::tls::install();
    let (ca, discovery_url) = (before.certificate_authority.as_deref(), before.discovery_url.as_deref());
    let provider = Provider::find(&Place { issuer: &before.issuer, ca, discovery_url })?;
    let tokens = match provider.renewed(&before.client_id, refresh)? {
        Ok(tokens) => tokens,
        Err(NoTokens::Refused(why)) => bail!("{again} (the provider says: {why})"),
        Err(error) => return Err(error.into()),
    };
    let id = tokens.id.context("the provider gave no ID token")?;
    let subject = before.said()?.subject;
    let token = Token::parse(&id).context("read the ID token")?;
    if token.issuer() != before.issuer {
        bail!("the ID token is from another issuer");
    }
    Answer { client_id: &before.client_id, nonce: None, subject: Some(&subject) }.check(&token)?;
    let refresh_token = tokens.refresh.map(|token| token.to_string()).or(before.refresh_token);
    Ok(Signed { id_token: id.to_string(), refresh_token, ..before })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use base64::Engine as _;
    use serde_json::json;

    use super::*;

    fn signed(expires: i64) -> Signed {
        let part = |value: &serde_json::Value| {
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string())
        };
        let claims = json!({ "iss": "https://login.test", "aud": "cli", "sub": "7", "exp": expires });
        Signed {
            issuer: "https://login.test".to_owned(),
            client_id: "cli".to_owned(),
            certificate_authority: None,
            discovery_url: None,
            id_token: format!("{}.{}.AA", part(&json!({ "alg": "ES256" })), part(&claims)),
            refresh_token: None,
        }
    }

    #[test]
    fn a_good_token_is_given_from_a_file_that_only_its_owner_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.json");
        let kept = signed(now() + 600);
        write(&path, &kept).unwrap();
        write(&path, &kept).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(folder.path().join("a")).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 1, "something is left beside it");
        assert_eq!(cached_token(&path).unwrap().0, kept.id_token);
        // One that has ended, without anything to renew it with.
        write(&path, &signed(now() + 5)).unwrap();
        assert!(cached_token(&path).unwrap_err().to_string().contains("sign in again"));
        fs::write(&path, "secret").unwrap();
        let error = format!("{:#}", cached_token(&path).unwrap_err());
        assert!(error.contains("damaged") && !error.contains("secret"), "{error}");
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(cached_token(&path).is_err());
    }
}
