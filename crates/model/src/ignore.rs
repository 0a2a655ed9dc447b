//! Which fields of which objects are left as they are on the cluster.

use serde::{Deserialize, Serialize};

/// Fields that whoever changed them on the cluster may keep, as an entry of `spec.ignore` says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IgnoreRule {
    /// JSON pointers: `/spec/replicas`, `/metadata/annotations/example.com~1note`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Which objects' fields; none means all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<IgnoreTarget>,
}

/// Which objects a rule is for: those that match all of this; what is absent or empty matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IgnoreTarget {
    /// A regular expression for the whole API group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// A regular expression for the whole API version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A regular expression for the whole kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// A regular expression for the whole name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A regular expression for the whole namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// A label selector over the labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// A label selector over the annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation_selector: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::IgnoreRule;

    #[test]
    fn what_is_not_said_is_left_out() {
        let text = r#"{"paths":["/spec/replicas"],"target":{"kind":"Deployment","labelSelector":"app=web"}}"#;
        let read: IgnoreRule = serde_json::from_str(text).unwrap();
        assert_eq!(read.target.as_ref().unwrap().label_selector.as_deref(), Some("app=web"));
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}
