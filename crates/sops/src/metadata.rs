//! What a file says about its own encryption.
//!
//! It is read as leniently as SOPS reads it: unknown fields do not count, numbers and texts stand for each other, and one key
//! stands for a list of one.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::keys::{MasterKey, WrappedKey};
use crate::limits::Limits;
use crate::rules::{Rule, Written};
use crate::time::Time;
use crate::tree::{Map, Text, Value};
use crate::{Format, flat, number, value};

/// The key that metadata stands under.
pub(crate) const NAME: &str = "sops";
/// What the names of metadata begin with among variables.
pub(crate) const PREFIX: &[u8] = b"sops_";

/// The metadata of a file.
#[derive(Debug, Clone)]
pub struct Metadata {
    wrapped: WrappedKey,
    /// When values were last changed: the MAC is bound to it.
    pub(crate) last_modified: Time,
    pub(crate) mac: Text,
    pub(crate) mac_only_encrypted: bool,
    pub(crate) rule: Rule,
    version: String,
}

impl Metadata {
    /// The data key, as it is wrapped.
    pub fn wrapped(&self) -> &WrappedKey {
        &self.wrapped
    }

    /// Which version of SOPS wrote it, for people.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Has the file a MAC at all?
    pub fn has_mac(&self) -> bool {
        !self.mac.bytes().is_empty()
    }

    /// Takes the metadata out of the documents of a file.
    pub(crate) fn extract(format: Format, documents: &mut [Map], limits: &Limits) -> Result<Self, Error> {
        let not_encrypted = || Error::NotEncrypted { format };
        let fields = match format {
            Format::Dotenv => {
                let first = documents.first_mut().ok_or_else(not_encrypted)?;
                let flat = prefixed(first);
                if flat.is_empty() {
                    return Err(not_encrypted());
                }
                flat::unflatten(flat, limits.depth)?
            }
            Format::Yaml | Format::Json | Format::Binary | Format::Ini => {
                let fields = nested(documents)?.ok_or_else(not_encrypted)?;
                if format == Format::Ini {
                    flat::unflatten(with_line_feeds(fields), limits.depth)?
                } else {
                    fields
                }
            }
        };
        Fields(&fields).metadata(limits)
    }
}

/// Takes out what stands under `sops`: of the first document, and of the others without a look.
fn nested(documents: &mut [Map]) -> Result<Option<Map>, Error> {
    let mut found = None;
    for (index, document) in documents.iter_mut().enumerate() {
        let (metadata, rest): (Map, Map) =
            std::mem::take(document).into_iter().partition(|item| item.is_named(NAME));
        *document = rest;
        for item in metadata.into_iter().filter(|_| index == 0) {
            let Value::Map(map) = item.value else {
                return Err(Error::Metadata(format!("{NAME} is {}, expected a map", item.value.kind())));
            };
            if found.replace(map).is_some() {
                return Err(Error::Metadata(format!("{NAME} is given twice")));
            }
        }
    }
    Ok(found)
}

fn prefixed(document: &mut Map) -> Map {
    let is_metadata = |item: &crate::tree::Item| item.key.name().is_some_and(|name| name.starts_with(PREFIX));
    let (metadata, rest): (Map, Map) = std::mem::take(document).into_iter().partition(is_metadata);
    *document = rest;
    let without_prefix = |mut item: crate::tree::Item| {
        if let crate::tree::Key::Name(name) = &mut item.key {
            name.drain(..PREFIX.len().min(name.len()));
        }
        item
    };
    metadata.into_iter().map(without_prefix).collect()
}

/// An INI file has them as two characters, or as they are.
fn with_line_feeds(mut fields: Map) -> Map {
    for item in &mut fields {
        if let Value::Text(text) = &mut item.value {
            *text = Text::new(unescape_line_feeds(text.bytes()));
        }
    }
    fields
}

/// Puts a line feed for each backslash with an `n`.
pub(crate) fn unescape_line_feeds(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        match (byte, after.split_first()) {
            (b'\\', Some((b'n', after))) => {
                out.push(b'\n');
                rest = after;
            }
            _ => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

/// A map of the metadata, to be asked for its fields.
#[derive(Clone, Copy)]
struct Fields<'m>(&'m Map);

impl<'m> Fields<'m> {
    fn metadata(self, limits: &Limits) -> Result<Metadata, Error> {
        let last_modified = self.text("lastmodified")?;
        let last_modified = Time::rfc3339(&last_modified)
            .ok_or_else(|| Error::Metadata("lastmodified is missing or not a time in RFC 3339".into()))?;
        let rule = Rule::new(
            Written {
                unencrypted_suffix: self.text("unencrypted_suffix")?,
                encrypted_suffix: self.text("encrypted_suffix")?,
                unencrypted_regex: self.text("unencrypted_regex")?,
                encrypted_regex: self.text("encrypted_regex")?,
                unencrypted_comment_regex: self.text("unencrypted_comment_regex")?,
                encrypted_comment_regex: self.text("encrypted_comment_regex")?,
            },
            limits,
        )?;
        Ok(Metadata {
            wrapped: WrappedKey::new(self.count("shamir_threshold")?, self.groups(limits)?),
            last_modified,
            mac: Text::from(self.text("mac")?.as_str()),
            mac_only_encrypted: self.flag("mac_only_encrypted")?,
            rule,
            version: crate::error::shown(&self.text("version")?),
        })
    }

    /// A field; null is as good as nothing.
    fn field(self, name: &str) -> Option<&'m Value> {
        let item = self.0.iter().rev().find(|item| item.is_named(name))?;
        (item.value != Value::Null).then_some(&item.value)
    }

    fn text(self, name: &str) -> Result<String, Error> {
        self.field(name).map_or(Ok(String::new()), |value| text_of(value, name))
    }

    fn flag(self, name: &str) -> Result<bool, Error> {
        let wrong = || Error::Metadata(format!("{name} is not a boolean"));
        match self.field(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::Int(number)) => Ok(*number != 0),
            Some(Value::Float(number)) => Ok(*number != 0.0),
            Some(Value::Text(text)) => match text.as_str() {
                Some("") => Ok(false),
                text => text.and_then(value::boolean).ok_or_else(wrong),
            },
            Some(_) => Err(wrong()),
        }
    }

    fn count(self, name: &str) -> Result<usize, Error> {
        let wrong = || Error::Metadata(format!("{name} is not a number"));
        let number = match self.field(name) {
            None => 0,
            Some(Value::Int(number)) => *number,
            Some(Value::Bool(flag)) => i64::from(*flag),
            // What is behind the point does not count.
            Some(Value::Float(number)) => *number as i64,
            Some(Value::Text(text)) => match text.as_str() {
                Some("") => 0,
                text => text.and_then(number::integer).ok_or_else(wrong)?,
            },
            Some(_) => return Err(wrong()),
        };
        // What is below zero asks for no more than zero does.
        Ok(usize::try_from(number).unwrap_or(0))
    }

    /// A list of maps, or one map in place of a list of one.
    fn list(self, name: &str) -> Result<Vec<Self>, Error> {
        let wrong = |value: &Value| {
            Error::Metadata(format!("{name} contains {}, expected a list of maps", value.kind()))
        };
        let map = |value: &'m Value| match value {
            Value::Map(map) => Some(Ok(Self(map))),
            Value::Comment(_) => None,
            other => Some(Err(wrong(other))),
        };
        match self.field(name) {
            None => Ok(Vec::new()),
            Some(Value::Map(map)) if map.iter().all(|item| item.key.name().is_none()) => Ok(Vec::new()),
            Some(Value::Map(map)) => Ok(vec![Self(map)]),
            Some(Value::List(items)) => items.iter().filter_map(map).collect(),
            Some(Value::Text(text)) if text.bytes().is_empty() => Ok(Vec::new()),
            Some(other) => Err(wrong(other)),
        }
    }

    fn groups(self, limits: &Limits) -> Result<Vec<Vec<MasterKey>>, Error> {
        let top = self.keys(limits)?;
        if !top.is_empty() {
            return Ok(vec![top]);
        }
        let groups = self.list("key_groups")?;
        if groups.is_empty() {
            return Err(Error::Metadata("it lists no master keys".into()));
        }
        if groups.len() > limits.groups {
            return Err(Error::TooLarge { what: "key groups", limit: limits.groups });
        }
        let groups: Vec<Vec<MasterKey>> =
            groups.into_iter().map(|group| group.keys(limits)).collect::<Result<_, _>>()?;
        if groups.iter().map(Vec::len).sum::<usize>() > limits.keys {
            return Err(Error::TooLarge { what: "master keys", limit: limits.keys });
        }
        Ok(groups)
    }

    /// All keys of one group.
    fn keys(self, limits: &Limits) -> Result<Vec<MasterKey>, Error> {
        type Reader = fn(Fields<'_>) -> Result<MasterKey, Error>;
        let kinds: [(&str, Reader); 7] = [
            ("kms", |key| key.aws_kms()),
            ("gcp_kms", |key| key.gcp_kms()),
            ("hckms", |key| key.huawei_kms()),
            ("azure_kv", |key| key.azure_key_vault()),
            ("hc_vault", |key| key.vault()),
            ("pgp", |key| key.pgp()),
            ("age", |key| key.age()),
        ];
        let mut keys = Vec::new();
        for (name, read) in kinds {
            for fields in self.list(name)? {
                if keys.len() == limits.keys {
                    return Err(Error::TooLarge { what: "master keys", limit: limits.keys });
                }
                let key = read(fields)?;
                if key.enc().len() > limits.enc_bytes {
                    return Err(Error::TooLarge {
                        what: "bytes in a wrapped data key",
                        limit: limits.enc_bytes,
                    });
                }
                if name != "age" {
                    let created = fields.text("created_at")?;
                    let missing =
                        || format!("created_at of a key in {name} is missing or not a time in RFC 3339");
                    Time::rfc3339(&created).ok_or_else(|| Error::Metadata(missing()))?;
                }
                keys.push(key);
            }
        }
        Ok(keys)
    }

    fn age(self) -> Result<MasterKey, Error> {
        Ok(MasterKey::Age { recipient: self.text("recipient")?, enc: self.text("enc")? })
    }

    fn pgp(self) -> Result<MasterKey, Error> {
        Ok(MasterKey::Pgp { fingerprint: self.text("fp")?, enc: self.text("enc")? })
    }

    fn aws_kms(self) -> Result<MasterKey, Error> {
        let role = Some(self.text("role")?).filter(|role| !role.is_empty());
        let mut context = BTreeMap::new();
        match self.field("context") {
            Some(Value::Map(items)) => {
                for item in items {
                    let Some(name) = item.key.name() else { continue };
                    let name = String::from_utf8_lossy(name).into_owned();
                    let text = if item.value == Value::Null {
                        String::new()
                    } else {
                        text_of(&item.value, "context")?
                    };
                    context.insert(name, text);
                }
            }
            None => {}
            Some(other) => {
                return Err(Error::Metadata(format!("context of a key in kms is {}", other.kind())));
            }
        }
        Ok(MasterKey::AwsKms {
            arn: self.text("arn")?,
            role,
            context,
            profile: self.text("aws_profile")?,
            enc: self.text("enc")?,
        })
    }

    fn gcp_kms(self) -> Result<MasterKey, Error> {
        Ok(MasterKey::GcpKms { resource_id: self.text("resource_id")?, enc: self.text("enc")? })
    }

    fn azure_key_vault(self) -> Result<MasterKey, Error> {
        Ok(MasterKey::AzureKeyVault {
            vault_url: self.text("vault_url")?,
            name: self.text("name")?,
            version: self.text("version")?,
            enc: self.text("enc")?,
        })
    }

    fn vault(self) -> Result<MasterKey, Error> {
        Ok(MasterKey::Vault {
            address: self.text("vault_address")?,
            engine_path: self.text("engine_path")?,
            key_name: self.text("key_name")?,
            enc: self.text("enc")?,
        })
    }

    fn huawei_kms(self) -> Result<MasterKey, Error> {
        Ok(MasterKey::HuaweiKms { key_id: self.text("key_id")?, enc: self.text("enc")? })
    }
}

/// A scalar as a text.
fn text_of(value: &Value, name: &str) -> Result<String, Error> {
    match value {
        Value::Text(text) => Ok(String::from_utf8_lossy(text.bytes()).into_owned()),
        Value::Int(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number::plain(*number)),
        Value::Bool(flag) => Ok(if *flag { "1" } else { "0" }.to_owned()),
        other => Err(Error::Metadata(format!("{name} is {}, expected a string", other.kind()))),
    }
}
