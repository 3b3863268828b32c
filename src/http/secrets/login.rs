//! The authentication methods: a route table for each, and shared code in `roles`.

pub(super) mod approle;
pub(super) mod cloudb;
pub(super) mod jwt;
mod roles;
