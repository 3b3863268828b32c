//! `packaging/pin-images` with a local registry: Debian's docker-registry, filled by skopeo.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::root;
use crate::crash::left_out;
use crate::process::{Killed, openssl, run};
use crate::support::wait_until;

const IMAGES: [(&str, &str); 5] = [
    ("compose/compose.yaml", "postgres:17-bookworm"),
    ("compose/compose.yaml", "prom/prometheus:v3.5.0"),
    ("compose/compose.yaml", "grafana/grafana:12.1.0"),
    ("Containerfile", "rust:1.95.0-bookworm"),
    ("Containerfile", "gcr.io/distroless/cc-debian12:nonroot"),
];

/// A local registry, which skopeo uses instead of the images' registries.
struct Registry {
    _child: Killed,
    home: tempfile::TempDir,
    address: String,
}

impl Registry {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let home = tempfile::tempdir().unwrap();
        let storage = home.path().join("storage").display().to_string();
        let config = json!({ "version": 0.1, "http": { "addr": address },
            "storage": { "filesystem": { "rootdirectory": storage } } });
        std::fs::write(home.path().join("registry.yml"), config.to_string()).unwrap();
        let folder = home.path().join(".config/containers");
        std::fs::create_dir_all(&folder).unwrap();
        let lead =
            |name: &str| format!("[[registry]]\nprefix = \"{name}\"\nlocation = \"{address}\"\ninsecure = true\n");
        std::fs::write(folder.join("registries.conf"), lead("docker.io") + &lead("gcr.io")).unwrap();
        let mut command = Command::new("docker-registry");
        command.args(["serve", "registry.yml"]).current_dir(home.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the registry", || TcpStream::connect(&address).is_ok());
        Self { _child: Killed(child), home, address }
    }

    fn add(&self, image: &str, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let blobs = folder.path().join("blobs/sha256");
        std::fs::create_dir_all(&blobs).unwrap();
        let add = |content: &str| {
            let hex = digest(folder.path(), content.as_bytes());
            std::fs::write(blobs.join(&hex), content).unwrap();
            json!({ "digest": format!("sha256:{hex}"), "size": content.len() })
        };
        let typed = |mut blob: serde_json::Value, name: &str| {
            blob["mediaType"] = format!("application/vnd.oci.image.{name}.v1+json").into();
            blob
        };
        let config = json!({ "architecture": "amd64", "os": "linux", "author": text, "config": {},
            "rootfs": { "type": "layers", "diff_ids": [] } });
        let config = typed(add(&config.to_string()), "config");
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({ "schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [] });
        let manifest = typed(add(&manifest.to_string()), "manifest");
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        std::fs::write(folder.path().join("index.json"), index.to_string()).unwrap();
        std::fs::write(folder.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let path = match image.split_once('/') {
            Some(("gcr.io", rest)) => rest.to_owned(),
            Some(_) => image.to_owned(),
            None => format!("library/{image}"),
        };
        let mut copy = Command::new("skopeo");
        copy.args(["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"]);
        copy.arg(format!("oci:{}", folder.path().display())).arg(format!("docker://{}/{path}", self.address));
        run(copy.env("HOME", self.home.path()));
        manifest["digest"].as_str().unwrap().to_owned()
    }
}

fn digest(folder: &Path, content: &[u8]) -> String {
    std::fs::write(folder.join("content"), content).unwrap();
    let said = openssl(folder, &["dgst", "-sha256", "-r", "content"]);
    said.split(' ').next().unwrap().to_owned()
}

#[test]
fn pin_images_writes_the_digests_of_the_registry() {
    for tool in ["skopeo", "docker-registry"] {
        if Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            left_out(&format!("there is no {tool}"));
            return;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("compose")).unwrap();
    for file in ["pin-images", "Containerfile", "compose/compose.yaml"] {
        std::fs::copy(root().join("packaging").join(file), folder.path().join(file)).unwrap();
    }
    let registry = Registry::start();
    let pin = || {
        let mut command = Command::new(folder.path().join("pin-images"));
        let mut child =
            command.env("HOME", registry.home.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut error = String::new();
        child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        (child.wait().unwrap().success(), error)
    };
    let (succeeded, error) = pin();
    assert!(
        !succeeded && error.contains("postgres:17-bookworm: the registry did not return the image's manifest"),
        "{error}"
    );
    for text in ["first", "second"] {
        let digests = IMAGES.map(|(file, image)| (file, image, registry.add(image, text)));
        let (succeeded, error) = pin();
        assert!(succeeded, "{error}");
        for (file, image, digest) in digests {
            let rewritten = std::fs::read_to_string(folder.path().join(file)).unwrap();
            let lines: Vec<&str> = rewritten.lines().filter(|line| line.contains(image)).collect();
            let pinned = format!(" {image}@{digest}");
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].split_once(&pinned).is_some_and(|(_, end)| !end.contains('@')), "{lines:?}: {pinned}");
        }
    }
}
