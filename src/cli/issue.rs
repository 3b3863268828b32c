//! `signet issue`: gets a certificate and writes NAME.pem, NAME-key.pem and ca.pem.
//!
//! No file is ever overwritten. The files of the name are looked for before the server is asked, so
//! that no certificate is issued for nothing. A `ca.pem` that is there may stay when it holds the
//! same authority (several names in one folder); otherwise the authority goes to NAME-ca.pem.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use signet::error::{Error, Kind, Result};
use signet::secret::{Secret, sealed};

use super::client::Server;

/// The arguments of `signet issue`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The certificate's common name.
    name: String,
    /// The role that decides what may be issued.
    #[arg(long, default_value = "dev")]
    role: String,
    /// The mount of the certificate authority.
    #[arg(long, default_value = "pki")]
    mount: String,
    /// Time to live, such as 24h.
    #[arg(long)]
    ttl: Option<String>,
    /// Further names, joined by commas.
    #[arg(long)]
    alt_names: Option<String>,
    /// The folder to write to.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    #[command(flatten)]
    server: Server,
    /// Token for the server.
    #[arg(long, env = "SIGNET_TOKEN", hide_env_values = true)]
    token: String,
}

/// Asks for the certificate and writes the files.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let files = Files::of(&arguments)?;
    files.must_be_new()?;
    let issued = Issued::read(&ask(&arguments).await?)?;
    files.write(&issued)
}

/// Where the results go.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    ca: PathBuf,
    own_ca: PathBuf,
}

impl Files {
    fn of(arguments: &Arguments) -> Result<Self> {
        let name = arguments.name.replace('*', "_");
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
            return Err(Error::invalid("NAME: cannot be the name of a file"));
        }
        if !arguments.out.is_dir() {
            return Err(Error::invalid(format!("--out: {} is no folder", arguments.out.display())));
        }
        let file = |suffix: &str| arguments.out.join(format!("{name}{suffix}.pem"));
        Ok(Self { certificate: file(""), key: file("-key"), ca: arguments.out.join("ca.pem"), own_ca: file("-ca") })
    }

    fn must_be_new(&self) -> Result<()> {
        match [&self.certificate, &self.key, &self.own_ca].into_iter().find(|file| file.exists()) {
            Some(file) => Err(exists(file)),
            None => Ok(()),
        }
    }

    fn write(&self, issued: &Issued) -> Result<()> {
        let kept = std::fs::read_to_string(&self.ca).ok();
        let ca = if kept.is_some_and(|kept| kept != issued.ca) { &self.own_ca } else { &self.ca };
        // The key first: without it the rest is worth nothing.
        write_new(&self.key, issued.key.expose(), 0o600)?;
        write_new(&self.certificate, issued.certificate.as_bytes(), 0o644)?;
        if !ca.exists() {
            write_new(ca, issued.ca.as_bytes(), 0o644)?;
        }
        println!("certificate: {}", self.certificate.display());
        println!("key:         {}", self.key.display());
        println!("authority:   {}", ca.display());
        Ok(())
    }
}

fn exists(file: &Path) -> Error {
    Error::new(Kind::Conflict, format!("{} exists and is not overwritten", file.display()))
}

fn write_new(file: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    opened.and_then(|mut out| out.write_all(bytes).and_then(|()| out.sync_all())).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => exists(file),
        kind => Error::unavailable(format!("{}: cannot be written ({kind})", file.display()), e),
    })
}

/// What a server answers.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    data: Data,
    errors: Vec<String>,
}

/// The members that matter.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    certificate: String,
    #[serde(with = "sealed")]
    private_key: Secret,
    issuing_ca: String,
    ca_chain: Vec<String>,
}

/// The same as file contents.
struct Issued {
    certificate: String,
    key: Secret,
    /// The chain up to the root.
    ca: String,
}

impl Issued {
    fn read(data: &Data) -> Result<Self> {
        let chain = if data.ca_chain.is_empty() { std::slice::from_ref(&data.issuing_ca) } else { &data.ca_chain };
        let key = data.private_key.expose().trim_ascii_end();
        let there = [
            ("certificate", !data.certificate.is_empty()),
            ("private_key", !key.is_empty()),
            ("issuing_ca", chain.iter().all(|text| !text.is_empty())),
        ];
        if let Some((name, _)) = there.iter().find(|(_, there)| !there) {
            return Err(Error::new(Kind::BadGateway, format!("the server's answer has no {name}")));
        }
        // Sized beforehand: a text that grows leaves copies behind.
        let mut line = Vec::with_capacity(key.len() + 1);
        line.extend_from_slice(key);
        line.push(b'\n');
        Ok(Self { certificate: lines([&data.certificate]), key: Secret::new(line), ca: lines(chain) })
    }
}

/// PEM texts one after the other, each with a line end.
fn lines<'t>(texts: impl IntoIterator<Item = &'t String>) -> String {
    texts.into_iter().map(|text| format!("{}\n", text.trim_end())).collect()
}

async fn ask(arguments: &Arguments) -> Result<Data> {
    let path = format!("{}/issue/{}", arguments.mount.trim_matches('/'), arguments.role);
    let mut body = json!({ "common_name": arguments.name });
    for (name, value) in [("ttl", &arguments.ttl), ("alt_names", &arguments.alt_names)] {
        if let Some(value) = value {
            body[name] = value.as_str().into();
        }
    }
    let reply = arguments.server.post(&path, &arguments.token, &body).await?;
    let Answer { data, errors } = serde_json::from_slice(reply.body.expose()).unwrap_or_default();
    let hint = match reply.status {
        200 => return Ok(data),
        403 => " (does the token in SIGNET_TOKEN grant it?)",
        404 => " (are --mount and --role right?)",
        _ => "",
    };
    Err(reply.refusal(&errors, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_becomes_three_files() {
        let issued = |body: serde_json::Value| {
            let answer: Answer = serde_json::from_value(json!({ "data": body, "auth": null })).unwrap();
            Issued::read(&answer.data)
        };
        let data =
            json!({ "certificate": "LEAF", "private_key": "KEY\n", "issuing_ca": "CA", "ca_chain": ["CA", "ROOT"] });
        let alone = issued(json!({ "certificate": "LEAF", "private_key": "KEY", "issuing_ca": "CA" })).unwrap();
        assert_eq!(alone.ca, "CA\n");
        for (missing, name) in [
            (json!({ "certificate": "LEAF", "private_key": "KEY" }), "issuing_ca"),
            (json!({ "private_key": "KEY", "issuing_ca": "CA" }), "certificate"),
        ] {
            assert!(issued(missing).err().unwrap().text().ends_with(name), "{name}");
        }
        assert!(issued(json!({ "certificate": "LEAF", "issuing_ca": "CA" })).is_err());
        let issued = issued(data).unwrap();
        assert_eq!((issued.certificate.as_str(), issued.ca.as_str()), ("LEAF\n", "CA\nROOT\n"));
        assert_eq!(issued.key.expose(), b"KEY\n");
    }
}
