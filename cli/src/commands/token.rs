//! `roadstead token`: the tokens by which people and programs use the hub.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use roadstead_model::GoDuration;
use serde_json::{Value, json};

use crate::hub::{HubArgs, HubClient};
use crate::output;

mod account;

use account::AccountName;

const DAY: u64 = 24 * 3600;
const DEFAULT_DAYS: u64 = 90;

/// Make, list and take back the hub's tokens
#[derive(Debug, clap::Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    Create(Create),
    List(List),
    Revoke(Revoke),
    Keys(Keys),
    RotateKey(RotateKey),
}

/// Make a token and print it: it is shown once
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// Whom it stands for. Without a name for the administrator, roadstead-admin of the group system:masters, who may do everything
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// A group of theirs; may be given several times. Somebody without one may do what their name is bound to
    #[arg(long = "group", value_name = "NAME", requires = "user")]
    groups: Vec<String>,

    /// For how many days it is taken [default: 90]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..=366))]
    days: Option<u64>,

    /// For how long it is taken, such as 30m or 12h; 10 minutes to 366 days
    #[arg(long, value_name = "DURATION", conflicts_with = "days")]
    expires_in: Option<GoDuration>,

    /// Print what the hub answered, as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    hub: HubArgs,
}

/// List tokens: whom they stand for, until when, and when they were used last. Their texts are kept nowhere
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Those of service accounts too
    #[arg(long)]
    all: bool,

    /// Print what the hub answered, as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    hub: HubArgs,
}

/// Take tokens back: from a few seconds later on they are worth nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Revoke {
    /// Their ids, as `roadstead token list` shows them; with --account the ids of that account's tokens (their claim jti), as the audit
    /// log shows them
    #[arg(required_unless_present = "token_files", value_name = "ID")]
    ids: Vec<String>,

    /// The ids are of tokens of this service account
    #[arg(long, value_name = "NAMESPACE/NAME")]
    account: Option<AccountName>,

    /// A file that holds a token of a service account, which is taken back; - is the standard input. May be given several times
    #[arg(long = "token-file", value_name = "FILE", conflicts_with_all = ["ids", "account"])]
    token_files: Vec<PathBuf>,

    #[command(flatten)]
    hub: HubArgs,
}

/// List the keys by which the hub signs tokens of service accounts
#[derive(Debug, clap::Args)]
pub(crate) struct Keys {
    /// Print what the hub answered, as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    hub: HubArgs,
}

/// Make a new key, which signs tokens of service accounts from now on. Those before it go on to verify until their last token has ended
#[derive(Debug, clap::Args)]
pub(crate) struct RotateKey {
    /// End all keys before it at once, and with them every token of a service account: for when one has leaked
    #[arg(long)]
    end_old: bool,

    #[command(flatten)]
    hub: HubArgs,
}

impl Token {
    pub(crate) fn run(self) -> Result<()> {
        match self.command {
            TokenCommand::Create(command) => command.run(),
            TokenCommand::List(command) => command.run(),
            TokenCommand::Revoke(command) => command.run(),
            TokenCommand::Keys(command) => command.run(),
            TokenCommand::RotateKey(command) => command.run(),
        }
    }
}

impl Create {
    /// Nobody is made a master by being named.
    fn whose(&self) -> (&str, Vec<&str>) {
        match &self.user {
            Some(user) => (user, self.groups.iter().map(String::as_str).collect()),
            None => ("roadstead-admin", vec!["system:masters"]),
        }
    }

    fn run(self) -> Result<()> {
        let lasts = match self.expires_in {
            Some(GoDuration(lasts)) => lasts.as_secs(),
            None => self.days.unwrap_or(DEFAULT_DAYS) * DAY,
        };
        let (user, groups) = self.whose();
        let order = json!({ "username": user, "groups": groups, "expirationSeconds": lasts });
        let made = self.hub.client()?.post("/fleet/v1/tokens", &order)?;
        if self.json {
            return Ok(output::print(format!("{made:#}\n").as_bytes())?);
        }
        let token = made["token"].as_str().context("the hub's answer has no token")?;
        Ok(output::print(format!("{token}\n").as_bytes())?)
    }
}

impl List {
    fn run(self) -> Result<()> {
        let path = if self.all { "/fleet/v1/tokens?serviceAccounts=true" } else { "/fleet/v1/tokens" };
        let answer = self.hub.client()?.get(path)?;
        if self.json {
            return Ok(output::print(format!("{answer:#}\n").as_bytes())?);
        }
        let items = answer["items"].as_array().context("the hub's answer has no items")?;
        Ok(output::print(table(items).as_bytes())?)
    }
}

fn table(items: &[Value]) -> String {
    let text = |item: &Value, field: &str| item[field].as_str().map(str::to_owned);
    let mut rows = vec![["ID", "USER", "GROUPS", "EXPIRES", "LAST USED"].map(str::to_owned)];
    for item in items {
        let groups = item["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let expires = match item["valid"].as_bool() {
            Some(false) => Some("not made by this hub".to_owned()),
            _ if item["hadNoEnd"] == true => {
                text(item, "expires").map(|expires| format!("{expires} (old: replace it)"))
            }
            _ => text(item, "expires"),
        };
        rows.push([
            text(item, "id").unwrap_or_default(),
            text(item, "username").unwrap_or_default(),
            groups.collect::<Vec<_>>().join(","),
            expires.unwrap_or_else(|| "never".to_owned()),
            text(item, "lastUsed").unwrap_or_else(|| "never".to_owned()),
        ]);
    }
    aligned(&rows)
}

/// In columns.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        out.push('\n');
    }
    out
}

impl Revoke {
    fn run(self) -> Result<()> {
        let client = self.hub.client()?;
        for file in &self.token_files {
            let (account, id) = account::named_by(&account::read(file)?)
                .with_context(|| format!("read the token in {}", file.display()))?;
            of_account(&client, &account, &id)?;
        }
        for id in &self.ids {
            // The id becomes part of a path.
            if id.is_empty() || !id.bytes().all(|c| c.is_ascii_hexdigit() || c == b'-') {
                bail!("'{id}' is not a token's id: see roadstead token list");
            }
            if let Some(account) = &self.account {
                of_account(&client, account, id)?;
                continue;
            }
            let answer = client.delete(&format!("/fleet/v1/tokens/{id}"))?;
            let whose = answer["username"].as_str().unwrap_or("nobody");
            output::print(format!("token {id} of {whose} revoked\n").as_bytes())?;
        }
        Ok(())
    }
}

fn of_account(client: &HubClient, account: &AccountName, id: &str) -> Result<()> {
    let AccountName { namespace, name } = account;
    client.delete(&format!("/fleet/v1/namespaces/{namespace}/serviceaccounts/{name}/tokens/{id}"))?;
    Ok(output::print(format!("token {id} of service account {namespace}/{name} revoked\n").as_bytes())?)
}

impl Keys {
    fn run(self) -> Result<()> {
        let answer = self.hub.client()?.get(account::KEYS)?;
        if self.json {
            return Ok(output::print(format!("{answer:#}\n").as_bytes())?);
        }
        let items = answer["items"].as_array().context("the hub's answer has no items")?;
        let mut rows = vec![["KEY", "MADE", "SIGNS FROM", "VERIFIES UNTIL"].map(str::to_owned)];
        for item in items {
            let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
            let from = if item["signs"] == true { " (signs now)" } else { "" };
            let until = item["verifiesUntil"].as_str().unwrap_or("it is superseded");
            rows.push([text("id"), text("made"), format!("{}{from}", text("signsFrom")), until.to_owned()]);
        }
        Ok(output::print(aligned(&rows).as_bytes())?)
    }
}

impl RotateKey {
    fn run(self) -> Result<()> {
        let made = self.hub.client()?.post(account::KEYS, &json!({ "endOld": self.end_old }))?;
        let id = made["id"].as_str().context("the hub's answer has no key")?;
        let before = if self.end_old { "those before it have ended" } else { "those before it still verify" };
        Ok(output::print(format!("key {id} signs tokens of service accounts now; {before}\n").as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        create: super::Create,
    }

    #[test]
    fn who_is_named_is_no_master_unless_it_is_said() {
        let whose = |args: &[&str]| {
            let line = Line::try_parse_from([&["create"], args].concat()).map_err(|error| error.to_string());
            line.map(|line| {
                let (user, groups) = line.create.whose();
                format!("{user} {groups:?}")
            })
        };
        assert_eq!(whose(&[]).unwrap(), r#"roadstead-admin ["system:masters"]"#);
        assert_eq!(whose(&["--user", "ci"]).unwrap(), "ci []");
        assert_eq!(whose(&["--user", "ci", "--group", "dev"]).unwrap(), r#"ci ["dev"]"#);
        assert!(whose(&["--group", "dev"]).is_err());
    }

    #[test]
    fn a_list_says_what_is_to_be_worried_about() {
        let items = [
            json!({ "id": "a", "username": "admin", "groups": ["system:masters"], "valid": true }),
            json!({ "id": "bb", "username": "robot", "groups": [], "expires": "2027-01-01T00:00:00Z",
                "lastUsed": "2026-11-22T10:00:00Z", "valid": true }),
            json!({ "id": "c", "username": "mallory", "groups": ["system:masters"], "valid": false }),
            json!({ "id": "d", "username": "old", "groups": [], "expires": "2026-12-27T10:00:00Z", "hadNoEnd": true, "valid": true }),
        ];
        assert_eq!(
            super::table(&items),
            "ID   USER      GROUPS           EXPIRES                                  LAST USED\n\
             a    admin     system:masters   never                                    never\n\
             bb   robot                      2027-01-01T00:00:00Z                     2026-11-22T10:00:00Z\n\
             c    mallory   system:masters   not made by this hub                     never\n\
             d    old                        2026-12-27T10:00:00Z (old: replace it)   never\n"
        );
    }
}
