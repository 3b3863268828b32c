//! Which store is meant.

use std::path::PathBuf;

use super::postgres::PostgresUrl;

/// Where a store keeps its data.
#[derive(Clone)]
pub enum Database {
    /// SQLite in this folder, which is made with mode 0700 when it is not there.
    Embedded(PathBuf),
    /// A database of a PostgreSQL server.
    Postgres(PostgresUrl),
}

impl Database {
    /// The engine's name, as clients know it (`storage_type` of `sys/seal-status`).
    pub fn engine(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Postgres(_) => "postgresql",
        }
    }
}
