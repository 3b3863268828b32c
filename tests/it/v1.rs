mod hygiene;
mod limits;
mod methods;
mod routes;
mod sys;
mod token;
