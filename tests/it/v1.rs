mod caps;
mod dialects;
mod hygiene;
mod limits;
mod methods;
pub mod pki;
mod routes;
mod sys;
mod token;
