//! The projects API. Every test runs on both stores; a test of a vector is named after its number.

mod agent_pools;
mod bodies;
mod conditions;
mod deletions;
mod escalation;
pub mod fixture;
mod limits;
mod locks;
mod moves;
mod organizations;
mod outage;
mod project_list;
mod projects;
mod queries;
mod races;
mod routes;
mod tags;
mod team_projects;
mod teams;
mod terraform;
mod tokens;
mod transport;
mod turns;
mod workspaces;
