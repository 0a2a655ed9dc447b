//! A text with expressions, parsed as Flux's `envsubst` does.
//!
//! `$$` is a `$`, and `$name` without braces is text. An expression is `${name}`, or has an operator behind the name, whose
//! arguments may be expressions themselves.

/// How deep expressions may nest.
const MAX_DEPTH: usize = 32;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Text(String),
    Expression(Expression),
}

/// What stands between `${` and `}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression {
    pub(crate) name: String,
    pub(crate) operator: Operator,
    pub(crate) arguments: Vec<Node>,
}

/// What is done with a variable's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    /// Nothing. Also `${name^,}` and the like, which say nothing that makes sense.
    Value,
    /// `${#name}`
    Length,
    /// `${name^}`
    UpperFirst,
    /// `${name^^}`
    Upper,
    /// `${name,}`
    LowerFirst,
    /// `${name,,}`
    Lower,
    /// `${name=default}`, and with `:=`, `:-`, `:?` and `:+`, of which Flux makes no difference.
    Default,
    /// `${name:position}`, `${name:position:length}`
    Substring,
    /// `${name#pattern}`
    TrimShortestPrefix,
    /// `${name##pattern}`
    TrimLongestPrefix,
    /// `${name%pattern}`
    TrimShortestSuffix,
    /// `${name%%pattern}`
    TrimLongestSuffix,
    /// `${name/old/new}`
    ReplaceFirst,
    /// `${name//old/new}`
    ReplaceAll,
    /// `${name/#old/new}`
    ReplacePrefix,
    /// `${name/%old/new}`
    ReplaceSuffix,
}

/// Why a text cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) why: &'static str,
    /// Where the outermost expression begins, in bytes.
    pub(crate) at: usize,
}

const BAD_SUBSTITUTION: &str = "bad substitution";
const MISSING_BRACE: &str = "missing closing brace";
const NO_NAME: &str = "unable to parse variable name";
const BAD_ARGUMENT: &str = "unable to parse substitution within function";
const BAD_DEFAULT: &str = "unable to parse default function";
const TOO_DEEP: &str = "expressions nest too deep";

/// Parses a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Node>, Malformed> {
    let mut parser = Parser { text, at: 0 };
    let mut nodes = Vec::new();
    loop {
        let at = parser.at;
        if parser.take("${") {
            nodes.push(parser.expression(1).map_err(|why| Malformed { why, at })?);
        } else {
            match parser.argument_text(|_| true, Escapes::Dollar) {
                Some(text) => nodes.push(Node::Text(text)),
                None => return Ok(nodes),
            }
        }
    }
}

/// Which characters are taken literally behind which.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    None,
    /// `$$`
    Dollar,
    /// `$$`, `\/` and `\\`
    All,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, what: &str) -> bool {
        let found = self.rest().starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    /// The longest text of characters that `accept` takes; none where there is none.
    fn run_of(&mut self, accept: impl Fn(char) -> bool) -> Option<String> {
        let rest = self.rest();
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        let run = rest[..end].to_owned();
        self.at += end;
        (end > 0).then_some(run)
    }

    /// Text up to an expression, or to a character that is not accepted; none where there is none.
    fn argument_text(&mut self, accept: impl Fn(char) -> bool, escapes: Escapes) -> Option<String> {
        let mut text = String::new();
        let began = self.at;
        while let Some(c) = self.peek() {
            let rest = self.rest();
            if rest.starts_with("${") {
                break;
            }
            let escaped = match escapes {
                Escapes::None => None,
                Escapes::Dollar => rest.strip_prefix("$$").map(|_| '$'),
                Escapes::All => [("$$", '$'), ("\\/", '/'), ("\\\\", '\\')]
                    .into_iter()
                    .find_map(|(pair, c)| rest.starts_with(pair).then_some(c)),
            };
            if let Some(c) = escaped {
                text.push(c);
                self.at += 2;
            } else if accept(c) {
                text.push(c);
                self.at += c.len_utf8();
            } else {
                break;
            }
        }
        (self.at > began).then_some(text)
    }

    /// What follows a `${`.
    fn expression(&mut self, depth: usize) -> Result<Node, &'static str> {
        if depth > MAX_DEPTH {
            return Err(TOO_DEEP);
        }
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        if self.take("#") {
            let name = self.run_of(is_name).ok_or(BAD_SUBSTITUTION)?;
            return self.closed(name, Operator::Length, Vec::new(), BAD_SUBSTITUTION);
        }
        let name = self.run_of(is_name).ok_or(NO_NAME)?;
        match self.peek() {
            Some(':') => match self.rest()[1..].chars().next() {
                Some('=' | '-' | '?' | '+') => {
                    self.at += 2;
                    self.default(name, depth)
                }
                _ => self.substring(name, depth),
            },
            Some('=') => {
                self.at += 1;
                self.default(name, depth)
            }
            Some(',' | '^') => self.casing(name),
            Some('/') => self.replace(name, depth),
            Some('#' | '%') => self.trim(name, depth),
            _ => self.closed(name, Operator::Value, Vec::new(), MISSING_BRACE),
        }
    }

    fn closed(
        &mut self,
        name: String,
        operator: Operator,
        arguments: Vec<Node>,
        or_else: &'static str,
    ) -> Result<Node, &'static str> {
        if !self.take("}") {
            return Err(or_else);
        }
        Ok(Node::Expression(Expression { name, operator, arguments }))
    }

    /// One argument: an expression, or text.
    fn argument(
        &mut self,
        depth: usize,
        accept: impl Fn(char) -> bool,
        escapes: Escapes,
    ) -> Result<Node, &'static str> {
        if self.take("${") {
            return self.expression(depth + 1);
        }
        self.argument_text(accept, escapes).map(Node::Text).ok_or(BAD_ARGUMENT)
    }

    fn default(&mut self, name: String, depth: usize) -> Result<Node, &'static str> {
        let mut arguments = Vec::new();
        loop {
            match self.peek() {
                None => return Err(if arguments.is_empty() { BAD_DEFAULT } else { BAD_ARGUMENT }),
                Some('}') => return self.closed(name, Operator::Default, arguments, BAD_SUBSTITUTION),
                Some(_) => arguments.push(self.argument(depth, |c| c != '}', Escapes::None)?),
            }
        }
    }

    fn substring(&mut self, name: String, depth: usize) -> Result<Node, &'static str> {
        self.at += 1;
        let position = self.argument(depth, |c| c != ':' && c != '}', Escapes::None)?;
        let mut arguments = vec![position];
        if self.run_of(|c| c == ':').is_some() {
            arguments.push(self.argument(depth, |c| c != '}', Escapes::None)?);
        }
        self.closed(name, Operator::Substring, arguments, BAD_SUBSTITUTION)
    }

    fn casing(&mut self, name: String) -> Result<Node, &'static str> {
        let word: String = self.rest().chars().take(2).take_while(|c| matches!(c, ',' | '^')).collect();
        self.at += word.len();
        let operator = match word.as_str() {
            "," => Operator::LowerFirst,
            ",," => Operator::Lower,
            "^" => Operator::UpperFirst,
            "^^" => Operator::Upper,
            _ => Operator::Value,
        };
        self.closed(name, operator, Vec::new(), BAD_SUBSTITUTION)
    }

    fn trim(&mut self, name: String, depth: usize) -> Result<Node, &'static str> {
        let operators = [
            ("##", Operator::TrimLongestPrefix),
            ("#", Operator::TrimShortestPrefix),
            ("%%", Operator::TrimLongestSuffix),
            ("%", Operator::TrimShortestSuffix),
        ];
        let operator = operators.into_iter().find_map(|(word, operator)| self.take(word).then_some(operator));
        let pattern = self.argument(depth, |c| c != '}', Escapes::None)?;
        self.closed(name, operator.ok_or(BAD_SUBSTITUTION)?, vec![pattern], BAD_SUBSTITUTION)
    }

    fn replace(&mut self, name: String, depth: usize) -> Result<Node, &'static str> {
        let operators = [
            ("//", Operator::ReplaceAll),
            ("/#", Operator::ReplacePrefix),
            ("/%", Operator::ReplaceSuffix),
            ("/", Operator::ReplaceFirst),
        ];
        let operator = operators.into_iter().find_map(|(word, operator)| self.take(word).then_some(operator));
        let mut arguments = vec![self.argument(depth, |c| c != '/', Escapes::All)?];
        self.run_of(|c| c == '/').ok_or(BAD_SUBSTITUTION)?;
        if self.peek() != Some('}') {
            arguments.push(self.argument(depth, |c| c != '}', Escapes::All)?);
        }
        self.closed(name, operator.ok_or(BAD_SUBSTITUTION)?, arguments, BAD_SUBSTITUTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dollar_without_a_brace_is_text() {
        assert_eq!(parse("a $b $").unwrap(), [Node::Text("a $b $".to_owned())]);
        assert_eq!(parse("$${a} $$").unwrap(), [Node::Text("${a} $".to_owned())]);
    }

    #[test]
    fn what_cannot_be_parsed_says_why_and_where() {
        for (text, why) in [
            ("x ${", NO_NAME),
            ("x ${}", NO_NAME),
            ("x ${a", MISSING_BRACE),
            ("x ${a-b}", MISSING_BRACE),
            ("x ${a:}", BAD_ARGUMENT),
            ("x ${a#}", BAD_ARGUMENT),
            ("x ${a/b}", BAD_SUBSTITUTION),
            ("x ${#a^}", BAD_SUBSTITUTION),
            ("x ${a:=b", BAD_ARGUMENT),
        ] {
            assert_eq!(parse(text), Err(Malformed { why, at: 2 }), "{text}");
        }
        assert_eq!(parse(&"${a:=".repeat(10_000)).unwrap_err().why, TOO_DEEP);
    }
}
