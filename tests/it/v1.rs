mod hygiene;
mod limits;
mod methods;
mod pki;
mod routes;
mod sys;
mod token;
