//! Files that the real `sops` encrypted to an age key: how fast and with how much memory they are decrypted beside it, and what a
//! Kustomization of many of them takes in an agent.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use roadstead_sops::{Format, KeyRing, Options, decrypt};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::{Fleet, binary, clients, kustomization};

use crate::figures::{Figure, Report};
use crate::memory;

/// How many files there are, and how often each program is started for one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files {
    pub(crate) files: usize,
    pub(crate) starts: usize,
}

pub(crate) async fn measure(report: &mut Report, Files { files, starts }: Files) -> Result<()> {
    let fleet = Fleet::start("bench-secrets").await?;
    let namespace = fleet.cluster.namespace("bench-secrets").await?;
    let keys = Keys::new(fleet.setup.folder().join("keys"))?;
    let encrypted =
        (0..files).map(|index| keys.encrypted(namespace.name(), index)).collect::<Result<Vec<String>>>()?;
    keys.programs(report, starts)?;
    report.add("roadstead-hub", engine(&keys, &encrypted)?);

    let from = format!("--from-file=age.agekey={}", keys.file("age.agekey").display());
    fleet.run(&["create", "secret", "generic", "keys", &from]).await?;
    let commit = |word: &str| {
        let files = encrypted.iter().enumerate();
        files.fold(Commit::new().file("app/readme", word), |commit, (index, text)| {
            commit.file(&format!("app/secret-{index}.yaml"), text.as_str())
        })
    };
    let repository = fleet.repository("app", &commit("one")).await?;
    report.add("roadstead-hub", memory::agent("agent that has decrypted nothing", fleet.agent.id())?);
    let lines = ["decryption: {provider: sops, secretRef: {name: keys}}", "timeout: 5m", "interval: 1h"];
    let began = Instant::now();
    fleet.apply(&kustomization("app", "app", "./app", &lines)).await?;
    fleet.applied("app", &repository.git(["rev-parse", "main"], &[], b"")?).await?;
    let name = format!("{files} encrypted Secrets created");
    report.add("roadstead-hub", Figure { name, values: vec![("s".into(), began.elapsed().as_secs_f64())] });
    report
        .add("roadstead-hub", memory::agent(&format!("agent that has decrypted {files}"), fleet.agent.id())?);
    let head = repository.commit("main", "same", &commit("two"))?;
    let began = Instant::now();
    fleet.request("gitrepository/app").await?;
    fleet.applied("app", &head).await?;
    let name = format!("none of {files} encrypted Secrets changed");
    report.add("roadstead-hub", Figure { name, values: vec![("s".into(), began.elapsed().as_secs_f64())] });
    Ok(())
}

/// All of them, one after the other, in one process and with the key read once.
fn engine(keys: &Keys, encrypted: &[String]) -> Result<Figure> {
    let mut ring = KeyRing::default();
    ring.add("age.agekey", keys.identity.as_bytes())?;
    let began = Instant::now();
    let mut times = Vec::with_capacity(encrypted.len());
    for text in encrypted {
        let start = Instant::now();
        let plain = decrypt(text.as_bytes(), &Options::new(Format::Yaml), &ring)?;
        ensure!(plain.bytes.windows(6).any(|bytes| bytes == b"secret"), "it was not decrypted");
        times.push(start.elapsed());
    }
    Ok(Figure::rate("age files decrypted in one process", times, began.elapsed()))
}

/// A folder with an age key.
struct Keys {
    folder: PathBuf,
    identity: String,
    recipient: String,
}

impl Keys {
    fn new(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let made = Command::new(clients()?.join("bin/age-keygen")).output().context("start age-keygen")?;
        let identity = String::from_utf8(made.stdout)?;
        let recipient = identity.lines().find_map(|line| line.strip_prefix("# public key: "));
        let recipient = recipient.context("a recipient")?.to_owned();
        std::fs::write(folder.join("age.agekey"), &identity)?;
        Ok(Self { folder, identity, recipient })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A Secret that sops encrypted; its file stays.
    fn encrypted(&self, namespace: &str, index: usize) -> Result<String> {
        let text = format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: secret-{index}\n  namespace: {namespace}\nstringData:\n  \
             user: user-{index}\n  password: secret-{index}\n  url: https://user-{index}:secret-{index}@db.example.com/app\n"
        );
        std::fs::write(self.file("secret.yaml"), text)?;
        let args = [
            "--age",
            &self.recipient,
            "--encrypted-regex",
            "^(data|stringData)$",
            "--encrypt",
            "secret.yaml",
        ];
        let done = Command::new(clients()?.join("bin/sops")).args(args).current_dir(&self.folder).output()?;
        ensure!(done.status.success(), "sops: {}", String::from_utf8_lossy(&done.stderr));
        std::fs::write(self.file("secret.enc.yaml"), &done.stdout)?;
        Ok(String::from_utf8(done.stdout)?)
    }

    /// Both programs, each started once for each file.
    fn programs(&self, report: &mut Report, starts: usize) -> Result<()> {
        let (key, file) = (self.file("age.agekey"), self.file("secret.enc.yaml"));
        let roadstead = binary("roadstead")?;
        let ours = || {
            let mut command = Command::new(&roadstead);
            command.args(["secrets", "decrypt", "--key"]).arg(&key).arg(&file);
            command
        };
        let sops = clients()?.join("bin/sops");
        let theirs = || {
            let mut command = Command::new(&sops);
            command.arg("--decrypt").arg(&file).env("SOPS_AGE_KEY_FILE", &key);
            command
        };
        let name = "one age file decrypted by a program";
        for (server, command) in [("roadstead-hub", &ours as &dyn Fn() -> Command), ("sops", &theirs)] {
            let began = Instant::now();
            let times = (0..starts).map(|_| run(&mut command())).collect::<Result<Vec<Duration>>>()?;
            let mut figure = Figure::rate(name, times, began.elapsed());
            figure.values.push(("MiB at most".into(), peak(&command())?));
            report.add(server, figure);
        }
        Ok(())
    }
}

fn run(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    let done = command.output().with_context(|| format!("start {command:?}"))?;
    let took = start.elapsed();
    ensure!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    ensure!(done.stdout.windows(6).any(|bytes| bytes == b"secret"), "{command:?} printed nothing of it");
    Ok(took)
}

/// MiB that a program had at most, as the system tells its parent, a Python here.
fn peak(command: &Command) -> Result<f64> {
    let script = "import resource, subprocess, sys\n\
                  subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n\
                  print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";
    let mut asked = Command::new(clients()?.join("python/bin/python"));
    asked.args(["-c", script]).arg(command.get_program()).args(command.get_args());
    asked.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done = asked.output().context("start Python")?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let kib: f64 = String::from_utf8(done.stdout)?.trim().parse().context("a size in KiB")?;
    Ok(kib / 1024.0)
}
