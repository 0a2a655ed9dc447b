//! Real object stores over HTTPS, moto for S3 and Azurite for Azure Blob Storage, and the makers' own clients, which put objects there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

use crate::given::{clients, folder};
use crate::process::Process;
use crate::registry::certify;
use crate::unique::free_port;
use crate::wait::eventually;

/// An account of Azurite's, and its key in base64.
const ACCOUNT: (&str, &str) = ("roadstead", "cm9hZHN0ZWFkLXRlc3Qta2V5");

/// Takes lines of `[what, bucket, key, content]` on stdin; `keys` makes a user whose access key it prints.
const S3_CLIENT: &str = r#"
import json, sys
import boto3
from botocore.config import Config
endpoint, ca, key, secret = sys.argv[1:]
def client(service):
    return boto3.client(service, endpoint_url=endpoint, verify=ca, region_name="us-east-1",
        aws_access_key_id=key or "none", aws_secret_access_key=secret or "none", config=Config(s3={"addressing_style": "path"}))
for line in sys.stdin:
    what, bucket, name, content = json.loads(line)
    if what == "keys":
        iam = client("iam")
        iam.create_user(UserName="reader")
        made = iam.create_access_key(UserName="reader")["AccessKey"]
        allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
        iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(allow))
        print(json.dumps([made["AccessKeyId"], made["SecretAccessKey"]]))
    elif what == "bucket":
        client("s3").create_bucket(Bucket=bucket)
    elif what == "put":
        client("s3").put_object(Bucket=bucket, Key=name, Body=content.encode())
    elif what == "remove":
        client("s3").delete_object(Bucket=bucket, Key=name)
"#;

/// The same for Azure; `sas` prints a signature that lets a container be read and listed.
const AZURE_CLIENT: &str = r#"
import datetime, json, sys
from azure.storage.blob import BlobServiceClient, generate_container_sas
endpoint, ca, account, key = sys.argv[1:]
client = BlobServiceClient(endpoint, credential={"account_name": account, "account_key": key}, connection_verify=ca)
for line in sys.stdin:
    what, bucket, name, content = json.loads(line)
    if what == "bucket":
        client.create_container(bucket)
    elif what == "put":
        client.get_blob_client(bucket, name).upload_blob(content.encode(), overwrite=True)
    elif what == "remove":
        client.get_blob_client(bucket, name).delete_blob()
    elif what == "sas":
        expiry = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
        print(json.dumps(generate_container_sas(account, bucket, account_key=key, permission="rl", expiry=expiry)))
"#;

/// An object store with a certificate of its own authority, which lets in who has its keys.
pub struct ObjectStore {
    folder: TempDir,
    port: u16,
    client: &'static str,
    /// What stands after its port.
    path: String,
    keys: (String, String),
    _process: Process,
}

impl ObjectStore {
    /// Starts moto, which checks signatures.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn s3() -> Result<Self> {
        let (folder, port) = (folder()?, free_port()?);
        let at = folder.path();
        certify(at).context("make the store's certificate")?;
        let mut command = Command::new(clients()?.join("stores/bin/moto_server"));
        command.env_clear().env("HOME", at).env("PATH", "/usr/bin:/bin");
        // From then on requests need to be signed by someone who may: three make that user.
        command.env("INITIAL_NO_AUTH_ACTION_COUNT", "3");
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command.arg("-c").arg(at.join("server.pem")).arg("-k").arg(at.join("server.key"));
        let process = Process::start("moto", &mut command, &at.join("log"))?;
        let keys = (String::new(), String::new());
        let mut store =
            Self { folder, port, client: S3_CLIENT, path: String::new(), keys, _process: process };
        store.listens().await?;
        let made = store.ask(&[json!(["keys", "", "", ""])]).await?;
        let text = |at: usize| made[at].as_str().map(str::to_owned).context("moto made no access key");
        store.keys = (text(0)?, text(1)?);
        Ok(store)
    }

    /// Starts Azurite.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub async fn azure() -> Result<Self> {
        let (folder, port) = (folder()?, free_port()?);
        let at = folder.path();
        certify(at).context("make the store's certificate")?;
        let mut command = Command::new("node");
        command.env("AZURITE_ACCOUNTS", format!("{}:{}", ACCOUNT.0, ACCOUNT.1)).current_dir(at);
        command.arg(clients()?.join("azurite/node_modules/azurite/dist/src/blob/main.js"));
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--inMemoryPersistence"]);
        command.args(["--disableTelemetry", "--silent", "--skipApiVersionCheck"]);
        command.arg("--cert").arg(at.join("server.pem")).arg("--key").arg(at.join("server.key"));
        let process = Process::start("azurite", &mut command, &at.join("log"))?;
        let keys = (ACCOUNT.0.to_owned(), ACCOUNT.1.to_owned());
        let path = format!("/{}", ACCOUNT.0);
        let store = Self { folder, port, client: AZURE_CLIENT, path, keys, _process: process };
        store.listens().await?;
        Ok(store)
    }

    async fn listens(&self) -> Result<()> {
        eventually("the object store listens", Duration::from_secs(60), || async {
            Ok(tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.map(|_| ())?)
        })
        .await
        .with_context(|| self._process.logs())
    }

    /// Its host and port.
    #[must_use]
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URL; of Azure that of the account.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}{}", self.host(), self.path)
    }

    /// The certificate of its authority, in PEM.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The id and the secret of the access key that may do everything; of Azure the account and its key.
    #[must_use]
    pub fn keys(&self) -> (&str, &str) {
        (&self.keys.0, &self.keys.1)
    }

    /// Makes a bucket with these objects.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn bucket(&self, bucket: &str, objects: &[(&str, &str)]) -> Result<()> {
        let mut lines = vec![json!(["bucket", bucket, "", ""])];
        lines.extend(objects.iter().map(|(key, content)| json!(["put", bucket, key, content])));
        self.ask(&lines).await.map(|_| ())
    }

    /// Puts an object.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn put(&self, bucket: &str, key: &str, content: &str) -> Result<()> {
        self.ask(&[json!(["put", bucket, key, content])]).await.map(|_| ())
    }

    /// Removes an object.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn remove(&self, bucket: &str, key: &str) -> Result<()> {
        self.ask(&[json!(["remove", bucket, key, ""])]).await.map(|_| ())
    }

    /// A shared access signature of Azure's, to read a container.
    ///
    /// # Errors
    /// When there is none.
    pub async fn signature(&self, bucket: &str) -> Result<String> {
        let made = self.ask(&[json!(["sas", bucket, "", ""])]).await?;
        made.as_str().map(str::to_owned).context("no signature")
    }

    async fn ask(&self, lines: &[Value]) -> Result<Value> {
        let python: &Path = &clients()?.join("stores/bin/python");
        let mut child = tokio::process::Command::new(python)
            .env_clear()
            .env("HOME", self.folder.path())
            .args(["-c", self.client, &self.url()])
            .arg(self.ca())
            .args([&self.keys.0, &self.keys.1])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("run Python")?;
        let mut input = child.stdin.take().context("its input")?;
        for line in lines {
            input.write_all(format!("{line}\n").as_bytes()).await.context("tell the client what to do")?;
        }
        drop(input);
        let output = child.wait_with_output().await.context("wait for the client")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "the store's client: {error}");
        if output.stdout.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&output.stdout).context("read what the client says")
    }
}
