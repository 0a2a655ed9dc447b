//! Finding `initdb` and `postgres`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::PostgresError;

/// The oldest major version that the hub's migrations run on.
const MINIMUM: u32 = 14;

/// A folder with the programs of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binaries {
    pub(crate) dir: PathBuf,
    pub(crate) version: u32,
}

impl Binaries {
    pub(crate) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }

    pub(crate) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    /// The newest version installed or, for data that is there already, the one that made it.
    pub(crate) fn find(data: Option<(&Path, u32)>) -> Result<Self, PostgresError> {
        let named = std::env::var_os("ROADSTEAD_POSTGRES_BIN").map(PathBuf::from);
        let folders = match &named {
            Some(folder) => vec![folder.clone()],
            None => candidates(),
        };
        let searched = match &named {
            Some(folder) => format!("ROADSTEAD_POSTGRES_BIN is {}", folder.display()),
            None => "looked in the usual folders, at pg_config and in PATH".to_owned(),
        };
        choose(folders.iter().filter_map(|folder| Self::probe(folder)).collect(), searched, data)
    }

    /// The version of the programs in `dir`, where it has them.
    fn probe(dir: &Path) -> Option<Self> {
        if !dir.join("initdb").is_file() {
            return None;
        }
        let output =
            Command::new(dir.join("postgres")).arg("--version").stderr(Stdio::null()).output().ok()?;
        let version = major(&String::from_utf8_lossy(&output.stdout))?;
        Some(Self { dir: dir.to_owned(), version })
    }
}

/// Decides between what was found.
fn choose(
    mut found: Vec<Binaries>,
    searched: String,
    data: Option<(&Path, u32)>,
) -> Result<Binaries, PostgresError> {
    // Stable, so that of the same version the first folder wins.
    found.sort_by_key(|binaries| std::cmp::Reverse(binaries.version));
    if let Some((dir, wanted)) = data {
        if let Some(binaries) = found.iter().find(|binaries| binaries.version == wanted) {
            return Ok(binaries.clone());
        }
        if !found.is_empty() {
            let found =
                found.iter().map(|binaries| binaries.version.to_string()).collect::<Vec<_>>().join(", ");
            return Err(PostgresError::OtherVersion { dir: dir.to_owned(), data: wanted, found });
        }
    }
    let mut searched = searched;
    match found.into_iter().next() {
        Some(newest) if newest.version >= MINIMUM => Ok(newest),
        Some(old) => {
            let _ = write!(searched, "; version {} in {} is too old", old.version, old.dir.display());
            Err(PostgresError::NotInstalled { minimum: MINIMUM, searched })
        }
        None => Err(PostgresError::NotInstalled { minimum: MINIMUM, searched }),
    }
}

/// Where distributions put the programs: most keep the server's own out of PATH.
fn candidates() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let parents =
        ["/usr/lib/postgresql", "/usr/lib64/postgresql", "/opt/homebrew/opt", "/usr/local/opt", "/usr"];
    for parent in parents {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let versioned = name.starts_with(|c: char| c.is_ascii_digit()) && parent.ends_with("/postgresql");
            if versioned || name.starts_with("postgresql@") || name.starts_with("pgsql-") {
                folders.push(entry.path().join("bin"));
            }
        }
    }
    if let Ok(output) = Command::new("pg_config").arg("--bindir").stderr(Stdio::null()).output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    folders
}

/// The major version in `postgres (PostgreSQL) 15.18 (Debian …)`.
fn major(text: &str) -> Option<u32> {
    let rest = text.split_once("(PostgreSQL) ")?.1;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binaries(version: u32) -> Binaries {
        Binaries { dir: PathBuf::from(format!("/pg/{version}")), version }
    }

    #[test]
    fn reads_the_major_version() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major("mysqld 8"), None);
    }

    #[test]
    fn takes_the_newest_and_for_data_its_own() {
        let found = vec![binaries(15), binaries(17), binaries(16)];
        assert_eq!(choose(found.clone(), String::new(), None).unwrap().version, 17);
        let data = Path::new("/data");
        assert_eq!(choose(found.clone(), String::new(), Some((data, 15))).unwrap().version, 15);
        let error = choose(found, String::new(), Some((data, 14))).unwrap_err().to_string();
        assert!(error.contains("created by PostgreSQL 14") && error.contains("17, 16, 15"), "{error}");
    }

    #[test]
    fn says_what_installs_it() {
        for found in [Vec::new(), vec![binaries(9)]] {
            let error = choose(found, "looked".to_owned(), None).unwrap_err().to_string();
            for hint in
                ["apt-get install postgresql", "dnf install", "brew install", "ROADSTEAD_POSTGRES_BIN"]
            {
                assert!(error.contains(hint), "{hint} is missing in: {error}");
            }
        }
    }
}
