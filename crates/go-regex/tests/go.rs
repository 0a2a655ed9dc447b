//! What Go's own regexp says to some thousand patterns, and what is said here. `go/table.go` made the table.

use roadstead_go_regex::{Limits, PatternError, compile, compile_bytes};

/// Of each line after its tab, one digit for each of these.
const TEXTS: [&str; 43] = [
    "", "a", "b", "aa", "ab", "ba", "aab", "abab", "A", "1", "a1", "-", "a-b", "\n", "a\nb", "a\n", "é",
    "aéa", "éa", "[", "]", "{", "^", "\\", "Q", "&", "~", " ", "_", "a b", "(", "*", "+", "?", ".", ",",
    "a{1", "a{01}", "a{,2}", "\u{1}", "S", "ſ", "K",
];
const LIMITS: Limits = Limits { program: 10 << 20, tables: 1 << 20 };
/// Of the patterns, how many Go knows and we do not.
const MOST_UNSUPPORTED: usize = 40;

/// What is said of a pattern, in the words of the table; none where it is not supported.
fn said(result: Result<impl Fn(&str) -> bool, PatternError>) -> Option<String> {
    match result {
        Ok(is_match) => Some(TEXTS.map(|text| if is_match(text) { '1' } else { '0' }).iter().collect()),
        Err(PatternError::Invalid { .. }) => Some("invalid".into()),
        Err(_) => None,
    }
}

#[test]
fn patterns_mean_what_they_mean_in_go() {
    let table = include_str!("go/table.txt");
    let (mut wrong, mut unsupported) = (Vec::new(), Vec::new());
    for line in table.lines() {
        let (pattern, expected) = line.rsplit_once('\t').unwrap();
        let bytes = compile_bytes(pattern, LIMITS);
        match said(bytes.map(|regex| move |text: &str| regex.is_match(text.as_bytes()))) {
            None => unsupported.push(pattern),
            Some(said) if said != expected => {
                wrong.push(format!("{pattern}\n  Go   {expected}\n  here {said}"));
            }
            Some(_) => {}
        }
        let text = compile(pattern, LIMITS);
        match said(text.map(|regex| move |text: &str| regex.is_match(text))) {
            Some(said) if said != expected => {
                wrong.push(format!("{pattern}\n  Go   {expected}\n  here {said}"));
            }
            Some(_) => {}
            None => assert!(pattern.contains(r"\B") || unsupported.contains(&pattern), "{pattern}"),
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(table.lines().count() > 3000 && unsupported.len() < MOST_UNSUPPORTED, "{unsupported:#?}");
}
