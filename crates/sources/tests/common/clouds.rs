//! A stand-in for what gives out credentials of clouds, and identities that ask it.

use std::net::SocketAddr;
use std::sync::Arc;

use roadstead_cloud::{
    Address, AwsCredential, CloudCredential, CloudIdentity, GcpCredential, Kept, Network, OwnHosts,
    TokenServices, TokenSource,
};
use roadstead_outbound::{Policy, Purpose, Secret};

use crate::token_server::{Answer, Server};

pub(crate) const OUTSIDE: &str = "outside-c4n4ry";

pub(crate) struct TokenStand {
    pub(crate) server: Server,
    kept: Kept,
}

impl TokenStand {
    /// Gives out these access tokens of Google's, one after the other and the last for ever; and sessions of AWS.
    pub(crate) fn new(tokens: &'static [&'static str]) -> Self {
        let server = Server::start(move |request| {
            if request.body.contains(&format!("WebIdentityToken={OUTSIDE}")) {
                return Answer::json(
                    200,
                    "<C><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>session</SessionToken>\
                     <Expiration>2099-01-01T00:00:00Z</Expiration></C>",
                );
            }
            if !request.body.contains(&format!("subject_token={OUTSIDE}")) {
                return Answer::json(400, "{}");
            }
            let token = tokens.get(request.number).or(tokens.last()).unwrap();
            Answer::json(200, &format!(r#"{{"access_token":"{token}","expires_in":3600}}"#))
        });
        Self { server, kept: Kept::default() }
    }

    /// An identity whose cloud has these servers.
    pub(crate) fn identity(&self, cloud: &str, servers: &[SocketAddr]) -> CloudIdentity {
        let at = || Some(Address::parse(&self.server.url()).unwrap());
        let services = TokenServices { aws_sts: at(), gcp_sts: at(), ..TokenServices::default() };
        let mut own = OwnHosts::default();
        for server in servers {
            own.add(format!("{cloud}={server}").parse().unwrap());
        }
        let token = TokenSource::Text(Secret::new(OUTSIDE.to_owned()));
        let credential = match cloud {
            "aws" => CloudCredential::Aws(AwsCredential::WebIdentity {
                role_arn: "arn:aws:iam::111122223333:role/reader".into(),
                token,
                session_name: "x".into(),
            }),
            _ => CloudCredential::Gcp(GcpCredential::Federated {
                audience: "//iam.googleapis.com/x".into(),
                token,
                service_account: None,
            }),
        };
        let policy = Arc::new(Policy::new(vec!["cloud=127.0.0.1".parse().unwrap()]));
        let network = Arc::new(Network::new(Purpose::Cloud, &policy, None));
        CloudIdentity::new(credential, "uid@1", &self.kept, (&services, &own), &network)
    }
}
