//! `roadstead-hub rekey`: everything in the database goes over to the key file's newest key.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use roadstead_hub_store::{KeyCensus, RekeyOptions, RekeyStep, Rekeyed, Sealer, Store};

use crate::args::RekeyArgs;
use crate::database;
use crate::keyfile::KeyFile;
use crate::unwrapping::Unwrapping;

/// Of its own: it runs beside hubs.
const CONNECTIONS: u32 = 4;
/// How often it says how far it is.
const EVERY: Duration = Duration::from_secs(1);

/// Does it, or says what there is to do.
pub(crate) async fn run(args: &RekeyArgs) -> Result<ExitCode> {
    let url = database::url(&args.database)?.context("no database: give --database-url postgres://…")?;
    let path = args.database.key_file.as_ref().context("no keys: give --key-file FILE")?;
    let (_, keys) = KeyFile::open(path, Unwrapping::new(&args.wrapping, &args.allow)).await?;
    let sealer = Sealer::with_keys(&keys).context("use the key file's keys")?;
    drop(keys);
    let store = Store::open_over(&url, database::transport(&args.database), sealer, CONNECTIONS)
        .await
        .context("open the database")?;
    let done = if args.check { check(&store).await } else { rekey(&store, args).await };
    store.close().await;
    done
}

async fn check(store: &Store) -> Result<ExitCode> {
    let census = store.key_census().await.context("count what keys have")?;
    let mut out = std::io::stdout().lock();
    out.write_all(census_text(&census).as_bytes()).context("print what keys have")?;
    Ok(if census.is_done() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn census_text(census: &KeyCensus) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for sealed in &census.sealed {
        let key = match sealed.key {
            Some(key) if key == census.newest => format!("{key} (newest)"),
            Some(key) => format!("{key} (older)"),
            None => "none of the key file's: not trusted".to_owned(),
        };
        line(format!("{:>8}  {}: key {key}", sealed.count, sealed.what));
    }
    if let Some(awaited) = census.awaited {
        line(format!("the key {awaited} is not used yet: not all hubs have it"));
    }
    for key in &census.in_use {
        line(format!("the key file needs the key {key}: run roadstead-hub rekey"));
    }
    if census.is_done() {
        line(format!("the key file needs the key {} only", census.newest));
    }
    text
}

async fn rekey(store: &Store, args: &RekeyArgs) -> Result<ExitCode> {
    let options = RekeyOptions { settle: Duration::from_secs(args.settle), ..RekeyOptions::default() };
    let mut said = (None, Instant::now());
    let mut tell = |step: RekeyStep| match step {
        RekeyStep::Waits(why) => eprintln!("waiting: {why}"),
        RekeyStep::Did { what, done, of } => {
            if said.0 == Some(what) && said.1.elapsed() < EVERY && done < of {
                return;
            }
            said = (Some(what), Instant::now());
            eprintln!("{what}: {done} of {of}");
        }
    };
    let rekeyed = store.rekey(options, &mut tell).await.context("what was done so far stays")?;
    eprint!("{}", summary(&rekeyed));
    Ok(ExitCode::SUCCESS)
}

fn summary(rekeyed: &Rekeyed) -> String {
    let mut text = format!("done: everything is sealed and signed with the key {}\n", rekeyed.key);
    for (what, count) in &rekeyed.fresh {
        text.push_str(&format!("  {what}: {count} sealed or signed again\n"));
    }
    for (what, count) in &rekeyed.unreadable {
        text.push_str(&format!("  {what}: {count} open with none of the keys, and were left as they are\n"));
    }
    for key in &rekeyed.retired {
        text.push_str(&format!("  the key {key} can be taken out of the key file\n"));
    }
    text
}
