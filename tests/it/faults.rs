//! Responses and stored data of a server whose store fails.

mod cancel;
mod crls;
mod damage;
pub mod double;
mod endpoints;
mod ocsp;
mod outage;
mod queue;
pub mod requests;
pub mod stage;
mod stuck;
mod tidy;
