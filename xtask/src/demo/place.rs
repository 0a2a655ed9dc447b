//! Where the demo keeps things.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::EDGES;
use super::kubectl::Kubectl;
use crate::cache;

/// The demo's folder in the cache, and the hub's state.
pub(super) struct Place {
    folder: PathBuf,
    hub_state: PathBuf,
}

impl Place {
    /// Makes what is not there.
    pub(super) fn make() -> Result<Self> {
        let folder = cache::folder("demo")?;
        for part in ["home", "logs", "run"] {
            let path = folder.join(part);
            std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        }
        Ok(Self::at(folder))
    }

    /// The place of a demo that was started before.
    pub(super) fn existing() -> Result<Option<Self>> {
        let folder = cache::folder("")?.join("demo");
        Ok(folder.is_dir().then(|| Self::at(folder)))
    }

    fn at(folder: PathBuf) -> Self {
        // Root's hub runs its Postgres as another user, who cannot enter root's home.
        let root = rustix::process::geteuid().is_root();
        let hub_state = if root { PathBuf::from("/var/lib/roadstead-demo") } else { folder.join("hub") };
        Self { folder, hub_state }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn hub_state(&self) -> &Path {
        &self.hub_state
    }

    pub(super) fn admin_kubeconfig(&self) -> PathBuf {
        self.hub_state.join("admin.kubeconfig")
    }

    /// Where the Git server keeps its certificate authority.
    pub(super) fn git_ca_dir(&self) -> PathBuf {
        self.folder.join("git-ca")
    }

    /// What its clients trust.
    pub(super) fn git_ca(&self) -> PathBuf {
        self.git_ca_dir().join("ca.pem")
    }

    pub(super) fn join_file(&self, cluster: &str) -> PathBuf {
        self.folder.join(format!("join-{cluster}.yaml"))
    }

    /// With the credentials that the hub has installed in the cluster.
    pub(super) fn installed_kubeconfig(&self, cluster: &str) -> PathBuf {
        self.folder.join(format!("installed-{cluster}.kubeconfig"))
    }

    /// Of a cluster of the user's own.
    pub(super) fn context_kubeconfig(&self, cluster: &str) -> PathBuf {
        self.folder.join(format!("context-{cluster}.kubeconfig"))
    }

    /// The file with the Git server's password, which is chosen the first time.
    pub(super) fn git_password_file(&self) -> Result<PathBuf> {
        let path = self.folder.join("git-password");
        if !path.exists() {
            let mut bytes = [0; 16];
            let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
            read.context("choose a password")?;
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            write_private(&path, &text)?;
        }
        Ok(path)
    }

    pub(super) fn git_password(&self) -> Result<String> {
        let path = self.git_password_file()?;
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(text.trim().to_owned())
    }

    /// The ports, the same at each start: kubeconfigs, agents and the GitRepository name them.
    pub(super) fn ports(&self) -> Result<Ports> {
        let path = self.folder.join("ports");
        if let Ok(text) = std::fs::read_to_string(&path) {
            let ports: Vec<u16> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [api, link, git] = ports[..] else { bail!("{} does not hold three ports", path.display()) };
            return Ok(Ports { api, link, git });
        }
        let mut next = 7443;
        let mut choose = || -> Result<u16> {
            while next < 7643 {
                next += 1;
                if is_free(next - 1) {
                    return Ok(next - 1);
                }
            }
            bail!("no free port between 7443 and 7643")
        };
        let ports = Ports { api: choose()?, link: choose()?, git: choose()? };
        write_private(&path, &format!("{} {} {}\n", ports.api, ports.link, ports.git))?;
        Ok(ports)
    }

    /// Removes all files.
    pub(super) fn remove(&self) -> Result<()> {
        for path in [&self.hub_state, &self.folder] {
            if path.exists() {
                std::fs::remove_dir_all(path).with_context(|| format!("remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Says how to go on by hand.
    pub(super) fn print_next(&self, hub: &Kubectl, clusters: &[Kubectl]) {
        let (kubectl, hub) = (hub.program().display(), hub.kubeconfig().display());
        eprintln!(
            "\nAll of it goes on running. The dashboard (the browser warns of the hub's own certificate):\n"
        );
        eprintln!("  https://127.0.0.1:{}/ui/", self.ports().map(|ports| ports.api).unwrap_or_default());
        eprintln!("  {kubectl} --kubeconfig {hub} config view --raw -o jsonpath='{{.users[0].user.token}}'");
        eprintln!("                                                # prints the token to log in with");
        eprintln!("\nThe hub, by kubectl:\n");
        eprintln!("  alias kubectl={kubectl}");
        eprintln!("  export KUBECONFIG={hub}");
        eprintln!("  kubectl get clusters.fleet.roadstead.dev");
        eprintln!("  kubectl -n apps get gitrepository,kustomization -w");
        eprintln!("  kubectl -n apps describe kustomization {}", EDGES[0].app);
        eprintln!(
            "  kubectl -n apps patch kustomization {} --type=merge -p '{{\"spec\":{{\"suspend\":true}}}}'",
            EDGES[1].app
        );
        eprintln!("\nThe clusters:\n");
        for (edge, cluster) in EDGES.iter().zip(clusters) {
            eprintln!("  kubectl --kubeconfig {} -n {} get all", cluster.kubeconfig().display(), edge.app);
        }
        eprintln!("\nThe repository is cloned at {}: commit and", self.folder.join("work").display());
        eprintln!(
            "push there. Logs are in {}. `make demo` pushes another change,",
            self.folder.join("logs").display()
        );
        eprintln!("`make clean-demo` ends and removes everything.");
    }
}

/// Where the demo listens, on 127.0.0.1.
pub(super) struct Ports {
    pub(super) api: u16,
    pub(super) link: u16,
    pub(super) git: u16,
}

impl Ports {
    /// Fails where another program has taken a port of ours; `ours` says that the one there is ours.
    pub(super) fn check_free(&self, ours: bool, ports: &[u16]) -> Result<()> {
        match ports.iter().find(|port| !ours && !is_free(**port)) {
            Some(port) => bail!(
                "another program listens on 127.0.0.1:{port}, which the demo has used before: end it, or start the \
                 demo again by `make clean-demo`"
            ),
            None => Ok(()),
        }
    }
}

/// Whether nothing listens there.
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Writes a file that only this user reads, whole or not at all.
pub(super) fn write_private(path: &Path, text: &str) -> Result<()> {
    let partial = path.with_extension("partial");
    let write = || -> std::io::Result<()> {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&partial, path)
    };
    write().with_context(|| format!("write {}", path.display()))
}
