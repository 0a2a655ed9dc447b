//! Keys of the key file come and go: nothing is lost, and what a key that is gone has signed is worth nothing.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use roadstead_api::KindId;
use roadstead_hub_store::{
    AccountKey, AtRest, BuiltGroup, CachedBuild, Checked, Key, KeyPair, NewSession, RekeyOptions, Rekeyed,
    Sealer, SecretData, Store, StoreError, Stored, TokenHash, TokenKind,
};
use roadstead_model::{
    ApplierUid, AuditEntry, AuditFilter, ClusterUid, Digest, ObjectRef, OrderKind, ReadObject, ReplicaId,
    ResourceUid, SessionId,
};
use roadstead_tests::TestDatabase;
use serde_json::json;

const AT_ONCE: RekeyOptions = RekeyOptions { settle: Duration::ZERO, patience: Duration::ZERO };

/// Key files over one database: what each has is said where it is opened.
struct Site {
    database: TestDatabase,
    old: [u8; 32],
    new: [u8; 32],
}

impl Site {
    async fn new() -> Result<Self> {
        let key = || Ok::<_, StoreError>(*Key::generate()?.expose());
        Ok(Self { database: TestDatabase::new().await?, old: key()?, new: key()? })
    }

    async fn open(&self, keys: &[[u8; 32]]) -> Result<Store, StoreError> {
        Store::open(self.database.url(), Sealer::with_keys(&of(keys))?, 6).await
    }

    async fn execute(&self, sql: &'static str) -> Result<u64> {
        let mut connection = self.database.connect().await?;
        Ok(sqlx::query(sql).execute(&mut connection).await?.rows_affected())
    }
}

fn of(keys: &[[u8; 32]]) -> Vec<Key> {
    keys.iter().copied().map(Key::new).collect()
}

fn id(key: [u8; 32]) -> String {
    Key::new(key).id().to_string()
}

async fn rekey(store: &Store) -> Result<Rekeyed, StoreError> {
    store.rekey(AT_ONCE, &mut |_| {}).await
}

/// One of everything that is sealed or signed.
struct Filled {
    name: &'static str,
    cluster: ClusterUid,
    applier: ApplierUid,
    token: String,
    blobs: [(Digest, Vec<u8>); 2],
    salt: String,
    hash: String,
    session: String,
    mac: Vec<u8>,
}

impl Filled {
    fn inputs(&self) -> Digest {
        Digest::of(self.name.as_bytes())
    }

    async fn new(site: &Site, store: &Store, name: &'static str) -> Result<Self> {
        let (cluster, applier, now) = (ClusterUid::random(), ApplierUid::random(), store.now().await?);
        let mut connection = site.database.connect().await?;
        sqlx::query(
            "INSERT INTO resource (uid, kind, api_group, namespace, name, generation, resource_version, created_at, object)
             VALUES ($1, 'Cluster', 'test', '', $2, 1, 1, now(), '{}')",
        )
        .bind(cluster.0)
        .bind(name)
        .execute(&mut connection)
        .await?;
        store.authority::<StoreError>(name, || Ok(pair(name))).await?;
        let (_, last) = store.account_keys().await?;
        ensure!(store.add_account_key(&account_key(last + 1, name, now)).await?);
        ensure!(!store.add_account_key(&account_key(last + 1, "late", now)).await?, "the number is taken");
        let blobs = [1_000, 1_200_000].map(|length| {
            let bytes: Vec<u8> = name.bytes().cycle().take(length).collect();
            (Digest::of(&bytes), bytes)
        });
        for (digest, bytes) in &blobs {
            store.put_blob(*digest, bytes, AtRest::Sealed, now).await?;
        }
        let (_, token) = store.create_token(name, &["dev".to_owned()], None, None).await?;
        let new = NewSession {
            owner: name,
            most: 3,
            kept: name.as_bytes(),
            sign_in: None,
            begins: now,
            ends: now + LATER,
        };
        let mut tx = store.begin().await?;
        let (_, session) = tx.begin_sign_in_session(&new).await?.context("a session")?;
        tx.commit().await?;
        let filled = Self {
            name,
            cluster,
            applier,
            token: token.expose().to_owned(),
            salt: store.salt(&Digest::of(b"inputs")),
            hash: store.keyed_hash(&["a", "b"]),
            session: session.expose().to_owned(),
            mac: store.sign_in_mac("state", &[b"a"]),
            blobs,
        };
        let group = BuiltGroup {
            label: String::new(),
            objects: filled.blobs[0].0,
            sealed: false,
            wrapped_keys: None,
        };
        let build = CachedBuild { groups: vec![group], children: Some(name.as_bytes().to_vec()) };
        store.remember_build(filled.inputs(), &build, &[b"[]"], 1, None, now).await?;
        let mut tx = store.begin().await?;
        let mut secret = Stored::new(KindId::Secret, "default", name, now, json!({}));
        secret.secret = Some(data(name));
        tx.put(secret).await?;
        tx.add_join_token(cluster, filled.inputs().as_bytes(), now, now + Duration::from_secs(600)).await?;
        tx.give_order(cluster, &OrderKind::Run(name.to_owned()), None, now).await?;
        let attempt = open_attempt(&mut tx, cluster, applier, now).await?;
        tx.keep_facts(applier, attempt, &[fact(name)?]).await?;
        tx.commit().await?;
        store.note(&[entry(name)]).await?;
        store.seal_audit(now, None).await?;
        store.note(&[entry(name)]).await?;
        Ok(filled)
    }

    async fn is_whole(&self, store: &Store) -> Result<()> {
        let (name, now) = (self.name, store.now().await?);
        let fact = fact(name)?;
        let authority = store.authority::<StoreError>(name, || Ok(pair("another"))).await?;
        ensure!(*authority.key_pem == *pair(name).key_pem);
        let (keys, _) = store.account_keys().await?;
        let key = keys.iter().find(|key| key.id == name).context("a key of accounts' tokens")?;
        ensure!(*key.key == *account_key(1, name, now).key && key.signs_from == key.made + LATER);
        for (digest, bytes) in &self.blobs {
            ensure!(store.blob(*digest).await?.as_ref() == Some(bytes), "a blob of {} bytes", bytes.len());
        }
        let secret = store.get(KindId::Secret, "default", name).await?.context("a Secret")?;
        ensure!(secret.secret == Some(data(name)));
        let found = store.find_build(self.inputs(), ("default", ResourceUid::random()), now).await?;
        let build = found.build.context("a build")?;
        ensure!(build.children.as_deref() == Some(name.as_bytes()));
        ensure!(store.facts(self.applier).await?.first().is_some_and(|read| read.json == fact.json));
        ensure!(store.tokens().tell(TokenKind::Access, &self.token) == Checked::Ours);
        let user = store.token_user(&TokenHash::of(&self.token), now).await?.context("a user")?;
        ensure!(user.username == name);
        ensure!(store.tokens().tell(TokenKind::Session, &self.session) == Checked::Ours);
        let session = store.sign_in_session(&TokenHash::of(&self.session), now, now - LATER).await?;
        ensure!(session.is_some_and(|session| *session.kept == *name.as_bytes()), "a session");
        ensure!(store.sign_in_mac("state", &[b"a"]) == self.mac);
        let mut tx = store.begin().await?;
        ensure!(
            tx.join_token(self.inputs().as_bytes()).await?.is_some_and(|token| token.cluster == self.cluster)
        );
        drop(tx);
        ensure!(store.take_order(self.cluster, SessionId::random()).await?.is_some(), "an order");
        let sent = store.take_to_send(self.cluster, SessionId::random(), 10).await?.dispatches;
        ensure!(sent.len() == 1, "{} dispatches", sent.len());
        ensure!(
            store.salt(&Digest::of(b"inputs")) == self.salt && store.keyed_hash(&["a", "b"]) == self.hash
        );
        let log = store.audit_log(&AuditFilter::default(), 100).await?;
        ensure!(log.iter().filter(|record| record.signed && record.entry.username == name).count() == 2);
        let check = store.check_audit().await?;
        ensure!(check.problems.is_empty(), "{check:?}");
        Ok(())
    }
}

fn pair(name: &str) -> KeyPair {
    KeyPair { certificate_pem: format!("certificate of {name}"), key_pem: format!("key of {name}").into() }
}

const LATER: Duration = Duration::from_secs(3600);

fn account_key(number: i64, name: &str, now: jiff::Timestamp) -> AccountKey {
    let made = jiff::Timestamp::from_second(now.as_second()).unwrap_or(now);
    let key = zeroize::Zeroizing::new(format!("account key of {name}").into_bytes());
    AccountKey { number, id: name.to_owned(), made, signs_from: made + LATER, key }
}

fn data(value: &str) -> SecretData {
    SecretData::new(BTreeMap::from([("value".to_owned(), value.to_owned())]))
}

fn fact(name: &str) -> Result<ReadObject> {
    let object = json!({ "group": "", "version": "v1", "kind": "ConfigMap", "namespace": "a", "name": name });
    let object: ObjectRef = serde_json::from_value(object)?;
    Ok(ReadObject { object, json: Some(name.as_bytes().to_vec()) })
}

fn entry(name: &str) -> AuditEntry {
    AuditEntry { username: name.to_owned(), verb: "get".to_owned(), ..AuditEntry::default() }
}

async fn open_attempt(
    tx: &mut roadstead_hub_store::Tx,
    cluster: ClusterUid,
    applier: ApplierUid,
    now: jiff::Timestamp,
) -> Result<roadstead_model::Attempt> {
    let spec = support::dispatch("app", Digest::of(applier.0.as_bytes()));
    Ok(support::open(tx, cluster, applier, &spec, now).await?)
}

#[tokio::test]
async fn after_a_rekey_nothing_needs_the_old_key() -> Result<()> {
    let site = Site::new().await?;
    let before = site.open(&[site.old]).await?;
    let first = Filled::new(&site, &before, "of-the-old-key").await?;
    first.is_whole(&before).await?;
    before.close().await;

    let store = site.open(&[site.new, site.old]).await?;
    ensure!(store.key_ids()[0].to_string() == id(site.old), "it waits until it is known who lives");
    store.tend_keys().await?;
    ensure!(store.key_ids()[0].to_string() == id(site.new));
    let second = Filled::new(&site, &store, "of-the-new-key").await?;
    for filled in [&first, &second] {
        filled.is_whole(&store).await?;
    }
    let census = store.key_census().await?;
    // One of each: key, key of accounts' tokens, session, Secret, its event, children, facts, two blobs, and five signed rows of which one is not there yet.
    ensure!(census.older() >= 13 && !census.is_done(), "{census:?}");
    let mac: Vec<u8> = sqlx::query_scalar("SELECT mac FROM access_token WHERE username = 'of-the-old-key'")
        .fetch_one(&mut site.database.connect().await?)
        .await?;

    // Cut short behind its first batch, it goes on where it was.
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut tell = |step| drop(sender.send(step));
    let cut_short = site.open(&[site.new, site.old]).await?;
    tokio::select! {
        biased;
        step = receiver.recv() => ensure!(step.is_some()),
        _ = cut_short.rekey(AT_ONCE, &mut tell) => {}
    }
    // Its connections may be in the middle of something.
    drop(cut_short);
    for filled in [&first, &second] {
        filled.is_whole(&store).await?;
    }
    let left = store.key_census().await?.older();
    ensure!((1..census.older()).contains(&left), "{left}");
    let done = rekey(&store).await?;
    ensure!(done.retired.iter().map(ToString::to_string).eq([id(site.old)]), "{done:?}");
    ensure!(done.unreadable.is_empty() && done.fresh.values().sum::<u64>() == left, "{done:?}");
    ensure!(store.key_census().await?.is_done());
    let again = rekey(&store).await?;
    ensure!(again.fresh.is_empty() && again.retired.is_empty(), "{again:?}");
    store.close().await;

    let store = site.open(&[site.new]).await?;
    for filled in [&first, &second] {
        filled.is_whole(&store).await?;
    }
    ensure!(store.key_census().await?.is_done());
    what_the_old_key_signed_is_worth_nothing(&site, &store, &mac, &first).await?;
    store.close().await;
    let refusal = site.open(&[site.old]).await.err().context("it was opened")?;
    ensure!(matches!(&refusal, StoreError::KeysMissing { missing, .. } if *missing == id(site.new)));
    Ok(())
}

async fn what_the_old_key_signed_is_worth_nothing(
    site: &Site,
    store: &Store,
    mac: &[u8],
    first: &Filled,
) -> Result<()> {
    sqlx::query("UPDATE access_token SET mac = $1 WHERE username = 'of-the-old-key'")
        .bind(mac)
        .execute(&mut site.database.connect().await?)
        .await?;
    let now = store.now().await?;
    ensure!(store.token_user(&TokenHash::of(&first.token), now).await?.is_none());
    // An entry of its time counts in the batch that it was sealed in, and as a new one it does not.
    site.execute("UPDATE audit SET batch = NULL WHERE id = (SELECT min(id) FROM audit)").await?;
    let check = store.check_audit().await?;
    ensure!(check.problems.iter().any(|problem| problem.contains("not written by a hub")), "{check:?}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_key_is_told_at_start() -> Result<()> {
    let site = Site::new().await?;
    let store = site.open(&[site.old]).await?;
    let filled = Filled::new(&site, &store, "filled").await?;
    store.close().await;
    let message = site.open(&[site.new]).await.err().context("it was opened")?.to_string();
    for part in [&id(site.old), &id(site.new), "does not fit this database", "restore the key file"] {
        ensure!(message.contains(part), "{message}");
    }
    // A version before noted no ids.
    site.execute("DELETE FROM hub_key").await?;
    let message = site.open(&[site.new]).await.err().context("it was opened")?.to_string();
    ensure!(message.contains(&id(site.new)) && message.contains("none of the file's keys"), "{message}");
    let store = site.open(&[site.new, site.old]).await?;
    ensure!(store.key_ids()[0].to_string() == id(site.old));
    filled.is_whole(&store).await?;
    store.close().await;
    let twice = site.open(&[site.old, site.old]).await.err().context("it was opened")?;
    ensure!(matches!(twice, StoreError::KeyFile { .. }));
    Ok(())
}

#[tokio::test]
async fn a_new_key_is_used_once_every_replica_has_it() -> Result<()> {
    let site = Site::new().await?;
    let writes_with = |store: &Store| store.key_ids()[0].to_string();
    let (one, other) = (site.open(&[site.old]).await?, site.open(&[site.new, site.old]).await?);
    let (first, second) = (ReplicaId::random(), ReplicaId::random());
    one.replica_seen(first, one.now().await?).await?;
    other.replica_seen(second, other.now().await?).await?;
    other.tend_keys().await?;
    ensure!(writes_with(&other) == id(site.old) && other.awaited_key() == Some(Key::new(site.new).id()));
    let refusal = rekey(&other).await.err().context("it went on")?.to_string();
    ensure!(refusal.contains(&first.to_string()) && refusal.contains(&id(site.new)), "{refusal}");

    // Whichever comes first in a replica's file: both have both.
    one.replace_keys(&of(&[site.old, site.new])).await?;
    one.replica_seen(first, one.now().await?).await?;
    other.tend_keys().await?;
    ensure!(writes_with(&other) == id(site.new) && other.awaited_key().is_none());
    other.replica_seen(second, other.now().await?).await?;
    let refusal = rekey(&other).await.err().context("it went on")?.to_string();
    ensure!(refusal.contains(&first.to_string()) && refusal.contains("does not use the key"), "{refusal}");
    one.replace_keys(&of(&[site.new, site.old])).await?;
    ensure!(writes_with(&one) == id(site.new));
    one.replica_seen(first, one.now().await?).await?;

    // A replica of the version before says nothing of keys.
    site.execute("INSERT INTO hub_replica (id, started, last_seen) VALUES (gen_random_uuid(), now(), clock_timestamp())")
        .await?;
    let refusal = rekey(&other).await.err().context("it went on")?.to_string();
    ensure!(refusal.contains("knows one key only"), "{refusal}");
    site.execute("DELETE FROM hub_replica WHERE keys IS NULL").await?;

    // From now on nobody goes on without the new key.
    let refused = one.replace_keys(&of(&[site.old])).await;
    ensure!(matches!(refused, Err(StoreError::KeysMissing { .. })) && writes_with(&one) == id(site.new));
    ensure!(matches!(site.open(&[site.old]).await, Err(StoreError::KeysMissing { .. })));
    ensure!(rekey(&other).await?.retired.len() == 1);
    // The old one is left out while they run.
    for store in [&one, &other] {
        store.replace_keys(&of(&[site.new])).await?;
    }
    for store in [one, other] {
        store.close().await;
    }
    Ok(())
}

/// A replica of the version before looks after nothing of all this, and one that slept through it notices when it wakes.
#[tokio::test]
async fn a_replica_that_slept_through_it_notices() -> Result<()> {
    let site = Site::new().await?;
    let (one, other) = (site.open(&[site.old]).await?, site.open(&[site.new, site.old]).await?);
    other.tend_keys().await?;
    ensure!(matches!(one.tend_keys().await, Err(StoreError::KeysMissing { .. })));
    for store in [one, other] {
        store.close().await;
    }
    Ok(())
}

#[tokio::test]
async fn hubs_write_while_it_is_done_and_nothing_is_lost() -> Result<()> {
    let site = Site::new().await?;
    let hub = site.open(&[site.old]).await?;
    let filled = Filled::new(&site, &hub, "filled").await?;
    for number in 0..250 {
        let mut tx = hub.begin().await?;
        let name = format!("s-{number}");
        let mut secret = Stored::new(KindId::Secret, "default", &name, hub.now().await?, json!({}));
        secret.secret = Some(data("0"));
        tx.put(secret).await?;
        tx.commit().await?;
    }
    hub.replica_seen(ReplicaId::random(), hub.now().await?).await?;
    let (stop, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let replica = ReplicaId::random();
    let writers: Vec<_> = (0..2)
        .map(|worker| tokio::spawn(write(hub.clone(), worker, Arc::clone(&stop), Arc::clone(&writes))))
        .collect();
    site.execute("DELETE FROM hub_replica").await?;
    let heart = tokio::spawn({
        let hub = hub.clone();
        async move {
            loop {
                hub.replica_seen(replica, hub.now().await?).await?;
                hub.tend_keys().await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            #[expect(unreachable_code, reason = "says what fails in it")]
            anyhow::Ok(())
        }
    });
    more_than(&writes, 20).await?;
    hub.replace_keys(&of(&[site.new, site.old])).await?;
    let other = site.open(&[site.new, site.old]).await?;
    let options = RekeyOptions { settle: Duration::from_secs(1), patience: Duration::from_secs(60) };
    let before = writes.load(Ordering::SeqCst);
    let done = other.rekey(options, &mut |_| {}).await?;
    ensure!(done.unreadable.is_empty() && done.retired.len() == 1, "{done:?}");
    let after = writes.load(Ordering::SeqCst);
    more_than(&writes, after + 20).await?;
    let meanwhile = after - before;
    stop.store(true, Ordering::SeqCst);
    let mut last = BTreeMap::new();
    for writer in writers {
        last.append(&mut writer.await??);
    }
    heart.abort();
    ensure!(meanwhile > 20 && last.len() == 250, "{meanwhile} writes of {}", last.len());
    println!("{meanwhile} writes while {:?} were sealed again", done.fresh);
    for store in [hub, other] {
        store.close().await;
    }
    let store = site.open(&[site.new]).await?;
    ensure!(store.key_census().await?.is_done());
    filled.is_whole(&store).await?;
    for (name, value) in last {
        let secret = store.get(KindId::Secret, "default", &name).await?.context("a Secret")?;
        ensure!(secret.secret == Some(data(&value)), "{name} is not what was written last");
    }
    store.close().await;
    Ok(())
}

/// Waits until there were more writes than so many.
async fn more_than(writes: &AtomicU64, count: u64) -> Result<()> {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while writes.load(Ordering::SeqCst) <= count {
        ensure!(
            tokio::time::Instant::now() < deadline,
            "there were not more than {count} writes in a minute"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Writes each second Secret again and again; gives what each has in the end.
async fn write(
    hub: Store,
    worker: usize,
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
) -> Result<BTreeMap<String, String>> {
    let mut last = BTreeMap::new();
    for round in 1.. {
        for number in (worker..250).step_by(2) {
            let name = format!("s-{number}");
            if stop.load(Ordering::SeqCst) && last.contains_key(&name) {
                continue;
            }
            let mut tx = hub.begin().await?;
            let mut secret = tx.get(KindId::Secret, "default", &name).await?.context("a Secret")?;
            secret.secret = Some(data(&round.to_string()));
            tx.put(secret).await?;
            tx.commit().await?;
            last.insert(name, round.to_string());
            writes.fetch_add(1, Ordering::SeqCst);
        }
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    Ok(last)
}
