//! The location of a store.

use std::path::PathBuf;

use super::postgres::PostgresUrl;

/// The location of a store.
#[derive(Clone)]
pub enum Database {
    /// SQLite in this folder, which is created with mode 0700 if it is missing.
    Embedded(PathBuf),
    /// A PostgreSQL database.
    Postgres(PostgresUrl),
}

impl Database {
    /// The engine's name in the API (`storage_type` of `sys/seal-status`).
    pub fn engine(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Postgres(_) => "postgresql",
        }
    }
}
