//! Why a token that somebody signed stands for nobody.

use roadstead_cel::CelError;

use crate::TokenError;

/// Why a token stands for nobody: for the operator's log. It names claims and expressions of the configuration, and nothing of
/// what the token says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The token itself is not taken.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A claim that the configuration names is absent.
    #[error("the claim {0} is absent")]
    Absent(String),
    /// A claim has another type than it must.
    #[error("the claim {claim} must be {expected}")]
    Type {
        /// The claim.
        claim: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A claim has another value than the one that is required.
    #[error("the claim {0} does not have the required value")]
    Value(String),
    /// The issuer does not vouch for the e-mail address that is the username.
    #[error("the e-mail address is the username, and the issuer has not verified it (email_verified)")]
    EmailNotVerified,
    /// The user would have no name.
    #[error("the username is empty")]
    NoName,
    /// The user would have a name that is reserved.
    #[error("the username begins with system:, which is reserved")]
    Reserved,
    /// A text is longer than any of its kind.
    #[error("{what} is longer than {most} bytes")]
    TooLong {
        /// What the text is.
        what: &'static str,
        /// The most bytes.
        most: usize,
    },
    /// A text has characters that are not seen.
    #[error("{what} has control characters or others that are invisible")]
    Invisible {
        /// What the text is.
        what: &'static str,
    },
    /// More groups than a user may be in.
    #[error("the user is in more than {0} groups: have the issuer name only those that are needed")]
    TooManyGroups(usize),
    /// The issuer left the groups out of the token, and says where to ask for them.
    #[error(
        "the issuer left the claim {0} out of the token because the user is in too many groups, and the hub does not ask \
         elsewhere for them: have the issuer name only the groups that are assigned to the application"
    )]
    GroupsElsewhere(String),
    /// An expression has no value for this token.
    #[error("{what}: {source}")]
    Expression {
        /// Where it stands in the configuration.
        what: String,
        /// What failed.
        source: CelError,
    },
    /// An expression came to a value of another type than it must.
    #[error("{what}: the expression must come to {expected}")]
    Outcome {
        /// Where it stands in the configuration.
        what: String,
        /// What it must come to.
        expected: &'static str,
    },
    /// A rule of the configuration does not hold.
    #[error("{what} does not hold: {message}")]
    Rule {
        /// Where it stands in the configuration.
        what: String,
        /// What the configuration says of that.
        message: String,
    },
}
