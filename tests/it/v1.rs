mod hygiene;
mod limits;
mod methods;
pub mod pki;
mod rights;
mod routes;
mod spellings;
mod sys;
mod token;
