//! YAML that is merged into other YAML: mappings key by key, all else replaced. Of several documents the first into the first, the second
//! into the second.

use roadstead_kustomize::Limits;
use roadstead_kustomize::value::{Map, Value};
use roadstead_kustomize::yaml::{ReadError, read_strict, write_document};

/// Memory in which one of the two is read.
const MEMORY: usize = 24 << 20;
/// How deep they nest.
const DEPTH: usize = 100;

/// Why two files cannot be merged.
#[derive(Debug, thiserror::Error)]
pub(super) enum MergeError {
    #[error("{what} is not YAML: {why}")]
    NotYaml { what: &'static str, why: ReadError },
    #[error("{what} has a document that is not a mapping")]
    NotAMapping { what: &'static str },
    #[error("it has more than {0} bytes")]
    TooLarge(usize),
}

/// `above` merged into `below`.
pub(super) fn merge(below: &[u8], above: &[u8], most: usize) -> Result<Vec<u8>, MergeError> {
    let mut documents = read(below, "what is there")?;
    for (index, above) in read(above, "what is merged into it")?.into_iter().enumerate() {
        match documents.get_mut(index) {
            Some(below) => lay_over(below, above),
            None => documents.push(above),
        }
    }
    let mut out = String::new();
    for (index, document) in documents.into_iter().enumerate() {
        if index > 0 {
            out.push_str("---\n");
        }
        write_document(&mut out, &Value::Map(document));
        if out.len() > most {
            return Err(MergeError::TooLarge(most));
        }
    }
    Ok(out.into_bytes())
}

fn read(bytes: &[u8], what: &'static str) -> Result<Vec<Map>, MergeError> {
    let mut limits = Limits::within(MEMORY);
    limits.depth = DEPTH;
    let (documents, _) = read_strict(bytes, &limits).map_err(|why| MergeError::NotYaml { what, why })?;
    let maps = documents.into_iter().map(|document| match document.value {
        Value::Map(map) => Ok(map),
        _ => Err(MergeError::NotAMapping { what }),
    });
    maps.collect()
}

fn lay_over(below: &mut Map, above: Map) {
    for (key, value) in above.into_entries() {
        match (below.get_mut(&key), value) {
            (Some(Value::Map(below)), Value::Map(above)) => lay_over(below, above),
            (_, value) => drop(below.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(below: &str, above: &str) -> Result<String, String> {
        let bytes = merge(below.as_bytes(), above.as_bytes(), 1 << 20).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn mappings_are_merged_and_all_else_is_replaced() {
        let below = "replicas: 1\nimage: {name: web, tag: \"1\"}\nargs: [a, b]\nkept: true\n";
        let above = "image: {tag: \"2\"}\nargs: [c]\nreplicas: null\nnew: {x: 1}\n";
        let expected =
            "args:\n- c\nimage:\n  name: web\n  tag: \"2\"\nkept: true\nnew:\n  x: 1\nreplicas: null\n";
        assert_eq!(merged(below, above), Ok(expected.to_owned()));
    }

    #[test]
    fn documents_are_merged_in_their_order() {
        assert_eq!(
            merged("a: 1\n---\nb: 1\n", "a: 2\n---\nc: 3\n---\nd: 4\n"),
            Ok("a: 2\n---\nb: 1\nc: 3\n---\nd: 4\n".to_owned())
        );
    }

    #[test]
    fn what_cannot_be_merged_is_named() {
        assert!(merged("a: [", "a: 1").unwrap_err().contains("what is there is not YAML"));
        assert!(merged("a: 1", "- b").unwrap_err().contains("what is merged into it has a document"));
        let deep = format!("{}1{}", "{a: ".repeat(200), "}".repeat(200));
        assert!(merged("a: 1", &deep).is_err());
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let names = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{names}]\n"));
        }
        assert!(merged("a: 1", &bomb).is_err());
    }
}
