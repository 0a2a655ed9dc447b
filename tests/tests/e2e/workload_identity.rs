//! `decryption.serviceAccountName`: a key service is asked by a token that the hub signs of a service account of its own.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::key_services::{ACCESS_KEY, ServiceKey};
use roadstead_tests::{Fleet, HubSetup, KeyServices, PATIENCE, clients, eventually, kustomization, unique};
use serde_json::{Value, json};

use crate::secrets::{Place, Word, dump, search};

const KEY: &str = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
const ROLE: &str = "arn:aws:iam::111122223333:role/reader-of-keys";

/// Encrypts a Secret by the real sops, which asks the services as their owner.
async fn encrypt(setup: &HubSetup, services: &KeyServices, text: &str) -> Result<String> {
    let path = setup.folder().join("secret.yaml");
    std::fs::write(&path, text)?;
    let mut command = Command::new(clients()?.join("bin/sops"));
    command.args(["--kms", KEY, "--encrypted-regex", "^(data|stringData)$", "--encrypt"]).arg(&path);
    let variables = [
        ("AWS_ENDPOINT_URL", services.url.as_str()),
        ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    command.envs(variables);
    // The services answer on this thread.
    let done = tokio::task::spawn_blocking(move || command.output()).await?.context("start sops")?;
    ensure!(done.status.success(), "sops: {}", String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?)
}

/// The same, for the key of another service: which key a file's data key is wrapped by is not part of what its MAC is of.
async fn encrypt_for(
    setup: &HubSetup,
    services: &KeyServices,
    text: &str,
    key: ServiceKey<'_>,
) -> Result<String> {
    let by_aws = encrypt(setup, services, text).await?;
    let (before, rest) = by_aws.split_once("    kms:\n").context("keys of AWS")?;
    let entry: Vec<&str> =
        rest.lines().take_while(|line| line.starts_with("     ") || line.starts_with("    - ")).collect();
    let field =
        |name: &str| entry.iter().find_map(|line| line.trim_start_matches(['-', ' ']).strip_prefix(name));
    let (enc, made) = (field("enc: ").context("enc")?, field("created_at: ").context("created_at")?);
    let enc = services.wrapped_again(ServiceKey::Aws(KEY), enc, key)?;
    let url = services.url.as_str();
    let (kind, fields) = match key {
        ServiceKey::Aws(_) => return Ok(by_aws),
        ServiceKey::Google(resource) => ("gcp_kms", vec![("resource_id", resource), ("enc", enc.as_str())]),
        ServiceKey::Azure(name, version) => (
            "azure_kv",
            vec![("vault_url", url), ("name", name), ("version", version), ("enc", enc.as_str())],
        ),
        ServiceKey::Vault(engine, name) => (
            "hc_vault",
            vec![("vault_address", url), ("engine_path", engine), ("key_name", name), ("enc", enc.as_str())],
        ),
    };
    let fields = fields.into_iter().map(|(field, value)| {
        let value =
            if kind == "hc_vault" && field == "enc" { format!("vault:v1:{value}") } else { value.to_owned() };
        format!("          {field}: {value}\n")
    });
    let fields: String = fields.collect();
    let rest: String = rest.lines().skip(entry.len()).map(|line| format!("{line}\n")).collect();
    Ok(format!("{before}    {kind}:\n        - created_at: {made}\n{fields}{rest}"))
}

/// What a token says of itself; whether it was signed, the hub is asked.
fn claims(token: &str) -> Result<Value> {
    let part = token.split('.').nth(1).context("a token of three parts")?;
    Ok(serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part)?)?)
}

async fn annotate(fleet: &Fleet, role: &str) -> Result<()> {
    let role = format!("eks.amazonaws.com/role-arn={role}");
    fleet.run(&["annotate", "--overwrite", "serviceaccount", "keys", &role]).await.map(drop)
}

#[tokio::test]
async fn aws_is_asked_by_a_token_of_a_service_account() -> Result<()> {
    let services = KeyServices::start().await?;
    let allowed = services.url.replace("http://", "--allow-network=kms=");
    let setup = HubSetup::new("sops-account").await?.env("AWS_ENDPOINT_URL", &services.url).arg(&allowed);
    let fleet = Fleet::start_on(setup.arg("--object-level-workload-identity")).await?;
    let space = fleet.cluster.namespace("sops-account").await?;
    let (ns, value) = (space.name(), unique("hush-by-kms"));
    let plain = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: token\n  namespace: {ns}\nstringData:\n  token: {value}\n"
    );
    let files = Commit::new().file("secret.yaml", encrypt(&fleet.setup, &services, &plain).await?);
    fleet.repository("app", &files).await?;

    // Nothing comes of an account that is not there, or has no identity, or one that is none.
    let decryption = ["decryption: {provider: sops, serviceAccountName: keys}"];
    fleet.apply(&kustomization("app", "app", "./", &decryption)).await?;
    let parts = ["ServiceAccount 'apps/keys' of spec.decryption.serviceAccountName not found on the hub"];
    fleet.fails("kustomization/app", "BuildFailed", &parts).await?;
    fleet.run(&["create", "serviceaccount", "keys"]).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["cannot recover the data key"]).await?;
    annotate(&fleet, "reader-of-keys").await?;
    fleet
        .fails("kustomization/app", "BuildFailed", &["invalid annotation eks.amazonaws.com/role-arn"])
        .await?;
    ensure!(services.web_identities().is_empty(), "{:?}", services.web_identities());

    // A role that AWS does not give to the account; then it does.
    services.deny(true);
    annotate(&fleet, ROLE).await?;
    fleet.fails("kustomization/app", "BuildFailed", &["HTTP 403, AccessDenied"]).await?;
    services.deny(false);
    fleet.reconcile("kustomization/app").await?;
    fleet.ready("kustomization/app").await?;
    has_its_value(&fleet, ns, &value).await?;
    let shown = services.web_identities();
    let (role, token) = shown.last().context("a web identity")?;
    ensure!(role == ROLE, "{role}");
    let said = claims(token)?;
    ensure!(said["aud"] == json!(["sts.amazonaws.com"]), "{said}");
    ensure!(said["sub"] == "system:serviceaccount:apps:keys", "{said}");
    let lasts = said["exp"].as_i64().zip(said["iat"].as_i64()).map(|(end, begin)| end - begin);
    ensure!(lasts == Some(600), "{said}");
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                         "spec": { "token": token, "audiences": ["sts.amazonaws.com"] } });
    let create = ["create", "-f", "-", "-o", "json"];
    let reviewed = fleet.kubectl().run_with(&create, &review.to_string()).await?;
    let reviewed: Value = serde_json::from_str(&reviewed)?;
    ensure!(reviewed["status"]["authenticated"] == true, "{reviewed}");

    leaves_nothing_behind(&fleet, &services, token, &value).await
}

async fn has_its_value(fleet: &Fleet, ns: &str, value: &str) -> Result<()> {
    eventually("the Secret has its value", PATIENCE, || async {
        let live = fleet.cluster.kubectl().get(&["secret", "token", "--namespace", ns]).await?;
        ensure!(live["data"]["token"] == BASE64.encode(value), "{live}");
        Ok(())
    })
    .await
}

/// What is known is not asked for again, and no token is made for it; neither tokens nor what they were exchanged for are found anywhere, nor is the
/// value.
async fn leaves_nothing_behind(
    fleet: &Fleet,
    services: &KeyServices,
    token: &str,
    value: &str,
) -> Result<()> {
    let (asked, unwrapped) = (services.web_identities().len(), services.unwrapped());
    fleet.reconcile("kustomization/app").await?;
    fleet.ready("kustomization/app").await?;
    ensure!(services.web_identities().len() == asked && services.unwrapped() == unwrapped, "asked again");

    let mut places = dump(&mut fleet.setup.database().connect().await?).await?;
    places.push(Place::new("the hub's log", fleet.hub.logs()));
    places.push(Place::new("the agent's log", fleet.agent.logs()));
    places.push(Place::new("the agent's memory", crate::decryption::memory(fleet.agent.id())?));
    search(
        &[Word::new("a token of the account", token), Word::new("a session", services.session()?)],
        &places,
    )?;
    places.pop();
    search(&[Word::new("a decrypted value", value)], &places)
}

/// Whoever writes to a repository does not choose by which account of the hub keys are unwrapped.
#[tokio::test]
async fn git_does_not_choose_a_service_account_of_the_hub() -> Result<()> {
    let services = KeyServices::start().await?;
    let allowed = services.url.replace("http://", "--allow-network=kms=");
    let setup = HubSetup::new("sops-chosen").await?.env("AWS_ENDPOINT_URL", &services.url).arg(&allowed);
    let fleet = Fleet::start_on(setup.arg("--object-level-workload-identity")).await?;
    let space = fleet.cluster.namespace("sops-chosen").await?;
    let ns = space.name();
    fleet.run(&["create", "serviceaccount", "keys"]).await?;
    annotate(&fleet, ROLE).await?;
    let plain = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: token\n  namespace: {ns}\nstringData:\n  token: x\n"
    );
    let cluster = fleet.cluster.kubectl();
    cluster.run(&["create", "serviceaccount", "deployer", "--namespace", ns]).await?;
    let bind = [
        "create",
        "rolebinding",
        "deployer",
        "--clusterrole=admin",
        &format!("--serviceaccount={ns}:deployer"),
        "--namespace",
        ns,
    ];
    cluster.run(&bind).await?;
    let decryption = ["decryption: {provider: sops, serviceAccountName: keys}"];
    let files = Commit::new()
        .file("parent/child.yaml", kustomization("child", "app", "./child", &decryption))
        .file("child/secret.yaml", encrypt(&fleet.setup, &services, &plain).await?);
    fleet.repository("app", &files).await?;
    let account = format!("serviceAccount: {{name: deployer, namespace: {ns}}}");
    let parent = kustomization("parent", "app", "./parent", &[&account, &format!("targetNamespace: {ns}")]);
    fleet.apply(&parent.replace("/v1\n", "/v1alpha1\n")).await?;
    let parts = ["ServiceAccount 'apps/keys'", "is not passed on"];
    fleet.fails("kustomization/child", "AccessDenied", &parts).await?;
    ensure!(services.web_identities().is_empty(), "{:?}", services.web_identities());
    Ok(())
}

/// One key service that is not AWS's, how a hub is told of it, and what an account of the hub is to it.
struct Service<'s> {
    name: &'s str,
    key: ServiceKey<'s>,
    /// The account's annotations.
    annotations: &'s [&'s str],
    /// As whom the service is asked, and for whom the token is.
    whose: &'s str,
    audience: &'s str,
    /// What the service says to those whom it does not know.
    denial: &'s str,
}

/// A Secret that is encrypted to the service's key gets to the cluster once the service knows the account; what the hub asks by is found nowhere.
async fn is_asked_by_an_account(services: &KeyServices, setup: HubSetup, service: Service<'_>) -> Result<()> {
    let setup = setup.arg(&services.url.replace("http://", "--allow-network=kms="));
    let fleet = Fleet::start_on(setup.arg("--object-level-workload-identity")).await?;
    let space = fleet.cluster.namespace(service.name).await?;
    let (ns, value) = (space.name(), unique("hush-by-account"));
    let plain = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: token\n  namespace: {ns}\nstringData:\n  token: {value}\n"
    );
    let encrypted = encrypt_for(&fleet.setup, services, &plain, service.key).await?;
    fleet.repository("app", &Commit::new().file("secret.yaml", encrypted)).await?;
    fleet.run(&["create", "serviceaccount", "keys"]).await?;
    if !service.annotations.is_empty() {
        let annotate = [&["annotate", "serviceaccount", "keys"], service.annotations].concat();
        fleet.run(&annotate).await?;
    }

    services.deny(true);
    let decryption = ["decryption: {provider: sops, serviceAccountName: keys}"];
    fleet.apply(&kustomization("app", "app", "./", &decryption)).await?;
    fleet.fails("kustomization/app", "BuildFailed", &[service.denial]).await?;
    services.deny(false);
    fleet.reconcile("kustomization/app").await?;
    fleet.ready("kustomization/app").await?;
    has_its_value(&fleet, ns, &value).await?;
    let shown = services.web_identities();
    let (whose, token) = shown.last().context("an identity")?;
    ensure!(whose == service.whose, "{whose}");
    let said = claims(token)?;
    ensure!(said["aud"] == json!([service.audience]), "{said}");
    ensure!(said["sub"] == "system:serviceaccount:apps:keys", "{said}");

    leaves_nothing_behind(&fleet, services, token, &value).await
}

#[tokio::test]
async fn google_is_asked_by_a_token_of_a_service_account() -> Result<()> {
    let services = KeyServices::start().await?;
    let setup = HubSetup::new("sops-google")
        .await?
        .env("SOPS_GCP_KMS_ENDPOINT", &services.url)
        .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_STS", &services.url)
        .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS", &services.url);
    let provider = "projects/1/locations/global/workloadIdentityPools/hub/providers/roadstead";
    let service = Service {
        name: "sops-google",
        key: ServiceKey::Google("projects/p/locations/global/keyRings/r/cryptoKeys/k"),
        annotations: &[
            &format!("gcp.auth.fluxcd.io/workload-identity-provider={provider}"),
            "iam.gke.io/gcp-service-account=keys@p.iam.gserviceaccount.com",
        ],
        whose: &format!("//iam.googleapis.com/{provider}"),
        audience: &format!("//iam.googleapis.com/{provider}"),
        denial: "HTTP 403",
    };
    is_asked_by_an_account(&services, setup, service).await
}

#[tokio::test]
async fn azure_is_asked_by_a_token_of_a_service_account() -> Result<()> {
    let services = KeyServices::start().await?;
    let setup = HubSetup::new("sops-azure")
        .await?
        .env("AZURE_AUTHORITY_HOST", &services.url)
        .arg(&format!("--allow-key-service={}", services.url));
    let service = Service {
        name: "sops-azure",
        key: ServiceKey::Azure("sops", "0123456789abcdef"),
        annotations: &["azure.workload.identity/tenant-id=t-1", "azure.workload.identity/client-id=c-1"],
        whose: &format!("t-1 c-1 {}/.default", services.url),
        audience: "api://AzureADTokenExchange",
        denial: "HTTP 401",
    };
    is_asked_by_an_account(&services, setup, service).await
}

#[tokio::test]
async fn a_vault_is_asked_by_a_token_of_a_service_account() -> Result<()> {
    let services = KeyServices::start().await?;
    let setup = HubSetup::new("sops-vault")
        .await?
        .arg("--decryption-vault-login=auth/jwt/login")
        .arg(&format!("--allow-key-service={}", services.url));
    let service = Service {
        name: "sops-vault",
        key: ServiceKey::Vault("transit", "fleet"),
        annotations: &[],
        whose: "apps_keys",
        audience: &services.url,
        denial: "role could not be found",
    };
    is_asked_by_an_account(&services, setup, service).await
}
