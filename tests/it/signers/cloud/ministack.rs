//! ministack, a local key service for `cloudakms`, installed by `tests/run`.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use aws_sdk_kms::Client;
use aws_sdk_kms::config::{BehaviorVersion, Credentials, Region};

use crate::process::Killed;

/// A running ministack, killed on drop.
pub struct Ministack {
    process: Killed,
    pub url: String,
    _folder: tempfile::TempDir,
}

impl Ministack {
    pub fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let [installed, wanted] = ["target", "tests"].map(|place| root.join(place).join("peers/requirements.txt"));
        let same = std::fs::read(installed).ok() == std::fs::read(wanted).ok();
        assert!(same, "target/peers is missing or out of date: tests/run makes it");
        let folder = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let process = Command::new(root.join("target/peers/bin/python"))
            .args(["-c", "from ministack.app import main; main()"])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", free.port().to_string())
            .env("SERVICES", "kms")
            // Would open another port, on all addresses.
            .env("IOT_MTLS_ENABLED", "0")
            .env_remove("USE_SSL")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut own = Self { process: Killed(process), url: format!("http://{free}"), _folder: folder };
        let begun = Instant::now();
        while TcpStream::connect(free).is_err() {
            assert!(own.process.try_wait().unwrap().is_none(), "ministack has ended");
            assert!(begun.elapsed() < Duration::from_secs(60), "ministack does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        own
    }

    pub fn client(&self) -> Client {
        let settings = aws_sdk_kms::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .endpoint_url(&self.url);
        Client::from_conf(settings.build())
    }
}
