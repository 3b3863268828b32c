//! What devices are told of requests, and what happens without them.

mod devices;
pub mod double;
mod process;
mod projects;
mod secrets;
