//! A real Git server over SSH: OpenSSH's `sshd` on a free port of the loopback interface, with keys of its own, which lets
//! the user of this process in and runs the system's `git`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::repository::{Repository, init_bare};
use crate::serve::TemporaryFolder;

/// How long it may take to begin, or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// An SSH server that serves until it is dropped.
pub struct SshServer {
    folder: TemporaryFolder,
    port: u16,
    user: String,
    more: Vec<String>,
    process: Option<Child>,
}

/// A key pair made by `ssh-keygen`.
#[derive(Debug, Clone)]
pub struct SshKey {
    /// The private key, as `ssh-keygen` wrote it.
    pub identity: String,
    /// The line of its public key.
    pub public: String,
}

impl SshKey {
    /// Makes one: `kind` is what `ssh-keygen` is given (`-t rsa -b 3072`, say).
    ///
    /// # Errors
    /// If `ssh-keygen` fails.
    pub fn make(kind: &[&str], passphrase: &str) -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        let path = folder.0.join("key");
        make_key(&path, kind, passphrase)?;
        Ok(Self {
            identity: fs::read_to_string(&path)?,
            public: fs::read_to_string(path.with_extension("pub"))?,
        })
    }
}

/// Makes a key pair at `path` and `path.pub`.
fn make_key(path: &Path, kind: &[&str], passphrase: &str) -> Result<()> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-C", "test", "-N", passphrase, "-f"]).arg(path).args(kind);
    printed(&mut command).map(|_| ())
}

/// What a program that must succeed printed.
fn printed(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

impl SshServer {
    /// Starts one with an Ed25519 host key, that takes Git's protocol 2.
    ///
    /// # Errors
    /// If `sshd` does not start.
    pub fn start() -> Result<Self> {
        Self::start_with(&[&["-t", "ed25519"]], &["AcceptEnv GIT_PROTOCOL"])
    }

    /// Starts one with these kinds of host keys and further lines in its settings.
    ///
    /// # Errors
    /// If `sshd` does not start.
    pub fn start_with(host_keys: &[&[&str]], more: &[&str]) -> Result<Self> {
        let folder = TemporaryFolder::new()?;
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700))?;
        fs::write(folder.0.join("authorized_keys"), "")?;
        let user = printed(Command::new("id").arg("-un"))?.trim().to_owned();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let more = more.iter().map(|line| (*line).to_owned()).collect();
        let mut server = Self { folder, port, user, more, process: None };
        server.renew_host_keys(host_keys)?;
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The user whom it lets in.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The URL of a repository in its folder.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("ssh://{}@{}{}/{name}", self.user, self.address(), self.folder.0.display())
    }

    /// Makes a bare repository in its folder.
    ///
    /// # Errors
    /// If `git` fails.
    pub fn add_repository(&self, name: &str) -> Result<Repository> {
        init_bare(&self.folder.0.join(name))
    }

    /// Lets a key in.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn authorize(&self, key: &SshKey) -> Result<()> {
        fs::write(self.folder.0.join("authorized_keys"), &key.public).map_err(Into::into)
    }

    /// What `ssh-keyscan` says of it: a `known_hosts`.
    ///
    /// # Errors
    /// If it says nothing.
    pub fn scan(&self) -> Result<String> {
        let mut command = Command::new("ssh-keyscan");
        let known = printed(command.args(["-p", &self.port.to_string(), "127.0.0.1"]))?;
        ensure!(!known.is_empty(), "ssh-keyscan printed nothing");
        Ok(known)
    }

    /// The path of a host key by its place in the list.
    #[must_use]
    pub fn host_key(&self, index: usize) -> PathBuf {
        self.folder.0.join(format!("host-{index}"))
    }

    /// Starts it again with new host keys, at the same address.
    ///
    /// # Errors
    /// If `sshd` does not start.
    pub fn renew_host_keys(&mut self, kinds: &[&[&str]]) -> Result<()> {
        self.end();
        for (index, kind) in kinds.iter().enumerate() {
            let path = self.host_key(index);
            for old in [path.clone(), path.with_extension("pub")] {
                let _ = fs::remove_file(old);
            }
            make_key(&path, kind, "")?;
        }
        self.begin(kinds.len())
    }

    /// Starts it again with the same keys, and further lines in its settings.
    ///
    /// # Errors
    /// If `sshd` does not start.
    pub fn restart_with(&mut self, host_keys: usize, more: &[String]) -> Result<()> {
        self.end();
        self.more.extend_from_slice(more);
        self.begin(host_keys)
    }

    /// The lines of its log.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.0.join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn begin(&mut self, host_keys: usize) -> Result<()> {
        let folder = self.folder.0.display();
        let mut lines = vec![
            format!("Port {}", self.port),
            "ListenAddress 127.0.0.1".to_owned(),
            "PidFile none".to_owned(),
            format!("AuthorizedKeysFile {folder}/authorized_keys"),
            // The folder of temporary ones is everybody's.
            "StrictModes no".to_owned(),
            "UsePAM no".to_owned(),
            "PasswordAuthentication no".to_owned(),
            "KbdInteractiveAuthentication no".to_owned(),
            "PermitRootLogin prohibit-password".to_owned(),
            "PermitUserRC no".to_owned(),
            "LogLevel VERBOSE".to_owned(),
            // Tests open many at once.
            "MaxStartups 100".to_owned(),
        ];
        lines.extend((0..host_keys).map(|index| format!("HostKey {}", self.host_key(index).display())));
        lines.extend(self.more.iter().cloned());
        let config = self.folder.0.join("sshd_config");
        fs::write(&config, lines.join("\n") + "\n")?;
        if self.user == "root" {
            // Where the part of it that reads untrusted bytes runs; it is made when it is started as a service.
            fs::create_dir_all("/run/sshd")?;
        }
        let log = fs::File::options().create(true).append(true).open(self.folder.0.join("log"))?;
        let mut command = Command::new(program()?);
        command
            .arg("-D")
            .arg("-e")
            .arg("-f")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let mut child = command.spawn().context("running sshd")?;
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address()).is_err() {
            if let Some(status) = child.try_wait()? {
                bail!("sshd ended: {status}: {}", self.log().join("\n"));
            }
            ensure!(Instant::now() < deadline, "sshd does not listen: {}", self.log().join("\n"));
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(child);
        Ok(())
    }

    fn end(&mut self) {
        if let Some(mut child) = self.process.take() {
            // One that has ended needs neither.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// It runs itself again for each connection, and must be named by its whole path for that.
fn program() -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&paths).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders
        .map(|folder| folder.join("sshd"))
        .find(|path| path.is_file())
        .context("there is no sshd: `make tools` installs it (openssh-server)")
}
