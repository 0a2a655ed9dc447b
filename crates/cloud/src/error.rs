//! Why a service of a cloud, or a key service, did not do what it was asked. Nothing here holds a credential or a plaintext.

/// Why a service did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// What the file says of the key cannot be used.
    #[error("{0}")]
    Key(String),
    /// The credentials that there are cannot be used.
    #[error("{0}")]
    Credential(String),
    /// Credentials would go to an address that only the file names.
    #[error(
        "credentials are not sent to {0}, which only the encrypted file names: to allow it, name it in VAULT_ADDR, in the entry \
         sops.vault-address of the Secret, or with --allow-key-service"
    )]
    NotAllowed(String),
    /// Credentials of a cloud would go to somebody else.
    #[error(
        "{host} is not {what}: credentials of {cloud} are not sent there, unless the operator says that it is one (--allow-cloud-host \
         {cloud}={host})"
    )]
    NotOfCloud {
        /// Where they would go.
        host: String,
        /// What it would have to be.
        what: &'static str,
        /// Whose they are.
        cloud: &'static str,
    },
    /// Credentials would go there in the clear.
    #[error("{0} is not an https:// address, and credentials are sent to others on this machine only")]
    InTheClear(String),
    /// No answer.
    #[error("{host} cannot be reached: {why}")]
    Unreachable {
        /// Where the request went.
        host: String,
        /// What happened, as far as it may be told.
        why: String,
    },
    /// It took too long.
    #[error("{0} did not answer in time")]
    TimedOut(String),
    /// It is not asked, since it did not answer before.
    #[error("{0} did not answer a moment ago, and is asked again in some seconds")]
    Resting(String),
    /// It answers elsewhere.
    #[error(
        "{host} answered with a redirect (HTTP {status}), which is not followed: name the address that it leads to"
    )]
    Redirect {
        /// Where the request went.
        host: String,
        /// The status.
        status: u16,
    },
    /// A flood.
    #[error("{0} answered with more than 64 KiB")]
    TooLarge(String),
    /// It says no.
    #[error("{host} refused: HTTP {status}{}", shown(.code))]
    Refused {
        /// Where the request went.
        host: String,
        /// The status.
        status: u16,
        /// The service's own name of what is wrong.
        code: Option<String>,
    },
    /// Not an answer of such a service.
    #[error("the answer of {0} is not one of such a service")]
    Malformed(String),
    /// The file asks for more than it may.
    #[error("the file's keys need more than {0} requests to key services")]
    TooManyRequests(usize),
    /// The time for all that is asked is over.
    #[error("it was not asked: key services have taken all the time that there is")]
    TooSlow,
}

fn shown(code: &Option<String>) -> String {
    code.as_ref().map(|code| format!(", {code}")).unwrap_or_default()
}

impl ServiceError {
    /// May the same go well later, with nothing changed here?
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut(_) | Self::Resting(_) | Self::TooSlow => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }
}
