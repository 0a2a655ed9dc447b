//! What Kubernetes' authentication and authorization APIs answer without storing anything: tokens of service accounts, who
//! asks, and what whoever asks may do.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use roadstead_api::FieldError;
use roadstead_hub_core::identity::{Access, Identity, Rules};
use roadstead_hub_core::{Address, HubError};
use serde_json::{Value, json};

use crate::bodies::{Held, MAX_SMALL};
use crate::questions::{Asked, Question};
use crate::{Api, request};

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
    let spec = &body["spec"];
    for field in ["audiences", "boundObjectRef"] {
        let given = !spec[field].is_null() && spec[field].as_array().is_none_or(|list| !list.is_empty());
        if given {
            return Err(HubError::BadRequest(format!(
                "spec.{field} is not supported: a token is for this hub, and ends with its service account"
            )));
        }
    }
    let lasts = request::seconds(&spec["expirationSeconds"], "spec.expirationSeconds")?;
    let made = api.hub.objects.create_account_token(who, address, lasts).await?;
    let answer = json!({
        "kind": "TokenRequest", "apiVersion": AUTHENTICATION,
        "metadata": { "name": address.name, "namespace": address.namespace },
        "spec": { "audiences": [], "expirationSeconds": spec["expirationSeconds"].as_u64().unwrap_or(3600), "boundObjectRef": null },
        "status": {
            "token": made.token.expose(),
            "expirationTimestamp": made.expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        },
    });
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// Answers a question of a client about itself.
pub(crate) async fn answer(
    api: &Api,
    question: &Question,
    who: &Identity,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, HubError> {
    let Held { value: mut body, _memory } = request::sent_or_nothing(&api.bodies, headers, body).await?;
    let api_version = question.api_version();
    expect_kind(&body, &api_version, question.kind)?;
    let status = match question.asked {
        Asked::WhoAmI => json!({ "userInfo": { "username": who.username, "groups": who.groups } }),
        Asked::MayI => json!({ "allowed": may(who, &body["spec"])? }),
        Asked::WhatMayI => rules(who.rules()),
    };
    let mut answer =
        json!({ "kind": question.kind, "apiVersion": api_version, "metadata": {}, "status": status });
    if question.asked != Asked::WhoAmI {
        answer["spec"] = body["spec"].take();
    }
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

/// Whether `who` may do what a SelfSubjectAccessReview asks about.
fn may(who: &Identity, spec: &Value) -> Result<bool, HubError> {
    fn text<'a>(attributes: &'a Value, field: &str) -> Result<&'a str, HubError> {
        let value = &attributes[field];
        match value.as_str() {
            Some(text) => Ok(text),
            None if value.is_null() => Ok(""),
            None => Err(HubError::BadRequest(format!("spec: {field} must be a string"))),
        }
    }
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_object(), path.is_object()) {
        (true, false) => {
            let (verb, group) = (text(resource, "verb")?, text(resource, "group")?);
            let (plural, subresource) = (text(resource, "resource")?, text(resource, "subresource")?);
            let whole = format!("{plural}/{subresource}");
            let resource = if subresource.is_empty() { plural } else { whole.as_str() };
            Ok(who.may(Access::Resource { verb, group, resource }))
        }
        (false, true) => Ok(who.may(Access::Path { verb: text(path, "verb")?, path: text(path, "path")? })),
        _ => Err(HubError::Invalid {
            what: "SelfSubjectAccessReview.authorization.k8s.io \"\"".to_owned(),
            causes: vec![FieldError::invalid(
                "spec.resourceAttributes",
                resource,
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )],
        }),
    }
}

fn rules(rules: &Rules) -> Value {
    let resources = rules.resources.iter().map(
        |(verb, group, resource)| json!({ "verbs": [verb], "apiGroups": [group], "resources": [resource] }),
    );
    let paths = rules.paths.iter().map(|(verb, path)| json!({ "verbs": [verb], "nonResourceURLs": [path] }));
    json!({
        "resourceRules": resources.collect::<Vec<_>>(), "nonResourceRules": paths.collect::<Vec<_>>(),
        "incomplete": false,
    })
}
