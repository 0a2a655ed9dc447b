//! Metadata in formats that know no nesting: `age__list_0__map_enc` stands for `age[0].enc`.

use std::collections::BTreeMap;

use crate::error::{Error, shown};
use crate::tree::{Item, Key, Map, Text, Value};

const MAP: &str = "__map_";
const LIST: &str = "__list_";

/// Something that is being put together.
enum Node {
    Leaf(Text),
    /// By name: in which order metadata stands does not matter.
    Map(BTreeMap<String, Self>),
    List(BTreeMap<usize, Self>),
}

/// One step on the way to a value.
enum Step<'t> {
    Name(&'t str),
    Index(usize),
}

/// Puts values together whose names are their paths. Lists have no gaps, and nothing is there twice.
pub(crate) fn unflatten(flat: Map, depth: usize) -> Result<Map, Error> {
    let mut root = Node::Map(BTreeMap::new());
    for item in flat {
        let Key::Name(name) = item.key else { continue };
        let Value::Text(text) = item.value else { continue };
        let name = String::from_utf8_lossy(&name).into_owned();
        let steps = steps(&name, depth)?;
        root = insert(root, &steps, text, &name)?;
    }
    match finish(root)? {
        Value::Map(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}

fn invalid(name: &str, why: &str) -> Error {
    Error::Metadata(format!("{:?} {why}", shown(name)))
}

/// The steps of a path, of which there may be so many: each reads what is left of it.
fn steps(path: &str, depth: usize) -> Result<Vec<Step<'_>>, Error> {
    let mut steps = Vec::new();
    let mut is_index = false;
    let mut rest = path;
    loop {
        let next = match (rest.find(MAP), rest.find(LIST)) {
            (Some(map), Some(list)) if map < list => Some((map, MAP)),
            (_, Some(list)) => Some((list, LIST)),
            (map, None) => map.map(|map| (map, MAP)),
        };
        let part = next.map_or(rest, |(at, _)| rest.get(..at).unwrap_or_default());
        if steps.len() == depth {
            return Err(Error::TooLarge { what: "levels of nesting", limit: depth });
        }
        steps.push(if is_index {
            let index = part.parse().map_err(|_| invalid(path, "has an index that is not a number"))?;
            Step::Index(index)
        } else {
            Step::Name(part)
        });
        let Some((at, separator)) = next else { return Ok(steps) };
        is_index = separator == LIST;
        rest = rest.get(at + separator.len()..).unwrap_or_default();
    }
}

/// A node with a value at the end of a path added to it.
fn insert(node: Node, steps: &[Step<'_>], text: Text, name: &str) -> Result<Node, Error> {
    let twice = || invalid(name, "is given twice, or is both a value and a container");
    let Some((step, rest)) = steps.split_first() else { return Ok(Node::Leaf(text)) };
    let fresh = || match rest.first() {
        Some(Step::Index(_)) => Node::List(BTreeMap::new()),
        Some(Step::Name(_)) => Node::Map(BTreeMap::new()),
        None => Node::Leaf(Text::default()),
    };
    match (node, step) {
        (Node::Map(mut items), Step::Name(key)) => {
            let inner = match items.remove(*key) {
                Some(_) if rest.is_empty() => return Err(twice()),
                Some(inner) => inner,
                None => fresh(),
            };
            items.insert((*key).to_owned(), insert(inner, rest, text, name)?);
            Ok(Node::Map(items))
        }
        (Node::List(mut items), Step::Index(index)) => {
            let inner = match items.remove(index) {
                Some(_) if rest.is_empty() => return Err(twice()),
                Some(inner) => inner,
                None => fresh(),
            };
            items.insert(*index, insert(inner, rest, text, name)?);
            Ok(Node::List(items))
        }
        _ => Err(twice()),
    }
}

fn finish(node: Node) -> Result<Value, Error> {
    match node {
        Node::Leaf(text) => Ok(Value::Text(text)),
        Node::Map(items) => {
            let items = items.into_iter().map(|(name, node)| Ok(Item::new(name, finish(node)?)));
            items.collect::<Result<_, _>>().map(Value::Map)
        }
        Node::List(items) => {
            let gap = items.keys().enumerate().any(|(expected, index)| expected != *index);
            if gap {
                return Err(Error::Metadata("a list has a missing index".into()));
            }
            items.into_values().map(finish).collect::<Result<_, _>>().map(Value::List)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Map, Error> {
        let flat = pairs.iter().map(|(name, text)| Item::new(*name, Value::text(*text))).collect();
        unflatten(flat, 10)
    }

    #[test]
    fn paths_become_maps_and_lists() {
        let map = of(&[("a__list_1__map_x", "2"), ("b", "3"), ("a__list_0__map_x", "1"), ("c__map_d", "4")]);
        let expected = vec![
            Item::new(
                "a",
                Value::List(vec![
                    Value::Map(vec![Item::new("x", Value::text("1"))]),
                    Value::Map(vec![Item::new("x", Value::text("2"))]),
                ]),
            ),
            Item::new("b", Value::text("3")),
            Item::new("c", Value::Map(vec![Item::new("d", Value::text("4"))])),
        ];
        assert_eq!(map.unwrap(), expected);
    }

    #[test]
    fn what_does_not_fit_together() {
        for pairs in [
            &[("a", "1"), ("a", "2")][..],
            &[("a__list_1", "1")],
            &[("a", "1"), ("a__map_b", "2")],
            &[("a__map_b", "2"), ("a", "1")],
            &[("a__list_0", "2"), ("a__map_b", "1")],
            &[("a__list_x", "2")],
            &[("a__list_0", "1"), ("a__list_0", "2")],
            &[("a__map_a__map_a__map_a__map_a__map_a__map_a__map_a__map_a__map_a__map_a", "deep")],
        ] {
            assert!(of(pairs).is_err(), "{pairs:?}");
        }
    }
}
