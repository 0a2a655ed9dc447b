//! Somebody who signs with the real `gpg`.

use std::ffi::OsString;
use std::process::{Command, Stdio};

/// Somebody's keys, in a folder of their own.
pub(crate) struct Signer {
    pub(crate) home: tempfile::TempDir,
}

impl Signer {
    pub(crate) fn new() -> Self {
        // GnuPG's agent has a socket there, whose path must be short.
        let home = tempfile::Builder::new().prefix("gpg").tempdir_in("/tmp").unwrap();
        Self { home }
    }

    pub(crate) fn gpg(&self, args: &[&str]) -> String {
        let mut command = Command::new("gpg");
        command.args(["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]).args(args);
        let output = command.env("GNUPGHOME", self.home.path()).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes a key; gives its fingerprint.
    pub(crate) fn make(&self, args: &[&str]) -> String {
        self.gpg(args);
        let list = self.gpg(&["--list-keys", "--with-colons"]);
        let last = list.lines().rev().find(|line| line.starts_with("pub:")).unwrap();
        let after = list.lines().skip_while(|line| *line != last).find(|line| line.starts_with("fpr:"));
        after.unwrap().split(':').nth(9).unwrap().to_owned()
    }

    pub(crate) fn public(&self, key: &str) -> String {
        self.gpg(&["--armor", "--export", key])
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("GNUPGHOME", self.home.path().as_os_str().to_owned())]
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        // Its agent ends with its folder, but sooner when told.
        let mut command = Command::new("gpgconf");
        let _ = command.args(["--kill", "all"]).env("GNUPGHOME", self.home.path()).status();
    }
}
