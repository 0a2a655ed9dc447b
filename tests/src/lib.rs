//! The kit of the end-to-end tests, which are in `tests/tests`. Everything is real: the built programs, Postgres, two
//! clusters, kubectl, Git.
//!
//! `cargo xtask test` sets up what is shared and says where it is in `ROADSTEAD_TEST_…` variables; without them a test
//! fails and says so. What a test changes is its own: a database, a folder, ports, and namespaces with fresh names.
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use std::time::Duration;
//! use roadstead_tests::{AgentProcess, HubProcess, HubSetup, TestCluster, eventually};
//!
//! let setup = HubSetup::new("my-test").await?;
//! let mut hub = HubProcess::start(&setup).await?;
//! let cluster = TestCluster::first()?;
//! let agent = AgentProcess::join(&hub, "edge", &cluster).await?;
//! hub.kill9().await?;
//! let hub = HubProcess::start(&setup).await?;
//! eventually("the agent is back", Duration::from_secs(30), || async {
//!     hub.kubectl().run(&["wait", "cluster/edge", "--for=condition=Ready", "--timeout=1s"]).await
//! })
//! .await?;
//! # Ok(()) }
//! ```

mod agent;
mod chart_server;
mod clock;
mod cluster;
mod connect;
mod database;
mod fake_s3;
mod faulty_apiserver;
mod fleet;
mod flux;
mod flux_sources;
mod given;
mod hub;
pub mod key_services;
mod kubectl;
mod kubelet;
mod link;
mod memory;
mod object_store;
pub mod onboarding;
mod openid;
mod own_cluster;
mod process;
mod proxy;
mod reader;
mod registry;
mod requests;
pub mod sink;
mod unique;
mod wait;

pub use agent::AgentProcess;
pub use chart_server::ChartServer;
pub use clock::shifted;
pub use cluster::{TestCluster, TestNamespace};
pub use connect::ConnectProxy;
pub use database::{TestDatabase, start_postgres};
pub use fake_s3::{FakeS3, S3Fault};
pub use faulty_apiserver::{Fault, FaultyApiserver};
pub use fleet::{Fleet, PATIENCE, config_map, git_repository, kustomization, lasting_git};
pub use flux::FluxController;
pub use flux_sources::FluxSources;
pub use given::{binary, chromium, clients, folder, kubelogin, landed_agent, prometheus};
pub use hub::{HubProcess, HubSetup};
pub use key_services::KeyServices;
pub use kubectl::Kubectl;
pub use kubelet::{Kubelet, Program};
pub use link::{AgentSession, EnrolledAgent};
pub use memory::{MemoryLimit, resident};
pub use object_store::ObjectStore;
pub use openid::{Browser, OpenIdProvider};
pub use own_cluster::{Component, EtcdBackup, OwnCluster};
pub use process::{Process, copy_folder, kill9};
pub use proxy::Proxy;
pub use registry::{LOGIN, Registry};
pub use requests::AgentRequests;
pub use roadstead_test_gitserver as gitserver;
pub use unique::{free_port, unique};
pub use wait::eventually;
