//! Which of many rules are for an image.
//!
//! The name of a rule is a regular expression, but nearly always one of plain characters and dots. Those names are kept in
//! a tree of characters, in which a dot leads on whatever the character is; only the rest is compiled.

use std::collections::HashMap;

use crate::budget::Budget;
use crate::pattern::{self, Pattern};

/// The names of rules.
pub(super) struct Rules {
    nodes: Vec<Node>,
    /// The node that each character leads to from a node.
    edges: HashMap<(usize, char), usize>,
    /// Names that are real regular expressions.
    patterns: Vec<(usize, Pattern)>,
}

#[derive(Default)]
struct Node {
    /// Where any character leads.
    any: Option<usize>,
    /// Rules whose names end here, in order.
    rules: Vec<usize>,
}

impl Rules {
    /// Compiles names; where one cannot be, tells which and why.
    pub(super) fn new<'n>(
        names: impl Iterator<Item = &'n str>,
        budget: &Budget,
    ) -> Result<Self, (usize, String)> {
        /// Of a character of a name in the tree, whose tables grow by doubling.
        const NODE: usize = 256;
        let mut out = Self { nodes: vec![Node::default()], edges: HashMap::new(), patterns: Vec::new() };
        for (rule, name) in names.enumerate() {
            budget.keep(name.len().saturating_mul(NODE)).map_err(|message| (rule, message))?;
            if name.chars().all(|c| c.is_ascii_alphanumeric() || "-_/:@.".contains(c)) {
                out.add(rule, name);
                continue;
            }
            let pattern = format!("^{name}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$");
            let pattern = pattern::compile(&pattern, name, budget)
                .map_err(|message| (rule, format!("name: {message}")))?;
            out.patterns.push((rule, pattern));
        }
        Ok(out)
    }

    fn add(&mut self, rule: usize, name: &str) {
        let mut at = 0;
        for c in name.chars() {
            let new = self.nodes.len();
            let next = if c == '.' {
                *self.nodes[at].any.get_or_insert(new)
            } else {
                *self.edges.entry((at, c)).or_insert(new)
            };
            if next == new {
                self.nodes.push(Node::default());
            }
            at = next;
        }
        self.nodes[at].rules.push(rule);
    }

    /// How much work it is to look for the rule of an image.
    pub(super) fn looks(&self) -> usize {
        self.patterns.len()
    }

    /// The first rule for an image, from one on.
    pub(super) fn first(&self, image: &str, from: usize) -> Option<usize> {
        let mut first: Option<usize> = None;
        self.walk(image, |rules| {
            let found = rules.get(rules.partition_point(|rule| *rule < from)).copied();
            first = [first, found].into_iter().flatten().min();
        });
        for (rule, pattern) in self.patterns.iter().skip_while(|(rule, _)| *rule < from) {
            if first.is_some_and(|first| first < *rule) {
                break;
            }
            if pattern.is_match(image) {
                return Some(*rule);
            }
        }
        first
    }

    /// Is the rule for the image?
    pub(super) fn is_match(&self, rule: usize, image: &str) -> bool {
        self.first(image, rule) == Some(rule)
    }

    /// Calls `see` with the rules of all names, each of which is the image but for its tag and digest.
    fn walk(&self, image: &str, mut see: impl FnMut(&[usize])) {
        let (mut here, mut next) = (vec![0], Vec::new());
        let ends = image.char_indices().map(|(i, c)| (i, Some(c))).chain([(image.len(), None)]);
        for (i, c) in ends {
            let mut is_end = None;
            for at in here.drain(..) {
                let node = &self.nodes[at];
                if !node.rules.is_empty() && *is_end.get_or_insert_with(|| is_tag_and_digest(&image[i..])) {
                    see(&node.rules);
                }
                let Some(c) = c else { continue };
                next.extend(node.any.filter(|_| c != '\n'));
                next.extend(self.edges.get(&(at, c)).copied());
            }
            if next.is_empty() {
                return;
            }
            std::mem::swap(&mut here, &mut next);
        }
    }
}

/// Is this what may follow a name?
fn is_tag_and_digest(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '{' | '}' | '-');
    let after = |mark: &str, text: &'_ str| -> usize {
        let Some(rest) = text.strip_prefix(mark) else { return 0 };
        text.len() - rest.trim_start_matches(word).len()
    };
    let rest = &text[after(":", text)..];
    after("@sha256:", rest) == rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_any_character_and_the_first_rule_counts() {
        let budget = Budget::new(&crate::Limits::default());
        let rules = Rules::new(["a.b/web", "a-b/web", "(a|b)", "b", ""].into_iter(), &budget).unwrap();
        let first = |image: &str, from| rules.first(image, from);
        assert_eq!(first("a-b/web:1@sha256:ab", 0), Some(0));
        assert_eq!(first("a-b/web", 1), Some(1));
        assert_eq!(first("a\nb/web", 0), None);
        assert_eq!(first("aäb/web:1", 0), Some(0));
        assert_eq!(first("b:1", 0), Some(2));
        assert_eq!(first("b:1", 3), Some(3));
        assert_eq!(first(":1", 0), Some(4));
        for other in ["a-b/web/c", "a-b/web:1:2", "a-b/web@md5:ab", "a-b/we", "c", "b@sha256:"] {
            assert_eq!(first(other, 0), (other == "b@sha256:").then_some(2), "{other}");
        }
        assert!(Rules::new(["a("].into_iter(), &budget).is_err());
    }
}
