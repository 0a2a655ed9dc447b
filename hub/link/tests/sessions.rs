//! What an agent, or whoever has its key, can and cannot do over the link.

mod support;

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use roadstead_api::KindId;
use roadstead_budget::PoolName;
use roadstead_hub_link::LinkOptions;
use roadstead_hub_store::AtRest;
use roadstead_model::{ApplierUid, Attempt, Digest, DispatchKey, Queue, Reason, ReplicaId, Room};
use roadstead_proto::v1;
use roadstead_proto::v1::agent_message::Body as Said;
use roadstead_proto::v1::hub_message::Body as Say;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use support::{Agent, PATIENCE, Raw, Session, Site, build_of, hello, options};

fn config_map(namespace: &str, name: &str) -> v1::ObjectRef {
    v1::ObjectRef {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn progress(key: &DispatchKey, objects: &[v1::ObjectRef], message: &str) -> Said {
    let health = |object: &v1::ObjectRef| v1::ObjectHealth {
        object: Some(object.clone()),
        status: "InProgress".to_owned(),
        message: message.to_owned(),
    };
    let result = |object: &v1::ObjectRef| v1::ObjectResult {
        object: Some(object.clone()),
        action: v1::Action::Created.into(),
    };
    Said::Progress(v1::Progress {
        key: Some(key.clone().into()),
        step: None,
        stage: v1::Stage::Wait.into(),
        results: objects.iter().map(result).collect(),
        health: objects.iter().map(health).collect(),
    })
}

fn finished(key: &DispatchKey) -> Said {
    Said::Finished(v1::Finished { key: Some(key.clone().into()), ..v1::Finished::default() })
}

async fn intend(session: &mut Session, key: &DispatchKey, objects: Vec<v1::ObjectRef>) -> Result<Say> {
    let intent = v1::InventoryIntent { key: Some(key.clone().into()), objects };
    session.send(Said::InventoryIntent(intent)).await?;
    session.expect(|body| matches!(body, Say::InventoryAck(_) | Say::Refused(_)).then_some(body)).await
}

/// What the hub answers to a request for a build: its bytes, or why not.
async fn ask_for(session: &mut Session, digest: &str) -> Result<Result<Vec<u8>, String>> {
    let request = v1::BuildRequest { digest: digest.to_owned() };
    session.send(Said::BuildRequest(request)).await?;
    let mut bytes = Vec::new();
    loop {
        let chunk = session
            .expect(|body| match body {
                Say::BuildChunk(chunk) if chunk.digest == digest => Some(chunk),
                _ => None,
            })
            .await?;
        if !chunk.error.is_empty() {
            return Ok(Err(chunk.error));
        }
        assert_eq!(chunk.offset, bytes.len() as u64);
        bytes.extend_from_slice(&chunk.data);
        if chunk.last {
            assert_eq!(chunk.total_bytes, bytes.len() as u64);
            return Ok(Ok(bytes));
        }
    }
}

async fn dispatched(session: &mut Session) -> Result<()> {
    session.expect(|body| matches!(body, Say::Dispatch(_)).then_some(())).await
}

/// The session goes on: the hub handles what it is sent.
async fn goes_on(session: &mut Session) -> Result<()> {
    session.send(Said::Refused(v1::Refused::default())).await?;
    session.handled().await
}

/// Polls until `is_so`.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await? {
        anyhow::ensure!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test]
async fn silent_connections_take_no_agents_place() -> Result<()> {
    let site =
        Site::with(LinkOptions { anonymous: 8, handshake: Duration::from_secs(3600), ..options() }).await?;
    let agent = site.joined("edge-1").await?;
    let mut session = site.session(&agent).await?;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(site.link).await?);
    }
    // All but as many as there are places are closed, the oldest first, and none of them held the agent up.
    for stream in &mut silent[..92] {
        let read = timeout(PATIENCE, stream.read(&mut [0; 1])).await.context("closed in time")?;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    let key = site.dispatch(agent.cluster, "web", &["one"]).await?;
    dispatched(&mut session).await?;
    session.send(finished(&key)).await?;
    session.handled().await?;
    site.session(&agent).await?;
    Ok(())
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_given_up() -> Result<()> {
    let site = Site::with(LinkOptions { handshake: Duration::from_millis(300), ..options() }).await?;
    let mut silent = TcpStream::connect(site.link).await?;
    let read = timeout(PATIENCE, silent.read(&mut [0; 1])).await.context("closed in time")?;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    Ok(())
}

#[tokio::test]
async fn an_agent_cannot_read_another_clusters_build() -> Result<()> {
    let site = Site::new().await?;
    let (a, b) = (site.joined("a").await?, site.joined("b").await?);
    let key = site.dispatch(b.cluster, "web", &["one"]).await?;
    let build = Digest::of(&build_of("web")).to_string();
    let (mut of_a, mut of_b) = (site.session(&a).await?, site.session(&b).await?);
    dispatched(&mut of_b).await?;
    let of_others = ask_for(&mut of_a, &build).await?;
    let of_nobody = ask_for(&mut of_a, &Digest::of(b"nothing").to_string()).await?;
    assert!(of_others.is_err(), "a build of another cluster was given");
    assert_eq!(of_others, of_nobody, "what others have can be told from what nobody has");
    let given = ask_for(&mut of_b, &build).await?;
    assert_eq!(given.map(|bytes| Digest::of(&bytes)), Ok(Digest::of(&build_of("web"))));
    // The build of a dispatch that is over is nobody's.
    of_b.send(finished(&key)).await?;
    of_b.handled().await?;
    assert_eq!(ask_for(&mut of_b, &build).await?, of_nobody);
    Ok(())
}

#[tokio::test]
async fn an_agent_cannot_tell_progress_of_another_clusters_dispatch() -> Result<()> {
    let site = Site::new().await?;
    let (a, b) = (site.joined("a").await?, site.joined("b").await?);
    let key = site.dispatch(b.cluster, "web", &["one"]).await?;
    let (mut of_a, mut of_b) = (site.session(&a).await?, site.session(&b).await?);
    dispatched(&mut of_b).await?;
    let one = [config_map("default", "one")];
    of_a.send(progress(&key, &one, "forged")).await?;
    let unknown = DispatchKey { applier: ApplierUid(uuid::Uuid::new_v4()), ..key.clone() };
    of_a.send(progress(&unknown, &one, "forged")).await?;
    of_a.send(finished(&key)).await?;
    of_a.send(intent_of(&key, &one)).await?;
    of_a.handled().await?;
    assert!(
        site.hub.sessions.progress(key.applier).is_none()
            && site.hub.sessions.progress(unknown.applier).is_none()
    );
    assert!(site.store.inventory(a.cluster, key.applier).await?.is_empty());
    // What the right one told is not taken away by the wrong one either.
    of_b.send(progress(&key, &one, "true")).await?;
    of_b.handled().await?;
    of_a.send(finished(&key)).await?;
    of_a.send(progress(&DispatchKey { attempt: Attempt(9), ..key.clone() }, &one, "forged")).await?;
    of_a.handled().await?;
    let told = site.hub.sessions.progress(key.applier).context("progress")?;
    assert_eq!(told.health.values().collect::<Vec<_>>(), ["InProgress: true"]);
    of_b.send(finished(&key)).await?;
    of_b.handled().await?;
    let history = site.store.history(key.applier, None, 1).await?;
    assert_eq!(history[0].health.values().collect::<Vec<_>>(), ["InProgress: true"]);
    assert!(site.hub.sessions.progress(key.applier).is_none());
    Ok(())
}

fn intent_of(key: &DispatchKey, objects: &[v1::ObjectRef]) -> Said {
    Said::InventoryIntent(v1::InventoryIntent { key: Some(key.clone().into()), objects: objects.to_vec() })
}

#[tokio::test]
async fn progress_of_a_session_is_bounded_and_goes_with_it() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let key = site.dispatch(agent.cluster, "web", &["one"]).await?;
    let mut session = site.session(&agent).await?;
    dispatched(&mut session).await?;
    let text = "x".repeat(3_000);
    for message in 0..20 {
        let objects: Vec<_> =
            (0..1_500).map(|number| config_map("default", &format!("{message}-{number}"))).collect();
        session.send(progress(&key, &objects, &text)).await?;
        session.handled().await?;
    }
    let kept = site.hub.sessions.progress(key.applier).context("progress")?;
    let bytes: usize = kept.health.iter().map(|(object, text)| object.len() + text.len()).sum();
    let most = usize::try_from(site.hub.budget().pool(PoolName::Progress).size())? / 4;
    assert!(bytes + 200 * kept.results.len() <= most, "{bytes} bytes and {} results", kept.results.len());
    assert!(!kept.results.is_empty());
    // All attempts of random Kustomizations are nobody's.
    let unknown = DispatchKey { applier: ApplierUid(uuid::Uuid::new_v4()), ..key.clone() };
    session.send(progress(&unknown, &[config_map("default", "one")], "")).await?;
    session.handled().await?;
    assert!(site.hub.sessions.progress(unknown.applier).is_none());
    drop(session);
    until("the progress goes with its session", async || {
        Ok(site.hub.sessions.progress(key.applier).is_none())
    })
    .await
}

/// An agent of the first version knows of no capabilities.
async fn of_the_first_version(site: &Site, agent: &Agent) -> Result<Session> {
    let mut first = hello(agent);
    if let Some(Said::Hello(hello)) = &mut first.body {
        hello.capabilities.clear();
    }
    Session::begin(site.channel(agent).await?, first).await
}

#[tokio::test]
async fn an_agent_of_the_first_version_is_sent_what_it_can_read() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let key = site.dispatch(agent.cluster, "web", &["one"]).await?;
    let mut session = of_the_first_version(&site, &agent).await?;
    let sent = session.expect(|body| if let Say::Dispatch(sent) = body { Some(sent) } else { None }).await?;
    let build = Digest::of(&build_of("web"));
    let sent = DispatchKey::try_from(sent.key.context("a key")?)?;
    assert_eq!(sent, DispatchKey { digest: Some(build), ..key.clone() });
    // It names the build when it answers, too.
    assert!(ask_for(&mut session, &build.to_string()).await?.is_ok());
    match intend(&mut session, &sent, vec![config_map("default", "one")]).await? {
        Say::InventoryAck(ack) => assert!(ack.owned_by_another.is_empty()),
        other => panic!("{other:?} where an acknowledgement was expected"),
    }
    session.send(finished(&sent)).await?;
    session.handled().await?;
    let newest = site.store.newest_reconciliation(key.applier).await?.context("an attempt")?;
    assert_eq!(newest.finished.map(|(_, reason)| reason), Some(Reason::ReconciliationSucceeded));
    Ok(())
}

#[tokio::test]
async fn what_an_agent_cannot_do_is_not_sent_to_it() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let two = site.dispatch_two_groups(agent.cluster, "two").await?;
    let mut older = of_the_first_version(&site, &agent).await?;
    until("the dispatch is over", async || {
        let newest = site.store.newest_reconciliation(two.applier).await?.context("an attempt")?;
        Ok(newest.finished.is_some_and(|(_, reason)| reason == Reason::AgentTooOld))
    })
    .await?;
    let newest = site.store.history(two.applier, None, 1).await?.pop().context("an attempt")?;
    assert_eq!(
        newest.message,
        "step 1 (apply) needs an agent with the capability 'groups', which the agent of cluster a, version 0.0.0-test, \
         does not have: upgrade that agent. Nothing was sent to it"
    );
    // What it can do, and nothing else, is sent.
    let key = site.dispatch(agent.cluster, "web", &["one"]).await?;
    let sent = older.expect(|body| if let Say::Dispatch(sent) = body { Some(sent) } else { None }).await?;
    assert_eq!(sent.name, "web");
    older.send(finished(&DispatchKey { digest: Some(Digest::of(&build_of("web"))), ..key })).await?;
    older.handled().await?;
    // An agent of this version is sent it, with both groups.
    let mut session = site.session(&agent).await?;
    let more = site.dispatch_two_groups(agent.cluster, "more").await?;
    // An attempt with one group comes before it, and may be sent before it is superseded.
    let is_it =
        |sent: &v1::Dispatch| sent.key.as_ref().is_some_and(|key| key.attempt == more.attempt.0 as u64);
    let sent = session
        .expect(|body| if let Say::Dispatch(sent) = body { Some(sent).filter(is_it) } else { None })
        .await?;
    assert_eq!((sent.name.as_str(), sent.groups.len()), ("more", 2));
    assert!(sent.steps.iter().all(|step| step.needs == ["groups"]), "{:?}", sent.steps);
    // Which step failed is told, and how long each took is kept by step.
    let failure = v1::Failure {
        stage: v1::Stage::Apply.into(),
        message: "why".to_owned(),
        step: Some(1),
        ..v1::Failure::default()
    };
    let timing = |step| v1::StageTiming { stage: v1::Stage::Apply.into(), micros: 7, step: Some(step) };
    let end = v1::Finished {
        key: sent.key,
        failure: Some(failure),
        // One is of a step that was not dispatched.
        timings: vec![timing(0), timing(1), timing(9)],
        ..v1::Finished::default()
    };
    session.send(Said::Finished(end)).await?;
    session.handled().await?;
    let newest = site.store.history(more.applier, None, 1).await?.pop().context("an attempt")?;
    assert_eq!(newest.message, "step 2 (apply): why");
    let timings = newest.timings.iter().map(|timing| (timing.step, timing.label.as_deref()));
    assert_eq!(timings.collect::<Vec<_>>(), [(Some(0), Some("apply")), (Some(1), Some("apply"))]);
    Ok(())
}

/// It says that it can do all that this version can, and reads no more of a dispatch than the first version did.
#[tokio::test]
async fn an_agent_that_claims_more_than_it_can_do_does_nothing_unnoticed() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let key = site.dispatch_two_groups(agent.cluster, "two").await?;
    let mut liar = site.session(&agent).await?;
    let sent = liar.expect(|body| if let Say::Dispatch(sent) = body { Some(sent) } else { None }).await?;
    assert_eq!(sent.groups.len(), 2);
    // The digest of what it has read is not the digest of what was sent, so that its success is not this attempt's.
    let build = DispatchKey { digest: Some(Digest::of(&build_of("two"))), ..key.clone() };
    assert!(matches!(intend(&mut liar, &build, vec![config_map("default", "one")]).await?, Say::Refused(_)));
    liar.send(finished(&build)).await?;
    liar.handled().await?;
    let newest = site.store.newest_reconciliation(key.applier).await?.context("an attempt")?;
    assert_eq!(newest.finished, None, "the second group was never applied");
    // What it does as it should is to refuse the dispatch: then it is over, and says why.
    let refused = v1::Refused {
        key: sent.key,
        what: "key.digest".to_owned(),
        message: "`key.digest` is not the digest of what this agent can read".to_owned(),
        ..v1::Refused::default()
    };
    liar.send(Said::Refused(refused)).await?;
    liar.handled().await?;
    let newest = site.store.history(key.applier, None, 1).await?.pop().context("an attempt")?;
    let reason = newest.reconciliation.finished.map(|(_, reason)| reason);
    assert_eq!(reason, Some(Reason::ReconciliationFailed));
    assert_eq!(
        newest.message,
        "the dispatch to the agent of cluster a failed: it was refused: `key.digest` is not the digest of what this agent can read"
    );
    // Its session goes on, by which what it can do is done.
    site.dispatch(agent.cluster, "web", &["one"]).await?;
    let sent = liar.expect(|body| if let Say::Dispatch(sent) = body { Some(sent) } else { None }).await?;
    assert_eq!(sent.name, "web");
    Ok(())
}

#[tokio::test]
async fn only_objects_of_the_build_are_taken_as_intended() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let key = site.dispatch(agent.cluster, "web", &["one", "two"]).await?;
    let mut session = site.session(&agent).await?;
    dispatched(&mut session).await?;
    let many = (0..18_000).map(|number| config_map("default", &format!("n{number}"))).collect();
    for objects in [many, vec![config_map("default", "one"), config_map("kube-system", "two")]] {
        match intend(&mut session, &key, objects).await? {
            Say::Refused(refused) => {
                assert!(refused.message.contains("not in the dispatch's build"), "{}", refused.message);
            }
            other => panic!("{other:?} where a refusal was expected"),
        }
        assert_eq!(site.store.inventory(agent.cluster, key.applier).await?, []);
    }
    // Another generation, build or epoch is not the dispatch that is open.
    let other = DispatchKey { digest: Some(Digest::of(b"another")), ..key.clone() };
    assert!(matches!(intend(&mut session, &other, vec![]).await?, Say::Refused(_)));
    let own = vec![config_map("default", "one"), config_map("", "two")];
    match intend(&mut session, &key, own).await? {
        Say::InventoryAck(ack) => assert!(ack.owned_by_another.is_empty()),
        other => panic!("{other:?} where an acknowledgement was expected"),
    }
    assert_eq!(site.store.inventory(agent.cluster, key.applier).await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_session_ends_when_another_agent_joins_as_its_cluster() -> Result<()> {
    let site = Site::new().await?;
    let thief = site.joined("a").await?;
    let key = site.dispatch(thief.cluster, "web", &["one"]).await?;
    let channel = site.channel(&thief).await?;
    let mut session = Session::open(channel.clone(), &thief).await?;
    dispatched(&mut session).await?;
    let agent = site.joined_anew(&thief).await?;
    let cluster = site.cluster("a").await?;
    let ready = &cluster["status"]["conditions"][0];
    assert_eq!((ready["type"].as_str(), ready["status"].as_str()), (Some("Ready"), Some("False")), "{ready}");
    // What it says at that moment does not count, and then it is cut off.
    session.send(finished(&key)).await?;
    let status = session.ended().await?;
    assert_eq!(status.code(), tonic::Code::Aborted, "{status}");
    assert!(site.store.newest_reconciliation(key.applier).await?.context("it")?.finished.is_none());
    // Nor does it get in again: over the connection that it has, or over another.
    let again = Session::open(channel, &thief).await.err().context("the old key opened a session")?;
    assert!(again.to_string().contains("another agent has since joined"), "{again:#}");
    assert!(site.session(&thief).await.is_err());
    let mut session = site.session(&agent).await?;
    dispatched(&mut session).await?;
    session.send(finished(&key)).await?;
    session.handled().await
}

#[tokio::test]
async fn a_session_ends_when_its_certificate_expires() -> Result<()> {
    let site = Site::new().await?;
    let agent: Agent = site.joined_for("a", Duration::from_secs(20)).await?;
    let channel = site.channel(&agent).await?;
    let mut session = Session::open(channel.clone(), &agent).await?;
    let begun = Instant::now();
    session.heartbeat().await?;
    let status = session.ended().await?;
    assert!(status.message().contains("certificate has expired"), "{status}");
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    let again = Session::open(channel, &agent).await.err().context("it opened a session")?;
    assert!(again.to_string().contains("expired"), "{again:#}");
    Ok(())
}

#[tokio::test]
async fn a_session_ends_with_its_cluster() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let key = site.dispatch(agent.cluster, "web", &["one"]).await?;
    let mut session = site.session(&agent).await?;
    dispatched(&mut session).await?;
    // As a Cluster goes once its finalizers are released.
    let mut tx = site.store.begin().await?;
    let stored = tx.get(KindId::Cluster, "", "a").await?.context("the Cluster")?;
    tx.remove(stored.uid).await?;
    tx.commit().await?;
    session.send(finished(&key)).await?;
    assert_eq!(session.ended().await?.code(), tonic::Code::Aborted);
    assert!(site.store.newest_reconciliation(key.applier).await?.context("it")?.finished.is_none());
    Ok(())
}

#[tokio::test]
async fn a_cluster_has_few_connections_and_the_newest_stay() -> Result<()> {
    let site = Site::new().await?;
    let (agent, other) = (site.joined("a").await?, site.joined("b").await?);
    let mut bystander = site.session(&other).await?;
    let mut first = site.session(&agent).await?;
    let mut more = Vec::new();
    for _ in 0..6 {
        more.push(site.session(&agent).await?);
    }
    first.ended().await?;
    let last = more.last_mut().context("a session")?;
    last.send(Said::Refused(v1::Refused::default())).await?;
    last.handled().await?;
    bystander.send(Said::Refused(v1::Refused::default())).await?;
    bystander.handled().await
}

/// A message of eight megabytes is announced on each of its streams, and never comes: what is waited for is its own.
#[tokio::test]
async fn messages_that_one_cluster_announces_keep_nobody_out() -> Result<()> {
    let site = Site::new().await?;
    let (thief, agent) = (site.joined("a").await?, site.joined("b").await?);
    let key = site.dispatch(agent.cluster, "web", &["one"]).await?;
    let channel = site.channel(&thief).await?;
    let raw = [Raw::open(channel.clone())?, Raw::open(channel)?];
    for raw in &raw {
        raw.announce(8 << 20).await?;
    }
    let other = Raw::open(site.channel(&thief).await?)?;
    other.say(&hello(&thief)).await?;
    other.announce(8 << 20).await?;
    let begun = Instant::now();
    for _ in 0..5 {
        // A session each time, and a message that is not small.
        let mut session = site.session(&agent).await?;
        let objects: Vec<_> = (0..1_500).map(|number| config_map("default", &format!("n{number}"))).collect();
        session.send(progress(&key, &objects, "x")).await?;
        session.handled().await?;
    }
    // Sooner than what was announced is given up.
    assert!(begun.elapsed() < options().whole - Duration::from_secs(5), "{:?}", begun.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_first_message_is_small() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let raw = Raw::open(site.channel(&agent).await?)?;
    raw.announce(4 << 20).await?;
    // It is not waited for.
    timeout(Duration::from_secs(5), raw.answer)
        .await
        .context("a first message of 4 MiB is waited for")??
        .ok();
    goes_on(&mut site.session(&agent).await?).await
}

#[tokio::test]
async fn a_message_that_does_not_come_ends_its_session() -> Result<()> {
    let site = Site::with(LinkOptions { whole: Duration::from_secs(2), ..options() }).await?;
    let agent = site.joined("a").await?;
    let raw = Raw::open(site.channel(&agent).await?)?;
    raw.say(&hello(&agent)).await?;
    raw.announce(8 << 20).await?;
    timeout(Duration::from_secs(20), raw.answer).await.context("the session goes on")??.ok();
    Ok(())
}

/// What is sealed is opened as a whole, so this one would take eighty megabytes and more.
#[tokio::test]
async fn an_oversized_sealed_build_is_refused_and_the_session_goes_on() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let mut build = vec![0; 23 << 20];
    build.iter_mut().zip(0_u32..).for_each(|(byte, n)| *byte = (n.wrapping_mul(2_654_435_761) >> 24) as u8);
    site.dispatch_of(agent.cluster, "web", &["one"], &build, AtRest::Sealed).await?;
    let mut session = site.session(&agent).await?;
    dispatched(&mut session).await?;
    let given = ask_for(&mut session, &Digest::of(&build).to_string()).await?;
    assert!(given.as_ref().is_err_and(|why| why.contains("at most")), "{:?}", given.map(|bytes| bytes.len()));
    goes_on(&mut session).await
}

/// Whoever waits for memory does so at the hub's expense, not at his own.
#[tokio::test]
async fn a_build_that_waits_for_memory_is_sent_once_there_is_some() -> Result<()> {
    let site = Site::with(LinkOptions { transfer: Duration::from_millis(500), ..options() }).await?;
    let agent = site.joined("a").await?;
    site.dispatch(agent.cluster, "web", &["one"]).await?;
    let mut session = site.session(&agent).await?;
    dispatched(&mut session).await?;
    let pool = site.hub.budget().pool(PoolName::Blobs).clone();
    let others = pool.try_reserve(pool.size())?;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(others);
    });
    let build = Digest::of(&build_of("web"));
    let given = ask_for(&mut session, &build.to_string()).await?;
    assert_eq!(given.map(|bytes| Digest::of(&bytes)), Ok(build));
    Ok(())
}

/// One address connects without end; another one's handshake takes its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_anonymous_clients_leaves_an_agent_the_time_for_its_handshake() -> Result<()> {
    let long = Duration::from_secs(3600);
    let site = Site::with(LinkOptions { anonymous: 8, handshake: long, ..options() }).await?;
    let agent = site.joined("a").await?;
    let link = site.link;
    let flood = tokio::spawn(async move {
        let mut held = std::collections::VecDeque::new();
        loop {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind("127.0.0.2:0".parse()?)?;
            held.push_back(socket.connect(link).await?);
            if held.len() > 200 {
                held.pop_front();
            }
            if false {
                return anyhow::Ok(());
            }
        }
    });
    let mut slow = TcpStream::connect(site.link).await?;
    let read = timeout(Duration::from_secs(3), slow.read(&mut [0; 1])).await;
    assert!(read.is_err(), "a connection that had time left was closed: {read:?}");
    goes_on(&mut site.session(&agent).await?).await?;
    assert!(!flood.is_finished());
    flood.abort();
    Ok(())
}

/// A dispatch whose pass is over, so that the next one is due at `next`.
async fn passed(site: &Site, agent: &Agent, name: &str, next: Timestamp) -> Result<DispatchKey> {
    let (key, replica) = (site.dispatch(agent.cluster, name, &[]).await?, ReplicaId::random());
    let now = site.store.now().await?;
    let due = site.store.claim_due(Queue::Applier, replica, now, PATIENCE, &Room::of(10, false)).await?;
    let claim = due.claims.into_iter().find(|claim| claim.uid == key.applier.into());
    site.store.release(replica, claim.context("a pass that is due")?, next, now).await?;
    Ok(key)
}

/// When the first pass is due that is not due yet.
async fn next_pass(site: &Site) -> Result<Option<Timestamp>> {
    let (now, replica) = (site.store.now().await?, ReplicaId::random());
    Ok(site.store.claim_due(Queue::Applier, replica, now, PATIENCE, &Room::of(0, false)).await?.next)
}

#[tokio::test]
async fn there_is_a_pass_after_a_result_where_something_is_left_to_do() -> Result<()> {
    let site = Site::new().await?;
    let agent = site.joined("a").await?;
    let mut session = site.session(&agent).await?;
    let now = site.store.now().await?;
    let (deadline, interval) = (now + Duration::from_secs(900), now + Duration::from_secs(3600));

    // All is done: the next one is at the interval, also for whoever comes too late to ask for something else.
    let key = passed(&site, &agent, "done", deadline).await?;
    session.send(finished(&key)).await?;
    session.handled().await?;
    let rests = next_pass(&site).await?.context("a next pass")?;
    assert!(rests >= interval, "{rests}");
    let uid = key.applier.into();
    site.store.move_next_pass(Queue::Applier, uid, 0, deadline, deadline).await?;
    assert_eq!(next_pass(&site).await?, Some(rests), "moved, though a pass was asked for since");

    // A newer revision could not be built meanwhile, and is to be tried again: not at the interval only.
    let key = passed(&site, &agent, "newer", deadline).await?;
    let mut tx = site.store.begin().await?;
    let mut stored = tx.get_by_uid(key.applier.into()).await?.context("a Kustomization")?;
    stored.object["status"] = serde_json::json!({ "lastAttemptedRevision": "main@sha1:newer" });
    tx.put(stored).await?;
    tx.commit().await?;
    session.send(finished(&key)).await?;
    session.handled().await?;
    // It is due at once.
    assert_eq!(next_pass(&site).await?, Some(rests));
    Ok(())
}
