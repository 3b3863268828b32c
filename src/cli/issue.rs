//! `signet issue`: gets a certificate and writes NAME.pem, NAME-key.pem and ca.pem.
//!
//! The token goes to the server that was named and to no other: redirects are not followed, and plain http
//! leads no further than this machine.
//!
//! No file is ever overwritten. The files of the name are looked for before the server is asked, so
//! that no certificate is issued for nothing. A `ca.pem` that is there may stay when it holds the
//! same authority (several names in one folder); otherwise the authority goes to NAME-ca.pem.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{HeaderValue, LOCATION};
use serde::Deserialize;
use serde_json::json;
use signet::error::{Error, Kind, Result};
use signet::secret::{PartlySecret, Secret, sealed};
use url::{Host, Url};

/// The name of this machine in addresses.
const LOCALHOST: &str = "localhost";
/// How much of an address that a server points to is shown, characters.
const LONGEST_SHOWN: usize = 200;
/// Longest answer that is read, octets.
const LONGEST_ANSWER: usize = 4 << 20;

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
    /// Address of the server.
    #[arg(long, env = "SIGNET_ADDR", default_value = "http://127.0.0.1:8200")]
    address: String,
    /// Token for the server.
    #[arg(long, env = "SIGNET_TOKEN", hide_env_values = true)]
    token: String,
    /// PEM file of the authorities to trust for the server's own certificate.
    #[arg(long, value_name = "FILE", env = "SIGNET_CACERT")]
    cacert: Option<PathBuf>,
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
    let base = arguments.address.trim_end_matches('/');
    check_address(base)?;
    let url = format!("{base}/v1/{}/issue/{}", arguments.mount.trim_matches('/'), arguments.role);
    let mut body = json!({ "common_name": arguments.name });
    for (name, value) in [("ttl", &arguments.ttl), ("alt_names", &arguments.alt_names)] {
        if let Some(value) = value {
            body[name] = value.as_str().into();
        }
    }
    let mut token = HeaderValue::from_str(&arguments.token)
        .map_err(|_| Error::invalid("SIGNET_TOKEN: has characters that no token has"))?;
    token.set_sensitive(true);
    let request = client(arguments)?.post(&url).header("X-Service-Token", token).json(&body);
    let answer =
        request.send().await.map_err(|e| Error::unavailable(format!("{base}: no answer ({})", cause(&e)), e))?;
    let status = answer.status().as_u16();
    if answer.status().is_redirection() {
        let to = answer.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
        let to: String = to.chars().take(LONGEST_SHOWN).collect();
        let text = format!("{url}: status {status}: points to {to:?}, which is not followed (is SIGNET_ADDR right?)");
        return Err(Error::new(Kind::BadGateway, text));
    }
    let body = read(answer, base).await?;
    let Answer { data, errors } = serde_json::from_slice(body.expose()).unwrap_or_default();
    if status == 200 {
        return Ok(data);
    }
    let hint = match status {
        403 => " (does the token in SIGNET_TOKEN grant it?)",
        404 => " (are --mount and --role right?)",
        _ => "",
    };
    Err(Error::new(Kind::BadGateway, format!("{url}: status {status}: {}{hint}", errors.join("; "))))
}

/// The body of an answer, of which a private key is a part.
///
/// # Errors
/// `Unavailable` when it ends early, `BadGateway` when it is longer than any answer.
async fn read(mut answer: reqwest::Response, base: &str) -> Result<PartlySecret> {
    let mut body = PartlySecret::default();
    let broken = |e: reqwest::Error| Error::unavailable(format!("{base}: the answer ended early ({})", cause(&e)), e);
    while let Some(chunk) = answer.chunk().await.map_err(broken)? {
        if body.len() + chunk.len() > LONGEST_ANSWER {
            return Err(Error::new(Kind::BadGateway, format!("{base}: the answer is longer than 4 MiB")));
        }
        body.push_secret(&chunk);
    }
    Ok(body)
}

/// The token must not be read on the way: TLS, or no way at all.
///
/// # Errors
/// `Invalid` for plain http to another machine, and for what is no address of a server.
fn check_address(base: &str) -> Result<()> {
    let refuse = |rule: &str| Err(Error::invalid(format!("SIGNET_ADDR: {rule}")));
    let Ok(url) = Url::parse(base) else { return refuse("is not a URL, such as https://signet.example") };
    let here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == LOCALHOST,
        None => false,
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if here => Ok(()),
        "http" => refuse("plain http is for this machine only (localhost, 127.0.0.0/8, ::1): use https"),
        _ => refuse("must begin with https://"),
    }
}

fn client(arguments: &Arguments) -> Result<reqwest::Client> {
    let mut client = reqwest::Client::builder()
        .timeout(Duration::from_secs(60))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        // Whatever a resolver says; port 0 stands for the one of the address.
        .resolve_to_addrs(LOCALHOST, &[(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()]);
    if let Some(file) = &arguments.cacert {
        let unreadable = || Error::invalid(format!("SIGNET_CACERT: {} holds no readable certificates", file.display()));
        let pem = std::fs::read(file).map_err(|_| unreadable())?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|_| unreadable())?;
        client = client.tls_certs_only(certificates);
    }
    client.build().map_err(Error::internal)
}

/// The innermost cause, which names the problem (refused, unknown authority …).
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
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
