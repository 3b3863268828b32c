//! The projects API. Every test runs on both stores; a test of a vector is named after its number.

mod fixture;
mod organizations;
mod projects;
mod team_projects;
mod teams;
mod tokens;
mod transport;
