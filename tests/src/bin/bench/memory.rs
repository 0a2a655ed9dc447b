//! The processes of a server, and their memory.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal};

use crate::figures::Figure;

/// A server's front, which clients talk to, and its store.
pub(crate) struct Processes {
    front: u32,
    back: Back,
}

enum Back {
    /// A Postgres, by its data folder's pid file.
    Postgres(PathBuf),
    /// etcd, and what else runs beside it.
    Etcd { etcd: u32, others: Vec<u32> },
}

impl Processes {
    pub(crate) fn hub(front: u32, url: &str) -> Result<Self> {
        let socket = url.split_once("host=").context("a socket's folder in the URL")?.1;
        let state = Path::new(socket).parent().context("the state folder of the Postgres")?;
        Ok(Self { front, back: Back::Postgres(state.join("data/postmaster.pid")) })
    }

    pub(crate) fn cluster() -> Result<Self> {
        let folder = std::env::var("ROADSTEAD_BENCH_CLUSTER").context("the cluster's folder is wanted")?;
        let text = std::fs::read_to_string(Path::new(&folder).join("cluster.json"))?;
        let state: serde_json::Value = serde_json::from_str(&text)?;
        let pids = state["pids"].as_object().context("the cluster's processes")?;
        let pid = |name: &str| {
            pids.get(name).and_then(serde_json::Value::as_u64).and_then(|pid| u32::try_from(pid).ok())
        };
        let front = pid("kube-apiserver").context("an apiserver")?;
        let others = pids.keys().filter(|name| !matches!(name.as_str(), "kube-apiserver" | "etcd"));
        let others = others.filter_map(|name| pid(name)).collect();
        Ok(Self { front, back: Back::Etcd { etcd: pid("etcd").context("an etcd")?, others } })
    }

    fn back(&self) -> Result<Vec<u32>> {
        match &self.back {
            Back::Postgres(file) => {
                let text = std::fs::read_to_string(file).context("read Postgres's pid file")?;
                let first: u32 = text.lines().next().unwrap_or_default().trim().parse()?;
                let mut all = vec![first];
                all.extend(children(first)?);
                Ok(all)
            }
            Back::Etcd { etcd, .. } => Ok(vec![*etcd]),
        }
    }

    /// All of them, those first that ask the others.
    pub(crate) fn all(&self) -> Result<Vec<u32>> {
        let mut all = match &self.back {
            Back::Etcd { others, .. } => others.clone(),
            Back::Postgres(_) => Vec::new(),
        };
        all.push(self.front);
        all.extend(self.back()?);
        Ok(all)
    }

    /// Seconds of processor time of front and back; of the back's processes also what those had that have ended.
    pub(crate) fn seconds(&self) -> Result<(f64, f64)> {
        let mut back = 0.0;
        for pid in self.back()? {
            back += seconds(pid).unwrap_or(0.0);
        }
        Ok((seconds(self.front)?, back))
    }

    /// Whether the front is of a language whose collector decides when memory is given back.
    pub(crate) fn is_collected(&self) -> bool {
        matches!(self.back, Back::Etcd { .. })
    }

    /// MiB of the front.
    pub(crate) fn front_rss(&self) -> Result<f64> {
        field(self.front, "status", "VmRSS:")
    }

    pub(crate) fn figure(&self, name: &str) -> Result<Figure> {
        let mut back = 0.0;
        for pid in self.back()? {
            // Postgres's processes share most of what they have: each counts with its part of it. One that has just
            // ended has none.
            back += field(pid, "smaps_rollup", "Pss:").unwrap_or(0.0);
        }
        let front = self.front_rss()?;
        let values = vec![
            ("MiB VmRSS".into(), front),
            ("MiB VmHWM".into(), field(self.front, "status", "VmHWM:")?),
            ("MiB Pss of the store".into(), back),
            ("MiB of both".into(), front + back),
        ];
        Ok(Figure { name: name.to_owned(), values })
    }
}

/// MiB of an agent.
pub(crate) fn agent(name: &str, pid: u32) -> Result<Figure> {
    let field = |name| field(pid, "status", name);
    let values = vec![("MiB VmRSS".into(), field("VmRSS:")?), ("MiB VmHWM".into(), field("VmHWM:")?)];
    Ok(Figure { name: name.to_owned(), values })
}

/// utime, stime, and those of children that were waited for.
fn seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("read a process's times")?;
    let fields: Vec<&str> = stat.rsplit_once(") ").context("a process's name")?.1.split(' ').collect();
    let ticks: f64 = fields.iter().skip(11).take(4).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// The same of a process and of its children that run.
pub(crate) fn seconds_with_children(pid: u32) -> Result<f64> {
    let of_children: f64 = children(pid)?.into_iter().filter_map(|child| seconds(child).ok()).sum();
    Ok(seconds(pid)? + of_children)
}

/// Each thread has those that it began.
fn children(parent: u32) -> Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{parent}/task")).context("list a process's threads")? {
        // A thread that has just ended has handed its children on.
        let text = std::fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(children)
}

/// A size out of a file in /proc, in MiB.
fn field(pid: u32, file: &str, name: &str) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    let line =
        text.lines().find(|line| line.starts_with(name)).with_context(|| format!("{name} in {file}"))?;
    let kib: f64 = line.split_whitespace().nth(1).context("a size")?.parse()?;
    Ok(kib / 1024.0)
}

pub(crate) fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id")?;
    // One that has ended needs none.
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("signal a server"),
    }
}
