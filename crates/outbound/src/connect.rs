//! The connection itself.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::address::{Class, classify};
use crate::host::{Authority, Host};
use crate::listed::{ListedHosts, Unlisted};
use crate::policy::{Candidate, Detail, Policy, Refusal};
use crate::proxy::{Proxies, ProxyServer, ask_for};
use crate::purpose::Purpose;
use crate::resolve::{Resolve, SystemResolver};
use crate::tls::Tls;
use crate::wire::Wire;

/// The most addresses of one name that are tried.
const MOST_ADDRESSES: usize = 16;
/// For a name's look-up and for all of its addresses together.
const PATIENCE: Duration = Duration::from_secs(10);
/// For each address but the last, so that one that does not answer leaves time for the others.
const PER_ADDRESS: Duration = Duration::from_secs(4);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The policy does not allow it. Nothing was sent there.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The operator does not list the host. Nothing was sent there, and its name was not looked up.
    #[error(transparent)]
    Unlisted(#[from] Unlisted),
    /// The name could not be looked up.
    #[error("look up {host}")]
    Unresolved {
        /// The name.
        host: Host,
        /// Why.
        source: io::Error,
    },
    /// No address of it could be connected to.
    #[error("connect to {to}")]
    Failed {
        /// Host and port.
        to: String,
        /// How much of it may be told to whoever chose the address.
        detail: Detail,
        /// What happened at the last address that was tried.
        source: io::Error,
    },
    /// The proxy on the way cannot be used, or does not let it through.
    #[error("the proxy {proxy}: {why}")]
    Proxy {
        /// The proxy, without its password.
        proxy: String,
        /// How much of it may be told to whoever chose the address.
        detail: Detail,
        /// What it said or did.
        why: String,
    },
}

impl ConnectError {
    /// How much of it may be told to whoever chose the address. A refusal says the same whatever is there.
    #[must_use]
    pub fn detail(&self) -> Detail {
        match self {
            Self::Refused(_) | Self::Unlisted(_) | Self::Unresolved { .. } => Detail::Full,
            Self::Failed { detail, .. } | Self::Proxy { detail, .. } => *detail,
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    /// What is read from and written to.
    pub stream: Wire,
    /// Whether it ends at a proxy that takes whole requests in the clear and sends them on.
    pub to_http_proxy: bool,
    /// How much of what happens on it may be told to whoever chose the address.
    pub detail: Detail,
}

/// The way out for one purpose: opens connections where its policy lets it. Cheap to clone.
#[derive(Clone)]
pub struct Guard {
    policy: Arc<Policy>,
    purpose: Purpose,
    resolver: Arc<dyn Resolve>,
    way: Way,
    vouching: Option<Arc<[u8]>>,
    patience: Duration,
    lenient: Option<Authority>,
    listed: Option<Arc<ListedHosts>>,
    tolerated: Arc<Mutex<Option<Refusal>>>,
}

/// Straight, or through a proxy.
#[derive(Clone)]
enum Way {
    Straight,
    /// By the operator's environment: where it names a proxy, that one is as good as allowed.
    Operators(Arc<Proxies>),
    /// By a user: the proxy is a host like any other, and looks names up for itself.
    Chosen(ProxyServer),
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("purpose", &self.purpose).finish_non_exhaustive()
    }
}

impl Guard {
    /// A straight way out, with names looked up by the system.
    #[must_use]
    pub fn new(policy: Arc<Policy>, purpose: Purpose) -> Self {
        Self {
            policy,
            purpose,
            resolver: Arc::new(SystemResolver),
            way: Way::Straight,
            vouching: None,
            patience: PATIENCE,
            lenient: None,
            listed: None,
            tolerated: Arc::default(),
        }
    }

    /// Looks names up by this.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Goes through the operator's proxies, where they are for the way.
    #[must_use]
    pub fn with_proxies(mut self, proxies: Arc<Proxies>) -> Self {
        self.way = Way::Operators(proxies);
        self
    }

    /// Goes through a proxy that a user chose.
    #[must_use]
    pub fn through(mut self, proxy: ProxyServer) -> Self {
        self.way = Way::Chosen(proxy);
        self
    }

    /// Trusts these authorities (PEM) besides the system's where it speaks TLS with a proxy that a user chose, as Go's clients do, which have
    /// one set of authorities for servers and for the proxy before them. The operator's proxies are for everybody, so no user says who may
    /// pose as one of them: the system's authorities alone vouch for those.
    #[must_use]
    pub fn trusting(mut self, ca: Option<&[u8]>) -> Self {
        self.vouching = ca.map(Arc::from);
        self
    }

    /// Waits this long for a name's look-up, for a connection, and for a proxy's answer, each at most.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Lets this host be reached at its port even where no entry allows it, unless it leads to metadata or to an endpoint of
    /// the operator's own: for what worked before there was a policy. A name is let lead to private networks only: where it
    /// leads is for whoever has the name to say, and may have changed since. [`Guard::tolerated`] says whether it was needed.
    #[must_use]
    pub fn lenient_towards(mut self, to: Authority) -> Self {
        self.lenient = Some(to);
        self.tolerated = Arc::default();
        self
    }

    /// Connects to these hosts only, as far as the policy lets it.
    #[must_use]
    pub fn only_to(mut self, listed: Arc<ListedHosts>) -> Self {
        self.listed = Some(listed);
        self
    }

    fn check_listed(&self, to: &Authority) -> Result<(), Unlisted> {
        self.listed.as_ref().map_or(Ok(()), |listed| listed.check(to))
    }

    /// What would have been refused, if a connection was opened that the policy does not allow.
    #[must_use]
    pub fn tolerated(&self) -> Option<Refusal> {
        self.tolerated.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a connection would be opened; opens none.
    ///
    /// # Errors
    /// As [`Guard::connect`].
    pub async fn check(&self, to: &Authority) -> Result<(), ConnectError> {
        self.check_listed(to)?;
        let proxied = match &self.way {
            Way::Operators(proxies) => proxies.on_the_way(to)?.is_some(),
            Way::Straight | Way::Chosen(_) => false,
        };
        if proxied {
            self.judge_behind_a_proxy(to).await?;
        } else {
            self.allowed(&to.host, to.port, false).await?;
        }
        Ok(())
    }

    /// The operator's proxies, if it goes through them.
    pub(crate) fn proxies(&self) -> Option<Arc<Proxies>> {
        match &self.way {
            Way::Operators(proxies) => Some(Arc::clone(proxies)),
            Way::Straight | Way::Chosen(_) => None,
        }
    }

    /// What it is for.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Opens a connection: looks the name up, judges every address, and connects to those that may be connected to.
    ///
    /// # Errors
    /// [`ConnectError`]; each step on the way within the guard's patience.
    pub async fn connect(&self, to: &Authority) -> Result<Connection, ConnectError> {
        self.connect_telling(to, |_| ()).await
    }

    /// The same; `tell` is called once it is known how much of what follows may be told to whoever chose the address, and
    /// before a connection is opened: for those who may have to give up in the middle of that. It is called again where a proxy that a user
    /// chose is reached, and what follows is of the server behind it.
    ///
    /// # Errors
    /// As [`Guard::connect`].
    pub async fn connect_telling(
        &self,
        to: &Authority,
        tell: impl Fn(Detail) + Send + Sync,
    ) -> Result<Connection, ConnectError> {
        self.check_listed(to)?;
        match &self.way {
            Way::Straight => self.straight(to, &tell).await,
            Way::Operators(proxies) => match proxies.on_the_way(to)? {
                None => self.straight(to, &tell).await,
                Some(proxy) => {
                    let detail = self.judge_behind_a_proxy(to).await?;
                    tell(detail);
                    let allowed = self.allowed(proxy.host(), proxy.port(), true).await?;
                    let stream = self.reach(allowed, &proxy, detail).await?;
                    if to.scheme == crate::host::Scheme::Http {
                        return Ok(Connection { stream, to_http_proxy: true, detail });
                    }
                    self.tunnel(stream, to, &proxy, detail).await
                }
            },
            Way::Chosen(proxy) => {
                if let Host::Ip(address) = to.host {
                    self.judge(&to.host, address, to.port).await?;
                }
                let allowed = self.allowed(proxy.host(), proxy.port(), false).await?;
                let detail = allowed.detail;
                tell(detail);
                let stream = self.reach(allowed, proxy, detail).await?;
                // Where it leads is for the proxy to say, and so nobody knows what is there.
                tell(Detail::Coarse);
                self.tunnel(stream, to, proxy, Detail::Coarse).await
            }
        }
    }

    async fn straight(
        &self,
        to: &Authority,
        tell: &(impl Fn(Detail) + Send + Sync),
    ) -> Result<Connection, ConnectError> {
        let allowed = self.allowed(&to.host, to.port, false).await?;
        tell(allowed.detail);
        let detail = allowed.detail;
        Ok(Connection { stream: self.open(allowed).await?.into(), to_http_proxy: false, detail })
    }

    /// Connects to a proxy, over TLS where that is how it is spoken to.
    async fn reach(
        &self,
        allowed: Allowed<'_>,
        proxy: &ProxyServer,
        detail: Detail,
    ) -> Result<Wire, ConnectError> {
        let ours = allowed.ours;
        let stream = self.open(allowed).await?;
        if !proxy.is_over_tls() {
            return Ok(stream.into());
        }
        let secured = async {
            let vouching = self.vouching.as_deref().filter(|_| !ours);
            let tls = Tls::new(vouching, None).map_err(|error| error.to_string())?;
            tls.secure(proxy.host(), stream).await.map_err(|error| format!("TLS with it: {error}"))
        };
        let secured = self.answered(proxy, detail, secured).await?;
        Ok(secured.into())
    }

    /// What a proxy is asked for, if it answers in time.
    async fn answered<T>(
        &self,
        proxy: &ProxyServer,
        detail: Detail,
        asked: impl Future<Output = Result<T, String>>,
    ) -> Result<T, ConnectError> {
        let why = match timeout(self.patience, asked).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(why)) => why,
            Err(_) => "no answer in time".to_owned(),
        };
        Err(ConnectError::Proxy { proxy: proxy.to_string(), detail, why })
    }

    /// Asks a proxy for the way to a server.
    async fn tunnel(
        &self,
        mut stream: Wire,
        to: &Authority,
        proxy: &ProxyServer,
        detail: Detail,
    ) -> Result<Connection, ConnectError> {
        self.answered(proxy, detail, ask_for(&mut stream, to, proxy)).await?;
        Ok(Connection { stream, to_http_proxy: false, detail })
    }

    /// The addresses of `host` that may be connected to. `ours` is a proxy that the operator named: private addresses and
    /// this machine's are allowed then.
    async fn allowed<'a>(&self, host: &'a Host, port: u16, ours: bool) -> Result<Allowed<'a>, ConnectError> {
        let mut refused = None;
        let mut addresses = Vec::new();
        let mut detail = Detail::Full;
        for address in self.addresses(host).await? {
            match self.judge_as(host, address, port, ours).await {
                Ok(told) => {
                    detail = detail.max(told);
                    addresses.push(address);
                }
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        match refused {
            Some(refusal) if addresses.is_empty() => Err(refusal.into()),
            _ => Ok(Allowed { host, port, ours, addresses, detail }),
        }
    }

    /// Connects to the first of them that answers.
    async fn open(&self, allowed: Allowed<'_>) -> Result<TcpStream, ConnectError> {
        let Allowed { host, port, ours, addresses, detail } = allowed;
        let failed = |source| ConnectError::Failed { to: format!("{host}:{port}"), detail, source };
        let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no addresses");
        let deadline = Instant::now() + self.patience;
        let count = addresses.len();
        for (index, address) in addresses.into_iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = if index + 1 == count { left } else { left.min(PER_ADDRESS) };
            match timeout(patience, TcpStream::connect((address, port))).await {
                Ok(Ok(stream)) => {
                    // Again, for where the system really led us.
                    let peer = stream.peer_addr().map_err(failed)?;
                    self.judge_as(host, peer.ip(), peer.port(), ours).await?;
                    // Small requests are not to wait for each other; where it cannot be set nothing is lost.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
            }
        }
        Err(failed(last))
    }

    /// The addresses of a host, each once.
    async fn addresses(&self, host: &Host) -> Result<Vec<IpAddr>, ConnectError> {
        let name = match host {
            Host::Ip(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        let unresolved = |source| ConnectError::Unresolved { host: host.clone(), source };
        let found = timeout(self.patience, self.resolver.resolve(name)).await;
        let found = found
            .map_err(|_| unresolved(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))?
            .map_err(unresolved)?;
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in found {
            if !addresses.contains(&address) && addresses.len() < MOST_ADDRESSES {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return Err(unresolved(io::Error::new(io::ErrorKind::NotFound, "the name has no addresses")));
        }
        Ok(addresses)
    }

    /// Where a proxy looks names up: an address is judged as ever; so is a name that this process can look up too, and
    /// all of its addresses count, as nobody knows which the proxy takes. Any other name is judged as a name.
    async fn judge_behind_a_proxy(&self, to: &Authority) -> Result<Detail, ConnectError> {
        let name = match &to.host {
            Host::Ip(address) => return Ok(self.judge(&to.host, *address, to.port).await?),
            Host::Name(name) => name,
        };
        match self.addresses(&to.host).await {
            Ok(addresses) => {
                let mut detail = Detail::Full;
                for address in addresses {
                    detail = detail.max(self.judge(&to.host, address, to.port).await?);
                }
                Ok(detail)
            }
            Err(_) => Ok(self.policy.check_name(self.purpose, name, to.port)?),
        }
    }

    async fn judge(&self, host: &Host, address: IpAddr, port: u16) -> Result<Detail, Refusal> {
        self.judge_as(host, address, port, false).await
    }

    async fn judge_as(&self, host: &Host, address: IpAddr, port: u16, ours: bool) -> Result<Detail, Refusal> {
        let own = self.is_own(address, port).await;
        let candidate = Candidate { purpose: self.purpose, host, address, port, own };
        self.policy.check(&candidate).or_else(|refusal| {
            let mild = !own && !matches!(classify(address), Class::Metadata | Class::Unusable);
            if mild && ours {
                return Ok(Detail::Coarse);
            }
            let as_it_was = matches!(host, Host::Ip(_)) || classify(address) == Class::Private;
            let lenient =
                || self.lenient.as_ref().is_some_and(|lenient| lenient.host == *host && lenient.port == port);
            if mild && as_it_was && lenient() {
                *self.tolerated.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
                return Ok(Detail::Coarse);
            }
            Err(refusal)
        })
    }

    /// Whether an endpoint is the operator's own: one that is reserved by address, by a name that leads there now, or as
    /// a port of this machine.
    async fn is_own(&self, address: IpAddr, port: u16) -> bool {
        if self.policy.is_reserved(address, port) {
            return true;
        }
        if self.policy.is_reserved_local_port(port) && is_local(address) {
            return true;
        }
        for name in self.policy.reserved_names(port) {
            let found = timeout(self.patience, self.resolver.resolve(name)).await;
            if matches!(found, Ok(Ok(found)) if found.contains(&address)) {
                return true;
            }
        }
        false
    }
}

/// Where a host may be connected to.
struct Allowed<'a> {
    host: &'a Host,
    port: u16,
    ours: bool,
    addresses: Vec<IpAddr>,
    detail: Detail,
}

/// Whether an address is one of this machine's: the system would send from it what goes to it. Nothing is sent.
fn is_local(address: IpAddr) -> bool {
    if matches!(classify(address), Class::Loopback) {
        return true;
    }
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let from = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == address)
}

/// Opens a connection to `to` as far as `guard` lets it; [`Guard::connect`] by another name.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(to: &Authority, guard: &Guard) -> Result<Connection, ConnectError> {
    guard.connect(to).await
}
