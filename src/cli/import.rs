//! `signet import`: brings an authority from elsewhere, from a folder of PEM files: its keys and certificates to
//! `issuers/import/bundle`, then its CRLs to `issuers/import/crl`.
//!
//! Everything is read before anything is sent. Sent are the certificates of authorities, the keys that belong to one of
//! them, and of the CRLs of one issuer the one with the highest number: an earlier one may list what was released since.
//! What else lies in the folder stays there, and is named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;
use signet::error::{Error, Result, io_words};
use signet::keys::local::PrivateKey;
use signet::secret::Secret;
use signet::x509::certificate::Certificate;
use signet::x509::foreign_crl::ForeignCrl;
use signet::x509::pem;

use super::client::{self, Reply, Server};
use super::output::line;
use super::{path, token};

/// The arguments of `signet import`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A folder with the authority's private key, its certificate, the certificates above it, and its last CRL; PEM, or
    /// DER for certificates and CRLs. Folders in it are not looked into.
    folder: PathBuf,
    /// The mount that it is brought to.
    #[arg(long, default_value = "pki", value_parser = path::mount)]
    mount: String,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    token: token::Source,
}

/// Largest file that is read, octets.
const MAX_FILE: u64 = 72 << 20;
/// Most files that are looked at.
const MAX_FILES: usize = 1000;

/// Sends what is in the folder and says what came of it.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let token = arguments.token.token()?;
    let found = Found::in_folder(&arguments.folder)?;
    let (bundle, lists) = found.chosen()?;
    let ask = async |path: &str, media_type: &str, octets: Vec<u8>| {
        let path = format!("{}/issuers/import/{path}", arguments.mount);
        let token = token.expose_text().unwrap_or_default();
        answer(&arguments.server.post_octets(&path, token, media_type, octets).await?, &arguments.token)
    };
    let body = json!({ "pem_bundle": bundle.expose_text().unwrap_or_default() }).to_string().into_bytes();
    let imported = ask("bundle", "application/json", body).await?;
    let issuers = [(&imported.data.imported_issuers, "new"), (&imported.data.existing_issuers, "there before")];
    for (id, word) in issuers.into_iter().flat_map(|(ids, word)| ids.iter().flatten().map(move |id| (id, word))) {
        let has_key = imported.data.mapping.get(id).is_some_and(|key| !key.is_empty());
        line(format!("issuer {id}: {word}, {}", if has_key { "with its key" } else { "without its key" }));
    }
    let (mut warnings, mut covered) = (imported.warnings.unwrap_or_default(), BTreeSet::new());
    for (file, der) in lists {
        let Answer { data, warnings: further, .. } = ask("crl", "application/pkix-crl", der).await?;
        let published = data.published_crl_number.map_or("none".to_owned(), |number| number.to_string());
        line(format!(
            "CRL {}: number {}, {} entries, {} of them new here; the number of the mount's own is {published}",
            file.display(),
            data.crl_number,
            data.entries,
            data.imported_entries
        ));
        covered.extend(data.issuers);
        warnings.extend(further.unwrap_or_default());
    }
    // Of issuers whose list was brought along the numbers go on.
    let anew =
        |text: &String| text.contains("issuers/import/crl") && covered.iter().any(|id| text.contains(id.as_str()));
    warnings.iter().filter(|text| !anew(text)).for_each(|text| tell("warning", text));
    Ok(())
}

/// What a server answers.
type Answer = client::Answer<Data>;

/// The members that matter.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    imported_issuers: Option<Vec<String>>,
    existing_issuers: Option<Vec<String>>,
    mapping: BTreeMap<String, String>,
    issuers: Vec<String>,
    crl_number: u64,
    published_crl_number: Option<u64>,
    entries: usize,
    imported_entries: usize,
}

fn answer(reply: &Reply, source: &token::Source) -> Result<Answer> {
    let answer: Answer = serde_json::from_slice(reply.body.expose()).unwrap_or_default();
    let hint = match reply.status {
        200 => return Ok(answer),
        403 => format!(" (does the token in {} grant it?)", source.shown()),
        404 => " (is --mount right?)".to_owned(),
        _ => String::new(),
    };
    Err(reply.refusal(&hint))
}

/// A file and what is in it, DER.
type Named = (PathBuf, Vec<u8>);

/// What is in a folder.
#[derive(Default)]
struct Found {
    keys: Vec<(PathBuf, Secret)>,
    certificates: Vec<(PathBuf, Certificate)>,
    lists: Vec<Named>,
}

impl Found {
    fn in_folder(folder: &Path) -> Result<Self> {
        let unreadable = |path: &Path, e: &std::io::Error| {
            Error::invalid(format!("{}: cannot be read ({})", path.display(), io_words(e.kind())))
        };
        let entries = std::fs::read_dir(folder).map_err(|e| unreadable(folder, &e))?;
        let mut files = Vec::new();
        for entry in entries.take(MAX_FILES + 1) {
            files.push(entry.map_err(|e| unreadable(folder, &e))?.path());
        }
        if files.len() > MAX_FILES {
            return Err(Error::invalid(format!("{}: holds more than {MAX_FILES} files", folder.display())));
        }
        files.sort();
        let mut found = Self::default();
        for path in files.into_iter().filter(|path| path.is_file()) {
            let mut octets = Vec::new();
            let read = File::open(&path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut octets));
            read.map_err(|e| unreadable(&path, &e))?;
            let octets = Secret::new(octets);
            if octets.expose().len() as u64 > MAX_FILE {
                return Err(Error::invalid(format!("{}: larger than {} MiB", path.display(), MAX_FILE >> 20)));
            }
            found.add(path, &octets)?;
        }
        Ok(found)
    }

    fn add(&mut self, path: PathBuf, octets: &Secret) -> Result<()> {
        let of = |error: &Error| Error::invalid(format!("{}: {}", path.display(), error.text()));
        let text = octets.expose_text().filter(|text| text.contains("-----BEGIN "));
        let Some(text) = text else {
            if let Ok(certificate) = Certificate::parse(octets.expose()) {
                self.certificates.push((path, certificate));
            } else if path.extension().is_some_and(|extension| extension == "crl") {
                self.lists.push((path, octets.expose().to_vec()));
            } else {
                left(&path, "is neither PEM nor a certificate or CRL in DER");
            }
            return Ok(());
        };
        if text.contains("ENCRYPTED") {
            return Err(Error::invalid(format!(
                "{}: is encrypted; openssl pkey -in FILE -out PLAIN takes that off",
                path.display()
            )));
        }
        for (label, der) in pem::blocks(text).map_err(|error| of(&error))? {
            match label.as_str() {
                "CERTIFICATE" => {
                    let certificate = Certificate::parse(&der).map_err(|error| of(&error))?;
                    self.certificates.push((path.clone(), certificate));
                }
                pem::CRL => self.lists.push((path.clone(), der)),
                label if label.ends_with("PRIVATE KEY") => {
                    self.keys.push((path.clone(), Secret::new(pem::encode(label, Secret::new(der).expose()))));
                }
                label => left(&path, &format!("{label} is not for import")),
            }
        }
        Ok(())
    }

    /// What is to be sent: the bundle, and the lists.
    fn chosen(self) -> Result<(Secret, Vec<Named>)> {
        let (authorities, others): (Vec<_>, Vec<_>) =
            self.certificates.into_iter().partition(|(_, certificate)| certificate.is_ca());
        others.iter().for_each(|(path, _)| left(path, "is not the certificate of an authority"));
        if authorities.is_empty() {
            return Err(Error::invalid("FOLDER: holds no certificate of an authority"));
        }
        let mut bundle = Vec::new();
        for (path, key) in &self.keys {
            let read = key.expose_text().map_or_else(|| Err(Error::invalid("must be PEM")), PrivateKey::from_pem);
            let private = read.map_err(|error| Error::invalid(format!("{}: {}", path.display(), error.text())))?;
            match authorities.iter().any(|(_, certificate)| certificate.key() == private.public()) {
                true => bundle.push(key.expose().to_vec()),
                false => left(path, "is the key of none of these authorities"),
            }
        }
        if bundle.is_empty() {
            tell("warning", "no private key: what is brought signs nothing");
        }
        let certificates = authorities.iter().map(|(_, c)| pem::encode("CERTIFICATE", c.der()).into_bytes());
        let all: Vec<Vec<u8>> = bundle.into_iter().chain(certificates).collect();
        Ok((Secret::new(all.join(&b'\n')), newest(self.lists)?))
    }
}

/// Of the lists of one issuer the one with the highest number, and all that say that they are a part.
fn newest(lists: Vec<Named>) -> Result<Vec<Named>> {
    let (mut kept, mut last) = (Vec::new(), BTreeMap::new());
    for (path, der) in lists {
        let read = ForeignCrl::read(der.clone());
        let list = read.map_err(|error| Error::invalid(format!("{}: {}", path.display(), error.text())))?;
        if list.is_partial {
            kept.push((path, der));
            continue;
        }
        let issuer = list.issuer().as_der().to_vec();
        let earlier: Option<(u64, PathBuf, Vec<u8>)> = last.remove(&issuer);
        let (next, other) = match earlier {
            Some(earlier) if earlier.0 >= list.number => (earlier, Some(path)),
            earlier => ((list.number, path, der), earlier.map(|(_, path, _)| path)),
        };
        last.insert(issuer, next);
        if let Some(path) = other {
            left(&path, "is an earlier CRL");
        }
    }
    kept.extend(last.into_values().map(|(_, path, der)| (path, der)));
    Ok(kept)
}

/// Says what stays where it is.
fn left(path: &Path, why: &str) {
    tell("left out", &format!("{}: {why}", path.display()));
}

/// Says something beside the results.
fn tell(what: &str, text: &str) {
    // Nobody may be there to hear it.
    let _ = writeln!(crate::cli::output::stderr(), "{what}: {}", crate::cli::output::one_line(text));
}
