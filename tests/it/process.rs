//! The real `signet` binary as a child process, and `openssl` as the judge of what it made.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Client;

/// The binary, with nothing of this process's own settings.
pub fn signet() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_signet")))
}

/// The binary run by a program that takes a command line and becomes it, such as `nsenter`.
pub fn signet_by(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).arg(env!("CARGO_BIN_EXE_signet"));
    clean(command)
}

/// Another build of the program.
pub fn signet_at(program: &Path) -> Command {
    clean(Command::new(program))
}

/// A script for the shell, which ends with all that it started after two minutes.
pub fn shell(script: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["120", "sh", "-ec", script]);
    clean(command)
}

/// As [`shell`], for the commands of a page: bash, to which a variable that nobody set is an error, for five minutes.
pub fn bash(script: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["300", "bash", "-euc", script]);
    clean(command)
}

fn clean(mut command: Command) -> Command {
    command
        .env_remove("SIGNET_TOKEN")
        .env_remove("SIGNET_TOKEN_FILE")
        .env_remove("SIGNET_CACERT")
        .env_remove("SIGNET_ADDR")
        .env_remove("SIGNET_TIMEOUT")
        .env_remove("SIGNET_MOUNT")
        .env_remove("SIGNET_ROLE")
        .env_remove("SIGNET_DEV_ROOT_TOKEN")
        .env_remove("SIGNET_BOOTSTRAP_TOKEN")
        .env_remove("SIGNET_DATABASE_URL")
        .env_remove("SIGNET_AUDIT")
        .env_remove("SIGNET_PKCS11_LIBRARIES")
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .env_remove("WATCHDOG_PID");
    // Keys that nobody asks for would be made by every server that a test starts.
    command.env("SIGNET_LOG", "warn").env("SIGNET_RSA_KEY_STOCK_2048", "0");
    command
}

/// A started `signet dev` and what it printed. Killed when dropped.
pub struct Dev {
    child: Child,
    pub address: String,
    pub token: String,
    /// The printed curl line, as it would be pasted.
    pub curl: String,
    printed: Arc<Mutex<String>>,
}

/// Starts `signet dev` on a free port and waits until it is ready.
pub fn dev(arguments: &[&str]) -> Dev {
    dev_with(&mut signet(), arguments)
}

/// As [`dev`], from a prepared command.
pub fn dev_with(command: &mut Command, arguments: &[&str]) -> Dev {
    command.args(["dev", "--listen", "127.0.0.1:0"]).args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let printed = Arc::new(Mutex::new(String::new()));
    let also = Arc::clone(&printed);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap()).inspect(move |line| {
        let mut all = also.lock().unwrap();
        all.push_str(line);
        all.push('\n');
    });
    let address = lines.next().unwrap().strip_prefix("listening on ").unwrap().to_owned();
    let token = lines.find_map(|line| line.strip_prefix("token: ").map(str::to_owned)).unwrap();
    let mut curl = lines.find(|line| line.starts_with("curl ")).unwrap();
    while curl.ends_with('\\') {
        curl = curl + "\n" + &lines.next().unwrap();
    }
    // Keeps the pipe open, as a terminal would be.
    std::thread::spawn(move || lines.for_each(drop));
    Dev { child, address, token, curl, printed }
}

impl Dev {
    /// A client of `/v1` with the root token.
    pub fn client(&self) -> Client {
        Client::new(self.socket(), &self.token)
    }

    /// The address without its scheme.
    pub fn socket(&self) -> std::net::SocketAddr {
        self.address.strip_prefix("http://").unwrap().parse().unwrap()
    }

    /// All that it wrote to standard output so far.
    pub fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it in the middle of whatever it does (SIGKILL), and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM.
    pub fn send_sigterm(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Waits for its end, which must be a success.
    pub fn wait(mut self) {
        assert!(self.child.wait().unwrap().success());
    }

    /// SIGTERM; how long it took to leave with status 0.
    pub fn terminate(self) -> Duration {
        let started = Instant::now();
        self.send_sigterm();
        self.wait();
        started.elapsed()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Gone already but in tests that failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command that must fail; what it wrote to standard error.
pub fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

/// Runs `openssl` in a folder; it must succeed. What it wrote to standard output.
pub fn openssl(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// That `openssl` accepts the leaf under the authority, by the strict rules.
pub fn assert_verifies(folder: &Path, ca: &str, leaf: &str) {
    assert_eq!(openssl(folder, &["verify", "-x509_strict", "-CAfile", ca, leaf]).trim(), format!("{leaf}: OK"));
}

/// That `openssl` finds the same public key in a private key and a certificate.
pub fn assert_same_key(folder: &Path, key: &str, certificate: &str) {
    let of_key = openssl(folder, &["pkey", "-in", key, "-pubout"]);
    assert_eq!(of_key, openssl(folder, &["x509", "-in", certificate, "-noout", "-pubkey"]));
}
