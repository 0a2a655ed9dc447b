//! From a token to the user that it stands for.

use std::collections::{BTreeMap, BTreeSet};

use roadstead_cel::Expression;
use serde_json::{Map, Value, json};

use crate::config::{Named, Rule, Source, TrustedIssuer};
use crate::names::{check, check_value, is_reserved};
use crate::{Expected, Keys, Refusal, Token};

/// The most groups of a user.
const MAX_GROUPS: usize = 1000;
/// The most values of one thing else that is known of a user.
const MAX_VALUES: usize = 100;
/// An expression may take this part of what a single evaluation may otherwise: it is evaluated for each token.
const SHARE: u32 = 64;
/// Where Kubernetes says which credential somebody used.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// Whom a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub username: String,
    /// What tells the user from another of the same name; empty where it is not known.
    pub uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// What else is known of the user.
    pub extra: BTreeMap<String, Vec<String>>,
    /// How many groups were left out because their names are reserved.
    pub reserved_groups: usize,
    /// When the token expires, in whole seconds since 1970.
    pub expires: i64,
}

impl TrustedIssuer {
    /// Whom a token of this issuer stands for at a time, in seconds since 1970.
    ///
    /// # Errors
    /// [`Refusal`] where it stands for nobody.
    pub fn user(&self, token: &Token<'_>, keys: &Keys, now: i64) -> Result<User, Refusal> {
        let claims = token.verify(keys)?;
        crate::check(&claims, &Expected { issuers: &self.names(), audiences: &self.audiences, now })?;
        self.mapped(&claims)
    }

    /// The user whom believed claims describe.
    fn mapped(&self, claims: &Value) -> Result<User, Refusal> {
        let username = self.username(claims)?;
        let groups = self.groups(claims)?;
        let uid = self.uid(claims)?;
        let extra = self.extra(claims)?;
        for (claim, wanted) in &self.required {
            if text(claims, claim)? != *wanted {
                return Err(Refusal::Value(claim.clone()));
            }
        }
        for rule in &self.claim_rules {
            holds(rule, "claims", claims)?;
        }
        // Before groups are left out: a rule may refuse whoever has a reserved one.
        if !self.user_rules.is_empty() {
            let user = json!({ "username": username, "uid": uid, "groups": groups, "extra": extra });
            for rule in &self.user_rules {
                holds(rule, "user", &user)?;
            }
        }
        if is_reserved(&username) {
            return Err(Refusal::Reserved);
        }
        let all = groups.len();
        let groups: Vec<String> = groups.into_iter().filter(|group| !is_reserved(group)).collect();
        let reserved_groups = all - groups.len();
        let expires = whole_seconds(&claims["exp"]);
        Ok(User { username, uid, groups, extra, reserved_groups, expires })
    }

    fn username(&self, claims: &Value) -> Result<String, Refusal> {
        let name = match &self.username {
            Source::Claim { name, prefix } => {
                let value = text(claims, name)?;
                if value.is_empty() {
                    return Err(Refusal::NoName);
                }
                if name == "email" {
                    verified(claims)?;
                }
                format!("{prefix}{value}")
            }
            Source::Expression(named) => one(named, claims)?,
        };
        if name.is_empty() {
            return Err(Refusal::NoName);
        }
        check("the username", &name)?;
        Ok(name)
    }

    /// The groups, each once, in their order.
    fn groups(&self, claims: &Value) -> Result<Vec<String>, Refusal> {
        // A rule may refuse whoever is in a group, too.
        let by_mapping = |claim: &str| match &self.groups {
            Some(Source::Claim { name, .. }) => name == claim,
            Some(Source::Expression(named)) => named.expression.reads("claims", claim),
            None => false,
        };
        let by_rule =
            |claim: &str| self.claim_rules.iter().any(|rule| rule.test.expression.reads("claims", claim));
        if let Some(claim) = elsewhere(claims, |claim| by_mapping(claim) || by_rule(claim)) {
            return Err(Refusal::GroupsElsewhere(claim));
        }
        let Some(source) = &self.groups else { return Ok(Vec::new()) };
        let groups: Vec<String> = match source {
            Source::Claim { name, prefix } => {
                texts(claims, name)?.into_iter().map(|group| format!("{prefix}{group}")).collect()
            }
            Source::Expression(named) => some(named, claims)?,
        };
        if groups.len() > MAX_GROUPS {
            return Err(Refusal::TooManyGroups(MAX_GROUPS));
        }
        let mut seen = BTreeSet::new();
        let mut once = Vec::with_capacity(groups.len());
        for group in groups {
            check("the name of a group", &group)?;
            if seen.insert(group.clone()) {
                once.push(group);
            }
        }
        Ok(once)
    }

    fn uid(&self, claims: &Value) -> Result<String, Refusal> {
        let uid = match &self.uid {
            None => return Ok(String::new()),
            Some(Source::Claim { name, .. }) => text(claims, name)?.to_owned(),
            Some(Source::Expression(named)) => one(named, claims)?,
        };
        check("the uid", &uid)?;
        Ok(uid)
    }

    fn extra(&self, claims: &Value) -> Result<BTreeMap<String, Vec<String>>, Refusal> {
        let mut extra = BTreeMap::new();
        if let Some(id) = claims["jti"].as_str().filter(|id| !id.is_empty()) {
            check("the claim jti", id)?;
            extra.insert(CREDENTIAL.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, named) in &self.extra {
            let values = some(named, claims)?;
            if values.len() > MAX_VALUES {
                return Err(outcome(named, "at most 100 texts"));
            }
            values.iter().try_for_each(|value| check_value("a value of extra", value))?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }
}

/// The text of a claim. Null counts as empty text, as it does in Go.
fn text<'a>(claims: &'a Value, name: &str) -> Result<&'a str, Refusal> {
    match claims.get(name) {
        None => Err(Refusal::Absent(name.to_owned())),
        Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Refusal::Type { claim: name.to_owned(), expected: "text" }),
    }
}

/// The texts of a claim that has one, a list of them, or is absent; without those that are empty.
fn texts<'a>(claims: &'a Value, name: &str) -> Result<Vec<&'a str>, Refusal> {
    let wrong = || Refusal::Type { claim: name.to_owned(), expected: "text or a list of texts" };
    let mut found = match claims.get(name) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![text.as_str()],
        Some(Value::Array(list)) => {
            let texts = list.iter().map(|item| if item.is_null() { Some("") } else { item.as_str() });
            texts.collect::<Option<Vec<_>>>().ok_or_else(wrong)?
        }
        Some(_) => return Err(wrong()),
    };
    found.retain(|text| !text.is_empty());
    Ok(found)
}

/// Where the issuer says whether it has verified the address, it must have.
fn verified(claims: &Value) -> Result<(), Refusal> {
    match claims.get("email_verified") {
        None | Some(Value::Bool(true)) => Ok(()),
        Some(_) => Err(Refusal::EmailNotVerified),
    }
}

/// The claim of groups that the issuer left out because there are too many, where it did: by a reference (`_claim_names`), or by the
/// mark that Microsoft's tokens have.
fn elsewhere(claims: &Value, is_read: impl Fn(&str) -> bool) -> Option<String> {
    let is_left_out = |claim: &str| claims.get(claim).is_none() && is_read(claim);
    let referred = claims["_claim_names"].as_object().into_iter().flat_map(Map::keys);
    let marked = ["groups"].into_iter().filter(|_| is_marked(&claims["hasgroups"]));
    referred.map(String::as_str).chain(marked).find(|claim| is_left_out(claim)).map(str::to_owned)
}

/// Microsoft has written it as text, too.
fn is_marked(value: &Value) -> bool {
    value.as_bool().unwrap_or_else(|| value.as_str() == Some("true"))
}

fn evaluated(named: &Named, claims: &Value) -> Result<Value, Refusal> {
    let Named { place, expression } = named;
    let made: Result<_, _> = Expression::evaluate_json(expression, &[("claims", claims)], SHARE);
    made.map_err(|source| Refusal::Expression { what: place.clone(), source })
}

fn outcome(named: &Named, expected: &'static str) -> Refusal {
    Refusal::Outcome { what: named.place.clone(), expected }
}

/// A text.
fn one(named: &Named, claims: &Value) -> Result<String, Refusal> {
    match evaluated(named, claims)? {
        Value::String(text) => Ok(text),
        _ => Err(outcome(named, "text")),
    }
}

/// A text, or a list of them, or null; without those that are empty.
fn some(named: &Named, claims: &Value) -> Result<Vec<String>, Refusal> {
    let wrong = || outcome(named, "text or a list of texts");
    let mut found = match evaluated(named, claims)? {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text],
        Value::Array(list) => {
            let texts = list.into_iter().map(|item| match item {
                Value::String(text) => Some(text),
                _ => None,
            });
            texts.collect::<Option<Vec<_>>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    found.retain(|text| !text.is_empty());
    Ok(found)
}

fn holds(rule: &Rule, variable: &str, value: &Value) -> Result<(), Refusal> {
    let Named { place, expression } = &rule.test;
    match expression.evaluate_bool_among(&[(variable, value)], SHARE) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Refusal::Rule { what: place.clone(), message: rule.message.clone() }),
        Err(source) => Err(Refusal::Expression { what: place.clone(), source }),
    }
}

/// Times may have fractions; one beyond all times counts as the last.
fn whole_seconds(value: &Value) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "what does not fit becomes the nearest that does")]
    value.as_i64().unwrap_or_else(|| value.as_f64().unwrap_or_default() as i64)
}
