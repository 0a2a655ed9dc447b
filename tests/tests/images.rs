//! The images of `deploy/Dockerfile` without a container runtime: the static programs run in a root that holds what the
//! Dockerfile's last stages copy there and nothing else, read-only, as the user that these name, with the mounts and the
//! environment of the manifests, and find their peers by DNS.
//!
//! `cargo xtask images` builds the programs and runs this, as root: other test runs have no such programs.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use roadstead_tests::gitserver::{Commit, GitServer, Options, install_crypto};
use roadstead_tests::onboarding::{Installed, has};
use roadstead_tests::{
    Kubectl, PATIENCE, Process, TestCluster, TestDatabase, config_map, eventually, folder, free_port,
    git_repository,
};
use serde_json::Value;
use tokio::net::{TcpListener, UnixStream};

const NAME: &str = "hub.fleet.test";
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A stage of the Dockerfile that begins with nothing.
struct Image {
    root: PathBuf,
    user: String,
    entry: String,
}

impl Image {
    /// Lays out what the stage says in `folder`.
    fn new(stage: &str, folder: &Path) -> Result<Self> {
        let built =
            PathBuf::from(std::env::var("ROADSTEAD_TEST_IMAGES").context("run by `cargo xtask images`")?);
        let file =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/Dockerfile"))?;
        let root = folder.join(stage);
        let (mut is_here, mut user, mut entry) = (false, None, None);
        for line in file.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["FROM", from, "AS", name] => is_here = (*from, *name) == ("scratch", stage),
                ["COPY", "--from=binaries", from, to] if is_here => {
                    let from = built.join(from.strip_prefix("/out/").context("out of /out")?);
                    let to = root.join(to.trim_start_matches('/'));
                    std::fs::create_dir_all(to.parent().context("a folder")?)?;
                    std::fs::copy(&from, &to).with_context(|| format!("copy {}", from.display()))?;
                }
                ["USER", name] if is_here => user = Some((*name).to_owned()),
                ["ENTRYPOINT", program] if is_here => {
                    entry = Some(program.trim_matches(['[', ']', '"']).to_owned());
                }
                ["EXPOSE", ..] | [] => {}
                other if is_here && !other[0].starts_with('#') => bail!("the stage {stage} has {line}"),
                _ => {}
            }
        }
        Ok(Self { root, user: user.context("a USER")?, entry: entry.context("an ENTRYPOINT")? })
    }

    /// The program in its root, read-only but for `mounts` (of this machine's files and folders).
    fn run(&self, mounts: &[(&Path, &str)], args: &[&str]) -> Result<Command> {
        let root = self.root.display();
        let mut script = format!("mount --bind {root} {root}\n");
        // What every container runtime gives, of which these programs need the random bytes.
        let devices = ["/dev/null", "/dev/random", "/dev/urandom"].map(|device| (Path::new(device), device));
        for (from, to) in devices.iter().chain(mounts) {
            let at = self.root.join(to.trim_start_matches('/'));
            // As a container runtime makes the places for its mounts.
            if from.is_dir() {
                std::fs::create_dir_all(&at)?;
            } else if !at.exists() {
                std::fs::create_dir_all(at.parent().context("a folder")?)?;
                std::fs::write(&at, "")?;
            }
            script.push_str(&format!("mount --bind {} {}\n", from.display(), at.display()));
        }
        // As every container runtime does; the hub starts its workers by /proc/self/exe.
        std::fs::create_dir_all(self.root.join("proc"))?;
        script.push_str(&format!("mount -t proc proc {root}/proc\n"));
        script.push_str(&format!("mount -o remount,bind,ro {root}\n"));
        script.push_str(&format!("exec chroot --userspec={} {root} {} \"$@\"\n", self.user, self.entry));
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", &script, "image"]).args(args);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        Ok(command)
    }
}

/// Answers every question for an address by 127.0.0.1.
fn answer_dns(port: Ipv4Addr) -> Result<()> {
    let socket = UdpSocket::bind((port, 53)).context("listen for questions to the DNS")?;
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, asker)) = socket.recv_from(&mut question) {
            // One question after the header: its name, type and class.
            let Some(end) = question[12..length].iter().position(|byte| *byte == 0).map(|end| 12 + end + 5)
            else {
                continue;
            };
            let is_address = question[end - 4..end] == [0, 1, 0, 1];
            let mut answer = question[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
            answer.extend(&question[12..end]);
            if is_address {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 127, 0, 0, 1]);
            }
            let _ = socket.send_to(&answer, asker);
        }
    });
    Ok(())
}

fn keep(path: PathBuf, text: &str, mode: u32, group: u32) -> Result<PathBuf> {
    std::fs::create_dir_all(path.parent().context("a folder")?)?;
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    std::os::unix::fs::chown(&path, Some(0), Some(group))?;
    Ok(path)
}

fn writable(path: PathBuf) -> Result<PathBuf> {
    std::fs::create_dir_all(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))?;
    Ok(path)
}

/// kubectl on the hub, which this machine does not find by its name.
async fn administrator(printed: &[u8], port: u16, folder: &Path) -> Result<Kubectl> {
    let mut config: Value =
        serde_json::from_slice(printed).context("read the kubeconfig that was printed")?;
    let cluster = &mut config["clusters"][0]["cluster"];
    ensure!(cluster["server"] == format!("https://{NAME}:{port}"), "{cluster}");
    cluster["server"] = format!("https://127.0.0.1:{port}").into();
    cluster["tls-server-name"] = NAME.into();
    let path = folder.join("admin.kubeconfig");
    std::fs::write(&path, config.to_string())?;
    Kubectl::new(&path)
}

/// The same database over TCP: the run's Postgres has a socket that its own user and root can reach, and a container none.
async fn over_tcp(url: &str) -> Result<String> {
    let (rest, folder) = url.split_once("host=").context("a socket's folder")?;
    let socket = Path::new(folder.split('&').next().unwrap_or(folder)).join(".s.PGSQL.5432");
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let socket = socket.clone();
            tokio::spawn(async move {
                let Ok(mut server) = UnixStream::connect(socket).await else { return };
                // Either end may go first.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let (scheme, rest) = rest.split_once("//").context("a URL")?;
    let (user, path) = rest.trim_end_matches('?').split_once('/').context("a database")?;
    let user = user.trim_end_matches('@').split('@').next().unwrap_or_default();
    Ok(format!("{scheme}//{user}@127.0.0.1:{port}/{path}?sslmode=disable"))
}

#[test]
#[ignore = "needs static programs, and root: run by `cargo xtask images`"]
fn each_program_runs_in_an_empty_root_and_can_write_nowhere() -> Result<()> {
    let folder = folder()?;
    for stage in ["hub", "agent", "cli"] {
        let image = Image::new(stage, folder.path())?;
        let output = image.run(&[], &["--help"])?.output()?;
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success() && out.contains("Usage: roadstead"), "{stage}: {out}{error}");
    }
    let tree = folder.path().join("tree");
    std::fs::create_dir(&tree)?;
    std::fs::write(tree.join("map.yaml"), config_map("default", "map", "ahoy"))?;
    let image = Image::new("cli", folder.path())?;
    let output = image.run(&[(&tree, "/tree")], &["build", "/tree"])?.output()?;
    ensure!(String::from_utf8_lossy(&output.stdout).contains("word: ahoy"), "{output:?}");
    let output = image.run(&[(&tree, "/tree")], &["build", "/tree", "-o", "/rendered"])?.output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && error.contains("Read-only file system"), "{error}");
    Ok(())
}

// The way to the database goes on while a program is waited for.
#[test]
#[ignore = "needs static programs, and root: run by `cargo xtask images`"]
fn debug_information_is_beside_the_programs_and_not_in_them() -> Result<()> {
    let built = PathBuf::from(std::env::var("ROADSTEAD_TEST_IMAGES").context("run by `cargo xtask images`")?);
    let sections = |path: &Path| -> Result<String> {
        let output = Command::new("readelf").args(["--sections", "--wide"]).arg(path).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };
    for program in ["roadstead-hub", "roadstead-agent", "roadstead"] {
        let shipped = sections(&built.join(program))?;
        ensure!(!shipped.contains(".debug_line"), "{program} has its debug information in it");
        ensure!(shipped.contains(".gnu_debuglink") && shipped.contains(".symtab"), "{shipped}");
        let apart = sections(&built.join("debug").join(format!("{program}.debug")))?;
        ensure!(apart.contains(".debug_line"), "{apart}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs static programs, and root: run by `cargo xtask images`"]
async fn hub_and_agent_run_in_their_images_and_find_each_other_by_name() -> Result<()> {
    install_crypto();
    let folder = folder()?;
    let dns = Ipv4Addr::new(127, 0, 0, 77);
    answer_dns(dns)?;
    let resolv = keep(folder.path().join("resolv.conf"), &format!("nameserver {dns}\n"), 0o644, 0)?;
    let resolv: (&Path, &str) = (&resolv, "/etc/resolv.conf");
    let database = TestDatabase::new().await?;
    let url = over_tcp(database.url()).await?;
    let (api, link) = (free_port()?, free_port()?);

    // Its own certificate authorities are the image's: that they are found is seen by a Git server of one of them.
    let hub_image = Image::new("hub", folder.path())?;
    let git = GitServer::start(Options::default()).await?;
    let authorities = hub_image.root.join("etc/ssl/certs/ca-certificates.crt");
    let mut text = std::fs::read_to_string(&authorities)?;
    text.push_str(git.ca_pem().context("a server over HTTPS")?);
    std::fs::write(&authorities, text)?;

    let key = keep(folder.path().join("mounted/key"), KEY, 0o440, 65532)?;
    let (scratch, key) = (writable(folder.path().join("scratch"))?, key.parent().context("a folder")?);
    let mounts: [(&Path, &str); 3] = [(key, "/etc/roadstead"), (&scratch, "/tmp"), resolv];
    let hub = |args: &[&str]| -> Result<Command> {
        let mut command = hub_image.run(&mounts, args)?;
        command.env("ROADSTEAD_DATABASE_URL", &url).env("ROADSTEAD_KEY_FILE", "/etc/roadstead/key");
        command.env("ROADSTEAD_PUBLIC_HOST", NAME).env("ROADSTEAD_LISTEN", format!("127.0.0.1:{api}"));
        command.env("ROADSTEAD_LINK_LISTEN", format!("127.0.0.1:{link}"));
        Ok(command)
    };
    let hub_process = Process::start(
        "the hub",
        &mut hub(&["--allow-network=git=127.0.0.0/8"])?,
        &folder.path().join("hub.log"),
    )?;
    let printed = hub(&["--print-admin-kubeconfig"])?.output()?;
    ensure!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let kubectl = administrator(&printed.stdout, api, folder.path()).await?;
    eventually("the hub serves", PATIENCE, || async { kubectl.run(&["get", "--raw", "/readyz"]).await })
        .await
        .with_context(|| hub_process.logs())?;
    git.add_repository("app.git")?.commit(
        "main",
        "First",
        &Commit::new().file("app/map.yaml", config_map("default", "map", "one")),
    )?;
    kubectl.apply(&git_repository("app", &git.url("app.git"), "timeout: 20s")).await?;
    kubectl.run(&["wait", "gitrepository/app", "--for=condition=Ready", "--timeout=60s"]).await?;

    // The agent as a pod has it: token, CA and address of the apiserver where Kubernetes puts them.
    let target = TestCluster::first()?;
    let home = target.later_namespace("agent");
    kubectl
        .apply("apiVersion: fleet.roadstead.dev/v1alpha1\nkind: Cluster\nmetadata: {name: edge}\nspec: {access: [{namespace: '*', agentRights: true}]}\n")
        .await?;
    let mut join = tokio::process::Command::new(roadstead_tests::binary("roadstead")?);
    let join = join.args(["cluster", "join", "edge", "--agent-namespace", home.name()]);
    let join = join.env("KUBECONFIG", kubectl.kubeconfig());
    let output = join.kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.kubectl().apply(&String::from_utf8(output.stdout)?).await?;
    let token = target.kubectl().run(&["create", "token", "roadstead-agent", "-n", home.name()]).await?;
    let config =
        target.kubectl().run(&["config", "view", "--raw", "--minify", "--flatten", "-o", "json"]).await?;
    let config: Value = serde_json::from_str(&config)?;
    let cluster = &config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().and_then(|server| server.rsplit_once(':')).context("a server")?;
    let ca = cluster["certificate-authority-data"].as_str().context("a CA")?;
    let account = folder.path().join("account");
    let ca = String::from_utf8(base64::Engine::decode(&base64::engine::general_purpose::STANDARD, ca)?)?;
    for (name, text) in [("token", token.trim()), ("ca.crt", &ca), ("namespace", home.name())] {
        keep(account.join(name), text, 0o644, 65532)?;
    }
    let run = writable(folder.path().join("run"))?;
    let agent_image = Image::new("agent", folder.path())?;
    let mounts: [(&Path, &str); 3] =
        [(&account, "/var/run/secrets/kubernetes.io/serviceaccount"), (&run, "/run/roadstead"), resolv];
    let namespace = format!("--namespace={}", home.name());
    let ready = "--ready-file=/run/roadstead/ready";
    let mut command = agent_image.run(&mounts, &["--log-format=json", &namespace, ready])?;
    command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", server.1);
    let agent = Process::start("the agent", &mut command, &folder.path().join("agent.log"))?;
    has(&kubectl, "edge", "Ready", "True", "AgentConnected").await.with_context(|| agent.logs())?;
    let connected = format!("\"hub\":\"{NAME}:{link}\"");
    agent.says(&connected, PATIENCE).await.context("it did not go by name")?;
    let probe = agent_image.run(&mounts, &["ready", ready])?.output()?;
    ensure!(probe.status.success(), "{}", String::from_utf8_lossy(&probe.stderr));
    Installed::in_namespace(&target, &home).remove().await
}
