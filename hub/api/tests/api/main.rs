//! The API as its users see it, a module for each part. One program: those of one module run while those of another wait.

mod access;
mod account_tokens;
mod accounts;
mod anonymous;
mod apply;
mod artifacts;
mod audit;
mod auth_commands;
mod certificates;
mod clients;
mod fleet;
mod fleet_rights;
mod hooks;
mod http;
mod issuer;
mod kinds;
mod kubectl;
mod lasting;
mod limits;
mod lists;
mod matrix;
mod metrics;
mod oidc;
mod old_tokens;
mod pages;
mod probes;
mod rbac;
mod records;
mod sessions;
mod set_aside;
mod sign_in;
#[path = "../support/mod.rs"]
mod support;
mod views;
mod watch;
mod watch_http;
