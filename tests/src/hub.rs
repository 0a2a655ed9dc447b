//! The real hub.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine as _;
use tempfile::TempDir;

use crate::database::TestDatabase;
use crate::given::{binary, folder};
use crate::kubectl::Kubectl;
use crate::process::Process;
use crate::unique::{free_port, unique};

/// How long a hub may take until it serves, on a machine that also builds or runs other tests.
const READY: Duration = Duration::from_secs(60);

/// What a hub runs on, and finds again when it is started again: database, key, ports, kubeconfig.
#[derive(Debug)]
pub struct HubSetup {
    name: String,
    folder: TempDir,
    database: TestDatabase,
    /// Another server's, in the place of that.
    url: Option<String>,
    api_port: u16,
    link_port: u16,
    args: Vec<String>,
    env: Vec<(String, OsString)>,
    without_git: bool,
}

impl HubSetup {
    /// A fresh one; `name` is for logs.
    ///
    /// # Errors
    /// When the run's Postgres cannot be reached.
    pub async fn new(name: &str) -> Result<Self> {
        let folder = folder()?;
        let mut key = [0; 32];
        let random = std::fs::File::open("/dev/urandom");
        random.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut key)).context("make a key")?;
        let key = base64::engine::general_purpose::STANDARD.encode(key);
        let path = folder.path().join("hub.key");
        std::fs::write(&path, key).context("write the key file")?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).context("close the key file to others")?;
        Ok(Self {
            name: unique(name),
            folder,
            database: TestDatabase::new().await?,
            url: None,
            api_port: free_port()?,
            link_port: free_port()?,
            args: Vec::new(),
            env: Vec::new(),
            without_git: false,
        })
    }

    /// Has the hub listen where another one did: it takes the place of that.
    #[must_use]
    pub fn in_place_of(mut self, other: &Self) -> Self {
        (self.api_port, self.link_port) = (other.api_port, other.link_port);
        self
    }

    /// Has the hub use the database at this URL.
    #[must_use]
    pub fn at(mut self, url: String) -> Self {
        self.url = Some(url);
        self
    }

    /// Adds an argument to the hub's command line.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    /// From now on leaves it to the test which Git servers the hub may connect to.
    #[must_use]
    pub fn without_git(mut self) -> Self {
        self.without_git = true;
        self
    }

    /// Sets a variable in the hub's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &TestDatabase {
        &self.database
    }

    /// The folder with key, kubeconfigs and logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, replica: &Replica) -> Result<Command> {
        let mut command = Command::new(binary("roadstead-hub")?);
        command.arg("--database-url").arg(self.url.as_deref().unwrap_or(self.database.url()));
        command.arg("--key-file").arg(self.folder.path().join("hub.key"));
        command.arg("--listen").arg(format!("127.0.0.1:{}", replica.api_port));
        command.arg("--link-listen").arg(format!("127.0.0.1:{}", replica.link_port));
        command.arg("--admin-kubeconfig").arg(&replica.kubeconfig);
        // The run's Git servers are on this machine.
        if !self.without_git {
            command.arg("--allow-network=git=127.0.0.0/8");
        }
        command.args(&self.args);
        for variable in ["ROADSTEAD_DATABASE_URL", "ROADSTEAD_KEY_FILE"] {
            command.env_remove(variable);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// What two hubs on one setup do not share.
struct Replica {
    name: String,
    api_port: u16,
    link_port: u16,
    kubeconfig: PathBuf,
}

/// A running hub that serves. As a [`Process`] it can be killed, ended and asked for its log; dropping it kills it.
#[derive(Debug)]
pub struct HubProcess {
    process: Process,
    kubectl: Kubectl,
    api_port: u16,
    link_port: u16,
    folder: PathBuf,
}

impl HubProcess {
    /// Starts a hub on the setup's ports and waits until it serves. Also to start one again after it was killed.
    ///
    /// # Errors
    /// When it ends or does not serve in time, with the end of its log.
    pub async fn start(setup: &HubSetup) -> Result<Self> {
        let replica = Replica {
            name: setup.name.clone(),
            api_port: setup.api_port,
            link_port: setup.link_port,
            kubeconfig: setup.folder.path().join("admin.kubeconfig"),
        };
        Self::start_replica(setup, &replica).await
    }

    /// Starts a further hub on the same database and key, on ports of its own.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_another(setup: &HubSetup) -> Result<Self> {
        let name = unique(&setup.name);
        let kubeconfig = setup.folder.path().join(format!("{name}.kubeconfig"));
        let replica = Replica { name, api_port: free_port()?, link_port: free_port()?, kubeconfig };
        Self::start_replica(setup, &replica).await
    }

    async fn start_replica(setup: &HubSetup, replica: &Replica) -> Result<Self> {
        let log = setup.folder.path().join(format!("{}.log", replica.name));
        let mut process = Process::start(&replica.name, &mut setup.command(replica)?, &log)?;
        let kubectl = Kubectl::new(&replica.kubeconfig)?;
        wait_until_ready(&mut process, &kubectl, Some(replica.api_port)).await?;
        Ok(Self {
            process,
            kubectl,
            api_port: replica.api_port,
            link_port: replica.link_port,
            folder: setup.folder.path().to_owned(),
        })
    }

    /// kubectl as the hub's administrator.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Where its API listens, on 127.0.0.1.
    #[must_use]
    pub fn api_port(&self) -> u16 {
        self.api_port
    }

    /// Where agents' links are taken, on 127.0.0.1.
    #[must_use]
    pub fn link_port(&self) -> u16 {
        self.link_port
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Deref for HubProcess {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for HubProcess {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Waits until a hub answers `/readyz` to the administrator; fails at once when it ends.
pub(crate) async fn wait_until_ready(
    process: &mut Process,
    kubectl: &Kubectl,
    port: Option<u16>,
) -> Result<()> {
    let deadline = Instant::now() + READY;
    let mut last = anyhow::anyhow!("its port is closed, or its kubeconfig not written");
    loop {
        process.check()?;
        // Cheap signs first: kubectl takes long to start.
        let open = port.is_none_or(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        if open && kubectl.kubeconfig().exists() {
            match kubectl.run(&["get", "--raw", "/readyz", "--request-timeout=5s"]).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        if Instant::now() >= deadline {
            return Err(last).with_context(|| format!("the hub does not serve:\n{}", process.tail()));
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// A hub by `--dev`, in a state folder: nothing else is configured.
impl HubProcess {
    /// The command line of a hub by `--dev` with free ports, in an environment that names nothing.
    ///
    /// # Errors
    /// When the hub is not built.
    pub fn dev_command(state: &Path) -> Result<Command> {
        Self::dev_command_at(state, "127.0.0.1:0")
    }

    /// As [`Self::dev_command`], with an address for the API.
    ///
    /// # Errors
    /// As [`Self::dev_command`].
    pub fn dev_command_at(state: &Path, listen: &str) -> Result<Command> {
        let mut command = Command::new(binary("roadstead-hub")?);
        command.arg("--dev").arg("--state-dir").arg(state);
        command.args(["--listen", listen, "--link-listen", "127.0.0.1:0"]);
        command.env_clear();
        for kept in ["PATH", "ROADSTEAD_POSTGRES_BIN"] {
            if let Some(value) = std::env::var_os(kept) {
                command.env(kept, value);
            }
        }
        Ok(command)
    }

    /// Starts a hub by `--dev` and waits until it serves.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_dev(state: &Path, log: &Path) -> Result<(Process, Kubectl)> {
        let kubeconfig = state.join("admin.kubeconfig");
        // It names the port, which is another one at each start.
        let _ = std::fs::remove_file(&kubeconfig);
        let mut process = Process::start("roadstead-hub --dev", &mut Self::dev_command(state)?, log)?;
        let kubectl = Kubectl::new(&kubeconfig)?;
        wait_until_ready(&mut process, &kubectl, None).await?;
        Ok((process, kubectl))
    }
}
