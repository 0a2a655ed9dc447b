//! The value of a template: each expression is replaced by what comes of its variable.

use std::collections::BTreeSet;

use crate::pattern::{BadPattern, Pattern};
use crate::template::{Expression, Node, Operator};
use crate::variables::Variables;

/// What is evaluated by, and what was found out on the way.
pub(crate) struct Evaluation<'a> {
    pub(crate) variables: &'a Variables,
    /// Variables that are not set, where one would have to be.
    pub(crate) undefined: BTreeSet<String>,
    /// Whether the value of a Secret went in.
    pub(crate) secret: bool,
    /// How many more bytes may come of it.
    pub(crate) bytes_left: usize,
    /// How many more characters may be compared with patterns.
    pub(crate) work_left: usize,
}

/// A limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Bytes,
    Work,
    /// A substring would end within a character.
    Character,
}

impl Evaluation<'_> {
    pub(crate) fn nodes(&mut self, nodes: &[Node]) -> Result<String, Limit> {
        let mut out = String::new();
        for node in nodes {
            match node {
                Node::Text(text) => self.push(&mut out, text)?,
                Node::Expression(expression) => {
                    let value = self.expression(expression)?;
                    self.push(&mut out, &value)?;
                }
            }
        }
        Ok(out)
    }

    fn push(&mut self, out: &mut String, text: &str) -> Result<(), Limit> {
        self.bytes_left = self.bytes_left.checked_sub(text.len()).ok_or(Limit::Bytes)?;
        out.push_str(text);
        Ok(())
    }

    fn expression(&mut self, expression: &Expression) -> Result<String, Limit> {
        let Expression { name, operator, arguments } = expression;
        let mut given = Vec::with_capacity(arguments.len());
        for argument in arguments {
            given.push(self.nodes(std::slice::from_ref(argument))?);
        }
        let found = self.variables.get(name);
        if found.is_none() && *operator != Operator::Default {
            self.undefined.insert(name.clone());
        }
        self.secret |= found.is_some_and(|variable| variable.secret);
        let value = found.map_or("", |variable| variable.value.as_str());
        let (first, second) = (given.first().map(String::as_str), given.get(1).map(String::as_str));
        let first_or_none = first.unwrap_or_default();
        Ok(match operator {
            Operator::Value => value.to_owned(),
            Operator::Length => value.len().to_string(),
            Operator::UpperFirst => first_changed(value, |c| c.to_uppercase().collect()),
            Operator::Upper => value.to_uppercase(),
            Operator::LowerFirst => first_changed(value, |c| c.to_lowercase().collect()),
            Operator::Lower => value.to_lowercase(),
            Operator::Default if value.is_empty() => given.concat(),
            Operator::Default => value.to_owned(),
            Operator::Substring => substring(value, first_or_none, second)?,
            Operator::TrimShortestPrefix => self.trimmed(value, first_or_none, false)?,
            Operator::TrimLongestPrefix => self.trimmed(value, first_or_none, true)?,
            Operator::TrimShortestSuffix => {
                reversed(&self.trimmed(&reversed(value), &reversed(first_or_none), false)?)
            }
            Operator::TrimLongestSuffix => {
                reversed(&self.trimmed(&reversed(value), &reversed(first_or_none), true)?)
            }
            Operator::ReplaceFirst => value.replacen(first_or_none, second.unwrap_or_default(), 1),
            Operator::ReplaceAll => self.replaced(value, first_or_none, second.unwrap_or_default())?,
            // Without a replacement, these two change nothing.
            Operator::ReplacePrefix => match second {
                Some(new) if value.starts_with(first_or_none) => value.replacen(first_or_none, new, 1),
                _ => value.to_owned(),
            },
            Operator::ReplaceSuffix => match (second, value.strip_suffix(first_or_none)) {
                (Some(new), Some(kept)) => format!("{kept}{new}"),
                _ => value.to_owned(),
            },
        })
    }

    fn replaced(&self, value: &str, old: &str, new: &str) -> Result<String, Limit> {
        let bytes = value.len().saturating_add(value.matches(old).count().saturating_mul(new.len()));
        if bytes > self.bytes_left.saturating_add(value.len()) {
            return Err(Limit::Bytes);
        }
        Ok(value.replace(old, new))
    }

    /// A value without the shortest or the longest beginning that a pattern matches.
    fn trimmed(&mut self, value: &str, pattern: &str, longest: bool) -> Result<String, Limit> {
        let (pattern, chars): (_, Vec<char>) = (Pattern::new(pattern), value.chars().collect());
        let mut matched = None;
        // The longest first, as Flux does: a malformed pattern shows itself at the same place.
        for end in (1..=chars.len()).rev() {
            self.work_left = self.work_left.checked_sub(end).ok_or(Limit::Work)?;
            match pattern.matches(&chars[..end]) {
                Err(BadPattern) => return Ok(value.to_owned()),
                Ok(true) => {
                    matched = Some(end);
                    if longest {
                        break;
                    }
                }
                Ok(false) => {}
            }
        }
        Ok(chars[matched.unwrap_or(0)..].iter().collect())
    }
}

fn first_changed(value: &str, change: impl Fn(char) -> String) -> String {
    let mut chars = value.chars();
    let first = chars.next().map(change).unwrap_or_default();
    first + chars.as_str()
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// A part of a value, by bytes. What is not a number leaves the value as it is.
fn substring(value: &str, position: &str, length: Option<&str>) -> Result<String, Limit> {
    let Ok(position) = position.parse::<i64>() else { return Ok(value.to_owned()) };
    let size = i64::try_from(value.len()).unwrap_or(i64::MAX);
    // From the end, but not before the beginning.
    let begin = if position < 0 { position.saturating_add(size).max(0) } else { position };
    let end = match length.map(str::parse::<i64>) {
        None => size,
        Some(Err(_)) => return Ok(value.to_owned()),
        // That many before the end.
        Some(Ok(length)) if length < 0 => size.saturating_add(length),
        Some(Ok(length)) => begin.saturating_add(length).min(size),
    };
    if begin >= end {
        return Ok(String::new());
    }
    let (begin, end) = (usize::try_from(begin).unwrap_or(0), usize::try_from(end).unwrap_or(0));
    value.get(begin..end).map(str::to_owned).ok_or(Limit::Character)
}
