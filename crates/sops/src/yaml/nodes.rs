//! From a file's tree to what is written: comments go back to the values that they are about.

use zeroize::Zeroizing;

use super::scalars;
use crate::number;
use crate::tree::{Comment, Item, Key, Value};

/// What is written, with its comments. A comment has the signs of its lines.
#[derive(Default)]
pub(super) struct Node<'t> {
    pub(super) kind: Kind<'t>,
    pub(super) head: Zeroizing<Vec<u8>>,
    pub(super) line: Zeroizing<Vec<u8>>,
    pub(super) foot: Zeroizing<Vec<u8>>,
}

#[derive(Default)]
pub(super) enum Kind<'t> {
    #[default]
    Null,
    Scalar(scalars::Scalar<'t>),
    Sequence(Vec<Node<'t>>),
    Mapping(Vec<(Node<'t>, Node<'t>)>),
}

/// Comments that wait for what they are about.
#[derive(Default)]
struct Waiting<'t> {
    head: Vec<&'t Comment>,
    inline: Vec<&'t Comment>,
    /// Something was there already that comments can be about.
    begun: bool,
}

impl<'t> Waiting<'t> {
    fn add(&mut self, comment: &'t Comment) {
        if comment.inline { self.inline.push(comment) } else { self.head.push(comment) }
    }

    /// Gives what waits to the first item of what is in it, or to the item itself.
    fn begin(&mut self, around: &mut Zeroizing<Vec<u8>>, item: &mut Zeroizing<Vec<u8>>) {
        let head = join(&std::mem::take(&mut self.head));
        let place = if self.begun { item } else { around };
        prepend(head, place);
        self.begun = true;
    }

    fn take_inline(&mut self) -> Zeroizing<Vec<u8>> {
        join(&std::mem::take(&mut self.inline))
    }

    /// What is left when there are no more items.
    fn rest(mut self) -> Zeroizing<Vec<u8>> {
        let inline = std::mem::take(&mut self.inline);
        self.head.extend(inline);
        join(&self.head)
    }
}

fn join(comments: &[&Comment]) -> Zeroizing<Vec<u8>> {
    let length = comments.iter().map(|comment| comment.text.bytes().len() + 2).sum();
    let mut text = Zeroizing::new(Vec::with_capacity(length));
    for (index, comment) in comments.iter().enumerate() {
        text.extend_from_slice(if index == 0 { b"#" } else { b"\n#" });
        text.extend_from_slice(comment.text.bytes());
    }
    text
}

/// Puts a comment before another one.
fn prepend(mut head: Zeroizing<Vec<u8>>, place: &mut Zeroizing<Vec<u8>>) {
    if head.is_empty() {
        return;
    }
    if !place.is_empty() {
        head.push(b'\n');
        head.extend_from_slice(place);
    }
    *place = head;
}

/// What a map is written as.
pub(super) fn of_map(items: &[Item]) -> Node<'_> {
    let mut node = Node::default();
    let mut pairs: Vec<(Node<'_>, Node<'_>)> = Vec::new();
    let mut waiting = Waiting::default();
    for item in items {
        let name = match &item.key {
            Key::Comment(comment) => {
                waiting.add(comment);
                continue;
            }
            Key::Name(name) => name,
        };
        let mut key = Node { kind: Kind::Scalar(scalars::of_text(name)), ..Node::default() };
        waiting.begin(&mut node.head, &mut key.head);
        let mut value = of_value(&item.value);
        value.line = waiting.take_inline();
        pairs.push((key, value));
    }
    let rest = waiting.rest();
    match pairs.last_mut() {
        Some((last, _)) => last.foot = rest,
        None => node.head = rest,
    }
    node.kind = Kind::Mapping(pairs);
    node
}

fn of_list(items: &[Value]) -> Node<'_> {
    let mut node = Node::default();
    let mut nodes: Vec<Node<'_>> = Vec::new();
    let mut waiting = Waiting::default();
    for item in items {
        if let Value::Comment(comment) = item {
            waiting.add(comment);
            continue;
        }
        let mut item = of_value(item);
        waiting.begin(&mut node.head, &mut item.head);
        item.line = waiting.take_inline();
        nodes.push(item);
    }
    let rest = waiting.rest();
    match nodes.last_mut() {
        Some(last) => last.foot = rest,
        None => node.head = rest,
    }
    node.kind = Kind::Sequence(nodes);
    node
}

fn of_value(value: &Value) -> Node<'_> {
    let plain = |text: String| Node { kind: Kind::Scalar(scalars::plain(text)), ..Node::default() };
    match value {
        Value::Map(items) => of_map(items),
        Value::List(items) => of_list(items),
        Value::Text(text) => Node { kind: Kind::Scalar(scalars::of_text(text.bytes())), ..Node::default() },
        Value::Null | Value::Comment(_) => plain("null".to_owned()),
        Value::Bool(flag) => plain(flag.to_string()),
        Value::Int(number) => plain(number.to_string()),
        Value::Time(time) => plain(time.nanoseconds()),
        Value::Float(number) => plain(match number::general(*number, 'e').as_str() {
            "+Inf" => ".inf".to_owned(),
            "-Inf" => "-.inf".to_owned(),
            "NaN" => ".nan".to_owned(),
            other => other.to_owned(),
        }),
    }
}
