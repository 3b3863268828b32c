//! The resources: one file each, with its table of routes and, for every route, two halves. The first is
//! asynchronous and runs in a session: what was sent is read, the rules in [`projects`](crate::projects) are asked,
//! and what they found is given out. The second shows that, on the worker, when the session is over.

pub mod account;
pub mod agent_pools;
pub mod locks;
pub mod memberships;
pub mod organizations;
pub mod projects;
pub mod tags;
pub mod team_projects;
pub mod teams;
pub mod tokens;
pub mod workspaces;
