//! Who somebody is at a cloud: by keys of their own, by a token of another issuer, or as the machine that they are on.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::address::Address;
use roadstead_outbound::Secret;

/// Where a token is that someone else renews.
#[derive(Clone)]
pub enum TokenSource {
    /// In a file, read each time that it is needed.
    File(PathBuf),
    /// Here.
    Text(Secret),
    /// Made when it is needed.
    Made(Arc<dyn MakesTokens>),
}

/// Who makes tokens when they are needed, for an audience each.
pub trait MakesTokens: Send + Sync {
    /// A token for this audience; or why there is none, in words that hold nothing secret.
    fn token<'t>(&'t self, audience: &'t str) -> BoxFuture<'t, Result<Secret, String>>;
}

/// For AWS.
#[derive(Clone)]
pub enum AwsCredential {
    /// An access key.
    Static {
        /// Its id.
        access_key_id: String,
        /// Its secret.
        secret_access_key: Secret,
        /// Where it is a temporary one.
        session_token: Option<Secret>,
    },
    /// A token of a cluster or of another issuer that a role trusts.
    WebIdentity {
        /// The role.
        role_arn: String,
        /// The token.
        token: TokenSource,
        /// What the session is called.
        session_name: String,
    },
    /// What ECS, EKS and their like hand out to containers, over HTTP.
    Container {
        /// Where.
        url: Address,
        /// What to say there.
        authorization: Option<TokenSource>,
    },
    /// The role of the machine.
    Instance {
        /// Where it is handed out, if not at `http://169.254.169.254`.
        endpoint: Option<Address>,
    },
}

/// For Azure.
#[derive(Clone)]
pub enum AzureCredential {
    /// An application of a tenant.
    Application {
        /// The tenant.
        tenant: String,
        /// The application.
        client_id: String,
        /// How it shows that it is that.
        proof: AzureProof,
        /// Who gives out tokens, if not `https://login.microsoftonline.com`.
        authority: Option<Address>,
    },
    /// The identity of the machine, or the one of these that has this client id.
    Managed {
        /// Which.
        client_id: Option<String>,
        /// Where it is handed out and what to say there, if not by the machine's metadata service.
        endpoint: Option<(Address, Secret)>,
    },
    /// An access token.
    Token(Secret),
}

/// How an application shows that it is that.
#[derive(Clone)]
pub enum AzureProof {
    /// By a password.
    Secret(Secret),
    /// By a certificate and its private key, both in PEM.
    Certificate {
        /// The certificate, with those that it was issued by, and the key.
        pem: Secret,
        /// Whether the issuers are sent too.
        send_chain: bool,
    },
    /// By a token of an issuer that it trusts.
    Federated(TokenSource),
}

/// For Google.
#[derive(Clone)]
pub enum GcpCredential {
    /// A service account's key, in Google's JSON.
    ServiceAccount {
        /// Its address.
        email: String,
        /// The key's id.
        key_id: String,
        /// The key, in PEM.
        private_key: Secret,
        /// Who gives out tokens.
        token_uri: Address,
    },
    /// A person's refresh token.
    Refresh {
        /// The program that got it.
        client_id: String,
        /// Its secret.
        client_secret: Secret,
        /// The token.
        refresh_token: Secret,
        /// Who gives out tokens.
        token_uri: Address,
    },
    /// A token of an issuer that a workload identity pool trusts, in exchange for one of Google's.
    Federated {
        /// The pool's provider: `//iam.googleapis.com/projects/N/locations/global/workloadIdentityPools/P/providers/X`.
        audience: String,
        /// The issuer's token.
        token: TokenSource,
        /// The service account to act as, if not as the pool's own.
        service_account: Option<String>,
    },
    /// An access token.
    Token(Secret),
    /// The service account of the machine.
    Instance {
        /// Where it is handed out, if not at `http://metadata.google.internal`.
        endpoint: Option<Address>,
    },
}
