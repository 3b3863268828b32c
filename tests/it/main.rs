//! Tests of the whole server over HTTP. The tree mirrors the URLs.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod architecture;
mod audit;
mod backup;
mod canary;
mod circles;
mod cluster;
mod command;
mod connections;
mod crash;
mod directory;
mod domain;
mod faults;
mod grafana;
mod http;
mod http2;
mod judges;
mod key_material;
mod metrics;
mod model;
mod mounts;
mod nodes;
mod postgres;
mod process;
mod provider;
mod proxies;
mod readme;
mod recorded;
mod serve;
mod signers;
mod sizes;
mod source;
mod support;
mod v1;
mod v2;
mod walkthrough;
