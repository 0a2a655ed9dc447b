//! Strategic merge of a patch into an object, as kustomize does it.
//!
//! It differs from the API server's: new elements of a list come first, a null in the patch takes a field away also where
//! the patch adds what is around it, and the whole object is walked, so that empty nulls in it vanish too.

mod keyed;
mod pairwise;
mod place;
mod plain;

use std::collections::HashMap;

use crate::budget::{Budget, Size};
use crate::schema::{Field, Type};
use crate::value::{List, Map, Str, Value};
use place::{At, fit, in_brackets_of, in_style, set_alone};

pub(super) use place::Hints;

const DIRECTIVE: &str = "$patch";

/// Lists that merge by several keys, or of which an element lacks the only key, are compared pair by pair up to this
/// length. In longer ones elements belong together when they agree in all keys, and one that lacks the only key is refused.
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

/// Merges; `None` where nothing is left.
pub(super) fn merge(
    target: Value,
    mut patch: Value,
    of: Type<'_>,
    hints: &Hints<'_>,
    budget: &Budget,
) -> Result<Option<Value>, String> {
    if patch.as_map().is_some_and(is_forgotten) {
        return Ok(Some(target));
    }
    walk(
        Some(target),
        Some(&mut patch),
        Field { merge_keys: None, of },
        At { brackets: false, shared: false, keep_patch: false, hints, budget },
    )
}

/// Merges a value of the patch into one of the object. kustomize changes the patch as well: directives go from what it comes
/// by, and what it adds it changes where it stands. That is left in `patch` where `At::keep_patch` asks for it.
fn walk(
    target: Option<Value>,
    patch: Option<&mut Value>,
    field: Field<'_>,
    at: At<'_>,
) -> Result<Option<Value>, String> {
    let both = [target.as_ref(), patch.as_deref()];
    let shape = both.into_iter().flatten().find(|value| !value.is_null());
    match shape {
        None | Some(Value::Map(_)) => {
            let of = field.of.or_object(both.into_iter().flatten());
            walk_map(target, patch, of, at)
        }
        Some(Value::List(_)) => match field.merge_keys {
            Some(keys) => walk_list(target, patch, &keys, field.of, at),
            None => Ok(match patch.map(|patch| at.take(patch)) {
                Some(Value::Null(_)) => None,
                Some(Value::List(patch)) => {
                    Some(Value::List(in_brackets_of(target.as_ref(), patch, at.brackets)))
                }
                Some(other) => return Err(mismatch("a list", &other)),
                None => target,
            }),
        },
        Some(_) => match patch.map(|patch| at.take(patch)) {
            Some(Value::Null(_)) => Ok(None),
            Some(other @ (Value::Map(_) | Value::List(_))) => Err(mismatch("a scalar", &other)),
            Some(patch) => Ok(Some(fit(in_style(target.as_ref(), patch), at.brackets))),
            None => Ok(target),
        },
    }
}

fn mismatch(wanted: &str, found: &Value) -> String {
    format!("the patch has {} where the object has {wanted}", found.type_name())
}

/// Takes the directive out of a mapping of a patch.
fn directive(patch: &mut Map) -> Result<Directive, String> {
    match patch.get(DIRECTIVE) {
        None => Ok(Directive::Merge),
        Some(Value::String(text)) => {
            let found = match &**text {
                "merge" => Directive::Merge,
                "replace" => Directive::Replace,
                "delete" => Directive::Delete,
                _ => return Err(format!("unknown {DIRECTIVE} directive (not merge, replace or delete)")),
            };
            patch.remove(DIRECTIVE);
            Ok(found)
        }
        Some(other) => Err(format!("{DIRECTIVE} must be a string, not {}", other.type_name())),
    }
}

fn walk_map(
    target: Option<Value>,
    patch: Option<&mut Value>,
    of: Type<'_>,
    at: At<'_>,
) -> Result<Option<Value>, String> {
    let mut shared = at.shared;
    let (target, patch) = match (target, patch) {
        // Nothing there yet: the patch is taken over, and walked over itself, so that its directives and nulls work.
        (own @ (None | Some(Value::Null(_))), Some(Value::Map(patch))) => match directive(patch)? {
            Directive::Delete => return Ok(None),
            Directive::Merge | Directive::Replace => {
                // What takes the place of a null is written as that was.
                patch.set_brackets(patch.brackets() && own.is_none());
                shared = true;
                (patch.clone(), Some(patch))
            }
        },
        (Some(Value::Null(form)), None) if !form.text().is_empty() => return Ok(Some(Value::Null(form))),
        (None | Some(Value::Null(_)), None | Some(Value::Null(_))) => return Ok(None),
        (Some(Value::Map(_)), Some(Value::Null(_))) => return Ok(None),
        (Some(Value::Map(target)), None) => (target, None),
        (Some(Value::Map(mut target)), Some(Value::Map(patch))) => match directive(patch)? {
            Directive::Delete => return Ok(None),
            Directive::Replace => {
                if !target.is_empty() {
                    patch.set_brackets(target.brackets());
                }
                shared = true;
                (patch.clone(), Some(patch))
            }
            Directive::Merge => {
                if shared {
                    target.remove(DIRECTIVE);
                }
                // One with nothing in it has brackets that say nothing.
                if target.is_empty() {
                    target.set_brackets(patch.brackets());
                }
                (target, Some(patch))
            }
        },
        (_, Some(other)) => return Err(mismatch("a mapping", other)),
        (Some(other), None) => return Err(mismatch("a mapping", &other)),
    };
    let Some(patch) = patch else {
        return walk_entries(target, &mut Map::new(), of, At { shared, ..at })
            .map(|map| Some(Value::Map(map)));
    };
    // What is left of a patch that became a part of the object is that part.
    let keep_patch = at.keep_patch && !shared;
    let map = walk_entries(target, patch, of, At { shared, keep_patch, ..at })?;
    if at.keep_patch && shared {
        patch.clone_from(&map);
    }
    Ok(Some(Value::Map(map)))
}

/// Both maps are sorted: one pass over the two.
fn walk_entries(target: Map, patch: &mut Map, of: Type<'_>, at: At<'_>) -> Result<Map, String> {
    if target.is_odd() || patch.is_odd() {
        return Err("a mapping key must be a string".into());
    }
    let own_brackets = target.brackets();
    let at = At { brackets: at.brackets || own_brackets, ..at };
    let mut out: Vec<(Str, Value)> = Vec::with_capacity(target.len() + patch.len());
    let mut left = target.into_entries().into_iter().peekable();
    let mut right = patch.values_mut().peekable();
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(*b),
        };
        let a = if order.is_le() { left.next() } else { None };
        let b = if order.is_ge() { right.next() } else { None };
        let field = at.hints.field(of, a.as_ref().map(|(key, _)| key), b.as_ref().map(|(key, _)| *key));
        let (key, a, b) = match (a, b) {
            (Some((key, a)), b) => (key, Some(a), b.map(|(_, b)| b)),
            (None, Some((key, b))) => (key.clone(), None, Some(b)),
            (None, None) => break,
        };
        if at.shared {
            at.hints.stays(&key);
        }
        let lone = a.is_none() || b.is_none();
        // Below a type without lists that merge, what the patch does not touch can only lose empty nulls.
        let merged = walk(a, b, field, at).map_err(|message| {
            if message.starts_with("in ") {
                message.replacen("in ", &format!("in {key}."), 1)
            } else {
                format!("in {key}: {message}")
            }
        })?;
        let later = at.hints.later(&key);
        match (merged, later) {
            (Some(value), []) => out.push((key, if lone { set_alone(value) } else { value })),
            // Only the first came to the object. Where the patch became a part of it, all did.
            (Some(value), _) => {
                let key = if at.shared { key } else { Str::from(&*key) };
                out.push((key, if lone { set_alone(value) } else { value }));
            }
            // What is taken out is the first, and the others stay.
            (None, [second, more @ ..]) if at.shared => {
                let key = if more.is_empty() { Str::from(&*key) } else { key };
                at.budget.put(Size::of(second), 0)?;
                out.push((key, fit(second.clone(), at.brackets)));
            }
            (None, _) => {}
        }
    }
    let mut out = Map::from_sorted(out);
    out.set_brackets(own_brackets);
    Ok(out)
}

fn walk_list(
    target: Option<Value>,
    patch: Option<&mut Value>,
    keys: &[&str],
    of: Type<'_>,
    at: At<'_>,
) -> Result<Option<Value>, String> {
    let mut shared = at.shared;
    let mut none = List::default();
    let (target, patch) = match (target, patch) {
        (None | Some(Value::Null(_)), Some(Value::List(patch))) => {
            // kustomize puts the elements into a list of its own.
            shared = true;
            let mut target = patch.clone();
            target.set_brackets(false);
            (target, patch)
        }
        (Some(Value::List(_)), Some(Value::Null(_))) => return Ok(None),
        (Some(Value::List(target)), None) => (target, &mut none),
        (Some(Value::List(mut target)), Some(Value::List(patch))) => match list_directive(patch)? {
            Directive::Delete => return Ok(None),
            Directive::Replace => {
                if !target.is_empty() {
                    patch.set_brackets(target.brackets());
                }
                shared = true;
                (patch.clone(), patch)
            }
            Directive::Merge => {
                // A directive that is gone from the one is gone from both.
                if shared && target.len() != patch.len() {
                    (*target).clone_from(patch);
                }
                if target.is_empty() {
                    target.set_brackets(patch.brackets());
                }
                (target, patch)
            }
        },
        (_, Some(other)) => return Err(mismatch("a list", other)),
        (Some(other), None) => return Err(mismatch("a list", &other)),
        (None, None) => return Ok(None),
    };
    let own_brackets = target.brackets();
    let at = At { brackets: at.brackets || own_brackets, shared, ..at };
    let mut list = List::from(join_lists(target.into_vec(), patch, keys, of, at)?);
    list.set_brackets(own_brackets);
    Ok(Some(Value::List(list)))
}

fn join_lists(
    target: Vec<Value>,
    patch: &mut Vec<Value>,
    keys: &[&str],
    of: Type<'_>,
    at: At<'_>,
) -> Result<Vec<Value>, String> {
    match keys {
        [] => plain::join(target, patch, of, at),
        keys if keys.len() > MAX_KEYS => Err(format!("a list is merged by more than {MAX_KEYS} keys")),
        [key] if keyed::all_have(key, &target) && keyed::all_have(key, patch) => {
            keyed::join(target, patch, key, of, at)
        }
        _ if target.len() + patch.len() <= MAX_PAIRWISE => pairwise::join(target, patch, keys, of, at),
        [key] => Err(format!(
            "a list of more than {MAX_PAIRWISE} elements is merged by {key}, and some of them have none"
        )),
        _ => join(target, patch, keys, of, at),
    }
}

/// The first element of a list that has a directive is for the whole list, if it is nothing else.
fn list_directive(patch: &mut List) -> Result<Directive, String> {
    let first = patch.iter().find_map(|item| Some((item.as_map()?, item.as_map()?.get(DIRECTIVE)?)));
    let Some((map, word)) = first.filter(|(map, _)| map.len() == 1) else { return Ok(Directive::Merge) };
    let (mut map, word) = (map.clone(), word.clone());
    // All elements that say the same go with it, and those with nothing in them.
    patch.retain(|item| match item {
        Value::Null(_) => false,
        Value::Map(map) => !map.is_empty() && map.get(DIRECTIVE) != Some(&word),
        _ => true,
    });
    directive(&mut map)
}

/// The values of the merge keys of an element; `None` for one that has none of them.
fn key_of(item: &Value, keys: &[&str]) -> Option<Vec<Option<Str>>> {
    let map = item.as_map()?;
    let values: Vec<_> = keys.iter().map(|key| map.get(key).and_then(Value::scalar_text)).collect();
    values.iter().any(Option::is_some).then_some(values)
}

/// Joins two lists by key. Elements of the patch come first, in their order; then the rest of the object's.
fn join(
    target: Vec<Value>,
    patch: &mut [Value],
    keys: &[&str],
    of: Type<'_>,
    at: At<'_>,
) -> Result<Vec<Value>, String> {
    let element = || Field { merge_keys: None, of };
    let mut slots: Vec<(Option<Value>, Option<Value>)> = Vec::with_capacity(target.len() + patch.len());
    let mut by_key: HashMap<Vec<Option<Str>>, usize> = HashMap::new();
    let mut loose = Vec::new();
    let patch = patch.iter_mut().map(|item| (at.take(item), true));
    for (item, from_patch) in patch.chain(target.into_iter().map(|item| (item, false))) {
        let Some(key) = key_of(&item, keys) else {
            // kustomize finds no way to apply an element without its key, and leaves it out.
            if !from_patch {
                loose.push(item);
            }
            continue;
        };
        let place = *by_key.entry(key).or_insert_with(|| {
            slots.push((None, None));
            slots.len() - 1
        });
        let slot = if from_patch { &mut slots[place].1 } else { &mut slots[place].0 };
        // Of several elements with one key the first is patched, and the last of the object's own stays.
        match slot {
            None => *slot = Some(item),
            Some(_) if from_patch => {}
            Some(kept) => *kept = item,
        }
    }
    let mut out = Vec::with_capacity(slots.len() + loose.len());
    for (target, mut patch) in slots {
        match walk(target, patch.as_mut(), element(), at)? {
            Some(Value::Map(map)) if map.is_empty() => {}
            Some(value) => out.push(value),
            None => {}
        }
    }
    out.append(&mut loose);
    Ok(out)
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
        let merged = merge(target, patch, of, &Hints::new(std::iter::empty()), &budget)?;
        Ok(merged.map_or(Json::Null, |value| value.to_json()))
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
