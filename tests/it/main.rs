//! Tests of the whole server over HTTP. The tree mirrors the URLs.
#![allow(clippy::unwrap_used, missing_docs)]

mod architecture;
mod canary;
mod cluster;
mod command;
mod connections;
mod crash;
mod faults;
mod grafana;
mod http;
mod judges;
mod key_material;
mod metrics;
mod model;
mod nodes;
mod postgres;
mod process;
mod proxies;
mod serve;
mod sizes;
mod source;
mod support;
mod v1;
mod v2;
mod walkthrough;
