//! The real `terraform` against a TLS listener, with a `cloud` block that selects by tags or by name; and two cases
//! where a 404 would put work into the wrong place or crash the client.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::fixture::{
    NONE, PROJECTS, WORKSPACES, World, attribute, flat_tags, id_of, in_project, items, link, names, resource, tags,
    with_both_builders,
};
use crate::process::openssl;
use crate::support::{App, Builder, send};
use serde_json::{Value, json};
use signet::config::TlsFiles;

with_both_builders!(cloud_block_with_flat_tags, cloud_block_with_tag_values, cloud_block_with_a_name);

const LIMIT: Duration = Duration::from_secs(60);

fn is_there() -> bool {
    let found = Command::new("terraform").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        crate::crash::left_out("there is no terraform");
    }
    found.is_ok()
}

/// A world behind TLS, and the folder with its CA.
struct Site {
    world: World,
    folder: tempfile::TempDir,
}

impl Site {
    /// `None` without terraform.
    async fn start(builder: Builder) -> Option<Self> {
        if !is_there() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        let ca = ["req", "-x509", "-subj", "/CN=ca", "-keyout", "ca-key.pem", "-out", "ca.pem"];
        openssl(folder.path(), &[&ca[..], &key].concat());
        let leaf = ["req", "-x509", "-subj", "/CN=localhost", "-CA", "ca.pem", "-CAkey", "ca-key.pem"];
        let names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
        let form = ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "tls-key.pem", "-out", "tls.pem"];
        openssl(folder.path(), &[&leaf[..], &key, &names, &form].concat());
        let path = |name: &str| folder.path().join(name);
        let files = TlsFiles { certificate: path("tls.pem"), key: path("tls-key.pem") };
        Some(Self { world: World::of(builder.tls(files)).await, folder })
    }

    fn directory(&self, token: &str, workspaces: &str) -> Directory {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap();
        let address = self.world.app.client.url("");
        let port = address.trim_end_matches("/v1/").rsplit(':').next().unwrap();
        let host = format!("localhost:{port}");
        let main = format!(
            "terraform {{\n  cloud {{\n    hostname = \"{host}\"\n    organization = \"acme\"\n    \
             workspaces {{\n{workspaces}\n    }}\n  }}\n}}\n"
        );
        std::fs::write(folder.path().join("main.tf"), main).unwrap();
        let settings = format!("disable_checkpoint = true\ncredentials \"{host}\" {{\n  token = \"{token}\"\n}}\n");
        std::fs::write(folder.path().join("cli.tfrc"), settings).unwrap();
        Directory { folder, ca: self.folder.path().join("ca.pem") }
    }

    /// Creates a workspace of `acme` with a flat tag or a tag binding.
    async fn workspace(&self, name: &str, project: &str, tags: Option<&(&str, Value)>) {
        let mut body = in_project(project, json!({ "name": name }));
        if let Some((relationship, list)) = tags {
            body["data"]["relationships"][*relationship] = list.clone();
        }
        self.world.owner.create(WORKSPACES, body).await;
    }

    async fn workspaces(&self) -> Vec<String> {
        names(&self.world.owner.get(&format!("{WORKSPACES}?page[size]=100")).await)
    }

    async fn terraform(&self, directory: &Directory, env: &[(&str, &str)], arguments: &[&str]) -> Ran {
        let command = directory.command(env, arguments);
        tokio::task::spawn_blocking(move || run(command)).await.unwrap()
    }
}

/// A working directory with its own home and settings.
struct Directory {
    folder: tempfile::TempDir,
    ca: std::path::PathBuf,
}

impl Directory {
    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, env: &[(&str, &str)], arguments: &[&str]) -> Command {
        let mut command = Command::new("terraform");
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.path());
        command.env("TF_CLI_CONFIG_FILE", self.path().join("cli.tfrc")).env("SSL_CERT_FILE", &self.ca);
        command.env("CHECKPOINT_DISABLE", "1").env("TF_IN_AUTOMATION", "1").envs(env.iter().copied());
        command
    }
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
}

impl Ran {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.out);
        self.out
    }

    #[track_caller]
    fn names(self) -> Vec<String> {
        let out = self.ok();
        // Names follow two columns; a star in one marks the selected workspace.
        let lines = out.lines().filter(|line| line.starts_with("  ") || line.starts_with("* "));
        lines.map(|line| line[2..].trim().to_owned()).collect()
    }
}

fn run(mut command: Command) -> Ran {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = std::thread::spawn(move || {
        let mut out = String::new();
        let mut err = String::new();
        std::io::Read::read_to_string(&mut pipes.0, &mut out).unwrap();
        std::io::Read::read_to_string(&mut pipes.1, &mut err).unwrap();
        out + &err
    });
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > deadline => child.kill().unwrap(),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    Ran { code: status.code(), out: read.join().unwrap() }
}

const INIT: &[&str] = &["init", "-input=false", "-no-color"];
const LIST: &[&str] = &["workspace", "list", "-no-color"];

/// Two matching workspaces, one of them in `Payments`, and one that does not match.
async fn under_tags(builder: Builder, tags: (&str, Value), block: &str) {
    let Some(site) = Site::start(builder).await else { return };
    let owner = &site.world.owner;
    let payments = site.world.project("Payments").await;
    let other = site.world.project("Other").await;
    site.workspace("app-a", &payments, Some(&tags)).await;
    site.workspace("app-b", &other, Some(&tags)).await;
    site.workspace("app-c", &payments, None).await;
    let count = async || {
        let shown = owner.get(&format!("projects/{payments}")).await;
        attribute(&shown, "workspace-count").as_i64().unwrap()
    };
    let directory = site.directory(&owner.token, &format!("project = \"Payments\"\n{block}"));
    site.terraform(&directory, &[], INIT).await.ok();
    assert_eq!(site.terraform(&directory, &[], LIST).await.names(), ["app-a"]);
    site.terraform(&directory, &[], &["workspace", "new", "-no-color", "n1"]).await.ok();
    assert_eq!(site.terraform(&directory, &[], LIST).await.names(), ["app-a", "n1"]);
    let made = owner.get("organizations/acme/workspaces/n1").await;
    assert_eq!(link(&made, "project"), &payments);
    let bindings = owner.get(&format!("workspaces/{}/tag-bindings", id_of(&made))).await;
    assert_eq!(items(&bindings).len(), 1, "{}", bindings.text);
    assert_eq!(count().await, 3);
    site.terraform(&directory, &[], &["workspace", "select", "-no-color", "app-a"]).await.ok();
    site.terraform(&directory, &[], &["workspace", "delete", "-no-color", "n1"]).await.ok();
    assert_eq!(site.terraform(&directory, &[], LIST).await.names(), ["app-a"]);
    assert_eq!((count().await, owner.get("organizations/acme/workspaces/n1").await.status), (2, 404));
    site.world.app.stop().await;
}

async fn cloud_block_with_flat_tags(builder: Builder) {
    under_tags(builder, ("tags", flat_tags(&["team"])), "tags = [\"team\"]").await;
}

async fn cloud_block_with_tag_values(builder: Builder) {
    under_tags(builder, ("tag-bindings", tags(&[("env", "dev")])), "tags = { env = \"dev\" }").await;
}

async fn cloud_block_with_a_name(builder: Builder) {
    let Some(site) = Site::start(builder).await else { return };
    let owner = &site.world.owner;
    let block = "name = \"app-dev\"\nproject = \"Payments\"";
    let member = site.world.member("mia", NONE).await;
    let refused = site.directory(&member.api.token, block);
    let ran = site.terraform(&refused, &[], INIT).await;
    assert_ne!(ran.code, Some(0), "{}", ran.out);
    assert_eq!(site.workspaces().await, Vec::<String>::new(), "nothing is made somewhere else");
    let directory = site.directory(&owner.token, block);
    site.terraform(&directory, &[], INIT).await.ok();
    let found = owner.get(&format!("{PROJECTS}?filter[names]=Payments")).await;
    let workspace = owner.get(&format!("{WORKSPACES}/app-dev")).await;
    assert_eq!(link(&workspace, "project"), &items(&found)[0]["id"]);
    assert_eq!(site.terraform(&directory, &[], LIST).await.names(), ["app-dev"]);
    site.world.app.stop().await;
}

#[actix_web::test]
async fn member_without_projects_does_not_crash_terraform() {
    let Some(site) = Site::start(App::builder()).await else { return };
    let payments = site.world.project("Payments").await;
    site.workspace("app-a", &payments, Some(&("tags", flat_tags(&["team"])))).await;
    let member = site.world.member("mia", NONE).await;
    let directory = site.directory(&member.api.token, "project = \"Payments\"\ntags = [\"team\"]");
    let ran = site.terraform(&directory, &[], INIT).await;
    assert!(ran.code.is_some_and(|code| code != 11) && !ran.out.contains("panic"), "{}", ran.out);
    site.world.app.stop().await;
}

#[actix_web::test]
async fn terraform_reads_every_page_of_a_list() {
    let Some(site) = Site::start(App::builder()).await else { return };
    let payments = site.world.project("Payments").await;
    let names: Vec<String> = (0..23).map(|n| format!("app-{n:02}")).collect();
    for name in &names {
        site.workspace(name, &payments, Some(&("tags", flat_tags(&["team"])))).await;
    }
    let directory = site.directory(&site.world.owner.token, "project = \"Payments\"\ntags = [\"team\"]");
    let selected = [("TF_WORKSPACE", "app-07")];
    site.terraform(&directory, &selected, INIT).await.ok();
    assert_eq!(site.terraform(&directory, &selected, LIST).await.names(), names);
    site.world.app.stop().await;
}

#[actix_web::test]
async fn terraform_plan_and_apply_fail_early_with_the_reason() {
    let Some(site) = Site::start(App::builder()).await else { return };
    let owner = &site.world.owner;
    let payments = site.world.project("Payments").await;
    let modes = ["remote", "local", "inherited"];
    for mode in modes {
        let mut body = in_project(&payments, json!({ "name": mode }));
        if mode != "inherited" {
            body["data"]["attributes"]["execution-mode"] = json!(mode);
        }
        owner.create(WORKSPACES, body).await;
    }
    assert_eq!(owner.change("organizations/acme", json!({ "default-execution-mode": "local" })).await.status, 200);
    for mode in modes {
        let directory = site.directory(&owner.token, &format!("name = \"{mode}\""));
        let made = directory.path().join("made");
        let configuration = format!(
            "resource \"terraform_data\" \"one\" {{\n  input = \"1\"\n  provisioner \"local-exec\" {{\n    \
             command = \"touch {}\"\n  }}\n}}\n",
            made.display()
        );
        std::fs::write(directory.path().join("data.tf"), configuration).unwrap();
        site.terraform(&directory, &[], INIT).await.ok();
        for arguments in [
            &["plan", "-input=false", "-no-color"][..],
            &["apply", "-input=false", "-no-color", "-auto-approve"],
            &["apply", "-input=false", "-no-color", "-auto-approve", "-refresh-only"],
            &["destroy", "-input=false", "-no-color", "-auto-approve"],
        ] {
            let ran = site.terraform(&directory, &[], arguments).await;
            let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(ran.code, Some(1), "{mode} {arguments:?}: {}", ran.out);
            assert!(text.contains("it runs no operations and stores no state; plan and apply with"), "{mode}: {text}");
        }
        let left: Vec<_> = directory.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!made.exists() && !left.iter().any(|name| name.to_string_lossy().contains("tfstate")), "{left:?}");
        let workspace = owner.get(&format!("{WORKSPACES}/{mode}")).await;
        assert_eq!(attribute(&workspace, "locked"), false, "{}", workspace.text);
        site.terraform(&directory, &[], LIST).await.ok();
    }
    site.world.app.stop().await;
}

#[actix_web::test]
async fn execution_mode_is_shown_as_set_except_to_terraform() {
    let world = World::of(App::builder()).await;
    let body = resource("workspaces", json!({ "name": "app", "execution-mode": "local" }));
    let id = world.owner.create(WORKSPACES, body).await;
    for path in [format!("workspaces/{id}"), "organizations/acme/workspaces/app".to_owned()] {
        let mode = async |request: reqwest::RequestBuilder| attribute(&send(request).await, "execution-mode").clone();
        let ask = || world.owner.request(reqwest::Method::GET, &path);
        assert_eq!(mode(ask()).await, json!("local"));
        assert_eq!(mode(ask().header("X-Terraform-Integration", "cloud")).await, json!("remote"));
    }
    let run = format!("workspaces/{id}/configuration-versions");
    let body = resource("configuration-versions", json!({}));
    let refused = world.owner.post(&run, body.clone()).await;
    assert_eq!((refused.status, &refused.body["errors"][0]["status"]), (422, &json!("422")), "{}", refused.text);
    let outsider = world.member("mia", NONE).await;
    assert_eq!(outsider.api.post(&run, body).await.status, 404, "hidden from whoever does not see the workspace");
    world.app.stop().await;
}
