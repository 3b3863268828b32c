mod hygiene;
mod limits;
mod methods;
pub mod pki;
mod rights;
mod routes;
mod sys;
mod token;
