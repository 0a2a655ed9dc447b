//! The verbs on resources.

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use roadstead_api::FieldError;
use roadstead_body::APPLY;
use roadstead_hub_core::HubError;
use roadstead_hub_core::identity::Identity;
use roadstead_hub_core::objects::{DeleteOptions, Deleted, Part, Written};
use roadstead_listener::Connection;
use roadstead_model::Action;
use serde_json::{Value, json};

use crate::bodies::{Held, MAX_BODY, MAX_SMALL};
use crate::list::ListWriter;
use crate::path::{Subresource, Target};
use crate::render::{Form, with_warnings};
use crate::request::{self, Query};
use crate::{Api, onboarding, review, status, watch};

fn invalid_options(cause: FieldError) -> HubError {
    HubError::Invalid { what: "PatchOptions.meta.k8s.io \"\"".to_owned(), causes: vec![cause] }
}

/// One request for a resource.
struct Call<'a> {
    api: &'a Api,
    who: &'a Identity,
    target: Target,
    query: Query,
    form: Form,
    parts: Parts,
}

pub(crate) async fn handle(api: &Api, who: &Identity, target: Target, request: Request) -> Response {
    let address = target.address.clone();
    let (parts, body) = request.into_parts();
    let answer = async {
        let query = Query::parse(&parts.uri)?;
        let form = Form::of(&parts.headers, &query);
        route(Call { api, who, target, query, form, parts }, body).await
    };
    match answer.await {
        Ok(response) => response,
        Err(error) => status::response(&error, Some(&address)),
    }
}

/// What may be done at a path of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    /// A list that goes on.
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// Makes a join token of a Cluster.
    JoinToken,
    /// Makes a token of a service account.
    Token,
    /// Confirms deletions.
    Confirm,
}

impl Verb {
    /// As RBAC knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create | Self::JoinToken | Self::Token | Self::Confirm => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// What is done at which paths, by subresource, whether one object is named, and method. A watch is a list that is asked to go
/// on.
pub(crate) const VERBS: [(Subresource, bool, &str, Verb); 14] = [
    (Subresource::None, false, "GET", Verb::List),
    (Subresource::None, false, "GET", Verb::Watch),
    (Subresource::None, false, "POST", Verb::Create),
    (Subresource::None, false, "DELETE", Verb::DeleteCollection),
    (Subresource::None, true, "GET", Verb::Get),
    (Subresource::None, true, "PUT", Verb::Update),
    (Subresource::None, true, "PATCH", Verb::Patch),
    (Subresource::None, true, "DELETE", Verb::Delete),
    (Subresource::Status, true, "GET", Verb::Get),
    (Subresource::Status, true, "PUT", Verb::Update),
    (Subresource::Status, true, "PATCH", Verb::Patch),
    (Subresource::JoinToken, true, "POST", Verb::JoinToken),
    (Subresource::Token, true, "POST", Verb::Token),
    (Subresource::Confirm, true, "POST", Verb::Confirm),
];

/// What a request asks to be done; none where the path does not have the method.
pub(crate) fn verb(target: &Target, method: &str, watch: bool) -> Option<Verb> {
    let (subresource, item) = (target.subresource, !target.address.name.is_empty());
    let mut found = VERBS.iter().filter(|(of, one, by, _)| (*of, *one, *by) == (subresource, item, method));
    let (.., verb) = found.find(|(.., verb)| match verb {
        Verb::List => !watch,
        Verb::Watch => watch,
        _ => true,
    })?;
    Some(*verb)
}

async fn route(call: Call<'_>, body: Body) -> Result<Response, HubError> {
    let address = &call.target.address;
    let method = call.parts.method.as_str();
    let Some(verb) = verb(&call.target, method, call.query.flag("watch")) else {
        return Ok(not_allowed());
    };
    let headers = &call.parts.headers;
    match verb {
        Verb::Get => call.get().await,
        Verb::List => call.list().await,
        Verb::Watch => call.watch().await,
        Verb::Create => call.create(body).await,
        Verb::Update => call.update(body).await,
        Verb::Patch => call.patch(body).await,
        Verb::Delete => call.delete(body).await,
        Verb::DeleteCollection => call.delete_collection(body).await,
        Verb::JoinToken => onboarding::join_token(call.api, call.who, address, headers, body).await,
        Verb::Token => review::token_request(call.api, call.who, address, headers, body).await,
        Verb::Confirm => call.confirm(body).await,
    }
}

fn not_allowed() -> Response {
    let message = "the server does not allow this method on the requested resource";
    status::simple(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
}

impl Call<'_> {
    async fn get(self) -> Result<Response, HubError> {
        let object = self.api.hub.objects.get_by(self.who, &self.target.address, self.subresource()).await?;
        Ok(Json(self.form.object(&self.target.address, object, self.api.hub.now())).into_response())
    }

    async fn list(self) -> Result<Response, HubError> {
        self.query.check_versions(false)?;
        let address = &self.target.address;
        let options = self.query.list_options(address.kind)?;
        let mut writer = ListWriter::new(address, self.form, self.api.hub.now(), self.api.bodies.answer());
        let each = |object| writer.push(object);
        let end = self.api.hub.objects.list_with(self.who, address, &options, each).await?;
        writer.finish(&end)
    }

    async fn watch(self) -> Result<Response, HubError> {
        self.query.check_versions(true)?;
        let settings = watch::Settings::read(&self.query, self.form)?;
        let options = self.query.list_options(self.target.address.kind)?;
        let connection = self.parts.extensions.get::<Connection>().cloned();
        watch::start(self.api, self.who, self.target.address, options, settings, connection).await
    }

    async fn create(self, body: Body) -> Result<Response, HubError> {
        let options = self.query.write_options(&self.parts.headers)?;
        self.in_a_namespace()?;
        self.may("create")?;
        let Held { value: sent, _memory } = self.sent(body).await?;
        let warnings = request::warnings(&sent, options.field_validation)?;
        let hub = &self.api.hub;
        let mut written = hub.objects.create(self.who, &self.target.address, sent.value, options).await?;
        written.warnings.extend(warnings);
        Ok(self.written(StatusCode::CREATED, written))
    }

    async fn update(self, body: Body) -> Result<Response, HubError> {
        let mut options = self.query.write_options(&self.parts.headers)?;
        options.part = self.part();
        self.may("update")?;
        let Held { value: sent, _memory } = self.sent(body).await?;
        let warnings = request::warnings(&sent, options.field_validation)?;
        let hub = &self.api.hub;
        let mut written = hub.objects.update(self.who, &self.target.address, sent.value, options).await?;
        written.warnings.extend(warnings);
        Ok(self.written(StatusCode::OK, written))
    }

    async fn patch(self, body: Body) -> Result<Response, HubError> {
        let mut options = self.query.write_options(&self.parts.headers)?;
        options.part = self.part();
        let form = request::media_type(&self.parts.headers);
        let force = self.query.get("force");
        let (hub, address) = (&self.api.hub, &self.target.address);
        self.may("patch")?;
        let bodies = &self.api.bodies;
        let written = if form == APPLY {
            if self.query.get("fieldManager").is_empty() {
                let cause = FieldError::required("fieldManager", "is required for apply patch");
                return Err(invalid_options(cause));
            }
            let Held { value: sent, _memory } = request::configuration(bodies, body).await?;
            let warnings = request::warnings(&sent, options.field_validation)?;
            let force = self.query.flag("force");
            let mut written = hub.objects.apply(self.who, address, sent.value, force, options).await?;
            written.warnings.extend(warnings);
            written
        } else {
            if !force.is_empty() {
                let why = "may not be specified for non-apply patch";
                return Err(invalid_options(FieldError::forbidden("force", why)));
            }
            let patch = request::patch(bodies, &self.parts.headers, body).await?;
            hub.objects.patch(self.who, address, &patch.value, options).await?
        };
        Ok(self.written(
            if written.action == Action::Created { StatusCode::CREATED } else { StatusCode::OK },
            written,
        ))
    }

    async fn delete(self, body: Body) -> Result<Response, HubError> {
        self.may("delete")?;
        let options = self.delete_options(body).await?;
        let address = &self.target.address;
        match self.api.hub.objects.delete(self.who, address, &options).await? {
            Deleted::Going(object) => Ok(self.shown(StatusCode::OK, object)),
            Deleted::Gone(object) => {
                let kind = address.kind.get();
                let mut details =
                    json!({ "name": address.name, "kind": kind.plural, "uid": object["metadata"]["uid"] });
                if !address.version.group.is_empty() {
                    details["group"] = address.version.group.into();
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                });
                Ok(Json(status).into_response())
            }
        }
    }

    /// A person's confirmation of deletions that wait for it.
    async fn confirm(self, body: Body) -> Result<Response, HubError> {
        let address = &self.target.address;
        let kind = address.kind.get();
        self.who.authorize("create", kind, "confirm", &address.namespace, &address.name)?;
        let Held { value: sent, _memory } =
            request::sent(&self.api.bodies, &self.parts.headers, body, MAX_SMALL).await?;
        let Some(digest) = sent.value["digest"].as_str() else {
            let why = "digest: want that of the deletions, as the object's Ready condition has it";
            return Err(HubError::BadRequest(why.to_owned()));
        };
        let answer = self.api.hub.delivery.confirm_deletion(self.who, address, digest).await?;
        Ok((StatusCode::CREATED, Json(answer)).into_response())
    }

    async fn delete_collection(self, body: Body) -> Result<Response, HubError> {
        self.in_a_namespace()?;
        self.may("deletecollection")?;
        let options = self.delete_options(body).await?;
        let address = &self.target.address;
        let selection = self.query.list_options(address.kind)?;
        let list = self.api.hub.objects.delete_all(self.who, address, &selection, &options).await?;
        let mut writer = ListWriter::new(address, self.form, self.api.hub.now(), self.api.bodies.answer());
        list.items.into_iter().for_each(|object| writer.push(object));
        writer.finish(&list.end)
    }

    /// Options come in the body or in the query.
    async fn delete_options(&self, body: Body) -> Result<DeleteOptions, HubError> {
        let Held { value: body, _memory } =
            request::sent_or_nothing(&self.api.bodies, &self.parts.headers, body).await?;
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let in_body = body["dryRun"].as_array().and_then(|list| list.first()).and_then(Value::as_str);
        Ok(DeleteOptions {
            dry_run: request::dry_run(in_body.unwrap_or(self.query.get("dryRun")))?,
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
        })
    }

    async fn sent(&self, body: Body) -> Result<Held<roadstead_body::Body>, HubError> {
        request::sent(&self.api.bodies, &self.parts.headers, body, MAX_BODY).await
    }

    /// Whoever may not do it is told so before anything of the body is read.
    fn may(&self, verb: &str) -> Result<(), HubError> {
        let address = &self.target.address;
        self.who.authorize(verb, address.kind.get(), self.subresource(), &address.namespace, &address.name)
    }

    /// To which part of the object a right is needed; empty is the object itself.
    fn subresource(&self) -> &'static str {
        if self.part() == Part::Status { "status" } else { "" }
    }

    /// Objects of namespaced kinds are made, and deleted in numbers, in one namespace.
    fn in_a_namespace(&self) -> Result<(), HubError> {
        let address = &self.target.address;
        if address.kind.get().namespaced() && address.namespace.is_empty() {
            return Err(HubError::BadRequest("the URL must name a namespace".to_owned()));
        }
        Ok(())
    }

    fn part(&self) -> Part {
        if self.target.subresource == Subresource::Status { Part::Status } else { Part::Main }
    }

    fn shown(&self, code: StatusCode, object: Value) -> Response {
        (code, Json(self.form.object(&self.target.address, object, self.api.hub.now()))).into_response()
    }

    fn written(&self, code: StatusCode, written: Written) -> Response {
        let object = self.form.object(&self.target.address, written.object, self.api.hub.now());
        with_warnings(code, &object, &written.warnings)
    }
}
