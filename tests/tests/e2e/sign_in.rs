//! People sign in at a real OpenID provider: to the dashboard with a browser, and at a command line.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqwest::StatusCode;
use reqwest::header::{LOCATION, SET_COOKIE};
use roadstead_tests::{
    Browser, HubProcess, HubSetup, Kubectl, OpenIdProvider, Process, binary, eventually, kubelogin,
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(90);
const SIGN_IN: &str = "/fleet/v1/sign-in";

async fn hub(provider: &OpenIdProvider) -> Result<(HubSetup, HubProcess)> {
    let setup = HubSetup::new("sign-in").await?;
    let folder = setup.folder().to_owned();
    let write = |name: &str, text: String| -> Result<String> {
        let path = folder.join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let authentication = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {
                "url": provider.url(), "certificateAuthority": provider.ca_pem(),
                "audiences": ["dashboard", "cli"], "audienceMatchPolicy": "MatchAny",
            },
            "claimMappings": {
                "username": { "claim": "sub", "prefix": "oidc:" }, "groups": { "claim": "groups", "prefix": "" },
            },
        }],
    });
    let secret = write("client-secret", "of the client\n".to_owned())?;
    let sign_in = json!({
        "apiVersion": "fleet.roadstead.dev/v1alpha1", "kind": "SignInConfiguration",
        "providers": [{
            "issuer": provider.url(), "name": "Company", "clientID": "dashboard", "clientSecretFile": secret,
            "prompt": "consent", "commandLine": { "clientID": "cli" },
        }],
    });
    let authentication = write("authentication.json", authentication.to_string())?;
    let sign_in = write("sign-in.json", sign_in.to_string())?;
    let setup = setup
        .arg(&format!("--authentication-config={authentication}"))
        .arg(&format!("--sign-in-config={sign_in}"));
    let hub = HubProcess::start(&setup).await?;
    Ok((setup, hub))
}

/// The hub's URL and its authority, as its kubeconfig has them.
async fn reached(hub: &HubProcess) -> Result<(String, String)> {
    use base64::Engine as _;
    let text = hub.kubectl().run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
    let config: Value = serde_json::from_str(&text)?;
    let cluster = &config["clusters"][0]["cluster"];
    let ca = cluster["certificate-authority-data"].as_str().context("an authority")?;
    let ca = String::from_utf8(base64::engine::general_purpose::STANDARD.decode(ca)?)?;
    Ok((cluster["server"].as_str().context("a server")?.to_owned(), ca))
}

fn set(answer: &reqwest::Response, name: &str) -> Result<String> {
    let all = answer.headers().get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pair = all
        .filter_map(|text| text.split(';').next()?.split_once('='))
        .find(|(known, value)| *known == name && !value.is_empty());
    Ok(pair.with_context(|| format!("{name} is not set"))?.1.to_owned())
}

/// Jane, signed in to the dashboard.
struct SignedIn {
    /// What the dashboard asks the hub with, which follows no redirects.
    http: reqwest::Client,
    url: String,
    /// Where the provider was asked for her.
    asked_at: String,
    /// The cookie of the attempt, and that of the session.
    attempt: String,
    session: String,
}

impl SignedIn {
    async fn with(hub: &HubProcess, browser: &mut Browser<'_>) -> Result<Self> {
        let (url, ca) = reached(hub).await?;
        let roots = reqwest::Certificate::from_pem_bundle(ca.as_bytes())?;
        let http = reqwest::Client::builder()
            .tls_certs_only(roots)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let offered: Value = http.get(format!("{url}{SIGN_IN}")).send().await?.json().await?;
        let start = offered["providers"][0]["start"].as_str().context("a start")?;
        let answer = http.get(format!("{start}&to=/ui/clusters")).send().await?;
        ensure!(answer.status() == StatusCode::SEE_OTHER, "{}: {}", answer.status(), answer.text().await?);
        let attempt = set(&answer, "__Host-roadstead-sign-in")?;
        let asked_at = answer.headers()[LOCATION].to_str()?.to_owned();
        let back = browser.sent_back_from(&asked_at).await?;
        ensure!(back.starts_with(&format!("{url}{SIGN_IN}/callback?")), "{back}");
        let request = http.get(&back).header("cookie", format!("__Host-roadstead-sign-in={attempt}"));
        let answer = request.send().await?;
        ensure!(answer.status() == StatusCode::SEE_OTHER, "{}: {}", answer.status(), answer.text().await?);
        ensure!(answer.headers()[LOCATION] == "/ui/clusters");
        let session = set(&answer, "__Host-roadstead-session")?;
        Ok(Self { http, url, asked_at, attempt, session })
    }

    fn ask(&self, path: &str) -> reqwest::RequestBuilder {
        self.as_dashboard(self.http.get(format!("{}{path}", self.url)))
    }

    /// Signs her out, and gives where she signs out of the provider.
    async fn out(&self) -> Result<String> {
        let request = self.http.post(format!("{}{SIGN_IN}/end", self.url));
        let answer = self.as_dashboard(request).header("x-roadstead-dashboard", "1").send().await?;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        let told: Value = answer.json().await?;
        Ok(told["location"].as_str().with_context(|| format!("a place to sign out at: {told}"))?.to_owned())
    }

    fn as_dashboard(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        let request = request.header("sec-fetch-site", "same-origin");
        request.header("cookie", format!("__Host-roadstead-session={}", self.session))
    }
}

#[tokio::test]
async fn a_person_signs_in_to_the_dashboard_at_a_real_provider_and_goes_on_while_it_is_down() -> Result<()> {
    let mut provider = OpenIdProvider::start().await?;
    let (setup, hub) = hub(&provider).await?;
    let jane = SignedIn::with(&hub, &mut provider.browser()?).await?;
    let told: Value = jane.ask(SIGN_IN).send().await?.json().await?;
    ensure!(told["user"] == "oidc:jane", "{told}");

    // Her rights are those of her roles.
    let list = "/api/v1/namespaces/apps/configmaps";
    ensure!(jane.ask(list).send().await?.status() == StatusCode::FORBIDDEN);
    let admin = hub.kubectl();
    admin.run(&["create", "namespace", "apps"]).await?;
    admin.run(&["create", "rolebinding", "dev", "--clusterrole=view", "--group=dev", "-n", "apps"]).await?;
    eventually("jane may", PATIENCE, || async {
        ensure!(jane.ask(list).send().await?.status() == StatusCode::OK);
        Ok(())
    })
    .await?;

    // The token lasts some seconds more than the minute before whose end it is renewed.
    eventually("the session is renewed", PATIENCE, || async {
        ensure!(jane.ask(list).send().await?.status() == StatusCode::OK, "it has ended");
        let mut connection = setup.database().connect().await?;
        let version: i64 =
            sqlx::query_scalar("SELECT version FROM sign_in_session").fetch_one(&mut connection).await?;
        ensure!(version > 0, "it is the first one");
        Ok(())
    })
    .await?;
    // Down: a token is good for a while.
    provider.stop().await?;
    ensure!(jane.ask(list).send().await?.status() == StatusCode::OK);
    let place = jane.out().await?;
    ensure!(place.contains("/session/end?"), "{place}");
    ensure!(jane.ask(list).send().await?.status() == StatusCode::UNAUTHORIZED);
    let log = hub.logs();
    for secret in [jane.session.as_str(), jane.attempt.as_str(), "of the client"] {
        ensure!(!log.contains(secret), "a secret is in the log");
    }
    Ok(())
}

#[tokio::test]
async fn who_signs_out_is_signed_out_at_the_provider_too() -> Result<()> {
    let provider = OpenIdProvider::start().await?;
    let (_setup, hub) = hub(&provider).await?;
    let mut browser = provider.browser()?;
    let jane = SignedIn::with(&hub, &mut browser).await?;
    let silent = jane.asked_at.replace("prompt=consent", "prompt=none");
    ensure!(silent != jane.asked_at, "{silent}");
    let again = browser.sent_back_from(&silent).await?;
    ensure!(again.contains("code=") && !again.contains("error="), "the provider knows her: {again}");
    let place = jane.out().await?;
    ensure!(
        browser.signs_out_at(&place).await? == format!("{}/ui/", jane.url),
        "she is not sent back to the hub"
    );
    let again = browser.sent_back_from(&silent).await?;
    ensure!(again.contains("error=login_required"), "the provider still knows her: {again}");
    Ok(())
}

#[tokio::test]
async fn roadstead_login_takes_a_code_that_is_entered_on_another_device() -> Result<()> {
    let provider = OpenIdProvider::start().await?;
    let (setup, hub) = hub(&provider).await?;
    let (url, ca) = reached(&hub).await?;
    let (folder, kubeconfig) = (setup.folder(), setup.folder().join("config"));
    let ca_file = folder.join("ca.pem");
    std::fs::write(&ca_file, ca)?;
    let mut command = Command::new(binary("roadstead")?);
    command.args(["login", "--device", "--server", &url, "--certificate-authority"]).arg(&ca_file);
    command.env("XDG_STATE_HOME", folder.join("state")).env("KUBECONFIG", &kubeconfig).stdin(Stdio::null());
    let login = Process::start("roadstead login", &mut command, &folder.join("login.log"))?;
    login.says("enter the code", PATIENCE).await?;
    let said = login.logs();
    let to = said.lines().map(str::trim).find(|line| line.starts_with("https://")).context("an address")?;
    provider.enter_code(to).await?;
    login.says("Signed in at Company", PATIENCE).await?;
    let user: Value =
        serde_json::from_str(&Kubectl::new(&kubeconfig)?.run(&["auth", "whoami", "-o", "json"]).await?)?;
    ensure!(user["status"]["userInfo"]["username"] == "oidc:jane", "{user}");
    Ok(())
}

/// The plugin that the README names, in place of `roadstead login`.
#[tokio::test]
async fn kubectl_takes_its_tokens_from_kubelogin() -> Result<()> {
    let provider = OpenIdProvider::start().await?;
    let (setup, hub) = hub(&provider).await?;
    let folder = setup.folder();
    let ca_file = folder.join("provider.pem");
    std::fs::write(&ca_file, provider.ca_pem())?;
    let text = hub.kubectl().run(&["config", "view", "--raw", "--minify", "-o", "json"]).await?;
    let mut config: Value = serde_json::from_str(&text)?;
    config["users"][0]["user"] = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": kubelogin()?,
        "args": [
            "get-token", format!("--oidc-issuer-url={}", provider.url()), "--oidc-client-id=cli",
            format!("--certificate-authority={}", ca_file.display()), "--grant-type=device-code",
            "--skip-open-browser", format!("--token-cache-dir={}", folder.join("cache").display()),
        ],
    } });
    let path = folder.join("jane.kubeconfig");
    std::fs::write(&path, config.to_string())?;
    let kubectl = Kubectl::new(&path)?;
    let mut command = kubectl.command(&["auth", "whoami"]).into_std();
    let mut first = Process::start("kubectl", &mut command, &folder.join("kubectl.log"))?;
    first.says("Please visit the following URL", PATIENCE).await?;
    let said = first.logs();
    let to = said.split_whitespace().find(|word| word.starts_with("https://")).context("an address")?;
    provider.enter_code(to).await?;
    ensure!(first.wait(PATIENCE).await?.success(), "{}", first.logs());
    // With the token that it has now, and nobody is asked.
    let user: Value = serde_json::from_str(&kubectl.run(&["auth", "whoami", "-o", "json"]).await?)?;
    ensure!(user["status"]["userInfo"]["username"] == "oidc:jane", "{user}");
    let error = kubectl.run(&["get", "clusters"]).await.err().context("jane may see clusters")?;
    ensure!(format!("{error:#}").contains(r#"User "oidc:jane" cannot list"#), "{error:#}");
    let admin = hub.kubectl();
    admin
        .run(&["create", "clusterrolebinding", "dev", "--clusterrole=cluster-operator", "--group=dev"])
        .await?;
    eventually("jane may", PATIENCE, || async { kubectl.run(&["get", "clusters"]).await.map(drop) }).await
}

/// What `roadstead login token` gives, as kubectl runs it.
fn credential(kubeconfig: &Path) -> Result<Value> {
    let config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    let exec = &config["users"][0]["user"]["exec"];
    let args = exec["args"].as_array().context("arguments")?.iter().filter_map(Value::as_str);
    let out = Command::new(exec["command"].as_str().context("a command")?).args(args).output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(serde_json::from_slice(&out.stdout)?)
}

#[tokio::test]
async fn roadstead_login_gives_kubectl_a_context_whose_token_is_renewed() -> Result<()> {
    let provider = OpenIdProvider::start().await?;
    let (setup, hub) = hub(&provider).await?;
    let (url, ca) = reached(&hub).await?;
    let (folder, kubeconfig) = (setup.folder(), setup.folder().join("people/config"));
    let ca_file = folder.join("ca.pem");
    std::fs::write(&ca_file, ca)?;
    let mut command = Command::new(binary("roadstead")?);
    command.args(["login", "--no-browser", "--server", &url, "--certificate-authority"]).arg(&ca_file);
    command.env("XDG_STATE_HOME", folder.join("state")).env("KUBECONFIG", &kubeconfig).stdin(Stdio::null());
    let login = Process::start("roadstead login", &mut command, &folder.join("login.log"))?;
    login.says("code_challenge_method=S256", PATIENCE).await?;
    let said = login.logs();
    let to = said.lines().map(str::trim).find(|line| line.starts_with("https://")).context("an address")?;
    let back = provider.sent_back_from(to).await?;
    ensure!(back.starts_with("http://127.0.0.1:"), "{back}");
    let page = reqwest::Client::builder().no_proxy().build()?.get(&back).send().await?.text().await?;
    ensure!(page.contains("You are signed in"), "{page}");
    login.says("Signed in at Company", PATIENCE).await?;
    drop(login);

    let kubectl = Kubectl::new(&kubeconfig)?;
    let user: Value = serde_json::from_str(&kubectl.run(&["auth", "whoami", "-o", "json"]).await?)?;
    ensure!(user["status"]["userInfo"]["username"] == "oidc:jane", "{user}");
    let first = credential(&kubeconfig)?;
    ensure!(first["apiVersion"] == "client.authentication.k8s.io/v1", "{first}");
    let state = folder.join("state/roadstead/sign-in");
    for entry in std::fs::read_dir(&state)? {
        let mode = entry?.metadata()?.permissions().mode() & 0o777;
        ensure!(mode == 0o600, "{mode:o}");
    }
    // It lasts some seconds more than the half minute before whose end it is renewed; of many at once one asks.
    eventually("it is renewed", PATIENCE, || async {
        let both = [
            std::thread::spawn({
                let path = kubeconfig.clone();
                move || credential(&path)
            }),
            std::thread::spawn({
                let path = kubeconfig.clone();
                move || credential(&path)
            }),
        ];
        let mut tokens = Vec::new();
        for one in both {
            tokens.push(one.join().map_err(|_| anyhow::anyhow!("it panicked"))??["status"]["token"].clone());
        }
        ensure!(tokens[0] != first["status"]["token"], "it is the first one");
        ensure!(tokens[0] == tokens[1], "both were renewed");
        Ok(())
    })
    .await?;
    kubectl.run(&["auth", "whoami"]).await?;
    let mut command = Command::new(binary("roadstead")?);
    let out = command.arg("logout").env("KUBECONFIG", &kubeconfig).output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    ensure!(kubectl.run(&["auth", "whoami"]).await.is_err(), "it goes on");
    Ok(())
}
