//! Which objects differ from what was applied, and what an agent does not see or do.

use roadstead_model::{DriftState, DriftedObject, FieldDrift, FieldValues};

use super::{ConvertError, Result, key, list, messages, object, sized, text, texts};
use crate::limits::{
    MAX_CORRECTED_FIELDS, MAX_CORRECTED_MANAGERS, MAX_CORRECTED_NAME_BYTES, MAX_DRIFT_VALUE_BYTES,
    MAX_DRIFTED, MAX_REPORT_BYTES, MAX_UNWATCHED, bounded,
};
use crate::message::{AgentState, DriftReport, Unwatched};
use crate::v1;

impl From<DriftReport> for v1::DriftReport {
    fn from(report: DriftReport) -> Self {
        let DriftReport { key, objects, total } = report;
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        Self { key: Some(key.into()), objects: messages(objects), total }
    }
}

impl TryFrom<v1::DriftReport> for DriftReport {
    type Error = ConvertError;

    fn try_from(report: v1::DriftReport) -> Result<Self> {
        let objects: Vec<DriftedObject> = list("objects", report.objects, MAX_DRIFTED)?;
        let total = usize::try_from(report.total).unwrap_or(usize::MAX).max(objects.len());
        Ok(Self { key: key("key", report.key)?, objects, total })
    }
}

impl From<DriftedObject> for v1::DriftedObject {
    fn from(drifted: DriftedObject) -> Self {
        let DriftedObject { object, state, missing, managers, fields, corrected, message } = drifted;
        Self {
            object: Some(object.into()),
            state: v1::DriftState::from(state).into(),
            missing,
            managers: managers.iter().map(|name| bounded(name)).collect(),
            fields: messages(fields),
            corrected,
            message: cut(&message, MAX_REPORT_BYTES),
        }
    }
}

impl TryFrom<v1::DriftedObject> for DriftedObject {
    type Error = ConvertError;

    fn try_from(drifted: v1::DriftedObject) -> Result<Self> {
        let state = match drifted.state() {
            v1::DriftState::Reported => DriftState::Reported,
            v1::DriftState::Contended => DriftState::Contended,
            v1::DriftState::Failed => DriftState::Failed,
            v1::DriftState::Unspecified => return Err(ConvertError::Unknown { field: "state".to_owned() }),
        };
        let managers = drifted.managers;
        Ok(Self {
            object: object("object", drifted.object)?,
            state,
            missing: drifted.missing,
            managers: texts("managers", managers, MAX_CORRECTED_MANAGERS, MAX_CORRECTED_NAME_BYTES)?,
            fields: list("fields", drifted.fields, MAX_CORRECTED_FIELDS)?,
            corrected: drifted.corrected,
            message: text("message", sized("message", drifted.message, MAX_REPORT_BYTES)?)?,
        })
    }
}

impl From<DriftState> for v1::DriftState {
    fn from(state: DriftState) -> Self {
        match state {
            DriftState::Reported => Self::Reported,
            DriftState::Contended => Self::Contended,
            DriftState::Failed => Self::Failed,
        }
    }
}

impl From<FieldDrift> for v1::FieldDrift {
    fn from(field: FieldDrift) -> Self {
        let FieldDrift { path, values } = field;
        let told = values.is_some();
        let FieldValues { live, desired } = values.unwrap_or_default();
        let short = |value: Option<String>| value.map(|value| cut(&value, MAX_DRIFT_VALUE_BYTES));
        Self { path: cut(&path, MAX_CORRECTED_NAME_BYTES), told, live: short(live), desired: short(desired) }
    }
}

impl TryFrom<v1::FieldDrift> for FieldDrift {
    type Error = ConvertError;

    fn try_from(field: v1::FieldDrift) -> Result<Self> {
        let value = |name: &str, value: Option<String>| {
            value.map(|value| text(name, sized(name, value, MAX_DRIFT_VALUE_BYTES)?)).transpose()
        };
        let values =
            FieldValues { live: value("live", field.live)?, desired: value("desired", field.desired)? };
        let path = text("path", sized("path", field.path, MAX_CORRECTED_NAME_BYTES)?)?;
        Ok(Self { path, values: field.told.then_some(values) })
    }
}

impl From<AgentState> for v1::AgentState {
    fn from(state: AgentState) -> Self {
        let AgentState { paused, unwatched, total, corrected, watched } = state;
        let [total, corrected, watched] =
            [total, corrected, watched].map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        Self { paused, unwatched: messages(unwatched), total, corrected, watched }
    }
}

impl TryFrom<v1::AgentState> for AgentState {
    type Error = ConvertError;

    fn try_from(state: v1::AgentState) -> Result<Self> {
        let unwatched: Vec<Unwatched> = list("unwatched", state.unwatched, MAX_UNWATCHED)?;
        let [total, corrected, watched] = [state.total, state.corrected, state.watched]
            .map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let total = total.max(unwatched.len());
        Ok(Self { paused: state.paused, unwatched, total, corrected, watched })
    }
}

impl From<Unwatched> for v1::Unwatched {
    fn from(unwatched: Unwatched) -> Self {
        let Unwatched { what, account, why } = unwatched;
        let short = |text: &str| cut(text, MAX_CORRECTED_NAME_BYTES);
        Self { what: short(&what), account: short(&account.unwrap_or_default()), why: short(&why) }
    }
}

impl TryFrom<v1::Unwatched> for Unwatched {
    type Error = ConvertError;

    fn try_from(unwatched: v1::Unwatched) -> Result<Self> {
        let v1::Unwatched { what, account, why } = unwatched;
        let short = |name: &str, value: String| text(name, sized(name, value, MAX_CORRECTED_NAME_BYTES)?);
        let account = Some(short("account", account)?).filter(|account| !account.is_empty());
        Ok(Self { what: short("what", what)?, account, why: short("why", why)? })
    }
}

/// Plain text of at most so many bytes.
fn cut(text: &str, max: usize) -> String {
    let mut text = bounded(text);
    text.truncate(text.floor_char_boundary(max));
    text
}
