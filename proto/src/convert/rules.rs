//! Rules for kinds and fields: how health is told, and what is left as it is.

use roadstead_model::{HealthExpr, IgnoreRule, IgnoreTarget};

use super::{ConvertError, Result, filled, sized};
use crate::limits::{MAX_IGNORE_PATHS, MAX_TEXT_BYTES};
use crate::v1;

/// A text that may be absent; whoever uses it judges it.
fn optional(field: &str, text: String) -> Result<Option<String>> {
    Ok(Some(sized(field, text, MAX_TEXT_BYTES)?).filter(|text| !text.is_empty()))
}

impl From<HealthExpr> for v1::HealthExpr {
    fn from(rule: HealthExpr) -> Self {
        let HealthExpr { api_version, kind, in_progress, failed, current } = rule;
        let (in_progress, failed) = (in_progress.unwrap_or_default(), failed.unwrap_or_default());
        Self { api_version, kind, in_progress, failed, current }
    }
}

impl TryFrom<v1::HealthExpr> for HealthExpr {
    type Error = ConvertError;

    fn try_from(rule: v1::HealthExpr) -> Result<Self> {
        Ok(Self {
            api_version: sized("api_version", filled("api_version", rule.api_version)?, MAX_TEXT_BYTES)?,
            kind: sized("kind", rule.kind, MAX_TEXT_BYTES)?,
            in_progress: optional("in_progress", rule.in_progress)?,
            failed: optional("failed", rule.failed)?,
            current: sized("current", rule.current, MAX_TEXT_BYTES)?,
        })
    }
}

impl From<IgnoreRule> for v1::IgnoreRule {
    fn from(rule: IgnoreRule) -> Self {
        Self { paths: rule.paths, target: rule.target.map(Into::into) }
    }
}

impl TryFrom<v1::IgnoreRule> for IgnoreRule {
    type Error = ConvertError;

    fn try_from(rule: v1::IgnoreRule) -> Result<Self> {
        if rule.paths.len() > MAX_IGNORE_PATHS {
            let (length, max) = (rule.paths.len(), MAX_IGNORE_PATHS);
            return Err(ConvertError::TooLong { field: "paths".to_owned(), length, unit: "entries", max });
        }
        let paths = rule.paths.into_iter().map(|path| sized("paths", path, MAX_TEXT_BYTES));
        let target = rule.target.map(IgnoreTarget::try_from).transpose();
        Ok(Self {
            paths: paths.collect::<Result<_>>()?,
            target: target.map_err(|error| error.within("target"))?,
        })
    }
}

impl From<IgnoreTarget> for v1::IgnoreTarget {
    fn from(target: IgnoreTarget) -> Self {
        let IgnoreTarget { group, version, kind, name, namespace, label_selector, annotation_selector } =
            target;
        let text = Option::<String>::unwrap_or_default;
        Self {
            group: text(group),
            version: text(version),
            kind: text(kind),
            name: text(name),
            namespace: text(namespace),
            label_selector: text(label_selector),
            annotation_selector: text(annotation_selector),
        }
    }
}

impl TryFrom<v1::IgnoreTarget> for IgnoreTarget {
    type Error = ConvertError;

    fn try_from(target: v1::IgnoreTarget) -> Result<Self> {
        Ok(Self {
            group: optional("group", target.group)?,
            version: optional("version", target.version)?,
            kind: optional("kind", target.kind)?,
            name: optional("name", target.name)?,
            namespace: optional("namespace", target.namespace)?,
            label_selector: optional("label_selector", target.label_selector)?,
            annotation_selector: optional("annotation_selector", target.annotation_selector)?,
        })
    }
}
