//! What Alerts send: which of it waits, what came of it, and that what has ended is not tried again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_hub_store::{Attempted, Delivery, Key, Sealer, Store, Stored};
use roadstead_model::{DeliveryFilter, ResourceUid, Visible};
use roadstead_tests::TestDatabase;
use serde_json::{Value, json};

/// An Alert, its Provider, and the time.
struct Site {
    database: TestDatabase,
    store: Store,
    alert: ResourceUid,
    provider: ResourceUid,
    start: Timestamp,
}

fn object() -> Value {
    json!({ "kind": "Kustomization", "namespace": "apps", "name": "web" })
}

fn of_object() -> Value {
    json!({ "involvedObject": object() })
}

impl Site {
    async fn new() -> Result<Self> {
        let database = TestDatabase::new().await?;
        let store = Store::open(database.url(), Sealer::new(&Key::new([7; 32]))?, 4).await?;
        let start: Timestamp = "2026-11-26T12:00:00Z".parse()?;
        let alert = Stored::new(KindId::Alert, "apps", "alert", start, json!({}));
        let provider = Stored::new(KindId::Provider, "apps", "chat", start, json!({}));
        let (uid, to) = (alert.uid, provider.uid);
        let mut tx = store.begin().await?;
        tx.put(alert).await?;
        tx.put(provider).await?;
        tx.commit().await?;
        Ok(Self { database, store, alert: uid, provider: to, start })
    }

    fn at(&self, second: u64) -> Timestamp {
        self.start + Duration::from_secs(second)
    }

    /// An event that waits to be sent.
    async fn waits(&self, severity: &str, second: u64) -> Result<i64> {
        let event =
            json!({ "involvedObject": object(), "severity": severity, "reason": "Tested", "message": "m" });
        let id = sqlx::query_scalar(
            "INSERT INTO delivery (alert, news, key, event, made_at) VALUES ($1, $3, '', $2, to_timestamp($3)) RETURNING id",
        );
        let id = id.bind(self.alert.0).bind(event).bind(self.at(second).as_second());
        Ok(id.fetch_one(&mut self.database.connect().await?).await?)
    }

    async fn waiting(&self) -> Result<Vec<Delivery>> {
        Ok(self.store.waiting_deliveries(self.alert, 10).await?)
    }

    /// States, attempts and errors, the latest first.
    async fn listed(&self, filter: &DeliveryFilter) -> Result<Vec<(String, i32, String)>> {
        let listed = self.store.deliveries(filter, None, 10).await?;
        Ok(listed.into_iter().map(|one| (one.state, one.attempts, one.error)).collect())
    }
}

#[tokio::test]
async fn an_event_is_sent_until_it_arrived_or_is_given_up() -> Result<()> {
    let site = Site::new().await?;
    let (first, second) = (site.waits("error", 0).await?, site.waits("info", 1).await?);
    ensure!(site.waiting().await?.iter().map(|one| one.id).eq([first, second]), "the oldest first");

    // An attempt of which nothing is known, as after a crash, may have arrived.
    ensure!(site.store.begin_attempt(first, ("chat", site.provider), site.at(2)).await?);
    let waiting = site.waiting().await?;
    ensure!(
        (waiting[0].is_repeat, waiting[0].attempts, waiting[1].is_repeat) == (true, 1, false),
        "{waiting:?}"
    );
    let again = Attempted::Again { why: "x".repeat(5_000), at: site.at(60) };
    site.store.end_attempt(first, &again, site.at(3)).await?;
    let waiting = site.waiting().await?;
    let one = waiting.first().context("it waits")?;
    ensure!((one.is_repeat, one.due_at, one.error.len()) == (false, site.at(60), 1_000), "{one:?}");
    ensure!(!site.store.told_of_failure(site.alert, &of_object()).await?, "nothing has arrived");

    site.store.begin_attempt(first, ("chat", site.provider), site.at(60)).await?;
    site.store.end_attempt(first, &Attempted::Sent, site.at(61)).await?;
    ensure!(site.store.told_of_failure(site.alert, &of_object()).await?);
    // An object of those names in a cluster is another one.
    let relayed = json!({ "involvedObject": object(), "relayedFrom": "edge-1" });
    ensure!(!site.store.told_of_failure(site.alert, &relayed).await?);
    // What has ended is not tried again, whatever a slow replica says of it.
    ensure!(!site.store.begin_attempt(first, ("other", ResourceUid::random()), site.at(62)).await?);
    site.store.end_attempt(first, &Attempted::Failed { why: "late".to_owned() }, site.at(62)).await?;
    site.store.drop_delivery(first).await?;
    let told = |state: &str, attempts, error: &str| (state.to_owned(), attempts, error.to_owned());
    let every = DeliveryFilter::default();
    let listed = site.listed(&every).await?;
    ensure!(listed == [told("waiting", 0, ""), told("sent", 2, "")], "{listed:?}");

    // That it is well again ends the failure.
    site.store.end_attempt(second, &Attempted::Sent, site.at(63)).await?;
    ensure!(!site.store.told_of_failure(site.alert, &of_object()).await?);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_sent_is_given_up_and_counted() -> Result<()> {
    let site = Site::new().await?;
    let (old, new) = (site.waits("error", 0).await?, site.waits("error", 100).await?);
    let again = Attempted::Again { why: "no route".to_owned(), at: site.at(60) };
    site.store.begin_attempt(old, ("chat", site.provider), site.at(1)).await?;
    site.store.end_attempt(old, &again, site.at(1)).await?;
    ensure!(site.store.give_up_deliveries(site.alert, "chat", site.at(100), site.at(200)).await? == 1);
    ensure!(site.waiting().await?.iter().map(|one| one.id).eq([new]));
    let failed = DeliveryFilter { state: "failed".to_owned(), ..DeliveryFilter::default() };
    let listed = site.listed(&failed).await?;
    ensure!(listed == [("failed".to_owned(), 1, "given up: no route".to_owned())], "{listed:?}");
    // Both for the Alert and for its Provider.
    let counts: Vec<(i64, i64)> = sqlx::query_as("SELECT sent, failed FROM delivery_count")
        .fetch_all(&mut site.database.connect().await?)
        .await?;
    ensure!(counts == [(0, 1), (0, 1)], "{counts:?}");

    // Who may not see the Alert sees nothing that it sends.
    for (places, seen) in
        [(vec!["Alert/apps".to_owned()], 2), (vec!["Alert/other".to_owned()], 0), (Vec::new(), 0)]
    {
        let visible = Visible { places, ..Visible::default() };
        let listed = site.store.deliveries(&DeliveryFilter::default(), Some(&visible), 10).await?;
        ensure!(listed.len() == seen, "{listed:?}");
    }
    // What waits is not forgotten, however old it is.
    site.store.trim_deliveries(site.at(1_000), 0).await?;
    ensure!(site.listed(&DeliveryFilter::default()).await?.len() == 1 && site.waiting().await?.len() == 1);
    Ok(())
}
