use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::{Access, Allowed, Credentials, MAX_BYTES, Refusal};

const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn config(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: admin@edge-1\n\
         clusters:\n- name: edge-1\n  cluster:\n{cluster}\
         contexts:\n- name: admin@edge-1\n  context: {{cluster: edge-1, user: admin, namespace: x}}\n\
         users:\n- name: admin\n  user:\n{user}"
    )
}

/// As Cluster API writes it.
fn sound() -> String {
    let pem = STANDARD.encode(PEM);
    config(
        &format!("    server: https://203.0.114.7:6443\n    certificate-authority-data: {pem}\n"),
        &format!("    client-certificate-data: {pem}\n    client-key-data: {pem}\n"),
    )
}

fn with(from: &str, to: &str) -> String {
    let text = sound();
    let changed = text.replace(from, to);
    assert_ne!(text, changed, "{from} is in it");
    changed
}

#[test]
fn what_cluster_api_writes_is_taken() {
    let access = Access::read(sound().as_bytes(), &Allowed::default()).unwrap();
    assert_eq!(access.server.as_str(), "https://203.0.114.7:6443/");
    assert_eq!(access.authority.as_deref(), Some(PEM));
    assert!(!access.skip_verification && access.proxy.is_none());
    assert!(
        matches!(&access.credentials, Credentials::Certificate { certificate, .. } if certificate == PEM)
    );
    assert!(!format!("{access:?}").contains("key: \"---"), "keys do not print");

    let token = config(
        "    server: https://edge-1.example/clusters/a\n    tls-server-name: edge\n",
        "    token: abc\n",
    );
    let access = Access::read(token.as_bytes(), &Allowed::default()).unwrap();
    assert_eq!(access.tls_server_name.as_deref(), Some("edge"));
    assert!(matches!(&access.credentials, Credentials::Token(token) if token.expose() == "abc"));
    assert!(!format!("{access:?}").contains("abc"));
}

#[test]
fn what_would_run_or_read_something_is_refused() {
    let server = "    server: https://edge-1.example\n";
    for (user, field) in [
        ("    exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1}\n", "exec"),
        ("    auth-provider: {name: gcp}\n", "auth-provider"),
        ("    client-certificate: /etc/passwd\n    client-key-data: x\n", "client-certificate"),
        ("    client-key: /etc/passwd\n", "client-key"),
        ("    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token\n", "tokenFile"),
        ("    username: a\n    password: hunter2\n", "password"),
        ("    token: abc\n    as: root\n", "as"),
        ("    token: abc\n    as-groups: ['system:masters']\n", "as-groups"),
        ("    token: abc\n    newer: {x: y}\n", "newer"),
        ("    token: \"a b\\r\\nX-Evil: 1\"\n", "token"),
    ] {
        let refusal = Access::read(config(server, user).as_bytes(), &everything()).unwrap_err();
        assert!(matches!(&refusal, Refusal::Field { field: have, .. } if have == field), "{user}: {refusal}");
        let shown = refusal.to_string();
        assert!(
            !shown.contains("hunter2") && !shown.contains("Evil") && !shown.contains("passwd"),
            "{shown}"
        );
    }
    for (cluster, field) in [
        (
            "    server: https://edge-1.example\n    certificate-authority: /etc/passwd\n",
            "certificate-authority",
        ),
        (
            "    server: https://edge-1.example\n    certificate-authority-data: '%'\n",
            "certificate-authority-data",
        ),
        (
            "    server: https://edge-1.example\n    certificate-authority-data: aGk=\n",
            "certificate-authority-data",
        ),
        ("    server: file:///etc/passwd\n", "server"),
        ("    server: unix:///var/run/docker.sock\n", "server"),
        ("    server: https://a:hunter2@edge-1.example\n", "server"),
        ("    server: https://edge-1.example?x=y\n", "server"),
        ("    server: [1]\n", "server"),
        ("    server: https://edge-1.example\n    proxy-url: socks5://edge-1.example\n", "proxy-url"),
    ] {
        let refusal =
            Access::read(config(cluster, "    token: abc\n").as_bytes(), &everything()).unwrap_err();
        assert!(
            matches!(&refusal, Refusal::Field { field: have, .. } if have == field),
            "{cluster}: {refusal}"
        );
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
    }
}

fn everything() -> Allowed {
    Allowed { plain_http: true, skip_verification: true, proxies: true }
}

#[test]
fn each_thing_is_allowed_by_itself() {
    let user = "    token: abc\n";
    let cases: [(&str, &str, Allowed); 3] = [
        ("    server: http://edge-1.example\n", "server", Allowed { plain_http: true, ..Allowed::default() }),
        (
            "    server: https://edge-1.example\n    insecure-skip-tls-verify: true\n",
            "insecure-skip-tls-verify",
            Allowed { skip_verification: true, ..Allowed::default() },
        ),
        (
            "    server: https://edge-1.example\n    proxy-url: http://proxy.example:3128\n",
            "proxy-url",
            Allowed { proxies: true, ..Allowed::default() },
        ),
    ];
    for (index, (cluster, field, allowed)) in cases.iter().enumerate() {
        let text = config(cluster, user);
        for (other, (.., by)) in cases.iter().enumerate() {
            let read = Access::read(text.as_bytes(), by);
            assert_eq!(read.is_ok(), index == other, "{field} by {by:?}");
        }
        let refusal = Access::read(text.as_bytes(), &Allowed::default()).unwrap_err().to_string();
        assert!(refusal.contains(field) && refusal.contains("--allow-"), "{refusal}");
        assert!(Access::read(text.as_bytes(), allowed).is_ok());
    }
}

#[test]
fn what_is_no_kubeconfig_is_refused() {
    let many: String = (0..100).map(|n| format!("- {{name: c{n}, context: {{}}}}\n")).collect();
    for (text, part) in [
        ("x".repeat(MAX_BYTES + 1), "bytes"),
        (String::new(), "not YAML"),
        ("[1]".to_owned(), "not a mapping"),
        ("a: &a [*a]".to_owned(), "not YAML"),
        (with("kind: Config", "kind: Secret"), "`kind` is not Config"),
        (with("current-context: admin@edge-1\n", ""), "current-context"),
        (with("current-context: admin@edge-1", "current-context: other"), "context \"other\" not found"),
        (with("cluster: edge-1, user", "cluster: other, user"), "cluster \"other\" not found"),
        (with("user: admin", "user: other"), "user \"other\" not found"),
        (with("contexts:\n", &format!("contexts:\n{many}")), "more than 64"),
        (with("users:\n", "users:\n- {name: admin, user: {}}\n"), "user \"admin\" occurs twice"),
        (with("    client-key-data", "    extensions: []\n    # "), "no `client-key-data`"),
        (config("    server: https://a.example\n", "    {}\n"), "no credentials"),
    ] {
        let refusal = Access::read(text.as_bytes(), &Allowed::default()).unwrap_err().to_string();
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
}

proptest! {
    /// No panic, and nothing but the current context's address is ever gone to.
    #[test]
    fn any_text(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..1000_usize) {
        let mut text = sound().into_bytes();
        let at = at.min(text.len());
        text.splice(at..at, bytes.iter().copied());
        let _ = Access::read(&text, &Allowed::default());
        let _ = Access::read(&bytes, &Allowed::default());
    }
}
