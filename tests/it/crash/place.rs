//! A server's data, which survives restarts of the server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cluster;
use crate::process::{Dev, dev_with, signet};
use crate::support::Client;

const ROOT: &str = "root-token-of-the-crash-tests";
/// Maximum time from a start after a crash until the server is ready.
const START: Duration = Duration::from_secs(2);

/// A data folder, and optionally a database.
pub struct Place {
    temporary: tempfile::TempDir,
    /// The path given to the server, and the path that this process uses.
    folder: (PathBuf, PathBuf),
    database: Option<cluster::Database>,
    /// Overrides the database URL given to the server.
    url: Option<String>,
    /// Creates the command that runs the program.
    command: Box<dyn Fn() -> Command>,
}

impl Place {
    pub fn embedded() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("data");
        Self { temporary, folder: (folder.clone(), folder), database: None, url: None, command: Box::new(signet) }
    }

    pub fn postgres(database: cluster::Database) -> Self {
        Self { database: Some(database), ..Self::embedded() }
    }

    /// A database with a standby.
    pub fn with_standby(database: cluster::Database, standby: &cluster::Cluster) -> Self {
        Self { url: Some(database.url_with(standby)), ..Self::postgres(database) }
    }

    /// Reads the data from the standby from now on.
    pub fn moved_to(&mut self, standby: &Arc<cluster::Cluster>) {
        self.database = self.database.take().map(|database| database.on(standby));
    }

    /// The embedded store in a folder whose path differs between the program and this process.
    pub fn elsewhere(told: PathBuf, seen: PathBuf, command: impl Fn() -> Command + 'static) -> Self {
        Self { folder: (told, seen), command: Box::new(command), ..Self::embedded() }
    }

    /// Adds settings to the command, and moves the embedded store to another folder.
    pub fn with(self, folder: PathBuf, more: impl Fn(&mut Command) + 'static) -> Self {
        let before = self.command;
        let command = move || {
            let mut command = before();
            more(&mut command);
            command
        };
        Self { folder: (folder.clone(), folder), command: Box::new(command), ..self }
    }

    pub fn run_by(self, command: impl Fn() -> Command + 'static) -> Self {
        Self { command: Box::new(command), ..self }
    }

    pub fn run_anew(&mut self, command: impl Fn() -> Command + 'static) {
        self.command = Box::new(command);
    }

    pub fn with_database(self, database: cluster::Database) -> Self {
        Self { database: Some(database), ..self }
    }

    pub fn operator(&self, words: &[&str]) -> String {
        let output = self.run_operator(words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Like [`Place::operator`], for a command that must fail; returns both outputs.
    pub fn refused(&self, words: &[&str]) -> String {
        let output = self.run_operator(words);
        assert!(!output.status.success());
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// Like [`Place::operator`], on another database with the same seal key.
    pub fn operator_on(&self, database: &cluster::Database, words: &[&str]) -> String {
        let output = self.run_operator_on(&format!("database_url = {:?}", database.url()), words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn run_operator(&self, words: &[&str]) -> std::process::Output {
        let store = match &self.database {
            Some(database) => format!("database_url = {:?}", database.url()),
            None => format!("data_dir = {:?}", self.folder.0),
        };
        self.run_operator_on(&store, words)
    }

    fn run_operator_on(&self, store: &str, words: &[&str]) -> std::process::Output {
        let file = self.temporary.path().join("signet.toml");
        std::fs::write(&file, format!("{store}\nseal_key_file = {:?}\n", self.file("seal.key"))).unwrap();
        (self.command)().arg("operator").args(words).arg("--config").arg(file).output().unwrap()
    }

    pub fn start(&self) -> Dev {
        self.start_by((self.command)())
    }

    pub fn start_by(&self, command: Command) -> Dev {
        self.start_at(command, None)
    }

    /// Starts a server with a prepared command and its own database URL.
    pub fn start_at(&self, mut command: Command, url: Option<&str>) -> Dev {
        // Shown only if a test fails.
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.temporary.path().join("log"));
        command.stderr(log.unwrap());
        let mut arguments = vec!["--root-token", ROOT, "--data-dir", self.folder.0.to_str().unwrap()];
        let url = url.map(str::to_owned).or_else(|| self.url.clone());
        let url = url.or_else(|| self.database.as_ref().map(cluster::Database::url));
        if let Some(url) = &url {
            arguments.extend(["--database-url", url]);
        }
        dev_with(&mut command, &arguments)
    }

    /// Starts a server after a crash; it must be ready within [`START`]. On a busy machine it has three attempts, each
    /// after another crash.
    pub async fn start_in_time(&self) -> Dev {
        let mut times = Vec::new();
        for _ in 0..3 {
            let started = Instant::now();
            let dev = self.start();
            assert_eq!(dev.client().with_token("").get("sys/health").await.status, 200);
            times.push(started.elapsed());
            println!("ready {:?} after the start", started.elapsed());
            if started.elapsed() < START {
                return dev;
            }
            dev.kill();
        }
        panic!("no start was ready in {START:?}: {times:?}; {}", self.log());
    }

    pub async fn client(&self, dev: &Dev) -> Client {
        let client = dev.client();
        client.holder(&client.post("auth/token/create-orphan", json!({ "policies": ["root"] })).await)
    }

    pub fn command(&self) -> Command {
        (self.command)()
    }

    pub fn database(&self) -> Option<&cluster::Database> {
        self.database.as_ref()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.1.join(name)
    }

    /// The single column of a query's result.
    pub fn column(&self, sql: &str) -> Vec<String> {
        self.database.as_ref().unwrap().psql(sql).lines().map(str::to_owned).collect()
    }

    /// The single value of a query's result.
    pub fn scan(&self, sql: &str) -> String {
        if let Some(database) = &self.database {
            return database.psql(sql);
        }
        // Reads a copy, so that the server's files are not touched.
        let copy = tempfile::tempdir().unwrap();
        for name in ["signet.db", "signet.db-wal"] {
            std::fs::copy(self.file(name), copy.path().join(name)).unwrap();
        }
        let db = rusqlite::Connection::open(copy.path().join("signet.db")).unwrap();
        db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().to_string()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.temporary.path().join("log")).unwrap()
    }
}
