//! The roll-out of agents: which clusters' agents are to put another image in their place now, and which wait for what.
//!
//! Stages: one agent first, then a tenth of the fleet, then half, then all. A stage begins when so many agents have been
//! connected with the new image for a while; those that fail, or do not come back, have others take their place, until they
//! are more than is tolerated: that stops all that follow. Who comes first is drawn for each image, so that nobody can see to
//! it that its own agent is the one that all others wait for.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use roadstead_model::{ClusterUid, Digest};

/// An order that no answer came to is given up after so many times the time that the agent has for it.
const PATIENCE: u32 = 2;

/// What a roll-out knows of one cluster's agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentState {
    /// The cluster.
    pub cluster: ClusterUid,
    /// Its name, for people.
    pub name: String,
    /// The image that its agent said it runs; none where it knows none.
    pub running: Option<String>,
    /// The image that it is to run; none where nobody said.
    pub wanted: Option<String>,
    /// It is upgraded on request only.
    pub by_hand: bool,
    /// Since when it is connected, if it is.
    pub connected: Option<Timestamp>,
    /// The value of the annotation that asks for another try.
    pub request: Option<String>,
    /// What it was told last.
    pub order: Option<UpgradeOrder>,
}

/// What an agent was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeOrder {
    /// To run this.
    pub image: String,
    /// By this request, if there was one.
    pub request: Option<String>,
    /// When.
    pub at: Timestamp,
    /// Why that failed, if it did.
    pub failed: Option<String>,
    /// Whether that is the cluster's own policy: it says nothing of the image.
    pub is_refused: bool,
}

/// How many agents of a roll-out may fail before it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// So many.
    Count(usize),
    /// So many of a hundred of those that are to run the image, rounded down; at most 100.
    Percent(u8),
}

impl Tolerance {
    fn of(self, total: usize) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => total.saturating_mul(percent.min(100).into()) / 100,
        }
    }
}

/// Draws the order of a roll-out: a number for each image, kept as long as the image is wanted.
pub type Seeds = BTreeMap<String, u64>;

/// An agent's place in the order that a seed draws.
fn place(seed: u64, cluster: ClusterUid) -> Digest {
    let mut bytes = seed.to_be_bytes().to_vec();
    bytes.extend_from_slice(cluster.0.as_bytes());
    Digest::of(&bytes)
}

/// How a roll-out goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// So long are the agents of a stage watched before the next begins.
    pub soak: Duration,
    /// So long has an agent to put another in its place.
    pub timeout: Duration,
    /// So many of its agents may fail.
    pub tolerance: Tolerance,
}

/// What is so of one cluster's agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upgrade {
    /// No image is wanted of it.
    NotWanted,
    /// It does not know its image, so it cannot change it.
    NotPossible,
    /// It runs what is wanted.
    UpToDate,
    /// It is to be told now.
    Tell,
    /// It was told and is at it.
    UnderWay,
    /// It was told, and nothing came of it in time: that is to be recorded.
    GiveUp(String),
    /// It failed, and is not told again.
    Failed(String),
    /// Its cluster's own policy does not allow it, and it is not told again.
    Refused(String),
    /// It runs another image until someone asks.
    ByHand,
    /// Its turn comes; for people: after what.
    Waits(String),
}

impl AgentState {
    /// The order, where it is for what is wanted now and nobody has asked for another try since.
    fn order(&self) -> Option<&UpgradeOrder> {
        let current = |order: &&UpgradeOrder| {
            Some(&order.image) == self.wanted.as_ref() && order.request == self.request
        };
        self.order.as_ref().filter(current)
    }

    /// Whether somebody asked for another try of what it was told before.
    fn is_asked_again(&self) -> bool {
        let told = self.order.as_ref().filter(|order| Some(&order.image) == self.wanted.as_ref());
        told.is_some_and(|order| order.request != self.request)
    }

    fn is_up_to_date(&self) -> bool {
        self.wanted.is_some() && self.running == self.wanted
    }

    /// What is so of it whatever is so of the others; none where that decides.
    fn alone(&self, pace: &Pace, now: Timestamp) -> Option<Upgrade> {
        if self.wanted.is_none() {
            return Some(Upgrade::NotWanted);
        }
        if self.is_up_to_date() {
            return Some(Upgrade::UpToDate);
        }
        if self.running.is_none() {
            return Some(Upgrade::NotPossible);
        }
        if let Some(order) = self.order() {
            if let Some(why) = &order.failed {
                let said = if order.is_refused { Upgrade::Refused } else { Upgrade::Failed };
                return Some(said(why.clone()));
            }
            if now >= order.at + pace.timeout * PATIENCE {
                return Some(Upgrade::GiveUp(match self.connected {
                    Some(_) => "the agent did not report on it".to_owned(),
                    None => "the agent has not reconnected since it was told".to_owned(),
                }));
            }
            return Some(Upgrade::UnderWay);
        }
        if self.by_hand {
            let asked = self.request.is_some() && self.connected.is_some();
            // An order for another image has answered the request already.
            let answered = self.order.as_ref().is_some_and(|order| order.request == self.request);
            return Some(if asked && !answered { Upgrade::Tell } else { Upgrade::ByHand });
        }
        None
    }
}

/// What is so of each agent, in the order given. An image without a seed has the seed 0.
#[must_use]
pub fn roll_out(agents: &[AgentState], pace: &Pace, seeds: &Seeds, now: Timestamp) -> Vec<Upgrade> {
    let mut rollouts: BTreeMap<&str, Vec<(usize, Option<Upgrade>)>> = BTreeMap::new();
    let mut upgrades = vec![Upgrade::NotWanted; agents.len()];
    for (index, agent) in agents.iter().enumerate() {
        let alone = agent.alone(pace, now);
        if let Some(upgrade) = &alone {
            upgrades[index] = upgrade.clone();
        }
        // Those that are upgraded by hand are nobody's stage, and no reason to stop.
        if let Some(wanted) = agent.wanted.as_deref().filter(|_| !agent.by_hand && agent.running.is_some()) {
            rollouts.entry(wanted).or_default().push((index, alone));
        }
    }
    for (image, mut rollout) in rollouts {
        let seed = seeds.get(image).copied().unwrap_or_default();
        rollout.sort_by_key(|(index, _)| *place(seed, agents[*index].cluster).as_bytes());
        roll_out_one(agents, &rollout, pace, now, &mut upgrades);
    }
    upgrades
}

/// The roll-out of one image.
fn roll_out_one(
    agents: &[AgentState],
    rollout: &[(usize, Option<Upgrade>)],
    pace: &Pace,
    now: Timestamp,
    upgrades: &mut [Upgrade],
) {
    let (mut done, mut begun) = (0, 0);
    let mut failures = Vec::new();
    for (index, alone) in rollout {
        let agent = &agents[*index];
        match alone {
            // Those that it did not come to by this roll-out say nothing of it, whatever they say that they run.
            Some(Upgrade::UpToDate) => {
                let Some(order) = agent.order() else { continue };
                let name = &agent.name;
                match agent.connected {
                    None => {
                        failures.push(format!("the agent of cluster '{name}' runs it and is not connected"));
                    }
                    Some(since) if now >= since + pace.soak => {
                        begun += 1;
                        done += 1;
                    }
                    // One that comes and goes is not waited for.
                    Some(_) if now >= order.at + pace.timeout * PATIENCE + pace.soak => {
                        failures.push(format!(
                            "the agent of cluster '{name}' runs it and does not stay connected"
                        ));
                    }
                    Some(_) => begun += 1,
                }
            }
            Some(Upgrade::UnderWay) => begun += 1,
            Some(Upgrade::Failed(_) | Upgrade::GiveUp(_)) => {
                failures.push(format!("it failed at cluster '{}'", agent.name));
            }
            _ => {}
        }
    }
    let total = rollout.len();
    let stopped = stopped(&failures, pace.tolerance.of(total));
    let stage = [1, total.div_ceil(10), total.div_ceil(2), total].into_iter().find(|stage| *stage > done);
    let mut room = stage.unwrap_or(total).saturating_sub(begun);
    // Those that somebody asks for are tried before others that were not told yet.
    let (asked, others): (Vec<_>, Vec<_>) =
        rollout.iter().partition(|(index, _)| agents[*index].is_asked_again());
    for (index, alone) in asked.into_iter().chain(others) {
        if alone.is_some() {
            continue;
        }
        upgrades[*index] = if let Some(why) = &stopped {
            Upgrade::Waits(why.clone())
        } else if agents[*index].connected.is_none() {
            Upgrade::Waits("its agent is not connected".to_owned())
        } else if room == 0 {
            Upgrade::Waits("agents upgraded before it are observed first".to_owned())
        } else {
            room -= 1;
            Upgrade::Tell
        };
    }
}

/// Why a roll-out with these failures does not go on, if it does not.
fn stopped(failures: &[String], tolerated: usize) -> Option<String> {
    let first = failures.first().filter(|_| failures.len() > tolerated)?;
    let others = failures.len() - 1;
    Some(if others == 0 { first.clone() } else { format!("{first}, and at {others} others") })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;
    use proptest::prelude::*;
    use roadstead_model::ClusterUid;

    use super::{AgentState, Pace, Seeds, Tolerance, Upgrade, UpgradeOrder, place};

    const PACE: Pace = Pace {
        soak: Duration::from_secs(60),
        timeout: Duration::from_secs(300),
        tolerance: Tolerance::Count(0),
    };

    /// By the seed 0.
    fn roll_out(agents: &[AgentState], pace: &Pace, at: Timestamp) -> Vec<Upgrade> {
        super::roll_out(agents, pace, &Seeds::new(), at)
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).expect("a time")
    }

    fn agent(number: usize) -> AgentState {
        AgentState {
            cluster: ClusterUid::random(),
            name: format!("edge-{number:04}"),
            running: Some("agent:1".to_owned()),
            wanted: Some("agent:2".to_owned()),
            by_hand: false,
            connected: Some(now() - Duration::from_secs(3600)),
            request: None,
            order: None,
        }
    }

    /// In the order in which the seed 0 draws them.
    fn fleet(count: usize) -> Vec<AgentState> {
        let mut agents: Vec<AgentState> = (0..count).map(agent).collect();
        agents.sort_by_key(|agent| *place(0, agent.cluster).as_bytes());
        for (number, agent) in agents.iter_mut().enumerate() {
            agent.name = format!("edge-{number:04}");
        }
        agents
    }

    /// Tells those whose turn it is; gives how many these are.
    fn tell(agents: &mut [AgentState], at: Timestamp) -> usize {
        tell_at(agents, &PACE, at)
    }

    fn tell_at(agents: &mut [AgentState], pace: &Pace, at: Timestamp) -> usize {
        let upgrades = roll_out(agents, pace, at);
        let told = agents.iter_mut().zip(upgrades).filter(|(_, upgrade)| *upgrade == Upgrade::Tell);
        told.map(|(agent, _)| {
            agent.order = Some(UpgradeOrder {
                image: "agent:2".to_owned(),
                request: agent.request.clone(),
                at,
                failed: None,
                is_refused: false,
            });
        })
        .count()
    }

    /// Those that were told and run it not yet fail.
    fn fail(agents: &mut [AgentState], is_refused: bool) {
        for agent in agents.iter_mut().filter(|agent| !agent.is_up_to_date()) {
            if let Some(order) = agent.order.as_mut().filter(|order| order.failed.is_none()) {
                (order.failed, order.is_refused) = (Some("broken".to_owned()), is_refused);
            }
        }
    }

    /// Those that were told run it, from then on.
    fn succeed(agents: &mut [AgentState], at: Timestamp) {
        let was_told = |agent: &AgentState| agent.order.as_ref().is_some_and(|order| order.failed.is_none());
        for agent in agents.iter_mut().filter(|agent| was_told(agent) && !agent.is_up_to_date()) {
            agent.running.clone_from(&agent.wanted);
            agent.connected = Some(at);
        }
    }

    #[test]
    fn one_then_a_tenth_then_half_then_all() {
        let mut agents = fleet(100);
        let mut at = now();
        for stage in [1, 9, 40, 50, 0] {
            assert_eq!(tell(&mut agents, at), stage);
            assert_eq!(tell(&mut agents, at), 0, "while these are at it");
            succeed(&mut agents, at);
            assert_eq!(tell(&mut agents, at + PACE.soak / 2), 0, "while these are watched");
            at += PACE.soak;
        }
        assert!(agents.iter().all(AgentState::is_up_to_date));
    }

    #[test]
    fn the_first_that_fails_stops_all_that_follow_until_someone_asks_or_wants_another() {
        let mut agents = fleet(3);
        assert_eq!(tell(&mut agents, now()), 1);
        agents[0].order.as_mut().expect("told").failed = Some("no such image".to_owned());
        let upgrades = roll_out(&agents, &PACE, now() + PACE.soak * 100);
        assert_eq!(upgrades[0], Upgrade::Failed("no such image".to_owned()));
        assert_eq!(upgrades[1], Upgrade::Waits("it failed at cluster 'edge-0000'".to_owned()));
        assert_eq!(tell(&mut agents, now() + PACE.soak * 100), 0);

        let mut asked = agents.clone();
        asked[0].request = Some("again".to_owned());
        assert_eq!(tell(&mut asked, now()), 1, "the same one again");
        assert_eq!(asked[0].order.as_ref().and_then(|order| order.failed.clone()), None);

        agents.iter_mut().for_each(|agent| agent.wanted = Some("agent:3".to_owned()));
        assert_eq!(tell(&mut agents, now()), 1, "another image starts over");
    }

    #[test]
    fn the_one_that_is_asked_for_is_tried_again_though_others_were_drawn_before_it() {
        let mut agents = fleet(3);
        // Those that were drawn before it were away when it was told.
        agents[0].connected = None;
        agents[1].connected = None;
        assert_eq!(tell(&mut agents, now()), 1);
        fail(&mut agents, false);
        agents[0].connected = Some(now());
        agents[1].connected = Some(now());
        assert_eq!(tell(&mut agents, now()), 0, "the failure stops the others");
        agents[2].request = Some("again".to_owned());
        let upgrades = roll_out(&agents, &PACE, now());
        assert_eq!(upgrades[2], Upgrade::Tell);
        assert!(matches!(&upgrades[..2], [Upgrade::Waits(_), Upgrade::Waits(_)]), "{upgrades:?}");
    }

    #[test]
    fn one_that_does_not_come_back_or_says_nothing_stops_them_too() {
        let mut agents = fleet(2);
        tell(&mut agents, now());
        let late = now() + PACE.timeout * 2;
        assert!(matches!(&roll_out(&agents, &PACE, late)[..], [Upgrade::GiveUp(_), Upgrade::Waits(_)]));
        agents[0].connected = None;
        assert_eq!(roll_out(&agents, &PACE, now())[0], Upgrade::UnderWay);
        // It runs it, and went away afterwards.
        agents[0].running = agents[0].wanted.clone();
        let away = roll_out(&agents, &PACE, late);
        assert_eq!(away[0], Upgrade::UpToDate);
        assert!(
            matches!(&away[1], Upgrade::Waits(why) if why.contains("'edge-0000' runs it and is not connected"))
        );
    }

    #[test]
    fn one_that_comes_and_goes_is_a_failure_and_one_that_only_says_so_is_nothing() {
        let pace = Pace { tolerance: Tolerance::Count(1), ..PACE };
        let mut agents = fleet(20);
        // Nobody told it, and it never stays for long.
        agents[0].running = Some("agent:2".to_owned());
        agents[0].connected = Some(now());
        assert_eq!(tell_at(&mut agents, &pace, now()), 1, "it is in nobody's way");
        succeed(&mut agents, now());
        assert_eq!(tell_at(&mut agents, &pace, now() + PACE.soak / 2), 0, "the first one is watched");
        // The first one comes again and again.
        let late = now() + PACE.timeout * 2 + PACE.soak;
        agents[1].connected = Some(late);
        assert_eq!(tell_at(&mut agents, &pace, late), 1, "another takes its place");
        let stopped = roll_out(&agents, &PACE, late);
        assert!(
            matches!(&stopped[3], Upgrade::Waits(why) if why.contains("does not stay connected")),
            "{:?}",
            stopped[3]
        );
    }

    #[test]
    fn who_is_away_or_unknown_or_upgraded_by_hand_holds_nobody_up() {
        let mut agents = fleet(6);
        agents[0].connected = None;
        agents[1].running = None;
        agents[2].by_hand = true;
        agents[3].wanted = None;
        let upgrades = roll_out(&agents, &PACE, now());
        assert_eq!(
            upgrades[1..5],
            [Upgrade::NotPossible, Upgrade::ByHand, Upgrade::NotWanted, Upgrade::Tell]
        );
        assert!(matches!(&upgrades[0], Upgrade::Waits(why) if why.contains("not connected")));
        agents[2].request = Some("now".to_owned());
        assert_eq!(roll_out(&agents, &PACE, now())[2], Upgrade::Tell);
        tell(&mut agents, now());
        assert_eq!(roll_out(&agents, &PACE, now())[2], Upgrade::UnderWay);
        agents[2].wanted = Some("agent:3".to_owned());
        assert_eq!(
            roll_out(&agents, &PACE, now())[2],
            Upgrade::ByHand,
            "the request was for what was wanted then"
        );
    }

    #[test]
    fn failures_that_are_tolerated_do_not_stop_a_fleet() {
        let pace = Pace { tolerance: Tolerance::Percent(10), ..PACE };
        let (mut agents, mut at) = (fleet(40), now());
        for _ in 0..4 {
            assert_eq!(
                tell_at(&mut agents, &pace, at),
                1,
                "another one takes the place of the one that failed"
            );
            fail(&mut agents, false);
        }
        for _ in 0..10 {
            tell_at(&mut agents, &pace, at);
            succeed(&mut agents, at);
            at += PACE.soak;
        }
        assert_eq!(agents.iter().filter(|agent| agent.is_up_to_date()).count(), 36);

        let mut agents = fleet(40);
        for _ in 0..5 {
            assert_eq!(tell_at(&mut agents, &pace, now()), 1);
            fail(&mut agents, false);
        }
        assert_eq!(tell_at(&mut agents, &pace, now()), 0, "a broken image stops after five of forty");
        let waits = roll_out(&agents, &pace, now());
        let waits = waits.iter().find_map(|upgrade| match upgrade {
            Upgrade::Waits(why) => Some(why.as_str()),
            _ => None,
        });
        assert_eq!(waits, Some("it failed at cluster 'edge-0000', and at 4 others"));
    }

    #[test]
    fn a_policys_refusal_is_no_failure_of_the_image() {
        let mut agents = fleet(4);
        assert_eq!(tell(&mut agents, now()), 1);
        fail(&mut agents, true);
        assert_eq!(roll_out(&agents, &PACE, now())[0], Upgrade::Refused("broken".to_owned()));
        assert_eq!(tell(&mut agents, now()), 1, "the next one is told");
    }

    #[test]
    fn who_comes_first_is_drawn_for_each_image_and_is_no_matter_of_names() {
        let mut agents: Vec<AgentState> = (0..8).map(agent).collect();
        let first = |agents: &[AgentState], seed: u64| {
            let seeds = Seeds::from([("agent:2".to_owned(), seed)]);
            let told = super::roll_out(agents, &PACE, &seeds, now());
            let at = told.iter().position(|upgrade| *upgrade == Upgrade::Tell).expect("one is told");
            agents[at].cluster
        };
        let drawn: std::collections::BTreeSet<ClusterUid> =
            (0..200).map(|seed| first(&agents, seed)).collect();
        assert!(drawn.len() > 4, "{} of 8 come first by some of 200 seeds", drawn.len());
        let by_seven = first(&agents, 7);
        agents.reverse();
        for (number, agent) in agents.iter_mut().enumerate() {
            agent.name = format!("renamed-{number}");
        }
        assert_eq!(first(&agents, 7), by_seven);
    }

    proptest! {
        /// Whatever fails and whenever: never more than a stage's agents are at risk, and without a failure all arrive.
        #[test]
        fn never_more_than_a_stage_at_once(
            count in 1_usize..60,
            away in proptest::collection::vec(any::<bool>(), 60),
            fails in proptest::option::of(0_usize..60),
        ) {
            let mut agents = fleet(count);
            for (agent, away) in agents.iter_mut().zip(&away) {
                agent.connected = agent.connected.filter(|_| !away);
            }
            let (mut at, mut done) = (now(), 0);
            loop {
                let told = tell(&mut agents, at);
                let stages = [1, count.div_ceil(10), count.div_ceil(2), count];
                prop_assert!(told == 0 || stages.iter().any(|stage| done < *stage && done + told <= *stage));
                if told == 0 {
                    break;
                }
                if let Some(broken) = fails.filter(|index| *index < count && agents[*index].order.is_some()) {
                    agents[broken].order.as_mut().expect("told").failed = Some("broken".to_owned());
                    succeed(&mut agents[..broken], at);
                    prop_assert_eq!(tell(&mut agents, at + PACE.soak), 0);
                    return Ok(());
                }
                succeed(&mut agents, at);
                done += told;
                at += PACE.soak;
            }
            prop_assert!(agents.iter().all(|agent| agent.is_up_to_date() || agent.connected.is_none()));
        }
    }
}
