//! `signet renew`: the next certificate in the place of one that is about to end, with its names and a new key of its
//! kind; once, or as a service.
//!
//! When that is: after two thirds of the certificate's life, or as `--before` says, up to a twentieth of the life earlier,
//! as the serial number has it, so that certificates that were made together are not renewed together. The server's own
//! word (`renew_after`) is of the same kind, and counts for the certificates that this process renewed itself. A key that
//! is not the certificate's, as a crash between two renames leaves it, makes it due at once.
//!
//! A new certificate replaces the old one only if it is for the same names, is signed by the authority that came with
//! it, and is valid now and no shorter than the old one (`Successor`).
//!
//! Files are replaced whole. The new ones are made, still empty, before the server is asked: what is in their way costs no
//! certificate. What `--exec` names is run when they are in place, by the shell and without the token; a
//! note beside the certificate keeps in mind that it is still to be run, so that one that failed is run again. What it
//! prints goes to standard error: standard output has the lines about certificates and nothing else.
//!
//! A service tries again by itself, later each time and when the server wants to be asked, and yet several times before
//! the certificate ends. A signal ends whatever it waits for. Files are replaced without waiting, so that no signal comes
//! between them; a command that runs is given [`GRACE`], and is otherwise ended and run again by the next `renew`; so
//! is that of a `renew` without a service.

mod running;
mod service_token;
mod successor;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signet::clock::{Clock, parse_duration};
use signet::error::{Error, Kind, Result, io_words};
use signet::keys::PrivateKey;
use signet::secret::Secret;
use signet::server::Signals;
use signet::x509::pieces::Extensions;
use signet::x509::{oid, pem};

use super::certify::{Authority, Chain, Issued, Link, Refusal, Request, Subject, new_key};
use super::client::later;
use super::files::{Content, FolderLock, Staged, There, folder_of, is_there};
use super::issue::{day, read_key, read_leaf, read_text, text_of};
use super::output;
use running::Running;
use service_token::{Login, TokenKeeper, keep};
use successor::Successor;

/// Names of a certificate, its key and its authorities in messages.
const FILE: &str = "FILE";
const KEY: &str = "--key";
const CA: &str = "--ca";
/// The share of a life by which times of renewal are apart at most: one in so many.
const APART: i64 = 20;
/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// The share of what is left of a certificate that passes at most before the next try, one in so many; and the longest
/// pause after its end.
const TRIES: u64 = 10;
const OVERDUE: Duration = Duration::from_secs(60);
/// Longest time that a service does not look at its files.
const LOOK: Duration = Duration::from_secs(3600);
/// How long a command that runs has to end when a service ends.
const GRACE: Duration = Duration::from_secs(5);

/// The arguments of `signet renew`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Certificates, each with its key in NAME-key.pem beside NAME.pem.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The file of the key, where it is another one.
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    key: Option<PathBuf>,
    /// The file of the authorities, to which a new one is added; NAME-ca.pem or ca.pem beside the certificate, where
    /// there is one.
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    authority: Authority,
    #[command(flatten)]
    login: Login,
    /// How long before the end: a share of the life, or a duration such as 24h.
    #[arg(long, value_name = "SHARE", default_value = "1/3", help_heading = "Time")]
    before: Before,
    /// Renew now, whatever the certificate's age.
    #[arg(long, conflicts_with = "service", help_heading = "Time")]
    force: bool,
    /// Keep the key.
    #[arg(long, help_heading = "Files")]
    reuse_key: bool,
    /// What a certificate's file holds beside the certificate.
    #[arg(long, value_enum, default_value_t, help_heading = "Files")]
    chain: Chain,
    /// A command for the shell, to be run when certificates have been replaced. What it prints goes to standard error.
    #[arg(long, value_name = "COMMAND", help_heading = "Command")]
    exec: Option<String>,
    /// How long that command may take.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::client::duration)]
    #[arg(help_heading = "Command")]
    exec_timeout: Duration,
    /// Go on, and renew whenever it is time.
    #[arg(long, help_heading = "Time")]
    service: bool,
}

/// How long before its end a certificate is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// A share of its life.
    Share(u32, u32),
    /// A time.
    Time(Duration),
}

impl FromStr for Before {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let rule = "must be a share of the life between 0 and 1, such as 1/3, or a duration such as 24h";
        if let Some((part, whole)) = text.split_once('/') {
            return match (part.trim().parse(), whole.trim().parse()) {
                (Ok(part), Ok(whole)) if 0 < part && part < whole => Ok(Self::Share(part, whole)),
                _ => Err(rule),
            };
        }
        parse_duration(text).filter(|time| !time.is_zero()).map(Self::Time).ok_or(rule)
    }
}

impl Before {
    /// When a certificate is to be renewed, epoch seconds.
    fn due(self, serial: &[u8], not_before: i64, not_after: i64) -> i64 {
        let life = not_after.saturating_sub(not_before).max(0);
        let ahead = match self {
            Self::Share(part, whole) => (i128::from(life) * i128::from(part) / i128::from(whole)) as i64,
            Self::Time(time) => i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        };
        let tail = serial.iter().rev().take(2).fold(0, |tail, octet| tail << 8 | i64::from(*octet));
        not_after.saturating_sub(ahead).saturating_sub(life / APART * tail / (1 << 16))
    }
}

/// Renews what is due.
pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    if arguments.files.len() > 1 && (arguments.key.is_some() || arguments.ca.is_some()) {
        return Err(Error::invalid("--key and --ca: are for one FILE"));
    }
    let mut pairs = arguments.files.iter().map(|file| Pair::of(file, &arguments)).collect::<Result<Vec<_>>>()?;
    if arguments.service { serve(&arguments, &mut pairs).await } else { once(&arguments, &mut pairs).await }
}

/// One certificate and what belongs to it.
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
    /// What the server said of the certificate that was renewed last: its serial number's octets, and when.
    told: Option<(Vec<u8>, i64)>,
    failures: u32,
    /// Not tried again before.
    rest_until: Option<Instant>,
}

/// How a certificate stands.
struct Standing {
    leaf: Link,
    key: PrivateKey,
    /// When it is to be renewed, epoch seconds.
    due: i64,
}

impl Pair {
    fn of(file: &Path, arguments: &Arguments) -> Result<Self> {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.strip_suffix(".pem").unwrap_or(name);
        let beside = |suffix: &str| file.with_file_name(format!("{stem}{suffix}.pem"));
        let ca = [beside("-ca"), file.with_file_name("ca.pem")];
        if stem.is_empty() {
            return Err(Error::invalid(format!("FILE: {} is no file of a certificate", file.display())));
        }
        Ok(Self {
            certificate: file.to_owned(),
            key: arguments.key.clone().unwrap_or_else(|| beside("-key")),
            ca: arguments.ca.clone().or_else(|| ca.into_iter().find(|ca| ca.exists())),
            told: None,
            failures: 0,
            rest_until: None,
        })
    }

    /// The note that `--exec` is still to be run.
    fn note(&self) -> PathBuf {
        let name = self.certificate.file_name().unwrap_or_default().to_string_lossy();
        folder_of(&self.certificate).join(format!(".{name}.exec"))
    }

    fn standing(&self, before: Before) -> Result<Standing> {
        let leaf = read_leaf(FILE, &self.certificate)?;
        if holds_key(&self.certificate)? {
            let text = format!(
                "{}: holds a private key; key and certificate must be in files of their own",
                self.certificate.display()
            );
            return Err(Error::invalid(text));
        }
        let key = read_key(KEY, &self.key)?;
        let (serial, certificate) = (leaf.certificate.serial(), &leaf.certificate);
        let told = self.told.as_ref().filter(|(of, _)| of == serial.octets() && before == Before::Share(1, 3));
        let due = match told {
            _ if key.public().spki() != certificate.key().spki() => i64::MIN,
            Some((_, told)) => *told,
            None => before.due(serial.octets(), certificate.not_before(), certificate.not_after()),
        };
        Ok(Standing { leaf, key, due })
    }

    /// Replaces certificate and key.
    async fn renew(&mut self, arguments: &Arguments, standing: &Standing) -> std::result::Result<Issued, Refusal> {
        let lock = FolderLock::of(&self.certificate).await?;
        self.still(standing)?;
        let (places, old, kind) = (self.places(&lock, arguments)?, &standing.leaf.certificate, standing.key.kind());
        let new = if arguments.reuse_key { None } else { Some(new_key(kind.name(), kind.bits().into())?) };
        let key = new.as_ref().map_or(&standing.key, |(key, _)| key);
        let sans = old.extension(oid::SUBJECT_ALT_NAME).map_or_else(Extensions::default, |sans| sans.raw.clone());
        let request = Request::new(key, old.subject(), &sans)?;
        let names = request.names.clone();
        let mut issued = arguments.authority.certify(&Subject::Request(&request), &names).await?;
        let successor = Successor { old, issued: &issued };
        successor.require_names().map_err(Refusal::useless)?;
        successor.require_validity(now()).map_err(Refusal::useless)?;
        // A certificate without its key is no good one, and whoever asks for a shorter life gets it.
        if standing.due != i64::MIN && !arguments.force && arguments.authority.ttl.is_none() {
            successor.require_life().map_err(Refusal::useless)?;
        }
        if successor.has_more_names()? {
            issued.warnings.push(format!("{}: has more names than before", self.certificate.display()));
        }
        places.take(&mut issued, new.as_ref().map(|(_, text)| text), arguments.chain)?;
        self.told = issued.renew_after.map(|at| (issued.leaf.certificate.serial().octets().to_vec(), at));
        Ok(issued)
    }

    /// That what was looked at is what is there, now that nobody else replaces it.
    fn still(&self, standing: &Standing) -> Result<()> {
        let (leaf, key) = (read_leaf(FILE, &self.certificate)?, read_key(KEY, &self.key)?);
        if (leaf.certificate.der(), key.public().spki())
            != (standing.leaf.certificate.der(), standing.key.public().spki())
        {
            let text = format!("{}: another command replaced it meanwhile", self.certificate.display());
            return Err(Error::new(Kind::Conflict, text));
        }
        Ok(())
    }

    /// Makes the files that are to take their places.
    fn places(&self, lock: &FolderLock, arguments: &Arguments) -> Result<Places> {
        let stage = |file: &Path, content| lock.stage(file, content, There::IsReplaced);
        let ca = self.ca.as_ref().filter(|file| file.exists());
        let note = self.note();
        Ok(Places {
            ca: ca.map(|file| Authorities::read(file, stage(file, Content::Public))).transpose()?,
            key: if arguments.reuse_key { None } else { Some(stage(&self.key, Content::Secret)?) },
            certificate: stage(&self.certificate, Content::Public)?,
            note: arguments.exec.as_ref().map(|_| lock.stage(&note, Content::Public, There::Goes)).transpose()?,
        })
    }

    /// How many seconds are left of the certificate.
    fn left(&self) -> i64 {
        let ends = read_leaf(FILE, &self.certificate).map_or(i64::MAX, |leaf| leaf.certificate.not_after());
        ends.saturating_sub(now())
    }

    /// Lets it rest after a failure, as the server wants and what is left of the certificate allows; how long.
    fn rest(&mut self, wanted: Option<Duration>, left: i64) -> Duration {
        let wait = later(pause(self.failures, wanted, left));
        self.failures += 1;
        self.rest_until = Some(Instant::now() + wait);
        wait
    }
}

/// The files of a renewal, in the order in which they take their places.
struct Places {
    ca: Option<Authorities>,
    key: Option<Staged>,
    certificate: Staged,
    note: Option<Staged>,
}

impl Places {
    /// Key and certificate are written before anything takes its place, and the note is there before what it is about.
    fn take(self, issued: &mut Issued, key: Option<&Secret>, chain: Chain) -> Result<()> {
        let key = self.key.zip(key).map(|(file, key)| file.filled(&[key.expose(), b"\n"])).transpose()?;
        let certificate = self.certificate.filled(&[issued.certificates(chain).as_bytes()])?;
        self.note.map_or(Ok(()), Staged::place)?;
        if let Some(ca) = self.ca {
            ca.extend(issued);
        }
        key.into_iter().chain([certificate]).try_for_each(Staged::place)
    }
}

/// The file of the authorities.
struct Authorities {
    file: PathBuf,
    text: String,
    known: Vec<(String, Vec<u8>)>,
    /// What is to take its place. It may be a file of others, and is seldom to be replaced.
    next: Result<Staged>,
}

impl Authorities {
    fn read(file: &Path, next: Result<Staged>) -> Result<Self> {
        let text = match &next {
            Ok(next) => text_of(CA, next.before()?, file)?,
            Err(_) => read_text(CA, file)?,
        };
        let text = String::from_utf8_lossy(text.expose()).into_owned();
        let known = pem::blocks(&text).map_err(|e| e.within(&file.display().to_string()))?;
        Ok(Self { file: file.to_owned(), text, known, next })
    }

    /// Adds the authorities of the new chain that it lacks. Those before stay: certificates of theirs live on. Where it
    /// cannot be written the certificate is still good, and that is said.
    fn extend(self, issued: &mut Issued) {
        let Self { file, mut text, known, next } = self;
        let lacks = |link: &&Link| !known.iter().any(|(_, der)| der == link.certificate.der());
        let new: String = issued.chain.iter().filter(lacks).map(|link| link.text.as_str()).collect();
        if new.is_empty() {
            return;
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        match next.and_then(|next| next.filled(&[text.as_bytes(), new.as_bytes()])).and_then(Staged::place) {
            Ok(()) => issued.warnings.push(format!("{}: a new authority was added", file.display())),
            Err(error) => {
                issued.warnings.push(format!("{error}; a new authority is missing there, and has to be added"))
            }
        }
    }
}

/// How long to rest after so many failures before this one: longer each time, as long as the server wants at least, and no
/// longer than the seconds that are left of the certificate allow.
fn pause(failures: u32, wanted: Option<Duration>, left: i64) -> Duration {
    let most = match u64::try_from(left) {
        Ok(left) if left > 0 => Duration::from_secs(left / TRIES).clamp(PAUSES.0, PAUSES.1),
        _ => OVERDUE,
    };
    doubled(failures).max(wanted.unwrap_or_default()).min(most)
}

/// The pause after so many failures.
fn doubled(failures: u32) -> Duration {
    PAUSES.0.saturating_mul(1 << failures.min(12)).min(PAUSES.1)
}

fn holds_key(file: &Path) -> Result<bool> {
    let text = read_text(FILE, file)?;
    Ok(text.expose_text().is_some_and(|text| text.contains("PRIVATE KEY-----")))
}

fn now() -> i64 {
    Clock::system().now().unix_timestamp()
}

/// Looks at every certificate once.
async fn once(arguments: &Arguments, pairs: &mut [Pair]) -> Result<()> {
    let mut problems = Vec::new();
    if arguments.login.is_given() {
        keep(&arguments.login, &arguments.authority.caller).await?;
    }
    for pair in &mut *pairs {
        if let Err(refusal) = look_at(arguments, pair).await {
            let (file, text) = (pair.certificate.display().to_string(), refusal.error.text());
            problems.push(if text.contains(&file) { text.to_owned() } else { format!("{file}: {text}") });
        }
    }
    // From here on a signal ends the command as well, which has a process group of its own.
    let mut signals = Signals::watch()?;
    let mut running = pin!(execute(arguments, pairs));
    let executed = match until(&mut signals, &mut running).await {
        Some(executed) => executed,
        None => tokio::time::timeout(GRACE, running).await.unwrap_or_else(|_| Err(unfinished("was ended by a signal"))),
    };
    if let Err(error) = executed {
        problems.push(error.text().to_owned());
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::new(Kind::Unavailable, problems.join("\n"))),
    }
}

async fn look_at(arguments: &Arguments, pair: &mut Pair) -> std::result::Result<(), Refusal> {
    let standing = pair.standing(arguments.before)?;
    if !arguments.force && now() < standing.due {
        told(pair, &standing.leaf, None, Some(standing.due))?;
        return Ok(());
    }
    let issued = pair.renew(arguments, &standing).await?;
    let next = pair.standing(arguments.before).map_or(None, |standing| Some(standing.due));
    told(pair, &issued.leaf, Some(&issued), next)?;
    Ok(())
}

/// Says how a certificate stands, or what it was replaced by.
fn told(pair: &Pair, leaf: &Link, new: Option<&Issued>, due: Option<i64>) -> Result<()> {
    let file = pair.certificate.display();
    let not_after = day(leaf.certificate.not_after());
    let due = due.map(day).unwrap_or_default();
    let mut object = new.map_or_else(|| json!({ "not_after": not_after }), Issued::told);
    object["serial_number"] = leaf.certificate.serial().to_string().into();
    object["certificate"] = json!(pair.certificate);
    object["key"] = json!(pair.key);
    object["renewed"] = Value::Bool(new.is_some());
    object["due"] = json!(due);
    let word = if new.is_some() { "renewed, " } else { "" };
    let text = format!("{file}: {word}valid until {not_after}, to be renewed at {due}");
    output::result_with_warnings(&object, text, new.map_or(&[], |issued| &issued.warnings))
}

/// Runs `--exec`, when a certificate was replaced since it ran last.
async fn execute(arguments: &Arguments, pairs: &[Pair]) -> Result<()> {
    let Some(command) = &arguments.exec else { return Ok(()) };
    let notes: Vec<PathBuf> = pairs.iter().map(Pair::note).filter(|note| is_there(note)).collect();
    if notes.is_empty() {
        return Ok(());
    }
    let failed = |text: String| unfinished(&text);
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env_remove("SIGNET_TOKEN").env_remove("SIGNET_TOKEN_FILE").process_group(0);
    shell.stdout(std::io::stderr());
    let child = shell.spawn().map_err(|e| failed(format!("cannot be run ({})", io_words(e.kind()))))?;
    let status = Running(child).ended(arguments.exec_timeout).await.map_err(failed)?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    for note in notes {
        std::fs::remove_file(&note).map_err(|e| Error::unavailable(format!("{}: stays", note.display()), e))?;
    }
    Ok(())
}

/// That the command of `--exec` has not done its work.
fn unfinished(why: &str) -> Error {
    let text = format!("--exec: {why}; the certificates are in place, and it is run again by the next renew");
    Error::new(Kind::Unavailable, text)
}

/// Renews whenever it is time, until a signal comes.
async fn serve(arguments: &Arguments, pairs: &mut [Pair]) -> Result<()> {
    let mut signals = Signals::watch()?;
    let (mut command, mut token) = (Pause::default(), TokenKeeper::default());
    loop {
        let tended = token.tend(&arguments.login, &arguments.authority.caller);
        let Some(mut wait) = until(&mut signals, tended).await else { return Ok(()) };
        wait = wait.min(LOOK);
        for pair in &mut *pairs {
            // What a signal ends here is the question to the server: nothing is waited for afterwards.
            let Some(next) = until(&mut signals, turn(arguments, pair)).await else { return Ok(()) };
            wait = wait.min(next);
        }
        if pairs.iter().any(|pair| pair.failures > 0) {
            token.look_again();
        }
        let mut running = pin!(command.turn(arguments, pairs));
        let Some(next) = until(&mut signals, &mut running).await else {
            let _ = tokio::time::timeout(GRACE, running).await;
            return Ok(());
        };
        if until(&mut signals, tokio::time::sleep(wait.min(next))).await.is_none() {
            return Ok(());
        }
    }
}

/// What comes of some work; `None` when a signal comes before.
async fn until<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        // What is done counts, and is not dropped for a signal that came meanwhile.
        biased;
        done = work => Some(done),
        () = signals.stop() => None,
    }
}

/// One look of a service at a certificate; how long until the next.
async fn turn(arguments: &Arguments, pair: &mut Pair) -> Duration {
    if let Some(left) = pair.rest_until.and_then(|until| until.checked_duration_since(Instant::now())) {
        return left;
    }
    match look(arguments, pair).await {
        Ok(Looked::Early(wait)) => {
            (pair.failures, pair.rest_until) = (0, None);
            wait
        }
        Ok(Looked::Renewed { due, ends }) => {
            // One that is due as soon as it is made must not be renewed without end.
            let least = (ends.saturating_sub(now()) / APART).max(1);
            pair.failures = 0;
            pair.rest_until = Some(Instant::now() + Duration::from_secs(least.unsigned_abs()));
            Duration::from_secs(due.saturating_sub(now()).max(least).unsigned_abs())
        }
        Err(refusal) => {
            // Each try costs the server a certificate.
            let left = if refusal.is_useless { i64::MAX } else { pair.left() };
            failed(pair, &refusal.error, refusal.retry_after, left)
        }
    }
}

/// What a service has found or done.
enum Looked {
    /// It is not due for so long.
    Early(Duration),
    /// It is another certificate now, which is due and ends at these times, epoch seconds.
    Renewed { due: i64, ends: i64 },
}

async fn look(arguments: &Arguments, pair: &mut Pair) -> std::result::Result<Looked, Refusal> {
    let standing = pair.standing(arguments.before)?;
    let left = standing.due.saturating_sub(now());
    if left > 0 {
        return Ok(Looked::Early(Duration::from_secs(left.unsigned_abs())));
    }
    let issued = pair.renew(arguments, &standing).await?;
    let due = pair.standing(arguments.before)?.due;
    told(pair, &issued.leaf, Some(&issued), Some(due))?;
    Ok(Looked::Renewed { due, ends: issued.leaf.certificate.not_after() })
}

/// Says why a certificate is still to be renewed; how long it rests.
fn failed(pair: &mut Pair, error: &dyn std::fmt::Display, wanted: Option<Duration>, left: i64) -> Duration {
    let wait = pair.rest(wanted, left);
    let file = pair.certificate.display();
    tracing::warn!(%file, %error, seconds = wait.as_secs(), "not renewed; it is tried again");
    wait
}

/// What a service knows of a command that failed.
#[derive(Default)]
struct Pause {
    failures: u32,
    until: Option<Instant>,
}

impl Pause {
    /// Runs the command, when it is to be run; how long until the next look.
    async fn turn(&mut self, arguments: &Arguments, pairs: &[Pair]) -> Duration {
        if let Some(left) = self.until.and_then(|until| until.checked_duration_since(Instant::now())) {
            return left;
        }
        match execute(arguments, pairs).await {
            Ok(()) => {
                *self = Self::default();
                LOOK
            }
            Err(error) => {
                let wait = later(doubled(self.failures));
                *self = Self { failures: self.failures + 1, until: Some(Instant::now() + wait) };
                tracing::warn!(%error, seconds = wait.as_secs(), "the command is run again");
                wait
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_is_a_share_of_the_life_or_a_time_before_its_end() {
        let due = |before: &str, tail: [u8; 2]| before.parse::<Before>().unwrap().due(&tail, 1_000, 61_000);
        assert_eq!(due("1/3", [0, 0]), 41_000);
        assert_eq!(due("1/4", [0, 0]), 46_000);
        assert_eq!(due("1h", [0, 0]), 57_400);
        assert_eq!(due("1/3", [0xff, 0xff]), 38_001);
        assert!(due("100000h", [0, 0]) < 1_000);
    }

    #[test]
    fn a_pause_grows_and_is_what_the_server_wants_but_never_much_of_what_is_left() {
        let seconds =
            |failures, wanted: Option<u64>, left| pause(failures, wanted.map(Duration::from_secs), left).as_secs();
        // Long before the end.
        let far = 365 * 86_400;
        assert_eq!([0, 1, 5, 11, 12, 40].map(|failures| seconds(failures, None, far)), [1, 2, 32, 2048, 3600, 3600]);
        assert_eq!([0, 6, 9].map(|failures| seconds(failures, Some(100), far)), [100, 100, 512]);
        assert_eq!(seconds(40, Some(3600), i64::MAX), 3600);
        // A tenth of what is left, whatever the server wants, and a minute after the end.
        for (left, most) in [(3600, 360), (180, 18), (15, 1), (1, 1), (0, 60), (-1, 60), (i64::MIN, 60)] {
            assert_eq!([seconds(40, None, left), seconds(0, Some(3600), left)], [most, most], "{left}");
        }
        assert_eq!(seconds(0, None, -1), 1);
    }

    #[test]
    fn what_is_no_share_and_no_time_is_refused() {
        for text in ["", "0", "1", "3/3", "4/3", "0/3", "-1/3", "1/0", "1/x", "x", "50%"] {
            let read = text.parse::<Before>();
            assert!(read.is_err() || text == "1" && read == Ok(Before::Time(Duration::from_secs(1))), "{text:?}");
        }
    }
}
