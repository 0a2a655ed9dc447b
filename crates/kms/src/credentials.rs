//! What unlocks key services: of a decryption Secret, of the operator, of whoever types.

pub use roadstead_cloud::{
    AwsCredential, AzureCredential, AzureProof, GcpCredential, MakesTokens, TokenSource,
};

use crate::address::Address;
use roadstead_outbound::Secret;

/// Credentials for key services, of each kind at most one. Debugging shows which kinds there are.
#[derive(Clone, Default)]
pub struct Credentials {
    /// For AWS KMS.
    pub aws: Option<AwsCredential>,
    /// For Azure Key Vault.
    pub azure: Option<AzureCredential>,
    /// For Google's KMS.
    pub gcp: Option<GcpCredential>,
    /// For the transit engine of HashiCorp Vault or OpenBao.
    pub vault: Option<VaultCredential>,
    /// For Huawei's KMS.
    pub huawei: Option<HuaweiCredential>,
}

impl Credentials {
    /// These, and for kinds that they lack the others.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            aws: self.aws.or(others.aws),
            azure: self.azure.or(others.azure),
            gcp: self.gcp.or(others.gcp),
            vault: self.vault.or(others.vault),
            huawei: self.huawei.or(others.huawei),
        }
    }

    /// The kinds that there are, by the names that their lists have in files.
    #[must_use]
    pub fn kinds(&self) -> Vec<&'static str> {
        let kinds = [
            ("kms", self.aws.is_some()),
            ("azure_kv", self.azure.is_some()),
            ("gcp_kms", self.gcp.is_some()),
            ("hc_vault", self.vault.is_some()),
            ("hckms", self.huawei.is_some()),
        ];
        kinds.into_iter().filter(|(_, held)| *held).map(|(kind, _)| kind).collect()
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.kinds().join(", "))
    }
}

/// For the transit engine of HashiCorp Vault or OpenBao.
#[derive(Clone)]
pub struct VaultCredential {
    /// How its holder shows who it is.
    pub proof: VaultProof,
    /// Where its holder says that it may go.
    pub addresses: Vec<Address>,
    /// The namespace, of servers that have them.
    pub namespace: Option<String>,
}

/// How the holder of a Vault's credentials shows who it is.
#[derive(Clone)]
pub enum VaultProof {
    /// By a token.
    Token(Secret),
    /// By a token of an issuer that the server trusts, a cluster for one, in exchange for one of its own.
    Login {
        /// Where: `auth/kubernetes/login`.
        path: String,
        /// As whom.
        role: String,
        /// The issuer's token. It should be for this server and no other.
        jwt: TokenSource,
    },
}

/// For Huawei's KMS.
#[derive(Clone)]
pub struct HuaweiCredential {
    /// The access key.
    pub access_key: String,
    /// Its secret.
    pub secret_key: Secret,
    /// The project.
    pub project_id: String,
    /// Where it is a temporary one.
    pub security_token: Option<Secret>,
}
