//! Beside what OpenSSH finds for a host in the same file.

use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::source_cases::{source_cases, tell};

const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJ5pO9c5Q3n2Zz8xXvFz5h5C4o3Q3m0o9t3E2VvT3q1L";

fn line(hosts: &str) -> String {
    format!("{hosts} ssh-ed25519 {KEY}\n")
}

/// Whether a line for these hosts is for that one.
fn is_for(hosts: &str, host: &str, port: u16) -> bool {
    KnownHosts::parse(&line(hosts)).unwrap().trust(host, port).is_known().is_ok()
}

#[test]
fn hosts_are_matched_as_openssh_does() {
    for (hosts, host, port, wanted) in [
        ("git.example", "git.example", 22, true),
        ("git.example", "GIT.example", 22, true),
        ("GIT.example", "git.example", 22, true),
        ("git.example", "git.example", 2222, false),
        ("[git.example]:2222", "git.example", 2222, true),
        ("[git.example]:2222", "git.example", 22, false),
        ("[git.example]:22", "git.example", 22, true),
        ("git.example,10.0.0.1", "10.0.0.1", 22, true),
        ("*.example", "git.example", 22, true),
        ("*.example", "example", 22, false),
        ("*.example", "git.example.evil", 22, false),
        ("*.example,!git.example", "git.example", 22, false),
        ("!git.example,*.example", "git.example", 22, false),
        ("!git.example,*.example", "other.example", 22, true),
        ("!git.example", "other.example", 22, false),
        ("g?t.example", "git.example", 22, true),
        ("g?t.example", "gt.example", 22, false),
        ("*", "git.example", 2222, true),
        ("[*.example]:2222", "git.example", 2222, true),
        ("::1", "::1", 22, true),
        ("[::1]:2222", "::1", 2222, true),
        (",", "git.example", 22, false),
    ] {
        assert_eq!(is_for(hosts, host, port), wanted, "{hosts} for {host}:{port}");
    }
}

#[test]
fn lines_that_cannot_be_read_are_named() {
    let good = line("git.example");
    for (bad, why) in [
        ("git.example", "no key after the hosts"),
        ("git.example ssh-ed25519", "no key after its kind"),
        ("git.example ssh-ed25519 !!!", "not base64"),
        ("git.example ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIJ5pO9c5", "not of the kind"),
        ("git.example ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ5pO9c5", "cannot be read"),
        ("@trusted git.example ssh-ed25519 AAAA", "the marker"),
        ("@revoked", "no hosts after the marker"),
        ("|1|AAAA|AAAA ssh-ed25519 AAAA", "|1|SALT|HASH"),
        ("|2|AAAA|AAAA ssh-ed25519 AAAA", "|1|SALT|HASH"),
    ] {
        let error = KnownHosts::parse(&format!("{good}# a comment\n{bad}\n")).unwrap_err();
        assert!(matches!(&error, KnownHostsError::Line { number: 3, .. }), "{bad}: {error:?}");
        assert!(error.to_string().contains(why), "{bad}: {error}");
    }
    let long = format!("{} ssh-ed25519 {KEY}", "a".repeat(2_000));
    assert!(KnownHosts::parse(&long).is_err());
    assert_eq!(KnownHosts::parse(&good.repeat(5_000)).unwrap_err(), KnownHostsError::TooLong);
}

#[test]
fn keys_that_are_not_supported_are_told() {
    // A key of a token: `sk-ssh-ed25519@openssh.com`, with nothing in it that is looked at.
    let kind = "sk-ssh-ed25519@openssh.com";
    let mut bytes = u32::try_from(kind.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend_from_slice(kind.as_bytes());
    let text = format!("git.example {kind} {}\n", STANDARD.encode(bytes));
    let known = KnownHosts::parse(&text).unwrap();
    let unknown = known.trust("git.example", 22).is_known().unwrap_err();
    assert!(unknown.to_string().contains(kind), "{unknown}");
    assert_eq!(known.trust("other", 22).is_known().unwrap_err(), Distrust::Unknown(Vec::new()));
}

fn host() -> impl Strategy<Value = String> {
    "[ab]{1,3}(\\.[ab]{1,2}){0,2}"
}

/// Lists of patterns with few letters, so that they often match.
fn patterns() -> impl Strategy<Value = String> {
    let one = (any::<bool>(), "[ab.*?]{1,5}", proptest::option::of(prop_oneof![Just(22_u16), Just(2222)]));
    let one = one.prop_map(|(negated, text, port)| {
        let text = port.map_or(text.clone(), |port| format!("[{text}]:{port}"));
        if negated { format!("!{text}") } else { text }
    });
    proptest::collection::vec(one, 1..4).prop_map(|all| all.join(","))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn finds_what_ssh_keygen_finds(lists in proptest::collection::vec(patterns(), 1..5), host in host(), port in prop_oneof![Just(22_u16), Just(2222)]) {
        // That a port of 22 is written is the one thing that OpenSSH takes literally.
        prop_assume!(lists.iter().all(|list| !list.contains(":22,") && !list.ends_with(":22")));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("known_hosts");
        let text: String = lists.iter().map(|list| line(list)).collect();
        std::fs::write(&path, &text).unwrap();
        let name = in_file(&host, port).into_owned();
        let found = Command::new("ssh-keygen").arg("-F").arg(&name).arg("-f").arg(&path).output().unwrap();
        let found = found.status.success();
        let ours = KnownHosts::parse(&text).unwrap().trust(&host, port).is_known().is_ok();
        prop_assert_eq!(ours, found, "{} in\n{}", name, text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}", host in ".{0,20}", port: u16) {
        if let Ok(known) = KnownHosts::parse(&text) {
            let trust = known.trust(&host, port);
            prop_assert_eq!(trust.is_known().is_ok(), !trust.keys().is_empty() || trust.has_authorities());
        }
    }
}

#[test]
fn hashed_names_are_found_by_their_host_and_port_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("known_hosts");
    std::fs::write(&path, line("git.example") + &line("[git.example]:2222,other.example")).unwrap();
    let status = Command::new("ssh-keygen").args(["-q", "-H", "-f"]).arg(&path).status().unwrap();
    assert!(status.success());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("|1|") && !text.contains("example"), "{text}");
    let known = KnownHosts::parse(&text).unwrap();
    for (host, port, wanted) in [
        ("git.example", 22, true),
        ("git.example", 2222, true),
        ("Other.Example", 22, true),
        ("other.example", 2222, false),
        ("git.exampl", 22, false),
    ] {
        assert_eq!(known.trust(host, port).is_known().is_ok(), wanted, "{host}:{port}");
    }
}

/// The cases of `../shared/source-cases`, as Flux's own library has them. Where `../shared` is not there, nothing is tested.
#[test]
fn cases_of_flux() {
    let Some(files) = source_cases("known_hosts") else { return };
    let cases: serde_json::Value = serde_json::from_slice(&files["known_hosts.json"]).unwrap();

    for case in cases["wildcard"].as_array().unwrap() {
        let (pattern, text) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
        assert_eq!(is_like(text, pattern), case[2].as_bool().unwrap(), "{pattern} {text}");
    }
    let split = |host: &str| match host.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), port.parse().unwrap()),
        None => (host.to_owned(), SSH_PORT),
    };
    let (mut without_port, mut differs) = (0, 0);
    for case in cases["authority"].as_array().unwrap() {
        let (hosts, host) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
        // Here a host always comes with its port.
        if host.contains(':') {
            let known = KnownHosts::parse(&format!("@cert-authority {}", line(hosts))).unwrap();
            let (host, port) = split(host);
            assert_eq!(
                known.trust(&host, port).has_authorities(),
                case[2].as_bool().unwrap(),
                "{hosts} {host}"
            );
        } else {
            without_port += 1;
        }
    }
    for case in cases["hashed"].as_array().unwrap() {
        let entry = case["entry"].as_str().unwrap();
        match (Hosts::parse(entry), case["match"].as_bool()) {
            (Ok(hosts), Some(wanted)) => {
                assert_eq!(hosts.have(case["host"].as_str().unwrap()), wanted, "{entry}");
            }
            // What does not begin with a bar is a pattern.
            (Ok(_), None) => assert!(!entry.starts_with('|'), "{entry}"),
            (Err(why), wanted) => assert!(wanted.is_none(), "{entry}: {why}"),
        }
    }
    let key = |name: &str| PublicKey::from_openssh(cases["keys"][name].as_str().unwrap()).unwrap();
    for case in cases["check"].as_array().unwrap() {
        let host = Some(case["host"].as_str().unwrap()).filter(|host| !host.is_empty());
        let (host, port) = split(host.unwrap_or_else(|| case["ip"].as_str().unwrap()));
        let trust = KnownHosts::parse(case["file"].as_str().unwrap()).unwrap().trust(&host, port);
        let checked = trust.check_key(&key(case["offered"].as_str().unwrap()));
        // Flux takes the first of a host's keys of one kind only. OpenSSH takes each of them, which is what a file is for
        // while a server changes its key: so does this.
        let first_only = case["note"].as_str().is_some_and(|note| note.starts_with("the first line"));
        differs += usize::from(first_only);
        assert_eq!(checked.is_ok(), case["ok"].as_bool().unwrap() || first_only, "{case}: {checked:?}");
        let revoked = case["revoked"].as_bool().unwrap_or_default();
        assert_eq!(matches!(checked, Err(Distrust::Revoked(_))), revoked, "{case}: {checked:?}");
        let wanted = case["wanted_keys"].as_array().into_iter().flatten();
        let wanted: Vec<PublicKey> = wanted.map(|name| key(name.as_str().unwrap())).collect();
        if case["wanted_keys"].is_array() {
            assert_eq!(trust.keys(), wanted, "{case}");
        }
    }
    let run = |list: &str| cases[list].as_array().unwrap().len();
    let total: usize = ["wildcard", "authority", "hashed", "check"].map(run).iter().sum();
    // A host without a port, and the first of several keys of one kind: see above.
    tell(format_args!(
        "known_hosts.json: {total} cases, of which {without_port} have no meaning here and {differs} differ"
    ));
}
