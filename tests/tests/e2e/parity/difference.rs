//! What differs between two hands, and what of it is meant.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Context as _, Result, ensure};

use super::told::Told;

/// A difference that is meant. Texts may have `*` for anything.
pub(crate) struct Difference {
    /// `SCENARIO/STAGE`.
    pub(crate) at: &'static str,
    /// A field of the status, or `Event`.
    pub(crate) what: &'static str,
    /// What Flux tells; empty for nothing.
    pub(crate) flux: &'static str,
    /// What the hub tells; empty for nothing.
    pub(crate) hub: &'static str,
    /// Why.
    pub(crate) why: &'static str,
}

/// Something that was seen to differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    at: String,
    what: String,
    flux: String,
    hub: String,
}

impl Finding {
    /// All that differs.
    pub(crate) fn all(at: &str, flux: &Told, hub: &Told) -> Vec<Self> {
        let new = |what: &str, flux: &str, hub: &str| Self {
            at: at.to_owned(),
            what: what.to_owned(),
            flux: flux.to_owned(),
            hub: hub.to_owned(),
        };
        let of = |told: &Told, key: &str| told.fields.get(key).cloned().unwrap_or_default();
        let mut keys: Vec<&String> = flux.fields.keys().chain(hub.fields.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        let fields = keys.into_iter().map(|key| new(key, &of(flux, key), &of(hub, key)));
        // Who tells nothing has no name.
        let is_known =
            |one: &Self| one.what != "events.source" || !one.flux.is_empty() && !one.hub.is_empty();
        let mut all: Vec<Self> = fields.filter(|one| one.flux != one.hub && is_known(one)).collect();
        all.extend(flux.events.difference(&hub.events).map(|event| new("Event", event, "")));
        all.extend(hub.events.difference(&flux.events).map(|event| new("Event", "", event)));
        all
    }

    /// The index of the listed difference that this is.
    pub(crate) fn listed(&self, list: &[Difference]) -> Option<usize> {
        list.iter().position(|known| {
            let pairs = [
                (known.at, &self.at),
                (known.what, &self.what),
                (known.flux, &self.flux),
                (known.hub, &self.hub),
            ];
            pairs.iter().all(|(pattern, text)| is_like(pattern, text))
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} | {} | Flux: {:?} | hub: {:?}", self.at, self.what, self.flux, self.hub)
    }
}

/// Whether a text is like a pattern, in which `*` stands for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(begin) else { return false };
    text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| is_like(rest, &text[at..]))
}

/// Fails where a scenario has failed, where something differs that is not listed, or where something that is listed was not seen to.
pub(crate) fn judge(failed: &[String], findings: &[Finding], list: &[Difference]) -> Result<()> {
    let unlisted: BTreeSet<String> =
        findings.iter().filter(|one| one.listed(list).is_none()).map(ToString::to_string).collect();
    let seen: BTreeSet<usize> = findings.iter().filter_map(|one| one.listed(list)).collect();
    let unseen = list.iter().enumerate().filter(|(index, _)| !seen.contains(index));
    let unseen: Vec<String> = unseen
        .map(|(_, known)| format!("{} {} {:?} {:?}", known.at, known.what, known.flux, known.hub))
        .collect();
    ensure!(
        failed.is_empty() && unlisted.is_empty() && unseen.is_empty(),
        "scenarios that failed:\n{}\ndifferences that are not listed:\n{}\nlisted differences that are none any more:\n{}",
        failed.join("\n"),
        unlisted.into_iter().collect::<Vec<_>>().join("\n"),
        unseen.join("\n")
    );
    Ok(())
}

/// The list for people, as a table.
pub(crate) fn table(list: &[Difference]) -> String {
    let mut text = "| stage | what | Flux | hub | why |\n|---|---|---|---|---|\n".to_owned();
    let code = |text: &str| match text {
        "" => "nothing".to_owned(),
        text => format!("`{}`", text.replace('*', "…").replace('|', "\\|").replace('\n', " ")),
    };
    for Difference { at, what, flux, hub, why } in list {
        let at = if *at == "*" { "all".to_owned() } else { code(at) };
        let row = [at, code(what), code(flux), code(hub), (*why).to_owned()].join(" | ");
        text.push_str(&format!("| {row} |\n"));
    }
    text
}

/// Fails where a document of `docs` does not say what it should; with `INSTA_UPDATE=always` it is written first.
pub(crate) fn holds(name: &str, text: &str) -> Result<()> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(&path, text)?;
    }
    let written = std::fs::read_to_string(&path).with_context(|| format!("read docs/{name}"))?;
    ensure!(written == text, "docs/{name} is another one: run this with INSTA_UPDATE=always");
    Ok(())
}

#[test]
fn a_star_stands_for_anything() {
    assert!(is_like("a*c", "abc") && is_like("*", "") && is_like("a*", "a") && is_like("*b*", "abc"));
    assert!(!is_like("a*c", "abd") && !is_like("", "a") && !is_like("ab", "a"));
}
