//! Entries as Flux takes them, and broken ones.

use super::*;

const CANARY: &str = "c4n4ry";

fn one(name: &str, text: &str) -> Result<Imported, EntryError> {
    import([(name, text.as_bytes())])
}

#[test]
fn each_entry_is_what_its_name_says() {
    let aws = one("sops.aws-kms", "aws_access_key_id: A\naws_secret_access_key: B\nother: 1\n").unwrap();
    assert!(matches!(aws.credentials.aws, Some(AwsCredential::Static { session_token: None, .. })));
    let azure = |text: &str| one("sops.azure-kv", text).unwrap().credentials.azure.unwrap();
    let secret = azure("tenantId: t\nclientId: c\nclientSecret: s\nauthorityHost: https://login.example/\n");
    assert!(matches!(
        secret,
        AzureCredential::Application { proof: AzureProof::Secret(_), authority: Some(_), .. }
    ));
    let old = azure(r#"{"tenant": "t", "appId": "a", "password": "p"}"#);
    assert!(matches!(old, AzureCredential::Application { client_id, .. } if client_id == "a"));
    assert!(matches!(azure("clientId: c"), AzureCredential::Managed { client_id: Some(_), endpoint: None }));
    let user = r#"{"type":"authorized_user","client_id":"c","client_secret":"s","refresh_token":"r"}"#;
    let user = one("sops.gcp-kms", user).unwrap();
    assert!(matches!(user.credentials.gcp, Some(GcpCredential::Refresh { .. })));
    let vault = one("sops.vault-token", "\n token \n").unwrap().credentials.vault.unwrap();
    assert!(matches!(vault.proof, VaultProof::Token(token) if token.expose() == "token"));
    assert_eq!(one("sops.other", "x").unwrap().credentials.kinds(), [""; 0]);
}

#[test]
fn utf_16_is_read() {
    let text = "clientId: ü";
    let wide = |read: fn(u16) -> [u8; 2], mark: [u8; 2]| -> Vec<u8> {
        mark.into_iter().chain(text.encode_utf16().flat_map(read)).collect()
    };
    for bytes in [wide(u16::to_le_bytes, [0xff, 0xfe]), wide(u16::to_be_bytes, [0xfe, 0xff])] {
        let imported = import([("sops.azure-kv", bytes.as_slice())]).unwrap();
        assert!(matches!(
            imported.credentials.azure,
            Some(AzureCredential::Managed { client_id: Some(id), .. }) if id == "ü"
        ));
    }
}

#[test]
fn a_token_goes_where_its_secret_says_whichever_entry_is_first() {
    let entries = [
        ("sops.vault-token", "x"),
        ("sops.vault-address", "https://a.example\n# no\n\nhttps://b.example:8200\n"),
    ];
    for order in [[0, 1], [1, 0]] {
        let entries = order.map(|index| (entries[index].0, entries[index].1.as_bytes()));
        assert_eq!(import(entries).unwrap().credentials.vault.unwrap().addresses.len(), 2);
    }
}

#[test]
fn what_is_wrong_is_named_and_not_shown() {
    let many = "https://a.example\n".repeat(65);
    let key = format!(r#"{{"type":"service_account","client_email":"x","private_key":"{CANARY}"}}"#);
    for (name, text) in [
        ("sops.aws-kms", format!("aws_access_key_id: {CANARY}")),
        ("sops.aws-kms", format!("- {CANARY}")),
        ("sops.aws-kms", format!("aws_access_key_id: [{CANARY}]")),
        ("sops.aws-kms", format!("{CANARY}: \"")),
        ("sops.azure-kv", format!("tenantId: {CANARY}")),
        ("sops.azure-kv", format!("clientId: c\nauthorityHost: {CANARY}")),
        ("sops.azure-kv", format!("tenantId: t\nclientId: c\nclientCertificate: {CANARY}")),
        ("sops.azure-kv", String::new()),
        ("sops.gcp-kms", format!("{{\"type\": \"{CANARY}\"}}")),
        ("sops.gcp-kms", CANARY.to_owned()),
        ("sops.gcp-kms", key),
        ("sops.gcp-kms", r#"{"type":"external_account"}"#.to_owned()),
        ("sops.vault-token", " \n".to_owned()),
        ("sops.vault-token", format!("{CANARY} {CANARY}")),
        ("sops.vault-address", CANARY.to_owned()),
        ("sops.vault-address", many),
        ("sops.vault-token", "x".repeat(ENTRY_BYTES + 1)),
        ("a.agekey", CANARY.to_owned()),
    ] {
        let error = one(name, &text).unwrap_err();
        let told = format!("{error} {error:?}");
        assert!(told.contains(name) && !told.contains(CANARY), "{told}");
    }
    assert!(import([("sops.gcp-kms", &b"\xff\xfe\x00"[..])]).is_err());
    let imported = one("sops.vault-token", CANARY).unwrap();
    assert!(!format!("{imported:?}").contains(CANARY));
}
