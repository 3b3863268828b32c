//! The documents of resources, each the same wherever it is shown: a value of the domain in, a rendered resource
//! out. Pure functions, called when a session is over.

pub mod agent_pools;
pub mod memberships;
pub mod organizations;
pub mod pieces;
pub mod projects;
pub mod tags;
pub mod team_projects;
pub mod teams;
pub mod tokens;
pub mod users;
pub mod workspaces;
