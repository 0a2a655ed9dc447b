//! What a registry that wants to know who asks says in `WWW-Authenticate`. Pure.

use url::Url;

/// Bytes of the header.
const MOST: usize = 4_096;
/// Parameters of one scheme.
const MOST_PARAMETERS: usize = 16;

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A name and a password.
    Basic,
    /// A token of the service at `realm`.
    Bearer {
        /// Where tokens are to be had.
        realm: String,
        /// For whom; empty where the registry does not say.
        service: String,
        /// For what; empty where the registry does not say.
        scope: String,
    },
}

impl Challenge {
    /// What the header asks for: a token where that is one of several things.
    pub(super) fn parse(header: &str) -> Option<Self> {
        if header.len() > MOST {
            return None;
        }
        let all = schemes(header);
        let bearer = all.iter().find(|scheme| scheme.name.eq_ignore_ascii_case("bearer"));
        if let Some(scheme) = bearer {
            let get = |name: &str| scheme.get(name).unwrap_or_default().to_owned();
            return Some(Self::Bearer {
                realm: scheme.get("realm")?.to_owned(),
                service: get("service"),
                scope: get("scope"),
            });
        }
        all.iter().any(|scheme| scheme.name.eq_ignore_ascii_case("basic")).then_some(Self::Basic)
    }
}

/// Whether credentials for `registry` may go to the token service that it names: over TLS to wherever it says, since it
/// may have them itself; otherwise only to where they go anyway.
pub(super) fn may_have_credentials(registry: &Url, realm: &Url) -> bool {
    let same = realm.origin() == registry.origin();
    same || realm.scheme() == "https" && registry.scheme() == "https"
}

struct Scheme {
    name: String,
    parameters: Vec<(String, String)>,
}

impl Scheme {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// `Bearer realm="…",service="…", Basic realm="…"`, as far as it can be read.
fn schemes(header: &str) -> Vec<Scheme> {
    let mut all: Vec<Scheme> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.is_empty() {
            return all;
        }
        let Some(value) = after.trim_start().strip_prefix('=') else {
            all.push(Scheme { name: word.to_owned(), parameters: Vec::new() });
            rest = after;
            continue;
        };
        let Some((value, after)) = value_of(value.trim_start()) else { return all };
        let Some(scheme) = all.last_mut() else { return all };
        if scheme.parameters.len() < MOST_PARAMETERS {
            scheme.parameters.push((word.to_owned(), value));
        }
        rest = after;
    }
}

/// The value in front, quoted or not, and what follows it.
fn value_of(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::{Challenge, may_have_credentials};
    use url::Url;

    fn bearer(realm: &str, service: &str, scope: &str) -> Option<Challenge> {
        let own = str::to_owned;
        Some(Challenge::Bearer { realm: own(realm), service: own(service), scope: own(scope) })
    }

    #[test]
    fn challenges_are_read() {
        let parse = Challenge::parse;
        assert_eq!(
            parse(
                r#"Bearer realm="https://auth.example/token",service="registry",scope="repository:a/b:pull""#
            ),
            bearer("https://auth.example/token", "registry", "repository:a/b:pull")
        );
        assert_eq!(
            parse(r#"Basic realm="a, b", bearer  realm = "https://a\"b/" , service=x"#),
            bearer("https://a\"b/", "x", "")
        );
        assert_eq!(parse("Basic realm=\"Registry Realm\""), Some(Challenge::Basic));
        assert_eq!(parse("basic"), Some(Challenge::Basic));
        for nothing in
            ["", "Negotiate", "Bearer service=\"x\"", "=,=", "Bearer realm=\"open", &"x".repeat(5_000)]
        {
            assert_eq!(parse(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_token_service_elsewhere_gets_credentials_over_tls_only() {
        let may = |registry: &str, realm: &str| {
            may_have_credentials(&Url::parse(registry).unwrap(), &Url::parse(realm).unwrap())
        };
        assert!(may("https://registry.example/", "https://auth.example/token"));
        assert!(may("http://registry.example:5000/", "http://registry.example:5000/token"));
        assert!(!may("https://registry.example/", "http://registry.example/token"));
        assert!(!may("http://registry.example/", "https://auth.example/token"));
        assert!(!may("http://registry.example:5000/", "http://registry.example:5001/token"));
    }
}
