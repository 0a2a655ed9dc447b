//! Resources of which nothing is stored: they are posted, and answered. What is asked is who one is and what one may do.

use serde_json::{Map, Value, json};

/// Kubernetes' group for who asks.
pub(crate) const AUTHENTICATION: &str = "authentication.k8s.io";
/// Kubernetes' group for what one may do.
pub(crate) const AUTHORIZATION: &str = "authorization.k8s.io";

/// Such a resource.
pub(crate) struct Question {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) asked: Asked,
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Whom the token stands for.
    WhoAmI,
    /// Whom a token stands for.
    WhoIsIt,
    /// Whether one may do something.
    MayI,
    /// What one may do.
    WhatMayI,
    /// Whether somebody may do something.
    MayThey,
    /// Whether somebody may do something in a namespace.
    MayTheyThere,
}

/// All of them.
pub(crate) static QUESTIONS: [Question; 6] = [
    Question {
        group: AUTHENTICATION,
        version: "v1",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind: "SelfSubjectReview",
        namespaced: false,
        asked: Asked::WhoAmI,
    },
    Question {
        group: AUTHENTICATION,
        version: "v1",
        plural: "tokenreviews",
        singular: "tokenreview",
        kind: "TokenReview",
        namespaced: false,
        asked: Asked::WhoIsIt,
    },
    Question {
        group: AUTHORIZATION,
        version: "v1",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind: "SelfSubjectAccessReview",
        namespaced: false,
        asked: Asked::MayI,
    },
    Question {
        group: AUTHORIZATION,
        version: "v1",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        kind: "SelfSubjectRulesReview",
        namespaced: false,
        asked: Asked::WhatMayI,
    },
    Question {
        group: AUTHORIZATION,
        version: "v1",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        kind: "SubjectAccessReview",
        namespaced: false,
        asked: Asked::MayThey,
    },
    Question {
        group: AUTHORIZATION,
        version: "v1",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        kind: "LocalSubjectAccessReview",
        namespaced: true,
        asked: Asked::MayTheyThere,
    },
];

/// Those of a group and version.
pub(crate) fn questions(group: &str, version: &str) -> impl Iterator<Item = &'static Question> {
    QUESTIONS.iter().filter(move |question| question.group == group && question.version == version)
}

/// The one that is posted to `path`, and in which namespace; empty for none.
pub(crate) fn at(path: &str) -> Option<(&'static Question, &str)> {
    let (group, version, namespace, plural) =
        match path.strip_prefix("/apis/")?.split('/').collect::<Vec<_>>()[..] {
            [group, version, plural] => (group, version, "", plural),
            // Names are DNS names, so nothing in them is ever percent-encoded.
            [group, version, "namespaces", namespace, plural]
                if !namespace.is_empty() && !namespace.contains('%') =>
            {
                (group, version, namespace, plural)
            }
            _ => return None,
        };
    let mut questions = questions(group, version);
    let question = questions
        .find(|question| question.plural == plural && question.namespaced != namespace.is_empty())?;
    Some((question, namespace))
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
            Asked::WhoIsIt => ("Whom a token stands for.", Some(reviewed()), whose()),
            Asked::MayI => (
                "Whether whoever asks may do something. Exactly one of resourceAttributes and nonResourceAttributes is given.",
                Some(access()),
                decision(),
            ),
            Asked::MayThey => (
                "Whether a user may do something. Exactly one of resourceAttributes and nonResourceAttributes is given.",
                Some(access_of_somebody()),
                decision(),
            ),
            Asked::MayTheyThere => {
                ("Whether a user may do something in the namespace.", Some(access_of_somebody()), decision())
            }
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

fn reviewed() -> Value {
    let token = json!({
        "token": text("The token."),
        "audiences": texts("For whom it has to be: for one of these. Without any, for the hub."),
    });
    object("What is asked about.", token)
}

fn whose() -> Value {
    let user = json!({
        "username": text("The user's name."), "uid": text("The user's uid."), "groups": texts("The user's groups."),
        "extra": {
            "type": "object", "description": "What else is known of the user.",
            "additionalProperties": texts("Values."),
        },
    });
    let good = json!({ "type": "boolean", "description": "Whether it stands for somebody." });
    object(
        "The answer.",
        json!({
            "authenticated": good, "user": object("Whom it stands for.", user),
            "audiences": texts("For whom it is, of those that were asked about."),
            "error": text("Why it stands for nobody."),
        }),
    )
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

fn access_of_somebody() -> Value {
    let mut spec = access();
    spec["properties"]["user"] = text("The user's name.");
    spec["properties"]["groups"] = texts("The user's groups.");
    spec["properties"]["uid"] = text("The user's uid.");
    spec["properties"]["extra"] = json!({
        "type": "object", "description": "What else is known of the user.",
        "additionalProperties": texts("Values."),
    });
    spec
}

fn decision() -> Value {
    let allowed = json!({ "type": "boolean", "description": "Whether it is allowed.", "default": false });
    let reason = text("By which binding, or which roles of the user's bindings do not exist.");
    let mut status = object("The answer.", json!({ "allowed": allowed, "reason": reason }));
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
            "evaluationError": text("Why there may be more."),
        }),
    )
}

#[cfg(test)]
mod tests {
    use roadstead_hub_core::identity::{Attributes, Identity, Resource};

    use super::{QUESTIONS, at};

    /// What is answered here without a look at who asks is what the rules let everyone do, and what they are told so.
    #[test]
    fn everyone_may_ask_and_is_told_so() {
        let nobody = Identity::user("nobody", vec!["system:authenticated".to_owned()]);
        for question in &QUESTIONS {
            let (group, resource) = (question.group, question.plural);
            let may = |verb| {
                nobody.may(&Attributes::Resource(Resource { verb, group, resource, ..Resource::default() }))
            };
            assert_eq!(may("create"), resource.starts_with("self"), "{resource}");
            assert!(!may("delete"), "{resource}");
        }
        for path in [
            "/api",
            "/api/v1",
            "/apis",
            "/apis/a/v1",
            "/openapi/v2",
            "/openapi/v3/api/v1",
            "/version",
            // Of these everybody is shown what they may see.
            "/fleet/v1/clusters",
            "/fleet/v1/changes",
        ] {
            assert!(nobody.may(&Attributes::Path { verb: "get", path }), "{path}");
            assert!(!nobody.may(&Attributes::Path { verb: "put", path }), "{path}");
        }
        for path in [
            "/metrics",
            "/fleet/v1",
            "/fleet/v1/clustersx",
            "/fleet/v1/tokens",
            "/fleet/v1/account-keys",
            "/fleet/v1/audit",
            "/fleet/v1/audit/check",
            "/apisx",
            "/",
        ] {
            assert!(!nobody.may(&Attributes::Path { verb: "get", path }), "{path}");
        }
    }

    #[test]
    fn paths_of_questions() {
        let at = |path: &str| at(path).map(|(question, namespace)| (question.kind, namespace.to_owned()));
        let of = |kind, namespace: &str| Some((kind, namespace.to_owned()));
        let group = "/apis/authorization.k8s.io/v1";
        assert_eq!(at(&format!("{group}/subjectaccessreviews")), of("SubjectAccessReview", ""));
        let local = format!("{group}/namespaces/a/localsubjectaccessreviews");
        assert_eq!(at(&local), of("LocalSubjectAccessReview", "a"));
        for none in [
            "localsubjectaccessreviews",
            "namespaces/a/subjectaccessreviews",
            "namespaces//localsubjectaccessreviews",
            "namespaces/a%2fb/localsubjectaccessreviews",
            "subjectaccessreviews/x",
        ] {
            assert_eq!(at(&format!("{group}/{none}")), None, "{none}");
        }
    }
}
