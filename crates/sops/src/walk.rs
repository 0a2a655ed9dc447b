//! From encrypted to decrypted: every leaf in its order, and the MAC over all of them.

use aws_lc_rs::digest::{Context, SHA512};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::error::{Error, MacProblem, Place, ValueProblem};
use crate::keys::DataKey;
use crate::metadata::Metadata;
use crate::number;
use crate::tree::{Comment, Key, Map, Text, Value};
use crate::value::{START, open};

/// SHA-256 of `sops`, with which a hash over the encrypted values alone begins.
const ONLY_ENCRYPTED: [u8; 32] = [
    0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b, 0x0b,
    0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
];

/// Decrypts documents in place. Gives what is wrong with the MAC, if anything.
pub(crate) fn decrypt(
    documents: &mut [Map],
    metadata: &Metadata,
    key: &DataKey,
    watcher: &mut dyn Watcher,
) -> Result<Result<(), MacProblem>, Error> {
    let mut walk = Walk {
        metadata,
        key,
        hash: Context::new(&SHA512),
        document: 0,
        path: Vec::new(),
        steps: Vec::new(),
        watcher,
    };
    if metadata.mac_only_encrypted {
        walk.hash.update(&ONLY_ENCRYPTED);
    }
    for document in documents {
        walk.document += 1;
        walk.map(document, false).map_err(|error| by_shares(error, metadata))?;
    }
    Ok(compare(walk.hash, metadata, key))
}

/// Says of a value that does not open where else the reason may be.
fn by_shares(error: Error, metadata: &Metadata) -> Error {
    let groups = metadata.wrapped().groups().len();
    match error {
        Error::Value { place, problem: ValueProblem::NotAuthentic } if groups > 1 => {
            Error::Value { place, problem: ValueProblem::NotAuthenticByShares(groups) }
        }
        other => other,
    }
}

fn compare(hash: Context, metadata: &Metadata, key: &DataKey) -> Result<(), MacProblem> {
    if !metadata.has_mac() {
        return Err(MacProblem::Missing);
    }
    let additional = metadata.last_modified.seconds();
    let opened = open(metadata.mac.bytes(), key, additional.as_bytes());
    let Ok(Value::Text(expected)) = opened else { return Err(MacProblem::Unreadable) };
    let computed: String = hash.finish().as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    let computed = Zeroizing::new(computed);
    if computed.as_bytes().ct_eq(expected.bytes()).into() { Ok(()) } else { Err(MacProblem::Mismatch) }
}

/// Who wants to know what is found on the way.
pub(crate) trait Watcher {
    /// A value was decrypted.
    fn opened(&mut self, _steps: &[Step<'_>]) {}
    /// A value looks encrypted where the rules say that it is not.
    fn misplaced(&mut self, _place: Place) {}
}

/// Nobody does.
pub(crate) struct Nobody;

impl Watcher for Nobody {}

/// One step on the way to a leaf.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'m> {
    Name(&'m [u8]),
    /// Comments do not count.
    Index(usize),
}

/// The same, kept while what it leads to is walked.
enum OwnStep {
    Name(Vec<u8>),
    Index(usize),
}

struct Walk<'w> {
    metadata: &'w Metadata,
    key: &'w DataKey,
    hash: Context,
    document: usize,
    /// The names on the way, each ended by a colon. Positions in lists are not in it.
    path: Vec<u8>,
    steps: Vec<OwnStep>,
    watcher: &'w mut dyn Watcher,
}

/// The comments before an item, as far as they count.
#[derive(Default)]
struct Comments {
    matched: bool,
}

impl Walk<'_> {
    /// `matched`: does something on the way here match the rule?
    fn map(&mut self, items: &mut Map, matched: bool) -> Result<(), Error> {
        let mut before = Comments::default();
        for item in items {
            match &mut item.key {
                Key::Comment(comment) => match self.comment(comment, matched, &mut before)? {
                    Value::Comment(opened) => *comment = opened,
                    Value::Text(text) => *comment = Comment::new(text),
                    _ => return Err(self.wrong(ValueProblem::Conversion("a comment"))),
                },
                Key::Name(name) => {
                    let length = self.path.len();
                    self.path.extend_from_slice(name);
                    self.path.push(b':');
                    self.steps.push(OwnStep::Name(name.clone()));
                    let here = matched || before.matched || self.metadata.rule.matches_name(name);
                    self.value(&mut item.value, here, false)?;
                    self.steps.pop();
                    self.path.truncate(length);
                    before = Comments::default();
                }
            }
        }
        Ok(())
    }

    fn list(&mut self, items: &mut [Value], matched: bool) -> Result<(), Error> {
        let mut before = Comments::default();
        let mut index = 0;
        for item in items {
            if let Value::Comment(comment) = item {
                match self.comment(comment, matched, &mut before)? {
                    opened @ (Value::Comment(_) | Value::Text(_)) => *item = opened,
                    _ => return Err(self.wrong(ValueProblem::Conversion("a comment"))),
                }
            } else {
                self.steps.push(OwnStep::Index(index));
                self.value(item, matched || before.matched, true)?;
                self.steps.pop();
                before = Comments::default();
            }
            index += usize::from(!matches!(item, Value::Comment(_)));
        }
        Ok(())
    }

    fn value(&mut self, value: &mut Value, matched: bool, in_list: bool) -> Result<(), Error> {
        match value {
            Value::Null => return Ok(()),
            Value::Map(items) => return self.map(items, matched),
            Value::List(items) => return self.list(items, matched),
            _ => {}
        }
        let selected = self.metadata.rule.selects(matched);
        if selected {
            let Value::Text(text) = &*value else {
                return Err(self.wrong(ValueProblem::NotText(value.kind())));
            };
            let was_empty = text.bytes().is_empty();
            let opened =
                open(text.bytes(), self.key, self.additional()).map_err(|error| self.wrong(error))?;
            if matches!(opened, Value::Comment(_)) {
                if !in_list {
                    return Err(self.wrong(ValueProblem::Comment));
                }
            } else if !was_empty {
                self.tell();
            }
            *value = opened;
        } else if matches!(&*value, Value::Text(text) if text.bytes().starts_with(START)) {
            self.watcher.misplaced(Place::new(self.document, &self.path));
        }
        if selected || !self.metadata.mac_only_encrypted {
            self.hash(value);
        }
        Ok(())
    }

    /// Opens a comment, if it is one that was encrypted. One that does not open is one that never was.
    fn comment(&mut self, comment: &Comment, matched: bool, before: &mut Comments) -> Result<Value, Error> {
        let rule = &self.metadata.rule;
        let matches = rule.matches_comment(comment.text.bytes());
        let itself = matches && !rule.skips_itself();
        let selected = rule.selects(matched || before.matched || itself);
        before.matched |= matches;
        let same = || Value::Comment(comment.clone());
        if !selected {
            return Ok(same());
        }
        let opened = open(comment.text.bytes(), self.key, self.additional()).unwrap_or_else(|_| same());
        // SOPS lets what says that it is a string count, although it becomes a comment.
        self.hash(&opened);
        Ok(opened)
    }

    fn additional(&self) -> &[u8] {
        if self.path.is_empty() { b":" } else { &self.path }
    }

    fn wrong(&self, problem: ValueProblem) -> Error {
        Error::Value { place: Place::new(self.document, &self.path), problem }
    }

    fn tell(&mut self) {
        let steps: Vec<Step<'_>> = self
            .steps
            .iter()
            .map(|step| match step {
                OwnStep::Name(name) => Step::Name(name),
                OwnStep::Index(index) => Step::Index(*index),
            })
            .collect();
        self.watcher.opened(&steps);
    }

    fn hash(&mut self, value: &Value) {
        match value {
            Value::Text(text) => self.hash.update(text.bytes()),
            Value::Bool(true) => self.hash.update(b"True"),
            Value::Bool(false) => self.hash.update(b"False"),
            Value::Int(number) => self.hash.update(number.to_string().as_bytes()),
            Value::Float(number) => self.hash.update(number::plain(*number).as_bytes()),
            Value::Time(time) => self.hash.update(time.nanoseconds().as_bytes()),
            Value::Null | Value::Comment(_) | Value::Map(_) | Value::List(_) => {}
        }
    }
}

impl From<Text> for Value {
    fn from(text: Text) -> Self {
        Self::Text(text)
    }
}
