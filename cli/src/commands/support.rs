//! `roadstead support-bundle`: what somebody who is to help needs to see of a hub, in one file.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use roadstead_sources::{Entry, TreeBuilder, TreeLimits, pack};
use serde_json::{Value, json};

use crate::hub::{HubArgs, HubClient};
use crate::output;

/// Items that are asked for at once, and pages of them: of a large fleet the bundle has the beginning.
const PAGE: usize = 500;
const MOST_PAGES: usize = 20;
/// Bytes of one part, and of all of them.
const PART: u64 = 64 << 20;
const WHOLE: u64 = 256 << 20;

/// The views, and how many pages of each are collected.
const VIEWS: [(&str, Paging); 10] = [
    ("clusters", Paging::None),
    ("health", Paging::None),
    ("appliers", Paging::Continue),
    ("sources", Paging::Continue),
    ("events", Paging::None),
    ("reconciliations", Paging::None),
    ("drift", Paging::None),
    ("drift/objects", Paging::None),
    ("deliveries", Paging::None),
    ("incidents", Paging::None),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Paging {
    /// One: all of what has no pages, or else the latest items.
    None,
    /// Up to [`MOST_PAGES`].
    Continue,
}

/// Collect what helps to find out what is wrong with a hub, into one file
///
/// The bundle has the fleet views (clusters, Kustomizations and sources with their conditions, events, attempts, drift, deliveries, incidents),
/// the hub's metrics and its readiness. It has no Secrets, no manifests and no specs; names of objects and clusters, addresses of
/// repositories in messages, and labels are in it: look through it before you give it away.
#[derive(Debug, clap::Args)]
pub(crate) struct SupportBundle {
    /// The file to write, which must not exist [default: roadstead-support-TIME.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    hub: HubArgs,
}

impl SupportBundle {
    pub(crate) fn run(self) -> Result<()> {
        let now = Timestamp::now();
        let path = self.output.clone().unwrap_or_else(|| {
            PathBuf::from(format!("roadstead-support-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ")))
        });
        // Before anything is asked for: it would be for nothing.
        if path.exists() {
            bail!("{} exists already: name another file with --output", path.display());
        }
        let client = self.hub.client()?;
        let mut bundle = Bundle::new();
        for (view, paging) in VIEWS {
            output::progress(&format!("collecting {view}"));
            bundle.add(&format!("views/{}.json", view.replace('/', "-")), items(&client, view, paging));
        }
        output::progress("collecting metrics, version and readiness");
        bundle.add("metrics.txt", client.text("/metrics"));
        bundle.add("readyz.txt", client.text("/readyz?verbose"));
        bundle.add("version.json", client.text("/version"));
        let count = bundle.count;
        if count == 0 {
            bail!("nothing could be collected: {}", bundle.left_out.join("; "));
        }
        for why in &bundle.left_out {
            output::warning(&format!("left out: {why}"));
        }
        write(&path, &bundle.finish(now)?)?;
        output::print(format!("{} has {count} parts\n", path.display()).as_bytes())?;
        Ok(())
    }
}

/// The items of a view, as one document.
fn items(client: &HubClient, view: &str, paging: Paging) -> Result<String> {
    let (mut all, mut after, mut is_whole) = (Vec::new(), None, true);
    for page in 0..MOST_PAGES {
        let mut query = vec![("limit", PAGE.to_string())];
        query.extend(after.take().map(|after| ("continue", after)));
        let mut answer = client.ask(&format!("/fleet/v1/{view}"), &query)?;
        let items = answer["items"].as_array_mut().context("the hub's answer has no items")?;
        is_whole = paging == Paging::Continue || items.len() < PAGE;
        all.append(items);
        match answer["continue"].as_str().filter(|_| paging == Paging::Continue) {
            Some(_) if page + 1 == MOST_PAGES => is_whole = false,
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    Ok(format!("{:#}\n", json!({ "isWhole": is_whole, "items": all })))
}

/// What was collected, and what was not.
struct Bundle {
    tree: TreeBuilder,
    count: usize,
    left_out: Vec<String>,
}

impl Bundle {
    fn new() -> Self {
        let limits = TreeLimits { file_bytes: PART, total_bytes: WHOLE, ..TreeLimits::default() };
        Self { tree: TreeBuilder::new(limits), count: 0, left_out: Vec::new() }
    }

    /// Adds a part, or notes why it is not there: whoever may not see all of a hub bundles what they may.
    fn add(&mut self, name: &str, part: Result<String>) {
        let added = part.and_then(|text| {
            let entry = Entry::File { bytes: text.into_bytes(), executable: false };
            Ok(self.tree.insert(name.to_owned(), entry)?)
        });
        match added {
            Ok(()) => self.count += 1,
            Err(error) => self.left_out.push(format!("{name}: {error:#}")),
        }
    }

    fn finish(mut self, now: Timestamp) -> Result<Vec<u8>> {
        let about: Value = json!({
            "collected": now.to_string(), "command": env!("CARGO_PKG_VERSION"), "leftOut": self.left_out,
        });
        let entry = Entry::File { bytes: format!("{about:#}\n").into_bytes(), executable: false };
        self.tree.insert("about.json".to_owned(), entry).context("add about.json")?;
        let tree = self.tree.finish().context("put the bundle together")?;
        Ok(pack(&tree).context("pack the bundle")?.bytes)
    }
}

/// For its owner alone, as it may say more than others should read, and never over something else.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(path).and_then(|mut file| file.write_all(bytes));
    written.with_context(|| format!("write {}", path.display()))
}
