//! Strategic merge of a patch into an object, as kustomize does it.
//!
//! It differs from the API server's: new elements of a list come first, a null in the patch takes a field away also where
//! the patch adds what is around it, and the whole object is walked, so that empty nulls in it vanish too.
//!
//! kustomize works on the nodes of both, and changes both: what the patch adds is the patch's own node, directives go from the
//! patch as they are followed, and whatever comes by again finds it so. [`nodes`] keeps nodes apart that only look the same.

mod give;
mod keyed;
mod nodes;
mod pairwise;
mod place;
mod plain;
mod untouched;

use std::cmp::Ordering;

use super::tangle::Tangles;
use crate::budget::Budget;
use crate::schema::{Field, Type};
use crate::value::{Map, Value};
use nodes::{Kind, MapNode, NodeId, Nodes};

pub(super) use give::Merged;
pub(super) use place::{Hints, in_style, set_alone};

const DIRECTIVE: &str = "$patch";

/// Lists of which an element lacks a merge key that others have are compared pair by pair up to this length, and longer ones are
/// refused.
const MAX_PAIRWISE: usize = 512;

/// A schema may name so many keys for one list; Kubernetes' own have two at most. Each element is counted by all of them.
const MAX_KEYS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Directive {
    Merge,
    Replace,
    Delete,
}

/// Whether a patch as a whole is to replace its target: kustomize makes a new object to take the place of the old one, and then
/// forgets it.
pub(super) fn is_forgotten(patch: &Map) -> bool {
    patch.get(DIRECTIVE).and_then(Value::as_str) == Some("replace")
}

/// Merges a patch into an object of a type, of which nodes are tied together.
pub(super) fn merge<'m>(
    target: Value,
    patch: Value,
    of: Type<'m>,
    tangles: &Tangles,
    hints: &'m Hints<'m>,
    budget: &'m Budget,
) -> Result<Merged, String> {
    let mut merge = Merge { nodes: Nodes::new(hints, budget)?, hints, budget, found_again: 0 };
    let (own, new) = (merge.nodes.add(target, false), merge.nodes.add(patch, true));
    if !tangles.is_empty() {
        merge.nodes.may_share();
        merge.found_again = 1;
        merge.nodes.tie(own, tangles)?;
    }
    match merge.walk(Some(own), Some(new), &Field { merge_keys: None, of })? {
        Some(root) => merge.nodes.give_all(root),
        None => Ok(Merged::default()),
    }
}

/// A merge under way.
struct Merge<'m> {
    nodes: Nodes<'m>,
    hints: &'m Hints<'m>,
    budget: &'m Budget,
    /// Lists around of which an element may be found several times. One more where some of the object's nodes are tied together.
    found_again: usize,
}

impl<'m> Merge<'m> {
    /// Merges a node of the patch into one of the object. What comes of it may be either, or a new one; none for what is to
    /// go.
    fn walk(
        &mut self,
        own: Option<NodeId>,
        new: Option<NodeId>,
        field: &Field<'m>,
    ) -> Result<Option<NodeId>, String> {
        if self.found_again > 0 {
            // Otherwise each node is met once, and all were counted.
            self.budget.work(1)?;
        }
        let both = [own, new].into_iter().flatten();
        match both.map(|id| self.nodes.kind(id)).find(|kind| *kind != Kind::Null) {
            None | Some(Kind::Null | Kind::Map) => {
                self.check(own, new, Kind::Map, "a mapping")?;
                self.walk_map(own, new, field.of)
            }
            Some(Kind::List) => {
                self.check(own, new, Kind::List, "a list")?;
                self.nodes.set_style(own, new);
                match &field.merge_keys {
                    Some(keys) => self.walk_list(own, new, keys, field.of),
                    None => Ok(self.override_by(own, new)),
                }
            }
            Some(Kind::Scalar) => {
                self.check(own, new, Kind::Scalar, "a scalar")?;
                Ok(self.override_by(own, new))
            }
        }
    }

    /// Fails where one of the two is neither null nor of a kind.
    fn check(
        &self,
        own: Option<NodeId>,
        new: Option<NodeId>,
        wanted: Kind,
        name: &str,
    ) -> Result<(), String> {
        let misfit =
            |id: &NodeId| !matches!(self.nodes.kind(*id), Kind::Null) && self.nodes.kind(*id) != wanted;
        match new.filter(misfit).or(own.filter(misfit)) {
            Some(id) => {
                let found = self.nodes.type_name(id);
                Err(format!("the patch has {found} where the object has {name}"))
            }
            None => Ok(()),
        }
    }

    /// What the patch has, if it has something.
    fn override_by(&self, own: Option<NodeId>, new: Option<NodeId>) -> Option<NodeId> {
        match new {
            Some(new) => Some(new).filter(|new| !self.nodes.is_null(*new)),
            None => own,
        }
    }

    fn walk_map(
        &mut self,
        own: Option<NodeId>,
        new: Option<NodeId>,
        of: Type<'m>,
    ) -> Result<Option<NodeId>, String> {
        let nodes = &self.nodes;
        let text = |id, key: &str| nodes.field(id, key).and_then(Value::scalar_text).unwrap_or_default();
        let both = [own, new].into_iter().flatten();
        let of = of.or_object(both.map(|id| (text(id, "apiVersion"), text(id, "kind"))));
        if let (Some(id), None) = (own, new)
            && self.found_again == 0
            && let Some(value) = self.nodes.whole_mut(id)
            && untouched::leave(value, of, self.hints)?
        {
            return Ok(own);
        }
        self.nodes.set_style(own, new);
        let Some(map) = self.choose_map(own, new)? else { return Ok(None) };
        if !self.nodes.is_null(map) {
            self.walk_entries(map, new.filter(|new| !self.nodes.is_null(*new)), of)?;
        }
        Ok(Some(map))
    }

    /// The mapping that the other one is merged into. Where the object has nothing, that is the patch's own.
    fn choose_map(&mut self, own: Option<NodeId>, new: Option<NodeId>) -> Result<Option<NodeId>, String> {
        let own_map = own.filter(|own| !self.nodes.is_null(*own));
        let Some(new) = new else {
            return Ok(own_map.or(own.filter(|own| self.nodes.is_written_null(*own))));
        };
        if self.nodes.is_null(new) {
            return Ok(None);
        }
        Ok(match self.directive(new)? {
            Directive::Delete => None,
            Directive::Replace => Some(new),
            Directive::Merge => Some(own_map.unwrap_or(new)),
        })
    }

    /// Takes the directive out of a mapping of a patch.
    fn directive(&mut self, patch: NodeId) -> Result<Directive, String> {
        let Some(word) = self.nodes.field(patch, DIRECTIVE) else { return Ok(Directive::Merge) };
        let directive = read_directive(word)?;
        self.nodes.remove(patch, DIRECTIVE)?;
        Ok(directive)
    }

    /// Merges the entries of a mapping of the patch into another mapping, or into itself.
    fn walk_entries(&mut self, map: NodeId, new: Option<NodeId>, of: Type<'m>) -> Result<(), String> {
        let is_odd = |id: NodeId| self.nodes.is_odd(id);
        if is_odd(map) || new.is_some_and(is_odd) {
            return Err("a mapping key must be a string".into());
        }
        let itself = new == Some(map);
        let mut target = self.nodes.take_map(map)?;
        let other = new.filter(|_| !itself);
        let patch = other.map_or_else(|| Ok(MapNode::default()), |new| self.nodes.take_map(new))?;
        let before = target.entries.len();
        let mut out = Vec::with_capacity(before + patch.entries.len());
        let mut left = std::mem::take(&mut target.entries).into_iter().peekable();
        let mut right = patch.entries.iter().peekable();
        let mut gone = 0;
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let a = if order.is_le() { left.next() } else { None };
            let b = if order.is_ge() { right.next() } else { None };
            // Of equal keys of the patch, the first one counts.
            while right.next_if(|(key, _)| b.is_some_and(|(first, _)| first == key)).is_some() {}
            let b = if itself { a.as_ref() } else { b };
            let field = self.hints.field(of, a.as_ref().map(|(key, _)| key), b.map(|(key, _)| key));
            let (own, new) = (a.as_ref().map(|(_, id)| *id), b.map(|(_, id)| *id));
            let Some(key) = a.as_ref().or(b).map(|(key, _)| key.clone()) else { break };
            if itself {
                self.hints.stays(&key);
            }
            let merged = self.walk(own, new, &field).map_err(|message| within(&key, &message))?;
            match (own, merged) {
                (Some(own), Some(merged)) => {
                    self.set(own, merged)?;
                    out.push((key.clone(), own));
                }
                (None, Some(merged)) => {
                    self.nodes.set_alone(merged);
                    out.push((self.hints.bare(&key), merged));
                }
                (Some(_), None) => gone += 1,
                (None, None) => {}
            }
            // Of equal keys that stand there, the first one goes, and the others stay.
            while let Some(entry) = left.next_if(|(other, _)| *other == key) {
                out.push(entry);
            }
        }
        if gone > 0 || out.len() > before {
            target.check_own()?;
        }
        target.entries = out;
        self.nodes.put_map(map, target);
        if let Some(new) = other {
            self.nodes.put_map(new, patch);
        }
        Ok(())
    }

    /// Sets a field that is there to what came of it.
    fn set(&mut self, field: NodeId, merged: NodeId) -> Result<(), String> {
        if field == merged {
            self.nodes.set_alone(field);
            return Ok(());
        }
        self.nodes.overwrite(field, merged, self.found_again > 0)
    }

    fn walk_list(
        &mut self,
        own: Option<NodeId>,
        new: Option<NodeId>,
        keys: &[&str],
        of: Type<'m>,
    ) -> Result<Option<NodeId>, String> {
        let Some(list) = self.choose_list(own, new)? else { return Ok(None) };
        let new = new.filter(|new| !self.nodes.is_null(*new));
        self.nodes.expand(list)?;
        if let Some(new) = new {
            self.nodes.expand(new)?;
        }
        if self.nodes.len(list) == 0 && new.is_none_or(|new| self.nodes.len(new) == 0) {
            return Ok(Some(list));
        }
        // kustomize puts the elements into a list of its own.
        let items = self.join_lists(list, new, keys, of)?;
        Ok(Some(self.nodes.add_list(items)))
    }

    /// The list that the other one is merged into.
    fn choose_list(&mut self, own: Option<NodeId>, new: Option<NodeId>) -> Result<Option<NodeId>, String> {
        let Some(own) = own.filter(|own| !self.nodes.is_null(*own)) else { return Ok(new) };
        let Some(new) = new else { return Ok(Some(own)) };
        if self.nodes.is_null(new) {
            return Ok(None);
        }
        Ok(match self.list_directive(new)? {
            Directive::Delete => None,
            Directive::Replace => Some(new),
            Directive::Merge => Some(own),
        })
    }

    fn join_lists(
        &mut self,
        own: NodeId,
        new: Option<NodeId>,
        keys: &[&str],
        of: Type<'m>,
    ) -> Result<Vec<NodeId>, String> {
        if keys.is_empty() {
            return plain::join(self, own, new, of);
        }
        if keys.len() > MAX_KEYS {
            return Err(format!("a list is merged by more than {MAX_KEYS} keys"));
        }
        if let Some(keys) = keyed::used(&self.nodes, own, new, keys) {
            return keyed::join(self, own, new, &keys, of);
        }
        if self.nodes.len(own) + new.map_or(0, |new| self.nodes.len(new)) > MAX_PAIRWISE {
            let keys = keys.join(" and ");
            return Err(format!(
                "a list of more than {MAX_PAIRWISE} elements is merged by {keys}, and some of them lack one"
            ));
        }
        pairwise::join(self, own, new, keys, of)
    }

    /// The first element of a list that has a directive is for the whole list, if it is nothing else.
    fn list_directive(&mut self, patch: NodeId) -> Result<Directive, String> {
        self.nodes.expand(patch)?;
        let nodes = &self.nodes;
        let word = |id: NodeId| nodes.field(id, DIRECTIVE);
        let first = nodes.items(patch).iter().find_map(|id| Some((*id, word(*id)?)));
        let Some((_, first)) = first.filter(|(id, _)| nodes.len(*id) == 1) else {
            return Ok(Directive::Merge);
        };
        let directive = read_directive(first)?;
        // All elements that say the same go with it, and those with nothing in them.
        let stays = |id: NodeId| !nodes.is_null(id) && !nodes.is_empty_map(id) && word(id) != Some(first);
        let items = nodes.items(patch).iter().copied().filter(|id| stays(*id)).collect();
        self.nodes.set_items(patch, items);
        Ok(directive)
    }
}

/// A message about what is in a mapping, with the path to it.
fn within(key: &str, message: &str) -> String {
    match message.strip_prefix("in ") {
        Some(inner) => format!("in {key}.{inner}"),
        None => format!("in {key}: {message}"),
    }
}

fn read_directive(word: &Value) -> Result<Directive, String> {
    match word.as_str() {
        Some("merge") => Ok(Directive::Merge),
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        Some(_) => Err(format!("unknown {DIRECTIVE} directive (not merge, replace or delete)")),
        None => Err(format!("{DIRECTIVE} must be a string, not {}", word.type_name())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::schema::Schema;

    fn run(target: &Json, patch: &Json) -> Result<Json, String> {
        let schema = Schema::default();
        let of = schema.of_object("apps/v1", "Deployment");
        let (target, patch) = (Value::from_json(target), Value::from_json(patch));
        let budget = Budget::new(&crate::Limits::default());
        let hints = Hints::new(std::iter::empty());
        let merged = merge(target, patch, of, &Tangles::default(), &hints, &budget)?;
        Ok(merged.value.map_or(Json::Null, |value| value.to_json()))
    }

    fn pod(spec: &Json) -> Json {
        json!({"spec": {"template": {"spec": spec}}})
    }

    #[test]
    fn containers_merge_by_name_and_new_ones_come_first() {
        let merged = run(
            &pod(
                &json!({"containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]}]}),
            ),
            &pod(
                &json!({"containers": [{"name": "b"}, {"name": "a", "env": [{"name": "Y", "value": "2"}]}]}),
            ),
        );
        let env = json!([{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]);
        let want = pod(&json!({"containers": [{"name": "b"}, {"name": "a", "image": "a:1", "env": env}]}));
        assert_eq!(merged.unwrap(), want);
    }

    #[test]
    fn directives() {
        let target = || {
            pod(
                &json!({"containers": [{"name": "a"}, {"name": "b"}], "volumes": [{"name": "v", "emptyDir": {}}]}),
            )
        };
        let delete =
            run(&target(), &pod(&json!({"containers": [{"name": "a", "$patch": "delete"}]}))).unwrap();
        assert_eq!(delete["spec"]["template"]["spec"]["containers"], json!([{"name": "b"}]));
        let replace =
            run(&target(), &pod(&json!({"containers": [{"name": "c"}, {"$patch": "replace"}]}))).unwrap();
        assert_eq!(replace["spec"]["template"]["spec"]["containers"], json!([{"name": "c"}]));
        let gone = run(&target(), &pod(&json!({"volumes": null}))).unwrap();
        assert_eq!(gone["spec"]["template"]["spec"].get("volumes"), None);
        assert_eq!(run(&target(), &json!({"$patch": "delete"})).unwrap(), Json::Null);
        assert!(run(&target(), &json!({"spec": {"$patch": "frob"}})).is_err());
    }

    #[test]
    fn nulls_in_what_is_added_vanish() {
        let merged = run(&json!({"a": 1}), &json!({"b": {"c": null, "d": {"e": 1}}})).unwrap();
        assert_eq!(merged, json!({"a": 1, "b": {"d": {"e": 1}}}));
    }

    #[test]
    fn wrong_shapes_are_named() {
        let error =
            run(&json!({"spec": {"replicas": 1}}), &json!({"spec": {"replicas": {"x": 1}}})).unwrap_err();
        assert_eq!(error, "in spec.replicas: the patch has a mapping where the object has a scalar");
    }
}
