//! `signet issue`: requests a certificate and writes NAME.pem, NAME-key.pem and ca.pem.
//!
//! The key is generated here and never sent, except with `--server-key` (the server generates it) or `--csr` (the key
//! is elsewhere). NAME.pem contains the certificate and the intermediate authorities; ca.pem contains all authorities.
//! `--existing` decides about existing files. Before the request, the command checks that all files can be written, so
//! that no certificate is issued in vain. An existing `ca.pem` stays; if it has other contents, the authorities are
//! written to NAME-ca.pem.

use std::path::{Path, PathBuf};

use serde_json::json;
use signet::clock::{Clock, Time, rfc3339};
use signet::error::{Error, Kind, Result};
use signet::keys::PrivateKey;
use signet::secret::Secret;

use super::certify::{Authority, Chain, Issued, Link, Request, Subject, new_key, wanted_kind};
use super::files::{Content, FolderLock, Staged, There, exists, is_empty, is_there};
use super::names::Names;
use super::output;

/// Maximum size of a key, certificate or request file, in bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// Arguments that name an earlier certificate and its key, for messages.
const OUT: &str = "--out";
const KEY_FILE: &str = "--existing keep";

/// Maximum number of key types that are tried with a role: the default, its type, its size.
const KINDS: usize = 3;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Names of the certificate: DNS names, IP addresses, URIs and mailboxes, recognized by their form. The first
    /// one names the files.
    #[arg(value_name = "NAME", required_unless_present = "csr")]
    names: Vec<String>,
    #[command(flatten)]
    authority: Authority,
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
    existing: Existing,
    /// Certificates in NAME.pem after the certificate itself.
    #[arg(long, value_enum, default_value_t, help_heading = "Files")]
    chain: Chain,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Existing {
    /// Refuse to run.
    #[default]
    Refuse,
    /// Keep them and create missing ones. An empty file, as left by a full disk, counts as missing.
    Keep,
    /// Replace them.
    Replace,
}

impl Existing {
    fn there(self) -> There {
        match self {
            Self::Refuse => There::Stays,
            Self::Keep => There::StaysUnlessEmpty,
            Self::Replace => There::IsReplaced,
        }
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let order = Order::of(&arguments)?;
    let files = Files::of(&arguments, &order)?;
    let kept = files.look(arguments.existing, order.needs_key())?;
    if let Kept::All(leaf) = &kept {
        return tell_kept(&files, leaf, &lacking(&files, leaf, &order.names)?);
    }
    files.attempt(arguments.existing, order.needs_key() && matches!(kept, Kept::Nothing)).await?;
    let mut own = order.key(&arguments, &kept)?;
    let issued = order.certified(&arguments, &mut own).await?;
    let made = own.and_then(|(_, text)| text);
    let key = made.as_ref().or(issued.key.as_ref());
    let ca = files.write(&issued, key, &kept, &arguments).await?;
    tell(&files, &issued, &ca, order.needs_key())
}

/// A key that is generated or read here, with its text if it will be written.
type Own = (PrivateKey, Option<Secret>);

/// The requested certificate.
struct Order {
    names: Names,
    /// The base of the file names.
    called: String,
    request: Option<Request>,
    server_key: bool,
}

impl Order {
    fn of(arguments: &Arguments) -> Result<Self> {
        let more = arguments.alt_names.iter().flat_map(|names| names.split(',')).map(str::trim);
        let texts = arguments.names.iter().map(String::as_str).chain(more.filter(|name| !name.is_empty()));
        let called = arguments.names.first().map(|first| Names::file_name(first)).transpose()?;
        let mut names = Names::of(texts)?;
        let request = arguments.csr.as_deref().map(read_request).transpose()?;
        if let Some(request) = &request
            && names.is_empty()
        {
            names = request.names.clone();
        }
        let first = || [&names.dns, &names.emails, &names.uris].into_iter().flatten().next().map(String::as_str);
        let called = match called {
            Some(called) => called,
            None if !names.common_name.is_empty() => Names::file_name(&names.common_name)?,
            None => Names::file_name(first().unwrap_or_default())?,
        };
        Ok(Self { names, called, request, server_key: arguments.server_key })
    }

    fn needs_key(&self) -> bool {
        self.request.is_none()
    }

    fn key(&self, arguments: &Arguments, kept: &Kept) -> Result<Option<Own>> {
        if self.request.is_some() {
            return Ok(None);
        }
        match kept {
            Kept::Key(file) => Ok(Some((read_key(KEY_FILE, file)?, None))),
            _ if self.server_key => Ok(None),
            _ => {
                let kind = arguments.key_type.as_deref().unwrap_or("ec");
                new_key(kind, arguments.key_bits.unwrap_or_default()).map(|(key, text)| Some((key, Some(text))))
            }
        }
    }

    /// Requests the certificate. Unless the type of key was given, retries with the type that the role requires.
    async fn certified(&self, arguments: &Arguments, own: &mut Option<Own>) -> Result<Issued> {
        let authority = &arguments.authority;
        for _ in 0..KINDS {
            let asked = match (&self.request, &*own) {
                (Some(request), _) => authority.certify(&Subject::Request(request), &self.names).await,
                (None, Some((key, _))) => {
                    let request = Request::new(key, &self.names.subject(), &self.names.extension())?;
                    authority.certify(&Subject::Request(&request), &self.names).await
                }
                (None, None) => authority.certify(&Subject::ServerKey, &self.names).await,
            };
            let refused = match asked {
                Ok(issued) => return Ok(issued),
                Err(refusal) => refusal.error,
            };
            let is_given = arguments.key_type.is_some() || arguments.key_bits.is_some();
            let made = own.as_ref().filter(|(_, text)| text.is_some() && !is_given);
            match made.and_then(|(key, _)| wanted_kind(&refused, key.kind())) {
                Some((kind, bits)) => *own = new_key(kind, bits).map(|(key, text)| Some((key, Some(text))))?,
                None => return Err(refused),
            }
        }
        Err(Error::new(Kind::BadGateway, "the role takes no kind of key that it says it wants"))
    }
}

fn read_request(file: &Path) -> Result<Request> {
    let text = read_text("--csr", file)?;
    Request::read(&String::from_utf8_lossy(text.expose())).map_err(|e| e.within(&file.display().to_string()))
}

/// Reads a private key from a file. `named_by` is the argument that names the file.
///
/// # Errors
/// `Invalid` without a usable key.
pub(super) fn read_key(named_by: &str, file: &Path) -> Result<PrivateKey> {
    let text = read_text(named_by, file)?;
    let key = text.expose_text().ok_or_else(|| Error::invalid("private key: not PEM")).and_then(PrivateKey::from_pem);
    key.map_err(|e| e.within(&file.display().to_string()))
}

/// Reads the first certificate from a file. `named_by` is the argument that names the file.
///
/// # Errors
/// `Invalid` without a certificate.
pub(super) fn read_leaf(named_by: &str, file: &Path) -> Result<Link> {
    let text = read_text(named_by, file)?;
    let link = text.expose_text().ok_or_else(|| Error::invalid("not PEM")).and_then(Link::read);
    link.map_err(|e| e.within(&file.display().to_string()))
}

/// Reads a file. `named_by` is the argument or setting that names it.
///
/// # Errors
/// `Invalid` when it does not exist or is too long, `Unavailable` when it cannot be read.
pub(super) fn read_text(named_by: &str, file: &Path) -> Result<Secret> {
    text_of(named_by, std::fs::File::open(file).map_err(|e| Error::of_file(named_by, file, "read", e))?, file)
}

/// As [`read_text`], for an open file.
pub(super) fn text_of(named_by: &str, opened: std::fs::File, file: &Path) -> Result<Secret> {
    use std::io::Read as _;
    // Allocated in full: the length of a pipe is unknown, and a growing buffer leaves copies of secrets in memory.
    let mut bytes = Vec::with_capacity(LONGEST_FILE as usize + 1);
    let read = opened.take(LONGEST_FILE + 1).read_to_end(&mut bytes);
    let text = Secret::new(bytes);
    match read.map_err(|e| Error::of_file(named_by, file, "read", e))? as u64 {
        ..=LONGEST_FILE => Ok(text),
        _ => Err(Error::invalid(format!("{}: is longer than 1 MiB", file.display()))),
    }
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    ca: PathBuf,
    own_ca: PathBuf,
}

enum Kept {
    Nothing,
    /// A key for which a certificate is requested.
    Key(PathBuf),
    /// All files, so nothing is to be done.
    All(Box<Link>),
}

impl Files {
    fn of(arguments: &Arguments, order: &Order) -> Result<Self> {
        if !arguments.out.is_dir() {
            return Err(Error::invalid(format!("--out: {} is no folder", arguments.out.display())));
        }
        let file = |suffix: &str| arguments.out.join(format!("{}{suffix}.pem", order.called));
        Ok(Self { certificate: file(""), key: file("-key"), ca: arguments.out.join("ca.pem"), own_ca: file("-ca") })
    }

    fn look(&self, existing: Existing, needs_key: bool) -> Result<Kept> {
        match existing {
            Existing::Replace => Ok(Kept::Nothing),
            Existing::Refuse => {
                let key = needs_key.then_some(&self.key);
                let mut own = [&self.certificate, &self.own_ca].into_iter().chain(key);
                own.find(|file| is_there(file)).map_or(Ok(Kept::Nothing), |file| {
                    let text = format!("{} (--existing keep or replace says otherwise)", exists(file).text());
                    Err(Error::new(Kind::Conflict, text))
                })
            }
            Existing::Keep => match (is_kept(&self.certificate), is_kept(&self.key)) {
                (true, false) if needs_key => {
                    let text = format!(
                        "{} is there, and {} is not: a certificate without its key is of no use (--existing replace \
                         makes both)",
                        self.certificate.display(),
                        self.key.display()
                    );
                    Err(Error::new(Kind::Conflict, text))
                }
                (true, _) => {
                    let leaf = read_leaf(OUT, &self.certificate)?;
                    if needs_key && read_key(KEY_FILE, &self.key)?.public().spki() != leaf.certificate.key().spki() {
                        let text = format!("{} is no key of {}", self.key.display(), self.certificate.display());
                        return Err(Error::new(Kind::Conflict, text));
                    }
                    Ok(Kept::All(Box::new(leaf)))
                }
                (false, true) if needs_key => Ok(Kept::Key(self.key.clone())),
                (false, _) => Ok(Kept::Nothing),
            },
        }
    }

    async fn attempt(&self, existing: Existing, has_key: bool) -> Result<()> {
        let (lock, there) = (FolderLock::of(&self.certificate).await?, existing.there());
        let mut tried = vec![lock.stage(&self.certificate, Content::Public, there)?];
        if has_key {
            tried.push(lock.stage(&self.key, Content::Secret, there)?);
        }
        let (ca, there) = if is_there(&self.ca) { (&self.own_ca, There::IsReplaced) } else { (&self.ca, There::Stays) };
        tried.push(lock.stage(ca, Content::Public, there)?);
        Ok(())
    }

    /// Writes the files and returns the path of the authorities. The key is placed first, because the rest
    /// is useless without it.
    async fn write(
        &self,
        issued: &Issued,
        key: Option<&Secret>,
        kept: &Kept,
        arguments: &Arguments,
    ) -> Result<PathBuf> {
        let (lock, there) = (FolderLock::awaited(&self.certificate).await?, arguments.existing.there());
        if let Kept::Key(file) = kept
            && read_key(KEY_FILE, file)?.public().spki() != issued.leaf.certificate.key().spki()
        {
            let text = format!("{}: another command replaced it meanwhile", file.display());
            return Err(Error::new(Kind::Conflict, text));
        }
        // Everything is written before any file is placed.
        let mut staged = Vec::new();
        if let Some(key) = key {
            staged.push(lock.stage(&self.key, Content::Secret, there)?.filled(&[key.expose(), b"\n"])?);
        }
        let certificates = issued.certificates(arguments.chain);
        staged.push(lock.stage(&self.certificate, Content::Public, there)?.filled(&[certificates.as_bytes()])?);
        let authorities = issued.authorities();
        let (ca, there) = self.authority(authorities.as_bytes(), arguments.existing);
        if let Some(there) = there {
            staged.push(lock.stage(ca, Content::Public, there)?.filled(&[authorities.as_bytes()])?);
        }
        staged.into_iter().try_for_each(Staged::place)?;
        Ok(ca.clone())
    }

    /// Returns the file for the authorities, and how to write it if it does not contain them yet. An existing file with
    /// other contents stays.
    fn authority(&self, authorities: &[u8], existing: Existing) -> (&PathBuf, Option<There>) {
        let has = |file: &Path| read_text(OUT, file).is_ok_and(|text| text.expose() == authorities);
        match existing {
            _ if has(&self.ca) => (&self.ca, None),
            _ if !is_there(&self.ca) => (&self.ca, Some(There::Stays)),
            Existing::Keep | Existing::Replace if is_empty(&self.ca) => (&self.ca, Some(There::StaysUnlessEmpty)),
            Existing::Refuse => (&self.own_ca, Some(There::Stays)),
            Existing::Keep | Existing::Replace => (&self.own_ca, Some(There::IsReplaced)),
        }
    }
}

/// `true` if `--existing keep` keeps the file.
fn is_kept(file: &Path) -> bool {
    is_there(file) && !is_empty(file)
}

/// Warnings about a certificate that is kept: expired, or without some of the requested names.
fn lacking(files: &Files, leaf: &Link, names: &Names) -> Result<Vec<String>> {
    let (file, leaf) = (files.certificate.display(), &leaf.certificate);
    let mut lacking = Vec::new();
    if leaf.not_after() < Clock::system().now().unix_timestamp() {
        lacking.push(format!(
            "{file}: is kept, and has expired on {} (signet renew, or --existing replace, makes the next)",
            day(leaf.not_after())
        ));
    }
    let missing = names.beyond(&Names::with(leaf.common_name(), leaf.sans()?));
    if !missing.is_empty() {
        let missing = missing.join(", ");
        lacking.push(format!("{file}: is kept, and is not for {missing} (--existing replace makes one that is)"));
    }
    Ok(lacking)
}

pub(super) fn day(seconds: i64) -> String {
    Time::from_unix_timestamp(seconds).map(rfc3339).unwrap_or_default()
}

fn tell(files: &Files, issued: &Issued, ca: &Path, has_key: bool) -> Result<()> {
    let mut told = issued.told();
    told["certificate"] = json!(files.certificate);
    told["key"] = if has_key { json!(files.key) } else { json!(null) };
    told["authority"] = json!(ca);
    told["kept"] = false.into();
    let mut lines = vec![("certificate:", files.certificate.display().to_string())];
    if has_key {
        lines.push(("key:", files.key.display().to_string()));
    }
    lines.push(("authority:", ca.display().to_string()));
    lines.push(("valid until:", day(issued.leaf.certificate.not_after())));
    lines.extend(issued.renew_after.map(|at| ("renew after:", day(at))));
    let lines: Vec<String> = lines.iter().map(|(name, text)| format!("{name:<12} {text}")).collect();
    output::result_with_warnings(&told, lines.join("\n"), &issued.warnings)
}

fn tell_kept(files: &Files, leaf: &Link, warnings: &[String]) -> Result<()> {
    let not_after = day(leaf.certificate.not_after());
    let told = json!({
        "certificate": files.certificate,
        "serial_number": leaf.certificate.serial().to_string(),
        "not_after": not_after,
        "kept": true,
        "warnings": warnings,
    });
    let text = format!("{} is kept; valid until {not_after}", files.certificate.display());
    output::result_with_warnings(&told, text, warnings)
}
