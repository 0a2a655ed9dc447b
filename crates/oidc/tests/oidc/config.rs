//! A configuration is taken as kube-apiserver takes it, and refused with the path of what is wrong.

use roadstead_oidc::{ConfigError, Configuration};
use serde_json::{Value, json};

pub(crate) fn file(jwt: &Value) -> Value {
    json!({ "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt })
}

/// One issuer.
pub(crate) fn issuer() -> Value {
    json!({
        "issuer": { "url": "https://issuer.test", "audiences": ["hub"] },
        "claimMappings": { "username": { "claim": "sub", "prefix": "" } },
    })
}

pub(crate) fn parse(file: &Value) -> Result<Configuration, ConfigError> {
    Configuration::parse(file.to_string().as_bytes())
}

/// What is said of one issuer with this in it.
fn said(pointer: &str, value: Value) -> String {
    let mut one = issuer();
    let mut at = &mut one;
    for step in pointer.split('/') {
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[step],
        };
    }
    *at = value;
    parse(&file(&json!([one]))).map_or_else(|error| error.to_string(), |_| String::new())
}

#[test]
fn the_example_of_kubernetes_is_taken() {
    let text = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://example.com
    discoveryURL: https://discovery.example.com/.well-known/openid-configuration
    audiences: [my-app, my-other-app]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - {claim: hd, requiredValue: example.com}
  - expression: 'claims.hd == "example.com"'
    message: the hd claim must be set to example.com
  - expression: 'claims.exp - claims.nbf <= 86400'
    message: total token lifetime must not exceed 24 hours
  claimMappings:
    username: {expression: 'claims.username + ":external-user"'}
    groups: {expression: 'claims.roles.split(",")'}
    uid: {expression: 'claims.sub'}
    extra:
    - {key: 'example.com/tenant', valueExpression: 'claims.tenant'}
  userValidationRules:
  - expression: "!user.username.startsWith('system:')"
    message: 'username cannot used reserved system: prefix'
  - expression: "user.groups.all(group, !group.startsWith('system:'))"
    message: 'groups cannot used reserved system: prefix'
"#;
    let configuration = Configuration::parse(text.as_bytes()).unwrap();
    let one = &configuration.issuers()[0];
    assert_eq!(one.url(), "https://example.com");
    assert_eq!(one.discovery_url(), "https://discovery.example.com/.well-known/openid-configuration");
    assert_eq!(configuration.issuer("https://example.com"), Some(0));
    for other in ["https://example.com/", "https://EXAMPLE.com", "http://example.com", "example.com", ""] {
        assert_eq!(configuration.issuer(other), None, "{other}");
    }
    // None is a beginning, too; and no callers without a token are the only ones that there are.
    assert!(parse(&file(&json!([]))).is_ok() && parse(&file(&json!(null))).is_ok());
    let mut closed = file(&json!([]));
    closed["anonymous"] = json!({ "enabled": false });
    assert!(parse(&closed).is_ok());
}

#[test]
fn where_an_issuer_is_asked() {
    let mut one = issuer();
    for (url, at) in [
        ("https://a.test", "https://a.test/.well-known/openid-configuration"),
        ("https://a.test/", "https://a.test/.well-known/openid-configuration"),
        ("https://a.test/realms/x", "https://a.test/realms/x/.well-known/openid-configuration"),
    ] {
        one["issuer"]["url"] = json!(url);
        let configuration = parse(&file(&json!([one]))).unwrap();
        assert_eq!(configuration.issuers()[0].discovery_url(), at);
    }
    one["issuer"]["url"] = json!("https://accounts.google.com");
    let google = parse(&file(&json!([one]))).unwrap();
    assert_eq!(google.issuer("accounts.google.com"), Some(0));
}

#[test]
fn what_is_no_configuration_is_refused() {
    for (text, want) in [
        ("", "no body"),
        ("a: [", "cannot be read"),
        ("apiVersion: v1\nkind: AuthenticationConfiguration\n", "apiserver.config.k8s.io/v1"),
        (
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n",
            "AuthenticationConfiguration",
        ),
        ("apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: AuthenticationConfiguration\n", "/v1 and kind"),
        (
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwts: []\n",
            "unknown field `jwts`",
        ),
        (
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: []\njwt: []\n",
            "duplicate key",
        ),
    ] {
        let error = Configuration::parse(text.as_bytes()).unwrap_err();
        assert!(
            matches!(error, ConfigError::Unreadable(_)) && error.to_string().contains(want),
            "{text}: {error}"
        );
    }
    assert!(Configuration::parse(&vec![b' '; (1 << 20) + 1]).unwrap_err().to_string().contains("larger"));
    let mut open = file(&json!([]));
    open["anonymous"] = json!({ "enabled": true });
    assert!(parse(&open).unwrap_err().to_string().contains("anonymous: is not supported"));
    let many: Vec<Value> = (0..65)
        .map(|n| {
            let mut one = issuer();
            one["issuer"]["url"] = json!(format!("https://{n}.test"));
            one
        })
        .collect();
    assert!(parse(&file(&json!(many[..64]))).is_ok());
    assert!(parse(&file(&json!(many))).unwrap_err().to_string().contains("at most 64"));
    let error = parse(&file(&json!([issuer(), issuer()]))).unwrap_err().to_string();
    assert!(error.contains("jwt[1].issuer.url: is already used by another item"), "{error}");
}

#[test]
fn each_field_is_checked() {
    for (pointer, value, want) in [
        ("issuer/url", json!(""), "jwt[0].issuer.url: is required"),
        ("issuer/url", json!("http://issuer.test"), "jwt[0].issuer.url: must be an https URL"),
        ("issuer/url", json!("https://u:p@issuer.test"), "must not have a username"),
        ("issuer/url", json!("https://issuer.test?a=b"), "must not have a query"),
        ("issuer/url", json!("https://issuer.test#a"), "must not have a fragment"),
        ("issuer/url", json!("issuer.test"), "jwt[0].issuer.url: relative URL"),
        ("issuer/URL", json!("https://issuer.test"), "jwt[0].issuer: unknown field `URL`"),
        ("issuer/discoveryURL", json!("https://issuer.test/"), "must differ from url"),
        ("issuer/discoveryURL", json!("http://a.test"), "discoveryURL: must be an https URL"),
        ("issuer/audiences", json!([]), "jwt[0].issuer.audiences: at least one"),
        ("issuer/audiences", json!([""]), "audiences[0]: is required"),
        ("issuer/audiences", json!(["a", "a"]), "audiences[1]: is listed twice"),
        ("issuer/audiences", json!(["a", "b"]), "audienceMatchPolicy: must be MatchAny when"),
        ("issuer/audienceMatchPolicy", json!("MatchAll"), "audienceMatchPolicy: must be MatchAny"),
        ("issuer/egressSelectorType", json!("cluster"), "egressSelectorType: is not supported"),
        ("claimMapping", json!({}), "jwt[0]: unknown field `claimMapping`"),
        ("claimMappings/username", json!(null), "claimMappings.username: claim or expression is required"),
        ("claimMappings/username", json!({ "claim": "sub" }), "username.prefix: is required with claim"),
        (
            "claimMappings/username/expression",
            json!("claims.sub"),
            "username: claim and expression can't both be set",
        ),
        (
            "claimMappings/username",
            json!({ "claim": "sub", "prefix": "System:" }),
            "prefix: must not begin with system:",
        ),
        (
            "claimMappings/username",
            json!({ "expression": "claims.sub", "prefix": "a" }),
            "must not be set together with expression",
        ),
        (
            "claimMappings/username",
            json!({ "expression": "claims.sub +" }),
            "username.expression: failed to parse",
        ),
        (
            "claimMappings/username",
            json!({ "expression": "user.username" }),
            "undeclared reference to 'user'",
        ),
        (
            "claimMappings/username",
            json!({ "expression": "claims.email" }),
            "claims.email_verified must be used",
        ),
        ("claimMappings/groups", json!({ "claim": "groups" }), "groups.prefix: is required"),
        (
            "claimMappings/groups",
            json!({ "claim": "groups", "prefix": "system:" }),
            "groups.prefix: must not begin",
        ),
        ("claimMappings/groups", json!(["a"]), "claimMappings.groups: must be a mapping"),
        ("claimMappings/uid", json!({ "claim": "a", "expression": "claims.a" }), "uid: claim and expression"),
        ("claimMappings/uid", json!({ "claim": "a", "prefix": "b" }), "unknown field `prefix`"),
        (
            "claimMappings/extra",
            json!([{ "key": "a.test/Team", "valueExpression": "'x'" }]),
            "extra[0].key: must be in lower case",
        ),
        (
            "claimMappings/extra",
            json!([{ "key": "team", "valueExpression": "'x'" }]),
            "extra[0].key: must be a domain and a path",
        ),
        (
            "claimMappings/extra",
            json!([{ "key": "k8s.io/a", "valueExpression": "'x'" }]),
            "which Kubernetes keeps",
        ),
        ("claimMappings/extra", json!([{ "key": "a.test/a" }]), "extra[0].valueExpression: is required"),
        (
            "claimMappings/extra",
            json!([{ "key": "a.test/a", "valueExpression": "'x'" }, { "key": "a.test/a", "valueExpression": "'y'" }]),
            "extra[1].key: is already used by another item",
        ),
        ("claimValidationRules", json!([{}]), "claimValidationRules[0]: claim or expression is required"),
        ("claimValidationRules", json!([{ "claim": "a", "expression": "true" }]), "can't both be set"),
        (
            "claimValidationRules",
            json!([{ "claim": "a", "message": "b" }]),
            "message: must not be set together with claim",
        ),
        (
            "claimValidationRules",
            json!([{ "expression": "true", "requiredValue": "b" }]),
            "requiredValue: must not be set",
        ),
        (
            "claimValidationRules",
            json!([{ "claim": "a" }, { "claim": "a" }]),
            "claimValidationRules[1].claim: is already used by another rule",
        ),
        (
            "claimValidationRules",
            json!([{ "expression": "claims.a" }, { "expression": "claims.a" }]),
            "[1].expression: is already used by another rule",
        ),
        (
            "claimValidationRules",
            json!([{ "expression": "claims.email_verified" }]),
            "claimValidationRules[0].expression: must evaluate to bool, not to dyn",
        ),
        (
            "claimValidationRules",
            json!([{ "expression": "claims.sub + 'x'" }]),
            "claimValidationRules[0].expression: must evaluate to bool, not to string",
        ),
        ("claimValidationRules", json!({}), "claimValidationRules: must be a list"),
        ("userValidationRules", json!([{}]), "userValidationRules[0].expression: is required"),
        (
            "userValidationRules",
            json!([{ "expression": "claims.sub == ''" }]),
            "undeclared reference to 'claims'",
        ),
        (
            "userValidationRules",
            json!([{ "expression": "user.name == 'jane'" }]),
            "userValidationRules[0].expression: undefined field 'name'",
        ),
        (
            "userValidationRules",
            json!([{ "expression": "user.groups == 'dev'" }]),
            "found no matching overload for '_==_' applied to '(list(string), string)'",
        ),
        (
            "userValidationRules",
            json!([{ "expression": "user.username" }]),
            "must evaluate to bool, not to string",
        ),
        (
            "userValidationRules",
            json!([{ "expression": "true" }, { "expression": "true" }]),
            "[1].expression: is already used by another rule",
        ),
    ] {
        let said = said(pointer, value.clone());
        assert!(said.contains(want), "{pointer} {value}: {said:?}");
    }
    // All of it at once.
    let error = parse(&file(&json!([{ "issuer": { "url": "http://a.test" } }]))).unwrap_err().to_string();
    for part in ["https URL", "audiences", "username"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_verified_address_may_be_asked_for_in_each_place() {
    for (pointer, value) in [
        ("claimMappings/username", json!({ "expression": "claims.email_verified ? claims.email : ''" })),
        ("claimMappings/username", json!({ "claim": "email", "prefix": "" })),
    ] {
        assert_eq!(said(pointer, value.clone()), "", "{value}");
    }
    let mut one = issuer();
    one["claimMappings"]["username"] = json!({ "expression": "claims.?email.orValue('')" });
    assert!(parse(&file(&json!([one]))).is_err());
    one["claimValidationRules"] = json!([{ "expression": "claims.?email_verified.orValue(true) == true" }]);
    assert!(parse(&file(&json!([one]))).is_ok());
}
