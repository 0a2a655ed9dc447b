//! Resources of which nothing is stored: they are posted, and answered. What is asked is who one is and what one may do.

use serde_json::{Map, Value, json};

/// Kubernetes' group for who asks.
pub(crate) const AUTHENTICATION: &str = "authentication.k8s.io";
/// Kubernetes' group for what one may do.
pub(crate) const AUTHORIZATION: &str = "authorization.k8s.io";

/// Such a resource; none is in a namespace.
pub(crate) struct Question {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) asked: Asked,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Whom the token stands for.
    WhoAmI,
    /// Whether one may do something.
    MayI,
    /// What one may do.
    WhatMayI,
}

/// All of them.
pub(crate) static QUESTIONS: [Question; 3] = [
    Question {
        group: AUTHENTICATION,
        version: "v1",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
        asked: Asked::WhoAmI,
    },
    Question {
        group: AUTHORIZATION,
        version: "v1",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        asked: Asked::MayI,
    },
    Question {
        group: AUTHORIZATION,
        version: "v1",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        kind: "SelfSubjectRulesReview",
        asked: Asked::WhatMayI,
    },
];

/// Those of a group and version.
pub(crate) fn questions(group: &str, version: &str) -> impl Iterator<Item = &'static Question> {
    QUESTIONS.iter().filter(move |question| question.group == group && question.version == version)
}

/// The one that is posted to `path`.
pub(crate) fn at(path: &str) -> Option<&'static Question> {
    let [group, version, plural] = path.strip_prefix("/apis/")?.split('/').collect::<Vec<_>>()[..] else {
        return None;
    };
    questions(group, version).find(|question| question.plural == plural)
}

impl Question {
    /// Its `apiVersion`.
    pub(crate) fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Its OpenAPI v3 schema, but for its metadata.
    pub(crate) fn schema(&self) -> Value {
        let (about, spec, status) = match self.asked {
            Asked::WhoAmI => ("The user that the request's token stands for.", None, who()),
            Asked::MayI => (
                "Whether whoever asks may do something. Exactly one of resourceAttributes and nonResourceAttributes is given.",
                Some(access()),
                decision(),
            ),
            Asked::WhatMayI => (
                "All that whoever asks may do.",
                Some(object("Where.", json!({ "namespace": text("The namespace to ask about.") }))),
                rules(),
            ),
        };
        let mut properties = Map::new();
        properties.insert("apiVersion".to_owned(), text("The versioned schema of this representation."));
        properties.insert("kind".to_owned(), text("The kind of this question."));
        let mut schema = object(about, Value::Null);
        if let Some(spec) = spec {
            schema["required"] = json!(["spec"]);
            properties.insert("spec".to_owned(), spec);
        }
        properties.insert("status".to_owned(), status);
        schema["properties"] = properties.into();
        schema
    }
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn texts(description: &str) -> Value {
    json!({ "type": "array", "description": description, "items": { "type": "string", "default": "" } })
}

fn object(description: &str, properties: Value) -> Value {
    let mut schema = json!({ "type": "object", "description": description });
    schema["properties"] = properties;
    schema
}

fn who() -> Value {
    let user = json!({ "username": text("The user's name."), "groups": texts("The user's groups.") });
    object("The answer.", json!({ "userInfo": object("Who asks.", user) }))
}

fn access() -> Value {
    let resource = json!({
        "namespace": text("Namespace of the object; empty for all, and for kinds that are in none."),
        "verb": text("get, list, watch, create, update, patch, delete, deletecollection, or * for all."),
        "group": text("API group, or * for all."),
        "version": text("API version, or * for all."),
        "resource": text("The kind's plural, or * for all."),
        "subresource": text("status, for one."),
        "name": text("Name of the object; empty for all."),
    });
    let path = json!({ "path": text("The path."), "verb": text("The HTTP method, in lower case.") });
    object(
        "What is asked about.",
        json!({
            "resourceAttributes": object("Something with objects.", resource),
            "nonResourceAttributes": object("Something with a path at which there are no objects.", path),
        }),
    )
}

fn decision() -> Value {
    let allowed = json!({ "type": "boolean", "description": "Whether it is allowed.", "default": false });
    let mut status = object("The answer.", json!({ "allowed": allowed }));
    status["required"] = json!(["allowed"]);
    status
}

fn rules() -> Value {
    let list = |description: &str, rule: Value| json!({ "type": "array", "description": description, "items": rule });
    let resources = json!({
        "verbs": texts("What may be done; * is all."), "apiGroups": texts("In which groups."),
        "resources": texts("With which resources."), "resourceNames": texts("With which objects; all where none is named."),
    });
    let paths = json!({
        "verbs": texts("HTTP methods, in lower case; * is all."), "nonResourceURLs": texts("At which paths."),
    });
    object(
        "The answer.",
        json!({
            "resourceRules": list("What may be done with objects.", object("A rule.", resources)),
            "nonResourceRules": list("What may be done at other paths.", object("A rule.", paths)),
            "incomplete": { "type": "boolean", "description": "Whether there may be more.", "default": false },
        }),
    )
}

#[cfg(test)]
mod tests {
    use roadstead_hub_core::identity::{Access, Identity};

    use super::QUESTIONS;

    /// What is answered here without a look at who asks is what the rules let everyone do, and what they are told so.
    #[test]
    fn everyone_may_ask_and_is_told_so() {
        let nobody = Identity { username: "nobody".to_owned(), groups: Vec::new(), impersonator: None };
        for question in &QUESTIONS {
            let (group, resource) = (question.group, question.plural);
            assert!(nobody.may(Access::Resource { verb: "create", group, resource }), "{resource}");
            assert!(!nobody.may(Access::Resource { verb: "delete", group, resource }), "{resource}");
        }
        for path in
            ["/api", "/api/v1", "/apis", "/apis/a/v1", "/openapi/v2", "/openapi/v3/api/v1", "/version"]
        {
            assert!(nobody.may(Access::Path { verb: "get", path }), "{path}");
        }
        for path in ["/metrics", "/fleet/v1/clusters", "/apisx", "/"] {
            assert!(!nobody.may(Access::Path { verb: "get", path }), "{path}");
        }
    }
}
