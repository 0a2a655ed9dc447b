//! One Kubernetes object, as Flux decrypts it after a build.
//!
//! Either the object is encrypted as a whole, which its field `sops` shows, or it is a Secret with values that are encrypted files.
//! The MAC of an object is not looked at: a build may have changed the object since it was encrypted. A file in a Secret is whole.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map as JsonMap, Number, Value as Json};

use crate::error::{Error, MacProblem, Place};
use crate::keys::{DataKey, DataKeys};
use crate::metadata::{Metadata, NAME};
use crate::tree::{Item, Key, Map, Value};
use crate::walk::{self, Step, Watcher};
use crate::{Format, Limits, MacPolicy, Options, decrypt, number, read_metadata};

/// Says `disabled` where an object is to stay as it is.
const ANNOTATION: &str = "kustomize.toolkit.fluxcd.io/decrypt";

/// What an object became. What is secret of it is in the object: it is for the caller not to show it.
#[derive(Clone, PartialEq)]
pub struct DecryptedObject {
    /// The object.
    pub object: Json,
    /// JSON pointers to the values that were decrypted. Empty where nothing was.
    pub secret: Vec<String>,
    /// The fields of a Secret whose files were decrypted although they may have been changed, with what is wrong with their MACs.
    pub warnings: Vec<(String, MacProblem)>,
}

impl DecryptedObject {
    fn unchanged(object: Json) -> Self {
        Self { object, secret: Vec::new(), warnings: Vec::new() }
    }
}

impl std::fmt::Debug for DecryptedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DecryptedObject({} secret values)", self.secret.len())
    }
}

/// Why an object was not decrypted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{error}", field.as_ref().map(|field| format!("field {field:?} of data: ")).unwrap_or_default())]
pub struct ObjectError {
    /// The value of a Secret that is an encrypted file.
    pub field: Option<String>,
    /// What is wrong.
    pub error: Error,
}

impl From<Error> for ObjectError {
    fn from(error: Error) -> Self {
        Self { field: None, error }
    }
}

/// What of an object is encrypted.
enum Encrypted<'o> {
    Nothing,
    /// All of it, by its own metadata.
    Object,
    /// Values of `data`, with what they decode to and how that is read.
    Files(Vec<(&'o str, Vec<u8>, Format)>),
}

/// Decrypts an object. One that is not encrypted is given back. `mac` is for files in a Secret.
///
/// # Errors
/// What says that it is encrypted does not open, or it is a Secret that has metadata and is not encrypted, which an apiserver must not get.
pub fn decrypt_object(
    object: Json,
    mac: MacPolicy,
    limits: &Limits,
    keys: &(impl DataKeys + ?Sized),
) -> Result<DecryptedObject, ObjectError> {
    if is_left_encrypted(&object) {
        return Ok(DecryptedObject::unchanged(object));
    }
    match encrypted(&object, limits) {
        Encrypted::Object => {
            let (mut documents, metadata) = read(&object, limits)?;
            let key = keys.data_key(metadata.wrapped()).map_err(Error::from)?;
            open(&mut documents, &metadata, &key).map_err(ObjectError::from)
        }
        Encrypted::Files(files) => {
            let (mut opened, mut warnings) = (Vec::new(), Vec::new());
            for (field, bytes, format) in files {
                let options = Options { input: format, output: output_format(field), mac, limits: *limits };
                let file = decrypt(&bytes, &options, keys)
                    .map_err(|error| ObjectError { field: Some(crate::error::shown(field)), error })?;
                warnings.extend(file.warning.map(|problem| (crate::error::shown(field), problem)));
                opened.push((field.to_owned(), STANDARD.encode(&file.bytes)));
            }
            Ok(DecryptedObject { warnings, ..with_files(object, opened) })
        }
        Encrypted::Nothing
            if is_secret(&object)
                && object.get("apiVersion") == Some(&"v1".into())
                && object.get(NAME).is_some() =>
        {
            let message = "it is a Secret with sops metadata that has no MAC, so it does not count as encrypted: it is not applied as it is";
            Err(Error::Refused(message.into()).into())
        }
        Encrypted::Nothing => Ok(DecryptedObject::unchanged(object)),
    }
}

/// Reads what an object says about its encryption: its own metadata, or that of each encrypted file in a Secret, with the name of its
/// field. Nothing where it is not encrypted.
///
/// # Errors
/// It says something that is not valid.
pub fn object_metadata(
    object: &Json,
    limits: &Limits,
) -> Result<Vec<(Option<String>, Metadata)>, ObjectError> {
    if is_left_encrypted(object) {
        return Ok(Vec::new());
    }
    match encrypted(object, limits) {
        Encrypted::Nothing => Ok(Vec::new()),
        Encrypted::Object => Ok(vec![(None, read(object, limits)?.1)]),
        Encrypted::Files(files) => files
            .into_iter()
            .map(|(field, bytes, format)| {
                let name = Some(field.to_owned());
                match read_metadata(&bytes, format, limits) {
                    Ok(metadata) => Ok((name, metadata)),
                    Err(error) => Err(ObjectError { field: Some(crate::error::shown(field)), error }),
                }
            })
            .collect(),
    }
}

/// Whether an object says of itself that it stays encrypted.
pub fn is_left_encrypted(object: &Json) -> bool {
    let annotation = object.get("metadata").and_then(|metadata| metadata.get("annotations")?.get(ANNOTATION));
    annotation.and_then(Json::as_str).is_some_and(|value| value.eq_ignore_ascii_case("disabled"))
}

fn is_secret(object: &Json) -> bool {
    object.get("kind").and_then(Json::as_str) == Some("Secret")
}

fn encrypted<'o>(object: &'o Json, limits: &Limits) -> Encrypted<'o> {
    let mac = object.get(NAME).and_then(|metadata| metadata.get("mac")).and_then(Json::as_str);
    if mac.is_some_and(|mac| !mac.is_empty()) {
        return Encrypted::Object;
    }
    let data = object.get("data").and_then(Json::as_object).filter(|_| is_secret(object));
    let files: Vec<_> = data
        .into_iter()
        .flatten()
        .filter_map(|(field, value)| {
            // What is too long is refused when it is decrypted; four characters stand for three bytes.
            let text = value.as_str().filter(|text| text.len() / 4 <= limits.file_bytes / 3 + 1)?;
            let bytes = base64(text)?;
            let format = marked_format(&bytes)?;
            Some((field.as_str(), bytes, format))
        })
        .collect();
    if files.is_empty() { Encrypted::Nothing } else { Encrypted::Files(files) }
}

/// What base64 stands for. Line breaks do not count, as in Go: kustomize writes generated values in lines.
fn base64(text: &str) -> Option<Vec<u8>> {
    if text.contains(['\n', '\r']) {
        return STANDARD.decode(text.replace(['\n', '\r'], "")).ok();
    }
    STANDARD.decode(text).ok()
}

/// What stands in encrypted files, by which Flux tells them.
const MARKS: [(&[u8], Format); 4] = [
    (b"\"mac\": \"ENC[", Format::Json),
    (b"sops_mac=ENC[", Format::Dotenv),
    (b"mac: ENC[", Format::Yaml),
    (b"[sops]", Format::Ini),
];

/// Whether a file of this format looks encrypted, as Flux tells it before a build. One that looks like another format's does not.
pub fn is_marked(bytes: &[u8], format: Format) -> bool {
    let format = if format == Format::Binary { Format::Json } else { format };
    MARKS.iter().any(|(mark, of)| *of == format && contains(bytes, mark))
}

/// How a file is read that looks encrypted, by what stands in it.
fn marked_format(bytes: &[u8]) -> Option<Format> {
    MARKS.iter().find(|(mark, _)| contains(bytes, mark)).map(|(_, format)| *format)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// How the value of a field is written.
fn output_format(field: &str) -> Format {
    if field.ends_with(".dockerconfigjson") { Format::Json } else { Format::of_name(field) }
}

fn with_files(mut object: Json, files: Vec<(String, String)>) -> DecryptedObject {
    let mut secret = Vec::new();
    for (field, text) in files {
        secret.push(format!("/data/{}", escaped(&field)));
        if let Some(value) = object.get_mut("data").and_then(|data| data.get_mut(&field)) {
            *value = Json::String(text);
        }
    }
    DecryptedObject { object, secret, warnings: Vec::new() }
}

fn read(object: &Json, limits: &Limits) -> Result<(Vec<Map>, Metadata), Error> {
    let mut nodes = 0;
    let Value::Map(map) = tree(object, 0, &mut nodes, limits)? else {
        return Err(Error::malformed(Format::Json, "an object is a map"));
    };
    let mut documents = vec![map];
    let metadata = Metadata::extract(Format::Json, &mut documents, limits)?;
    Ok((documents, metadata))
}

fn open(documents: &mut [Map], metadata: &Metadata, key: &DataKey) -> Result<DecryptedObject, Error> {
    let mut pointers = Pointers(Vec::new());
    // What the MAC says does not count: the build may have changed what it is over.
    let _ = walk::decrypt(documents, metadata, key, &mut pointers)?;
    let mut path = Vec::new();
    let object = documents.first().map_or(Ok(Json::Null), |map| json_map(map, &mut path))?;
    Ok(DecryptedObject { object, secret: pointers.0, warnings: Vec::new() })
}

/// Where decrypted values are.
struct Pointers(Vec<String>);

impl Watcher for Pointers {
    fn opened(&mut self, steps: &[Step<'_>]) {
        self.0.push(pointer(steps));
    }
}

fn pointer(steps: &[Step<'_>]) -> String {
    let part = |step: &Step<'_>| match step {
        Step::Name(name) => format!("/{}", escaped(&String::from_utf8_lossy(name))),
        Step::Index(index) => format!("/{index}"),
    };
    steps.iter().map(part).collect()
}

/// A name as a part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn tree(json: &Json, depth: usize, nodes: &mut usize, limits: &Limits) -> Result<Value, Error> {
    *nodes += 1;
    if *nodes > limits.nodes {
        return Err(Error::TooLarge { what: "values in the object", limit: limits.nodes });
    }
    if depth > limits.depth {
        return Err(Error::TooLarge { what: "levels of nesting", limit: limits.depth });
    }
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(*flag),
        Json::Number(number) => number_of(number),
        Json::String(text) => Value::text(text.as_str()),
        Json::Array(items) => {
            let items = items.iter().map(|item| tree(item, depth + 1, nodes, limits));
            Value::List(items.collect::<Result<_, _>>()?)
        }
        Json::Object(fields) => {
            // Flux writes an object with sorted keys before SOPS reads it.
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(name, _)| *name);
            let items = sorted.into_iter().map(|(name, value)| {
                Ok::<_, Error>(Item::new(name.as_str(), tree(value, depth + 1, nodes, limits)?))
            });
            Value::Map(items.collect::<Result<_, _>>()?)
        }
    })
}

/// A number as it is once it has been written and read.
fn number_of(number: &Number) -> Value {
    if let Some(number) = number.as_i64() {
        return Value::Int(number);
    }
    let float = number.as_f64().unwrap_or(f64::NAN);
    let whole = number::json(float).and_then(|text| text.parse().ok());
    whole.map_or(Value::Float(float), Value::Int)
}

fn json_map(map: &Map, path: &mut Vec<u8>) -> Result<Json, Error> {
    let mut fields = JsonMap::new();
    for item in map {
        let Key::Name(name) = &item.key else { continue };
        let length = path.len();
        path.extend_from_slice(name);
        path.push(b':');
        fields.insert(String::from_utf8_lossy(name).into_owned(), json(&item.value, path)?);
        path.truncate(length);
    }
    Ok(Json::Object(fields))
}

fn json(value: &Value, path: &mut Vec<u8>) -> Result<Json, Error> {
    Ok(match value {
        Value::Null | Value::Comment(_) => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Int(number) => Json::from(*number),
        Value::Float(number) => {
            let problem = "JSON has no infinite numbers and no NaN";
            let error = || Error::Emit { format: Format::Json, place: Place::new(1, path), problem };
            match number_of(&Number::from_f64(*number).ok_or_else(error)?) {
                Value::Int(number) => Json::from(number),
                _ => Json::from(*number),
            }
        }
        Value::Time(time) => Json::String(time.nanoseconds()),
        Value::Text(text) => Json::String(String::from_utf8_lossy(text.bytes()).into_owned()),
        Value::Map(map) => json_map(map, path)?,
        Value::List(items) => {
            let items = items.iter().filter(|item| !matches!(item, Value::Comment(_)));
            Json::Array(items.map(|item| json(item, path)).collect::<Result<_, _>>()?)
        }
    })
}
