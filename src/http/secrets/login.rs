//! The authentication methods on the wire: a route table for each, and what they share in `roles`.

#![allow(dead_code)]

pub(super) mod approle;
pub(super) mod cloudb;
pub(super) mod jwt;
mod roles;
