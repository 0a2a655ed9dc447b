//! The API as its users see it, a module for each part. One program: those of one module run while those of another wait.

mod access;
mod anonymous;
mod apply;
mod artifacts;
mod auth_commands;
mod clients;
mod fleet;
mod fleet_rights;
mod hooks;
mod http;
mod issuer;
mod kinds;
mod kubectl;
mod limits;
mod lists;
mod matrix;
mod oidc;
mod pages;
mod rbac;
mod records;
mod sessions;
mod set_aside;
#[path = "../support/mod.rs"]
mod support;
mod views;
mod watch;
mod watch_http;
