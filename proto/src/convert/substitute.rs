//! Variables and where they come from.

use std::collections::{BTreeMap, HashMap};

use roadstead_model::{FoundVariables, GivenVariables, Substitute, VariablesFrom, VariablesKind};
use zeroize::Zeroizing;

use super::{ConvertError, Result, dns, filled, list, messages, object_name, sized, words};
use crate::limits::{
    MAX_DNS_LABEL_BYTES, MAX_TEXT_BYTES, MAX_VARIABLE_BYTES, MAX_VARIABLE_OBJECTS, MAX_VARIABLES,
};
use crate::v1;

words!(kind: VariablesKind { ConfigMap, Secret });

impl From<Substitute> for v1::Substitute {
    fn from(substitute: Substitute) -> Self {
        let Substitute { always, lenient, namespace, variables, from } = substitute;
        let variables = variables.into_iter().collect();
        Self { always, lenient, namespace, variables, from: messages(from) }
    }
}

impl TryFrom<v1::Substitute> for Substitute {
    type Error = ConvertError;

    fn try_from(substitute: v1::Substitute) -> Result<Self> {
        let namespace = filled("namespace", substitute.namespace)?;
        let (mut count, mut bytes) = (0, 0);
        Ok(Self {
            always: substitute.always,
            lenient: substitute.lenient,
            namespace: dns("namespace", namespace, MAX_DNS_LABEL_BYTES)?,
            variables: values("variables", substitute.variables, &mut count, &mut bytes)?,
            from: list("from", substitute.from, MAX_VARIABLE_OBJECTS)?,
        })
    }
}

impl From<VariablesFrom> for v1::VariablesFrom {
    fn from(from: VariablesFrom) -> Self {
        let VariablesFrom { kind, name, optional, on_hub } = from;
        let kind = v1::VariablesKind::from(kind).into();
        Self { kind, name, optional, on_hub: on_hub.unwrap_or_default() }
    }
}

impl TryFrom<v1::VariablesFrom> for VariablesFrom {
    type Error = ConvertError;

    fn try_from(from: v1::VariablesFrom) -> Result<Self> {
        let on_hub = sized("on_hub", from.on_hub, MAX_TEXT_BYTES)?;
        Ok(Self {
            kind: kind("kind", from.kind)?,
            name: object_name("name", from.name)?,
            optional: from.optional,
            on_hub: Some(on_hub).filter(|on_hub| !on_hub.is_empty()),
        })
    }
}

impl From<GivenVariables> for v1::GivenVariables {
    fn from(given: GivenVariables) -> Self {
        let GivenVariables { kind, name, values } = given;
        // The message is encoded and gone; what it is encoded to is the link's.
        let values = values.into_iter().map(|(name, mut value)| (name, std::mem::take(&mut *value)));
        Self { kind: v1::VariablesKind::from(kind).into(), name, values: values.collect() }
    }
}

impl From<FoundVariables> for v1::FoundVariables {
    fn from(found: FoundVariables) -> Self {
        let FoundVariables { kind, name } = found;
        Self { kind: v1::VariablesKind::from(kind).into(), name }
    }
}

impl TryFrom<v1::FoundVariables> for FoundVariables {
    type Error = ConvertError;

    fn try_from(found: v1::FoundVariables) -> Result<Self> {
        Ok(Self { kind: kind("kind", found.kind)?, name: object_name("name", found.name)? })
    }
}

/// The variables that came with a dispatch, within the bounds of all of them.
pub(super) fn given(given: Vec<v1::GivenVariables>) -> Result<Vec<GivenVariables>> {
    if given.len() > MAX_VARIABLE_OBJECTS {
        let (length, max) = (given.len(), MAX_VARIABLE_OBJECTS);
        return Err(ConvertError::TooLong { field: "given".to_owned(), length, unit: "entries", max });
    }
    let (mut count, mut bytes) = (0, 0);
    let convert = |(index, given): (usize, v1::GivenVariables)| {
        let one = (|| {
            Ok(GivenVariables {
                kind: kind("kind", given.kind)?,
                name: object_name("name", given.name)?,
                values: values("values", given.values, &mut count, &mut bytes)?
                    .into_iter()
                    .map(|(name, value)| (name, Zeroizing::new(value)))
                    .collect(),
            })
        })();
        one.map_err(|error: ConvertError| error.within(&format!("given[{index}]")))
    };
    given.into_iter().enumerate().map(convert).collect()
}

fn values(
    field: &str,
    values: HashMap<String, String>,
    count: &mut usize,
    bytes: &mut usize,
) -> Result<BTreeMap<String, String>> {
    *count += values.len();
    *bytes += values.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let limits = [(*count, "entries", MAX_VARIABLES), (*bytes, "bytes", MAX_VARIABLE_BYTES)];
    if let Some((length, unit, max)) = limits.into_iter().find(|(length, _, max)| length > max) {
        return Err(ConvertError::TooLong { field: field.to_owned(), length, unit, max });
    }
    Ok(values.into_iter().collect())
}
