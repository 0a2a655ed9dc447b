//! The end-to-end tests, a module for each part of Roadstead. They are one program so that they are linked once, and so that
//! those of one module run while those of another wait; `cargo xtask test --no-go -- --test e2e -- onboarding` runs one module's.

mod absent;
mod adoption;
mod agent_life;
mod agents;
mod appliers;
mod clocks;
mod costs;
mod crashes;
mod dashboard;
mod decryption;
mod deploy;
mod dev_hub;
mod drift;
mod drift_reports;
mod fields;
mod guard;
mod health;
mod idle;
mod kept;
mod locked;
mod management;
mod nested;
mod oci;
mod onboarding;
mod outbound;
mod pins;
mod pipeline;
mod rekey;
mod rules;
mod secrets;
mod sources;
mod unseen;
mod variables;
mod versions;
mod workers;
