//! Which issuers are trusted, and how their claims become users: the configuration, checked as kube-apiserver checks it.

use std::collections::BTreeSet;

use roadstead_cel::{Expression, Type};
use roadstead_model::chain;
use serde_json::Value;
use url::Url;

use crate::ConfigError;
use crate::fields::{self, ClaimRule, Extra, Issuer, Jwt, Mappings, Plain, Prefixed, Problems, UserRule};
use crate::names;

/// So many issuers, as in Kubernetes.
const MAX_ISSUERS: usize = 64;
/// Of Google's tokens: some say to be from the second, without the scheme.
const GOOGLE: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

/// The issuers that are trusted.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    issuers: Vec<TrustedIssuer>,
}

/// An issuer that is trusted, and what is made of its tokens.
#[derive(Debug, Clone)]
pub struct TrustedIssuer {
    pub(crate) url: String,
    discovery_url: Option<String>,
    certificate_authority: Option<String>,
    pub(crate) audiences: Vec<String>,
    /// Claims that must have a value.
    pub(crate) required: Vec<(String, String)>,
    pub(crate) claim_rules: Vec<Rule>,
    pub(crate) username: Source,
    pub(crate) groups: Option<Source>,
    pub(crate) uid: Option<Source>,
    pub(crate) extra: Vec<(String, Named)>,
    pub(crate) user_rules: Vec<Rule>,
}

/// Where something of a user comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Claim { name: String, prefix: String },
    Expression(Named),
}

/// An expression, and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) place: String,
    pub(crate) expression: Expression,
}

/// An expression that must hold.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) test: Named,
    pub(crate) message: String,
}

impl Configuration {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError`] with all that is wrong with it, each with the path of the field.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let file = fields::read(bytes)?;
        let mut problems = Problems::default();
        if file.anonymous.is_some_and(|anonymous| anonymous.enabled || anonymous.conditions.is_some()) {
            problems.add(
                "anonymous",
                "is not supported: the hub takes no requests without a token, so enabled must be false",
            );
        }
        let all = file.jwt.unwrap_or_default();
        if all.len() > MAX_ISSUERS {
            problems.add("jwt", format!("has {} items, at most {MAX_ISSUERS} are allowed", all.len()));
            return problems.unless_any(Self::default());
        }
        let (mut urls, mut discovery_urls) = (BTreeSet::new(), BTreeSet::new());
        let mut issuers = Vec::with_capacity(all.len());
        for (index, value) in all.into_iter().enumerate() {
            let path = format!("jwt[{index}]");
            let issuer = trusted(&path, value, &mut problems);
            if !urls.insert(issuer.url.clone()) {
                problems.add(&format!("{path}.issuer.url"), "is already used by another item");
            }
            if let Some(url) = &issuer.discovery_url
                && !discovery_urls.insert(url.clone())
            {
                problems.add(&format!("{path}.issuer.discoveryURL"), "is already used by another item");
            }
            issuers.push(issuer);
        }
        problems.unless_any(Self { issuers })
    }

    /// All of them, in their order.
    #[must_use]
    pub fn issuers(&self) -> &[TrustedIssuer] {
        &self.issuers
    }

    /// The place among them of the one that a token says to be from. It has that very URL: no other spelling of it is known.
    #[must_use]
    pub fn issuer(&self, url: &str) -> Option<usize> {
        let url = if url == GOOGLE[1] { GOOGLE[0] } else { url };
        self.issuers.iter().position(|issuer| issuer.url == url)
    }
}

impl TrustedIssuer {
    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it says what it is, where the file names another place than the usual one.
    #[must_use]
    pub fn other_discovery_url(&self) -> Option<&str> {
        self.discovery_url.as_deref()
    }

    /// Where it says what it is and where its keys are.
    #[must_use]
    pub fn discovery_url(&self) -> String {
        self.discovery_url.clone().unwrap_or_else(|| {
            let url = self.url.strip_suffix('/').unwrap_or(&self.url);
            format!("{url}/.well-known/openid-configuration")
        })
    }

    /// The only authorities that may vouch for its servers, as PEM, where it is not the system's.
    #[must_use]
    pub fn certificate_authority(&self) -> Option<&str> {
        self.certificate_authority.as_deref()
    }

    /// Whom its tokens are for: any of these.
    #[must_use]
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// What its tokens may say to be from.
    pub(crate) fn names(&self) -> Vec<&str> {
        if self.url == GOOGLE[0] { GOOGLE.to_vec() } else { vec![&self.url] }
    }
}

fn trusted(path: &str, value: Value, problems: &mut Problems) -> TrustedIssuer {
    let jwt: Jwt = problems.read(path, value);
    let issuer_path = format!("{path}.issuer");
    let issuer: Issuer = problems.read(&issuer_path, jwt.issuer);
    check_issuer(&issuer_path, &issuer, problems);
    let rules_path = format!("{path}.claimValidationRules");
    let (required, claim_rules) = claim_rules(&rules_path, jwt.claim_validation_rules, problems);
    let path_of_mappings = format!("{path}.claimMappings");
    let mappings: Mappings = problems.read(&path_of_mappings, jwt.claim_mappings);
    let at = |field: &str| format!("{path_of_mappings}.{field}");
    let username = prefixed(&at("username"), mappings.username, problems);
    if username.is_none() {
        problems.add(&at("username"), "claim or expression is required");
    }
    let groups = prefixed(&at("groups"), mappings.groups, problems);
    let uid = plain(&at("uid"), mappings.uid, problems);
    let extra = extra(&at("extra"), mappings.extra, problems);
    let user_rules = user_rules(&format!("{path}.userValidationRules"), jwt.user_validation_rules, problems);
    let nothing = || Source::Claim { name: String::new(), prefix: String::new() };
    let made = TrustedIssuer {
        url: issuer.url,
        discovery_url: issuer.discovery_url.filter(|url| !url.is_empty()),
        certificate_authority: Some(issuer.certificate_authority).filter(|pem| !pem.is_empty()),
        audiences: issuer.audiences,
        required,
        claim_rules,
        username: username.unwrap_or_else(nothing),
        groups,
        uid,
        extra,
        user_rules,
    };
    check_email(&at("username.expression"), &made, problems);
    made
}

fn check_issuer(path: &str, issuer: &Issuer, problems: &mut Problems) {
    let at = |field: &str| format!("{path}.{field}");
    if issuer.url.is_empty() {
        problems.add(&at("url"), "is required");
    } else {
        check_url(&at("url"), &issuer.url, problems);
    }
    if let Some(url) = issuer.discovery_url.as_deref().filter(|url| !url.is_empty()) {
        check_url(&at("discoveryURL"), url, problems);
        if url.trim_end_matches('/') == issuer.url.trim_end_matches('/') {
            problems.add(&at("discoveryURL"), "must differ from url");
        }
    }
    if issuer.audiences.is_empty() {
        problems.add(&at("audiences"), "at least one is required");
    }
    let mut seen = BTreeSet::new();
    for (index, audience) in issuer.audiences.iter().enumerate() {
        if audience.is_empty() {
            problems.add(&at(&format!("audiences[{index}]")), "is required");
        } else if !seen.insert(audience) {
            problems.add(&at(&format!("audiences[{index}]")), "is listed twice");
        }
    }
    match (issuer.audience_match_policy.as_str(), issuer.audiences.len()) {
        ("MatchAny", _) | ("", 0 | 1) => {}
        ("", _) => {
            problems.add(&at("audienceMatchPolicy"), "must be MatchAny when there are several audiences");
        }
        _ => problems.add(&at("audienceMatchPolicy"), "must be MatchAny"),
    }
    if !issuer.egress_selector_type.is_empty() {
        problems
            .add(&at("egressSelectorType"), "is not supported: the hub has one way out, see --allow-network");
    }
}

fn check_url(path: &str, text: &str, problems: &mut Problems) {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return problems.add(path, error),
    };
    if url.scheme() != "https" {
        problems.add(path, "must be an https URL");
    }
    if !url.username().is_empty() || url.password().is_some() {
        problems.add(path, "must not have a username or password");
    }
    if url.query().is_some() {
        problems.add(path, "must not have a query");
    }
    if url.fragment().is_some() {
        problems.add(path, "must not have a fragment");
    }
}

fn claim_rules(path: &str, value: Value, problems: &mut Problems) -> (Vec<(String, String)>, Vec<Rule>) {
    let (mut required, mut rules) = (Vec::new(), Vec::new());
    let (mut claims, mut expressions) = (BTreeSet::new(), BTreeSet::new());
    for (index, rule) in problems.items::<ClaimRule>(path, value).into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        let at = |field: &str| format!("{path}.{field}");
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => problems.add(&path, "claim and expression can't both be set"),
            (true, true) => problems.add(&path, "claim or expression is required"),
            (false, true) => {
                if !rule.message.is_empty() {
                    problems.add(&at("message"), "must not be set together with claim");
                }
                if !claims.insert(rule.claim.clone()) {
                    problems.add(&at("claim"), "is already used by another rule");
                }
                required.push((rule.claim, rule.required_value));
            }
            (true, false) => {
                if !rule.required_value.is_empty() {
                    problems.add(&at("requiredValue"), "must not be set together with expression");
                }
                if !expressions.insert(rule.expression.clone()) {
                    problems.add(&at("expression"), "is already used by another rule");
                }
                let test = rule_over(&at("expression"), &rule.expression, "claims", problems);
                rules.extend(test.map(|test| Rule { test, message: rule.message }));
            }
        }
    }
    (required, rules)
}

fn user_rules(path: &str, value: Value, problems: &mut Problems) -> Vec<Rule> {
    let mut seen = BTreeSet::new();
    let mut rules = Vec::new();
    for (index, rule) in problems.items::<UserRule>(path, value).into_iter().enumerate() {
        let path = format!("{path}[{index}].expression");
        if rule.expression.is_empty() {
            problems.add(&path, "is required");
        } else if !seen.insert(rule.expression.clone()) {
            problems.add(&path, "is already used by another rule");
        } else {
            let test = rule_over(&path, &rule.expression, "user", problems);
            rules.extend(test.map(|test| Rule { test, message: rule.message }));
        }
    }
    rules
}

fn prefixed(path: &str, value: Value, problems: &mut Problems) -> Option<Source> {
    let Prefixed { claim, prefix, expression: text } = problems.read(path, value);
    let at = format!("{path}.prefix");
    let is_claim = !claim.is_empty();
    match &prefix {
        Some(_) if !text.is_empty() => problems.add(&at, "must not be set together with expression"),
        Some(prefix) if names::is_reserved(prefix) => {
            problems.add(&at, "must not begin with system:, which is reserved");
        }
        None if is_claim => {
            problems.add(&at, "is required with claim; use an empty string for no prefix");
        }
        _ => {}
    }
    source(path, claim, prefix.unwrap_or_default(), &text, problems)
}

fn plain(path: &str, value: Value, problems: &mut Problems) -> Option<Source> {
    let Plain { claim, expression: text } = problems.read(path, value);
    source(path, claim, String::new(), &text, problems)
}

/// A claim or an expression; none where neither is set.
fn source(path: &str, claim: String, prefix: String, text: &str, problems: &mut Problems) -> Option<Source> {
    match (claim.is_empty(), text.is_empty()) {
        (false, false) => {
            problems.add(path, "claim and expression can't both be set");
            None
        }
        (true, true) => None,
        (true, false) => {
            expression(&format!("{path}.expression"), text, "claims", problems).map(Source::Expression)
        }
        (false, true) => Some(Source::Claim { name: claim, prefix }),
    }
}

fn extra(path: &str, value: Value, problems: &mut Problems) -> Vec<(String, Named)> {
    let mut seen = BTreeSet::new();
    let mut made = Vec::new();
    for (index, Extra { key, value_expression }) in problems.items(path, value).into_iter().enumerate() {
        let at = |field: &str| format!("{path}[{index}].{field}");
        if let Some(why) = names::wrong_key(&key) {
            problems.add(&at("key"), why);
        }
        if !seen.insert(key.clone()) {
            problems.add(&at("key"), "is already used by another item");
        }
        if value_expression.is_empty() {
            problems.add(&at("valueExpression"), "is required");
            continue;
        }
        let value = expression(&at("valueExpression"), &value_expression, "claims", problems);
        made.extend(value.map(|value| (key, value)));
    }
    made
}

/// An expression over one variable. What it comes to may be known when it is evaluated only.
fn expression(path: &str, text: &str, variable: &str, problems: &mut Problems) -> Option<Named> {
    Some(typed(path, text, variable, problems)?.0)
}

/// A rule over one variable: that it comes to a boolean must show before it is evaluated, as kube-apiserver has it.
fn rule_over(path: &str, text: &str, variable: &str, problems: &mut Problems) -> Option<Named> {
    let (named, found) = typed(path, text, variable, problems)?;
    if found != Type::Bool {
        let why = format!(
            "must evaluate to bool, not to {found}: compare a value of unknown type, as in `== true`"
        );
        problems.add(path, why);
        return None;
    }
    Some(named)
}

/// An expression over one variable, and its type.
fn typed(path: &str, text: &str, variable: &str, problems: &mut Problems) -> Option<(Named, Type)> {
    let of_variable = if variable == "user" { user() } else { Type::map(Type::Dyn) };
    let expression = Expression::parse_over(text, &[variable]);
    let found = expression.map_err(|error| chain(&error)).and_then(|expression| {
        let found =
            expression.type_over(&[(variable, of_variable)]).map_err(|problem| problem.to_string())?;
        Ok((Named { place: path.to_owned(), expression }, found))
    });
    found.map_err(|why| problems.add(path, why)).ok()
}

/// What rules know of a user.
fn user() -> Type {
    Type::Object(vec![
        ("username", Type::String),
        ("uid", Type::String),
        ("groups", Type::list(Type::String)),
        ("extra", Type::map(Type::list(Type::String))),
    ])
}

/// An e-mail address that the issuer has not verified may be anybody's.
fn check_email(path: &str, issuer: &TrustedIssuer, problems: &mut Problems) {
    let Source::Expression(username) = &issuer.username else { return };
    let reads = |named: &Named, field: &str| named.expression.reads("claims", field);
    let others = issuer.extra.iter().map(|(_, value)| value);
    let mut all = others.chain(issuer.claim_rules.iter().map(|rule| &rule.test)).chain([username]);
    if reads(username, "email") && !all.any(|named| reads(named, "email_verified")) {
        problems.add(
            path,
            "reads claims.email, so claims.email_verified must be used in claimMappings.username.expression, \
             claimMappings.extra[*].valueExpression or claimValidationRules[*].expression",
        );
    }
}
