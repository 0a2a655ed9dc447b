//! `roadstead audit`: the hub's audit log.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};

use crate::hub::{HubArgs, HubClient};
use crate::output;

/// Entries that are asked for at once.
const PAGE: usize = 1_000;

/// Print the hub's audit log, the oldest entry first; or check that nobody has changed it
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Option<AuditCommand>,

    #[command(flatten)]
    export: Export,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    Verify(Verify),
}

#[derive(Debug, clap::Args)]
struct Export {
    /// Not older than this, as 2026-01-02T03:04:05Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// Older than this
    #[arg(long, value_name = "TIME")]
    until: Option<String>,

    /// Of this user alone, or of who was taken for somebody else
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// With this verb alone: create, update, patch, delete, get, login, use, …
    #[arg(long, value_name = "VERB")]
    verb: Option<String>,

    /// About objects of this kind alone, as Kustomization
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,

    /// In this namespace alone
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// About objects of this name alone
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// With this outcome alone
    #[arg(long, value_parser = ["ok", "refused"])]
    outcome: Option<String>,

    /// Of this request alone: what its answer had in the header Audit-Id
    #[arg(long, value_name = "ID")]
    request: Option<String>,

    /// By an administrator's credential alone, one that may do everything
    #[arg(long)]
    administrator: bool,

    /// The newest first
    #[arg(long)]
    newest_first: bool,

    /// No more than so many
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,

    /// How entries are printed
    #[arg(short, long, value_enum, default_value_t = Shape::Jsonl)]
    output: Shape,

    #[command(flatten)]
    hub: HubArgs,
}

/// How entries are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shape {
    /// A line of JSON each
    Jsonl,
    /// One list, as JSON
    Json,
    /// One list, as YAML
    Yaml,
    /// A line each, for people
    Table,
}

/// Check the whole audit log, and fail where an entry was changed, added or taken out
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// Fail where the log ends before this batch: the newest one that an earlier check printed
    #[arg(long, value_name = "BATCH")]
    at_least: Option<i64>,

    /// Hold the log against what the hub streamed (--audit-log-path): its heads and entries show what was changed, taken out, or cut
    /// off the end. May be given several times; - is standard input
    #[arg(long, value_name = "FILE")]
    heads: Vec<PathBuf>,

    #[command(flatten)]
    hub: HubArgs,
}

impl Audit {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            Some(AuditCommand::Verify(command)) => command.run(),
            None => self.export.run(),
        }
    }
}

impl Export {
    fn run(self) -> Result<()> {
        let client = self.hub.client()?;
        let (mut after, mut left) = (String::new(), self.limit.unwrap_or(usize::MAX));
        let mut printer = Printer { shape: self.output, first: true };
        while left > 0 {
            let mut query = self.query();
            query.extend([("limit", left.min(PAGE).to_string()), ("continue", after)]);
            let page = client.ask("/fleet/v1/audit", &query)?;
            let items = page["items"].as_array().context("the hub's answer has no items")?;
            printer.print(items)?;
            left = left.saturating_sub(items.len());
            match page["continue"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        printer.end()
    }

    fn query(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("since", &self.since),
            ("until", &self.until),
            ("user", &self.user),
            ("verb", &self.verb),
            ("kind", &self.kind),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("outcome", &self.outcome),
            ("request", &self.request),
        ];
        let mut query: Vec<_> =
            texts.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect();
        if self.administrator {
            query.push(("administrator", "true".to_owned()));
        }
        if self.newest_first {
            query.push(("order", "newest".to_owned()));
        }
        query
    }
}

/// Prints entries as they come, so that a log of any length takes little memory.
struct Printer {
    shape: Shape,
    first: bool,
}

impl Printer {
    fn print(&mut self, items: &[Value]) -> Result<()> {
        let mut text = String::new();
        for item in items {
            match self.shape {
                Shape::Jsonl => text.push_str(&format!("{item}\n")),
                Shape::Json => {
                    text.push_str(if self.first { "[\n" } else { ",\n" });
                    text.push_str(&item.to_string());
                }
                Shape::Yaml => text.push_str(&serde_saphyr::to_string(&[item])?),
                Shape::Table => {
                    if self.first {
                        text.push_str("TIME                  USER  VERB  OBJECT  OUTCOME\n");
                    }
                    text.push_str(&line(item));
                }
            }
            self.first = false;
        }
        Ok(output::print(text.as_bytes())?)
    }

    fn end(self) -> Result<()> {
        let end = match (self.shape, self.first) {
            (Shape::Json | Shape::Yaml, true) => "[]\n",
            (Shape::Json, false) => "\n]\n",
            _ => return Ok(()),
        };
        Ok(output::print(end.as_bytes())?)
    }
}

/// An entry for people. What others wrote is shown without what moves a terminal's cursor.
fn line(item: &Value) -> String {
    let text = |field: &str| item[field].as_str().unwrap_or_default();
    let mut user = format!("{}{}", text("user"), groups(item));
    if !text("impersonator").is_empty() {
        user = format!("{user} (impersonated by {})", text("impersonator"));
    }
    let place: Vec<&str> =
        [text("kind"), text("namespace"), text("name")].into_iter().filter(|part| !part.is_empty()).collect();
    let times = item["times"].as_i64().filter(|times| *times > 1);
    let times = times.map(|times| format!(" ({times} times)")).unwrap_or_default();
    let at = text("at").get(..19).unwrap_or_default();
    let cells =
        [&format!("{at}Z"), &user, text("verb"), &place.join("/"), &format!("{}{times}", text("outcome"))]
            .map(|cell| cell.chars().filter(|c| !c.is_control()).collect::<String>());
    format!("{}\n", cells.join("  "))
}

/// In which groups somebody was taken for somebody else: the first few.
fn groups(item: &Value) -> String {
    const MOST: usize = 5;
    let Some(groups) = item["impersonated"]["groups"].as_array().filter(|groups| !groups.is_empty()) else {
        return String::new();
    };
    let left_out = item["impersonated"]["leftOut"].as_u64().and_then(|more| usize::try_from(more).ok());
    let more = groups.len().saturating_sub(MOST) + left_out.unwrap_or(0);
    let mut told: Vec<String> =
        groups.iter().take(MOST).filter_map(Value::as_str).map(str::to_owned).collect();
    if more > 0 {
        told.push(format!("{more} more"));
    }
    format!(" in {}", told.join(", "))
}

impl Verify {
    fn run(self) -> Result<()> {
        let client = self.hub.client()?;
        let report = client.get("/fleet/v1/audit/check")?;
        output::print(format!("{report:#}\n").as_bytes())?;
        let newest = report["newestBatch"].as_i64().unwrap_or(0);
        if let Some(wanted) = self.at_least.filter(|wanted| *wanted > newest) {
            bail!(
                "the audit log ends with batch {newest} but should go on to batch {wanted}: its end was removed"
            );
        }
        let mut compared = Compared::default();
        for path in &self.heads {
            compared.file(&client, path)?;
        }
        if !self.heads.is_empty() {
            compared.tell()?;
        }
        if self.heads.is_empty() && self.at_least.is_none() {
            eprintln!(
                "note: an end of the log that was cut off before the hub's process started does not show without --heads or \
                 --at-least: keep {newest}, the newest batch, for the next time"
            );
        }
        if report["sound"] != Value::Bool(true) {
            bail!("the audit log was changed: see problems");
        }
        if !compared.problems.is_empty() {
            bail!("the audit log is not what was streamed: see problems");
        }
        Ok(())
    }
}

/// Bytes of a line of the stream, at most; longer ones are none of the hub's.
const MAX_LINE: u64 = 1 << 20;
/// Bytes of what is compared by one request.
const MAX_ORDER: usize = 48 << 10;
/// Problems that are told.
const MOST_PROBLEMS: usize = 20;

/// What of files was held against the log.
#[derive(Default)]
struct Compared {
    waiting: Order,
    heads: u64,
    entries: u64,
    passed_over: u64,
    problems: Vec<String>,
}

/// What is to be compared next.
#[derive(Default)]
struct Order {
    heads: Vec<Value>,
    entries: Vec<Value>,
    bytes: usize,
}

impl Compared {
    fn file(&mut self, client: &HubClient, path: &Path) -> Result<()> {
        let what = || format!("read {}", path.display());
        let file: Box<dyn Read> = if path.as_os_str() == "-" {
            Box::new(std::io::stdin().lock())
        } else {
            Box::new(File::open(path).with_context(what)?)
        };
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).with_context(what)? == 0 {
                break;
            }
            // The end of a file may be half a line.
            match serde_json::from_slice(&line).ok().and_then(|line: Value| self.line(&line)) {
                Some(()) if self.waiting.bytes > MAX_ORDER => self.send(client)?,
                Some(()) => {}
                None => self.passed_over += 1,
            }
        }
        self.send(client)
    }

    fn line(&mut self, line: &Value) -> Option<()> {
        let (fields, to): (&[&str], _) = match line["type"].as_str()? {
            "head" => (&["batch", "mac", "at", "signature"], &mut self.waiting.heads),
            "entry" => (&["id", "at", "mac"], &mut self.waiting.entries),
            _ => return None,
        };
        let told: Map<String, Value> = fields
            .iter()
            .map(|field| Some(((*field).to_owned(), line.get(*field)?.clone())))
            .collect::<Option<_>>()?;
        let told = Value::Object(told);
        self.waiting.bytes += told.to_string().len() + 1;
        to.push(told);
        Some(())
    }

    fn send(&mut self, client: &HubClient) -> Result<()> {
        let Order { heads, entries, .. } = std::mem::take(&mut self.waiting);
        if heads.is_empty() && entries.is_empty() {
            return Ok(());
        }
        let answer = client.post("/fleet/v1/audit/heads", &json!({ "heads": heads, "entries": entries }))?;
        self.heads += answer["heads"].as_u64().unwrap_or(0);
        self.entries += answer["entries"].as_u64().unwrap_or(0);
        let problems = answer["problems"].as_array().context("the hub's answer has no problems")?;
        let room = MOST_PROBLEMS.saturating_sub(self.problems.len());
        self.problems.extend(problems.iter().filter_map(Value::as_str).map(str::to_owned).take(room));
        Ok(())
    }

    fn tell(&self) -> Result<()> {
        let Self { heads, entries, passed_over, problems, .. } = self;
        let told = json!({
            "heads": heads, "streamedEntries": entries, "otherLines": passed_over, "problems": problems,
        });
        output::print(format!("{told:#}\n").as_bytes())?;
        if *heads == 0 {
            bail!("the files hold no heads: are they what a hub streamed?");
        }
        Ok(())
    }
}
