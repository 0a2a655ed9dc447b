//! Remote resources of a build: what its kustomizations name by URL, and what of that was given.
//!
//! They are looked for before the build, so that what stands side by side is asked for at once; what is found only while it builds is asked
//! for by the build.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use roadstead_kustomize::{Fetched, FileTree, Remote, RemoteUrl, TreePath, resolve};
use serde_json::Value;

use super::folders::{Folders, list};
use crate::delivery::applier::{Inputs, Need};

/// Remote resources that one build may name, and how deep they may name each other.
const MAX_REMOTES: usize = 32;
const MAX_DEPTH: usize = 5;
/// Fields whose entries are paths.
const PATHS: [&str; 9] = [
    "resources",
    "bases",
    "components",
    "crds",
    "configurations",
    "generators",
    "transformers",
    "validators",
    "patchesStrategicMerge",
];

/// What the hub has fetched, for a build. What that lacks is noted.
#[derive(Debug, Clone)]
pub(super) struct Given {
    by_url: Arc<BTreeMap<String, Fetched>>,
    missing: Arc<Mutex<BTreeSet<String>>>,
}

impl Given {
    pub(super) fn of(inputs: &Inputs<'_>) -> Self {
        Self { by_url: Arc::new(inputs.remotes.clone()), missing: Arc::default() }
    }

    /// What was asked for and not given.
    pub(super) fn missing(&self) -> Vec<Need> {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.iter().map(|url| Need::Remote { url: url.clone() }).collect()
    }
}

impl Remote for Given {
    fn fetch(&self, url: &str) -> Result<Fetched, String> {
        if let Some(fetched) = self.by_url.get(url) {
            return Ok(fetched.clone());
        }
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(url.to_owned());
        Err("it is not there yet".to_owned())
    }
}

/// What the kustomizations from `root` on name by URL and was not given yet; `components` are named beside those of the root.
///
/// What of them cannot be read, the build will say.
pub(super) fn missing(
    tree: &dyn FileTree,
    root: &TreePath,
    components: &[String],
    given: &BTreeMap<String, Fetched>,
) -> Result<Vec<Need>, String> {
    let mut search = Search { given, folders: Folders::default(), urls: BTreeMap::new() };
    let place = Place { tree, url: "", depth: 0 };
    components.iter().for_each(|path| search.path(&place, root, path));
    search.visit(&place, root);
    if search.urls.len() > MAX_REMOTES {
        return Err(format!("its kustomizations name more than {MAX_REMOTES} remote resources"));
    }
    if let Some((url, _)) = search.urls.iter().find(|(_, depth)| **depth > MAX_DEPTH) {
        let shown = RemoteUrl::shown(url);
        return Err(format!(
            "remote resources name each other more than {MAX_DEPTH} deep: {shown:?} is too deep"
        ));
    }
    let missing = search.urls.into_keys().filter(|url| !given.contains_key(url));
    Ok(missing.map(|url| Need::Remote { url }).collect())
}

/// A tree that is searched: the source's, or what a URL led to.
struct Place<'t> {
    tree: &'t dyn FileTree,
    url: &'t str,
    depth: usize,
}

struct Search<'g> {
    given: &'g BTreeMap<String, Fetched>,
    folders: Folders,
    /// With how deep they lie.
    urls: BTreeMap<String, usize>,
}

impl Search<'_> {
    fn visit(&mut self, place: &Place<'_>, folder: &TreePath) {
        let Some((folder, kustomization)) = self.folders.enter(place.tree, place.url, folder) else { return };
        let patches = ["patches", "patchesJson6902"].iter().flat_map(|field| list(&kustomization[*field]));
        let named = patches.chain([&kustomization["openapi"]]).filter_map(|patch| patch["path"].as_str());
        let listed = PATHS.iter().flat_map(|field| list(&kustomization[*field])).filter_map(Value::as_str);
        listed.chain(named).for_each(|path| self.path(place, &folder, path));
    }

    /// What a kustomization in `folder` names.
    fn path(&mut self, place: &Place<'_>, folder: &TreePath, path: &str) {
        // A text of several lines is an object or a patch.
        if path.contains('\n') {
            return;
        }
        let local = folder.join(path).filter(|local| resolve(place.tree, local).is_ok());
        if let Some(local) = local {
            return self.visit(place, &local);
        }
        if RemoteUrl::parse(path).is_none() {
            return;
        }
        let depth = place.depth + 1;
        let known = self.urls.entry(path.to_owned()).or_insert(depth);
        *known = depth.min(*known);
        if self.urls.len() > MAX_REMOTES || depth > MAX_DEPTH {
            return;
        }
        let given = self.given;
        if let Some((url, Fetched { tree, path })) = given.get_key_value(path) {
            self.visit(&Place { tree: tree.as_ref(), url, depth }, path);
        }
    }
}

#[cfg(test)]
mod tests {
    use roadstead_kustomize::MemoryTree;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> MemoryTree {
        let mut tree = MemoryTree::new();
        for (path, text) in files {
            tree.insert_file(TreePath::new(path).expect("beneath the root"), *text);
        }
        tree
    }

    fn fetched(files: &[(&str, &str)], path: &str) -> Fetched {
        Fetched { tree: Arc::new(tree(files)), path: TreePath::new(path).expect("beneath the root") }
    }

    fn urls(needs: Vec<Need>) -> Vec<String> {
        let url = |need| match need {
            Need::Remote { url } => url,
            other => panic!("{other:?}"),
        };
        needs.into_iter().map(url).collect()
    }

    #[test]
    fn what_stands_side_by_side_is_asked_for_at_once_and_what_it_names_then() {
        let source = tree(&[
            (
                "app/kustomization.yaml",
                "resources: [../base, a.yaml, 'https://one.example/x.yaml']\ncomponents: [github.com/org/repo/c]\n\
                 patches: [{path: 'https://two.example/p.yaml'}, {patch: 'https://not/this'}]\n",
            ),
            ("app/a.yaml", "kind: X\n"),
            (
                "base/kustomization.yaml",
                "resources: ['https://three.example/a/b//c?ref=v1', ../app, 'git.example.com/a/b']\n",
            ),
        ]);
        let root = TreePath::new("app").expect("a path");
        let more = ["https://four.example/a/b//c".to_owned(), "../base".to_owned()];
        let first = urls(missing(&source, &root, &more, &BTreeMap::new()).expect("few"));
        let expected = [
            "github.com/org/repo/c",
            "https://four.example/a/b//c",
            "https://one.example/x.yaml",
            "https://three.example/a/b//c?ref=v1",
            "https://two.example/p.yaml",
        ];
        assert_eq!(first, expected);
        let of_three = [
            ("c/kustomization.yaml", "resources: [../d]\n"),
            (
                "d/kustomization.yaml",
                "resources: ['https://three.example/a/b//c?ref=v1', 'https://five.example/y.yaml']\n",
            ),
        ];
        let mut given: BTreeMap<_, _> = first.iter().map(|url| (url.clone(), fetched(&[], ""))).collect();
        given.insert("https://three.example/a/b//c?ref=v1".to_owned(), fetched(&of_three, "c"));
        assert_eq!(
            urls(missing(&source, &root, &more, &given).expect("few")),
            ["https://five.example/y.yaml"]
        );
    }

    #[test]
    fn number_and_depth_are_bounded() {
        let many: Vec<String> = (0..=MAX_REMOTES).map(|n| format!("'https://h.example/{n}.yaml'")).collect();
        let source = tree(&[("kustomization.yaml", &format!("resources: [{}]\n", many.join(", ")))]);
        let told = missing(&source, &TreePath::root(), &[], &BTreeMap::new()).unwrap_err();
        assert!(told.contains("more than 32"), "{told}");
        let url = |n: usize| format!("https://h.example/a/b//c?ref=v{n}");
        let naming = |n: usize| format!("resources: ['{}']\n", url(n));
        let given = (1..=MAX_DEPTH).map(|n| (url(n), fetched(&[("kustomization.yaml", &naming(n + 1))], "")));
        let source = tree(&[("kustomization.yaml", &naming(1))]);
        let told = missing(&source, &TreePath::root(), &[], &given.collect()).unwrap_err();
        assert!(told.contains("more than 5 deep") && told.contains("ref=v6"), "{told}");
    }
}
