//! Reading the paths that a source file names, without compiling it.
//!
//! The file is split into tokens (so comments and strings are out of the way, and the inside of macro calls is not) and
//! searched for `a::b::c`, with `use` trees unfolded and names that a `use` brought in put back to where they come from.
//! Code under `#[cfg(test)]` is left out.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One path that a file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// From 1.
    pub(crate) line: usize,
    /// `std::fs::read`; a glob ends in `::*`.
    pub(crate) path: String,
}

/// What a file names, and which of its child modules are for tests only (`#[cfg(test)] mod fixtures;`).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) named: Vec<Named>,
    pub(crate) test_modules: Vec<String>,
}

/// Reads a file's text.
pub(crate) fn read(text: &str) -> Result<Contents> {
    let stream =
        TokenStream::from_str(text).map_err(|error| anyhow!("cannot be split into tokens: {error}"))?;
    let mut reader = Reader::default();
    reader.walk(stream);
    Ok(reader.finish())
}

#[derive(Default)]
struct Reader {
    contents: Contents,
    /// Paths outside `use`, to be resolved when all imports are known.
    plain: Vec<(usize, Vec<String>)>,
    /// Name in this file -> where it comes from.
    imports: BTreeMap<String, Vec<String>>,
}

impl Reader {
    fn walk(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = match &tokens[at] {
                TokenTree::Punct(punct) if punct.as_char() == '#' && is_cfg_test(tokens.get(at + 1)) => {
                    self.skip_item(&tokens, at + 2)
                }
                TokenTree::Group(group) => {
                    self.walk(group.stream());
                    at + 1
                }
                TokenTree::Ident(ident) if ident == "use" => self.import(&tokens, at + 1, &[]),
                TokenTree::Ident(ident) if ident == "extern" && is_ident(tokens.get(at + 1), "crate") => {
                    self.import(&tokens, at + 2, &[])
                }
                TokenTree::Ident(_) => self.path(&tokens, at),
                TokenTree::Punct(_) | TokenTree::Literal(_) => at + 1,
            };
        }
    }

    /// Reads `a::b::c` from `at` on; gives where it ends.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize) -> usize {
        let line = line(&tokens[at]);
        let mut segments = Vec::new();
        while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
            segments.push(plain(&ident.to_string()));
            at += 1;
            if !is_colons(tokens, at) || !matches!(tokens.get(at + 2), Some(TokenTree::Ident(_))) {
                break;
            }
            at += 2;
        }
        if segments.len() > 1 {
            self.plain.push((line, segments));
        }
        at
    }

    /// Reads one use tree (after `use`, or an entry in braces) under `prefix`; gives where it ends.
    fn import(&mut self, tokens: &[TokenTree], mut at: usize, prefix: &[String]) -> usize {
        let mut segments = prefix.to_vec();
        let mut name = None;
        let Some(first) = tokens.get(at) else { return at };
        let line = line(first);
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Ident(ident) if ident == "as" => {
                    name = tokens.get(at).map(ToString::to_string);
                    at += 1;
                }
                TokenTree::Ident(ident) => segments.push(plain(&ident.to_string())),
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    let mut entry = 0;
                    while entry < inner.len() {
                        entry = self.import(&inner, entry, &segments);
                    }
                    // Its entries are the leaves.
                    return skip_separator(tokens, at);
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => segments.push("*".to_owned()),
                TokenTree::Punct(punct) if punct.as_char() == ':' => {}
                _ => break,
            }
        }
        if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
            segments.pop();
        }
        self.contents.named.push(Named { line, path: segments.join("::") });
        if let Some(name) = name.or_else(|| segments.last().cloned()) {
            self.imports.insert(name, segments);
        }
        at
    }

    /// Leaves out the item after `#[cfg(test)]`; gives where it ends.
    fn skip_item(&mut self, tokens: &[TokenTree], mut at: usize) -> usize {
        let begin = at;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
                TokenTree::Punct(punct) if matches!(punct.as_char(), ';' | ',') => break,
                _ => {}
            }
        }
        let item = &tokens[begin..at];
        let module = item.iter().position(|token| is_ident(Some(token), "mod"));
        if let (Some(module), Some(TokenTree::Punct(_))) = (module, item.last()) {
            self.contents.test_modules.extend(item.get(module + 1).map(ToString::to_string));
        }
        at
    }

    fn finish(mut self) -> Contents {
        for (line, segments) in self.plain {
            let origin = self.imports.get(&segments[0]).filter(|origin| origin[0] != segments[0]);
            let full = match origin {
                Some(origin) => [origin.as_slice(), &segments[1..]].concat(),
                None => segments,
            };
            self.contents.named.push(Named { line, path: full.join("::") });
        }
        self.contents.named.sort_by_key(|named| named.line);
        self.contents
    }
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

fn plain(ident: &str) -> String {
    ident.trim_start_matches("r#").to_owned()
}

fn is_ident(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == name)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    let colon =
        |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    colon(tokens.get(at)) && colon(tokens.get(at + 1))
}

fn skip_separator(tokens: &[TokenTree], at: usize) -> usize {
    let separator =
        matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if matches!(punct.as_char(), ',' | ';'));
    at + usize::from(separator)
}

/// `[cfg(test)]`, and no other condition: `[cfg(any(test, …))]` is in builds too.
fn is_cfg_test(token: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = token else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    group.delimiter() == Delimiter::Bracket && (text == "cfg(test)" || text.starts_with("cfg(all(test,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        read(text).unwrap().named.into_iter().map(|named| format!("{} {}", named.line, named.path)).collect()
    }

    #[test]
    fn unfolds_use_trees() {
        let text = "use std::{fs::{self, File}, io as stdio,\n collections::*};\nextern crate tokio;";
        assert_eq!(
            named(text),
            ["1 std::fs", "1 std::fs::File", "1 std::io", "2 std::collections::*", "3 tokio"]
        );
    }

    #[test]
    fn resolves_what_a_use_brought_in() {
        let text = "fn f() { t::SystemTime::now(); }\nuse std::time as t;\nuse jiff::Timestamp;\nfn g() { Timestamp::now() }";
        let found = named(text);
        assert!(found.contains(&"1 std::time::SystemTime::now".to_owned()), "{found:?}");
        assert!(found.contains(&"4 jiff::Timestamp::now".to_owned()), "{found:?}");
    }

    #[test]
    fn looks_into_macro_calls_and_generics_and_not_into_comments_and_strings() {
        let text = "// std::fs::read\nconst A: &str = \"std::net::TcpStream\";\n\
                    fn f(x: Vec<std::fs::File>) { println!(\"{:?}\", ::std::env::var(A)); }";
        assert_eq!(named(text), ["3 std::fs::File", "3 std::env::var"]);
    }

    #[test]
    fn leaves_out_what_is_for_tests_only() {
        let text = "#[cfg(test)]\nmod tests { use std::fs; }\n#[cfg(test)]\nmod fixtures;\n\
                    #[cfg(test)] use std::env;\nfn f() { std::net::x() }\n#[cfg(any(test, unix))] use std::thread;";
        let contents = read(text).unwrap();
        assert_eq!(contents.test_modules, ["fixtures"]);
        assert_eq!(named(text), ["6 std::net::x", "7 std::thread"]);
    }
}
