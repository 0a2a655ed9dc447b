//! Who packed a chart: what `helm package --sign` writes beside it, an OpenPGP message in the clear. Pure.
//!
//! It is read as strictly as it is written: there is nothing before and after the signed text that somebody could take for a part of it,
//! and what is read of it are the very lines that were signed. Nothing of it is looked at before its signature is good.

use roadstead_kustomize::value::Value;
use roadstead_model::Digest;
use serde::{Deserialize, Serialize};

use super::chart::{Metadata, strict_map};
use crate::git::TrustedKeys;
use crate::tree::shown;

const BEGIN: &str = "-----BEGIN PGP SIGNED MESSAGE-----";
const SIGNATURE: &str = "-----BEGIN PGP SIGNATURE-----";
const END: &str = "-----END PGP SIGNATURE-----";
/// The only header that such a message may have: what else stood there would be unsigned text that looks signed.
const HEADER: &str = "Hash: ";
/// What is between the chart's own description and the digests of files.
const DIVIDER: &str = "...";

/// What is to be signed, and by whom.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Wanted {
    /// One of these is enough.
    pub(super) keys: TrustedKeys,
    /// The chart and the version that are asked for: otherwise an older one could be served under a newer one's name.
    pub(super) name: String,
    pub(super) version: String,
    /// What its file is called; none in a registry, where files have no names, and it is the one that Helm gives it.
    pub(super) file: Option<String>,
    /// The digest of what came.
    pub(super) digest: Digest,
    /// Seconds since 1970.
    pub(super) now: u64,
}

/// What somebody who is trusted says.
pub(super) struct Proof {
    name: String,
    version: String,
    /// The key.
    pub(super) signer: String,
}

impl Wanted {
    /// What is signed, if it is what was wanted; or why it does not count.
    pub(super) fn proof(&self, bytes: &[u8]) -> Result<Proof, String> {
        let odd = |why: &str| format!("its provenance is not what `helm package --sign` writes: {why}");
        let text = std::str::from_utf8(bytes).map_err(|_| odd("it is not text"))?;
        let message = Message::parse(text).map_err(odd)?;
        let signer = self.keys.verify_text(message.signature, &message.lines.join("\r\n"), self.now);
        let signer = signer.map_err(|why| format!("its provenance does not count: {why}"))?;
        let (chart, files) = message.parts().map_err(odd)?;
        let chart = Metadata::parse(chart.as_bytes()).map_err(|why| odd(&why))?;
        if chart.name != self.name || chart.version != self.version {
            return Err(format!(
                "what was signed is chart '{}' in version '{}', and not chart '{}' in version '{}'",
                shown(&chart.name),
                shown(&chart.version),
                shown(&self.name),
                shown(&self.version)
            ));
        }
        let file = match &self.file {
            Some(file) => file.clone(),
            None => format!("{}-{}.tgz", chart.name, chart.version),
        };
        let signed = digest_of(&files, &file)?;
        if signed != self.digest {
            let (came, file) = (self.digest, shown(&file));
            return Err(format!(
                "sha256 sum does not match for '{file}': what came has {came}, and {signed} was signed"
            ));
        }
        Ok(Proof { name: chart.name, version: chart.version, signer })
    }
}

impl Proof {
    /// Whether it is of the chart that was unpacked, whatever else that is called elsewhere.
    pub(super) fn is_of(&self, chart: &Metadata) -> Result<(), String> {
        if (&self.name, &self.version) == (&chart.name, &chart.version) {
            return Ok(());
        }
        Err(format!(
            "what was signed is chart '{}' in version '{}', and the file has chart '{}' in version '{}'",
            shown(&self.name),
            shown(&self.version),
            shown(&chart.name),
            shown(&chart.version)
        ))
    }
}

/// The digest of a file in a text that lists them.
fn digest_of(files: &str, file: &str) -> Result<Digest, String> {
    let all = strict_map(files.as_bytes());
    let all = all.map_err(|why| format!("the digests in its provenance cannot be read: {why}"))?;
    let Some(Value::Map(files)) = all.get("files") else {
        return Err("its provenance has no digests of files".to_owned());
    };
    let Some(found) = files.get(file) else {
        let file = shown(file);
        return Err(format!("provenance does not contain a SHA for a file named '{file}'"));
    };
    let text = match found {
        Value::String(text) => text.to_string(),
        _ => String::new(),
    };
    let digest = text.parse();
    digest.map_err(|_| format!("the digest of '{}' in its provenance is none of SHA-256", shown(file)))
}

/// An OpenPGP message in the clear.
struct Message<'a> {
    /// The lines that are signed, as they are signed: without escapes, and without blanks at their ends.
    lines: Vec<&'a str>,
    /// The armoured signature.
    signature: &'a str,
}

impl<'a> Message<'a> {
    fn parse(text: &'a str) -> Result<Self, &'static str> {
        let mut reading = Reading { text, at: 0 };
        if reading.line()? != Some(BEGIN) {
            return Err("it does not begin with a signed message");
        }
        while let Some(header) = reading.line()?.filter(|line| !line.is_empty()) {
            if !header.starts_with(HEADER) {
                return Err("its signed message has a header that is not signed");
            }
        }
        let mut lines = Vec::new();
        let begin = loop {
            let begin = reading.at;
            let line = reading.line()?.ok_or("it has no signature")?;
            match line.strip_prefix("- ") {
                Some(escaped) => lines.push(escaped),
                None if line == SIGNATURE => break begin,
                None if line.starts_with('-') => return Err("a line in it begins with a dash"),
                None => lines.push(line),
            }
        };
        loop {
            let line = reading.line()?.ok_or("its signature has no end")?;
            if line == END {
                break;
            }
            if line.starts_with('-') {
                return Err("its signature is not one");
            }
        }
        let signature = &text[begin..reading.at];
        match text[reading.at..].trim_ascii() {
            "" => Ok(Self { lines, signature }),
            _ => Err("something follows its signature"),
        }
    }

    /// The chart's own description, and the digests of files.
    fn parts(&self) -> Result<(String, String), &'static str> {
        let mut parts = self.lines.split(|line| *line == DIVIDER);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(chart), Some(files), None) => Ok((chart.join("\n"), files.join("\n"))),
            _ => Err("it has not two parts"),
        }
    }
}

/// A text that is read line by line.
struct Reading<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reading<'a> {
    /// The next line without its end, and without the blanks before that, which no signature is over.
    fn line(&mut self) -> Result<Option<&'a str>, &'static str> {
        let rest = &self.text[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let (line, length) = rest.find('\n').map_or((rest, rest.len()), |end| (&rest[..end], end + 1));
        self.at += length;
        let line = line.strip_suffix('\r').unwrap_or(line).trim_end_matches([' ', '\t']);
        // Programs do not agree on whether a line ends there.
        if line.contains('\r') { Err("a line in it has a carriage return") } else { Ok(Some(line)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIGNED: &str = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nname: app\nlist:  \n- - a\n\n...\nfiles:\n  a: b\n\
                          -----BEGIN PGP SIGNATURE-----\n\nabc\n=d\n-----END PGP SIGNATURE-----\n";

    #[test]
    fn the_lines_that_were_signed_are_the_ones_that_are_read() {
        for text in [SIGNED.to_owned(), SIGNED.replace('\n', "\r\n"), format!("{SIGNED}\n \n")] {
            let message = Message::parse(&text).unwrap();
            assert_eq!(message.lines, ["name: app", "list:", "- a", "", "...", "files:", "  a: b"]);
            assert!(message.signature.starts_with(SIGNATURE) && message.signature.trim_end().ends_with(END));
            let (chart, files) = message.parts().unwrap();
            assert_eq!((chart.as_str(), files.as_str()), ("name: app\nlist:\n- a\n", "files:\n  a: b"));
        }
    }

    #[test]
    fn what_is_not_signed_has_no_place_in_it() {
        for (from, to) in [
            ("-----BEGIN PGP SIGNED", "name: other\n-----BEGIN PGP SIGNED"),
            ("-----BEGIN PGP SIGNED", "\n-----BEGIN PGP SIGNED"),
            ("-----END PGP SIGNATURE-----\n", "-----END PGP SIGNATURE-----\nname: other\n"),
            ("-----END PGP SIGNATURE-----\n", ""),
            ("-----BEGIN PGP SIGNATURE-----\n", ""),
            ("Hash: SHA512", "Comment: app"),
            ("Hash: SHA512", "name: other"),
            ("- - a", "-----BEGIN PGP SIGNED MESSAGE-----"),
            ("- - a", "-a"),
            ("abc", "-----BEGIN PGP SIGNATURE-----"),
            ("name: app", "name: app\rname: other"),
            ("name: app", "name: app\r \n"),
        ] {
            assert!(SIGNED.contains(from));
            assert!(Message::parse(&SIGNED.replacen(from, to, 1)).is_err(), "{from:?} {to:?}");
        }
        for cut in 0..SIGNED.len() - 1 {
            assert!(Message::parse(&SIGNED[..cut]).is_err(), "{cut}");
        }
        for parts in [SIGNED.replace("...\n", ""), SIGNED.replace("- - a", "...")] {
            assert!(Message::parse(&parts).unwrap().parts().is_err(), "{parts}");
        }
    }

    #[test]
    fn digests_of_files() {
        let hex = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";
        let text = |files: &str| format!("files:\n{files}");
        let both = text(&format!("  a.tgz: sha256:{hex}\n  b.tgz: sha256:{}\n", "0".repeat(64)));
        assert_eq!(digest_of(&both, "a.tgz").unwrap().hex(), hex);
        assert_eq!(digest_of(&both, "b.tgz").unwrap().hex(), "0".repeat(64));
        for (files, said) in [
            (both.clone(), "'c.tgz'"),
            (text("  c.tgz: sha256:12\n"), "none of SHA-256"),
            (text(&format!("  c.tgz: sha1:{hex}\n")), "none of SHA-256"),
            (text("  c.tgz: [a]\n"), "none of SHA-256"),
            (text(&format!("  c.tgz: sha256:{hex}\n  c.tgz: sha256:{hex}\n")), "cannot be read"),
            ("files: []\n".to_owned(), "no digests"),
            (String::new(), "no digests"),
        ] {
            let why = digest_of(&files, "c.tgz").unwrap_err();
            assert!(why.contains(said), "{files}: {why}");
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_there_nothing_counts_without_a_key(text in "(-|\\PC|\r|\n|-----BEGIN PGP SIGNED MESSAGE-----\n|-----BEGIN PGP SIGNATURE-----\n){0,40}") {
            let wanted = Wanted {
                keys: TrustedKeys::default(),
                name: "app".to_owned(),
                version: "1.0.0".to_owned(),
                file: None,
                digest: Digest::of(b""),
                now: 0,
            };
            prop_assert!(wanted.proof(text.as_bytes()).is_err());
        }
    }
}
