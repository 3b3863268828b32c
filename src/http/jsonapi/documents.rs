//! The documents of resources, each the same wherever it is shown: a value of the domain in, a rendered resource
//! out. Pure functions, called when a session is over.

pub(crate) mod agent_pools;
pub(crate) mod memberships;
pub(crate) mod organizations;
pub(crate) mod pieces;
pub(crate) mod projects;
pub(crate) mod tags;
pub(crate) mod team_projects;
pub(crate) mod team_workspaces;
pub(crate) mod teams;
pub(crate) mod tokens;
pub(crate) mod users;
pub(crate) mod workspaces;
