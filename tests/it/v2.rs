//! The projects API. Every test runs on both stores; a test of a vector is named after its number.

mod fixture;
mod moves;
mod project_list;
mod projects;
mod races;
mod transport;
