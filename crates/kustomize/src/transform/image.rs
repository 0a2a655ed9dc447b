//! Names, tags and digests of images.

mod rules;

use crate::budget::Budget;
use crate::error::Error;
use crate::fields::Site;
use crate::fieldspec::{Create, FieldSpec};
use crate::kustomization::Image;
use crate::load::Loader;
use crate::resource::Gvk;
use crate::resources::Resources;
use crate::value::{Map, Value};

use rules::Rules;

/// Changes images wherever they are used, one rule after the other.
///
/// Only rules for an image that an object has are run on it, so that many rules over many objects stay linear.
pub(super) fn apply(
    loader: &Loader<'_>,
    site: &Site,
    field: &str,
    images: &[Image],
    fields: &[FieldSpec],
    objects: &mut Resources,
) -> Result<(), Error> {
    let error = |message: String| loader.fail(site, field, message);
    let names = images.iter().map(|image| image.name.as_str());
    let rules = Rules::new(names, &loader.budget).map_err(|(rule, message)| {
        // The configuration of a plugin has one rule only.
        let place = if field == "images" { format!("{field}[{rule}]") } else { field.to_owned() };
        loader.fail(site, &place, message)
    })?;
    for resource in objects.iter_mut() {
        let id = resource.id().clone();
        if &*id.gvk.kind == "CustomResourceDefinition" {
            continue;
        }
        let result =
            resource.edit(|object| change_object(object, &id.gvk, images, &rules, fields, &loader.budget));
        resource.untagged |= result.map_err(|message| error(format!("{id}: {message}")))?;
    }
    Ok(())
}

/// Whether an image has no tag of YAML's any more.
fn change_object(
    object: &mut Map,
    gvk: &Gvk,
    images: &[Image],
    rules: &Rules,
    fields: &[FieldSpec],
    budget: &Budget,
) -> Result<bool, String> {
    let (mut from, mut untagged) = (0, false);
    loop {
        let mut next: Option<usize> = None;
        let mut looks = 0;
        let seen = visit(object, gvk, fields, &mut |value| {
            let found = value.as_str().and_then(|text| rules.first(text, from));
            next = [next, found].into_iter().flatten().min();
            looks += rules.looks();
        })?;
        budget.work(seen + looks)?;
        let Some((at, image)) = next.and_then(|at| Some((at, images.get(at)?))) else {
            return Ok(untagged);
        };
        let mut made = 0;
        let seen = visit(object, gvk, fields, &mut |value| {
            let Value::String(text) = value else { return };
            if !rules.is_match(at, text) {
                return;
            }
            let new = changed(image, text);
            made += new.len();
            *text = text.replaced_without_tag(new);
            untagged |= text.is_untagged();
        })?;
        budget.work(seen + looks)?;
        budget.make(made)?;
        from = at + 1;
    }
}

/// Visits the images of an object; some of them twice, and a rule counts twice there. Gives the number of values on the
/// way.
fn visit(
    object: &mut Map,
    gvk: &Gvk,
    fields: &[FieldSpec],
    see: &mut dyn FnMut(&mut Value),
) -> Result<usize, String> {
    let seen = object
        .values_mut()
        .try_fold(0, |seen, (_, value)| Ok::<_, String>(seen + containers_below(value, see)?))?;
    // The lists of containers at the top of an object that has no spec.
    for key in ["containers", "initContainers"] {
        object.get_mut(key).into_iter().try_for_each(|value| containers(value, see))?;
    }
    fields
        .iter()
        .filter(|spec| spec.matches(gvk))
        .try_for_each(|spec| spec.apply(object, Create::Nothing, &mut |value| see_scalar(value, see)))?;
    Ok(seen)
}

/// Containers anywhere in an object: custom resources often hold pods. Gives the number of values.
fn containers_below(value: &mut Value, see: &mut dyn FnMut(&mut Value)) -> Result<usize, String> {
    let mut seen = 1;
    match value {
        Value::Map(map) => {
            for (key, value) in map.values_mut() {
                seen += containers_below(value, see)?;
                if matches!(&**key, "containers" | "initContainers") {
                    containers(value, see)?;
                }
            }
        }
        Value::List(items) => {
            for item in items {
                seen += containers_below(item, see)?;
            }
        }
        _ => {}
    }
    Ok(seen)
}

fn containers(value: &mut Value, see: &mut dyn FnMut(&mut Value)) -> Result<(), String> {
    let Value::List(items) = value else { return Ok(()) };
    for item in items.iter_mut().filter_map(Value::as_map_mut) {
        item.get_mut("image").into_iter().try_for_each(|image| see_scalar(image, see))?;
    }
    Ok(())
}

fn see_scalar(value: &mut Value, see: &mut dyn FnMut(&mut Value)) -> Result<(), String> {
    if matches!(value, Value::List(_) | Value::Map(_)) {
        return Err(format!("image: a string is needed, not {}", value.type_name()));
    }
    see(value);
    Ok(())
}

/// The reference to an image after a rule that is for it.
fn changed(image: &Image, text: &str) -> String {
    let (mut name, mut tag, mut digest) = split(text);
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
    out
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
        assert_eq!(changed(&image, "nginx:1@sha256:ab"), "nginx:2");
    }
}
