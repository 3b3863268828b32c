//! The authentication methods: one route table each, and shared code in `roles`.

pub(super) mod approle;
/// Logins of virtual machines by the identity that their cloud gives them.
pub(super) mod cloudb;
pub(super) mod jwt;
mod roles;
