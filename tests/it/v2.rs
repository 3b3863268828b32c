//! The projects API. Every test runs on both stores; a test of a vector is named after its number.

mod agent_pools;
mod fixture;
mod locks;
mod projects;
mod tags;
mod terraform;
mod transport;
mod workspaces;
