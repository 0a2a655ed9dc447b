//! `roadstead build`: what the hub would build from a directory, on this machine.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use roadstead_kustomize::{Generate, LoadRestrictor, Options};

use crate::disk::DiskTree;
use crate::output;

/// Build a directory with a kustomization, as `kustomize build` does, and print its objects.
///
/// A directory without a kustomization is built from all manifests in it and below it, as Flux does.
#[derive(Debug, clap::Args)]
pub(crate) struct Build {
    /// The directory.
    #[arg(default_value = ".", value_hint = clap::ValueHint::DirPath)]
    path: PathBuf,

    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,

    /// Where the files that a kustomization names may lie: in its directory and below, or anywhere.
    #[arg(long, value_enum, default_value = "LoadRestrictionsRootOnly", value_name = "RESTRICTOR")]
    load_restrictor: Restrictor,

    /// Label all objects `app.kubernetes.io/managed-by: kustomize-v5.8.1`, as `kustomize build` does.
    #[arg(long)]
    enable_managedby_label: bool,

    /// Refuse a directory that has no kustomization, as `kustomize build` does.
    #[arg(long)]
    no_generate: bool,
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

impl Build {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let yaml = self.build()?;
        match &self.output {
            Some(file) => {
                std::fs::write(file, yaml).with_context(|| format!("cannot write {}", file.display()))?;
            }
            None => output::print(yaml.as_bytes())?,
        }
        Ok(())
    }

    fn build(&self) -> anyhow::Result<String> {
        let (tree, path) = DiskTree::at(&self.path)?;
        let options = Options {
            generate: if self.no_generate { Generate::Never } else { Generate::PlainDirectories },
            load_restrictor: match self.load_restrictor {
                Restrictor::RootOnly => LoadRestrictor::RootOnly,
                Restrictor::None => LoadRestrictor::None,
            },
            managed_by_label: self.enable_managedby_label,
            ..Options::default()
        };
        let build = roadstead_kustomize::build(&tree, &path, &options)
            .with_context(|| format!("cannot build {}", shown(&self.path)))?;
        Ok(build.to_yaml())
    }
}

fn shown(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}
