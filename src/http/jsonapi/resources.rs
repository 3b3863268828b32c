//! The resources: one file each, with its table of routes and, for every route, two halves. The first is
//! asynchronous and runs in a session: what was sent is read, the rules in [`projects`](crate::projects) are asked,
//! and what they found is given out. The second shows that, on the worker, when the session is over.

pub(crate) mod account;
pub(crate) mod agent_pools;
pub(crate) mod locks;
pub(crate) mod memberships;
pub(crate) mod organizations;
pub(crate) mod projects;
pub(crate) mod tags;
pub(crate) mod team_projects;
pub(crate) mod team_workspaces;
pub(crate) mod teams;
pub(crate) mod tokens;
pub(crate) mod workspaces;
