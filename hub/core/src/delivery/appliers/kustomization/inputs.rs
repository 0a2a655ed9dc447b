//! Encrypted build inputs: files that a build reads and that must be decrypted before it, as Flux does. What kustomize hashes into a
//! name, or merges, has to be plaintext by then; what it carries as it is, is decrypted in the cluster.
//!
//! They are decrypted in the worker process that builds, by data keys that the hub unwrapped for them. What comes of it is sealed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use roadstead_kustomize::{Entry, EntryKind, FileTree, TreeError, TreePath, resolve};
use roadstead_model::Digest;
use roadstead_sops::{DataKey, Format, MacPolicy, UnwrappedKeys, decrypt, is_marked, read_metadata};
use serde::Deserialize as _;
use serde_json::Value;
use zeroize::Zeroizing;

use super::folders::{Folders, list};
use crate::delivery::applier::{GivenKeys, InputKey, Need};
use crate::delivery::placing;

/// Encrypted inputs of one build, and bytes of what their data keys are wrapped as. The hub has them in memory while it renders.
const MAX_INPUTS: usize = 200;
const MAX_WRAPPED_BYTES: usize = 1 << 20;
/// Shorter texts of decrypted files are not looked for: they would be found by chance.
const MIN_WORD: usize = 4;
/// What SOPS takes.
const MAX_INPUT_BYTES: usize = 5 << 20;

/// A file that must be decrypted before a build.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EncryptedInput {
    /// The file.
    pub(super) path: TreePath,
    /// How it is read and written.
    pub(super) format: Format,
    /// What reads it, for messages.
    pub(super) used_by: String,
    /// What keeps it from being decrypted in the cluster, and how that is helped.
    pub(super) instead: &'static str,
}

const OF_HASH: &str = "its content becomes part of a name: set options.disableNameSuffixHash, and it is decrypted in the cluster";
const OF_ENVS: &str = "its lines become entries: use files in place of envs, with options.disableNameSuffixHash, or an encrypted Secret";
const OF_PATCH: &str = "a patch cannot be merged while it is encrypted: encrypt the object that it patches";

/// The encrypted inputs of the build at `root`. What of the kustomizations cannot be read, the build will say.
pub(super) fn encrypted_inputs(tree: &dyn FileTree, root: &TreePath) -> Vec<EncryptedInput> {
    let mut found = Search { tree, folders: Folders::default(), inputs: Vec::new() };
    found.visit(root);
    found.inputs
}

struct Search<'t> {
    tree: &'t dyn FileTree,
    folders: Folders,
    inputs: Vec<EncryptedInput>,
}

impl Search<'_> {
    fn visit(&mut self, folder: &TreePath) {
        let Some((folder, kustomization)) = self.folders.enter(self.tree, "", folder) else { return };
        let name = folder.display().to_owned();
        self.generators(&folder, &name, &kustomization);
        for patch in list(&kustomization["patches"]) {
            if let Some(path) = patch["path"].as_str() {
                self.input(&folder, path, Format::of_name(path), || format!("patches of {name}"), OF_PATCH);
            }
        }
        for next in ["resources", "components"].iter().flat_map(|field| list(&kustomization[*field])) {
            if let Some(path) = next.as_str().and_then(|path| folder.join(path)) {
                self.visit(&path);
            }
        }
    }

    fn generators(&mut self, folder: &TreePath, name: &str, kustomization: &Value) {
        let is_off = |options: &Value| options["disableNameSuffixHash"] == true;
        let all_off = is_off(&kustomization["generatorOptions"]);
        for generator in list(&kustomization["secretGenerator"]) {
            let of = generator["name"].as_str().unwrap_or_default();
            let used_by = || format!("secretGenerator '{of}' of {name}");
            if !(all_off || is_off(&generator["options"])) {
                for file in list(&generator["files"]).iter().filter_map(Value::as_str) {
                    let (key, path) = file.split_once('=').unwrap_or((file, file));
                    let format =
                        if key.ends_with(".dockerconfigjson") { Format::Json } else { Format::of_name(key) };
                    self.input(folder, path, format, used_by, OF_HASH);
                }
            }
            for path in list(&generator["envs"]).iter().filter_map(Value::as_str) {
                let format = match Format::of_name(path) {
                    Format::Binary => Format::Dotenv,
                    other => other,
                };
                self.input(folder, path, format, used_by, OF_ENVS);
            }
        }
    }

    fn input(
        &mut self,
        folder: &TreePath,
        path: &str,
        format: Format,
        used_by: impl Fn() -> String,
        instead: &'static str,
    ) {
        let Some(path) = folder.join(path) else { return };
        let Ok((path, EntryKind::File)) = resolve(self.tree, &path) else { return };
        let Ok(bytes) = self.tree.read(&path, MAX_INPUT_BYTES) else { return };
        if is_marked(&bytes, format) && self.inputs.iter().all(|input| input.path != path) {
            self.inputs.push(EncryptedInput { path, format, used_by: used_by(), instead });
        }
    }
}

/// A tree in which some files have other content.
struct WithFiles<'t> {
    tree: &'t dyn FileTree,
    files: &'t BTreeMap<TreePath, Zeroizing<Vec<u8>>>,
}

impl FileTree for WithFiles<'_> {
    fn kind(&self, path: &TreePath) -> Result<Option<EntryKind>, TreeError> {
        self.tree.kind(path)
    }

    fn read(&self, path: &TreePath, limit: usize) -> Result<Cow<'_, [u8]>, TreeError> {
        match self.files.get(path) {
            Some(bytes) if bytes.len() > limit => Err(TreeError::TooLarge { path: path.clone(), limit }),
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => self.tree.read(path, limit),
        }
    }

    fn entries(&self, dir: &TreePath) -> Result<Vec<Entry>, TreeError> {
        self.tree.entries(dir)
    }
}

/// What was asked for to decrypt these inputs.
pub(super) fn need(tree: &dyn FileTree, inputs: &[EncryptedInput]) -> Result<Need, String> {
    if inputs.len() > MAX_INPUTS {
        return Err(format!("the build reads more than {MAX_INPUTS} encrypted files"));
    }
    let mut left = MAX_WRAPPED_BYTES;
    let keys = inputs.iter().map(|input| {
        let bytes = tree.read(&input.path, MAX_INPUT_BYTES).map_err(|error| input.failed(&error))?;
        let metadata = read_metadata(&bytes, input.format, &roadstead_sops::Limits::default());
        let key = metadata.map_err(|error| input.failed(&error))?.wrapped().clone();
        let wrapped = serde_json::to_vec(&key).map_err(|error| error.to_string())?.len();
        left = left.checked_sub(wrapped).ok_or_else(|| {
            format!("the data keys of the encrypted files that the build reads have more than {MAX_WRAPPED_BYTES} bytes, wrapped: encrypt to fewer recipients")
        })?;
        let (path, used_by) = (input.path.display().to_owned(), input.used_by.clone());
        Ok(InputKey { path, used_by, instead: input.instead.to_owned(), key })
    });
    keys.collect::<Result<_, String>>().map(Need::Keys)
}

/// Decrypted inputs. What they hold must not show in what is told of their build, or be stored.
pub(super) struct Opened {
    files: BTreeMap<TreePath, Zeroizing<Vec<u8>>>,
    /// Texts that stand in them and not in the encrypted files.
    words: Vec<Zeroizing<String>>,
    /// Which of them have MACs that do not fit, and why.
    pub(super) warnings: Vec<String>,
}

impl Opened {
    /// Decrypts the inputs by the keys that were given for them.
    pub(super) fn new(
        tree: &dyn FileTree,
        inputs: &[EncryptedInput],
        given: Option<&Value>,
    ) -> Result<Self, String> {
        let given = given.and_then(|given| GivenKeys::deserialize(given).ok());
        let given =
            given.ok_or("the keys that were given for the build's encrypted inputs are not readable")?;
        let mut keys = UnwrappedKeys::default();
        for (digest, key) in &given.keys {
            let digest = digest.parse::<Digest>().map_err(|error| error.to_string())?;
            let key = BASE64.decode(key.as_bytes()).map_err(|error| error.to_string())?;
            keys.insert(*digest.as_bytes(), DataKey::new(Zeroizing::new(key)));
        }
        let mut opened = Self { files: BTreeMap::new(), words: Vec::new(), warnings: Vec::new() };
        for input in inputs {
            let bytes = tree.read(&input.path, MAX_INPUT_BYTES).map_err(|error| input.failed(&error))?;
            let mut options = roadstead_sops::Options::new(input.format);
            options.mac = if given.lenient { MacPolicy::Warn } else { MacPolicy::Verify };
            let file = decrypt(&bytes, &options, &keys).map_err(|error| input.failed(&error))?;
            if let Some(problem) = file.warning {
                let EncryptedInput { path, used_by, .. } = input;
                opened.warnings.push(format!("{path}, which {used_by} reads: {problem}"));
            }
            opened.add_words(&bytes, &file.bytes);
            opened.files.insert(input.path.clone(), file.bytes);
        }
        Ok(opened)
    }

    fn add_words(&mut self, encrypted: &[u8], plain: &[u8]) {
        let encrypted = String::from_utf8_lossy(encrypted);
        let text = String::from_utf8_lossy(plain);
        let is_new = |word: &&str| word.len() >= MIN_WORD && !encrypted.contains(*word);
        for line in text.lines() {
            let value = line.split_once(['=', ':']).map_or("", |(_, value)| value);
            let trimmed = [line, value].map(|word| word.trim_matches([' ', '\t', '-', '"', '\'', ',']));
            self.words.extend(
                trimmed.iter().filter(|word| is_new(word)).map(|word| Zeroizing::new((*word).to_owned())),
            );
        }
        self.words.push(Zeroizing::new(BASE64.encode(plain)));
    }

    /// Does something with the tree in which they are decrypted. An error that would tell what they hold is told without it.
    pub(super) fn with_tree<T>(
        &self,
        tree: &dyn FileTree,
        work: impl FnOnce(&dyn FileTree) -> Result<T, String>,
    ) -> Result<T, String> {
        work(&WithFiles { tree, files: &self.files }).map_err(|error| {
            if self.shows_in(&error) {
                "the build of its decrypted inputs failed; the reason holds a decrypted value, and is not told".to_owned()
            } else {
                error
            }
        })
    }

    /// What of the objects goes to the hub and would be stored there with a decrypted value in plain text, if any.
    pub(super) fn exposed(&self, objects: &[Value]) -> Option<String> {
        let (of_hub, _) = placing::split(objects.to_vec(), &BTreeSet::new());
        let exposed = of_hub.iter().find(|object| {
            object["kind"] != "Secret" && texts(object).iter().any(|text| self.shows_in(text))
        })?;
        Some(format!(
            "{}/{} goes to the hub, and a decrypted value of the build's encrypted inputs would be stored there in plain text",
            exposed["kind"].as_str().unwrap_or_default(),
            exposed["metadata"]["name"].as_str().unwrap_or_default()
        ))
    }

    fn shows_in(&self, text: &str) -> bool {
        self.words.iter().any(|word| text.contains(word.as_str()))
    }
}

impl EncryptedInput {
    fn failed(&self, error: &dyn std::fmt::Display) -> String {
        format!("cannot decrypt {}, which {} reads: {error}", self.path, self.used_by)
    }
}

/// All texts of an object.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(map) => {
            map.iter().flat_map(|(key, value)| std::iter::once(key.as_str()).chain(texts(value))).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use roadstead_kustomize::MemoryTree;

    use super::*;

    const YAML: &str = "password: ENC[x]\nsops:\n    mac: ENC[AES256_GCM,x]\n";
    const DOTENV: &str = "password=ENC[x]\nsops_mac=ENC[x]\n";
    const BINARY: &str = "{\"data\": \"ENC[x]\", \"sops\": {\"mac\": \"ENC[x]\"}}";

    #[test]
    fn what_must_be_decrypted_before_a_build_is_found() {
        let mut tree = MemoryTree::new();
        let path = |text: &str| TreePath::new(text).expect("beneath the root");
        let kustomization = "resources: [../base, ../more, https://example.com/x]\nsecretGenerator:\n- name: hashed\n  files: [a=secret.bin, \
                             plain.txt]\n  envs: [some.env]\n- name: kept\n  files: [kept.yaml]\n  options: \
                             {disableNameSuffixHash: true}\npatches: [{path: patch.yaml}, {path: open.yaml}]\n";
        tree.insert_file(path("app/kustomization.yaml"), kustomization);
        tree.insert_file(path("app/secret.bin"), BINARY);
        tree.insert_file(path("app/plain.txt"), "text");
        tree.insert_file(path("app/some.env"), DOTENV);
        tree.insert_file(path("app/kept.yaml"), YAML);
        tree.insert_file(path("app/patch.yaml"), YAML);
        tree.insert_file(path("app/open.yaml"), "kind: Secret\n");
        // Each folder once, also where it refers back; of one that turns hashes off only the lines count.
        let base = "resources: [../app]\ngeneratorOptions: {disableNameSuffixHash: true}\nsecretGenerator: [{name: base, files: \
                    [base.yaml], envs: [base.yaml]}]\n";
        tree.insert_file(path("base/Kustomization"), base);
        tree.insert_file(path("base/base.yaml"), YAML);
        // Not a kustomization at all.
        tree.insert_file(path("more/kustomization.yml"), "[");
        let found = encrypted_inputs(&tree, &path("app"));
        let found: Vec<_> =
            found.iter().map(|input| (input.path.as_str(), input.format, input.used_by.as_str())).collect();
        let expected = [
            ("app/secret.bin", Format::Binary, "secretGenerator 'hashed' of app"),
            ("app/some.env", Format::Dotenv, "secretGenerator 'hashed' of app"),
            ("app/patch.yaml", Format::Yaml, "patches of app"),
            ("base/base.yaml", Format::Yaml, "secretGenerator 'base' of base"),
        ];
        assert_eq!(found, expected);
    }
}
