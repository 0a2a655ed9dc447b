//! Right requests, right tokens, in the right places, and no more of them than it takes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use roadstead_cloud::{
    Address, AwsCredential, AzureCredential, AzureProof, CloudCredential, CloudIdentity, GcpCredential,
    GitLogin, Kept, MakesTokens, Network, OwnHosts, ServiceError, StoreLogin, TokenServices, TokenSource,
};
use roadstead_outbound::{Policy, Purpose, Secret};
use tokio::time::Instant;
use url::Url;

use crate::server::{Answer, Request, Server};

pub(crate) const TOKEN: &str = "s.c4n4ry-t0k3n";
const ROLE: &str = "arn:aws:iam::111122223333:role/reader";

/// Makes tokens, and remembers for whom.
struct Maker(Arc<Mutex<Vec<String>>>);

impl MakesTokens for Maker {
    fn token<'t>(&'t self, audience: &'t str) -> futures::future::BoxFuture<'t, Result<Secret, String>> {
        self.0.lock().unwrap().push(audience.to_owned());
        Box::pin(async { Ok(Secret::new(TOKEN.to_owned())) })
    }
}

/// A stand-in for all three clouds, and an identity at each.
pub(crate) struct Stand {
    pub(crate) server: Server,
    services: TokenServices,
    own: OwnHosts,
    network: Arc<Network>,
    kept: Kept,
    audiences: Arc<Mutex<Vec<String>>>,
}

impl Stand {
    pub(crate) fn new(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::by("cloud=127.0.0.1", answer)
    }

    pub(crate) fn by(entry: &str, answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let server = Server::start(answer);
        let at = || Some(Address::parse(&server.url()).unwrap());
        let services = TokenServices {
            aws_sts: at(),
            aws_ecr: at(),
            aws_region: None,
            azure_authority: at(),
            gcp_sts: at(),
            gcp_iam: at(),
        };
        let mut own = OwnHosts::default();
        for cloud in ["aws", "azure", "gcp"] {
            own.add(server.url().replace("http://", &format!("{cloud}=")).parse().unwrap());
        }
        let policy = Arc::new(Policy::new(vec![entry.parse().unwrap()]));
        let network = Arc::new(Network::new(Purpose::Cloud, &policy, None));
        Self { server, services, own, network, kept: Kept::default(), audiences: Arc::default() }
    }

    pub(crate) fn identity(&self, cloud: &str, holder: &str) -> CloudIdentity {
        let token = TokenSource::Made(Arc::new(Maker(Arc::clone(&self.audiences))));
        let credential = match cloud {
            "aws" => CloudCredential::Aws(AwsCredential::WebIdentity {
                role_arn: ROLE.into(),
                token,
                session_name: "keys.apps.roadstead".into(),
            }),
            "azure" => CloudCredential::Azure(AzureCredential::Application {
                tenant: "tenant".into(),
                client_id: "client".into(),
                proof: AzureProof::Federated(token),
                authority: None,
            }),
            _ => CloudCredential::Gcp(GcpCredential::Federated {
                audience: "//iam.googleapis.com/pool".into(),
                token,
                service_account: Some("a@p.example".into()),
            }),
        };
        CloudIdentity::new(credential, holder, &self.kept, (&self.services, &self.own), &self.network)
    }

    pub(crate) fn url(&self) -> Url {
        Url::parse(&self.server.url()).unwrap()
    }

    fn audiences(&self) -> Vec<String> {
        std::mem::take(&mut *self.audiences.lock().unwrap())
    }
}

pub(crate) fn until() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// What they all answer where they are asked as they have it.
pub(crate) fn clouds(request: &Request) -> Answer {
    let path = request.line.split(' ').nth(1).unwrap_or_default();
    let authorization = request.header("authorization").unwrap_or_default();
    let given = r#"{"access_token":"access","accessToken":"acting","expires_in":3600}"#;
    if request.body.starts_with("Action=AssumeRoleWithWebIdentity") {
        let fine =
            ["WebIdentityToken=s.c4n4ry-t0k3n", "role%2Freader", "RoleSessionName=keys.apps.roadstead"];
        assert!(fine.iter().all(|part| request.body.contains(part)), "{}", request.body);
        return Answer::json(
            200,
            "<R><Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>session</SessionToken>\
             <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>",
        );
    }
    match (path, request.header("x-amz-target")) {
        ("/", Some(target)) => {
            assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=ASIA/"), "{authorization}");
            assert_eq!(
                (request.header("x-amz-security-token"), request.body.as_str()),
                (Some("session"), "{}")
            );
            assert_eq!(target, "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken");
            assert!(authorization.contains("/us-east-1/ecr/aws4_request"), "{authorization}");
            let token = STANDARD.encode("AWS:password");
            Answer::json(
                200,
                &format!(
                    r#"{{"authorizationData":[{{"authorizationToken":"{token}","expiresAt":4102444800.5}}]}}"#
                ),
            )
        }
        ("/tenant/oauth2/v2.0/token", _) => {
            assert!(request.body.contains("client_assertion=s.c4n4ry-t0k3n"), "{}", request.body);
            Answer::json(200, &given.replace("access\"", &format!("access {}\"", scope(&request.body))))
        }
        ("/oauth2/exchange", _) => {
            let arm = "access_token=access+https%3A%2F%2Fmanagement.azure.com%2F.default";
            assert!(
                request.body.contains(arm) && request.body.contains("service=127.0.0.1%3A"),
                "{}",
                request.body
            );
            Answer::json(200, r#"{"refresh_token":"refresh"}"#)
        }
        ("/v1/token", _) => {
            assert!(request.body.contains("subject_token=s.c4n4ry-t0k3n"), "{}", request.body);
            Answer::json(200, given)
        }
        ("/v1/projects/-/serviceAccounts/a@p.example:generateAccessToken", _) => {
            assert_eq!(authorization, "Bearer access");
            Answer::json(200, given)
        }
        _ => Answer::json(404, "{}"),
    }
}

fn scope(body: &str) -> String {
    let pairs = url::form_urlencoded::parse(body.as_bytes());
    pairs
        .into_iter()
        .find(|(name, _)| name == "scope")
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

#[tokio::test]
async fn registries_get_passwords_of_their_clouds_which_are_kept() {
    let stand = Stand::new(clouds);
    for (cloud, audience, username, password, requests) in [
        ("aws", "sts.amazonaws.com", "AWS", "password", 2),
        ("azure", "api://AzureADTokenExchange", "00000000-0000-0000-0000-000000000000", "refresh", 2),
        ("gcp", "//iam.googleapis.com/pool", "oauth2accesstoken", "acting", 2),
    ] {
        let before = stand.server.requests();
        for _ in 0..3 {
            // Of the same holder, however often it is made.
            let login = stand.identity(cloud, "uid@1").registry(&stand.url(), until()).await.unwrap();
            assert_eq!((login.username.as_str(), login.password.expose()), (username, password), "{cloud}");
        }
        assert_eq!(stand.audiences(), [audience], "{cloud}");
        assert_eq!(stand.server.requests() - before, requests, "{cloud}: what was given out is kept");
        // What was refused is asked for again.
        stand.identity(cloud, "uid@1").forget();
        stand.identity(cloud, "uid@1").registry(&stand.url(), until()).await.unwrap();
        assert_eq!(stand.server.requests() - before, 2 * requests, "{cloud}");
        // Another holder's is another's.
        stand.identity(cloud, "uid@2").registry(&stand.url(), until()).await.unwrap();
        assert_eq!(stand.server.requests() - before, 3 * requests, "{cloud}");
        assert_eq!(stand.audiences(), [audience, audience], "{cloud}");
    }
}

#[tokio::test]
async fn stores_and_git_servers_get_sessions_and_tokens() {
    let stand = Stand::new(clouds);
    let (url, holder) = (stand.url(), "uid@1");
    let store =
        async |cloud: &str| stand.identity(cloud, holder).store(&url, None, None, until()).await.unwrap();
    let StoreLogin::Keys(keys) = store("aws").await else { panic!() };
    assert_eq!((keys.id.as_str(), keys.session.as_ref().map(Secret::expose)), ("ASIA", Some("session")));
    let StoreLogin::Bearer(token) = store("azure").await else { panic!() };
    assert_eq!(token.expose(), "access https://storage.azure.com/.default");
    let StoreLogin::Bearer(token) = store("gcp").await else { panic!() };
    assert_eq!(token.expose(), "acting");
    let GitLogin::Bearer(token) = stand.identity("azure", holder).git(&url, until()).await.unwrap() else {
        panic!()
    };
    assert_eq!(token.expose(), "access 499b84ac-1321-427f-aa17-267ca6975798/.default");
    let GitLogin::Basic(login) = stand.identity("aws", holder).git(&url, until()).await.unwrap() else {
        panic!()
    };
    assert_eq!(login.username, "ASIA%session");
}

/// Whoever writes a source chooses its address, and would see what is sent there.
#[tokio::test]
async fn hosts_that_are_not_of_the_cloud_get_nothing_and_nothing_is_exchanged() {
    let stand = Stand::new(clouds);
    for cloud in ["aws", "azure", "gcp"] {
        let identity = stand.identity(cloud, "uid@1");
        for bad in ["https://registry.evil.example/", "https://127.0.0.1:1/", "https://10.0.0.1/"] {
            let url = Url::parse(bad).unwrap();
            let errors = [
                identity.registry(&url, until()).await.unwrap_err(),
                identity.store(&url, None, None, until()).await.unwrap_err(),
                identity.git(&url, until()).await.unwrap_err(),
            ];
            for error in errors {
                assert!(matches!(error, ServiceError::NotOfCloud { .. }), "{cloud} {bad}: {error}");
                let flag = format!("--allow-cloud-host {cloud}=");
                assert!(error.to_string().contains(&flag), "{error}");
            }
        }
    }
    let aws = stand.identity("aws", "uid@1");
    for bad in ["https://sts.evil.example", "http://sts.amazonaws.com", "https://sts.s3.amazonaws.com", "x"] {
        let error = aws.store(&stand.url(), None, Some(bad), until()).await.unwrap_err();
        assert!(matches!(error, ServiceError::NotOfCloud { .. }), "{bad}: {error}");
    }
    assert_eq!((stand.server.requests(), stand.audiences().len()), (0, 0), "a token was made, or shown");
    assert!(aws.store(&stand.url(), None, Some(&stand.server.url()), until()).await.is_ok());
}

#[tokio::test]
async fn what_is_near_its_end_is_not_kept() {
    let stand = Stand::new(|request| match clouds(request) {
        answer if request.body.starts_with("Action=") => answer,
        _ => {
            let token = STANDARD.encode("AWS:password");
            let expires = jiff::Timestamp::now().as_second() + 30;
            let data = format!(r#"{{"authorizationToken":"{token}","expiresAt":{expires}}}"#);
            Answer::json(200, &format!(r#"{{"authorizationData":{data}}}"#))
        }
    });
    for count in 1..=3 {
        stand.identity("aws", "uid@1").registry(&stand.url(), until()).await.unwrap();
        assert_eq!(stand.server.requests(), 1 + count, "the session is kept, and the password is not");
    }
}
