//! The user whom a token stands for, and why it may stand for nobody.

use roadstead_oidc::{Keys, Refusal, Token, User};
use serde_json::{Value, json};

use crate::config::{file, issuer, parse};
use crate::signer::{NOW, Signer, claims};

struct Site {
    signer: Signer,
    keys: Keys,
}

impl Site {
    fn new() -> Self {
        let signer = Signer::new();
        let keys = signer.keys();
        Self { signer, keys }
    }

    /// Whom these claims stand for by a configuration whose one issuer has these parts.
    fn user(&self, parts: &Value, claims: &Value) -> Result<User, Refusal> {
        let mut one = issuer();
        one.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        let configuration = parse(&file(&json!([one]))).unwrap();
        let text = self.signer.sign(&json!({ "alg": "ES256", "kid": "p256" }), claims);
        configuration.issuers()[0].user(&Token::parse(&text)?, &self.keys, NOW)
    }

    fn mapped(&self, mappings: &Value, claims: &Value) -> Result<User, Refusal> {
        self.user(&json!({ "claimMappings": mappings }), claims)
    }
}

fn with(field: &str, value: Value) -> Value {
    let mut all = claims();
    all[field] = value;
    all
}

fn without(field: &str) -> Value {
    let mut all = claims();
    all.as_object_mut().unwrap().remove(field);
    all
}

fn by_claims(username: &str) -> Value {
    json!({ "username": { "claim": username, "prefix": "u:" }, "groups": { "claim": "groups", "prefix": "g:" } })
}

#[test]
fn claims_become_a_user() {
    let site = Site::new();
    let mappings = json!({
        "username": { "claim": "sub", "prefix": "oidc:" },
        "groups": { "claim": "groups", "prefix": "oidc:" },
        "uid": { "claim": "oid" },
        "extra": [
            { "key": "a.test/team", "valueExpression": "claims.team" },
            { "key": "a.test/none", "valueExpression": "''" },
            { "key": "a.test/many", "valueExpression": "['a', '', claims.oid]" },
        ],
    });
    let mut all = claims();
    for (field, value) in [("oid", json!("7")), ("team", json!("web")), ("jti", json!("one"))] {
        all[field] = value;
    }
    let user = site.mapped(&mappings, &all).unwrap();
    assert_eq!((user.username.as_str(), user.uid.as_str()), ("oidc:jane", "7"));
    assert_eq!(user.groups, ["oidc:dev", "oidc:ops"]);
    let extra = json!({
        "a.test/team": ["web"], "a.test/many": ["a", "7"], "authentication.kubernetes.io/credential-id": ["JTI=one"],
    });
    assert_eq!(json!(user.extra), extra);
    assert_eq!((user.expires, user.reserved_groups), (NOW + 60, 0));
}

#[test]
fn groups_are_a_text_a_list_or_none() {
    let site = Site::new();
    for (value, want) in [
        (json!("dev"), vec!["g:dev"]),
        (json!([]), vec![]),
        (json!(null), vec![]),
        (json!(""), vec![]),
        (json!(["a", "a", "b", "", null]), vec!["g:a", "g:b"]),
    ] {
        let user = site.mapped(&by_claims("sub"), &with("groups", value.clone())).unwrap();
        assert_eq!(user.groups, want, "{value}");
    }
    assert!(site.mapped(&by_claims("sub"), &without("groups")).unwrap().groups.is_empty());
    for value in [json!(1), json!({ "a": true }), json!(["a", 1]), json!([["a"]])] {
        let refused = site.mapped(&by_claims("sub"), &with("groups", value.clone()));
        assert!(matches!(refused, Err(Refusal::Type { .. })), "{value}");
    }
    let many: Vec<String> = (0..1001).map(|n| n.to_string()).collect();
    assert_eq!(
        site.mapped(&by_claims("sub"), &with("groups", json!(many[..1000]))).unwrap().groups.len(),
        1000
    );
    let refused = site.mapped(&by_claims("sub"), &with("groups", json!(many)));
    assert_eq!(refused, Err(Refusal::TooManyGroups(1000)));
    // Ten thousand do not fit into a token that is looked at.
    let more: Vec<String> = (0..10_000).map(|n| format!("group-{n}")).collect();
    let refused = site.mapped(&by_claims("sub"), &with("groups", json!(more))).unwrap_err();
    assert!(refused.to_string().contains("longer than 16384 bytes"), "{refused}");
}

#[test]
fn no_token_gives_a_name_of_the_system() {
    let site = Site::new();
    let bare = json!({ "username": { "claim": "sub", "prefix": "" }, "groups": { "claim": "groups", "prefix": "" } });
    for name in ["system:admin", "System:masters", "system:serviceaccount:a:b", "system:roadstead:hub"] {
        assert_eq!(site.mapped(&bare, &with("sub", json!(name))), Err(Refusal::Reserved), "{name}");
    }
    // A prefix that is whole with the claim alone.
    let split = json!({ "username": { "claim": "sub", "prefix": "sys" } });
    assert_eq!(site.mapped(&split, &with("sub", json!("tem:admin"))), Err(Refusal::Reserved));
    let made = json!({ "username": { "expression": "'system:' + claims.sub" } });
    assert_eq!(site.mapped(&made, &claims()), Err(Refusal::Reserved));
    let groups = json!(["system:masters", "dev", "SYSTEM:masters", "system:authenticated", "systems:a"]);
    let user = site.mapped(&bare, &with("groups", groups.clone())).unwrap();
    assert_eq!((user.groups, user.reserved_groups), (vec!["dev".to_owned(), "systems:a".to_owned()], 3));
    let made = json!({ "username": { "claim": "sub", "prefix": "" }, "groups": { "expression": "['system:masters']" } });
    let user = site.mapped(&made, &claims()).unwrap();
    assert!(user.groups.is_empty() && user.reserved_groups == 1);
    // A prefix keeps them apart; and a rule sees them before they are left out.
    let user = site.mapped(&by_claims("sub"), &with("groups", groups.clone())).unwrap();
    assert!(user.groups.contains(&"g:system:masters".to_owned()) && user.reserved_groups == 0);
    let strict = json!({
        "claimMappings": bare,
        "userValidationRules": [{ "expression": "user.groups.all(g, !g.startsWith('system:'))", "message": "reserved" }],
    });
    let refused = site.user(&strict, &with("groups", groups)).unwrap_err();
    assert!(
        refused.to_string().contains("userValidationRules[0].expression does not hold: reserved"),
        "{refused}"
    );
}

#[test]
fn names_are_texts_that_can_be_seen() {
    let site = Site::new();
    for (value, want) in [
        (json!(""), Refusal::NoName),
        (json!(null), Refusal::NoName),
        (json!(1), Refusal::Type { claim: "sub".to_owned(), expected: "text" }),
        (json!(["jane"]), Refusal::Type { claim: "sub".to_owned(), expected: "text" }),
        (json!("ja\0ne"), Refusal::Invisible { what: "the username" }),
        (json!("\u{202e}enaj"), Refusal::Invisible { what: "the username" }),
        (json!("x".repeat(1025)), Refusal::TooLong { what: "the username", most: 1024 }),
    ] {
        assert_eq!(site.mapped(&by_claims("sub"), &with("sub", value.clone())), Err(want), "{value}");
    }
    assert_eq!(site.mapped(&by_claims("sub"), &without("sub")), Err(Refusal::Absent("sub".to_owned())));
    let refused = site.mapped(&by_claims("sub"), &with("groups", json!(["dev\n"])));
    assert_eq!(refused, Err(Refusal::Invisible { what: "the name of a group" }));
    // Other letters are another name, whatever they look like.
    let user = site.mapped(&by_claims("sub"), &with("sub", json!("j\u{430}ne"))).unwrap();
    assert_ne!(user.username, "u:jane");
}

#[test]
fn an_address_must_be_verified_where_the_issuer_says_whether_it_is() {
    let site = Site::new();
    let email = |verified: Option<Value>| {
        let mut all = with("email", json!("jane@a.test"));
        if let Some(verified) = verified {
            all["email_verified"] = verified;
        }
        site.mapped(&by_claims("email"), &all).map(|user| user.username)
    };
    assert_eq!(email(None), Ok("u:jane@a.test".to_owned()));
    assert_eq!(email(Some(json!(true))), Ok("u:jane@a.test".to_owned()));
    for value in [json!(false), json!("true"), json!(1), json!(null)] {
        assert_eq!(email(Some(value.clone())), Err(Refusal::EmailNotVerified), "{value}");
    }
    // It says nothing of other names.
    let mut other = claims();
    other["email_verified"] = json!(false);
    assert!(site.mapped(&by_claims("sub"), &other).is_ok());
}

#[test]
fn groups_that_are_elsewhere_are_not_lost_in_silence() {
    let site = Site::new();
    let by_expression = json!({
        "username": { "claim": "sub", "prefix": "" }, "groups": { "expression": "claims.?groups.orValue([])" },
    });
    let sources = json!({ "src1": { "endpoint": "https://graph.test/groups" } });
    for mappings in [by_claims("sub"), by_expression] {
        let mut left_out = without("groups");
        left_out["_claim_names"] = json!({ "groups": "src1" });
        left_out["_claim_sources"] = sources.clone();
        let refused = site.mapped(&mappings, &left_out).unwrap_err();
        assert_eq!(refused, Refusal::GroupsElsewhere("groups".to_owned()));
        assert!(refused.to_string().contains("too many groups"));
        for mark in [json!(true), json!("true")] {
            let mut left_out = without("groups");
            left_out["hasgroups"] = mark;
            assert!(matches!(site.mapped(&mappings, &left_out), Err(Refusal::GroupsElsewhere(_))));
        }
        // It names others, or the groups are there all the same.
        let mut others = without("groups");
        others["_claim_names"] = json!({ "photos": "src1" });
        others["hasgroups"] = json!(false);
        assert!(site.mapped(&mappings, &others).is_ok());
        let mut both = claims();
        both["_claim_names"] = json!({ "groups": "src1" });
        assert_eq!(site.mapped(&mappings, &both).unwrap().groups.len(), 2);
    }
    let mut left_out = without("groups");
    left_out["_claim_names"] = json!({ "groups": "src1" });
    let without_groups = json!({ "username": { "claim": "sub", "prefix": "" } });
    assert!(site.mapped(&without_groups, &left_out).is_ok(), "nobody asks for groups");
}

#[test]
fn rules_must_hold() {
    let site = Site::new();
    let rules = |claim_rules: Value, user_rules: Value, claims: &Value| {
        site.user(&json!({ "claimValidationRules": claim_rules, "userValidationRules": user_rules }), claims)
    };
    let required = json!([{ "claim": "hd", "requiredValue": "a.test" }]);
    assert!(rules(required.clone(), json!([]), &with("hd", json!("a.test"))).is_ok());
    for (all, want) in [
        (claims(), Refusal::Absent("hd".to_owned())),
        (with("hd", json!("A.test")), Refusal::Value("hd".to_owned())),
        (with("hd", json!(["a.test"])), Refusal::Type { claim: "hd".to_owned(), expected: "text" }),
    ] {
        assert_eq!(rules(required.clone(), json!([]), &all), Err(want));
    }
    let empty = json!([{ "claim": "hd" }]);
    assert!(rules(empty.clone(), json!([]), &with("hd", json!(""))).is_ok());
    assert_eq!(rules(empty, json!([]), &with("hd", json!("x"))), Err(Refusal::Value("hd".to_owned())));
    let test = |text: &str| rules(json!([{ "expression": text, "message": "no" }]), json!([]), &claims());
    assert!(test("claims.sub == 'jane' && 'dev' in claims.groups").is_ok());
    assert!(matches!(test("claims.sub == 'joe'"), Err(Refusal::Rule { message, .. }) if message == "no"));
    for text in ["claims.absent == 'a'", "claims.sub < 1"] {
        assert!(matches!(test(text), Err(Refusal::Expression { .. })), "{text}");
    }
    // What costs too much is refused, and not waited for.
    let costly =
        "claims.groups.all(a, claims.groups.all(b, claims.groups.all(c, claims.groups.all(d, a != 'x'))))";
    let many: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let refused = rules(json!([{ "expression": costly }]), json!([]), &with("groups", json!(many)));
    assert!(refused.unwrap_err().to_string().contains("cost too much"));
    let user = |text: &str| rules(json!([]), json!([{ "expression": text }]), &claims());
    assert!(
        user("user.username == 'jane' && user.uid == '' && user.groups == [] && user.extra == {}").is_ok()
    );
    assert!(user("user.username.startsWith('oidc:')").is_err());
}

#[test]
fn expressions_come_to_texts() {
    let site = Site::new();
    let name = |text: &str| site.mapped(&json!({ "username": { "expression": text } }), &claims());
    assert_eq!(name("claims.sub + '@' + claims.iss").unwrap().username, "jane@https://issuer.test");
    assert_eq!(name("''"), Err(Refusal::NoName));
    for text in ["claims.exp", "claims.groups", "null", "claims.?absent"] {
        assert!(name(text).is_err(), "{text}");
    }
    let groups = |text: &str| {
        let mappings =
            json!({ "username": { "claim": "sub", "prefix": "" }, "groups": { "expression": text } });
        site.mapped(&mappings, &claims()).map(|user| user.groups)
    };
    assert_eq!(groups("claims.groups.map(g, 'x-' + g)").unwrap(), ["x-dev", "x-ops"]);
    assert_eq!(groups("'one'").unwrap(), ["one"]);
    assert!(groups("null").unwrap().is_empty() && groups("['']").unwrap().is_empty());
    for text in ["1", "[1]", "{'a': 'b'}", "['a', null]"] {
        assert!(matches!(groups(text), Err(Refusal::Outcome { .. })), "{text}");
    }
    let uid = |mapping: Value| {
        site.mapped(&json!({ "username": { "claim": "sub", "prefix": "" }, "uid": mapping }), &claims())
    };
    assert_eq!(uid(json!({ "expression": "claims.sub" })).unwrap().uid, "jane");
    assert_eq!(uid(json!({ "claim": "oid" })), Err(Refusal::Absent("oid".to_owned())));
}

#[test]
fn a_refusal_repeats_nothing_of_the_token() {
    let site = Site::new();
    let secret = "hush-hush";
    for (mappings, all) in [
        (by_claims("sub"), with("sub", json!([secret]))),
        (by_claims("sub"), with("groups", json!({ (secret): 1 }))),
        (json!({ "username": { "expression": "claims.sub.split('x')[5]" } }), with("sub", json!(secret))),
        (json!({ "username": { "expression": "string(int(claims.sub))" } }), with("sub", json!(secret))),
    ] {
        let refused = site.mapped(&mappings, &all).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains(secret), "{refused:?}");
    }
}
