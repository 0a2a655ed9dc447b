//! Patterns of names as Go's `filepath.Match` has them: `*`, `?`, classes with `^`, and `\` before what is meant as it is. A `/` is
//! matched by nothing but itself.

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Glob(Vec<Token>);

#[derive(Debug, Clone)]
enum Token {
    One(char),
    Any,
    Star,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Token {
    fn matches(&self, c: char) -> bool {
        match self {
            Self::One(own) => *own == c,
            Self::Any => c != '/',
            Self::Class { negated, ranges } => {
                c != '/' && ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
            Self::Star => false,
        }
    }
}

impl Glob {
    /// Compiles a pattern; none where it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (mut tokens, mut chars) = (Vec::new(), text.chars().peekable());
        while let Some(c) = chars.next() {
            tokens.push(match c {
                '*' => Token::Star,
                '?' => Token::Any,
                '\\' => Token::One(chars.next()?),
                '[' => {
                    let negated = chars.next_if_eq(&'^').is_some();
                    let mut ranges = Vec::new();
                    loop {
                        if chars.next_if_eq(&']').is_some() {
                            break;
                        }
                        let mut bound = || match chars.next()? {
                            '-' | ']' => None,
                            '\\' => chars.next(),
                            c => Some(c),
                        };
                        let low = bound()?;
                        let high = if chars.next_if_eq(&'-').is_some() {
                            match chars.next()? {
                                '-' | ']' => return None,
                                '\\' => chars.next()?,
                                c => c,
                            }
                        } else {
                            low
                        };
                        ranges.push((low, high));
                    }
                    if ranges.is_empty() {
                        return None;
                    }
                    Token::Class { negated, ranges }
                }
                c => Token::One(c),
            });
        }
        Some(Self(tokens))
    }

    /// Whether all of a name matches, in time that grows with the product of both at most.
    pub(super) fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut token, mut at) = (0, 0);
        // Where to go on when it does not: after the last star, with one character more for it.
        let mut star: Option<(usize, usize)> = None;
        loop {
            match (self.0.get(token), name.get(at)) {
                (Some(Token::Star), _) => {
                    star = Some((token, at));
                    token += 1;
                    continue;
                }
                (Some(own), Some(c)) if own.matches(*c) => {
                    (token, at) = (token + 1, at + 1);
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            match star {
                Some((at_token, from)) if name.get(from).is_some_and(|c| *c != '/') => {
                    star = Some((at_token, from + 1));
                    (token, at) = (at_token + 1, from + 1);
                }
                _ => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, name, matches) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "a", true),
            ("a*/b", "abc/b", true),
            ("a*/b", "a/c/b", false),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("ab[c]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "a/b", false),
            ("a[^a]b", "a☺b", true),
            ("[!x]", "x", true),
            ("", "", true),
            ("*x", "xxx", true),
            ("templates/.?*", "templates/.dotfile", true),
            ("templates/.?*", "templates/.", false),
        ] {
            assert_eq!(Glob::parse(pattern).unwrap().matches(name), matches, "{pattern} {name}");
        }
        for pattern in ["[", "[^", "[a", "[]", "[a-", "[-x]", "a\\", "[x-]"] {
            assert!(Glob::parse(pattern).is_none(), "{pattern}");
        }
        let slow = Glob::parse(&"*a".repeat(200)).unwrap();
        assert!(!slow.matches(&format!("{}b", "a".repeat(5_000))));
    }
}
