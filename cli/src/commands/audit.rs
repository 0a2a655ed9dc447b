//! `roadstead audit`: the hub's audit log.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::hub::HubArgs;
use crate::output;

/// Print the hub's audit log, the oldest entry first, as lines of JSON; or check that nobody has changed it
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

    /// Of this user alone
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    #[command(flatten)]
    hub: HubArgs,
}

/// Check the whole audit log, and fail where an entry was changed, added or taken out
#[derive(Debug, clap::Args)]
pub(crate) struct Verify {
    /// Fail where the log ends before this batch: the newest one that an earlier check printed
    #[arg(long, value_name = "BATCH")]
    at_least: Option<i64>,

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
        let mut after = String::new();
        loop {
            let mut query = vec![("limit", "1000".to_owned()), ("continue", after)];
            for (key, value) in [("since", &self.since), ("until", &self.until), ("user", &self.user)] {
                query.extend(value.iter().map(|value| (key, value.clone())));
            }
            let page = client.ask("/fleet/v1/audit", &query)?;
            let mut lines = String::new();
            for item in page["items"].as_array().context("the hub's answer has no items")? {
                lines.push_str(&item.to_string());
                lines.push('\n');
            }
            output::print(lines.as_bytes())?;
            match page["continue"].as_str() {
                Some(next) => after = next.to_owned(),
                None => return Ok(()),
            }
        }
    }
}

impl Verify {
    fn run(self) -> Result<()> {
        let report = self.hub.client()?.get("/fleet/v1/audit/check")?;
        output::print(format!("{report:#}\n").as_bytes())?;
        let newest = report["newestBatch"].as_i64().unwrap_or(0);
        if let Some(wanted) = self.at_least.filter(|wanted| *wanted > newest) {
            bail!(
                "the audit log ends with batch {newest} but should go on to batch {wanted}: its end was removed"
            );
        }
        if report["sound"] != Value::Bool(true) {
            bail!("the audit log was changed: see problems");
        }
        Ok(())
    }
}
