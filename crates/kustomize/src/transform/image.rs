//! Names, tags and digests of images.

use std::cell::Cell;

use regex::Regex;

use crate::fieldspec::{Create, FieldSpec};
use crate::kustomization::Image;
use crate::load::Loader;
use crate::pattern;
use crate::resources::Resources;
use crate::value::Value;

/// Changes an image wherever it is used.
pub(super) fn apply(
    image: &Image,
    fields: &[FieldSpec],
    loader: &Loader<'_>,
    objects: &mut Resources,
) -> Result<(), String> {
    let rule = Rule::new(image, loader.limits.regex_bytes)?;
    for resource in objects.iter_mut() {
        let id = resource.id().clone();
        if &*id.gvk.kind == "CustomResourceDefinition" {
            continue;
        }
        let result = resource.edit(|object| {
            for (_, value) in object.values_mut() {
                rule.containers_below(value);
            }
            // The lists of containers at the top of an object that has no spec.
            for key in ["containers", "initContainers"] {
                object.get_mut(key).into_iter().for_each(|value| rule.list(value));
            }
            fields.iter().filter(|spec| spec.matches(&id.gvk)).try_for_each(|spec| {
                spec.apply(object, Create::Nothing, &mut |value| match value {
                    Value::List(_) | Value::Map(_) => {
                        Err(format!("a string is needed, not {}", value.type_name()))
                    }
                    scalar => {
                        rule.change(scalar);
                        Ok(())
                    }
                })
            })
        });
        result.map_err(|message| format!("{id}: {message}"))?;
        loader.budget.work(rule.seen.take())?;
        loader.budget.make(rule.made.take())?;
    }
    Ok(())
}

struct Rule<'i> {
    image: &'i Image,
    pattern: Regex,
    /// Values that were looked at, and bytes of new images.
    seen: Cell<usize>,
    made: Cell<usize>,
}

impl<'i> Rule<'i> {
    fn new(image: &'i Image, regex_bytes: usize) -> Result<Self, String> {
        let pattern = format!("^{}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$", image.name);
        let pattern = pattern::compile(&pattern, &image.name, regex_bytes)
            .map_err(|message| format!("name: {message}"))?;
        Ok(Self { image, pattern, seen: Cell::new(0), made: Cell::new(0) })
    }

    /// Containers anywhere in an object: custom resources often hold pods.
    fn containers_below(&self, value: &mut Value) {
        self.seen.set(self.seen.get() + 1);
        match value {
            Value::Map(map) => {
                for (key, value) in map.values_mut() {
                    self.containers_below(value);
                    if matches!(&**key, "containers" | "initContainers") {
                        self.list(value);
                    }
                }
            }
            Value::List(items) => items.iter_mut().for_each(|item| self.containers_below(item)),
            _ => {}
        }
    }

    fn list(&self, value: &mut Value) {
        let Value::List(items) = value else { return };
        for item in items.iter_mut().filter_map(Value::as_map_mut) {
            item.get_mut("image").into_iter().for_each(|image| self.change(image));
        }
    }

    fn change(&self, value: &mut Value) {
        let Some(text) = value.as_str().filter(|text| self.pattern.is_match(text)) else { return };
        let (mut name, mut tag, mut digest) = split(text);
        let image = self.image;
        if !image.new_name.is_empty() {
            name = &image.new_name;
        }
        let suffixed;
        match (image.new_tag.as_str(), image.digest.as_str()) {
            ("", "") if image.tag_suffix.is_empty() => {}
            ("", "") => {
                suffixed = format!("{tag}{}", image.tag_suffix);
                (tag, digest) = (&suffixed, "");
            }
            (new_tag, new_digest) => (tag, digest) = (new_tag, new_digest),
        }
        let mut out = name.to_owned();
        for (mark, part) in [(':', tag), ('@', digest)] {
            if !part.is_empty() {
                out.push(mark);
                out.push_str(part);
            }
        }
        self.made.set(self.made.get() + out.len());
        *value = Value::string(out);
    }
}

/// Name, tag and digest of an image reference.
fn split(image: &str) -> (&str, &str, &str) {
    let from = image.find('/').unwrap_or(0);
    let at = image[from..].find('@').map(|i| i + from);
    let colon = image[from..].find(':').map(|i| i + from);
    match (colon, at) {
        (None, None) => (image, "", ""),
        (Some(colon), None) => (&image[..colon], &image[colon + 1..], ""),
        (Some(colon), Some(at)) if colon < at => (&image[..colon], &image[colon + 1..at], &image[at + 1..]),
        (_, Some(at)) => (&image[..at], "", &image[at + 1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_references() {
        assert_eq!(split("nginx"), ("nginx", "", ""));
        assert_eq!(split("reg:5000/a/nginx:1.2@sha256:ab"), ("reg:5000/a/nginx", "1.2", "sha256:ab"));
        assert_eq!(split("nginx@sha256:ab"), ("nginx", "", "sha256:ab"));
        assert_eq!(split("nginx:1"), ("nginx", "1", ""));
    }

    #[test]
    fn a_new_tag_drops_the_digest() {
        let image = Image { name: "nginx".into(), new_tag: "2".into(), ..Image::default() };
        let mut value = Value::string("nginx:1@sha256:ab");
        Rule::new(&image, 1 << 20).unwrap().change(&mut value);
        assert_eq!(value, Value::string("nginx:2"));
    }
}
