//! The location of a store.

use std::path::PathBuf;

use super::postgres::PostgresUrl;

/// The location of a store.
#[derive(Clone)]
pub enum Database {
    /// An SQLite database in this folder. A missing folder is created with mode 0700.
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
