//! The resources, one file each. Each file has a route table, and two functions per route: an asynchronous handler,
//! which runs in a session, reads the request and applies the rules in [`projects`](crate::projects), and a renderer,
//! which renders the handler's result after the session. Renderers call `document`, a pure function from a value of the
//! domain to a resource.

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
