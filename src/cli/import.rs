//! `signet import`: imports a certificate authority from a folder: first its keys and certificates, then its CRLs.
//!
//! All files are read, and the CRLs verified with the certificates in the folder, before anything is sent. A mount that
//! already has another authority is rejected, because two authorities may use the same serial numbers. If the server
//! rejects a CRL, the issuers and keys of this import are deleted again. Of each issuer only the newest CRL is sent,
//! because an older one may list certificates that were later released from hold. Files that are not sent are reported
//! as left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result, describe_io_error};
use crate::keys::local::PrivateKey;
use crate::secret::Secret;
use crate::x509::certificate::Certificate;
use crate::x509::foreign_crl::ForeignCrl;
use crate::x509::public_key::PublicKey;
use crate::x509::{pem, pkcs12};
use serde::Deserialize;
use serde_json::{Value, json};

use super::certify::PemCertificate;
use super::client::{self, ClientRequest, ClientResponse, ServerEndpoint};
use super::issue::read_text;
use super::output::{print_notice, try_print};
use super::progress::{ProgressDisplay, ProgressUnit, QuietArgument};
use super::{path, token};

#[derive(clap::Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("10m")))]
pub(crate) struct ImportArguments {
    /// Folder with the authority's private key, its certificate, the certificates above it, and its last CRL; PEM, DER
    /// for certificates and CRLs, or PKCS #12 (.p12, .pfx). Subfolders are ignored.
    folder: PathBuf,
    /// File with the password of the PKCS #12 files in the folder.
    #[arg(long, value_name = "FILE")]
    p12_password_file: Option<PathBuf>,
    /// Mount that receives the import.
    #[arg(long, env = "SIGNET_MOUNT", default_value = "pki", value_parser = path::parse_mount)]
    mount: String,
    /// Import into a mount that has another authority with its key.
    #[arg(long)]
    into_existing: bool,
    /// Import the authority even if one of its CRLs is rejected: certificates that this CRL revokes become valid again.
    #[arg(long)]
    without_refused_crls: bool,
    #[command(flatten)]
    quiet: QuietArgument,
    #[command(flatten)]
    server: ServerEndpoint,
    #[command(flatten)]
    token: token::TokenArguments,
}

const NEW_ISSUER: &str = "new";
/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 72 << 20;
/// Maximum number of files in the folder.
const MAX_FILES: usize = 1000;

pub(crate) async fn run(arguments: ImportArguments) -> Result<()> {
    let token = arguments.token.token()?;
    let password = arguments.p12_password_file.as_deref().map(read_password).transpose()?;
    let found = ImportFolder::read_folder(&arguments.folder, password.as_ref())?;
    let ImportSelection { bundle, keys, crls } = found.select(arguments.without_refused_crls)?;
    arguments.require_no_other_authority(token.expose_text().unwrap_or_default(), &keys).await?;
    let display = ProgressDisplay::start("importing", ProgressUnit::Items("files"), &arguments.quiet);
    display.progress.expect(1 + crls.len() as u64);
    let post_import = async |path: &str, media_type: &str, bytes: Vec<u8>| {
        let path = format!("{}/issuers/import/{path}", arguments.mount);
        let token = token.expose_text().unwrap_or_default();
        let answered = arguments.server.post_bytes(&path, token, media_type, bytes).await;
        display.progress.add(1);
        parse_response(&answered?, &arguments.token)
    };
    let body = json!({ "pem_bundle": bundle.expose_text().unwrap_or_default() }).to_string().into_bytes();
    let imported = post_import("bundle", "application/json", body).await?;
    let issuers = [(&imported.data.imported_issuers, NEW_ISSUER), (&imported.data.existing_issuers, "existing")];
    for (id, word) in issuers.into_iter().flat_map(|(ids, word)| ids.iter().flatten().map(move |id| (id, word))) {
        let has_key = imported.data.mapping.get(id).is_some_and(|key| !key.is_empty());
        let text = format!("issuer {id}: {word}, {}", if has_key { "with its key" } else { "without its key" });
        let object = json!({ "issuer": id, "is_new": word == NEW_ISSUER, "has_key": has_key });
        display.without_progress_line(|| try_print(&object, text));
    }
    let mut warnings = imported.warnings.clone().unwrap_or_default();
    let mut covered = BTreeSet::new();
    for (file, der) in crls {
        let answer = post_import("crl", "application/pkix-crl", der).await;
        let answer = answer.map_err(|e| Error::new(e.kind(), format!("{}: {}", file.display(), e.text())));
        let ImportResponse { data, warnings: further, .. } = match answer {
            Ok(answer) => answer,
            Err(error) if arguments.without_refused_crls => {
                let text = format!("{}; skipped: its revoked certificates count as valid", error.text());
                display.without_progress_line(|| print_notice("warning", &text));
                continue;
            }
            Err(error) => return Err(arguments.roll_back(&imported.data, token.expose_text(), error).await),
        };
        let (object, text) = render_imported_crl(&file, &data);
        display.without_progress_line(|| try_print(&object, text));
        covered.extend(data.issuers);
        warnings.extend(further.unwrap_or_default());
    }
    drop(display);
    // The import of the certificates warned that the CRL of each issuer is missing. Drop these warnings for issuers
    // whose CRL was imported afterwards.
    let is_about_imported_crl =
        |text: &String| text.contains("issuers/import/crl") && covered.iter().any(|id| text.contains(id.as_str()));
    warnings.iter().filter(|text| !is_about_imported_crl(text)).for_each(|text| print_notice("warning", text));
    Ok(())
}

impl ImportArguments {
    /// Rejects a mount with an authority whose key is not in the folder. A mount that already has all keys of the
    /// folder is accepted, so that an import can be repeated.
    async fn require_no_other_authority(&self, token: &str, imported: &[PublicKey]) -> Result<()> {
        if self.into_existing || imported.is_empty() {
            return Ok(());
        }
        let existing = self.issuers_with_key(token).await?;
        if imported.iter().all(|key| existing.iter().any(|(_, known)| known == key)) {
            return Ok(());
        }
        let Some((other, _)) = existing.iter().find(|(_, key)| !imported.contains(key)) else { return Ok(()) };
        let mount = &self.mount;
        let text = format!(
            "--mount: {mount} has another authority with its key (issuer {other}), and a mount is for one authority: \
             create a mount (POST sys/mounts/NAME with {{\"type\": \"pki\"}}) and import with --mount NAME, or use \
             --into-existing"
        );
        Err(Error::new(Kind::Conflict, text))
    }

    /// Returns the name (or id) and the public key of each issuer in the mount that has its private key there. Empty if
    /// the mount does not exist.
    async fn issuers_with_key(&self, token: &str) -> Result<Vec<(String, PublicKey)>> {
        // Listing issuers needs no permission, so a 403 response means that the mount does not exist.
        let path = format!("{}/issuers", self.mount);
        let list = self.server.request(ClientRequest::list(&path), token).await?.visible_data()?;
        let mut found = Vec::new();
        for (id, info) in list["key_info"].as_object().into_iter().flatten() {
            if info["key_id"].as_str().is_none_or(str::is_empty) {
                continue;
            }
            let path = format!("{}/issuer/{id}/json", self.mount);
            let issuer = self.server.request(ClientRequest::get(&path), token).await?.visible_data()?;
            let name = info["issuer_name"].as_str().filter(|name| !name.is_empty()).unwrap_or(id);
            // If the issuer was deleted after the listing, the response has no certificate; it is skipped.
            if let Ok(link) = PemCertificate::read(issuer["certificate"].as_str().unwrap_or_default()) {
                found.push((name.to_owned(), link.certificate.key().clone()));
            }
        }
        Ok(found)
    }

    /// Deletes the issuers and keys that an import has created, because the server rejected a CRL. Without the CRL,
    /// certificates that the authority has revoked would become valid again. Returns the error for the user.
    async fn roll_back(&self, imported: &ImportData, token: Option<&str>, refused: Error) -> Error {
        let issuers = imported.imported_issuers.iter().flatten().map(|id| format!("issuer/{id}"));
        let keys = imported.imported_keys.iter().flatten().map(|id| format!("key/{id}"));
        let mut not_deleted = Vec::new();
        for path in issuers.chain(keys) {
            let api_path = format!("{}/{path}", self.mount);
            let deleted = self.server.request(ClientRequest::delete(&api_path), token.unwrap_or_default()).await;
            if !deleted.is_ok_and(|reply| (200..300).contains(&reply.status)) {
                not_deleted.push(path);
            }
        }
        let outcome = match not_deleted.is_empty() {
            true => "the import was undone: the new issuers and keys are deleted again".to_owned(),
            false => format!("the import could not be undone completely: delete {} yourself", not_deleted.join(", ")),
        };
        let remedy = "--without-refused-crls imports the authority without this CRL";
        Error::new(refused.kind(), format!("{}; {outcome}; {remedy}", refused.text()))
    }
}

type ImportResponse = client::ClientResponseBody<ImportData>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct ImportData {
    imported_issuers: Option<Vec<String>>,
    imported_keys: Option<Vec<String>>,
    existing_issuers: Option<Vec<String>>,
    mapping: BTreeMap<String, String>,
    issuers: Vec<String>,
    crl_number: Option<u64>,
    published_crl_number: Option<u64>,
    entries: usize,
    imported_entries: usize,
}

fn parse_response(reply: &ClientResponse, source: &token::TokenArguments) -> Result<ImportResponse> {
    let answer: ImportResponse = reply.json();
    let hint = match reply.status {
        200 => return Ok(answer),
        403 => reply.denial_hint(&source.source_name()),
        404 => " (check --mount)".to_owned(),
        _ => String::new(),
    };
    Err(reply.to_error(&hint))
}

/// Renders the server's response to an imported CRL as JSON and as text.
fn render_imported_crl(file: &Path, data: &ImportData) -> (Value, String) {
    let number = |number: Option<u64>| number.map_or("none".to_owned(), |number| number.to_string());
    let object = json!({
        "crl": file,
        "crl_number": data.crl_number,
        "entries": data.entries,
        "imported_entries": data.imported_entries,
        "published_crl_number": data.published_crl_number,
    });
    let text = format!(
        "CRL {}: number {}, {} entries, {} of them new here; the mount's own CRL has number {}",
        file.display(),
        number(data.crl_number),
        data.entries,
        data.imported_entries,
        number(data.published_crl_number)
    );
    (object, text)
}

type ImportCrlFile = (PathBuf, Vec<u8>);

#[derive(Default)]
struct ImportFolder {
    keys: Vec<(PathBuf, Secret)>,
    certificates: Vec<(PathBuf, Certificate)>,
    crls: Vec<ImportCrlFile>,
}

impl ImportFolder {
    fn read_folder(folder: &Path, password: Option<&Secret>) -> Result<Self> {
        let unreadable = |path: &Path, e: &std::io::Error| {
            Error::invalid(format!("{}: cannot be read ({})", path.display(), describe_io_error(e.kind())))
        };
        if !folder.exists() {
            return Err(Error::invalid(format!("FOLDER: folder does not exist: {}", folder.display())));
        }
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
            let mut bytes = Vec::new();
            let read = File::open(&path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
            read.map_err(|e| unreadable(&path, &e))?;
            let bytes = Secret::new(bytes);
            if bytes.expose().len() as u64 > MAX_FILE_BYTES {
                return Err(Error::invalid(format!("{}: larger than {} MiB", path.display(), MAX_FILE_BYTES >> 20)));
            }
            if is_pkcs12(&path) {
                found.add_pkcs12(path, &bytes, password)?;
            } else {
                found.add(path, &bytes)?;
            }
        }
        Ok(found)
    }

    fn add_pkcs12(&mut self, path: PathBuf, bytes: &Secret, password: Option<&Secret>) -> Result<()> {
        let shown = path.display().to_string();
        let password = password.ok_or_else(|| {
            Error::invalid(format!("{shown}: is a PKCS #12 file; --p12-password-file names the file with its password"))
        })?;
        let contents = pkcs12::read(&shown, bytes.expose(), password.expose())
            .map_err(|error| Error::invalid(error.text().replacen("password:", &format!("{shown}: password:"), 1)))?;
        self.add(path, &Secret::new(contents.to_pem().as_slice()))
    }

    fn add(&mut self, path: PathBuf, bytes: &Secret) -> Result<()> {
        let with_path = |error: &Error| Error::invalid(format!("{}: {}", path.display(), error.text()));
        const BEGIN: &[u8] = b"-----BEGIN ";
        let contains = |what: &[u8]| bytes.expose().windows(what.len()).any(|part| part == what);
        if !contains(BEGIN) {
            if let Ok(certificate) = Certificate::parse(bytes.expose()) {
                self.certificates.push((path, certificate));
            } else if path.extension().is_some_and(|extension| extension == "crl") {
                self.crls.push((path, bytes.expose().to_vec()));
            } else {
                report_skipped(&path, "is neither PEM nor a certificate or CRL in DER");
            }
            return Ok(());
        }
        if contains(b"ENCRYPTED") {
            return Err(Error::invalid(format!(
                "{}: is encrypted; openssl pkey -in FILE -out PLAIN decrypts it",
                path.display()
            )));
        }
        for (label, der) in pem::parse_file(bytes.expose()).map_err(|error| with_path(&error))? {
            match label.as_str() {
                "CERTIFICATE" => {
                    let certificate = Certificate::parse(&der).map_err(|error| with_path(&error))?;
                    self.certificates.push((path.clone(), certificate));
                }
                pem::CRL_LABEL => self.crls.push((path.clone(), der.to_vec())),
                label if label.ends_with("PRIVATE KEY") => {
                    self.keys.push((path.clone(), Secret::new(pem::encode(label, &der))));
                }
                label => report_skipped(&path, &format!("{label} cannot be imported")),
            }
        }
        Ok(())
    }

    /// Selects the keys, certificates and CRLs to send. A CRL that cannot be imported is skipped if `without_refused`
    /// is set, and otherwise an error.
    fn select(self, without_refused: bool) -> Result<ImportSelection> {
        let (authorities, others): (Vec<_>, Vec<_>) =
            self.certificates.into_iter().partition(|(_, certificate)| certificate.is_ca());
        others.iter().for_each(|(path, _)| report_skipped(path, "is not the certificate of an authority"));
        if authorities.is_empty() {
            return Err(Error::invalid("FOLDER: holds no certificate of an authority"));
        }
        let mut bundle = Vec::new();
        let mut keys = Vec::new();
        for (path, key) in &self.keys {
            let read = key.expose_text().map_or_else(|| Err(Error::invalid("must be PEM")), PrivateKey::from_pem);
            let private = read.map_err(|error| Error::invalid(format!("{}: {}", path.display(), error.text())))?;
            match authorities.iter().any(|(_, certificate)| certificate.key() == private.public()) {
                true => {
                    bundle.push(key.expose().to_vec());
                    keys.push(private.public().clone());
                }
                false => report_skipped(path, "is not the key of any of these authorities"),
            }
        }
        if bundle.is_empty() {
            print_notice("warning", "no private key found: the imported authority cannot sign");
        }
        let certificates = authorities.iter().map(|(_, c)| pem::encode("CERTIFICATE", c.der()).into_bytes());
        let all: Vec<Vec<u8>> = bundle.into_iter().chain(certificates).collect();
        let mut crls = Vec::new();
        for (path, der) in self.crls {
            match parse_crl(der, &authorities) {
                Ok(list) => crls.push((path, list)),
                Err(error) if without_refused => {
                    report_skipped(&path, &format!("{}; its revoked certificates count as valid", error.text()));
                }
                Err(error) => return Err(Error::invalid(format!("{}: {}", path.display(), error.text()))),
            }
        }
        Ok(ImportSelection { bundle: Secret::new(all.join(&b'\n')), keys, crls: select_newest(crls) })
    }
}

fn is_pkcs12(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("p12") || extension.eq_ignore_ascii_case("pfx"))
}

fn read_password(file: &Path) -> Result<Secret> {
    let text = read_text("--p12-password-file", file)?;
    let password = text.expose_text().unwrap_or_default();
    Ok(Secret::new(password.strip_suffix('\n').map_or(password, |text| text.strip_suffix('\r').unwrap_or(text))))
}

struct ImportSelection {
    bundle: Secret,
    /// The public keys of the private keys in the bundle.
    keys: Vec<PublicKey>,
    crls: Vec<ImportCrlFile>,
}

struct FolderCrl {
    der: Vec<u8>,
    head: ForeignCrl,
}

/// Parses a CRL with all its entries. Verifies its signature if `authorities` contains a certificate with the name of
/// its issuer.
fn parse_crl(der: Vec<u8>, authorities: &[(PathBuf, Certificate)]) -> Result<FolderCrl> {
    const ENTRIES_AT_ONCE: usize = 1000;
    let head = ForeignCrl::read(der.clone())?;
    head.pages(ENTRIES_AT_ONCE).try_for_each(|page| page.map(drop))?;
    let issuers = authorities.iter().map(|(_, certificate)| certificate);
    let mut issuers = issuers.filter(|certificate| certificate.subject().matches(head.issuer())).peekable();
    if issuers.peek().is_some() && !issuers.any(|issuer| head.is_signed_by(issuer.key())) {
        return Err(Error::invalid(
            "crl: its signature does not verify with any authority of the folder that has its issuer's name",
        ));
    }
    Ok(FolderCrl { der, head })
}

/// Returns the newest complete CRL of each issuer, and all partial CRLs.
fn select_newest(crls: Vec<(PathBuf, FolderCrl)>) -> Vec<ImportCrlFile> {
    let mut selected = Vec::new();
    let mut newest: BTreeMap<_, (PathBuf, FolderCrl)> = BTreeMap::new();
    for (path, list) in crls {
        if list.head.is_partial {
            selected.push((path, list.der));
            continue;
        }
        let issuer = list.head.issuer().as_der().to_vec();
        let (next, other) = match newest.remove(&issuer) {
            Some(earlier) if !is_newer(&list.head, &earlier.1.head) => (earlier, Some(path)),
            earlier => ((path, list), earlier.map(|(path, _)| path)),
        };
        newest.insert(issuer, next);
        if let Some(path) = other {
            report_skipped(&path, "is an earlier CRL");
        }
    }
    selected.extend(newest.into_values().map(|(path, list)| (path, list.der)));
    selected
}

/// `true` if `one` is newer than `other`. Compares the CRL numbers, or the issue times if one of the CRLs has no
/// number.
fn is_newer(one: &ForeignCrl, other: &ForeignCrl) -> bool {
    match (one.number, other.number) {
        (Some(one), Some(other)) => one > other,
        _ => one.this_update > other.this_update,
    }
}

fn report_skipped(path: &Path, why: &str) {
    print_notice("left out", &format!("{}: {why}", path.display()));
}
