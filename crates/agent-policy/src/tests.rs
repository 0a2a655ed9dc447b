//! Every rule, and what no object may get around.

use std::collections::BTreeMap;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use roadstead_model::{ObjectRef, PendingDeletion};
use serde_json::{Value, json};

use crate::{
    Account, Action, CONFIRMED_KEY, Malformed, Object, POLICY_KEY, Policy, ResourceRule, Rights, Rule,
    Running, Signature,
};

const HOME: &str = "roadstead-system";

fn read(text: &str, confirmed: &str) -> Result<Policy, Malformed> {
    let data = [(POLICY_KEY, text), (CONFIRMED_KEY, confirmed)];
    let data: BTreeMap<String, String> = data.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
    Policy::from_config_map(HOME, Some(&data))
}

fn policy(text: &str) -> Policy {
    read(text, "").expect("a policy")
}

fn locked() -> Policy {
    policy("preset: locked\nserviceAccounts: {allowed: [apps/deployer]}")
}

fn deployer() -> Account {
    Account { namespace: "apps".to_owned(), name: "deployer".to_owned() }
}

fn reference(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectRef {
    let (group, version) = ObjectRef::split_api_version(api_version);
    ObjectRef {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// By which rule the policy refuses to apply this as `deployer`.
fn applied(policy: &Policy, api_version: &str, kind: &str, namespace: &str, content: &Value) -> Option<Rule> {
    let reference = reference(api_version, kind, namespace, "x");
    let object = Object { reference: &reference, content: Some(content) };
    policy.evaluate(Action::Apply, &object, Some(&deployer())).err().map(|refused| refused.rule)
}

fn deleted(policy: &Policy, reference: &ObjectRef) -> Option<Rule> {
    let object = Object { reference, content: None };
    policy.evaluate(Action::Delete, &object, Some(&deployer())).err().map(|refused| refused.rule)
}

#[test]
fn without_a_config_map_all_is_as_it_was_but_the_agents_own() {
    let open = Policy::from_config_map(HOME, None).expect("open");
    assert_eq!(open, policy("preset: open"));
    assert_eq!(open.check_account(None), Ok(()));
    let privileged = json!({"spec": {"hostPID": true, "containers": []}});
    for (api_version, kind, namespace) in [
        ("v1", "Pod", "kube-system"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", ""),
        ("example.com/v1", "Widget", "apps"),
    ] {
        assert_eq!(applied(&open, api_version, kind, namespace, &privileged), None, "{kind}");
    }
    assert_eq!(deleted(&open, &reference("v1", "Namespace", "", "apps")), None);
    assert_eq!(open.deletions_per_hour(), None);
    assert!(open.tells_values());
    assert!(!policy("preset: open\ndrift: {values: false}").tells_values());
    assert_eq!(open.check_removal(), Ok(()));
    let running = Running { image: "agent:2", version: "0.2.0" };
    assert_eq!(open.check_upgrade(&running, "agent:1", &[]), Ok(()));
    assert_eq!(applied(&open, "v1", "ConfigMap", HOME, &json!({})), Some(Rule::AgentNamespace));
    assert_eq!(deleted(&open, &reference("v1", "Namespace", "", HOME)), Some(Rule::AgentNamespace));
}

#[test]
fn the_agents_namespace_is_managed_by_the_hub_only_where_open_says_so_and_never_deleted() {
    let managed = policy("preset: open\nmanageAgentNamespace: true");
    assert_eq!(applied(&managed, "v1", "ConfigMap", HOME, &json!({})), None);
    assert_eq!(deleted(&managed, &reference("v1", "Namespace", "", HOME)), Some(Rule::AgentNamespace));
    assert!(read("preset: locked\nmanageAgentNamespace: true", "").is_err());
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        let own = reference("rbac.authorization.k8s.io/v1", kind, "", "roadstead-agent");
        assert_eq!(deleted(&policy("preset: open"), &own), Some(Rule::AgentNamespace), "{kind}");
    }
}

#[test]
fn what_goes_at_once_has_bounds_that_only_the_cluster_lifts() {
    let objects = |names: std::ops::Range<usize>| -> Vec<ObjectRef> {
        names.map(|number| reference("v1", "ConfigMap", "apps", &format!("map-{number}"))).collect()
    };
    let (owned, keep) = (objects(0..20), objects(3..20));
    let pending = |objects: &[ObjectRef], uid: &str| -> Vec<PendingDeletion> {
        let one =
            |object: &ObjectRef| PendingDeletion { object: object.clone(), uid: uid.to_owned(), risk: None };
        objects.iter().map(one).collect()
    };
    let going = pending(&owned[..3], "u");
    assert_eq!(policy("preset: open").check_deletions(&owned, &[], &pending(&owned, "u")), Ok(()));
    assert_eq!(
        policy("preset: open\ndeletions: {atOnce: {}}").check_deletions(&owned, &keep, &going),
        Ok(()),
        "it is less than half"
    );
    for text in ["maxDeletions: 2", "maxPercent: 10"] {
        let text = format!("preset: open\ndeletions: {{atOnce: {{{text}}}}}");
        let refused = policy(&text).check_deletions(&owned, &keep, &going).expect_err(&text);
        assert_eq!(refused.rule, Rule::DeletionsAtOnce);
        let line = refused.confirm.expect("it can be confirmed");
        let confirmed = read(&text, &line).expect("the line is understood");
        assert_eq!(confirmed.check_deletions(&owned, &keep, &going), Ok(()));
        // Just these objects, and not others of their names.
        assert!(confirmed.check_deletions(&owned, &keep, &pending(&owned[..3], "v")).is_err(), "{text}");
        assert!(confirmed.check_deletions(&owned, &[], &pending(&owned, "u")).is_err(), "{text}");
    }
    let all = policy("preset: open\ndeletions: {atOnce: {maxPercent: 100}}");
    assert!(all.check_deletions(&owned, &[], &pending(&owned, "u")).is_err(), "everything");
}

#[test]
fn what_is_not_understood_refuses_everything() {
    for text in [
        "",
        "preset: closed",
        "preset: open\nremoval: maybe",
        "preset: open\nremovall: allow",
        "preset: open\nkinds: {never: [Secret]}",
        "preset: open\nkinds: {nevr: []}",
        "preset: open\nnamespaces: {never: ['a b']}",
        "preset: open\ndeletions: {perHour: -1}",
        "preset: open\ndeletions: {atOnce: {maxPercent: 101}}",
        "preset: open\ndeletions: {atOnce: {most: 1}}",
        "preset: open\nupgrades: {publicKey: none}",
        "preset: open\nupgrades: {minimumVersion: new}",
        "preset: open\npreset: locked",
        "{",
        "- preset: open",
        "serviceAccounts: {required: true}",
    ] {
        let error = read(text, "").expect_err(text).to_string();
        assert!(error.contains("everything is refused"), "{error}");
    }
    assert!(read("preset: open", "permit everything").is_err());
    assert!(Policy::from_config_map(HOME, Some(&BTreeMap::new())).is_err(), "no key");
    let misspelt = BTreeMap::from([("policy.yml".to_owned(), "preset: locked".to_owned())]);
    assert!(Policy::from_config_map(HOME, Some(&misspelt)).is_err());
}

#[test]
fn accounts_are_required_and_named() {
    let locked = locked();
    let rule =
        |account: Option<Account>| locked.check_account(account.as_ref()).err().map(|refused| refused.rule);
    assert_eq!(rule(None), Some(Rule::AccountRequired));
    assert_eq!(rule(Some(deployer())), None);
    for (namespace, name) in [("apps", "default"), ("kube-system", "deployer"), ("apps", "deployer:x")] {
        let account = Account { namespace: namespace.to_owned(), name: name.to_owned() };
        assert_eq!(rule(Some(account)), Some(Rule::AccountAllowed), "{namespace}/{name}");
    }
    let any = policy("preset: locked\nserviceAccounts: {allowed: ['*/*']}");
    let own = Account { namespace: HOME.to_owned(), name: "roadstead-agent".to_owned() };
    assert_eq!(any.check_account(Some(&own)).expect_err("refused").rule, Rule::AccountRights);
    let nobody = policy("preset: locked");
    assert_eq!(nobody.check_account(Some(&deployer())).expect_err("refused").rule, Rule::AccountAllowed);
}

#[test]
fn no_account_has_rights_in_the_agents_namespace() {
    let locked = locked();
    assert!(locked.wants_rights(&deployer()));
    assert_eq!(locked.check_rights(&deployer(), &Ok(Rights::default())), Ok(()));
    let rule = ResourceRule {
        verbs: vec!["patch".to_owned()],
        api_groups: vec![String::new()],
        resources: vec!["configmaps".to_owned()],
    };
    let rights = Rights { resource_rules: vec![rule], incomplete: false };
    let refused = locked.check_rights(&deployer(), &Ok(rights)).expect_err("refused");
    assert_eq!(refused.rule, Rule::AccountRights);
    assert!(
        refused.to_string().contains("apps/deployer has rights in the agent's namespace (patch configmaps)")
    );
    assert!(locked.check_rights(&deployer(), &Err("forbidden".to_owned())).is_err());
    let trusting = policy("preset: locked\nserviceAccounts: {allowed: ['*/*'], trusted: [apps/deployer]}");
    assert!(!trusting.wants_rights(&deployer()));
    assert!(!policy("preset: open").wants_rights(&deployer()));
}

#[test]
fn locked_touches_kinds_that_grant_nothing_and_those_that_are_named() {
    let locked = locked();
    for (api_version, kind) in [
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
        ("apiregistration.k8s.io/v1", "APIService"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("certificates.k8s.io/v1", "CertificateSigningRequest"),
        ("node.k8s.io/v1", "RuntimeClass"),
        ("v1", "Node"),
        ("v1", "PersistentVolume"),
        ("apps/v1", "ControllerRevision"),
        ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ] {
        assert_eq!(applied(&locked, api_version, kind, "apps", &json!({})), Some(Rule::Kinds), "{kind}");
        assert_eq!(deleted(&locked, &reference(api_version, kind, "apps", "x")), Some(Rule::Kinds), "{kind}");
    }
    assert_eq!(applied(&locked, "apps/v1", "Deployment", "apps", &json!({"spec": {}})), None);
    let more = policy(
        "preset: locked\nserviceAccounts: {allowed: ['*/*']}\nkinds: {allowed: ['*.example.com/*'], never: [core/Secret]}",
    );
    assert_eq!(applied(&more, "a.example.com/v1", "Widget", "apps", &json!({})), None);
    assert_eq!(applied(&more, "v1", "Secret", "apps", &json!({})), Some(Rule::Kinds));
    let open = policy("preset: open\nkinds: {never: ['RBAC.authorization.k8s.io/*'], allowed: ['*/*']}");
    let role = applied(&open, "rbac.authorization.k8s.io/v1", "Role", "apps", &json!({}));
    assert_eq!(role, Some(Rule::Kinds), "never counts more than allowed");
}

#[test]
fn namespaces_that_are_not_touched() {
    let locked = locked();
    for namespace in ["kube-system", "kube-public", "kube-node-lease"] {
        assert_eq!(applied(&locked, "v1", "ConfigMap", namespace, &json!({})), Some(Rule::Namespaces));
        let itself = reference("v1", "Namespace", "", namespace);
        let object = Object { reference: &itself, content: Some(&json!({})) };
        let refused = locked.evaluate(Action::Apply, &object, Some(&deployer())).expect_err("refused");
        assert_eq!(refused.rule, Rule::Namespaces);
    }
    let more = policy("preset: open\nnamespaces: {never: ['prod-*']}");
    assert_eq!(applied(&more, "v1", "ConfigMap", "prod-a", &json!({})), Some(Rule::Namespaces));
    assert_eq!(applied(&more, "v1", "ConfigMap", "apps", &json!({})), None);
    let lifted =
        policy("preset: locked\nserviceAccounts: {allowed: ['*/*']}\nnamespaces: {allowed: [kube-system]}");
    assert_eq!(applied(&lifted, "v1", "ConfigMap", "kube-system", &json!({})), None);
}

#[test]
fn no_workload_leaves_its_container() {
    let locked = locked();
    let container = |context: Value| json!({"containers": [{"name": "a", "securityContext": context}]});
    let specs = [
        json!({"hostNetwork": true}),
        json!({"hostPID": true, "containers": []}),
        json!({"hostIPC": true}),
        json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}),
        json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
        json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
        json!({"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]}),
        container(json!({"privileged": true})),
        container(json!({"procMount": "Unmasked"})),
        container(json!({"capabilities": {"add": ["SYS_ADMIN"]}})),
        container(json!({"appArmorProfile": {"type": "Unconfined"}})),
        container(json!({"seLinuxOptions": {"user": "root"}})),
        json!({"initContainers": [{"name": "a", "securityContext": {"privileged": true}}]}),
        json!({"ephemeralContainers": [{"name": "a", "securityContext": {"privileged": true}}]}),
    ];
    for spec in &specs {
        for (api_version, kind, object) in [
            ("v1", "Pod", json!({"spec": spec})),
            ("v1", "PodTemplate", json!({"template": {"spec": spec}})),
            ("apps/v1", "Deployment", json!({"spec": {"template": {"spec": spec}}})),
            ("apps/v1", "DaemonSet", json!({"spec": {"template": {"spec": spec}}})),
            ("batch/v1", "CronJob", json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}})),
        ] {
            assert_eq!(
                applied(&locked, api_version, kind, "apps", &object),
                Some(Rule::Privileged),
                "{object}"
            );
        }
    }
    let relaxed = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    assert_eq!(applied(&locked, "v1", "Namespace", "", &relaxed), Some(Rule::Privileged));
    let fine = json!({"spec": {"template": {"spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "a", "emptyDir": {}}],
        "containers": [{"name": "a", "ports": [{"containerPort": 80}], "securityContext": {
            "privileged": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        }}],
    }}}});
    assert_eq!(applied(&locked, "apps/v1", "Deployment", "apps", &fine), None);
    let allowing = policy("preset: locked\nserviceAccounts: {allowed: ['*/*']}\nprivilegedWorkloads: allow");
    let privileged = json!({"spec": {"hostPID": true}});
    assert_eq!(applied(&allowing, "v1", "Pod", "apps", &privileged), None);
}

#[test]
fn the_accounts_that_a_workload_makes_use_of_are_found() {
    let locked = locked();
    let used = |kind: &str, content: &Value| {
        let reference = reference("v1", kind, "apps", "x");
        let used = locked.accounts_used(&Object { reference: &reference, content: Some(content) });
        used.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(used("Pod", &json!({"spec": {"serviceAccountName": "admin"}})), ["apps/admin"]);
    assert_eq!(used("Pod", &json!({"spec": {"serviceAccount": "admin"}})), ["apps/admin"]);
    assert_eq!(used("Pod", &json!({"spec": {}})), ["apps/default"]);
    let job =
        json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"serviceAccountName": "admin"}}}}}});
    assert_eq!(used("CronJob", &job), ["apps/admin"]);
    let token = json!({"type": "kubernetes.io/service-account-token",
        "metadata": {"annotations": {"kubernetes.io/service-account.name": "admin"}}});
    assert_eq!(used("Secret", &token), ["apps/admin"]);
    let custom = json!({"spec": {"runner": {"serviceAccountName": "admin", "containers": []}}});
    assert_eq!(used("Rollout", &custom), ["apps/admin"]);
    assert_eq!(used("ConfigMap", &json!({"data": {"containers": "[]"}})), Vec::<String>::new());
}

#[test]
fn deletions_of_namespaces_and_too_many_are_refused_until_they_are_confirmed() {
    let locked = locked();
    assert_eq!(locked.deletions_per_hour(), Some(100));
    assert!(!locked.tells_values());
    assert!(policy("preset: locked\ndrift: {values: true}").tells_values());
    assert_eq!(policy("preset: locked\ndeletions: {perHour: 0}").deletions_per_hour(), Some(0));
    let namespace = reference("v1", "Namespace", "", "team-a");
    assert_eq!(deleted(&locked, &namespace), Some(Rule::DeletedNamespaces));
    let accounts = "preset: locked\nserviceAccounts: {allowed: ['*/*']}";
    let confirmed =
        read(accounts, "# agreed on Monday\n\n  delete core/Namespace team-a\n").expect("a policy");
    assert_eq!(deleted(&confirmed, &namespace), None);
    assert!(confirmed.is_confirmed_deletion(&namespace));
    let refused = locked.too_many_deletions(&reference("v1", "ConfigMap", "apps", "a"), 100);
    assert_eq!(refused.confirm.as_deref(), Some("delete core/ConfigMap apps/a"));
    assert!(refused.to_string().contains("rule `deletions.perHour`"), "{refused}");
}

#[test]
fn an_object_that_its_owner_would_take_with_it_is_refused() {
    let locked = policy("preset: locked\nserviceAccounts: {allowed: ['*/*']}");
    let owned = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}]}});
    assert_eq!(applied(&locked, "v1", "ConfigMap", "apps", &owned), Some(Rule::Owners));
    assert_eq!(
        applied(&locked, "v1", "ConfigMap", "apps", &json!({"metadata": {"ownerReferences": {}}})),
        Some(Rule::Owners)
    );
    assert_eq!(
        applied(&locked, "v1", "ConfigMap", "apps", &json!({"metadata": {"ownerReferences": []}})),
        None
    );
    let allowed = "preset: locked\nserviceAccounts: {allowed: ['*/*']}\ndeletions: {byOwner: allow}";
    assert_eq!(applied(&policy(allowed), "v1", "ConfigMap", "apps", &owned), None);
    assert_eq!(applied(&policy("preset: open"), "v1", "ConfigMap", "apps", &owned), None);
}

#[test]
fn an_object_is_confirmed_with_its_content_and_never_one_of_the_agents_own() {
    let accounts = "preset: locked\nserviceAccounts: {allowed: ['*/*']}";
    let locked = policy(accounts);
    let role = reference("rbac.authorization.k8s.io/v1", "ClusterRole", "", "reader");
    let (read_only, all) = (json!({"rules": [{"verbs": ["get"]}]}), json!({"rules": [{"verbs": ["*"]}]}));
    let apply = |policy: &Policy, content: &Value| {
        policy.evaluate(
            Action::Apply,
            &Object { reference: &role, content: Some(content) },
            Some(&deployer()),
        )
    };
    let refused = apply(&locked, &read_only).expect_err("refused");
    let line = refused.confirm.clone().expect("a line");
    assert!(refused.to_string().contains(&line), "{refused}");
    let confirmed = read(accounts, &line).expect("a policy");
    assert_eq!(apply(&confirmed, &read_only), Ok(()));
    assert!(apply(&confirmed, &all).is_err(), "another content under the same name");

    let own = reference("v1", "ConfigMap", HOME, "roadstead-agent-policy");
    let object = Object { reference: &own, content: Some(&json!({})) };
    assert_eq!(
        locked.evaluate(Action::Apply, &object, Some(&deployer())).expect_err("refused").confirm,
        None
    );
    let named =
        read(accounts, &format!("delete core/ConfigMap {HOME}/roadstead-agent-policy")).expect("a policy");
    assert_eq!(deleted(&named, &own), Some(Rule::AgentNamespace));
}

#[test]
fn a_secrets_values_are_not_in_the_line_that_confirms_it() {
    let locked = locked();
    let secret = reference("v1", "Secret", "kube-system", "s");
    let line = |data: Value| {
        let content = json!({"data": data, "stringData": {"b": "y"}, "type": "Opaque"});
        let object = Object { reference: &secret, content: Some(&content) };
        locked.evaluate(Action::Apply, &object, Some(&deployer())).expect_err("refused").confirm
    };
    assert_eq!(line(json!({"a": "MQ=="})), line(json!({"a": "Mg=="})));
}

#[test]
fn removal_is_refused_until_it_is_confirmed() {
    assert_eq!(locked().check_removal().expect_err("refused").rule, Rule::Removal);
    assert_eq!(read("preset: locked", "removal").expect("a policy").check_removal(), Ok(()));
    assert_eq!(policy("preset: locked\nremoval: allow").check_removal(), Ok(()));
    assert!(policy("preset: open\nremoval: refuse").check_removal().is_err());
}

/// Who signs images.
struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
        Self(key)
    }

    fn pem(&self) -> String {
        let mut der = STANDARD.decode("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE").expect("base64");
        // The last byte of that is the point's first.
        der.pop();
        der.extend_from_slice(self.0.public_key().as_ref());
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    fn sign(&self, repository: &str, digest: &str, version: Option<&str>) -> Signature {
        let optional = version.map(|version| json!({"version": version}));
        let payload = json!({
            "critical": {"identity": {"docker-reference": repository}, "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature"},
            "optional": optional,
        });
        let payload = payload.to_string().into_bytes();
        let signature = self.0.sign(&SystemRandom::new(), &payload).expect("signed").as_ref().to_vec();
        Signature { payload, signature }
    }

    fn policy(&self, more: &str) -> Policy {
        let key = self.pem().replace('\n', "\n    ");
        policy(&format!("preset: locked\nupgrades:\n  publicKey: |\n    {key}\n{more}"))
    }
}

const REPOSITORY: &str = "registry.example/agent";

fn image(tag: &str, digest: &str) -> String {
    format!("{REPOSITORY}{tag}@{digest}")
}

fn sha(byte: &str) -> String {
    format!("sha256:{}", byte.repeat(32))
}

#[test]
fn an_image_needs_the_signature_of_the_policys_key_for_its_own_digest() {
    let (signer, other) = (Signer::new(), Signer::new());
    let policy = signer.policy("");
    let running = Running { image: &image(":0.1.0", &sha("aa")), version: "0.1.0" };
    let check = |image: &str, signatures: &[Signature]| {
        policy.check_upgrade(&running, image, signatures).err().map(|refused| refused.rule)
    };
    let (wanted, good) = (image("", &sha("bb")), signer.sign(REPOSITORY, &sha("bb"), Some("0.2.0")));
    assert_eq!(check(&wanted, std::slice::from_ref(&good)), None);
    let forged = other.sign(REPOSITORY, &sha("bb"), Some("0.2.0"));
    assert_eq!(check(&wanted, &[forged.clone(), good.clone()]), None, "one of them is enough");
    assert_eq!(check(&wanted, &[]), Some(Rule::UpgradeKey));
    assert_eq!(check(&wanted, &[forged]), Some(Rule::UpgradeKey));
    assert_eq!(check(&image("", &sha("cc")), std::slice::from_ref(&good)), Some(Rule::UpgradeKey));
    let tagged = format!("{REPOSITORY}:0.2.0");
    assert_eq!(check(&tagged, std::slice::from_ref(&good)), Some(Rule::UpgradeDigest));
    let elsewhere = signer.sign("registry.example/other", &sha("bb"), Some("0.2.0"));
    assert_eq!(check(&wanted, &[elsewhere]), Some(Rule::UpgradeKey), "another program of the same signer");
    let other = format!("evil.example/agent@{}", sha("bb"));
    assert_eq!(check(&other, &[good]), Some(Rule::UpgradeRepository));
    assert_eq!(check("agent @x", &[]), Some(Rule::Upgrades));
}

#[test]
fn the_version_is_the_signers_word_and_never_goes_back() {
    let signer = Signer::new();
    let running = Running { image: &image(":0.3.0", &sha("aa")), version: "0.3.0" };
    // What the tag says is the hub's word.
    let wanted = image(":9.9.9", &sha("bb"));
    let check = |policy: &Policy, version: Option<&str>| {
        let signature = signer.sign(REPOSITORY, &sha("bb"), version);
        policy.check_upgrade(&running, &wanted, &[signature]).err().map(|refused| refused.rule)
    };
    let plain = signer.policy("");
    assert_eq!(check(&plain, Some("v0.3.0")), None);
    assert_eq!(check(&plain, Some("0.10.0")), None);
    assert_eq!(check(&plain, Some("0.2.9")), Some(Rule::UpgradeDowngrade));
    assert_eq!(check(&plain, Some("0.3.0-rc.1")), Some(Rule::UpgradeDowngrade));
    assert_eq!(check(&plain, None), Some(Rule::UpgradeDowngrade));
    let lenient = signer.policy("  downgrade: true\n  minimumVersion: 0.2.0");
    assert_eq!(check(&lenient, Some("0.2.0")), None);
    assert_eq!(check(&lenient, Some("0.1.9")), Some(Rule::UpgradeMinimum));
    assert_eq!(check(&lenient, None), Some(Rule::UpgradeMinimum));
    let by_tag = policy("preset: open\nupgrades: {minimumVersion: 1.0.0, downgrade: false}");
    let check = |image: &str| by_tag.check_upgrade(&running, image, &[]).err().map(|refused| refused.rule);
    assert_eq!(check("registry.example/agent:1.0.0"), None);
    assert_eq!(check("registry.example/agent:0.9.0"), Some(Rule::UpgradeMinimum));
    assert_eq!(check("registry.example/agent:latest"), Some(Rule::UpgradeMinimum));
}

#[test]
fn locked_takes_no_image_without_a_key_and_a_confirmed_one_in_any_case() {
    let running = Running { image: "registry.example/agent:1", version: "0.1.0" };
    let wanted = image("", &sha("bb"));
    let refused = locked().check_upgrade(&running, &wanted, &[]).expect_err("refused");
    assert_eq!(refused.rule, Rule::Upgrades);
    let confirmed = read("preset: locked", &refused.confirm.expect("a line")).expect("a policy");
    assert_eq!(confirmed.check_upgrade(&running, &wanted, &[]), Ok(()));
    assert!(confirmed.check_upgrade(&running, &image("", &sha("cc")), &[]).is_err());
    let pinned = policy(&format!("preset: open\nupgrades: {{repository: {REPOSITORY}}}"));
    let elsewhere = Running { image: "old.example/agent:1", version: "0.1.0" };
    assert_eq!(pinned.check_upgrade(&elsewhere, &wanted, &[]), Ok(()), "the policy names another");
    assert!(pinned.check_upgrade(&elsewhere, "old.example/agent:2", &[]).is_err());
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(HOME.to_owned()),
        Just("roadstead-agent".to_owned()),
        Just("apps".to_owned()),
        Just(String::new()),
        "[a-z*./-]{0,12}",
    ]
}

fn any_group() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("apps".to_owned()),
        Just("rbac.authorization.k8s.io".to_owned()),
        Just("apiextensions.k8s.io".to_owned()),
        "[a-z.]{0,20}",
    ]
}

fn any_kind() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("Namespace".to_owned()),
        Just("Pod".to_owned()),
        Just("Deployment".to_owned()),
        Just("ClusterRoleBinding".to_owned()),
        "[A-Za-z]{0,16}",
    ]
}

prop_compose! {
    fn any_object()(group in any_group(), kind in any_kind(), namespace in any_name(), name in any_name()) -> ObjectRef {
        ObjectRef { group, version: "v1".to_owned(), kind, namespace, name }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just("spec".to_owned()),
        Just("template".to_owned()),
        Just("containers".to_owned()),
        Just("securityContext".to_owned()),
        Just("privileged".to_owned()),
        Just("hostPID".to_owned()),
        "[a-z]{1,4}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from)
    ];
    leaf.prop_recursive(6, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_policy_lets_the_agents_own_be_touched(
        object in any_object(), content in any_json(), is_locked: bool, delete: bool,
        kinds in proptest::sample::select(vec!["*/*", "core/*", "rbac.authorization.k8s.io/*"]),
    ) {
        let preset = if is_locked { "locked" } else { "open" };
        let text = format!("preset: {preset}\nserviceAccounts: {{allowed: ['*/*']}}\nkinds: {{allowed: ['{kinds}']}}\n\
                            namespaces: {{allowed: ['*']}}\nprivilegedWorkloads: allow\ndeletions: {{namespaces: allow}}");
        let policy = policy(&text);
        let is_own = object.namespace == HOME || (object.group.is_empty() && object.kind == "Namespace" && object.name == HOME);
        let (action, content) = if delete { (Action::Delete, None) } else { (Action::Apply, Some(&content)) };
        let taken = policy.evaluate(action, &Object { reference: &object, content }, Some(&deployer()));
        if is_own {
            prop_assert_eq!(taken.expect_err("touched").rule, Rule::AgentNamespace);
        }
    }

    #[test]
    fn locked_takes_only_known_kinds_by_allowed_accounts(
        object in any_object(), content in any_json(), account in (any_name(), any_name()), delete: bool,
    ) {
        let account = Account { namespace: account.0, name: account.1 };
        let (action, content) = if delete { (Action::Delete, None) } else { (Action::Apply, Some(&content)) };
        let policy = policy("preset: locked\nserviceAccounts: {allowed: ['apps/*']}");
        if policy.evaluate(action, &Object { reference: &object, content }, Some(&account)).is_ok() {
            prop_assert_eq!(account.namespace, "apps");
            prop_assert!(["", "apps"].contains(&object.group.as_str()), "{}", object);
            prop_assert!(object.namespace != HOME && object.namespace != "kube-system");
            prop_assert!(!(delete && object.kind == "Namespace"));
        }
    }

    #[test]
    fn whatever_stands_in_the_config_map_is_a_policy_or_refuses_everything(text in ".{0,200}", confirmed in ".{0,60}") {
        // Neither panics nor is taken for the default.
        let _ = read(&text, &confirmed);
        let _ = read(&format!("preset: locked\n{text}"), &confirmed);
    }

    #[test]
    fn a_privileged_container_is_found_wherever_a_pod_is(content in any_json(), depth in 0_usize..8) {
        let mut object = json!({"containers": [{"name": "a", "securityContext": {"privileged": true}}], "x": content});
        for level in 0..depth {
            object = if level % 2 == 0 { json!({ "a": object }) } else { json!([object]) };
        }
        let locked = policy("preset: locked\nserviceAccounts: {allowed: ['*/*']}\nkinds: {allowed: ['*/*']}");
        prop_assert_eq!(applied(&locked, "example.com/v1", "Widget", "apps", &object), Some(Rule::Privileged));
    }
}
