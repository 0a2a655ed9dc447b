//! Where the database is. Its URL may hold a password: it is given where others on the machine do not see it.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use roadstead_hub_store::Transport;
use zeroize::Zeroizing;

use crate::args::DatabaseArgs;

/// A longer file holds no URL.
const MAX_BYTES: u64 = 16 * 1024;

/// The URL that was given; none where there is none.
pub(crate) fn url(args: &DatabaseArgs) -> Result<Option<Zeroizing<String>>> {
    let url = match (&args.database_url, &args.database_url_file) {
        (_, Some(path)) => return read(path).map(Some),
        (None, None) => return Ok(None),
        (Some(url), None) => url,
    };
    if shows_password(std::env::args_os(), url) {
        tracing::warn!(
            "the database password is on the command line, where other users of this machine can see it: give the URL with \
             --database-url-file or in the variable ROADSTEAD_DATABASE_URL"
        );
    }
    Ok(Some(Zeroizing::new(url.clone())))
}

/// What the way to a database that is not on this machine is to be.
pub(crate) fn transport(args: &DatabaseArgs) -> Transport {
    if args.allow_insecure_database { Transport::Insecure } else { Transport::Verified }
}

fn read(path: &Path) -> Result<Zeroizing<String>> {
    use std::io::Read as _;
    let mut text = Zeroizing::new(String::new());
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text))
        .with_context(|| format!("read the database's URL from {}", path.display()))?;
    let url = text.trim();
    if url.is_empty() {
        bail!("the file {} is empty: want postgres://…", path.display());
    }
    Ok(Zeroizing::new(url.to_owned()))
}

/// Whether a URL with a password is among the arguments of the process.
fn shows_password(mut arguments: impl Iterator<Item = OsString>, url: &str) -> bool {
    let authority =
        url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let has_password = user.contains(':') || url.contains("password=");
    has_password && arguments.any(|argument| argument.to_string_lossy().contains(url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_on_the_command_line_is_noticed() {
        let shown = |arguments: &[&str], url: &str| shows_password(arguments.iter().map(OsString::from), url);
        let url = "postgres://hub:hush@db.example/roadstead";
        assert!(shown(&["roadstead-hub", "--database-url", url], url));
        assert!(shown(&["roadstead-hub", &format!("--database-url={url}")], url));
        // By the environment.
        assert!(!shown(&["roadstead-hub"], url));
        for url in
            ["postgres://hub@db.example/roadstead", "postgres:///x?host=/run/a:b", "postgres://db:5432/x"]
        {
            assert!(!shown(&["roadstead-hub", "--database-url", url], url), "{url}");
        }
        let url = "postgres://db/x?password=hush";
        assert!(shown(&["roadstead-hub", "--database-url", url], url));
    }

    #[test]
    fn a_file_with_a_url() {
        let folder = std::env::temp_dir().join(format!("roadstead-database-url-{}", std::process::id()));
        std::fs::write(&folder, " postgres://db/x\n").unwrap();
        assert_eq!(*read(&folder).unwrap(), "postgres://db/x");
        std::fs::write(&folder, "\n").unwrap();
        assert!(read(&folder).is_err());
        std::fs::remove_file(&folder).unwrap();
        assert!(read(&folder).is_err());
    }
}
