//! `roadstead build`: what the hub would build, on this machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use roadstead_kustomize::{
    Build as Built, Fetched, Generate, LoadRestrictor, Object, Options, Remote, RemoteUrl, Reorder,
};

use crate::input::Input;
use crate::output;

/// Build a directory with a kustomization, as `kustomize build` does, and print its objects
///
/// A directory without a kustomization is built from all manifests in it and below it, as Flux does.
///
/// Examples:
///   roadstead build overlays/staging
///   roadstead build artifact.tar.gz//overlays/staging -o rendered/
///   roadstead build 'https://git.example.com/webapp.git//overlays/staging?ref=v1.2.0'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Build {
    /// A directory, FILE.tar.gz[//DIR] or GIT-URL[//DIR][?ref=REVISION]
    #[arg(default_value = ".", value_hint = clap::ValueHint::DirPath)]
    path: String,

    /// Write to this file; into a directory that exists, one file for each object
    #[arg(short, long, value_name = "FILE|DIR", value_hint = clap::ValueHint::AnyPath)]
    output: Option<PathBuf>,

    /// Where the files that a kustomization names may lie: in its directory and below, or anywhere
    #[arg(long, value_enum, default_value = "LoadRestrictionsRootOnly", value_name = "RESTRICTOR")]
    load_restrictor: Restrictor,

    /// Label all objects `app.kubernetes.io/managed-by: kustomize-v5.8.1`, as `kustomize build` does
    #[arg(long)]
    enable_managedby_label: bool,

    /// The order of the objects, where sortOptions of the kustomization do not say it
    #[arg(long, value_enum, default_value = "legacy", value_name = "ORDER")]
    reorder: Order,

    /// Refuse a directory that has no kustomization, as `kustomize build` does
    #[arg(long)]
    no_generate: bool,

    #[command(flatten)]
    refused: Refused,
}

/// Flags of `kustomize build` that are answered with why they are not taken.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct Refused {
    #[arg(long, hide = true)]
    enable_alpha_plugins: bool,
    #[arg(long, hide = true)]
    enable_exec: bool,
    #[arg(long, hide = true)]
    enable_star: bool,
    #[arg(long, hide = true)]
    enable_helm: bool,
    #[arg(long, hide = true)]
    helm_command: Option<String>,
    #[arg(long, hide = true)]
    as_current_user: bool,
    #[arg(long, hide = true)]
    network: bool,
    #[arg(long, hide = true)]
    network_name: Option<String>,
    #[arg(long, hide = true)]
    mount: Vec<String>,
    #[arg(short = 'e', long = "env", hide = true)]
    env: Vec<String>,
}

impl Refused {
    /// The first that was given, and why it is not taken.
    fn check(&self) -> Result<()> {
        const NO_PROCESS: &str = "a build runs no other program and no container, on the hub or here: builtin \
                                  transformers and generators work, exec, container and Starlark functions do not";
        const NO_HELM: &str =
            "Helm charts are not rendered here: render them first and name the result under resources";
        let flags = [
            ("--enable-alpha-plugins", self.enable_alpha_plugins, NO_PROCESS),
            ("--enable-exec", self.enable_exec, NO_PROCESS),
            ("--enable-star", self.enable_star, NO_PROCESS),
            ("--as-current-user", self.as_current_user, NO_PROCESS),
            ("--network", self.network, NO_PROCESS),
            ("--network-name", self.network_name.is_some(), NO_PROCESS),
            ("--mount", !self.mount.is_empty(), NO_PROCESS),
            ("--env", !self.env.is_empty(), NO_PROCESS),
            ("--enable-helm", self.enable_helm, NO_HELM),
            ("--helm-command", self.helm_command.is_some(), NO_HELM),
        ];
        match flags.into_iter().find(|(_, given, _)| *given) {
            Some((flag, _, why)) => bail!("{flag} is not supported: {why}"),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Restrictor {
    /// Only in the directory of the kustomization and below it.
    #[value(name = "LoadRestrictionsRootOnly")]
    RootOnly,
    /// Anywhere.
    #[value(name = "LoadRestrictionsNone")]
    None,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Order {
    /// Namespaces, definitions and what others need first, webhooks last.
    Legacy,
    /// As they were read.
    None,
}

impl Build {
    pub(crate) fn run(self) -> Result<()> {
        self.refused.check()?;
        let built = self.build()?;
        match &self.output {
            Some(dir) if dir.is_dir() => write_each(dir, &built),
            Some(file) => write(file, &built.to_yaml()),
            None => Ok(output::print(built.to_yaml().as_bytes())?),
        }
    }

    fn build(&self) -> Result<Built> {
        let (tree, path) = Input::parse(&self.path)?.open()?;
        let options = Options {
            generate: if self.no_generate { Generate::Never } else { Generate::PlainDirectories },
            load_restrictor: match self.load_restrictor {
                Restrictor::RootOnly => LoadRestrictor::RootOnly,
                Restrictor::None => LoadRestrictor::None,
            },
            managed_by_label: self.enable_managedby_label,
            reorder: match self.reorder {
                Order::Legacy => Reorder::Legacy,
                Order::None => Reorder::None,
            },
            remote: Some(Arc::new(NotFetched)),
            ..Options::default()
        };
        roadstead_kustomize::build(tree.as_ref(), &path, &options)
            .with_context(|| format!("cannot build {:?}", self.path))
    }
}

/// Says what to do where a kustomization names something by URL.
#[derive(Debug)]
struct NotFetched;

impl Remote for NotFetched {
    fn fetch(&self, url: &str) -> Result<Fetched, String> {
        // What is meant as a repository can be built by itself.
        let repository = RemoteUrl::parse(url).and_then(|url| url.repository);
        let by_itself = repository.map_or("", |_| "build it by itself (roadstead build URL), or ");
        Err(format!(
            "roadstead build fetches nothing that a kustomization names by URL; {by_itself}copy it into the directory. A hub \
             that is started with --remote-bases HOST fetches it"
        ))
    }
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {:?}", file.display().to_string()))
}

/// One file for each object, with kustomize's names.
fn write_each(dir: &Path, built: &Built) -> Result<()> {
    let namespaces: BTreeSet<&str> =
        built.objects.iter().filter(|object| !object.is_cluster_scoped()).map(namespace).collect();
    for object in &built.objects {
        let name = file_name(object);
        let name = if namespaces.len() > 1 && !object.is_cluster_scoped() {
            format!("{}_{name}", namespace(object).to_lowercase())
        } else {
            name
        };
        // Names come from the build's input: none may lead out of the directory.
        write(&dir.join(name.replace(['/', '\\', '\0'], "_")), &object.to_yaml())?;
    }
    Ok(())
}

/// What an object that names none counts as.
fn namespace(object: &Object) -> &str {
    if object.namespace().is_empty() { "default" } else { object.namespace() }
}

fn file_name(object: &Object) -> String {
    let (group, version) = object.api_version().split_once('/').unwrap_or(("", object.api_version()));
    let parts: Vec<&str> =
        [group, version, object.kind(), object.name()].into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}.yaml", parts.join("_").to_lowercase())
}
