//! JSON:API documents of the resources: pure functions from a value of the domain to a rendered resource, called after
//! the session.

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
