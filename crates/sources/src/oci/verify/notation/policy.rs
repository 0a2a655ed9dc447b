//! Trust policies of version 1.0: for which repositories which signatures count. They come from a Secret, and are checked as a
//! whole before anything of them is used.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::name::{self, Name};
use super::scope;

/// Bytes of a policy.
const MOST_BYTES: usize = 256 << 10;
/// Statements, and what one of them lists.
const MOST_STATEMENTS: usize = 200;
const MOST_LISTED: usize = 200;
const ALL: &str = "*";
/// How identities are named that can be compared.
const SUBJECT: &str = "x509.subject";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    version: String,
    #[serde(default)]
    trust_policies: Option<Vec<Written>>,
}

/// A statement as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    name: String,
    #[serde(default)]
    registry_scopes: Option<Vec<String>>,
    #[serde(default)]
    signature_verification: Option<WrittenChecks>,
    #[serde(default)]
    trust_stores: Option<Vec<String>>,
    #[serde(default)]
    trusted_identities: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenChecks {
    #[serde(default)]
    level: String,
    #[serde(rename = "override", default)]
    overridden: Option<BTreeMap<String, String>>,
    #[serde(default)]
    verify_timestamp: Option<String>,
}

/// What it is about: these repositories, or all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Statement {
    name: String,
    scopes: Vec<String>,
    /// None where nothing is verified.
    checks: Option<Checks>,
}

/// What is verified of a signature. Whether it is whole and about the artifact is verified in any case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checks {
    pub(super) authenticity: Action,
    pub(super) timestamp: Action,
    pub(super) expiry: Action,
    pub(super) revocation: Action,
    pub(super) stores: BTreeSet<Store>,
    /// Who may have signed; anyone with a trusted certificate if `None`.
    pub(super) identities: Option<Vec<Name>>,
    /// Whether a countersignature of the time counts only once a certificate has expired.
    pub(super) stamp_after_expiry: bool,
}

/// What comes of a check that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Action {
    /// The signature does not count.
    Enforce,
    /// It is told.
    Log,
    /// It is not done.
    Skip,
}

/// A type of trust store. Its name does not matter: all certificates of the Secret are in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Store {
    Ca,
    SigningAuthority,
    Tsa,
}

impl Statement {
    pub(super) fn is_skip(&self) -> bool {
        self.checks.is_none()
    }

    pub(super) fn is_for_all(&self) -> bool {
        self.scopes.iter().any(|scope| scope == ALL)
    }

    pub(super) fn names(&self, scope: &str) -> bool {
        self.scopes.iter().any(|own| own == scope)
    }

    pub(super) fn checks(&self) -> Option<&Checks> {
        self.checks.as_ref()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Reads a policy.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Statement>, String> {
    if bytes.len() > MOST_BYTES {
        return Err(format!("it has more than {MOST_BYTES} bytes"));
    }
    let document: Document =
        serde_json::from_slice(bytes).map_err(|error| format!("it is not a trust policy: {error}"))?;
    if document.version != "1.0" {
        let version = crate::tree::shown(&document.version);
        return Err(format!("its version is '{version}': want 1.0"));
    }
    let written = document.trust_policies.unwrap_or_default();
    if written.is_empty() || written.len() > MOST_STATEMENTS {
        return Err(format!("it has {} trust policies: want 1 to {MOST_STATEMENTS}", written.len()));
    }
    let (mut names, mut scopes, mut statements) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for one in written {
        let statement = statement(one)?;
        let shown = crate::tree::shown(&statement.name);
        if !names.insert(statement.name.clone()) {
            return Err(format!("several trust policies have the name '{shown}'"));
        }
        for scope in &statement.scopes {
            if !scopes.insert(scope.clone()) {
                let scope = crate::tree::shown(scope);
                return Err(format!(
                    "registry scope '{scope}' is in several trust policies, or twice in one"
                ));
            }
        }
        statements.push(statement);
    }
    Ok(statements)
}

fn statement(written: Written) -> Result<Statement, String> {
    if written.name.is_empty() {
        return Err("a trust policy has no name".to_owned());
    }
    let shown = crate::tree::shown(&written.name);
    let wrong = |why: String| format!("trust policy '{shown}': {why}");
    let scopes = few(written.registry_scopes, "registryScopes").map_err(wrong)?;
    if scopes.is_empty() {
        return Err(wrong("it has no registryScopes".to_owned()));
    }
    if scopes.len() > 1 && scopes.iter().any(|scope| scope == ALL) {
        return Err(wrong("the registry scope '*' stands beside others".to_owned()));
    }
    for scope in scopes.iter().filter(|scope| *scope != ALL) {
        scope::check(scope).map_err(wrong)?;
    }
    let stores = few(written.trust_stores, "trustStores").map_err(wrong)?;
    let identities = few(written.trusted_identities, "trustedIdentities").map_err(wrong)?;
    let verification = written.signature_verification.unwrap_or_default();
    let checks = checks(&verification, &stores, &identities).map_err(wrong)?;
    Ok(Statement { name: written.name, scopes, checks })
}

fn few(list: Option<Vec<String>>, field: &str) -> Result<Vec<String>, String> {
    let list = list.unwrap_or_default();
    if list.len() > MOST_LISTED {
        return Err(format!("{field} has more than {MOST_LISTED} items"));
    }
    Ok(list)
}

fn checks(
    written: &WrittenChecks,
    stores: &[String],
    identities: &[String],
) -> Result<Option<Checks>, String> {
    use Action::{Enforce, Log};
    let overridden = written.overridden.as_ref().filter(|all| !all.is_empty());
    let [authenticity, timestamp, expiry, revocation] = match written.level.as_str() {
        "strict" => [Enforce; 4],
        "permissive" => [Enforce, Log, Log, Log],
        "audit" => [Log; 4],
        "skip" if overridden.is_some() => {
            return Err("signatureVerification.override: nothing is verified at the level skip".to_owned());
        }
        // Flux lets them stand, and looks at none.
        "skip" => return Ok(None),
        "" => return Err("it has no signatureVerification.level".to_owned()),
        other => {
            let want = "want strict, permissive, audit or skip";
            return Err(format!("signatureVerification.level is '{}': {want}", crate::tree::shown(other)));
        }
    };
    let stamp_after_expiry = match written.verify_timestamp.as_deref() {
        None | Some("" | "always") => false,
        Some("afterCertExpiry") => true,
        Some(other) => {
            let shown = crate::tree::shown(other);
            return Err(format!("verifyTimestamp is '{shown}': want always or afterCertExpiry"));
        }
    };
    if stores.is_empty() || identities.is_empty() {
        return Err("it needs both trustStores and trustedIdentities".to_owned());
    }
    let stores = stores.iter().map(|store| store_of(store)).collect::<Result<_, _>>()?;
    let identities = identities_of(identities)?;
    let mut checks =
        Checks { authenticity, timestamp, expiry, revocation, stores, identities, stamp_after_expiry };
    for (check, action) in overridden.into_iter().flatten() {
        override_one(&mut checks, check, action)?;
    }
    Ok(Some(checks))
}

fn override_one(checks: &mut Checks, check: &str, action: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("signatureVerification.override: {why}"));
    let action = match action {
        "enforce" => Action::Enforce,
        "log" => Action::Log,
        "skip" if check != "revocation" => return wrong("only revocation can be skipped"),
        "skip" => Action::Skip,
        other => return wrong(&format!("'{}' is not enforce, log or skip", crate::tree::shown(other))),
    };
    match check {
        "authenticity" => checks.authenticity = action,
        "authenticTimestamp" => checks.timestamp = action,
        "expiry" => checks.expiry = action,
        "revocation" => checks.revocation = action,
        "integrity" => return wrong("integrity is verified in any case"),
        other => return wrong(&format!("'{}' is not a check", crate::tree::shown(other))),
    }
    Ok(())
}

fn store_of(text: &str) -> Result<Store, String> {
    let shown = crate::tree::shown(text);
    let (kind, name) =
        text.split_once(':').ok_or_else(|| format!("trust store '{shown}' is not TYPE:NAME"))?;
    let is_name = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-');
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(format!(
            "trust store '{shown}' has no valid name: want letters, digits and `_`, `.`, `-`"
        ));
    }
    match kind {
        "ca" => Ok(Store::Ca),
        "signingAuthority" => Ok(Store::SigningAuthority),
        "tsa" => Ok(Store::Tsa),
        _ => Err(format!("trust store '{shown}' has an unknown type: want ca, signingAuthority or tsa")),
    }
}

fn identities_of(texts: &[String]) -> Result<Option<Vec<Name>>, String> {
    if texts.iter().any(|text| text == ALL) {
        let alone = texts.len() == 1;
        return if alone { Ok(None) } else { Err("the identity '*' stands beside others".to_owned()) };
    }
    let mut names: Vec<Name> = Vec::new();
    for text in texts {
        let shown = crate::tree::shown(text);
        let wrong = |why: &str| format!("trusted identity '{shown}': {why}");
        let (kind, value) = text.split_once(':').ok_or_else(|| wrong("want x509.subject: NAME"))?;
        // Others are for plugins; who has none but those trusts nobody.
        if kind == SUBJECT {
            let name = name::parse(value).map_err(|why| wrong(&why))?;
            if names.iter().any(|other| name::includes(other, &name) || name::includes(&name, other)) {
                return Err(wrong("it overlaps with another one"));
            }
            names.push(name);
        }
    }
    Ok(Some(names))
}
