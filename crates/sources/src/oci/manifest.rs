//! Manifests: what an artifact consists of, and of an index which manifest is meant. Pure; the bytes are anyone's.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use roadstead_model::Digest;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::unread::Unread;

/// Layers of an image, manifests of an index, and annotations of either.
const MOST_ITEMS: usize = 1_000;
/// Bytes of the annotations that are kept.
const MOST_ANNOTATIONS: usize = 16 << 10;
/// What is taken of an index, as Flux does it.
const PLATFORM: (&str, &str) = ("linux", "amd64");

/// Something that is named by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Descriptor {
    #[serde(rename = "mediaType", default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing)]
    platform: Option<Platform>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// A manifest of either kind.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "schemaVersion", default)]
    schema_version: u32,
    #[serde(default)]
    manifests: Option<Few<Descriptor>>,
    #[serde(default)]
    layers: Option<Few<Descriptor>>,
    #[serde(default)]
    annotations: Option<FewTexts>,
}

/// What a manifest says.
#[derive(Debug)]
pub(super) enum Manifest {
    /// Go on with this one.
    Index(Descriptor),
    /// These are its layers.
    Image { layers: Vec<Descriptor>, annotations: BTreeMap<String, String> },
}

impl Manifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Unread> {
        let corrupt = |detail: String| Unread::Corrupt { detail };
        let document: Document =
            serde_json::from_slice(bytes).map_err(|error| corrupt(format!("its manifest: {error}")))?;
        if document.schema_version == 1 {
            let what = "Docker's image manifest of version 1".to_owned();
            return Err(Unread::Unsupported { what });
        }
        let mut annotations = document.annotations.unwrap_or_default().0;
        keep_small(&mut annotations);
        match (document.manifests, document.layers) {
            // Read by one program as this and by another as that, one digest would be two things.
            (Some(_), Some(_)) => Err(corrupt("its manifest has both `manifests` and `layers`".to_owned())),
            (Some(Few(manifests)), None) => {
                let (os, architecture) = PLATFORM;
                let meant = manifests.into_iter().find(|one| one.is_for(os, architecture));
                let none =
                    || Unread::Layer { detail: format!("the index has no manifest for {os}/{architecture}") };
                meant.map(Self::Index).ok_or_else(none)
            }
            (None, Some(Few(layers))) => Ok(Self::Image { layers, annotations }),
            (None, None) => Ok(Self::Image { layers: Vec::new(), annotations }),
        }
    }
}

impl Descriptor {
    /// One without a platform is for the usual one.
    fn is_for(&self, os: &str, architecture: &str) -> bool {
        self.platform.as_ref().is_none_or(|own| own.os == os && own.architecture == architecture)
    }

    /// The digest, where it is one that can be checked.
    pub(super) fn digest(&self) -> Result<Digest, Unread> {
        self.digest.parse().map_err(|error| Unread::Corrupt { detail: format!("its manifest: {error}") })
    }
}

/// The layer that is meant: the first, or the first of a media type.
pub(super) fn layer<'a>(
    layers: &'a [Descriptor],
    media_type: Option<&str>,
) -> Result<&'a Descriptor, Unread> {
    let nothing = |detail: String| Unread::Layer { detail };
    if layers.is_empty() {
        return Err(nothing("no layers found in artifact".to_owned()));
    }
    match media_type {
        None => Ok(&layers[0]),
        Some(wanted) => layers
            .iter()
            .find(|layer| layer.media_type == wanted)
            .ok_or_else(|| nothing(format!("failed to find layer with media type '{wanted}' in artifact"))),
    }
}

/// Those that fit are kept, in the order of their keys.
pub(super) fn keep_small(annotations: &mut BTreeMap<String, String>) {
    let mut left = MOST_ANNOTATIONS;
    annotations.retain(|key, value| match left.checked_sub(key.len() + value.len()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    });
}

/// A list of so many items at most: a small text can be a large list.
pub(super) struct Few<T>(pub(super) Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == MOST_ITEMS {
                        return Err(A::Error::custom(format!("a list of more than {MOST_ITEMS} items")));
                    }
                    items.push(item);
                }
                Ok(items)
            }
        }
        deserializer.deserialize_seq(Items(PhantomData)).map(Self)
    }
}

/// The same for a map of texts.
#[derive(Default)]
struct FewTexts(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for FewTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = BTreeMap<String, String>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of texts")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut texts = BTreeMap::new();
                while let Some((key, value)) = map.next_entry()? {
                    if texts.len() == MOST_ITEMS {
                        return Err(A::Error::custom(format!("more than {MOST_ITEMS} annotations")));
                    }
                    texts.insert(key, value);
                }
                Ok(texts)
            }
        }
        deserializer.deserialize_map(Texts).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_ITEMS, Manifest, layer};

    const DIGEST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn descriptor(more: &str) -> String {
        format!("{{\"digest\": \"{DIGEST}\", \"size\": 3{more}}}")
    }

    fn of_index(manifests: &[&str]) -> Result<String, String> {
        let manifests: Vec<String> = manifests.iter().map(|more| descriptor(more)).collect();
        let text = format!("{{\"schemaVersion\": 2, \"manifests\": [{}]}}", manifests.join(","));
        match Manifest::parse(text.as_bytes()) {
            Ok(Manifest::Index(meant)) => Ok(meant.media_type),
            Ok(Manifest::Image { .. }) => Ok("an image".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn of_an_index_the_usual_platform_is_taken() {
        let other =
            ", \"mediaType\": \"other\", \"platform\": {\"os\": \"linux\", \"architecture\": \"arm64\"}";
        let usual =
            ", \"mediaType\": \"usual\", \"platform\": {\"os\": \"linux\", \"architecture\": \"amd64\"}";
        assert_eq!(of_index(&[other, usual]), Ok("usual".to_owned()));
        assert_eq!(of_index(&[other, ", \"mediaType\": \"any\"", usual]), Ok("any".to_owned()));
        assert!(of_index(&[other]).unwrap_err().contains("linux/amd64"));
        assert!(of_index(&[]).is_err());
    }

    #[test]
    fn the_first_layer_of_the_media_type_is_taken() {
        let layers = ["a", "b", "b"].map(|kind| descriptor(&format!(", \"mediaType\": \"{kind}\"")));
        let text = format!("{{\"layers\": [{}], \"annotations\": {{\"k\": \"v\"}}}}", layers.join(","));
        let Ok(Manifest::Image { layers, annotations }) = Manifest::parse(text.as_bytes()) else {
            panic!("no image")
        };
        assert_eq!(annotations["k"], "v");
        assert!(std::ptr::eq(layer(&layers, None).unwrap(), &layers[0]));
        assert!(std::ptr::eq(layer(&layers, Some("b")).unwrap(), &layers[1]));
        let error = layer(&layers, Some("c")).unwrap_err().to_string();
        assert_eq!(error, "failed to find layer with media type 'c' in artifact");
        assert_eq!(layer(&[], None).unwrap_err().to_string(), "no layers found in artifact");
    }

    #[test]
    fn what_is_two_things_at_once_too_much_or_too_old_is_refused() {
        let many = vec![descriptor(""); MOST_ITEMS + 1].join(",");
        let notes: Vec<String> = (0..=MOST_ITEMS).map(|n| format!("\"{n}\": \"\"")).collect();
        for text in [
            "{\"manifests\": [], \"layers\": []}".to_owned(),
            "{\"schemaVersion\": 1}".to_owned(),
            format!("{{\"layers\": [{many}]}}"),
            format!("{{\"annotations\": {{{}}}}}", notes.join(",")),
            "[".repeat(100_000),
            "{\"layers\": [{\"digest\": \"x\", \"size\": -1}]}".to_owned(),
        ] {
            assert!(Manifest::parse(text.as_bytes()).is_err(), "{}", &text[..20]);
        }
        let large = format!("{{\"annotations\": {{\"a\": \"{}\", \"b\": \"small\"}}}}", "x".repeat(20 << 10));
        let Ok(Manifest::Image { annotations, .. }) = Manifest::parse(large.as_bytes()) else {
            panic!("no image")
        };
        assert_eq!(annotations.into_keys().collect::<Vec<_>>(), ["b"]);
    }
}
