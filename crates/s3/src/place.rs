//! Where a bucket is: its server, and the URLs of its objects there.

use url::Url;

/// The region of servers that say nothing else, and of Amazon's first endpoint.
const REGION: &str = "us-east-1";

/// A bucket on its server.
#[derive(Debug, Clone)]
pub struct Place {
    /// Scheme, host and port.
    pub server: Url,
    /// What stands before keys: begins with `/`, and does not end so.
    pub path: String,
    /// Its region.
    pub region: String,
}

impl Place {
    /// The bucket of this name on a server that speaks S3; of Amazon's at the bucket's own host, where its name can be a part of one.
    ///
    /// # Errors
    /// No such host can exist.
    pub fn new(mut server: Url, bucket: &str, region: Option<&str>) -> Result<Self, String> {
        server.set_path("/");
        let host = server.host_str().unwrap_or_default().to_owned();
        let region = region_of(&host, region);
        if !is_amazon_s3(&host) {
            return Ok(Self { server, path: format!("/{bucket}"), region });
        }
        let end = if host.ends_with(".cn") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let home = if host == "s3.amazonaws.com" || region_in(&host).is_some_and(|own| own != region) {
            format!("s3.{region}.{end}")
        } else {
            host
        };
        // A name with dots would not fit the certificate.
        let is_label = bucket.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        let host = if is_label { format!("{bucket}.{home}") } else { home };
        server.set_host(Some(&host)).map_err(|_| format!("`{host}` is not a host"))?;
        let path = if is_label { String::new() } else { format!("/{bucket}") };
        Ok(Self { server, path, region })
    }

    /// The URL of a page of the list of objects: the one that the server called `next`, or the first.
    ///
    /// # Errors
    /// It cannot stand in a URL.
    pub fn list(&self, prefix: &str, next: Option<&str>, most: &str) -> Result<Url, String> {
        let mut query = vec![("encoding-type", "url"), ("list-type", "2"), ("max-keys", most)];
        query.extend(next.map(|next| ("continuation-token", next)));
        if !prefix.is_empty() {
            query.push(("prefix", prefix));
        }
        self.of_bucket(&query)
    }

    /// The bucket's own URL, with a query.
    ///
    /// # Errors
    /// As [`Place::list`].
    pub fn of_bucket(&self, query: &[(&str, &str)]) -> Result<Url, String> {
        self.url(if self.path.is_empty() { "/" } else { &self.path }, query)
    }

    /// The URL of an object.
    ///
    /// # Errors
    /// As [`Place::list`]: a URL's reader would take some of the key for a way to somewhere else.
    pub fn object(&self, key: &str) -> Result<Url, String> {
        self.url(&format!("{}/{}", self.path, encoded(key, true)), &[])
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> Result<Url, String> {
        url(&self.server, path, query)
    }
}

/// A URL of a server, encoded as it is signed.
///
/// # Errors
/// A URL's reader would take some of it for something else.
pub fn url(server: &Url, path: &str, query: &[(&str, &str)]) -> Result<Url, String> {
    let mut pairs: Vec<String> =
        query.iter().map(|(name, value)| format!("{name}={}", encoded(value, false))).collect();
    // Signatures are of them in order.
    pairs.sort();
    let question = if pairs.is_empty() { "" } else { "?" };
    let text = format!("{path}{question}{}", pairs.join("&"));
    let url = server.join(&text).map_err(|error| error.to_string())?;
    // What is signed, and what is meant, is what is sent: nothing of it may have been taken for dots or another server.
    let whole = format!("{}{}", server.as_str().trim_end_matches('/'), text);
    if url.as_str() == whole { Ok(url) } else { Err("it cannot stand in a URL".to_owned()) }
}

/// The region that is said, else that of Amazon's host, else the one that most servers mean.
#[must_use]
pub fn region_of(host: &str, said: Option<&str>) -> String {
    let of_host = || is_amazon_s3(host).then(|| region_in(host)).flatten();
    said.or_else(of_host).unwrap_or(REGION).to_owned()
}

/// Whether it can be the name of a bucket.
#[must_use]
pub fn is_bucket(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '$');
    (1..=255).contains(&name.len()) && name.chars().all(fine) && !matches!(name, "." | "..")
}

/// Whether it can be the name of a region.
#[must_use]
pub fn is_region(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The part of a host's name that is a region of Amazon's, such as `eu-west-1`.
fn region_in(host: &str) -> Option<&str> {
    host.split('.').map(|label| label.trim_start_matches("s3-")).find(|label| is_place(label))
}

fn is_place(label: &str) -> bool {
    let mut parts = label.split('-').rev();
    let number =
        parts.next().is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    let words: Vec<&str> = parts.collect();
    number && words.len() >= 2 && words.iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase()))
}

/// Whether a host is Amazon's S3 by its name.
#[must_use]
pub fn is_amazon_s3(host: &str) -> bool {
    ["amazonaws.com", "amazonaws.com.cn"]
        .iter()
        .any(|end| host.strip_suffix(end).is_some_and(|rest| rest.ends_with('.') && rest.starts_with("s3")))
}

/// Each byte that is not a letter, a digit or one of `-._~` as its number; `/` too, unless it is to stay.
#[must_use]
pub fn encoded(text: &str, slash: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b'/' if slash => out.push('/'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}
