//! Authentication methods.

mod cloudb;
