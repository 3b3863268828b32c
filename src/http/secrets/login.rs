//! The authentication methods: one route table each, and shared code in `roles`.

pub(super) mod approle;
/// Logins of virtual machines with an identity token that their cloud issues.
pub(super) mod cloudb;
pub(super) mod jwt;
mod roles;
