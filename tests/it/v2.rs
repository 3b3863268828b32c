//! The projects API. Every test runs on both stores; a test of a vector is named after its number.

mod fixture;
mod projects;
mod terraform;
mod transport;
