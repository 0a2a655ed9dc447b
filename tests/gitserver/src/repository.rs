//! Repositories that are committed to with the system's `git`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// A bare repository that a server serves, and the means to commit to it.
#[derive(Debug, Clone)]
pub struct Repository {
    path: PathBuf,
}

/// A commit in the making: files and links on top of a branch's tip (or of nothing).
#[derive(Debug, Clone, Default)]
pub struct Commit {
    files: Vec<(String, &'static str, Vec<u8>)>,
    submodules: Vec<(String, String)>,
    removed: Vec<String>,
}

impl Commit {
    /// Nothing changed yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes a file.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.files.push((path.to_owned(), "100644", content.as_ref().to_vec()));
        self
    }

    /// Writes a file that may be executed.
    #[must_use]
    pub fn executable(mut self, path: &str, content: impl AsRef<[u8]>) -> Self {
        self.files.push((path.to_owned(), "100755", content.as_ref().to_vec()));
        self
    }

    /// Writes a symbolic link.
    #[must_use]
    pub fn link(mut self, path: &str, target: &str) -> Self {
        self.files.push((path.to_owned(), "120000", target.as_bytes().to_vec()));
        self
    }

    /// Puts a submodule at `commit` there; where it is, `.gitmodules` says.
    #[must_use]
    pub fn submodule(mut self, path: &str, commit: &str) -> Self {
        self.submodules.push((path.to_owned(), commit.to_owned()));
        self
    }

    /// Removes a file or folder.
    #[must_use]
    pub fn remove(mut self, path: &str) -> Self {
        self.removed.push(path.to_owned());
        self
    }

    /// Takes every file beneath `folder` of this machine, by its path from there.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn folder(mut self, folder: &Path) -> Result<Self> {
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(&next).with_context(|| format!("reading {}", next.display()))? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(folder)?.to_str().context("a file name that is not UTF-8")?;
                self.files.push((name.to_owned(), "100644", std::fs::read(&path)?));
            }
        }
        self.files.sort();
        Ok(self)
    }
}

/// Makes a bare repository at `path` that `git http-backend` may serve any commit of.
///
/// # Errors
/// If `git` fails.
pub fn init_bare(path: &Path) -> Result<Repository> {
    let repository = Repository { path: path.to_owned() };
    std::fs::create_dir_all(path)?;
    repository.git(["init", "--quiet", "--bare", "--initial-branch=main", "."], &[], b"")?;
    repository.git(["config", "uploadpack.allowAnySHA1InWant", "true"], &[], b"")?;
    Ok(repository)
}

impl Repository {
    /// A repository that exists at `path`.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Commits to `branch`, which is made if there is none; gives the commit's id.
    ///
    /// # Errors
    /// If `git` fails.
    pub fn commit(&self, branch: &str, message: &str, commit: &Commit) -> Result<String> {
        let reference = format!("refs/heads/{branch}");
        let parent = self.git(["rev-parse", "--verify", "--quiet", &reference], &[], b"").ok();
        // An index of its own: a bare repository has no work tree, and needs none.
        let index = self.path.join(format!("index-{}", branch.replace('/', "-")));
        let _ = std::fs::remove_file(&index);
        let env = [("GIT_INDEX_FILE", index.as_os_str())];
        if let Some(parent) = &parent {
            self.git(["read-tree", parent], &env, b"")?;
        }
        for path in &commit.removed {
            self.git(["rm", "--cached", "-r", "--quiet", "--", path], &env, b"")?;
        }
        for (path, mode, content) in &commit.files {
            let blob = self.git(["hash-object", "-w", "--stdin"], &[], content)?;
            self.git(["update-index", "--add", "--cacheinfo", &format!("{mode},{blob},{path}")], &env, b"")?;
        }
        for (path, commit) in &commit.submodules {
            self.git(
                ["update-index", "--add", "--cacheinfo", &format!("160000,{commit},{path}")],
                &env,
                b"",
            )?;
        }
        let tree = self.git(["write-tree"], &env, b"")?;
        self.commit_tree(branch, message, &tree, parent.as_deref())
    }

    /// Commits a tree that exists already; gives the commit's id.
    ///
    /// # Errors
    /// If `git` fails.
    pub fn commit_tree(
        &self,
        branch: &str,
        message: &str,
        tree: &str,
        parent: Option<&str>,
    ) -> Result<String> {
        let mut arguments = vec!["commit-tree", tree, "-m", message];
        if let Some(parent) = parent {
            arguments.extend(["-p", parent]);
        }
        let id = self.git(arguments, &[], b"")?;
        self.git(["update-ref", &format!("refs/heads/{branch}"), &id], &[], b"")?;
        Ok(id)
    }

    /// A light tag.
    ///
    /// # Errors
    /// If `git` fails.
    pub fn tag(&self, name: &str, commit: &str) -> Result<()> {
        self.git(["tag", "--force", name, commit], &[], b"").map(|_| ())
    }

    /// An annotated tag; gives the tag object's id.
    ///
    /// # Errors
    /// If `git` fails.
    pub fn annotated_tag(&self, name: &str, commit: &str) -> Result<String> {
        self.git(["tag", "--force", "--annotate", "-m", name, name, commit], &[], b"")?;
        self.git(["rev-parse", &format!("refs/tags/{name}")], &[], b"")
    }

    /// Runs `git` in the repository with `stdin`; gives what it printed, without the newline at its end.
    ///
    /// # Errors
    /// If it cannot be run or fails.
    pub fn git(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        env: &[(&str, &OsStr)],
        stdin: &[u8],
    ) -> Result<String> {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(&self.path);
        isolate(&self.path, |name, value| {
            command.env(name, value);
        });
        for (name, value) in env {
            command.env(name, value);
        }
        run(command, stdin)
    }
}

/// The environment in which the user's and the machine's Git settings have no say.
pub(crate) fn isolate(home: &Path, mut set: impl FnMut(&str, &OsStr)) {
    set("HOME", home.as_os_str());
    set("XDG_CONFIG_HOME", home.as_os_str());
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_AUTHOR_NAME", "Test"),
        ("GIT_AUTHOR_EMAIL", "test@example.com"),
        ("GIT_COMMITTER_NAME", "Test"),
        ("GIT_COMMITTER_EMAIL", "test@example.com"),
    ] {
        set(name, OsStr::new(value));
    }
}

fn run(mut command: Command, stdin: &[u8]) -> Result<String> {
    use std::io::Write as _;
    use std::process::Stdio;
    // What a surrounding Git (a hook, say) left in the environment would lead away from the repository.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"] {
        command.env_remove(name);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("running {command:?}"))?;
    let mut pipe = child.stdin.take().context("git has no stdin")?;
    // Git reads all of it before it prints more than a line.
    let written = pipe.write_all(stdin);
    drop(pipe);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    written?;
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
