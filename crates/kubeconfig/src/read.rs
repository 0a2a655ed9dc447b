//! Reading one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_body::{YAML, decode};
use serde_json::{Map, Value};
use url::Url;

use crate::{Access, Allowed, Credentials, MAX_BYTES, MAX_ENTRIES, Refusal, Secret};

const INLINE: &str = "put a client certificate or a token into it";

impl Access {
    /// What the current context of a kubeconfig says, if all of it may be used.
    ///
    /// # Errors
    /// [`Refusal`], with the entry and the field.
    pub fn read(bytes: &[u8], allowed: &Allowed) -> Result<Self, Refusal> {
        if bytes.len() > MAX_BYTES {
            return Err(Refusal::TooLarge(bytes.len()));
        }
        // A parser's own message may quote the text, credentials and all: it is not passed on.
        let body = decode(YAML, bytes).map_err(|_| malformed("it is not YAML"))?;
        let config = body.value.as_object().ok_or_else(|| malformed("it is not a mapping"))?;
        let expected = [("apiVersion", "v1"), ("kind", "Config")];
        for (field, want) in expected {
            match config.get(field) {
                None => {}
                Some(Value::String(have)) if have == want => {}
                Some(_) => return Err(malformed(&format!("`{field}` is not {want}"))),
            }
        }
        let current = match config.get("current-context").and_then(Value::as_str) {
            Some(name) if !name.is_empty() => name,
            _ => return Err(malformed("it has no `current-context`")),
        };
        let context = Entry::find(config, "contexts", "context", current)?;
        let cluster = Entry::find(config, "clusters", "cluster", context.required("cluster")?)?;
        let user = Entry::find(config, "users", "user", context.required("user")?)?;
        let mut access = read_cluster(&cluster, allowed)?;
        access.credentials = read_user(&user)?;
        Ok(access)
    }
}

fn malformed(why: &str) -> Refusal {
    Refusal::Malformed(why.to_owned())
}

/// A named entry of one of the three lists.
struct Entry<'a> {
    /// What it is, for messages: `user "admin"`.
    shown: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Entry<'a> {
    fn find(config: &'a Map<String, Value>, list: &str, field: &str, name: &str) -> Result<Self, Refusal> {
        let shown = format!("{field} {name:?}");
        let entries = config.get(list).and_then(Value::as_array);
        let entries = entries.ok_or_else(|| malformed(&format!("`{list}` is not a list")))?;
        if entries.len() > MAX_ENTRIES {
            return Err(malformed(&format!("more than {MAX_ENTRIES} {list}")));
        }
        let mut found = entries.iter().filter(|entry| entry["name"] == name);
        let entry = found.next().ok_or_else(|| malformed(&format!("{shown} not found")))?;
        if found.next().is_some() {
            return Err(malformed(&format!("{shown} occurs twice")));
        }
        let fields = entry[field].as_object();
        let fields = fields.ok_or_else(|| malformed(&format!("the {shown} is not a mapping")))?;
        Ok(Self { shown, fields })
    }

    fn refuse(&self, field: &str, why: &'static str) -> Refusal {
        Refusal::Field { entry: self.shown.clone(), field: field.to_owned(), why }
    }

    /// The text of a field; none where it is missing, null or empty.
    fn text(&self, field: &str) -> Result<Option<&'a str>, Refusal> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.refuse(field, "which is not a string")),
        }
    }

    fn required(&self, field: &str) -> Result<&'a str, Refusal> {
        self.text(field)?.ok_or_else(|| malformed(&format!("the {} has no `{field}`", self.shown)))
    }

    fn flag(&self, field: &str) -> Result<bool, Refusal> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(set)) => Ok(*set),
            Some(_) => Err(self.refuse(field, "which is neither true nor false")),
        }
    }

    /// A field of base64 of PEM.
    fn pem(&self, field: &str) -> Result<Option<String>, Refusal> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        let packed: String = text.split_ascii_whitespace().collect();
        let bytes = STANDARD.decode(packed).map_err(|_| self.refuse(field, "which is not base64"))?;
        let pem = String::from_utf8(bytes).ok().filter(|pem| pem.contains("-----BEGIN "));
        pem.map(Some).ok_or_else(|| self.refuse(field, "which is not PEM"))
    }

    /// Refuses what is set of `fields`, each with its reason, and all that is not in `known`.
    fn only(&self, known: &[&str], refused: &[(&str, &'static str)]) -> Result<(), Refusal> {
        for (field, value) in self.fields {
            if let Some((_, why)) = refused.iter().find(|(name, _)| name == field) {
                let empty = value.is_null() || value == "" || value == &Value::Bool(false);
                if !empty {
                    return Err(self.refuse(field, why));
                }
            } else if !known.contains(&field.as_str()) {
                return Err(self.refuse(field, "which is not supported"));
            }
        }
        Ok(())
    }
}

/// The cluster's part; its credentials are still to come.
fn read_cluster(entry: &Entry<'_>, allowed: &Allowed) -> Result<Access, Refusal> {
    let known = [
        "server",
        "tls-server-name",
        "certificate-authority-data",
        "disable-compression",
        "extensions",
        "proxy-url",
        "insecure-skip-tls-verify",
    ];
    let file =
        "which would read a file on the hub: put its contents into `certificate-authority-data`, in base64";
    entry.only(&known, &[("certificate-authority", file)])?;
    let server = read_url(entry, "server", entry.required("server")?)?;
    match server.scheme() {
        "https" => {}
        "http" if allowed.plain_http => {}
        "http" => {
            let why = "with plain HTTP, which exposes credentials on the network: use https (or allow it with \
                       --allow-plain-http-clusters)";
            return Err(entry.refuse("server", why));
        }
        _ => return Err(entry.refuse("server", "which is not an https URL")),
    }
    let skip_verification = entry.flag("insecure-skip-tls-verify")?;
    if skip_verification && !allowed.skip_verification {
        let why = "which accepts any server as the cluster: put its certificate authority into \
                   `certificate-authority-data` (or allow it with --allow-unverified-clusters)";
        return Err(entry.refuse("insecure-skip-tls-verify", why));
    }
    let proxy = match entry.text("proxy-url")? {
        None => None,
        Some(_) if !allowed.proxies => {
            let why = "which would make the hub connect to another server: remove it (or allow it with \
                       --allow-cluster-proxies)";
            return Err(entry.refuse("proxy-url", why));
        }
        Some(text) => {
            let proxy = read_url(entry, "proxy-url", text)?;
            if !matches!(proxy.scheme(), "http" | "https") {
                return Err(entry.refuse("proxy-url", "which is not an http or https URL"));
            }
            Some(proxy)
        }
    };
    Ok(Access {
        server,
        tls_server_name: entry.text("tls-server-name")?.map(str::to_owned),
        authority: entry.pem("certificate-authority-data")?,
        skip_verification,
        proxy,
        credentials: Credentials::Token(Secret::new(String::new())),
    })
}

/// A URL without anything besides scheme, host, port and path.
fn read_url(entry: &Entry<'_>, field: &str, text: &str) -> Result<Url, Refusal> {
    let url = Url::parse(text).map_err(|_| entry.refuse(field, "which is not a URL"))?;
    let plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if !plain {
        return Err(entry.refuse(field, "with a user, a query or a fragment, which are not allowed there"));
    }
    if url.host().is_none() {
        return Err(entry.refuse(field, "without a host"));
    }
    Ok(url)
}

fn read_user(entry: &Entry<'_>) -> Result<Credentials, Refusal> {
    let known = ["client-certificate-data", "client-key-data", "token", "extensions"];
    let refused = [
        ("exec", "which would run a program on the hub: put a client certificate or a token into it"),
        ("auth-provider", "which would run a plugin on the hub: put a client certificate or a token into it"),
        (
            "client-certificate",
            "which would read a file on the hub: put its contents into `client-certificate-data`, in base64",
        ),
        (
            "client-key",
            "which would read a file on the hub: put its contents into `client-key-data`, in base64",
        ),
        ("tokenFile", "which would read a file on the hub: put its contents into `token`"),
        ("username", "which apiservers no longer accept: put a client certificate or a token into it"),
        ("password", "which apiservers no longer accept: put a client certificate or a token into it"),
        ("as", "which the hub does not support: use the credentials of the user who is to install the agent"),
        (
            "as-uid",
            "which the hub does not support: use the credentials of the user who is to install the agent",
        ),
        (
            "as-groups",
            "which the hub does not support: use the credentials of the user who is to install the agent",
        ),
        (
            "as-user-extra",
            "which the hub does not support: use the credentials of the user who is to install the agent",
        ),
    ];
    entry.only(&known, &refused)?;
    let certificate = entry.pem("client-certificate-data")?;
    let key = entry.pem("client-key-data")?.map(Secret::new);
    match (certificate, key, entry.text("token")?) {
        (Some(certificate), Some(key), None) => Ok(Credentials::Certificate { certificate, key }),
        (None, None, Some(token)) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Credentials::Token(Secret::new(token.to_owned())))
        }
        (None, None, Some(_)) => {
            Err(entry.refuse("token", "which has characters that are not allowed in a token"))
        }
        (Some(_), Some(_), Some(_)) => {
            Err(entry.refuse("token", "together with a client certificate: remove one of them"))
        }
        (Some(_), None, _) => Err(malformed(&format!("the {} has no `client-key-data`", entry.shown))),
        (None, Some(_), _) => {
            Err(malformed(&format!("the {} has no `client-certificate-data`", entry.shown)))
        }
        (None, None, None) => Err(malformed(&format!("the {} has no credentials: {INLINE}", entry.shown))),
    }
}
