//! The cases beside the repository (`../shared/sops-cases`) that need a key service: the server that comes with them is started on free ports, and
//! the files, which name its ports, are changed to those (their MAC is not over what they say of keys).
//!
//! Where `../shared` or Python is not there, the test says so and passes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../../sops/tests/cases/mod.rs"]
mod cases;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use roadstead_kms::{
    Allowed, Entry, Environment, Imported, KeyBytes, KeyWrappers, Keys, Network, WrappingKey,
};
use roadstead_outbound::{Policy, Purpose};
use roadstead_sops::{Options, decrypt};
use serde_json::Value as Json;

use cases::{Files, format, unpack};

/// How many cases there are for key services.
const CASES: usize = 13;
/// The ports that the files and keys name: in the clear, and with TLS.
const PORTS: [&str; 2] = [":18200", ":18244"];

/// The server, ended with the test.
struct Server {
    child: Child,
    ports: [u16; 2],
    dir: PathBuf,
}

impl Server {
    /// None where there is no Python.
    fn start(program: &Path, files: &Files) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("roadstead-kms-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let [certificate, key] = ["cert.pem", "key.pem"].map(|name| dir.join(name));
        std::fs::write(&certificate, &files["keys/tls/cert.pem"]).unwrap();
        std::fs::write(&key, &files["keys/tls/key.pem"]).unwrap();
        // Two that are free at once, and then given up for the server.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = free.each_ref().map(|listener| listener.local_addr().unwrap().port());
        drop(free);
        let child = Command::new("python3")
            .arg(program)
            .args(["--port", &ports[0].to_string(), "--tls-port", &ports[1].to_string(), "--tls"])
            .args([certificate, key])
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut server = Self { child, ports, dir };
        let mut line = String::new();
        BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready");
        Some(server)
    }

    /// A file that names these ports.
    fn at(&self, bytes: &[u8]) -> Vec<u8> {
        let mut text = String::from_utf8(bytes.to_vec()).unwrap();
        for (old, new) in PORTS.iter().zip(self.ports) {
            text = text.replace(old, &format!(":{new}"));
        }
        text.into_bytes()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

struct Suite<'s> {
    files: &'s Files,
    server: &'s Server,
    runtime: tokio::runtime::Runtime,
}

impl Suite<'_> {
    /// As the command line makes them, with what the runner of the cases sets in the environment.
    fn keys(&self, about: &Json) -> Keys {
        let mut imported = Imported::default();
        for name in about["keys"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
            let entry = name.rsplit('/').next().unwrap();
            let known = imported.add(entry, &self.server.at(&self.files[&format!("keys/{name}")])).unwrap();
            assert!(known || entry == "huawei.txt", "{name}");
        }
        let url = format!("http://127.0.0.1:{}", self.server.ports[0]);
        let regions = self.server.dir.join("regions.yaml");
        std::fs::write(&regions, format!("KMS:\n  - id: eu-west-101\n    endpoint: {url}\n")).unwrap();
        let regions = regions.to_str().unwrap().to_owned();
        let variables: HashMap<&str, String> = [
            ("AWS_ENDPOINT_URL_KMS", url.clone()),
            ("AWS_ENDPOINT_URL_STS", url.clone()),
            ("SOPS_GCP_KMS_ENDPOINT", url),
            ("HUAWEICLOUD_SDK_AK", "AKROADSTEAD".into()),
            ("HUAWEICLOUD_SDK_SK", "s".into()),
            ("HUAWEICLOUD_SDK_PROJECT_ID", "p1".into()),
            ("HUAWEICLOUD_SDK_REGIONS_FILE", regions),
        ]
        .into();
        let get = |name: &str| variables.get(name).cloned();
        let environment = Environment::new(&get);
        let credentials = std::mem::take(&mut imported.credentials);
        imported.credentials = credentials.or(environment.credentials(false).unwrap());
        let policy = Policy::new(vec!["kms=127.0.0.1".parse().unwrap()]);
        let network = Network::new(Purpose::Kms, &Arc::new(policy), None)
            .with_authorities(&self.files["keys/tls/cert.pem"]);
        let allowed: Allowed = environment.allowed().unwrap().with_this_machine();
        Keys::new(imported, allowed, Arc::new(network), self.runtime.handle().clone())
    }

    /// The same server keeps the keys of a program, and notices envelopes that were changed or are of another key.
    fn keep_keys(&self) {
        let url = format!("http://127.0.0.1:{}", self.server.ports[0]);
        let variables: HashMap<&str, String> = [
            ("AWS_ENDPOINT_URL", url.clone()),
            ("AWS_ACCESS_KEY_ID", "AKIDROADSTEAD".into()),
            ("AWS_SECRET_ACCESS_KEY", "s".into()),
            ("VAULT_ADDR", url.clone()),
            ("VAULT_TOKEN", "roadstead-test-token".into()),
        ]
        .into();
        let get = |name: &str| variables.get(name).cloned();
        let environment = Environment::new(&get);
        let policy = Arc::new(Policy::new(vec!["kms=127.0.0.1".parse().unwrap()]));
        let network = Arc::new(Network::new(Purpose::Kms, &policy, None));
        let (credentials, allowed) = (environment.wrapping().unwrap(), environment.allowed().unwrap());
        let wrappers = KeyWrappers::new(credentials, allowed, Arc::clone(&network), network);
        let runtime = self.runtime.handle();
        for (by, other) in [
            (WrappingKey::aws_kms("arn:aws:kms:eu-west-1:1:key/a"), "key/a:"),
            (WrappingKey::vault_transit(&format!("{url}/v1/transit/keys/a")), "keys/a:"),
        ] {
            let (by, key) = (by.unwrap(), KeyBytes::new([7; 32]));
            let line = runtime.block_on(wrappers.wrapper(Some(&by)).wrap(&key)).unwrap();
            let unwrap = |line: &str| runtime.block_on(wrappers.unwrap(&Entry::parse(line).unwrap()));
            assert_eq!(unwrap(&line).unwrap(), key);
            let of_another = line.replace(other, &other.replace('a', "b"));
            let changed = line.replacen("UlMx", "UlMy", 1);
            for bad in [of_another, changed] {
                assert_ne!(bad, *line);
                let told = unwrap(&bad).unwrap_err().to_string();
                assert!(told.contains("restore the key file from its backup"), "{told}");
            }
        }
    }

    fn check(&self, about: &Json) -> Option<String> {
        let text = |field: &str| about[field].as_str();
        let name = text("name").unwrap();
        let file = |name: &str, file: &str| &self.files[&format!("cases/{name}/{file}")];
        let input = self.server.at(file(name, text("input").unwrap()));
        let from = format(text("format").unwrap());
        let options = Options { output: text("output_format").map_or(from, format), ..Options::new(from) };
        let keys = self.keys(about);
        match (text("result").unwrap(), decrypt(&input, &options, &keys.for_file())) {
            ("ok", Ok(found)) => (*found.bytes != *file(name, "expected")).then(|| "other bytes".to_owned()),
            ("error", Err(error)) => {
                (Some(error.class().to_string().as_str()) != text("class")).then(|| error.to_string())
            }
            (_, Err(error)) => Some(error.to_string()),
            (_, Ok(_)) => Some("it was decrypted, and sops refuses it".to_owned()),
        }
    }
}

#[test]
fn cases_of_key_services() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/sops-cases");
    if !shared.exists() {
        eprintln!("NOT TESTED: {} is not there, so the cases of SOPS are left out", shared.display());
        return;
    }
    let files = unpack(&shared.join("cases.tar.gz"));
    let Some(server) = Server::start(&shared.join("fake_kms.py"), &files) else {
        eprintln!("NOT TESTED: there is no python3 for the server of key services");
        return;
    };
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let suite = Suite { files: &files, server: &server, runtime };
    let all: Json = serde_json::from_slice(&files["cases.json"]).unwrap();
    let cases = all["cases"].as_array().unwrap().iter().filter(|about| about["tier"] == "kms");
    let mut passed = 0;
    let mut wrong = Vec::new();
    for about in cases {
        match suite.check(about) {
            None => passed += 1,
            Some(problem) => wrong.push(format!("{}: {problem}", about["name"])),
        }
    }
    assert!(wrong.is_empty(), "{passed} passed, {} failed\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(passed, CASES);
    suite.keep_keys();
}
