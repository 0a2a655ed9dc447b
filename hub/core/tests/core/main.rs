//! What the hub does for its objects, a module for each part.

mod choosing;
mod hooks;
mod layouts;
mod pace;
mod schedule;
#[path = "../support/mod.rs"]
mod support;
mod takeover;
mod tenancy;
mod unchanged;
mod waits;
