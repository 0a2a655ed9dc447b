//! What errors say: inputs of `errors/inputs.txt`, and the messages as a snapshot that is read when it changes.
//!
//! A message names the file, the line, the object and the field, and says what to do where that is not plain.

use std::fmt::Write as _;

use roadstead_kustomize::{Generate, MemoryTree, Options, TreePath, build};

#[test]
fn messages() {
    let mut all = String::new();
    for input in include_str!("errors/inputs.txt").split("==== ").skip(1) {
        let (name, files) = input.split_once('\n').unwrap();
        let mut tree = MemoryTree::new();
        for file in files.split("#### ").skip(1) {
            let (path, text) = file.split_once('\n').unwrap();
            tree.insert_file(TreePath::new(path).unwrap(), text);
        }
        let options = Options { generate: Generate::Never, ..Options::default() };
        let error = build(&tree, &TreePath::root(), &options).unwrap_err();
        writeln!(all, "{name}\n    {error}").unwrap();
    }
    insta::assert_snapshot!(all);
}
