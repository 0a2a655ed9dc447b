//! `roadstead confirm`: a person's confirmation of deletions that wait for it.

use anyhow::{Context as _, Result, bail};
use roadstead_api::{KINDS, Kind};
use serde_json::json;

use crate::hub::HubArgs;
use crate::output;

/// Confirm deletions that are held, just those of a digest: the object's Ready condition shows the line
#[derive(Debug, clap::Args)]
pub(crate) struct Confirm {
    /// The object whose deletions are held, such as kustomization/apps
    #[arg(value_name = "KIND/NAME")]
    object: String,

    /// The digest of the deletions, as its Ready condition has it
    digest: String,

    /// Its namespace on the hub
    #[arg(long, short = 'n', value_name = "NAME", default_value = "default")]
    namespace: String,

    #[command(flatten)]
    hub: HubArgs,
}

impl Confirm {
    pub(crate) fn run(self) -> Result<()> {
        let path = path(&self.object, &self.namespace)?;
        let answer = self.hub.client()?.post(&path, &json!({ "digest": self.digest }))?;
        let message = answer["message"].as_str().context("read the hub's answer: it has no message")?;
        output::print(format!("{}: {message}\n", self.object).as_bytes()).context("print the answer")
    }
}

/// Where the deletions of an object are confirmed.
fn path(object: &str, namespace: &str) -> Result<String> {
    let Some((kind, name)) = object.split_once('/') else {
        bail!("'{object}' is not KIND/NAME, such as kustomization/apps");
    };
    let is_meant = |one: &&&Kind| {
        let named = [one.singular, one.plural].contains(&kind) || one.short_names.contains(&kind);
        one.id.is_applier() && named
    };
    let Some(found) = KINDS.iter().find(is_meant) else {
        bail!("'{kind}' is not a kind that deploys; want for instance kustomization/{name}");
    };
    for (what, text) in [("name", name), ("namespace", namespace)] {
        if !roadstead_api::rules::is_dns_subdomain(text) {
            bail!("'{text}' is not a valid {what}");
        }
    }
    let (group, version) = (found.group(), found.versions[0].name);
    Ok(format!("/apis/{group}/{version}/namespaces/{namespace}/{}/{name}/confirm", found.plural))
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn an_object_is_named_as_kubectl_does() {
        let want = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/team/kustomizations/apps/confirm";
        for object in ["kustomization/apps", "kustomizations/apps", "ks/apps"] {
            assert_eq!(path(object, "team").expect("a path"), want, "{object}");
        }
        for (object, namespace, why) in [
            ("apps", "team", "is not KIND/NAME"),
            ("secret/apps", "team", "not a kind that deploys"),
            ("kustomization/a/b", "team", "is not a valid name"),
            ("kustomization/apps", "../team", "is not a valid namespace"),
        ] {
            let error = path(object, namespace).expect_err(object).to_string();
            assert!(error.contains(why), "{object}: {error}");
        }
    }
}
