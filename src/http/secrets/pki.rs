//! PLACEHOLDER: the routes of the certificate authority engine.

use super::answer::Answer;
use super::route::{Operation, Route};
use crate::error::Error;

/// PLACEHOLDER.
pub static ROUTES: &[Route] = &[
    Route::token(Operation::List, "roles", &["after", "limit"], |_| Box::pin(async { Answer::keys(vec![], None) })),
    Route::token(Operation::Read, "roles/:name", &[], |_| Box::pin(async { Err(Error::not_found()) })),
    Route::token(Operation::Delete, "roles/:name", &[], |_| Box::pin(async { Ok(Answer::empty()) })),
];
