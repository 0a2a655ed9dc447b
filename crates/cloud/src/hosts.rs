//! Which hosts belong to which cloud. Whoever writes a source chooses its address, so credentials of a cloud are sent only to hosts that belong to
//! that cloud by their names, or that the operator lists.

use std::fmt;
use std::str::FromStr;

use roadstead_outbound::Host;
use url::Url;

/// A cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cloud {
    /// Amazon's.
    Aws,
    /// Microsoft's.
    Azure,
    /// Google's.
    Gcp,
}

impl Cloud {
    /// As Flux calls it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Gcp => "gcp",
        }
    }

    /// By Flux's name for it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Aws, Self::Azure, Self::Gcp].into_iter().find(|cloud| cloud.as_str() == text)
    }
}

impl fmt::Display for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not a host of a cloud.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("want CLOUD=HOST[:PORT], where CLOUD is aws, azure or gcp")]
pub struct BadHost;

/// A host that the operator counts as one of a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnHost {
    cloud: Cloud,
    host: Host,
    /// `None` is the default of `https`.
    port: Option<u16>,
}

/// Hosts that the operator says are a cloud's, besides those whose names say so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnHosts(Vec<OwnHost>);

impl FromStr for OwnHosts {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Self, BadHost> {
        let (cloud, host) = text.split_once('=').ok_or(BadHost)?;
        let cloud = Cloud::parse(cloud).ok_or(BadHost)?;
        let url = Url::parse(&format!("https://{host}/")).map_err(|_| BadHost)?;
        let whole = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if !whole || !url.username().is_empty() || url.password().is_some() {
            return Err(BadHost);
        }
        let host = url.host_str().and_then(Host::parse).ok_or(BadHost)?;
        Ok(Self(vec![OwnHost { cloud, host, port: url.port() }]))
    }
}

impl OwnHosts {
    /// Adds others.
    pub fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    fn has(&self, cloud: Cloud, url: &Url) -> bool {
        let Some(host) = url.host_str().and_then(Host::parse) else { return false };
        let port = url.port_or_known_default();
        self.0.iter().any(|own| own.cloud == cloud && own.host == host && port == own.port.or(Some(443)))
    }
}

/// A registry of a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Registry {
    /// A private one of AWS (ECR); the region is `None` if the host's name does not have it.
    Ecr { region: Option<String>, suffix: &'static str, is_fips: bool },
    /// The public one of AWS.
    EcrPublic,
    /// One of Azure, and what tokens for it are for.
    Acr { resource: &'static str },
    /// Google's.
    Google,
}

/// An object store of a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Store {
    /// What its services' names end with.
    S3 { suffix: &'static str },
    /// Google's.
    Google,
    /// What tokens for it are for.
    Blob { resource: String },
}

/// A Git server of a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Git {
    /// AWS CodeCommit.
    CodeCommit { region: Option<String> },
    /// Azure DevOps.
    DevOps,
}

/// What takes messages at a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bus {
    /// Google's Pub/Sub.
    PubSub,
    /// A namespace of Azure Event Hubs, and what tokens for it are for.
    EventHubs { resource: String },
}

const ARM: &str = "https://management.azure.com";
const STORAGE: &str = "https://storage.azure.com";
const EVENT_HUBS: &str = "https://eventhubs.azure.net";
const AMAZON: [(&str, &str); 2] =
    [(".amazonaws.com", "amazonaws.com"), (".amazonaws.com.cn", "amazonaws.com.cn")];

/// The name of the host, where it is reached as clouds' are: over TLS, at its own port.
fn name(url: &Url) -> Option<String> {
    let Host::Name(name) = url.host_str().and_then(Host::parse)? else { return None };
    (url.scheme() == "https" && url.port().is_none()).then_some(name)
}

/// Such as `eu-west-1`.
pub(crate) fn is_region(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let word = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
    let number = |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= 32
        && matches!(parts.as_slice(), [words @ .., last] if words.len() >= 2 && words.iter().all(word) && number(last))
}

fn is_label(text: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(fine)
}

impl Registry {
    pub(crate) fn of(cloud: Cloud, url: &Url, own: &OwnHosts) -> Option<Self> {
        let named = name(url).and_then(|name| match cloud {
            Cloud::Aws => Self::of_amazon(&name),
            Cloud::Azure => Self::of_azure(&name),
            Cloud::Gcp => Self::of_google(&name),
        });
        named.or_else(|| {
            own.has(cloud, url).then_some(match cloud {
                Cloud::Aws => Self::Ecr { region: None, suffix: "amazonaws.com", is_fips: false },
                Cloud::Azure => Self::Acr { resource: ARM },
                Cloud::Gcp => Self::Google,
            })
        })
    }

    /// What the host would have to be, for messages.
    pub(crate) fn wanted(cloud: Cloud) -> &'static str {
        match cloud {
            Cloud::Aws => "a registry of AWS (ACCOUNT.dkr.ecr.REGION.amazonaws.com or public.ecr.aws)",
            Cloud::Azure => "a registry of Azure (NAME.azurecr.io)",
            Cloud::Gcp => "a registry of Google (REGION-docker.pkg.dev or gcr.io)",
        }
    }

    fn of_amazon(name: &str) -> Option<Self> {
        if name == "public.ecr.aws" || name == "ecr-public.aws.com" {
            return Some(Self::EcrPublic);
        }
        const ENDS: [(&str, &str); 4] = [
            AMAZON[0],
            AMAZON[1],
            (".on.aws", "amazonaws.com"),
            (".on.amazonwebservices.com.cn", "amazonaws.com.cn"),
        ];
        let (rest, suffix) =
            ENDS.iter().find_map(|(end, suffix)| name.strip_suffix(end).map(|rest| (rest, *suffix)))?;
        let (account, rest) = rest.split_once('.')?;
        let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        let rest = rest.strip_prefix("dkr.ecr").or_else(|| rest.strip_prefix("dkr-ecr"))?;
        let (is_fips, rest) = rest.strip_prefix("-fips").map_or((false, rest), |rest| (true, rest));
        let region = rest.strip_prefix('.').filter(|region| is_region(region))?;
        is_account.then(|| Self::Ecr { region: Some(region.to_owned()), suffix, is_fips })
    }

    fn of_azure(name: &str) -> Option<Self> {
        const ENDS: [(&str, &str); 4] = [
            (".azurecr.io", ARM),
            (".azurecr.cn", "https://management.chinacloudapi.cn"),
            (".azurecr.us", "https://management.usgovcloudapi.net"),
            (".azurecr.de", "https://management.microsoftazure.de"),
        ];
        ENDS.iter().find_map(|(end, resource)| {
            let registry = name.strip_suffix(end)?;
            registry.split('.').all(is_label).then_some(Self::Acr { resource })
        })
    }

    fn of_google(name: &str) -> Option<Self> {
        let beneath = name.strip_suffix("gcr.io").is_some_and(|rest| {
            rest.is_empty() || rest.strip_suffix('.').is_some_and(|rest| rest.split('.').all(is_label))
        });
        let location = name.strip_suffix("-docker.pkg.dev").is_some_and(is_label);
        (beneath || location).then_some(Self::Google)
    }
}

impl Store {
    pub(crate) fn of(cloud: Cloud, url: &Url, own: &OwnHosts) -> Option<Self> {
        let named = name(url).and_then(|name| match cloud {
            Cloud::Aws => AMAZON.iter().find_map(|(end, suffix)| {
                let rest = name.strip_suffix(end)?;
                is_s3(rest).then_some(Self::S3 { suffix })
            }),
            Cloud::Azure => Self::of_azure(&name),
            Cloud::Gcp => is_gcs(&name).then_some(Self::Google),
        });
        named.or_else(|| {
            own.has(cloud, url).then(|| match cloud {
                Cloud::Aws => Self::S3 { suffix: AMAZON[0].1 },
                Cloud::Azure => Self::Blob { resource: STORAGE.to_owned() },
                Cloud::Gcp => Self::Google,
            })
        })
    }

    /// What the host would have to be, for messages.
    pub(crate) fn wanted(cloud: Cloud) -> &'static str {
        match cloud {
            Cloud::Aws => "an endpoint of S3 (s3.REGION.amazonaws.com)",
            Cloud::Azure => "an account of Azure Blob Storage (https://ACCOUNT.blob.core.windows.net)",
            Cloud::Gcp => "Google's storage (storage.googleapis.com)",
        }
    }

    fn of_azure(name: &str) -> Option<Self> {
        if name.strip_suffix(".blob.core.windows.net").is_some_and(|account| account.split('.').all(is_label))
        {
            return Some(Self::Blob { resource: STORAGE.to_owned() });
        }
        // Those of national clouds are named by themselves: the name tells who gives out tokens.
        [".blob.core.chinacloudapi.cn", ".blob.core.usgovcloudapi.net"].iter().find_map(|end| {
            let account = name.strip_suffix(end)?;
            is_label(account).then(|| Self::Blob { resource: format!("https://{name}") })
        })
    }
}

/// What stands before Amazon's domain: `s3`, `s3-fips.dualstack.REGION`, and the bucket before it. Other services of Amazon's
/// have names there that its customers choose.
fn is_s3(rest: &str) -> bool {
    let labels: Vec<&str> = rest.split('.').collect();
    let Some(at) = labels.iter().rposition(|label| *label == "s3" || label.starts_with("s3-")) else {
        return false;
    };
    let service = labels[at].strip_prefix("s3").unwrap_or_default();
    let own = matches!(service, "" | "-fips") || service.strip_prefix('-').is_some_and(is_region);
    let place = match &labels[at + 1..] {
        [] => true,
        [region] | ["dualstack", region] => is_region(region),
        _ => false,
    };
    own && place && labels[..at].iter().all(|label| is_label(label))
}

fn is_gcs(name: &str) -> bool {
    let regional = name.strip_prefix("storage.").and_then(|rest| rest.strip_suffix(".rep.googleapis.com"));
    name == "storage.googleapis.com" || regional.is_some_and(is_label)
}

impl Git {
    pub(crate) fn of(cloud: Cloud, url: &Url, own: &OwnHosts) -> Option<Self> {
        let named = name(url).and_then(|name| match cloud {
            Cloud::Aws => AMAZON.iter().find_map(|(end, _)| {
                let rest = name.strip_suffix(end)?.strip_prefix("git-codecommit")?;
                let region = rest.strip_prefix("-fips").unwrap_or(rest).strip_prefix('.')?;
                is_region(region).then(|| Self::CodeCommit { region: Some(region.to_owned()) })
            }),
            Cloud::Azure => {
                let organisation = name.strip_suffix(".visualstudio.com").is_some_and(is_label);
                (name == "dev.azure.com" || organisation).then_some(Self::DevOps)
            }
            Cloud::Gcp => None,
        });
        named.or_else(|| match cloud {
            Cloud::Aws => own.has(cloud, url).then_some(Self::CodeCommit { region: None }),
            Cloud::Azure => own.has(cloud, url).then_some(Self::DevOps),
            Cloud::Gcp => None,
        })
    }

    /// What the host would have to be, for messages.
    pub(crate) fn wanted(cloud: Cloud) -> &'static str {
        match cloud {
            Cloud::Aws => "AWS CodeCommit (git-codecommit.REGION.amazonaws.com)",
            Cloud::Azure => "Azure DevOps (dev.azure.com)",
            Cloud::Gcp => "a Git server of Google, which has none",
        }
    }
}

impl Bus {
    pub(crate) fn of(cloud: Cloud, url: &Url, own: &OwnHosts) -> Option<Self> {
        let named = name(url).and_then(|name| match cloud {
            Cloud::Aws => None,
            Cloud::Azure => Self::of_azure(&name),
            Cloud::Gcp => (name == "pubsub.googleapis.com").then_some(Self::PubSub),
        });
        named.or_else(|| match cloud {
            Cloud::Aws => None,
            Cloud::Azure => own.has(cloud, url).then(|| Self::EventHubs { resource: EVENT_HUBS.to_owned() }),
            Cloud::Gcp => own.has(cloud, url).then_some(Self::PubSub),
        })
    }

    /// What it would have to be.
    pub(crate) fn wanted(cloud: Cloud) -> &'static str {
        match cloud {
            Cloud::Aws => "a service of AWS that takes messages, of which none is known",
            Cloud::Azure => "a namespace of Azure Event Hubs (NAME.servicebus.windows.net)",
            Cloud::Gcp => "Google's Pub/Sub (pubsub.googleapis.com)",
        }
    }

    fn of_azure(name: &str) -> Option<Self> {
        if name.strip_suffix(".servicebus.windows.net").is_some_and(is_label) {
            return Some(Self::EventHubs { resource: EVENT_HUBS.to_owned() });
        }
        // As with storage, the name tells which of the clouds gives out tokens.
        [".servicebus.chinacloudapi.cn", ".servicebus.usgovcloudapi.net"].iter().find_map(|end| {
            let namespace = name.strip_suffix(end)?;
            is_label(namespace).then(|| Self::EventHubs { resource: format!("https://{name}") })
        })
    }
}

/// Whether a URL is AWS's STS, as an object may name it: `https://sts.REGION.amazonaws.com`, or a VPC's own way there.
pub(crate) fn is_sts(url: &Url) -> bool {
    let Some(name) = name(url) else { return false };
    let rest = AMAZON.iter().find_map(|(end, _)| name.strip_suffix(end));
    let Some(labels) = rest.map(|rest| rest.split('.').collect::<Vec<_>>()) else { return false };
    let is_service = |label: &str| matches!(label, "sts" | "sts-fips");
    match labels.as_slice() {
        [service] => is_service(service),
        [service, region] => is_service(service) && is_region(region),
        [endpoint, service, region, "vpce"] => {
            endpoint.starts_with("vpce-") && is_service(service) && is_region(region)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn registry(cloud: Cloud, host: &str) -> Option<Registry> {
        Registry::of(cloud, &url(&format!("https://{host}/")), &OwnHosts::default())
    }

    fn store(cloud: Cloud, host: &str) -> Option<Store> {
        Store::of(cloud, &url(&format!("https://{host}/")), &OwnHosts::default())
    }

    #[test]
    fn registries_are_known_by_their_names() {
        let ecr = |region: &str, suffix: &'static str, is_fips: bool| {
            Some(Registry::Ecr { region: Some(region.to_owned()), suffix, is_fips })
        };
        for (host, expected) in [
            ("111122223333.dkr.ecr.eu-west-1.amazonaws.com", ecr("eu-west-1", "amazonaws.com", false)),
            (
                "111122223333.dkr.ecr-fips.us-gov-east-1.amazonaws.com",
                ecr("us-gov-east-1", "amazonaws.com", true),
            ),
            (
                "111122223333.dkr.ecr.cn-north-1.amazonaws.com.cn",
                ecr("cn-north-1", "amazonaws.com.cn", false),
            ),
            ("111122223333.dkr-ecr.eu-west-1.on.aws", ecr("eu-west-1", "amazonaws.com", false)),
            ("public.ecr.aws", Some(Registry::EcrPublic)),
        ] {
            assert_eq!(registry(Cloud::Aws, host), expected, "{host}");
        }
        for bad in [
            "111122223333.dkr.ecr.eu-west-1.amazonaws.com.evil.example",
            "111122223333.dkr.ecr.evil.amazonaws.com",
            "111122223333.dkr.ecr.eu-west-1.elb.amazonaws.com",
            "evil.dkr.ecr.eu-west-1.amazonaws.com",
            "x.111122223333.dkr.ecr.eu-west-1.amazonaws.com",
            "111122223333.dkr.ecr.eu-west-1.amazonaws.com:8443",
            "evilpublic.ecr.aws",
            "mine.azurecr.io",
            "ghcr.io",
            "10.0.0.1",
        ] {
            assert_eq!(registry(Cloud::Aws, bad), None, "{bad}");
        }
        assert_eq!(registry(Cloud::Azure, "mine.azurecr.io"), Some(Registry::Acr { resource: ARM }));
        for bad in ["azurecr.io", "mine.azurecr.io.evil.example", "mineazurecr.io", ".azurecr.io", "gcr.io"] {
            assert_eq!(registry(Cloud::Azure, bad), None, "{bad}");
        }
        for good in ["gcr.io", "eu.gcr.io", "europe-docker.pkg.dev", "europe-west1-docker.pkg.dev"] {
            assert_eq!(registry(Cloud::Gcp, good), Some(Registry::Google), "{good}");
        }
        for bad in ["evilgcr.io", "docker.pkg.dev", "-x.pkg.dev", "a.b-docker.pkg.dev", "gcr.io.evil.example"]
        {
            assert_eq!(registry(Cloud::Gcp, bad), None, "{bad}");
        }
        let plain = url("http://111122223333.dkr.ecr.eu-west-1.amazonaws.com/");
        assert_eq!(Registry::of(Cloud::Aws, &plain, &OwnHosts::default()), None);
    }

    #[test]
    fn buses_are_known_by_their_names() {
        let bus = |cloud, text: &str| Bus::of(cloud, &url(text), &OwnHosts::default());
        assert_eq!(bus(Cloud::Gcp, "https://pubsub.googleapis.com/v1/x"), Some(Bus::PubSub));
        let hubs = |resource: &str| Some(Bus::EventHubs { resource: resource.to_owned() });
        assert_eq!(bus(Cloud::Azure, "https://space.servicebus.windows.net/h/messages"), hubs(EVENT_HUBS));
        assert_eq!(
            bus(Cloud::Azure, "https://space.servicebus.chinacloudapi.cn/h/messages"),
            hubs("https://space.servicebus.chinacloudapi.cn")
        );
        for bad in [
            "http://pubsub.googleapis.com/",
            "https://evilpubsub.googleapis.com/",
            "https://pubsub.googleapis.com.evil.example/",
            "https://pubsub.googleapis.com:8443/",
            "https://space.servicebus.windows.net/",
        ] {
            assert_eq!(bus(Cloud::Gcp, bad), None, "{bad}");
        }
        for bad in [
            "http://space.servicebus.windows.net/",
            "https://servicebus.windows.net/",
            "https://a.b.servicebus.windows.net/",
            "https://space.servicebus.windows.net.evil.example/",
            "https://evilservicebus.windows.net/",
        ] {
            assert_eq!(bus(Cloud::Azure, bad), None, "{bad}");
        }
        assert_eq!(bus(Cloud::Aws, "https://pubsub.googleapis.com/"), None);
        let own: OwnHosts = "gcp=bus.corp:9000".parse().unwrap();
        assert_eq!(Bus::of(Cloud::Gcp, &url("https://bus.corp:9000/v1"), &own), Some(Bus::PubSub));
        assert_eq!(Bus::of(Cloud::Azure, &url("https://bus.corp:9000/v1"), &own), None);
    }

    #[test]
    fn stores_are_known_by_their_names() {
        for good in [
            "s3.amazonaws.com",
            "s3.eu-west-1.amazonaws.com",
            "s3-eu-west-1.amazonaws.com",
            "mine.s3.eu-west-1.amazonaws.com",
            "s3-fips.dualstack.us-gov-west-1.amazonaws.com",
            "s3.cn-north-1.amazonaws.com.cn",
        ] {
            assert!(store(Cloud::Aws, good).is_some(), "{good}");
        }
        for bad in [
            // What Amazon's customers have names for.
            "s3evil.eu-west-1.elb.amazonaws.com",
            "s3-evil.amazonaws.com",
            "s3.eu-west-1.elb.amazonaws.com",
            "s3.evil.amazonaws.com",
            "ec2-1-2-3-4.compute-1.amazonaws.com",
            "s3.amazonaws.com.evil.example",
            "amazonaws.com",
            "storage.googleapis.com",
        ] {
            assert_eq!(store(Cloud::Aws, bad), None, "{bad}");
        }
        assert_eq!(store(Cloud::Gcp, "storage.googleapis.com"), Some(Store::Google));
        assert_eq!(store(Cloud::Gcp, "storage.europe-west3.rep.googleapis.com"), Some(Store::Google));
        for bad in ["googleapis.com", "evilstorage.googleapis.com", "storage.googleapis.com.evil.example"] {
            assert_eq!(store(Cloud::Gcp, bad), None, "{bad}");
        }
        let blob = |resource: &str| Some(Store::Blob { resource: resource.to_owned() });
        assert_eq!(store(Cloud::Azure, "mine.blob.core.windows.net"), blob(STORAGE));
        let china = "mine.blob.core.chinacloudapi.cn";
        assert_eq!(store(Cloud::Azure, china), blob(&format!("https://{china}")));
        for bad in
            ["blob.core.windows.net", "mine.web.core.windows.net", "mine.blob.core.windows.net.evil.example"]
        {
            assert_eq!(store(Cloud::Azure, bad), None, "{bad}");
        }
    }

    #[test]
    fn git_servers_and_sts_are_known_by_their_names() {
        let git = |cloud, text: &str| Git::of(cloud, &url(text), &OwnHosts::default());
        let region = Some("eu-west-1".to_owned());
        let found = git(Cloud::Aws, "https://git-codecommit.eu-west-1.amazonaws.com/v1/repos/x");
        assert_eq!(found, Some(Git::CodeCommit { region }));
        assert_eq!(git(Cloud::Azure, "https://dev.azure.com/org/_git/x"), Some(Git::DevOps));
        assert_eq!(git(Cloud::Azure, "https://org.visualstudio.com/_git/x"), Some(Git::DevOps));
        for bad in
            ["http://dev.azure.com/x", "https://dev.azure.com.evil.example/x", "https://evildev.azure.com/x"]
        {
            assert_eq!(git(Cloud::Azure, bad), None, "{bad}");
        }
        for good in [
            "https://sts.amazonaws.com",
            "https://sts.eu-west-1.amazonaws.com",
            "https://vpce-1-a.sts.us-east-1.vpce.amazonaws.com",
        ] {
            assert!(is_sts(&url(good)), "{good}");
        }
        for bad in [
            "http://sts.amazonaws.com",
            "https://sts.s3.amazonaws.com",
            "https://evil.sts.amazonaws.com",
            "https://sts.evil.example",
            "https://sts.amazonaws.com.evil.example",
            "https://sts.eu-west-1.amazonaws.com:8443",
        ] {
            assert!(!is_sts(&url(bad)), "{bad}");
        }
    }

    #[test]
    fn the_operator_names_others() {
        let mut own: OwnHosts = "aws=s3.corp.example:9000".parse().unwrap();
        own.add("gcp=127.0.0.1:1234".parse().unwrap());
        let store = |cloud, text: &str| Store::of(cloud, &url(text), &own).is_some();
        assert!(
            store(Cloud::Aws, "https://s3.corp.example:9000")
                && store(Cloud::Aws, "http://S3.corp.example:9000")
        );
        assert!(
            !store(Cloud::Gcp, "https://s3.corp.example:9000")
                && !store(Cloud::Aws, "https://s3.corp.example")
        );
        assert!(store(Cloud::Gcp, "http://127.0.0.1:1234") && !store(Cloud::Gcp, "http://127.0.0.1:1235"));
        for bad in ["", "x", "s3.example", "ibm=x", "aws=", "aws=u@x", "aws=x/y", "aws=x?y"] {
            assert_eq!(bad.parse::<OwnHosts>(), Err(BadHost), "{bad}");
        }
    }
}
