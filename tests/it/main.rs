//! Tests of the whole server over HTTP. The tree mirrors the URLs.
#![allow(clippy::unwrap_used, missing_docs)]

mod command;
mod metrics;
mod process;
mod serve;
mod support;
mod v1;
mod walkthrough;
