//! What Kubernetes' authentication and authorization APIs answer without storing anything: tokens of service accounts, who
//! asks, and what whoever asks may do.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use roadstead_api::FieldError;
use roadstead_hub_core::identity::{
    AccountTokenOrder, AllowedRules, Attributes, BoundObject, Decision, Identity, Resource, ReviewedToken,
};
use roadstead_hub_core::{Address, HubError};
use serde_json::{Value, json};

use crate::bodies::{Held, MAX_SMALL};
use crate::questions::{Asked, Question};
use crate::render::with_warnings;
use crate::{Api, request, status};

/// `apiVersion` of a TokenRequest.
const AUTHENTICATION: &str = "authentication.k8s.io/v1";

/// The body is of this kind, or does not say.
fn expect_kind(body: &Value, api_version: &str, kind: &str) -> Result<(), HubError> {
    for (field, want) in [("apiVersion", api_version), ("kind", kind)] {
        if !body[field].is_null() && body[field] != want {
            return Err(HubError::BadRequest(format!(
                "{field} in the body is {}, expected {want}",
                body[field]
            )));
        }
    }
    Ok(())
}

/// `POST …/serviceaccounts/NAME/token`
pub(crate) async fn token_request(
    api: &Api,
    who: &Identity,
    address: &Address,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, HubError> {
    who.authorize("create", address.kind.get(), "token", &address.namespace, &address.name)?;
    let Held { value: sent, _memory } = request::sent(&api.bodies, headers, body, MAX_SMALL).await?;
    let body = sent.value;
    expect_kind(&body, AUTHENTICATION, "TokenRequest")?;
    for (field, want) in [("name", &address.name), ("namespace", &address.namespace)] {
        let given = body["metadata"][field].as_str().unwrap_or_default();
        if !given.is_empty() && given != want {
            let why = format!("must match the service account {field} if specified");
            let cause = FieldError::invalid(format!("metadata.{field}"), &given.into(), why);
            let what = format!("TokenRequest.authentication.k8s.io \"{}\"", address.name);
            let error = HubError::Invalid { what, causes: vec![cause] };
            return Ok(status::response_about(&error, "TokenRequest", &address.name));
        }
    }
    let spec = &body["spec"];
    let lasts = request::seconds(&spec["expirationSeconds"], "spec.expirationSeconds")?;
    let bound = bound_object(&spec["boundObjectRef"])?;
    let order = AccountTokenOrder { audiences: texts(spec, "audiences")?, lasts, bound };
    let made = match api.hub.identity.create_account_token(who, address, order).await {
        Err(error @ HubError::Invalid { .. }) => {
            return Ok(status::response_about(&error, "TokenRequest", ""));
        }
        made => made?,
    };
    let seconds = made.lasts.as_secs();
    let shortened = lasts.filter(|asked| *asked > made.lasts).map(|asked| {
        let asked = asked.as_secs();
        format!("requested expiration of {asked} seconds shortened to {seconds} seconds")
    });
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": AUTHENTICATION,
        "metadata": {
            "name": address.name, "namespace": address.namespace, "creationTimestamp": rfc3339(api.hub.now()),
            "uid": made.account,
        },
        "spec": { "audiences": made.audiences, "expirationSeconds": seconds, "boundObjectRef": spec["boundObjectRef"] },
        "status": { "token": made.token.expose(), "expirationTimestamp": rfc3339(made.expires) },
    });
    Ok(with_warnings(StatusCode::CREATED, &answer, shortened.as_slice()))
}

/// What a token is to end with; none where nothing is said.
fn bound_object(reference: &Value) -> Result<Option<BoundObject>, HubError> {
    if reference.is_null() {
        return Ok(None);
    }
    if !reference.is_object() {
        return Err(HubError::BadRequest("spec: boundObjectRef must be an object".to_owned()));
    }
    Ok(Some(BoundObject {
        api_version: text(reference, "apiVersion")?,
        kind: text(reference, "kind")?,
        name: text(reference, "name")?,
        uid: text(reference, "uid")?,
    }))
}

/// A time as Kubernetes writes it.
fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A list of texts; none where it is not given.
fn texts(spec: &Value, field: &str) -> Result<Vec<String>, HubError> {
    match &spec[field] {
        Value::Null => Ok(Vec::new()),
        list => serde_json::from_value(list.clone())
            .map_err(|_| HubError::BadRequest(format!("spec: {field} must be a list of strings"))),
    }
}

/// Answers a question about who may do what; it was posted in this namespace, or in none.
pub(crate) async fn answer(
    api: &Api,
    (question, namespace): (&Question, &str),
    who: &Identity,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, HubError> {
    // About oneself everybody may ask whom the hub knows.
    let (group, resource) = (question.group, question.plural);
    who.authorize_resource(&Resource { verb: "create", group, resource, namespace, ..Resource::default() })?;
    let Held { value: mut body, _memory } = request::sent_or_nothing(&api.bodies, headers, body).await?;
    let api_version = question.api_version();
    expect_kind(&body, &api_version, question.kind)?;
    let spec = &body["spec"];
    let status = match question.asked {
        Asked::WhoAmI => json!({ "userInfo": user_info(who) }),
        Asked::WhoIsIt => reviewed(api, spec).await?,
        Asked::MayI => decision(&who.decide(&Asking::read(question, spec, None)?.attributes())),
        Asked::WhatMayI => {
            let namespace = text(spec, "namespace")?;
            if namespace.is_empty() {
                return Err(HubError::BadRequest("no namespace on request".to_owned()));
            }
            rules(who.rules(&namespace))
        }
        Asked::MayThey | Asked::MayTheyThere => {
            let there = question.namespaced.then_some(namespace);
            let asking = Asking::read(question, spec, there)?;
            let somebody = subject(api, question, spec).await?;
            decision(&somebody.decide(&asking.attributes()))
        }
    };
    let mut metadata = json!({});
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    let mut answer =
        json!({ "kind": question.kind, "apiVersion": api_version, "metadata": metadata, "status": status });
    if question.asked == Asked::WhoIsIt
        && body["spec"]["audiences"].as_array().is_some_and(Vec::is_empty)
        && let Some(spec) = body["spec"].as_object_mut()
    {
        spec.remove("audiences");
    }
    if question.asked != Asked::WhoAmI {
        answer["spec"] = body["spec"].take();
    }
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// Whom a token stands for.
async fn reviewed(api: &Api, spec: &Value) -> Result<Value, HubError> {
    let token = text(spec, "token")?;
    if token.is_empty() {
        return Err(HubError::BadRequest("token is required for TokenReview in authentication".to_owned()));
    }
    Ok(match api.hub.identity.review(&token, &texts(spec, "audiences")?).await? {
        ReviewedToken::Good { user, audiences } => {
            json!({ "authenticated": true, "user": user_info(&user), "audiences": audiences })
        }
        ReviewedToken::Bad(why) => json!({ "user": {}, "error": why }),
    })
}

fn user_info(who: &Identity) -> Value {
    let mut info = json!({ "username": who.username, "groups": who.groups });
    if !who.uid.is_empty() {
        info["uid"] = who.uid.as_str().into();
    }
    if !who.extra.is_empty() {
        info["extra"] = json!(who.extra);
    }
    info
}

fn decision(decision: &Decision) -> Value {
    let mut status = json!({ "allowed": decision.allowed });
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.as_str().into();
    }
    status
}

/// Whom a SubjectAccessReview is about.
async fn subject(api: &Api, question: &Question, spec: &Value) -> Result<Identity, HubError> {
    let user = text(spec, "user")?;
    let groups = texts(spec, "groups")?;
    if user.is_empty() && groups.is_empty() {
        let why = "at least one of user or group must be specified";
        return Err(invalid(question, FieldError::invalid("spec.user", &spec["user"], why)));
    }
    api.hub.identity.somebody(&user, groups).await
}

fn invalid(question: &Question, cause: FieldError) -> HubError {
    HubError::Invalid { what: format!("{}.{} \"\"", question.kind, question.group), causes: vec![cause] }
}

fn text(attributes: &Value, field: &str) -> Result<String, HubError> {
    let value = &attributes[field];
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None if value.is_null() => Ok(String::new()),
        None => Err(HubError::BadRequest(format!("spec: {field} must be a string"))),
    }
}

/// What is asked about.
enum Asking {
    Resource {
        verb: String,
        group: String,
        resource: String,
        subresource: String,
        namespace: String,
        name: String,
    },
    Path {
        verb: String,
        path: String,
    },
}

impl Asking {
    /// Reads the attributes of a spec; `there`: of something in this namespace.
    fn read(question: &Question, spec: &Value, there: Option<&str>) -> Result<Self, HubError> {
        let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
        match (resource.is_object(), path.is_object()) {
            (true, false) => {
                let namespace = text(resource, "namespace")?;
                if there.is_some_and(|there| there != namespace) {
                    let (field, value) = ("spec.resourceAttributes.namespace", &resource["namespace"]);
                    let why = "must match metadata.namespace";
                    return Err(invalid(question, FieldError::invalid(field, value, why)));
                }
                Ok(Self::Resource {
                    verb: text(resource, "verb")?,
                    group: text(resource, "group")?,
                    resource: text(resource, "resource")?,
                    subresource: text(resource, "subresource")?,
                    namespace,
                    name: text(resource, "name")?,
                })
            }
            (false, true) if there.is_some() => {
                let why = "disallowed on this kind of request";
                Err(invalid(question, FieldError::invalid("spec.nonResourceAttributes", path, why)))
            }
            (false, true) => Ok(Self::Path { verb: text(path, "verb")?, path: text(path, "path")? }),
            _ => {
                let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
                Err(invalid(question, FieldError::invalid("spec.resourceAttributes", resource, why)))
            }
        }
    }

    fn attributes(&self) -> Attributes<'_> {
        match self {
            Self::Resource { verb, group, resource, subresource, namespace, name } => {
                Attributes::Resource(Resource { verb, group, resource, subresource, namespace, name })
            }
            Self::Path { verb, path } => Attributes::Path { verb, path },
        }
    }
}

fn rules(allowed: AllowedRules) -> Value {
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in allowed.rules {
        if !rule.resources.is_empty() {
            let mut listed =
                json!({ "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources });
            if !rule.resource_names.is_empty() {
                listed["resourceNames"] = rule.resource_names.into();
            }
            resources.push(listed);
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({ "verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls }));
        }
    }
    let mut status = json!({
        "resourceRules": resources, "nonResourceRules": paths, "incomplete": allowed.incomplete,
    });
    if !allowed.error.is_empty() {
        status["evaluationError"] = allowed.error.into();
    }
    status
}
