//! `signet issue`: gets a certificate and writes NAME.pem, NAME-key.pem and ca.pem.
//!
//! The key is made here and never leaves, unless `--server-key` has the server make it, or `--csr` brings the request of
//! a key that is elsewhere. NAME.pem holds the certificate and the authorities above it but the root, as servers show
//! them; ca.pem holds all of them, for those who verify.
//!
//! What happens to files that are there is said by `--existing`. They are looked at, and it is tried whether others can
//! be made in their place, before the server is asked, so that no certificate is issued for nothing. A `ca.pem` that is
//! there may stay when it holds the same authority (several names in one folder); otherwise the authority goes to
//! NAME-ca.pem.

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

/// Longest file of a key, a certificate or a request that is read, octets.
const LONGEST_FILE: u64 = 1 << 20;

/// Names of an earlier certificate and its key in messages.
const OUT: &str = "--out";
const KEY_FILE: &str = "--existing keep";

/// Most kinds of key that a role is offered: the usual one, its type, its size.
const KINDS: usize = 3;

/// The arguments of `signet issue`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The names of the certificate: DNS names, IP addresses, URIs and mailboxes, told apart by their form. Files are
    /// called after the first one.
    #[arg(value_name = "NAME", required_unless_present = "csr")]
    names: Vec<String>,
    #[command(flatten)]
    authority: Authority,
    /// Further names, joined by commas.
    #[arg(long, help_heading = "Names and key")]
    alt_names: Option<String>,
    /// A request of a key that is elsewhere, PEM; names beside it are for roles that do not take those of requests.
    #[arg(long, value_name = "FILE", help_heading = "Names and key")]
    csr: Option<PathBuf>,
    /// Have the server make the key (`issue` instead of `sign`), by the role's key type.
    #[arg(long, conflicts_with_all = ["csr", "key_type", "key_bits"], help_heading = "Names and key")]
    server_key: bool,
    /// The type of the key that is made here: ec, rsa or ed25519. Without it ec, or what the role wants.
    #[arg(long, conflicts_with = "csr", help_heading = "Names and key")]
    key_type: Option<String>,
    /// Its size; the usual one of the type, or what the role wants.
    #[arg(long, conflicts_with = "csr", help_heading = "Names and key")]
    key_bits: Option<i64>,
    /// The folder to write to.
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = "Files")]
    out: PathBuf,
    /// What happens to files of the name that are there: nothing is done, what is missing is made (a certificate for the
    /// key that is there), or they are replaced whole, with their owner.
    #[arg(long, value_enum, default_value_t, help_heading = "Files")]
    existing: Existing,
    /// What NAME.pem holds beside the certificate.
    #[arg(long, value_enum, default_value_t, help_heading = "Files")]
    chain: Chain,
}

/// What happens to files that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Existing {
    /// Refuse.
    #[default]
    Refuse,
    /// They stay, and what is missing is made. An empty one, as a disk that was full left it, is missing.
    Keep,
    /// They are replaced.
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

/// Asks for the certificate and writes the files.
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

/// A key that is made or taken here, and its text where it is to be written.
type Own = (PrivateKey, Option<Secret>);

/// What is asked for.
struct Order {
    names: Names,
    /// What files are called.
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

    /// Whether a file with a key belongs to the certificate.
    fn needs_key(&self) -> bool {
        self.request.is_none()
    }

    /// The key that is made or taken here, and its text where it is to be written.
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

    /// Asks. A role that wants another kind of key than is usual gets one of its kind, unless the kind was given.
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

/// A private key in a file that `named_by` names.
///
/// # Errors
/// `Invalid` when there is none in it that can be read.
pub(super) fn read_key(named_by: &str, file: &Path) -> Result<PrivateKey> {
    let text = read_text(named_by, file)?;
    let key = text.expose_text().ok_or_else(|| Error::invalid("private key: not PEM")).and_then(PrivateKey::from_pem);
    key.map_err(|e| e.within(&file.display().to_string()))
}

/// The first certificate in a file that `named_by` names.
///
/// # Errors
/// `Invalid` when there is none.
pub(super) fn read_leaf(named_by: &str, file: &Path) -> Result<Link> {
    let text = read_text(named_by, file)?;
    let link = text.expose_text().ok_or_else(|| Error::invalid("not PEM")).and_then(Link::read);
    link.map_err(|e| e.within(&file.display().to_string()))
}

/// The content of a file that `named_by` names: a flag, setting or argument.
///
/// # Errors
/// `Invalid` when it does not exist or is too long, `Unavailable` when it cannot be read.
pub(super) fn read_text(named_by: &str, file: &Path) -> Result<Secret> {
    text_of(named_by, std::fs::File::open(file).map_err(|e| Error::of_file(named_by, file, "read", e))?, file)
}

/// As [`read_text`], of a file that is open.
pub(super) fn text_of(named_by: &str, opened: std::fs::File, file: &Path) -> Result<Secret> {
    use std::io::Read as _;
    // Of a pipe nobody knows the length, and bytes that grow leave copies behind.
    let mut bytes = Vec::with_capacity(LONGEST_FILE as usize + 1);
    let read = opened.take(LONGEST_FILE + 1).read_to_end(&mut bytes);
    let text = Secret::new(bytes);
    match read.map_err(|e| Error::of_file(named_by, file, "read", e))? as u64 {
        ..=LONGEST_FILE => Ok(text),
        _ => Err(Error::invalid(format!("{}: is longer than 1 MiB", file.display()))),
    }
}

/// Where the results go.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    ca: PathBuf,
    own_ca: PathBuf,
}

/// What stays of the files that are there.
enum Kept {
    Nothing,
    /// A key, for which a certificate is made.
    Key(PathBuf),
    /// Everything: nothing is to be done.
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

    /// Tries whether they can be written.
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

    /// Writes them, and says which one has the authority. A key comes first: without it the rest is worth nothing.
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
        // Everything is written before anything takes its place.
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

    /// The file that has these authorities, and how it is written where it does not have them yet. Of what is there it
    /// counts alone whether it is the same.
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

/// Whether a file is there that `--existing keep` leaves alone.
fn is_kept(file: &Path) -> bool {
    is_there(file) && !is_empty(file)
}

/// What a certificate that is kept lacks of what was asked for.
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

/// A time for people.
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
