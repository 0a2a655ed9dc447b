//! Which of a Receiver's objects a call is about: its filters.

use std::time::{Duration, Instant};

use roadstead_api::{ReceiverSpec, ReceiverType};
use roadstead_cel::Expression;
use roadstead_hub_store::Stored;
use roadstead_model::chain;
use serde_json::{Value, json};

/// An expression may take this part of what a single evaluation may otherwise: it is evaluated for each object.
const SHARE: u32 = 64;
/// All evaluations of one call together take no longer than this, by and large.
const LONGEST: Duration = Duration::from_secs(5);

/// The filters of a Receiver.
pub(super) struct Filters {
    all: Option<Expression>,
    /// By entry of `spec.resources`.
    each: Vec<Option<Expression>>,
}

/// What expressions see of a call.
pub(super) struct Seen {
    /// Its body.
    pub(super) req: Value,
    /// What the caller's token claims; null where there is none.
    pub(super) claims: Value,
}

impl Filters {
    /// Those of a spec, or what is wrong with one of them.
    pub(super) fn parse(spec: &ReceiverSpec) -> Result<Self, String> {
        let variables: &[&str] = match spec.type_ {
            ReceiverType::GenericOidc => &["req", "res", "claims"],
            _ => &["req", "res"],
        };
        let parse = |field: &str, text: &Option<String>| match text.as_deref().filter(|text| !text.is_empty())
        {
            None => Ok(None),
            Some(text) => {
                let parsed = Expression::parse_over(text, variables);
                parsed.map(Some).map_err(|error| format!("{field}: {}", chain(&error)))
            }
        };
        let all = parse("spec.resourceFilter", &spec.resource_filter)?;
        let each = spec
            .resources
            .iter()
            .enumerate()
            .map(|(index, resource)| parse(&format!("spec.resources[{index}].filter"), &resource.filter));
        Ok(Self { all, each: each.collect::<Result<_, _>>()? })
    }

    /// Whether there is any: only then is it of interest what a body says.
    pub(super) fn are_any(&self) -> bool {
        self.all.is_some() || self.each.iter().any(Option::is_some)
    }

    /// Of the objects of some entries, those that pass; and how many could not be judged, with the first reason.
    pub(super) fn choose(&self, seen: &Seen, objects: Vec<(usize, Stored)>) -> (Vec<Stored>, Option<String>) {
        let began = Instant::now();
        let (mut chosen, mut failed) = (Vec::with_capacity(objects.len()), None);
        for (entry, object) in objects {
            if began.elapsed() > LONGEST {
                failed = failed.or_else(|| Some("the filters take too long for so many objects".to_owned()));
                break;
            }
            match self.passes(seen, entry, &object) {
                Ok(true) => chosen.push(object),
                Ok(false) => {}
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        (chosen, failed)
    }

    fn passes(&self, seen: &Seen, entry: usize, object: &Stored) -> Result<bool, String> {
        let own = self.each.get(entry).and_then(Option::as_ref);
        if self.all.is_none() && own.is_none() {
            return Ok(true);
        }
        let kind = object.kind.get();
        let res = json!({
            "apiVersion": kind.storage_version().api_version(),
            "kind": kind.kind,
            "metadata": object.object["metadata"],
        });
        let variables = [("req", &seen.req), ("res", &res), ("claims", &seen.claims)];
        for expression in [self.all.as_ref(), own].into_iter().flatten() {
            match expression.evaluate_bool_among(&variables, SHARE) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => return Err(format!("{object}: {}", chain(&error))),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roadstead_api::KindId;
    use serde_json::Value;

    use super::*;

    fn spec(all: Option<&str>, own: Option<&str>) -> ReceiverSpec {
        serde_json::from_value(json!({
            "type": "github", "secretRef": { "name": "token" }, "resourceFilter": all,
            "resources": [{ "kind": "GitRepository", "name": "*", "matchLabels": { "a": "b" }, "filter": own }],
        }))
        .unwrap()
    }

    fn repository(name: &str) -> (usize, Stored) {
        let object =
            json!({ "metadata": { "name": name, "labels": { "team": name } }, "spec": { "url": "x" } });
        (0, Stored::new(KindId::GitRepository, "apps", name, Timestamp::UNIX_EPOCH, object))
    }

    fn chosen(all: Option<&str>, own: Option<&str>, req: Value) -> (Vec<String>, bool) {
        let filters = Filters::parse(&spec(all, own)).unwrap();
        assert_eq!(filters.are_any(), all.is_some() || own.is_some());
        let seen = Seen { req, claims: Value::Null };
        let (chosen, failed) = filters.choose(&seen, vec![repository("web"), repository("api")]);
        (chosen.into_iter().map(|object| object.name).collect(), failed.is_some())
    }

    #[test]
    fn both_filters_decide_by_the_body_and_the_objects_metadata() {
        let req = json!({ "repository": { "name": "web" } });
        let by_name = "req.repository.name == res.metadata.name";
        let by_label = "res.kind == 'GitRepository' && res.metadata.labels.team == 'web'";
        let all = |names: &[&str]| (names.iter().map(|name| (*name).to_owned()).collect(), false);
        assert_eq!(chosen(None, None, json!({})), all(&["web", "api"]));
        assert_eq!(chosen(Some(by_name), None, req.clone()), all(&["web"]));
        assert_eq!(chosen(None, Some(by_label), req.clone()), all(&["web"]));
        assert_eq!(chosen(Some("res.metadata.name == 'api'"), Some(by_label), req.clone()), all(&[]));
        // Of the object nothing but its metadata is seen, and what cannot be judged is not reconciled.
        assert_eq!(chosen(Some("res.spec.url == 'x'"), None, req), (Vec::new(), true));
        assert_eq!(chosen(Some(by_name), None, json!({})), (Vec::new(), true));
        // One of two.
        let one = "res.metadata.name == 'web' || req.x";
        assert_eq!(chosen(Some(one), None, json!({})), (vec!["web".to_owned()], true));
    }

    #[test]
    fn what_does_not_parse_is_told_by_its_field() {
        for (all, own, field) in [
            (Some("res.("), None, "spec.resourceFilter"),
            (None, Some("res.metadata == "), "spec.resources[0].filter"),
            // Only what there is may be read.
            (Some("claims.sub == 'x'"), None, "spec.resourceFilter"),
        ] {
            let why = Filters::parse(&spec(all, own)).err().unwrap_or_default();
            assert!(why.starts_with(field), "{why}");
        }
    }

    #[test]
    fn what_an_evaluation_takes_is_bounded() {
        let req = json!({ "list": (0..3_000).collect::<Vec<u32>>() });
        let costly = "req.list.all(a, req.list.all(b, a + b >= 0))";
        let began = Instant::now();
        assert_eq!(chosen(Some(costly), None, req), (Vec::new(), true));
        assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
    }
}
