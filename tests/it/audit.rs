//! Entries that audit devices receive, and requests without a working device.

mod devices;
pub mod double;
mod process;
mod projects;
mod secrets;
