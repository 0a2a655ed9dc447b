//! What is published arrives at the real nats-server, by each login that it has; and servers that are none, or that hang, flood or go away.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod hostile;
mod real;

use std::sync::Arc;
use std::time::Duration;

use roadstead_nats::{Login, Message, PublishError, Publisher, Servers, Subject};
use roadstead_outbound::{ClientIdentity, Guard, Policy, Purpose, Tls};

/// Publishes to what listens on this machine.
struct To<'a> {
    address: &'a str,
    login: Login,
    ca: Option<&'a [u8]>,
    identity: Option<&'a ClientIdentity>,
    may_be_clear: bool,
    patience: Duration,
}

impl<'a> To<'a> {
    fn new(address: &'a str) -> Self {
        let patience = Duration::from_secs(5);
        Self { address, login: Login::Nobody, ca: None, identity: None, may_be_clear: false, patience }
    }

    fn publisher(&self, subject: &str) -> Publisher {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let policy = Policy::new(vec!["notify=127.0.0.1/32".parse().unwrap()]);
        Publisher {
            guard: Guard::new(Arc::new(policy), Purpose::Notify),
            tls: Tls::new(self.ca, self.identity).unwrap(),
            wants_tls: self.ca.is_some() || self.identity.is_some(),
            may_be_clear: self.may_be_clear,
            servers: Servers::parse(self.address).unwrap(),
            login: self.login.clone(),
            subject: Subject::parse(subject).unwrap(),
            patience: self.patience,
        }
    }

    async fn publish(&self, subject: &str, body: &[u8]) -> Result<(), PublishError> {
        let headers = [("Nats-Msg-Id", "delivery-7".to_owned())];
        let publisher = self.publisher(subject);
        let published = publisher.publish(Message { headers: &headers, body });
        // Whoever publishes bounds the time.
        tokio::time::timeout(self.patience * 2, published).await.unwrap_or(Err(PublishError::Slow))
    }
}
