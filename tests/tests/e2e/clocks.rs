//! Clocks that are off, and times that come: an hour between agent, hub and replicas is got over and said; certificates are
//! renewed, and an agent whose certificate has run out comes back with a new token.

use anyhow::{Context, Result, ensure};
use roadstead_tests::gitserver::Commit;
use roadstead_tests::onboarding::has;
use roadstead_tests::{
    AgentProcess, Fleet, HubProcess, HubSetup, Kubectl, PATIENCE, TestCluster, config_map, eventually,
    kustomization, shifted, unique,
};

/// Restarts an agent with its clock off by `shift`.
async fn restart_agent(agent: &mut AgentProcess, shift: &str) -> Result<()> {
    agent.sigterm(PATIENCE).await?;
    let env = shifted(shift)?;
    agent.restart_with_env(&env.each_ref().map(|(name, value)| (*name, value.as_str())))
}

fn with_clock(mut setup: HubSetup, shift: &str) -> Result<HubSetup> {
    for (name, value) in shifted(shift)? {
        setup = setup.env(name, value);
    }
    Ok(setup)
}

/// Whether a Cluster has a condition that says that clocks differ.
async fn has_skew(kubectl: &Kubectl, name: &str) -> Result<bool> {
    let cluster = kubectl.get(&["cluster", name]).await?;
    let conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
    Ok(conditions.into_iter().any(|condition| condition["type"] == "ClockInSync"))
}

#[tokio::test]
async fn an_agent_whose_clock_is_off_works_and_it_is_said() -> Result<()> {
    let mut fleet = Fleet::start("agent-clock").await?;
    let place = fleet.cluster.namespace("clock").await?;
    let word = |word: &str| Commit::new().file("app/map.yaml", config_map(place.name(), "map", word));
    let repository = fleet.repository("app", &word("first")).await?;
    fleet.apply(&kustomization("app", "app", "./app", &[])).await?;
    fleet.ready("kustomization/app").await?;
    ensure!(!has_skew(fleet.kubectl(), "edge").await?, "nothing is wrong");

    // By two thirds of an hour behind: the development cluster's own certificates begin an hour ago.
    for (shift, which) in [("+3600s", "3600 s ahead of the hub's"), ("-2400s", "2400 s behind the hub's")] {
        restart_agent(&mut fleet.agent, shift).await?;
        // A second may pass in between.
        let about = &which[4..];
        eventually("the Cluster says so", PATIENCE, || async {
            let (is, reason, message) =
                fleet.kubectl().condition(&["cluster", "edge"], "ClockInSync").await?;
            ensure!((is.as_str(), reason.as_str()) == ("False", "ClockSkewed"), "{is} {reason}");
            ensure!(message.contains(about) && message.contains("NTP"), "no `{about}` in: {message}");
            Ok(())
        })
        .await?;
        // The hub hears of the clock before the agent is welcomed, which is when the agent hears of it.
        fleet.agent.says(about, PATIENCE).await?;
        fleet.ready("cluster/edge").await?;
        let commit = repository.commit("main", shift, &word(&unique("word")))?;
        fleet.fetch("app").await?;
        fleet.applied("app", &commit).await?;
    }
    fleet.agent.sigterm(PATIENCE).await?;
    fleet.agent.restart_with_env(&[])?;
    fleet.ready("cluster/edge").await?;
    eventually("the condition goes", PATIENCE, || async {
        ensure!(!has_skew(fleet.kubectl(), "edge").await?, "it is there");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_hub_whose_clock_is_off_takes_agents_and_keeps_them_when_it_is_set_right() -> Result<()> {
    for shift in ["+3600s", "-3600s"] {
        // All that a hub makes once, its authorities too, is made by the wrong clock.
        let setup = with_clock(HubSetup::new("hub-clock").await?, shift)?;
        let mut hub = HubProcess::start(&setup).await?;
        let target = TestCluster::second()?;
        let agent = AgentProcess::join(&hub, "edge", &target).await?;
        has(hub.kubectl(), "edge", "Ready", "True", "AgentConnected").await.with_context(|| agent.logs())?;
        has(hub.kubectl(), "edge", "ClockInSync", "False", "ClockSkewed").await?;
        hub.says("this replica's clock and the database's differ", PATIENCE).await?;
        let unused = AgentProcess::token(&hub, "edge").await?;

        hub.sigterm(PATIENCE).await?;
        let setup = setup.env("LD_PRELOAD", "");
        let hub = HubProcess::start(&setup).await?;
        has(hub.kubectl(), "edge", "Ready", "True", "AgentConnected").await.with_context(|| agent.logs())?;
        ensure!(!has_skew(hub.kubectl(), "edge").await?, "both are right");

        // A token of the hub that was behind has run out by now, and whoever comes with it is told by which clock.
        if shift.starts_with('-') {
            let join = setup.folder().join("late.json");
            std::fs::write(&join, unused)?;
            let mut late = AgentProcess::start(&hub, "edge", &target, join)?;
            late.wait(PATIENCE).await?;
            let logs = late.logs();
            ensure!(
                logs.contains("the join token expired at") && logs.contains("the hub's clock says"),
                "{logs}"
            );
        }
        drop(agent);
    }
    Ok(())
}

#[tokio::test]
async fn a_replica_whose_clock_is_off_does_not_take_the_others_for_dead() -> Result<()> {
    let setup = HubSetup::new("replica-clock").await?;
    let hub = HubProcess::start(&setup).await?;
    let target = TestCluster::first()?;
    let agent = AgentProcess::join(&hub, "edge", &target).await?;
    has(hub.kubectl(), "edge", "Ready", "True", "AgentConnected").await?;
    let setup = with_clock(setup, "+3600s")?;
    let other = HubProcess::start_another(&setup).await?;
    other.says("this replica's clock and the database's differ", PATIENCE).await?;
    // Its first round of heartbeats has come by then. What it took for dead, it has buried.
    ensure!(!other.logs().contains("agent disconnected"), "{}", other.logs());
    let seen = hub.kubectl().condition(&["cluster", "edge"], "Ready").await?;
    ensure!(seen.0 == "True", "{seen:?}");
    agent.says("connected to the hub", PATIENCE).await?;
    ensure!(agent.logs().matches("connected to the hub").count() == 1, "{}", agent.logs());
    Ok(())
}

#[tokio::test]
async fn a_certificate_is_renewed_before_it_runs_out() -> Result<()> {
    let setup = HubSetup::new("renewal").await?;
    let mut hub = HubProcess::start(&setup).await?;
    let target = TestCluster::first()?;
    let mut agent = AgentProcess::join(&hub, "edge", &target).await?;
    has(hub.kubectl(), "edge", "Ready", "True", "AgentConnected").await?;
    ensure!(!agent.logs().contains("the certificate was renewed"), "{}", agent.logs());
    let kept = |namespace: String| {
        let kubectl = target.kubectl().clone();
        async move {
            let secret = kubectl.get(&["secret", "roadstead-agent-identity", "-n", &namespace]).await?;
            Ok::<_, anyhow::Error>((secret["data"]["tls.crt"].clone(), secret["data"]["tls.key"].clone()))
        }
    };
    let before = kept(agent.namespace().to_owned()).await?;

    // Half a day later, for both: the certificate is still good, and it is time for the next.
    hub.sigterm(PATIENCE).await?;
    let setup = with_clock(setup, "+12h")?;
    let hub = HubProcess::start(&setup).await?;
    restart_agent(&mut agent, "+12h").await?;
    eventually("the certificate is renewed, and kept", PATIENCE, || async {
        ensure!(agent.logs().contains("the certificate was renewed"), "{}", agent.logs());
        let after = kept(agent.namespace().to_owned()).await?;
        ensure!(after.0 != before.0, "the old one is kept");
        ensure!(after.1 == before.1, "it is for another key");
        Ok(())
    })
    .await?;
    has(hub.kubectl(), "edge", "Ready", "True", "AgentConnected").await.map(drop)
}

#[tokio::test]
async fn an_agent_whose_certificate_has_run_out_comes_back_by_a_new_token() -> Result<()> {
    // More than a certificate's life ago.
    let setup = with_clock(HubSetup::new("expired").await?, "-30h")?;
    let mut hub = HubProcess::start(&setup).await?;
    let target = TestCluster::second()?;
    let mut agent = AgentProcess::join(&hub, "edge", &target).await?;
    has(hub.kubectl(), "edge", "Ready", "True", "AgentConnected").await?;
    agent.sigterm(PATIENCE).await?;
    hub.sigterm(PATIENCE).await?;

    let setup = setup.env("LD_PRELOAD", "");
    let hub = HubProcess::start(&setup).await?;
    agent.restart()?;
    eventually("the agent says what to do", PATIENCE, || async {
        let logs = agent.logs();
        ensure!(logs.contains("apply a new join manifest from the hub"), "{logs}");
        Ok(())
    })
    .await?;
    agent.check()?;
    has(hub.kubectl(), "edge", "Ready", "False", "AgentDisconnected").await?;
    let join = setup.folder().join("again.json");
    std::fs::write(&join, AgentProcess::token(&hub, "edge").await?)?;
    agent.sigterm(PATIENCE).await?;
    agent.restart_with_join(join)?;
    has(hub.kubectl(), "edge", "Ready", "True", "AgentConnected").await.with_context(|| agent.logs())?;
    agent.says("enrolled again", PATIENCE).await?;
    Ok(())
}
