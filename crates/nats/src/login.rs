//! As whom one logs in.

use std::sync::Arc;

use roadstead_outbound::Secret;

use crate::nkey::{BadKey, UserKey};

/// Bytes of a credentials file.
const MOST: usize = 64 << 10;
const JWT: &str = "NATS USER JWT";
const SEED: &str = "USER NKEY SEED";

/// As whom one logs in. It prints nothing secret.
#[derive(Debug, Clone, Default)]
pub enum Login {
    /// As nobody.
    #[default]
    Nobody,
    /// By a name and a password.
    Password {
        /// The name.
        username: String,
        /// The password.
        password: Secret,
    },
    /// By a token.
    Token(Secret),
    /// By a key that the server knows.
    Key(Arc<UserKey>),
    /// By what an account says of a key: a credentials file.
    Credentials {
        /// What the account says.
        jwt: Secret,
        /// The key.
        key: Arc<UserKey>,
    },
}

impl Login {
    /// By the seed of a key.
    ///
    /// # Errors
    /// It is none.
    pub fn of_seed(seed: &str) -> Result<Self, BadKey> {
        UserKey::parse(seed).map(Arc::new).map(Self::Key)
    }

    /// By a credentials file, as `nsc` writes it.
    ///
    /// # Errors
    /// What is wrong with it; nothing of it stands in that.
    pub fn of_file(text: &str) -> Result<Self, &'static str> {
        if text.len() > MOST {
            return Err("it is longer than 64 KiB");
        }
        let jwt =
            block(text, JWT).ok_or("it has no block NATS USER JWT, which a credentials file begins with")?;
        let is_jwt = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if jwt.split('.').count() != 3 || !jwt.chars().all(is_jwt) {
            return Err("its block NATS USER JWT does not hold a JWT");
        }
        let seed = block(text, SEED).ok_or("it has no block USER NKEY SEED")?;
        let key =
            UserKey::parse(seed).map_err(|_| "its block USER NKEY SEED does not hold the seed of a user")?;
        Ok(Self::Credentials { jwt: jwt.to_owned().into(), key: Arc::new(key) })
    }

    /// Whether it would show something on the way that whoever hears it can log in by: a signature of a key is good once.
    #[must_use]
    pub fn shows(&self) -> bool {
        match self {
            Self::Nobody | Self::Key(_) => false,
            Self::Password { .. } | Self::Token(_) | Self::Credentials { .. } => true,
        }
    }

    /// Whether it is somebody.
    #[must_use]
    pub fn is_somebody(&self) -> bool {
        !matches!(self, Self::Nobody)
    }
}

/// The line within `-----BEGIN NAME-----` and `------END NAME------`, with however many dashes.
fn block<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let is_mark = |line: &str, word: &str| {
        let bare = line.trim().trim_matches('-');
        line.trim().starts_with("---") && bare.strip_prefix(word).is_some_and(|rest| rest.trim() == name)
    };
    let mut lines = text.lines().skip_while(|line| !is_mark(line, "BEGIN")).skip(1);
    let found = lines.find(|line| !line.trim().is_empty())?;
    let ends = lines.find(|line| !line.trim().is_empty()).is_some_and(|line| is_mark(line, "END"));
    ends.then(|| found.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED_OF_A_USER: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

    fn file(jwt: &str, seed: &str) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\n\
             -----BEGIN USER NKEY SEED-----\r\n{seed}\r\n------END USER NKEY SEED------\n\n***\n"
        )
    }

    #[test]
    fn a_credentials_file_has_what_an_account_says_and_a_key() {
        let Ok(Login::Credentials { jwt, key }) = Login::of_file(&file("a.b-_.c", SEED_OF_A_USER)) else {
            panic!("it is not read")
        };
        assert_eq!(jwt.expose(), "a.b-_.c");
        assert!(key.public().starts_with("UDXU4RCS"));
    }

    #[test]
    fn what_is_no_credentials_file_is_refused_without_being_shown() {
        let whole = file("a.b.c", SEED_OF_A_USER);
        for bad in [
            String::new(),
            SEED_OF_A_USER.to_owned(),
            file("a.b", SEED_OF_A_USER),
            file("a.b.c\"}", SEED_OF_A_USER),
            file("a.b.c", "SUcanary"),
            file("", SEED_OF_A_USER),
            whole.replace("------END USER NKEY SEED------", ""),
            whole.replace("NATS USER JWT", "SOMETHING"),
            "x".repeat(MOST + 1),
        ] {
            let why = Login::of_file(&bad).unwrap_err();
            assert!(!why.contains("canary") && !why.contains("SUACS"), "{why}");
        }
    }

    #[test]
    fn nothing_secret_prints() {
        let login = Login::Password { username: "u".to_owned(), password: "canary".into() };
        assert!(!format!("{login:?}").contains("canary"));
        assert!(!format!("{:?}", Login::of_seed(SEED_OF_A_USER)).contains("SUACS"));
        assert!(login.shows() && login.is_somebody());
        assert!(!Login::of_seed(SEED_OF_A_USER).unwrap().shows() && !Login::Nobody.is_somebody());
    }
}
