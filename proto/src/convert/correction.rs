//! What an agent corrected by itself, and what it tends.

use std::time::Duration;

use roadstead_model::{ApplierUid, FieldDrift};

use super::{ConvertError, Result, action, key, list, messages, object, texts};
use crate::limits::{
    MAX_CORRECTED, MAX_CORRECTED_FIELDS, MAX_CORRECTED_MANAGERS, MAX_CORRECTED_NAME_BYTES, MAX_TENDED,
    bounded,
};
use crate::message::{Corrected, Correction, Tended};
use crate::v1;

impl From<Correction> for v1::Correction {
    fn from(correction: Correction) -> Self {
        let Correction { key, ago, took, objects, forgotten } = correction;
        Self {
            key: Some(key.into()),
            ago_millis: u64::try_from(ago.as_millis()).unwrap_or(u64::MAX),
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            objects: messages(objects),
            forgotten,
        }
    }
}

impl TryFrom<v1::Correction> for Correction {
    type Error = ConvertError;

    fn try_from(correction: v1::Correction) -> Result<Self> {
        Ok(Self {
            key: key("key", correction.key)?,
            ago: Duration::from_millis(correction.ago_millis),
            took: Duration::from_micros(correction.micros),
            objects: list("objects", correction.objects, MAX_CORRECTED)?,
            forgotten: correction.forgotten,
        })
    }
}

impl From<Corrected> for v1::CorrectedObject {
    fn from(corrected: Corrected) -> Self {
        let Corrected { object, action, managers, fields } = corrected;
        let plain = |texts: Vec<String>| texts.iter().map(|text| bounded(text)).collect();
        Self {
            object: Some(object.into()),
            action: v1::Action::from(action).into(),
            managers: plain(managers),
            fields: fields.iter().map(|field| bounded(&field.path)).collect(),
            drift: messages(fields),
        }
    }
}

impl TryFrom<v1::CorrectedObject> for Corrected {
    type Error = ConvertError;

    fn try_from(corrected: v1::CorrectedObject) -> Result<Self> {
        let bytes = MAX_CORRECTED_NAME_BYTES;
        let mut fields: Vec<FieldDrift> = list("drift", corrected.drift, MAX_CORRECTED_FIELDS)?;
        if fields.is_empty() {
            // An agent that tells no values.
            let paths = texts("fields", corrected.fields, MAX_CORRECTED_FIELDS, bytes)?;
            fields.extend(paths.into_iter().map(|path| FieldDrift { path, values: None }));
        }
        Ok(Self {
            object: object("object", corrected.object)?,
            action: action("action", corrected.action)?,
            managers: texts("managers", corrected.managers, MAX_CORRECTED_MANAGERS, bytes)?,
            fields,
        })
    }
}

impl From<Tended> for v1::Tended {
    fn from(tended: Tended) -> Self {
        let texts = |uids: Vec<ApplierUid>| uids.iter().map(ToString::to_string).collect();
        Self { begun: texts(tended.begun), ended: texts(tended.ended) }
    }
}

impl TryFrom<v1::Tended> for Tended {
    type Error = ConvertError;

    fn try_from(tended: v1::Tended) -> Result<Self> {
        Ok(Self { begun: uids("begun", &tended.begun)?, ended: uids("ended", &tended.ended)? })
    }
}

fn uids(field: &str, uids: &[String]) -> Result<Vec<ApplierUid>> {
    if uids.len() > MAX_TENDED {
        let (field, length) = (field.to_owned(), uids.len());
        return Err(ConvertError::TooLong { field, length, unit: "entries", max: MAX_TENDED });
    }
    let parsed = uids.iter().map(|uid| uid.parse().map_err(|_| ConvertError::invalid(field, "not a uid")));
    parsed.collect()
}
