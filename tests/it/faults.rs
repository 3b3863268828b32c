//! What a server answers while its store fails, and what is stored then.

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
