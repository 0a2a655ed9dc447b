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

#[test]
fn one_file_for_each_object() {
    let dir = tempfile::tempdir().unwrap();
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: A\n";
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: x:../y\n";
    write(dir.path(), "app/all.yaml", &[deployment, role].join("---\n"));
    fs::create_dir(dir.path().join("out")).unwrap();
    let names = || {
        let entries = fs::read_dir(dir.path().join("out")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let output = roadstead(&["build", "app", "-o", "out"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        names(),
        ["apps_v1_deployment_web.yaml", "rbac.authorization.k8s.io_v1_clusterrole_x:.._y.yaml"]
    );
    assert_eq!(fs::read_to_string(dir.path().join("out/apps_v1_deployment_web.yaml")).unwrap(), deployment);

    // With several namespaces the file's name tells which.
    write(dir.path(), "app/cm.yaml", &config_map("cm"));
    let output = roadstead(&["build", "app", "-o", "out"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in ["a_apps_v1_deployment_web.yaml", "default_v1_configmap_cm.yaml"] {
        assert!(names().contains(&name.to_owned()), "{name} is missing: {:?}", names());
    }
}

#[test]
fn the_order_is_as_asked_where_the_kustomization_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\n";
    write(dir.path(), "all.yaml", &[&config_map("z"), namespace].join("---\n"));
    write(dir.path(), "kustomization.yaml", "resources: [all.yaml]\n");
    let build = |args: &[&str]| text(&roadstead(&[&["build"], args].concat(), dir.path()).stdout);
    let legacy = [namespace, &config_map("z")].join("---\n");
    let fifo = [&config_map("z"), namespace].join("---\n");
    assert_eq!(build(&[]), legacy);
    assert_eq!(build(&["--reorder", "legacy"]), legacy);
    assert_eq!(build(&["--reorder", "none"]), fifo);
    write(dir.path(), "kustomization.yaml", "resources: [all.yaml]\nsortOptions: {order: legacy}\n");
    assert_eq!(build(&["--reorder", "none"]), legacy);
}

#[test]
fn flags_that_are_not_taken_say_why() {
    let dir = tempfile::tempdir().unwrap();
    for (args, why) in [
        (vec!["--enable-alpha-plugins"], "no other program"),
        (vec!["--enable-exec"], "no other program"),
        (vec!["--as-current-user"], "no other program"),
        (vec!["-e", "A=b"], "no other program"),
        (vec!["--enable-helm"], "Helm"),
    ] {
        let output = roadstead(&[&["build", "."], args.as_slice()].concat(), dir.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(said.contains(args[0].trim_start_matches("-e")) && said.contains(why), "{said}");
    }
}

/// Runs a program of this machine; it must succeed.
fn run(dir: &Path, program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", text(&output.stderr));
}

#[test]
fn an_archive_and_a_git_repository_at_a_revision() {
    let dir = tempfile::tempdir().unwrap();
    let repository = dir.path().join("repository");
    let commit = |name: &str| {
        write(&repository, "base/kustomization.yaml", "resources: [cm.yaml]\n");
        write(&repository, "base/cm.yaml", &config_map(name));
        write(&repository, "over/kustomization.yaml", "resources: [../base]\n");
        run(&repository, "git", &["add", "--all"]);
        let author = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        run(&repository, "git", &[&author[..], &["commit", "--quiet", "-m", name]].concat());
    };
    fs::create_dir(&repository).unwrap();
    run(&repository, "git", &["init", "--quiet", "--initial-branch=main"]);
    commit("first");
    run(&repository, "git", &["tag", "v1"]);
    commit("second");
    run(dir.path(), "tar", &["-czf", "app.tar.gz", "-C", "repository", "base", "over"]);

    let url = format!("file://{}", repository.display());
    let build = |input: &str| {
        let output = roadstead(&["build", input], dir.path());
        (text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(build("app.tar.gz//over").0, config_map("second"));
    assert_eq!(build(&format!("{url}//over")).0, config_map("second"));
    assert_eq!(build(&format!("{url}//over?ref=main")).0, config_map("second"));
    assert_eq!(build(&format!("{url}//over?ref=v1")).0, config_map("first"));
    let (_, error) = build(&format!("{url}//over?ref=v2"));
    assert!(error.contains("no branch or tag has that name") && error.contains("v2"), "{error}");
    let (_, error) = build("app.tar.gz//../over");
    assert!(error.contains("leaves the root"), "{error}");
    fs::write(dir.path().join("broken.tar.gz"), "no gzip").unwrap();
    assert!(build("broken.tar.gz").1.contains("tar.gz"));
}

#[test]
fn what_a_source_leaves_out_is_not_built_from_a_plain_directory() {
    let dir = tempfile::tempdir().unwrap();
    for name in
        ["app/a.yaml", "app/drafts/b.yaml", "app/drafts/kept.yaml", "app/more/c.yaml", "app/more/d.yaml"]
    {
        let stem = Path::new(name).file_stem().unwrap().to_str().unwrap();
        write(dir.path(), name, &config_map(stem));
    }
    fs::create_dir(dir.path().join(".git")).unwrap();
    write(dir.path(), ".sourceignore", "app/drafts/\n");
    write(dir.path(), "app/more/.sourceignore", "/c.yaml\n");
    let build = || text(&roadstead(&["build", "app"], dir.path()).stdout);
    assert_eq!(build(), [config_map("a"), config_map("d")].join("---\n"));
    write(dir.path(), ".sourceignore", "app/drafts/\n!kept.yaml\n");
    assert_eq!(build(), [config_map("a"), config_map("d"), config_map("kept")].join("---\n"));
    // What a kustomization names is read, as kustomize does.
    write(dir.path(), "app/kustomization.yaml", "resources: [drafts/b.yaml]\n");
    assert_eq!(build(), config_map("b"));
}

#[test]
fn what_a_kustomization_names_by_url_is_not_fetched() {
    let dir = tempfile::tempdir().unwrap();
    for (url, advice) in [
        (
            "https://me:hunter2@git.example.invalid/org/repo//base?ref=v1",
            "build it by itself (roadstead build URL)",
        ),
        ("github.com/org/repo/base", "copy it into the directory"),
        ("https://example.invalid/a.yaml", "--remote-bases HOST"),
    ] {
        write(dir.path(), "kustomization.yaml", &format!("resources:\n- {url}\n"));
        let output = roadstead(&["build", "."], dir.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{url}: {said}");
        assert!(said.contains("cannot fetch") && said.contains(advice), "{url}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
