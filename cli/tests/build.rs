//! `roadstead build` on a disk: output, exit codes, links, a closed pipe.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn write(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

fn roadstead(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roadstead")).args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_base_beside_the_overlay() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "base/kustomization.yaml", "resources: [cm.yaml]\n");
    write(dir.path(), "base/cm.yaml", &config_map("a"));
    write(dir.path(), "over/kustomization.yaml", "namePrefix: x-\nresources: [../base]\n");
    let output = roadstead(&["build", "over"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), config_map("x-a"));

    let output = roadstead(&["build", "over", "-o", "out.yaml"], dir.path());
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(dir.path().join("out.yaml")).unwrap(), config_map("x-a"));
}

#[test]
fn a_plain_directory_is_built_as_flux_does() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "app/z.yaml", &config_map("z"));
    write(dir.path(), "app/deep/er/a.yml", &config_map("a"));
    write(dir.path(), "app/values.yaml", "replicas: 3\n");
    write(dir.path(), "app/notes.txt", "nothing");
    write(dir.path(), "app/nested/kustomization.yaml", "nameSuffix: -n\nresources: [cm.yaml]\n");
    write(dir.path(), "app/nested/cm.yaml", &config_map("cm"));
    let output = roadstead(&["build", "app"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let want = [config_map("a"), config_map("cm-n"), config_map("z")].join("---\n");
    assert_eq!(text(&output.stdout), want);
    let output = roadstead(&["build", "app", "--no-generate"], dir.path());
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_load_restrictor_follows_links() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "outside.yaml", &config_map("o"));
    write(dir.path(), "app/kustomization.yaml", "resources: [link.yaml]\n");
    std::os::unix::fs::symlink(dir.path().join("outside.yaml"), dir.path().join("app/link.yaml")).unwrap();
    let output = roadstead(&["build", "app"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("load restrictor"), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());
    let output = roadstead(&["build", "app", "--load-restrictor", "LoadRestrictionsNone"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn exit_codes_and_other_commands() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(roadstead(&["build", "nope"], dir.path()).status.code(), Some(1));
    assert_eq!(roadstead(&["frobnicate"], dir.path()).status.code(), Some(1));
    let help = roadstead(&["build", "--help"], dir.path());
    assert!(help.status.success() && text(&help.stdout).contains("--load-restrictor"));
    assert!(text(&roadstead(&["version"], dir.path()).stdout).starts_with("roadstead "));
    assert!(text(&roadstead(&["completion", "bash"], dir.path()).stdout).contains("roadstead"));
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let many: String = (0..5_000).map(|i| format!("{}---\n", config_map(&format!("c{i}")))).collect();
    write(dir.path(), "a.yaml", &many);
    let mut child = Command::new(env!("CARGO_BIN_EXE_roadstead"))
        .args(["build", "."])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(text(&output.stderr), "");
}
