//! OpenAPI v2 (Swagger 2.0), one document for all: older clients, and Terraform's, read it. Made from the documents of
//! v3, as JSON and in the protobuf form that Go clients ask for (gnostic's, whose field numbers these are).

use prost::Message;
use serde_json::{Map, Value, json};

/// The media types by which clients ask for the protobuf form: the older one is not a valid type, and the one that is
/// answered is.
pub(crate) const ASKED: [&str; 2] = ["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF];
/// The media type of the protobuf form.
pub(crate) const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The document made of those of v3.
pub(crate) fn document<'a>(documents: impl Iterator<Item = &'a Value>) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for document in documents {
        for (name, schema) in entries(&document["components"]["schemas"]) {
            definitions.entry(name.clone()).or_insert_with(|| converted(schema));
        }
        for (path, item) in entries(&document["paths"]) {
            paths.insert(path.clone(), path_item(item));
        }
    }
    json!({
        "swagger": "2.0", "info": { "title": "Roadstead", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths, "definitions": definitions,
    })
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A schema: references point elsewhere, and stand alone.
fn converted(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut out = Map::new();
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("allOf", Value::Array(one)) if one.len() == 1 => {
                        out.extend(
                            entries(&converted(&one[0])).map(|(key, value)| (key.clone(), value.clone())),
                        );
                    }
                    ("$ref", Value::String(to)) => {
                        out.insert(
                            "$ref".to_owned(),
                            to.replace("#/components/schemas/", "#/definitions/").into(),
                        );
                    }
                    // Of a reference's neighbours only the description is read.
                    ("default", _) => {}
                    _ => {
                        out.insert(key.clone(), converted(value));
                    }
                }
            }
            out.into()
        }
        Value::Array(items) => items.iter().map(converted).collect(),
        other => other.clone(),
    }
}

fn path_item(item: &Value) -> Value {
    let mut out = Map::new();
    for (key, value) in entries(item) {
        let converted = if key == "parameters" { parameters(value).into() } else { operation(value) };
        out.insert(key.clone(), converted);
    }
    out.into()
}

fn parameters(list: &Value) -> Vec<Value> {
    let list = list.as_array().into_iter().flatten();
    list.map(|parameter| {
        json!({
            "name": parameter["name"], "in": parameter["in"], "required": parameter["required"],
            "type": parameter["schema"]["type"], "uniqueItems": true,
        })
    })
    .collect()
}

fn operation(operation: &Value) -> Value {
    let mut out = operation.clone();
    let mut all = parameters(&operation["parameters"]);
    let body = &operation["requestBody"]["content"];
    let media_types: Vec<&String> = entries(body).map(|(media_type, _)| media_type).collect();
    if let Some((_, first)) = entries(body).next() {
        let schema = converted(&first["schema"]);
        all.push(json!({ "name": "body", "in": "body", "required": true, "schema": schema }));
    }
    out["consumes"] = if media_types.is_empty() { json!(["*/*"]) } else { json!(media_types) };
    out["produces"] = json!(["application/json"]);
    out["parameters"] = all.into();
    if let Some(responses) = out["responses"].as_object_mut() {
        for response in responses.values_mut() {
            if let Some(content) = response.as_object_mut().and_then(|fields| fields.remove("content")) {
                response["schema"] = converted(&content["application/json"]["schema"]);
            }
        }
    }
    if let Some(fields) = out.as_object_mut() {
        fields.remove("requestBody");
    }
    out
}

#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(string, tag = "1")]
    swagger: String,
    #[prost(message, optional, tag = "2")]
    info: Option<Info>,
    #[prost(message, optional, tag = "8")]
    paths: Option<Paths>,
    #[prost(message, optional, tag = "9")]
    definitions: Option<Schemas>,
}

#[derive(Clone, PartialEq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Paths {
    #[prost(message, repeated, tag = "2")]
    path: Vec<NamedPathItem>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedPathItem {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<PathItem>,
}

#[derive(Clone, PartialEq, Message)]
struct PathItem {
    #[prost(message, optional, tag = "2")]
    get: Option<Operation>,
    #[prost(message, optional, tag = "3")]
    put: Option<Operation>,
    #[prost(message, optional, tag = "4")]
    post: Option<Operation>,
    #[prost(message, optional, tag = "5")]
    delete: Option<Operation>,
    #[prost(message, optional, tag = "8")]
    patch: Option<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(string, tag = "5")]
    id: String,
    #[prost(string, repeated, tag = "6")]
    produces: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    consumes: Vec<String>,
    #[prost(message, repeated, tag = "8")]
    parameters: Vec<ParametersItem>,
    #[prost(message, repeated, tag = "13")]
    extensions: Vec<NamedAny>,
}

#[derive(Clone, PartialEq, Message)]
struct ParametersItem {
    #[prost(message, optional, tag = "1")]
    parameter: Option<Parameter>,
}

#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(message, optional, tag = "2")]
    not_in_body: Option<NonBodyParameter>,
}

#[derive(Clone, PartialEq, Message)]
struct NonBodyParameter {
    #[prost(message, optional, tag = "3")]
    query: Option<QueryParameter>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryParameter {
    #[prost(string, tag = "2")]
    place: String,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(string, tag = "6")]
    type_: String,
}

/// Definitions, and properties.
#[derive(Clone, PartialEq, Message)]
struct Schemas {
    #[prost(message, repeated, tag = "1")]
    named: Vec<NamedSchema>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedSchema {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Schema>,
}

#[derive(Clone, PartialEq, Message)]
struct Schema {
    #[prost(string, tag = "1")]
    reference: String,
    #[prost(string, tag = "2")]
    format: String,
    #[prost(string, tag = "4")]
    description: String,
    #[prost(string, tag = "13")]
    pattern: String,
    #[prost(string, repeated, tag = "19")]
    required: Vec<String>,
    #[prost(message, repeated, tag = "20")]
    choices: Vec<Any>,
    #[prost(message, optional, boxed, tag = "21")]
    additional: Option<Box<AdditionalProperties>>,
    #[prost(message, optional, tag = "22")]
    type_: Option<Type>,
    #[prost(message, optional, tag = "23")]
    items: Option<Items>,
    #[prost(message, optional, tag = "25")]
    properties: Option<Schemas>,
    #[prost(message, repeated, tag = "31")]
    extensions: Vec<NamedAny>,
}

#[derive(Clone, PartialEq, Message)]
struct AdditionalProperties {
    #[prost(message, optional, boxed, tag = "1")]
    schema: Option<Box<Schema>>,
}

#[derive(Clone, PartialEq, Message)]
struct Type {
    #[prost(string, repeated, tag = "1")]
    value: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Items {
    #[prost(message, repeated, tag = "1")]
    schema: Vec<Schema>,
}

#[derive(Clone, PartialEq, Message)]
struct NamedAny {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "2")]
    yaml: String,
}

/// The protobuf form of [`document`]'s.
pub(crate) fn protobuf(document: &Value) -> Vec<u8> {
    let paths = entries(&document["paths"]).map(|(name, item)| {
        let at = |method: &str| item.get(method).map(operation_message);
        NamedPathItem {
            name: name.clone(),
            value: Some(PathItem {
                get: at("get"),
                put: at("put"),
                post: at("post"),
                delete: at("delete"),
                patch: at("patch"),
            }),
        }
    });
    let info = Info { title: text(&document["info"]["title"]), version: text(&document["info"]["version"]) };
    let whole = Document {
        swagger: text(&document["swagger"]),
        info: Some(info),
        paths: Some(Paths { path: paths.collect() }),
        definitions: schemas(&document["definitions"]),
    };
    whole.encode_to_vec()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn extensions(object: &Value) -> Vec<NamedAny> {
    let own = entries(object).filter(|(key, _)| key.starts_with("x-"));
    // JSON is YAML.
    own.map(|(key, value)| NamedAny { name: key.clone(), value: Some(Any { yaml: value.to_string() }) })
        .collect()
}

fn operation_message(operation: &Value) -> Operation {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let queries = parameters.filter(|parameter| parameter["in"] == "query").map(|parameter| {
        let query = QueryParameter {
            place: "query".to_owned(),
            name: text(&parameter["name"]),
            type_: text(&parameter["type"]),
        };
        let parameter = Parameter { not_in_body: Some(NonBodyParameter { query: Some(query) }) };
        ParametersItem { parameter: Some(parameter) }
    });
    Operation {
        id: text(&operation["operationId"]),
        produces: texts(&operation["produces"]),
        consumes: texts(&operation["consumes"]),
        parameters: queries.collect(),
        extensions: extensions(operation),
    }
}

fn schemas(map: &Value) -> Option<Schemas> {
    let map = map.as_object()?;
    let named =
        map.iter().map(|(name, value)| NamedSchema { name: name.clone(), value: Some(schema(value)) });
    Some(Schemas { named: named.collect() })
}

fn schema(value: &Value) -> Schema {
    let additional = value.get("additionalProperties").filter(|additional| additional.is_object());
    let choices = value["enum"].as_array().into_iter().flatten();
    Schema {
        reference: text(&value["$ref"]),
        format: text(&value["format"]),
        description: text(&value["description"]),
        pattern: text(&value["pattern"]),
        required: texts(&value["required"]),
        choices: choices.map(|choice| Any { yaml: choice.to_string() }).collect(),
        additional: additional
            .map(|additional| Box::new(AdditionalProperties { schema: Some(Box::new(schema(additional))) })),
        type_: value["type"].as_str().map(|type_| Type { value: vec![type_.to_owned()] }),
        items: value.get("items").map(|items| Items { schema: vec![schema(items)] }),
        properties: schemas(&value["properties"]),
        extensions: extensions(value),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::Value;

    use super::{Document, protobuf};
    use crate::openapi::Documents;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let documents = Documents::new();
        let v2 = documents.v2();
        let mut found = Vec::new();
        references(&v2, &mut found);
        assert!(found.len() > 100);
        for reference in found {
            let name = reference.strip_prefix("#/definitions/").unwrap_or_else(|| panic!("{reference}"));
            assert!(v2["definitions"].get(name).is_some(), "{reference}");
        }
        let kustomization = &v2["definitions"]["io.fluxcd.toolkit.kustomize.v1.Kustomization"];
        assert_eq!(kustomization["properties"]["spec"]["required"][0], "interval");
    }

    #[test]
    fn the_protobuf_form_holds_the_same() {
        let documents = Documents::new();
        let decoded = Document::decode(protobuf(&documents.v2()).as_slice()).unwrap();
        let definitions = decoded.definitions.unwrap().named;
        assert_eq!(definitions.len(), documents.v2()["definitions"].as_object().unwrap().len());
        assert_eq!(decoded.paths.unwrap().path.len(), documents.v2()["paths"].as_object().unwrap().len());
    }
}
