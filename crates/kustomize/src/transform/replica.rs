//! Numbers of replicas.

use crate::fieldspec::{Create, FieldSpec};
use crate::kustomization::Replica;
use crate::resources::Resources;
use crate::value::{TextStyle, Value};

/// Sets the number of replicas of the objects that have, or had, a name.
pub(super) fn apply(replica: &Replica, fields: &[FieldSpec], objects: &mut Resources) -> Result<(), String> {
    let name = replica.name.as_str();
    let mut found = false;
    for at in objects.by_name(name).to_vec() {
        let resource = objects.get_mut(at);
        for spec in fields {
            if !resource.all_ids().any(|id| &*id.name == name && spec.matches(&id.gvk)) {
                continue;
            }
            found = true;
            if !spec.matches(&resource.id().gvk) {
                continue;
            }
            let id = resource.id().clone();
            let result = resource.edit(|object| {
                spec.apply(object, Create::Scalar, &mut |value| match value {
                    Value::Map(_) | Value::List(_) => {
                        Err(format!("a number is needed, not {}", value.type_name()))
                    }
                    scalar => {
                        let count = Value::int(replica.count);
                        *scalar = match scalar {
                            // What was in quotes stays so.
                            Value::String(old) if old.kept_style() != TextStyle::Plain && !old.is_time() => {
                                Value::String(old.replaced(replica.count.to_string()))
                            }
                            _ => count,
                        };
                        Ok(())
                    }
                })
            });
            result.map_err(|message| format!("{id}: {message}"))?;
        }
    }
    if found {
        return Ok(());
    }
    let mut kinds: Vec<&str> = fields.iter().map(|spec| &*spec.kind).collect();
    let last = kinds.pop().unwrap_or("object");
    let kinds = if kinds.is_empty() { last.to_owned() } else { format!("{} or {last}", kinds.join(", ")) };
    Err(format!("no {kinds} has the name {name:?}"))
}
