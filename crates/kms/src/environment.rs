//! Credentials that a person's environment names, as the `sops` program takes them.

use std::io::Read as _;

use serde::Deserialize;

use crate::address::{Address, Allowed, TokenServices};
use crate::credentials::{
    AwsCredential, AzureCredential, AzureProof, Credentials, GcpCredential, HuaweiCredential, TokenSource,
    VaultCredential, VaultProof,
};
use crate::entries::certificate;
use roadstead_outbound::Secret;

/// Of a file that a variable names.
const FILE_BYTES: u64 = 1 << 20;

/// A variable that cannot be used. Its value is not shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {name} cannot be used: {reason}")]
pub struct BadVariable {
    name: &'static str,
    reason: String,
}

/// An environment.
pub struct Environment<'e> {
    get: &'e dyn Fn(&str) -> Option<String>,
}

impl<'e> Environment<'e> {
    /// Variables by their names.
    #[must_use]
    pub fn new(get: &'e dyn Fn(&str) -> Option<String>) -> Self {
        Self { get }
    }

    fn text(&self, name: &str) -> Option<String> {
        (self.get)(name).filter(|text| !text.is_empty())
    }

    fn secret(&self, name: &str) -> Option<Secret> {
        self.text(name).map(Secret::new)
    }

    fn address(&self, name: &'static str) -> Result<Option<Address>, BadVariable> {
        let address = self.text(name).map(|text| Address::parse(&text)).transpose();
        address.map_err(|error| BadVariable { name, reason: error.to_string() })
    }

    /// The addresses that it names: `VAULT_ADDR`, `AWS_ENDPOINT_URL_KMS`, `AWS_ENDPOINT_URL_STS`, `AWS_ENDPOINT_URL`,
    /// `SOPS_GCP_KMS_ENDPOINT`, and Huawei's file of regions.
    ///
    /// # Errors
    /// One of them is not an address.
    pub fn allowed(&self) -> Result<Allowed, BadVariable> {
        let mut allowed = Allowed::default();
        if let Some(vault) = self.address("VAULT_ADDR")? {
            allowed.add(vault);
        }
        let aws = self.address("AWS_ENDPOINT_URL")?;
        allowed.aws_kms = self.address("AWS_ENDPOINT_URL_KMS")?.or(aws);
        allowed.token_services = self.token_services()?;
        allowed.gcp_kms = self.address("SOPS_GCP_KMS_ENDPOINT")?;
        allowed.huawei_kms = self.regions()?;
        Ok(allowed)
    }

    /// Where it says that credentials are exchanged for others: `AWS_ENDPOINT_URL_STS`, `AWS_ENDPOINT_URL_ECR`, `AWS_ENDPOINT_URL`,
    /// `AWS_REGION`, `AZURE_AUTHORITY_HOST`, and gcloud's `CLOUDSDK_API_ENDPOINT_OVERRIDES_STS` and `…_IAMCREDENTIALS`.
    ///
    /// # Errors
    /// One of them is not an address.
    pub fn token_services(&self) -> Result<TokenServices, BadVariable> {
        let aws = self.address("AWS_ENDPOINT_URL")?;
        Ok(TokenServices {
            aws_sts: self.address("AWS_ENDPOINT_URL_STS")?.or_else(|| aws.clone()),
            aws_ecr: self.address("AWS_ENDPOINT_URL_ECR")?.or(aws),
            aws_region: self.text("AWS_REGION").or_else(|| self.text("AWS_DEFAULT_REGION")),
            azure_authority: self.address("AZURE_AUTHORITY_HOST")?,
            gcp_sts: self.address("CLOUDSDK_API_ENDPOINT_OVERRIDES_STS")?,
            gcp_iam: self.address("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS")?,
        })
    }

    /// The credentials that it names. With `machine`, those that this machine is given count too, for kinds that have no others.
    ///
    /// # Errors
    /// A variable, or the file that it names, is not what it should be.
    pub fn credentials(&self, machine: bool) -> Result<Credentials, BadVariable> {
        Ok(Credentials {
            aws: if machine { self.aws_or_machine()? } else { self.aws()? },
            azure: self.azure(machine)?,
            gcp: match self.gcp()? {
                None if machine => Some(GcpCredential::Instance { endpoint: self.gcp_metadata()? }),
                named => named,
            },
            vault: self.vault(),
            huawei: self.huawei(),
        })
    }

    /// The credentials for services that keep a program's own keys: for AWS those that it names or this machine is given, and Vault's token.
    ///
    /// # Errors
    /// A variable is not what it should be.
    pub fn wrapping(&self) -> Result<Credentials, BadVariable> {
        Ok(Credentials { aws: self.aws_or_machine()?, vault: self.vault(), ..Credentials::default() })
    }

    /// The addresses that it names for these services and for what hands out credentials for them.
    ///
    /// # Errors
    /// One of them is not an address.
    pub fn named(&self) -> Result<Vec<Address>, BadVariable> {
        const NAMES: [&str; 6] = [
            "VAULT_ADDR",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT_URL_KMS",
            "AWS_ENDPOINT_URL_STS",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        ];
        NAMES.into_iter().filter_map(|name| self.address(name).transpose()).collect()
    }

    /// The authorities (PEM) that it names for AWS and for Vault: `AWS_CA_BUNDLE` and `VAULT_CACERT`.
    ///
    /// # Errors
    /// A file that it names cannot be read.
    pub fn authorities(&self) -> Result<[Option<Vec<u8>>; 2], BadVariable> {
        let read = |name: &'static str| {
            let read = |path: String| file(name, &path).map(|text| text.expose().as_bytes().to_vec());
            self.text(name).map(read).transpose()
        };
        Ok([read("AWS_CA_BUNDLE")?, read("VAULT_CACERT")?])
    }

    fn aws_or_machine(&self) -> Result<Option<AwsCredential>, BadVariable> {
        match self.aws()? {
            None => Ok(Some(AwsCredential::Instance {
                endpoint: self.address("AWS_EC2_METADATA_SERVICE_ENDPOINT")?,
            })),
            named => Ok(named),
        }
    }

    fn vault(&self) -> Option<VaultCredential> {
        self.secret("VAULT_TOKEN").map(|token| VaultCredential {
            proof: VaultProof::Token(token),
            addresses: Vec::new(),
            namespace: self.vault_namespace(),
        })
    }

    /// The namespace of a Vault that has them.
    #[must_use]
    pub fn vault_namespace(&self) -> Option<String> {
        self.text("VAULT_NAMESPACE")
    }

    fn aws(&self) -> Result<Option<AwsCredential>, BadVariable> {
        if let (Some(access_key_id), Some(secret_access_key)) =
            (self.text("AWS_ACCESS_KEY_ID"), self.secret("AWS_SECRET_ACCESS_KEY"))
        {
            let session_token = self.secret("AWS_SESSION_TOKEN");
            return Ok(Some(AwsCredential::Static { access_key_id, secret_access_key, session_token }));
        }
        if let (Some(file), Some(role_arn)) =
            (self.text("AWS_WEB_IDENTITY_TOKEN_FILE"), self.text("AWS_ROLE_ARN"))
        {
            let session_name = self.text("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "roadstead".to_owned());
            let token = TokenSource::File(file.into());
            return Ok(Some(AwsCredential::WebIdentity { role_arn, token, session_name }));
        }
        let relative = self.text("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").map(|path| {
            let name = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
            let path = if path.starts_with('/') { path } else { format!("/{path}") };
            Address::parse(&format!("http://169.254.170.2{path}"))
                .map_err(|_| BadVariable { name, reason: "it is not a path".to_owned() })
        });
        let url = match relative.transpose()? {
            Some(url) => Some(url),
            None => self.address("AWS_CONTAINER_CREDENTIALS_FULL_URI")?,
        };
        let authorization = self
            .text("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
            .map(|file| TokenSource::File(file.into()))
            .or_else(|| self.secret("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(TokenSource::Text));
        Ok(url.map(|url| AwsCredential::Container { url, authorization }))
    }

    fn azure(&self, machine: bool) -> Result<Option<AzureCredential>, BadVariable> {
        let client_id = self.text("AZURE_CLIENT_ID");
        if let (Some(tenant), Some(client_id)) = (self.text("AZURE_TENANT_ID"), &client_id) {
            let proof = match self.secret("AZURE_CLIENT_SECRET") {
                Some(secret) => Some(AzureProof::Secret(secret)),
                None => self.certificate()?,
            };
            let federated =
                || self.text("AZURE_FEDERATED_TOKEN_FILE").map(|file| TokenSource::File(file.into()));
            if let Some(proof) = proof.or_else(|| federated().map(AzureProof::Federated)) {
                let (client_id, authority) = (client_id.clone(), self.address("AZURE_AUTHORITY_HOST")?);
                return Ok(Some(AzureCredential::Application { tenant, client_id, proof, authority }));
            }
        }
        let endpoint = self.address("IDENTITY_ENDPOINT")?.zip(self.secret("IDENTITY_HEADER"));
        let managed = endpoint.is_some() || machine;
        Ok(managed.then_some(AzureCredential::Managed { client_id, endpoint }))
    }

    fn certificate(&self) -> Result<Option<AzureProof>, BadVariable> {
        let name = "AZURE_CLIENT_CERTIFICATE_PATH";
        let Some(path) = self.text(name) else { return Ok(None) };
        let bad = |reason: String| BadVariable { name, reason };
        if self.text("AZURE_CLIENT_CERTIFICATE_PASSWORD").is_some() {
            return Err(bad(
                "a certificate with a password is not supported: give PEM without one".to_owned()
            ));
        }
        let chain = self.text("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN");
        let send_chain = chain.is_some_and(|text| text == "1" || text.eq_ignore_ascii_case("true"));
        certificate(file(name, &path)?, send_chain).map(Some).map_err(bad)
    }

    fn gcp(&self) -> Result<Option<GcpCredential>, BadVariable> {
        let read = |name: &'static str, text: &str| {
            GcpCredential::parse(text).map(Some).map_err(|reason| BadVariable { name, reason })
        };
        if let Some(given) = self.secret("GOOGLE_CREDENTIALS") {
            // The JSON itself, or a file.
            let name = "GOOGLE_CREDENTIALS";
            if given.expose().trim_start().starts_with('{') {
                return read(name, given.expose());
            }
            return read(name, file(name, given.expose())?.expose());
        }
        if let Some(token) = self.secret("GOOGLE_OAUTH_ACCESS_TOKEN") {
            return Ok(Some(GcpCredential::Token(token)));
        }
        let name = "GOOGLE_APPLICATION_CREDENTIALS";
        match self.text(name) {
            Some(path) => read(name, file(name, &path)?.expose()),
            None => Ok(None),
        }
    }

    /// A host, which stands there without the rest of an address.
    fn gcp_metadata(&self) -> Result<Option<Address>, BadVariable> {
        let name = "GCE_METADATA_HOST";
        let address = self.text(name).map(|host| Address::parse(&format!("http://{host}"))).transpose();
        address.map_err(|_| BadVariable { name, reason: "it is not HOST[:PORT]".to_owned() })
    }

    fn huawei(&self) -> Option<HuaweiCredential> {
        Some(HuaweiCredential {
            access_key: self.text("HUAWEICLOUD_SDK_AK")?,
            secret_key: self.secret("HUAWEICLOUD_SDK_SK")?,
            project_id: self.text("HUAWEICLOUD_SDK_PROJECT_ID").unwrap_or_default(),
            security_token: self.secret("HUAWEICLOUD_SDK_SECURITY_TOKEN"),
        })
    }

    /// Where Huawei's KMS is, by region.
    fn regions(&self) -> Result<Vec<(String, Address)>, BadVariable> {
        #[derive(Deserialize)]
        struct Regions {
            #[serde(rename = "KMS", default)]
            kms: Vec<Region>,
        }
        #[derive(Deserialize)]
        struct Region {
            id: String,
            endpoint: String,
        }
        let name = "HUAWEICLOUD_SDK_REGIONS_FILE";
        let Some(path) = self.text(name) else { return Ok(Vec::new()) };
        let bad = |reason: &str| BadVariable { name, reason: reason.to_owned() };
        let regions: Regions = serde_saphyr::from_str(file(name, &path)?.expose())
            .map_err(|_| bad("the file is not a list of regions for services"))?;
        let address = |region: Region| {
            let address = Address::parse(&region.endpoint).map_err(|error| bad(&error.to_string()))?;
            Ok((region.id, address))
        };
        regions.kms.into_iter().map(address).collect()
    }
}

fn file(name: &'static str, path: &str) -> Result<Secret, BadVariable> {
    let unreadable =
        |why: &dyn std::fmt::Display| BadVariable { name, reason: format!("cannot read {path:?}: {why}") };
    let opened = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    let mut text = String::new();
    opened.take(FILE_BYTES).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn with<T>(variables: &[(&str, &str)], f: impl FnOnce(&Environment<'_>) -> T) -> T {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        f(&Environment::new(&|name| variables.get(name).map(|value| (*value).to_owned())))
    }

    #[test]
    fn nothing_is_held_where_nothing_is_named() {
        with(&[], |environment| {
            assert_eq!(environment.credentials(false).unwrap().kinds(), [""; 0]);
            assert_eq!(environment.credentials(true).unwrap().kinds(), ["kms", "azure_kv", "gcp_kms"]);
        });
        with(&[("VAULT_TOKEN", ""), ("AWS_ACCESS_KEY_ID", "x")], |environment| {
            assert_eq!(environment.credentials(false).unwrap().kinds(), [""; 0]);
        });
    }

    #[test]
    fn the_variables_of_sops() {
        let variables = [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/x"),
            ("AZURE_TENANT_ID", "t"),
            ("AZURE_CLIENT_ID", "c"),
            ("AZURE_FEDERATED_TOKEN_FILE", "/token"),
            ("GOOGLE_OAUTH_ACCESS_TOKEN", "x"),
            ("VAULT_TOKEN", "x"),
            ("HUAWEICLOUD_SDK_AK", "a"),
            ("HUAWEICLOUD_SDK_SK", "s"),
        ];
        with(&variables, |environment| {
            let credentials = environment.credentials(false).unwrap();
            assert_eq!(credentials.kinds(), ["kms", "azure_kv", "gcp_kms", "hc_vault", "hckms"]);
            assert!(matches!(credentials.aws, Some(AwsCredential::WebIdentity { .. })));
        });
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, value) in [
            ("VAULT_ADDR", "vault"),
            ("AWS_ENDPOINT_URL_KMS", "x"),
            ("GOOGLE_CREDENTIALS", "{"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent"),
            ("HUAWEICLOUD_SDK_REGIONS_FILE", "/nonexistent"),
        ] {
            let error = with(&[(name, value)], |environment| {
                environment.allowed().map(drop).and_then(|()| environment.credentials(false).map(drop))
            });
            assert!(error.unwrap_err().to_string().contains(name), "{name}");
        }
    }
}
