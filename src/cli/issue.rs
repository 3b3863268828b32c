//! `signet issue`: requests a certificate and writes NAME.pem, NAME-key.pem and ca.pem.
//!
//! The command generates the private key and never sends it. With `--server-key` the server generates the key; with
//! `--csr` the caller supplies a certification request. NAME.pem contains the certificate and the intermediate CA
//! certificates, ca.pem all CA certificates. `--existing` decides whether existing files are an error, kept or
//! replaced. The command checks that it can write all files before it sends the request, so that no certificate is
//! issued in vain. An existing `ca.pem` with other contents is not changed: the CA certificates are written to
//! NAME-ca.pem then.

use std::path::{Path, PathBuf};

use crate::clock::{Clock, Time, format_rfc3339};
use crate::error::{Error, Kind, Result};
use crate::keys::PrivateKey;
use crate::secret::Secret;
use serde_json::json;

use super::certify::{
    AuthorityArguments, ChainSelection, ClientCsr, ClientKeySource, PemCertificate, ReceivedCertificate, generate_key,
    required_key_type,
};
use super::files::{FileContent, FolderLock, OnExisting, StagedFile, exists_error, is_empty, path_exists};
use super::names::TypedNames;
use super::output;

/// Maximum size of a key, certificate or request file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Argument that error messages name when a file that the command writes cannot be used.
const OUT_ARGUMENT: &str = "--out";
const KEEP_ARGUMENT: &str = "--existing keep";

/// Maximum number of requests with different keys: with the default key, then with the key type that the role requires,
/// then with the key size that it requires.
const MAX_KEY_TYPE_ATTEMPTS: usize = 3;

#[derive(clap::Args)]
pub(crate) struct IssueArguments {
    /// Names of the certificate: DNS names, IP addresses, URIs and mailboxes, recognized by their form. The first
    /// one names the files.
    #[arg(value_name = "NAME", required_unless_present = "csr")]
    names: Vec<String>,
    #[command(flatten)]
    authority: AuthorityArguments,
    /// Further names, separated by commas.
    #[arg(long, help_heading = "Names and key")]
    alt_names: Option<String>,
    /// Certification request of a key that is elsewhere, PEM; additional names are for roles that ignore
    /// the names in requests.
    #[arg(long, value_name = "FILE", help_heading = "Names and key")]
    csr: Option<PathBuf>,
    /// Let the server generate the key (`issue` instead of `sign`), with the role's key type.
    #[arg(long, conflicts_with_all = ["csr", "key_type", "key_bits"], help_heading = "Names and key")]
    server_key: bool,
    /// Type of the key that is generated here: ec, rsa or ed25519; default: ec, or the type that the role requires.
    #[arg(long, conflicts_with = "csr", help_heading = "Names and key")]
    key_type: Option<String>,
    /// Size of the key; default: that of the type, or the size that the role requires.
    #[arg(long, conflicts_with = "csr", help_heading = "Names and key")]
    key_bits: Option<i64>,
    /// Folder to write to.
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = "Files")]
    out: PathBuf,
    /// Treatment of existing files: refuse to run, keep them and create missing ones (a certificate for an existing
    /// key), or replace them, with the same owner.
    #[arg(long, value_enum, default_value_t, help_heading = "Files")]
    existing: ExistingPolicy,
    /// Certificates in NAME.pem after the certificate itself.
    #[arg(long, value_enum, default_value_t, help_heading = "Files")]
    chain: ChainSelection,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum ExistingPolicy {
    /// Refuse to run.
    #[default]
    Refuse,
    /// Keep them and create missing ones. An empty file, as left by a full disk, counts as missing.
    Keep,
    /// Replace them.
    Replace,
}

impl ExistingPolicy {
    fn on_existing(self) -> OnExisting {
        match self {
            Self::Refuse => OnExisting::Reject,
            Self::Keep => OnExisting::RejectUnlessEmpty,
            Self::Replace => OnExisting::Replace,
        }
    }
}

pub(crate) async fn run(arguments: IssueArguments) -> Result<()> {
    let order = CertificateOrder::of(&arguments)?;
    let files = IssueFiles::of(&arguments, &order)?;
    let kept = files.find_existing(arguments.existing, order.needs_key())?;
    if let ExistingFiles::All(leaf) = &kept {
        return print_kept(&files, leaf, &kept_file_warnings(&files, leaf, &order.names)?);
    }
    files.check_writable(arguments.existing, order.needs_key() && matches!(kept, ExistingFiles::Nothing)).await?;
    let mut client_key = order.prepare_key(&arguments, &kept)?;
    let issued = order.request_certificate(&arguments, &mut client_key).await?;
    let generated_key = client_key.and_then(|(_, text)| text);
    let key = generated_key.as_ref().or(issued.key.as_ref());
    let ca = files.write(&issued, key, &kept, &arguments).await?;
    print_issued(&files, &issued, &ca, order.needs_key())
}

/// A private key that the command has generated or read from a file. The second value is its PEM encoding, to be
/// written to a file; `None` if it was read.
type ClientKey = (PrivateKey, Option<Secret>);

/// The certificate that the arguments request: its names, the base of its file names, and the source of its key.
struct CertificateOrder {
    names: TypedNames,
    /// NAME, the base of the file names.
    file_stem: String,
    request: Option<ClientCsr>,
    server_key: bool,
}

impl CertificateOrder {
    fn of(arguments: &IssueArguments) -> Result<Self> {
        let more = arguments.alt_names.iter().flat_map(|names| names.split(',')).map(str::trim);
        let texts = arguments.names.iter().map(String::as_str).chain(more.filter(|name| !name.is_empty()));
        let file_stem = arguments.names.first().map(|first| TypedNames::file_stem(first)).transpose()?;
        let mut names = TypedNames::of(texts)?;
        let request = arguments.csr.as_deref().map(read_request).transpose()?;
        if let Some(request) = &request
            && names.is_empty()
        {
            names = request.names.clone();
        }
        let first = || [&names.dns, &names.emails, &names.uris].into_iter().flatten().next().map(String::as_str);
        let file_stem = match file_stem {
            Some(file_stem) => file_stem,
            None if !names.common_name.is_empty() => TypedNames::file_stem(&names.common_name)?,
            None => TypedNames::file_stem(first().unwrap_or_default())?,
        };
        Ok(Self { names, file_stem, request, server_key: arguments.server_key })
    }

    fn needs_key(&self) -> bool {
        self.request.is_none()
    }

    fn prepare_key(&self, arguments: &IssueArguments, kept: &ExistingFiles) -> Result<Option<ClientKey>> {
        if self.request.is_some() {
            return Ok(None);
        }
        match kept {
            ExistingFiles::Key(file) => Ok(Some((read_key(KEEP_ARGUMENT, file)?, None))),
            _ if self.server_key => Ok(None),
            _ => {
                let kind = arguments.key_type.as_deref().unwrap_or("ec");
                generate_key(kind, arguments.key_bits.unwrap_or_default()).map(|(key, text)| Some((key, Some(text))))
            }
        }
    }

    /// Requests the certificate. If the role rejects the default key type or size, and the arguments specify none,
    /// retries with the type and size that the role requires.
    async fn request_certificate(
        &self,
        arguments: &IssueArguments,
        client_key: &mut Option<ClientKey>,
    ) -> Result<ReceivedCertificate> {
        let authority = &arguments.authority;
        for _ in 0..MAX_KEY_TYPE_ATTEMPTS {
            let response = match (&self.request, &*client_key) {
                (Some(request), _) => authority.certify(&ClientKeySource::Request(request), &self.names).await,
                (None, Some((key, _))) => {
                    let request = ClientCsr::new(key, &self.names.subject(), &self.names.san_extension())?;
                    authority.certify(&ClientKeySource::Request(&request), &self.names).await
                }
                (None, None) => authority.certify(&ClientKeySource::ServerKey, &self.names).await,
            };
            let refused = match response {
                Ok(issued) => return Ok(issued),
                Err(refusal) => refusal.error,
            };
            let is_given = arguments.key_type.is_some() || arguments.key_bits.is_some();
            let generated_key = client_key.as_ref().filter(|(_, text)| text.is_some() && !is_given);
            match generated_key.and_then(|(key, _)| required_key_type(&refused, key.kind())) {
                Some((kind, bits)) => {
                    *client_key = generate_key(kind, bits).map(|(key, text)| Some((key, Some(text))))?
                }
                None => return Err(refused),
            }
        }
        Err(Error::new(Kind::BadGateway, "the role rejected every key type that it requires"))
    }
}

fn read_request(file: &Path) -> Result<ClientCsr> {
    let text = read_text("--csr", file)?;
    ClientCsr::read(&String::from_utf8_lossy(text.expose())).map_err(|e| e.within(&file.display().to_string()))
}

/// Reads a private key from a PEM file. `named_by` is the argument that names the file, for messages.
///
/// # Errors
/// `Invalid` when the file contains no usable private key; those of [`read_text`].
pub(super) fn read_key(named_by: &str, file: &Path) -> Result<PrivateKey> {
    let text = read_text(named_by, file)?;
    let key = text.expose_text().ok_or_else(|| Error::invalid("private key: not PEM")).and_then(PrivateKey::from_pem);
    key.map_err(|e| e.within(&file.display().to_string()))
}

/// Reads the first certificate from a PEM file. `named_by` is the argument that names the file, for messages.
///
/// # Errors
/// `Invalid` when the file contains no certificate; those of [`read_text`].
pub(super) fn read_leaf(named_by: &str, file: &Path) -> Result<PemCertificate> {
    let text = read_text(named_by, file)?;
    let link = text.expose_text().ok_or_else(|| Error::invalid("not PEM")).and_then(PemCertificate::read);
    link.map_err(|e| e.within(&file.display().to_string()))
}

/// Reads a file of at most [`MAX_FILE_BYTES`]. `named_by` is the argument or setting that names the file, for messages.
///
/// # Errors
/// `Invalid` when the file does not exist or is too large, `Unavailable` when it cannot be read.
pub(super) fn read_text(named_by: &str, file: &Path) -> Result<Secret> {
    read_open_file(named_by, std::fs::File::open(file).map_err(|e| Error::of_file(named_by, file, "read", e))?, file)
}

/// As [`read_text`], for a file that is already open.
pub(super) fn read_open_file(named_by: &str, opened: std::fs::File, file: &Path) -> Result<Secret> {
    let text = Secret::read(opened, MAX_FILE_BYTES + 1).map_err(|e| Error::of_file(named_by, file, "read", e))?;
    if text.expose().len() as u64 > MAX_FILE_BYTES {
        return Err(Error::invalid(format!("{}: is longer than 1 MiB", file.display())));
    }
    Ok(text)
}

struct IssueFiles {
    certificate: PathBuf,
    key: PathBuf,
    ca: PathBuf,
    separate_ca: PathBuf,
}

enum ExistingFiles {
    Nothing,
    /// Only the private key exists, in this file. A certificate is requested for it.
    Key(PathBuf),
    /// The certificate and its private key exist, so none is requested.
    All(Box<PemCertificate>),
}

impl IssueFiles {
    fn of(arguments: &IssueArguments, order: &CertificateOrder) -> Result<Self> {
        if !arguments.out.is_dir() {
            return Err(Error::invalid(format!("--out: {} is not a folder", arguments.out.display())));
        }
        let file = |suffix: &str| arguments.out.join(format!("{}{suffix}.pem", order.file_stem));
        Ok(Self {
            certificate: file(""),
            key: file("-key"),
            ca: arguments.out.join("ca.pem"),
            separate_ca: file("-ca"),
        })
    }

    fn find_existing(&self, existing: ExistingPolicy, needs_key: bool) -> Result<ExistingFiles> {
        match existing {
            ExistingPolicy::Replace => Ok(ExistingFiles::Nothing),
            ExistingPolicy::Refuse => {
                let key = needs_key.then_some(&self.key);
                let mut own = [&self.certificate, &self.separate_ca].into_iter().chain(key);
                own.find(|file| path_exists(file)).map_or(Ok(ExistingFiles::Nothing), |file| {
                    let text = format!("{} (use --existing keep or --existing replace)", exists_error(file).text());
                    Err(Error::new(Kind::Conflict, text))
                })
            }
            ExistingPolicy::Keep => match (has_content(&self.certificate), has_content(&self.key)) {
                (true, false) if needs_key => {
                    let text = format!(
                        "{} exists without its key {}; use --existing replace to create both",
                        self.certificate.display(),
                        self.key.display()
                    );
                    Err(Error::new(Kind::Conflict, text))
                }
                (true, _) => {
                    let leaf = read_leaf(OUT_ARGUMENT, &self.certificate)?;
                    if needs_key && read_key(KEEP_ARGUMENT, &self.key)?.public().spki() != leaf.certificate.key().spki()
                    {
                        let text = format!("{} is not the key of {}", self.key.display(), self.certificate.display());
                        return Err(Error::new(Kind::Conflict, text));
                    }
                    Ok(ExistingFiles::All(Box::new(leaf)))
                }
                (false, true) if needs_key => Ok(ExistingFiles::Key(self.key.clone())),
                (false, _) => Ok(ExistingFiles::Nothing),
            },
        }
    }

    async fn check_writable(&self, existing: ExistingPolicy, has_key: bool) -> Result<()> {
        let lock = FolderLock::of(&self.certificate).await?;
        let on_existing = existing.on_existing();
        let mut staged = vec![lock.stage(&self.certificate, FileContent::Public, on_existing)?];
        if has_key {
            staged.push(lock.stage(&self.key, FileContent::Secret, on_existing)?);
        }
        let (ca, on_existing) = if path_exists(&self.ca) {
            (&self.separate_ca, OnExisting::Replace)
        } else {
            (&self.ca, OnExisting::Reject)
        };
        staged.push(lock.stage(ca, FileContent::Public, on_existing)?);
        Ok(())
    }

    /// Writes the files. Returns the path of the file with the CA certificates. The key gets its final name first,
    /// because the other files are useless without it.
    async fn write(
        &self,
        issued: &ReceivedCertificate,
        key: Option<&Secret>,
        kept: &ExistingFiles,
        arguments: &IssueArguments,
    ) -> Result<PathBuf> {
        let lock = FolderLock::wait_for(&self.certificate).await?;
        let on_existing = arguments.existing.on_existing();
        if let ExistingFiles::Key(file) = kept
            && read_key(KEEP_ARGUMENT, file)?.public().spki() != issued.leaf.certificate.key().spki()
        {
            let text =
                format!("{}: another command replaced this file concurrently; run the command again", file.display());
            return Err(Error::new(Kind::Conflict, text));
        }
        // All temporary files are written completely before the first gets its final name.
        let mut staged = Vec::new();
        if let Some(key) = key {
            staged.push(lock.stage(&self.key, FileContent::Secret, on_existing)?.with_content(&[key.expose(), b"\n"])?);
        }
        let certificates = issued.certificates_pem(arguments.chain);
        staged.push(
            lock.stage(&self.certificate, FileContent::Public, on_existing)?
                .with_content(&[certificates.as_bytes()])?,
        );
        let authorities = issued.authorities();
        let (ca, on_existing) = self.authority(authorities.as_bytes(), arguments.existing);
        if let Some(on_existing) = on_existing {
            staged.push(lock.stage(ca, FileContent::Public, on_existing)?.with_content(&[authorities.as_bytes()])?);
        }
        staged.into_iter().try_for_each(StagedFile::persist)?;
        Ok(ca.clone())
    }

    /// Returns the file for the CA certificates: `ca.pem`, or NAME-ca.pem if `ca.pem` exists with other contents. The
    /// second value says how to treat an existing file; `None` if the file already contains exactly these CA
    /// certificates.
    fn authority(&self, authorities: &[u8], existing: ExistingPolicy) -> (&PathBuf, Option<OnExisting>) {
        let has = |file: &Path| read_text(OUT_ARGUMENT, file).is_ok_and(|text| text.expose() == authorities);
        match existing {
            _ if has(&self.ca) => (&self.ca, None),
            _ if !path_exists(&self.ca) => (&self.ca, Some(OnExisting::Reject)),
            ExistingPolicy::Keep | ExistingPolicy::Replace if is_empty(&self.ca) => {
                (&self.ca, Some(OnExisting::RejectUnlessEmpty))
            }
            ExistingPolicy::Refuse => (&self.separate_ca, Some(OnExisting::Reject)),
            ExistingPolicy::Keep | ExistingPolicy::Replace => (&self.separate_ca, Some(OnExisting::Replace)),
        }
    }
}

/// `true` if the file exists and is not empty, so that `--existing keep` keeps it.
fn has_content(file: &Path) -> bool {
    path_exists(file) && !is_empty(file)
}

/// Returns the warnings for an existing certificate that is kept: it has expired, or it lacks some of the requested
/// names.
fn kept_file_warnings(files: &IssueFiles, leaf: &PemCertificate, names: &TypedNames) -> Result<Vec<String>> {
    let file = files.certificate.display();
    let leaf = &leaf.certificate;
    let mut lacking = Vec::new();
    if leaf.not_after() < Clock::system().now().unix_timestamp() {
        lacking.push(format!(
            "{file}: kept, but it expired on {}; use signet renew or --existing replace for a new certificate",
            format_time(leaf.not_after())
        ));
    }
    let missing = names.difference(&TypedNames::with(leaf.common_name(), leaf.sans()?));
    if !missing.is_empty() {
        let missing = missing.join(", ");
        lacking.push(format!("{file}: kept, but it lacks {missing}; use --existing replace for a new certificate"));
    }
    Ok(lacking)
}

pub(super) fn format_time(seconds: i64) -> String {
    Time::from_unix_timestamp(seconds).map(format_rfc3339).unwrap_or_default()
}

fn print_issued(files: &IssueFiles, issued: &ReceivedCertificate, ca: &Path, has_key: bool) -> Result<()> {
    let mut result_json = issued.to_json();
    result_json["certificate"] = json!(files.certificate);
    result_json["key"] = if has_key { json!(files.key) } else { json!(null) };
    result_json["authority"] = json!(ca);
    result_json["kept"] = false.into();
    let mut lines = vec![("certificate:", files.certificate.display().to_string())];
    if has_key {
        lines.push(("key:", files.key.display().to_string()));
    }
    lines.push(("authority:", ca.display().to_string()));
    lines.push(("valid until:", format_time(issued.leaf.certificate.not_after())));
    lines.extend(issued.renew_after.map(|at| ("renew after:", format_time(at))));
    let lines: Vec<String> = lines.iter().map(|(name, text)| format!("{name:<12} {text}")).collect();
    output::print_result_with_warnings(&result_json, lines.join("\n"), &issued.warnings)
}

fn print_kept(files: &IssueFiles, leaf: &PemCertificate, warnings: &[String]) -> Result<()> {
    let not_after = format_time(leaf.certificate.not_after());
    let result_json = json!({
        "certificate": files.certificate,
        "serial_number": leaf.certificate.serial().to_string(),
        "not_after": not_after,
        "kept": true,
        "warnings": warnings,
    });
    let text = format!("{} is kept; valid until {not_after}", files.certificate.display());
    output::print_result_with_warnings(&result_json, text, warnings)
}
