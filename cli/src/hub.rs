//! The hub's public API, as this command reaches it: through a kubeconfig, as kubectl does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::commands::{cache_of_exec, cached_token};

/// A kubeconfig is a small file; a larger one is something else.
const MAX_KUBECONFIG_BYTES: u64 = 4 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

/// The parts of a kubeconfig that reaching a hub takes. Programs named in it are never run: a sign-in of `roadstead login` is read without.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    contexts: Vec<Named<NamedContext>>,
    #[serde(default)]
    clusters: Vec<Named<NamedCluster>>,
    #[serde(default)]
    users: Vec<Named<NamedUser>>,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(flatten)]
    value: T,
}

#[derive(Deserialize)]
struct NamedContext {
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
struct User {
    token: Option<String>,
    #[serde(default)]
    exec: Value,
}

/// Which hub.
#[derive(Debug, clap::Args)]
pub(crate) struct HubArgs {
    /// The kubeconfig of the hub
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// The context in it [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// A client of a hub's API.
pub(crate) struct HubClient {
    http: reqwest::blocking::Client,
    server: String,
    token: String,
}

impl HubArgs {
    /// Reads the kubeconfig.
    pub(crate) fn client(&self) -> Result<HubClient> {
        let path = kubeconfig(self.kubeconfig.as_deref())?;
        let size = std::fs::metadata(&path)
            .with_context(|| format!("read the kubeconfig {}", path.display()))?
            .len();
        if size > MAX_KUBECONFIG_BYTES {
            bail!("{} has {size} bytes: is it a kubeconfig?", path.display());
        }
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("read the kubeconfig {}", path.display()))?;
        // The parser's message may quote credentials: only the fact is told.
        let config: Kubeconfig = serde_saphyr::from_str(&text)
            .map_err(|_| anyhow::anyhow!("{} is not a readable kubeconfig", path.display()))?;
        self.connect(&config).with_context(|| format!("use the kubeconfig {}", path.display()))
    }

    fn connect(&self, config: &Kubeconfig) -> Result<HubClient> {
        let name = self.context.as_deref().unwrap_or(&config.current_context);
        let context =
            &find(&config.contexts, name).with_context(|| format!("it has no context '{name}'"))?.context;
        let cluster = &find(&config.clusters, &context.cluster)
            .with_context(|| format!("it has no cluster '{}'", context.cluster))?
            .cluster;
        let user = &find(&config.users, &context.user)
            .with_context(|| format!("it has no user '{}'", context.user))?
            .user;
        let token = match (user.token.clone(), cache_of_exec(&user.exec)) {
            (Some(token), _) => token,
            (None, Some(signed_in)) => cached_token(&signed_in)?.0,
            (None, None) => bail!("user '{}' has no token; a hub takes bearer tokens", context.user),
        };
        if !cluster.server.starts_with("https://") {
            bail!("server '{}' is not an https:// URL", cluster.server);
        }
        crate::tls::install();
        let mut http = reqwest::blocking::Client::builder().timeout(TIMEOUT).https_only(true);
        if let Some(pem) = ca(cluster)? {
            let certificate =
                reqwest::Certificate::from_pem(&pem).context("read its certificate-authority")?;
            http = http.tls_certs_only([certificate]);
        }
        let http = http.build().context("set up HTTPS")?;
        Ok(HubClient { http, server: cluster.server.trim_end_matches('/').to_owned(), token })
    }
}

/// Which kubeconfig is meant: `KUBECONFIG` may name several, of which it is the first that is there, or else the last.
pub(crate) fn kubeconfig(given: Option<&Path>) -> Result<PathBuf> {
    let Some(given) = given.filter(|path| !path.as_os_str().is_empty()) else {
        let home =
            std::env::home_dir().context("find the home folder; or name a kubeconfig with --kubeconfig")?;
        return Ok(home.join(".kube/config"));
    };
    let mut last = given.to_owned();
    if given.exists() {
        return Ok(last);
    }
    for path in std::env::split_paths(given).filter(|path| !path.as_os_str().is_empty()) {
        if path.exists() {
            return Ok(path);
        }
        last = path;
    }
    Ok(last)
}

fn find<'a, T>(entries: &'a [Named<T>], name: &str) -> Option<&'a T> {
    entries.iter().find(|entry| entry.name == name).map(|entry| &entry.value)
}

fn ca(cluster: &Cluster) -> Result<Option<Vec<u8>>> {
    use base64::Engine as _;
    if let Some(data) = &cluster.certificate_authority_data {
        let pem = base64::engine::general_purpose::STANDARD
            .decode(data)
            .context("read its certificate-authority-data: want base64")?;
        return Ok(Some(pem));
    }
    let Some(path) = &cluster.certificate_authority else { return Ok(None) };
    std::fs::read(path)
        .with_context(|| format!("read its certificate-authority {}", path.display()))
        .map(Some)
}

impl HubClient {
    /// POSTs `body` to `path` and gives the answer; a refusal becomes an error with the hub's own words.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.answer(self.http.post(format!("{}{path}", self.server)).json(body))
    }

    /// GETs `path`.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        self.ask(path, &[])
    }

    /// GETs `path` with a query.
    pub(crate) fn ask(&self, path: &str, query: &[(&str, String)]) -> Result<Value> {
        let mut url = reqwest::Url::parse(&format!("{}{path}", self.server))
            .with_context(|| format!("build the address of {}", self.server))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.answer(self.http.get(url))
    }

    /// DELETEs `path`.
    pub(crate) fn delete(&self, path: &str) -> Result<Value> {
        self.answer(self.http.delete(format!("{}{path}", self.server)))
    }

    /// GETs `path`, whose answer is text; an answer of 503 has text, too.
    pub(crate) fn text(&self, path: &str) -> Result<String> {
        let request = self.http.get(format!("{}{path}", self.server)).bearer_auth(&self.token);
        let answer = request.send().with_context(|| format!("ask the hub at {}", self.server))?;
        let status = answer.status();
        let text = answer.text().with_context(|| format!("read the hub's answer at {}", self.server))?;
        if status.is_success() || status == reqwest::StatusCode::SERVICE_UNAVAILABLE {
            return Ok(text);
        }
        let told: Value = serde_json::from_str(&text).unwrap_or_default();
        bail!("the hub refused ({status}): {}", told["message"].as_str().unwrap_or("no reason given"))
    }

    fn answer(&self, request: reqwest::blocking::RequestBuilder) -> Result<Value> {
        let answer = request
            .bearer_auth(&self.token)
            .send()
            .with_context(|| format!("ask the hub at {}", self.server))?;
        let status = answer.status();
        let text = answer.text().with_context(|| format!("read the hub's answer at {}", self.server))?;
        let answer: Value = serde_json::from_str(&text).with_context(|| {
            format!("the server at {} answered {status}, which is not a hub's answer", self.server)
        })?;
        if status.is_success() {
            return Ok(answer);
        }
        let message = answer.get("message").and_then(Value::as_str).unwrap_or("no reason given");
        bail!("the hub refused ({status}): {message}")
    }
}

#[cfg(test)]
mod tests {
    use super::{HubArgs, Kubeconfig};

    const CONFIG: &str = "
apiVersion: v1
kind: Config
current-context: hub
contexts:
- {name: hub, context: {cluster: hub, user: admin, namespace: default}}
- {name: plain, context: {cluster: plain, user: admin}}
- {name: program, context: {cluster: hub, user: program}}
clusters:
- {name: hub, cluster: {server: 'https://127.0.0.1:7443/'}}
- {name: plain, cluster: {server: 'http://127.0.0.1:7443'}}
users:
- {name: admin, user: {token: hush}}
- {name: program, user: {exec: {command: /bin/false}}}
";

    fn connect(context: Option<&str>) -> anyhow::Result<super::HubClient> {
        let config: Kubeconfig = serde_saphyr::from_str(CONFIG).unwrap();
        HubArgs { kubeconfig: None, context: context.map(str::to_owned) }.connect(&config)
    }

    #[test]
    fn of_several_kubeconfigs_the_first_that_is_there_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
        let several =
            |paths: &[&std::path::PathBuf]| std::path::PathBuf::from(std::env::join_paths(paths).unwrap());
        let meant = |paths: &[&std::path::PathBuf]| super::kubeconfig(Some(&several(paths))).unwrap();
        assert_eq!((meant(&[&one]), meant(&[&one, &two, &three])), (one.clone(), three.clone()));
        std::fs::write(&two, "").unwrap();
        assert_eq!((meant(&[&one, &two, &three]), meant(&[&two])), (two.clone(), two));
        let home = super::kubeconfig(Some("".as_ref())).unwrap();
        assert!(home.ends_with(".kube/config"), "{}", home.display());
    }

    #[test]
    fn the_current_context_names_server_and_token() {
        let client = connect(None).unwrap();
        assert_eq!((client.server.as_str(), client.token.as_str()), ("https://127.0.0.1:7443", "hush"));
    }

    #[test]
    fn what_a_hub_cannot_be_reached_with_is_refused_by_name() {
        for (context, part) in
            [("nope", "no context 'nope'"), ("plain", "https://"), ("program", "has no token")]
        {
            let error = connect(Some(context)).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(part), "{context}: {error}");
        }
    }
}
