//! What devices are told of requests, and what happens without them.

mod double;
mod projects;
mod secrets;
