//! One request to a service and its answer, bounded in time, bytes and number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Response};
use http_body_util::{BodyExt as _, Full};
use roadstead_outbound::{Client, Guard, Host, Policy, Proxies, Purpose, Resolve, SystemResolver};
use tokio::time::{Instant, timeout_at};
use url::Url;
use zeroize::Zeroizing;

use crate::address::{is_localhost, is_this_machine};
use crate::error::ServiceError;

/// Of an answer, where nothing else is said.
const ANSWER_BYTES: usize = 64 << 10;
/// For one key or login, with all that is asked for it.
pub const PER_KEY: Duration = Duration::from_secs(10);
/// For all keys of one file, or one login.
pub const PER_FILE: Duration = Duration::from_secs(30);
/// For the same.
pub const REQUESTS: usize = 64;
/// Of one request that is throttled.
const TRIES: u32 = 5;
/// For one that did not answer in the time for a key.
const REST: Duration = Duration::from_secs(15);
/// What is said of connections to addresses that are not public and not named one by one.
const VEILED: &str = "the connection failed";
/// Before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(250);

/// The way to services: straight or through the operator's proxies, wherever the policy lets it.
pub struct Network {
    services: Way,
    /// Past all proxies: to this machine, and to what hands out credentials to machines.
    direct: Way,
    /// Bytes of an answer.
    most: usize,
    /// Which did not answer, and until when they are not asked.
    resting: Mutex<HashMap<String, Instant>>,
}

struct Way {
    guard: Guard,
    ca: Option<Vec<u8>>,
    client: OnceLock<Result<Client, String>>,
}

impl Way {
    fn new(guard: Guard) -> Self {
        Self { guard, ca: None, client: OnceLock::new() }
    }

    /// Made when it is first used: the system's authorities are many files.
    fn client(&self) -> Result<&Client, String> {
        let made = self.client.get_or_init(|| {
            Client::new(self.guard.clone(), self.ca.as_deref()).map_err(|error| error.to_string())
        });
        made.as_ref().map_err(Clone::clone)
    }
}

impl Network {
    /// By this policy, for this purpose.
    #[must_use]
    pub fn new(purpose: Purpose, policy: &Arc<Policy>, proxies: Option<Arc<Proxies>>) -> Self {
        let guard = || Guard::new(Arc::clone(policy), purpose);
        let through = match proxies {
            Some(proxies) => guard().with_proxies(proxies),
            None => guard(),
        };
        Self {
            services: Way::new(through),
            direct: Way::new(guard().with_resolver(Arc::new(LocalNames))),
            most: ANSWER_BYTES,
            resting: Mutex::default(),
        }
    }

    /// Takes answers of so many bytes only.
    #[must_use]
    pub fn with_answers_of(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Whether it is not to be asked right now.
    fn rests(&self, host: &str) -> bool {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        resting.retain(|_, until| *until > now);
        resting.contains_key(host)
    }

    /// Lets one rest that did not answer: many files may name it, and each would wait for it.
    fn rest(&self, host: &str) {
        /// Of them.
        const MOST: usize = 256;
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.len() < MOST {
            resting.insert(host.to_owned(), Instant::now() + REST);
        }
    }

    /// Trusts these authorities (PEM) besides the system's.
    #[must_use]
    pub fn with_authorities(mut self, pem: &[u8]) -> Self {
        self.services.ca = Some(pem.to_vec());
        self.direct.ca = Some(pem.to_vec());
        self
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Network")
    }
}

/// `localhost` and names below it are this machine, whatever a name server says (RFC 6761).
struct LocalNames;

impl Resolve for LocalNames {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, std::io::Result<Vec<std::net::IpAddr>>> {
        use std::net::{Ipv4Addr, Ipv6Addr};
        if is_localhost(name) {
            let both = vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Box::pin(async { Ok(both) });
        }
        SystemResolver.resolve(name)
    }
}

/// A request. It is not printed.
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Where it goes.
    pub url: Url,
    /// Its headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Its body.
    pub body: Bytes,
    /// To what hands out credentials to machines.
    pub metadata: bool,
}

impl Request {
    /// One without headers and body.
    #[must_use]
    pub fn new(method: Method, url: Url) -> Self {
        Self { method, url, headers: Vec::new(), body: Bytes::new(), metadata: false }
    }

    /// With a body that is wiped when it was sent.
    #[must_use]
    pub fn with_body(mut self, content_type: &'static str, body: Zeroizing<Vec<u8>>) -> Self {
        self.headers.push((CONTENT_TYPE, HeaderValue::from_static(content_type)));
        self.body = Bytes::from_owner(body);
        self
    }

    /// With a header.
    ///
    /// # Errors
    /// If the value has characters that no header may have.
    pub fn with_header(mut self, name: &'static str, value: &str) -> Result<Self, ServiceError> {
        let value = HeaderValue::try_from(value).map_err(|_| {
            ServiceError::Credential(format!("the value of {name} has characters that no header may have"))
        })?;
        self.headers.push((HeaderName::from_static(name), value));
        Ok(self)
    }

    /// A header that is marked so that nothing prints it.
    ///
    /// # Errors
    /// If the value has characters that no header may have.
    pub fn with_secret(mut self, name: &'static str, value: &str) -> Result<Self, ServiceError> {
        let value = roadstead_outbound::secret_header(value).map_err(|_| {
            ServiceError::Credential(format!("the value of {name} has characters that no header may have"))
        })?;
        self.headers.push((HeaderName::from_static(name), value));
        Ok(self)
    }

    /// Whether a text that a service answers with repeats something of the credentials that were sent to it?
    fn is_echoed_in(&self, text: &str) -> bool {
        /// Shorter ones are in anything.
        const LENGTH: usize = 6;
        let sent = self.headers.iter().filter(|(_, value)| value.is_sensitive());
        let sent: Vec<&[u8]> = sent.map(|(_, value)| value.as_bytes()).chain([&*self.body]).collect();
        let within =
            |whole: &[u8], part: &[u8]| whole.windows(part.len().max(1)).any(|window| window == part);
        let credential =
            |bytes: &[u8]| bytes.rsplit(|byte| *byte == b' ').next().map(<[u8]>::to_vec).unwrap_or_default();
        text.split([' ', ':', '#']).filter(|word| word.len() >= LENGTH).any(|word| {
            sent.iter().any(|sent| {
                let whole = credential(sent);
                within(sent, word.as_bytes()) || whole.len() >= LENGTH && within(word.as_bytes(), &whole)
            })
        })
    }

    fn to_http(&self) -> Result<http::Request<Full<Bytes>>, ServiceError> {
        let unusable = || ServiceError::Key("not a URL that can be requested".to_owned());
        let mut request = http::Request::builder()
            .method(self.method.clone())
            .uri(self.url.as_str())
            .body(Full::new(self.body.clone()))
            .map_err(|_| unusable())?;
        request.headers_mut().extend(self.headers.iter().cloned());
        Ok(request)
    }
}

/// Where a request goes, for people.
#[must_use]
pub fn host(url: &Url) -> String {
    let host = url.host_str().and_then(Host::parse).map(|host| host.to_string()).unwrap_or_default();
    url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
}

/// An answer.
pub struct Reply {
    /// The host that sent it.
    pub host: String,
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Zeroizing<Vec<u8>>,
    retry_after: Option<Duration>,
}

impl Reply {
    /// Whether the status is a success.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body, as JSON.
    ///
    /// # Errors
    /// If it is not JSON of this form.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, ServiceError> {
        serde_json::from_slice(&self.body).map_err(|_| ServiceError::Malformed(self.host.clone()))
    }

    /// That it says no.
    #[must_use]
    pub fn unexplained(&self) -> ServiceError {
        ServiceError::Refused { host: self.host.clone(), status: self.status, code: None }
    }

    /// The service's own name for what is wrong, where it is a name and repeats nothing of the request.
    #[must_use]
    pub fn refused(&self, request: &Request, code: Option<&str>) -> ServiceError {
        let is_name = |code: &&str| {
            let fine = |c: char| c.is_ascii_alphanumeric() || "._-:# ".contains(c);
            !code.is_empty() && code.len() <= 64 && code.chars().all(fine) && !request.is_echoed_in(code)
        };
        let code = code.filter(is_name).map(str::to_owned);
        ServiceError::Refused { host: self.host.clone(), status: self.status, code }
    }
}

/// What one file, or one login, may ask for.
pub struct Budget {
    left: AtomicUsize,
    until: Instant,
}

impl Budget {
    /// Of one file, and until then at the latest.
    #[must_use]
    pub fn new(until: Option<Instant>) -> Self {
        let own = Instant::now() + PER_FILE;
        Self { left: AtomicUsize::new(REQUESTS), until: until.map_or(own, |until| until.min(own)) }
    }

    fn take(&self) -> Result<(), ServiceError> {
        let take = |left: usize| left.checked_sub(1);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| ServiceError::TooManyRequests(REQUESTS))
    }
}

/// The requests that are made for one key.
pub struct Calls<'c> {
    network: &'c Network,
    budget: &'c Budget,
    until: Instant,
    /// Whether it has all the time that there is for a key.
    whole: bool,
}

impl<'c> Calls<'c> {
    /// Within a budget.
    ///
    /// # Errors
    /// If its time is over.
    pub fn new(network: &'c Network, budget: &'c Budget) -> Result<Self, ServiceError> {
        let now = Instant::now();
        if now >= budget.until {
            return Err(ServiceError::TooSlow);
        }
        let whole = now + PER_KEY <= budget.until;
        Ok(Self { network, budget, until: budget.until.min(now + PER_KEY), whole })
    }

    /// These calls with less time for each.
    #[must_use]
    pub fn shortened(&self, most: Duration) -> Self {
        let until = self.until.min(Instant::now() + most);
        Self { network: self.network, budget: self.budget, until, whole: self.whole && until == self.until }
    }

    /// Sends a request, and again after a pause where the service is throttling.
    ///
    /// # Errors
    /// If there is no answer that can be read.
    pub async fn send(
        &self,
        request: &Request,
        throttled: impl Fn(&Reply) -> bool,
    ) -> Result<Reply, ServiceError> {
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            let reply = self.once(request).await?;
            if !(matches!(reply.status, 429 | 502..=504) || throttled(&reply)) {
                return Ok(reply);
            }
            let wait = reply.retry_after.unwrap_or(pause).max(jittered(pause));
            if Instant::now() + wait >= self.until {
                return Ok(reply);
            }
            tokio::time::sleep(wait).await;
            pause *= 2;
        }
        self.once(request).await
    }

    async fn once(&self, request: &Request) -> Result<Reply, ServiceError> {
        self.budget.take()?;
        let to = host(&request.url);
        let unreachable = |why: String| ServiceError::Unreachable { host: to.clone(), why };
        let direct = request.metadata || is_this_machine(&request.url);
        let way = if direct { &self.network.direct } else { &self.network.services };
        let client = way.client().map_err(unreachable)?;
        if self.network.rests(&to) {
            return Err(ServiceError::Resting(to));
        }
        // That something takes its time there is not for everyone to know either.
        let timed_out = || {
            if self.whole {
                self.network.rest(&to);
            }
            if client.veil().is_drawn() {
                unreachable(VEILED.to_owned())
            } else {
                ServiceError::TimedOut(to.clone())
            }
        };
        let sent = timeout_at(self.until, client.send(request.to_http()?)).await.map_err(|_| timed_out())?;
        let response = sent.map_err(|error| unreachable(told(&error)))?;
        let status = response.status().as_u16();
        if (300..400).contains(&status) {
            return Err(ServiceError::Redirect { host: to, status });
        }
        let retry_after = retry_after(&response);
        let read =
            timeout_at(self.until, read(response, self.network.most)).await.map_err(|_| timed_out())?;
        let body = match read {
            Read::All(body) => body,
            Read::TooLarge => return Err(ServiceError::TooLarge(to)),
            Read::Broken => {
                return Err(unreachable("it closed the connection before it had answered".to_owned()));
            }
        };
        Ok(Reply { host: to, status, body, retry_after })
    }
}

enum Read {
    All(Zeroizing<Vec<u8>>),
    TooLarge,
    Broken,
}

async fn read<B>(response: Response<B>, most: usize) -> Read
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let mut body = response.into_body();
    let mut bytes = Zeroizing::new(Vec::with_capacity(most));
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Read::Broken };
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Read::TooLarge;
        }
        bytes.extend_from_slice(&data);
    }
    Read::All(bytes)
}

fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Up to half more, so that many that were throttled together do not come back together.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0_u8];
    // Without randomness there is no jitter.
    let _ = aws_lc_rs::rand::fill(&mut random);
    pause + pause.mul_f64(f64::from(random[0]) / 512.0)
}

/// What may be told to whoever wrote the file.
fn told(error: &roadstead_outbound::SendError) -> String {
    if let Some(refusal) = &error.refusal {
        return refusal.to_string();
    }
    if error.veiled {
        return VEILED.to_owned();
    }
    let mut innermost: &dyn std::error::Error = &*error.source;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
