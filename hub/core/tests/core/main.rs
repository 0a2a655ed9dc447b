//! What the hub does for its objects, a module for each part.

mod builds;
mod choosing;
mod family;
mod github_app;
mod hooks;
mod includes;
mod layouts;
mod macs;
mod newer;
mod notify;
mod outdated;
mod pace;
mod pull_secrets;
mod quotas;
mod references;
mod schedule;
#[path = "../support/mod.rs"]
mod support;
mod takeover;
mod tenancy;
mod unchanged;
mod waits;
