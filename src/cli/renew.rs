//! `signet renew`: replaces certificates that expire soon by new ones with the same names and a new key of the same
//! type. It runs once, or as a service.
//!
//! A certificate is due after two thirds of its lifetime, or at the time of `--before`, but up to a twentieth of the
//! lifetime earlier by its serial number, so that certificates with the same dates are not renewed together. For a
//! certificate that this process has renewed, the server's `renew_after` applies instead. A certificate whose key file
//! does not match, as after a crash, is due immediately. `files` describes how files are replaced. A marker file next
//! to the certificate (`exec_marker`) records that `--exec` must still run.

mod authority_file;
mod exec_process;
mod renewal_role;
mod service_token;
mod successor;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::clock::{Clock, parse_duration};
use crate::error::{Error, Kind, Result, describe_io_error};
use crate::keys::PrivateKey;
use crate::secret::Secret;
use crate::server::Signals;
use crate::x509::oid;
use crate::x509::pieces::Extensions;
use serde_json::{Value, json};

use super::certify::{
    AuthorityArguments, CertifyError, ChainSelection, ClientCsr, ClientKeySource, PemCertificate, ReceivedCertificate,
    generate_key,
};
use super::client::with_jitter;
use super::files::{FileContent, FolderLock, OnExisting, StagedFile, folder_of, path_exists};
use super::issue::{format_time, read_key, read_leaf, read_text};
use super::output;
use authority_file::AuthorityFile;
use exec_process::ExecProcess;
use renewal_role::RenewalRole;
use service_token::{LoginArguments, TokenRenewer, renew_or_log_in, renew_token_once};
use successor::Successor;

/// Argument that error messages name for the certificate file.
const FILE_ARGUMENT: &str = "FILE";
const KEY_ARGUMENT: &str = "--key";
/// A renewal is due earlier by up to 1/20 of the certificate's lifetime, depending on the serial number.
const SPREAD_DIVISOR: i64 = 20;
/// The pause after the first failed renewal or `--exec` command, and the maximum pause after later failures.
const FAILURE_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// The pause after a failed renewal is at most this fraction (1/10) of the certificate's remaining lifetime. Once the
/// certificate has expired, it is at most [`MAX_PAUSE_AFTER_EXPIRY`].
const REMAINING_LIFE_DIVISOR: u64 = 10;
const MAX_PAUSE_AFTER_EXPIRY: Duration = Duration::from_secs(60);
/// Maximum time between two checks of the certificates, with `--service`.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// Time that a running `--exec` command has to complete after a signal has stopped `signet renew`.
const EXEC_GRACE_PERIOD: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(crate) struct RenewArguments {
    /// Certificates, each with its key in NAME-key.pem next to NAME.pem.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// File of the private key, if it is not NAME-key.pem.
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    key: Option<PathBuf>,
    /// File of the authorities, to which a new one is added; default: NAME-ca.pem or ca.pem next to the
    /// certificate, if one exists.
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    ca: Option<PathBuf>,
    #[command(flatten)]
    authority: AuthorityArguments,
    #[command(flatten)]
    login: LoginArguments,
    /// Time before its end at which a certificate is renewed: a fraction of its lifetime, or a duration such as 24h.
    #[arg(long, value_name = "SHARE", default_value = "1/3", help_heading = "Time")]
    before: RenewBefore,
    /// Renew now, at any age of the certificate.
    #[arg(long, conflicts_with = "service", help_heading = "Time")]
    force: bool,
    /// Keep the private key instead of generating a new one.
    #[arg(long, help_heading = "Files")]
    reuse_key: bool,
    /// Certificates in the file after the certificate itself.
    #[arg(long, value_enum, default_value_t, help_heading = "Files")]
    chain: ChainSelection,
    /// Shell command to run after certificates have been replaced. Its output goes to standard error.
    #[arg(long, value_name = "COMMAND", help_heading = "Command")]
    exec: Option<String>,
    /// Time limit of the `--exec` command.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::client::parse_duration_value)]
    #[arg(help_heading = "Command")]
    exec_timeout: Duration,
    /// Keep running, and renew certificates when they are due.
    #[arg(long, help_heading = "Time")]
    service: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RenewBefore {
    Fraction(u32, u32),
    Time(Duration),
}

impl FromStr for RenewBefore {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let rule = "must be a fraction of the lifetime between 0 and 1, such as 1/3, or a duration such as 24h";
        if let Some((part, whole)) = text.split_once('/') {
            return match (part.trim().parse(), whole.trim().parse()) {
                (Ok(part), Ok(whole)) if 0 < part && part < whole => Ok(Self::Fraction(part, whole)),
                _ => Err(rule),
            };
        }
        parse_duration(text).filter(|time| !time.is_zero()).map(Self::Time).ok_or(rule)
    }
}

impl RenewBefore {
    /// Returns the time at which a certificate is due for renewal, in Unix seconds.
    fn due_at(self, serial: &[u8], not_before: i64, not_after: i64) -> i64 {
        let lifetime = not_after.saturating_sub(not_before).max(0);
        let ahead = match self {
            Self::Fraction(part, whole) => (i128::from(lifetime) * i128::from(part) / i128::from(whole)) as i64,
            Self::Time(time) => i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        };
        let tail = serial.iter().rev().take(2).fold(0, |tail, octet| tail << 8 | i64::from(*octet));
        not_after.saturating_sub(ahead).saturating_sub(lifetime / SPREAD_DIVISOR * tail / (1 << 16))
    }
}

pub(crate) async fn run(arguments: RenewArguments) -> Result<()> {
    if arguments.files.len() > 1 && (arguments.key.is_some() || arguments.ca.is_some()) {
        return Err(Error::invalid("--key and --ca: can only be given with one FILE"));
    }
    let mut pairs =
        arguments.files.iter().map(|file| CertificatePair::of(file, &arguments)).collect::<Result<Vec<_>>>()?;
    if arguments.service { run_service(&arguments, &mut pairs).await } else { renew_once(&arguments, &mut pairs).await }
}

struct CertificatePair {
    certificate: PathBuf,
    key: PathBuf,
    ca: Option<PathBuf>,
    /// Serial number of the last certificate issued here, and the server's `renew_after` for it (Unix seconds).
    renew_after: Option<(Vec<u8>, i64)>,
    failures: u32,
    /// Time of the next attempt after a failure; `--service` does not try earlier.
    retry_at: Option<Instant>,
    /// `true` once the time at which the certificate is due has been logged.
    is_due_time_logged: bool,
}

struct RenewalState {
    leaf: PemCertificate,
    key: PrivateKey,
    /// Time of the next renewal, in Unix seconds; `i64::MIN` if `key` does not match the certificate.
    due: i64,
}

impl CertificatePair {
    fn of(file: &Path, arguments: &RenewArguments) -> Result<Self> {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.strip_suffix(".pem").unwrap_or(name);
        let in_folder = |suffix: &str| file.with_file_name(format!("{stem}{suffix}.pem"));
        let ca = [in_folder("-ca"), file.with_file_name("ca.pem")];
        if stem.is_empty() {
            return Err(Error::invalid(format!("FILE: {} is not a certificate file", file.display())));
        }
        Ok(Self {
            certificate: file.to_owned(),
            key: arguments.key.clone().unwrap_or_else(|| in_folder("-key")),
            ca: arguments.ca.clone().or_else(|| ca.into_iter().find(|ca| ca.exists())),
            renew_after: None,
            failures: 0,
            retry_at: None,
            is_due_time_logged: false,
        })
    }

    /// Returns the path of the marker file, which records that `--exec` must still run.
    fn exec_marker(&self) -> PathBuf {
        let name = self.certificate.file_name().unwrap_or_default().to_string_lossy();
        folder_of(&self.certificate).join(format!(".{name}.exec"))
    }

    fn read_state(&self, before: RenewBefore) -> Result<RenewalState> {
        let leaf = read_leaf(FILE_ARGUMENT, &self.certificate)?;
        if contains_private_key(&self.certificate)? {
            let text = format!(
                "{}: holds a private key; key and certificate must be in separate files",
                self.certificate.display()
            );
            return Err(Error::invalid(text));
        }
        let key = read_key(KEY_ARGUMENT, &self.key)?;
        let serial = leaf.certificate.serial();
        let certificate = &leaf.certificate;
        let known =
            self.renew_after.as_ref().filter(|(of, _)| of == serial.octets() && before == RenewBefore::Fraction(1, 3));
        let due = match known {
            _ if key.public().spki() != certificate.key().spki() => i64::MIN,
            Some((_, known)) => *known,
            None => before.due_at(serial.octets(), certificate.not_before(), certificate.not_after()),
        };
        Ok(RenewalState { leaf, key, due })
    }

    async fn renew(
        &mut self,
        arguments: &RenewArguments,
        state: &RenewalState,
    ) -> std::result::Result<ReceivedCertificate, CertifyError> {
        let lock = FolderLock::of(&self.certificate).await?;
        self.require_unchanged(state)?;
        let staged = self.stage_files(&lock, arguments)?;
        let old = &state.leaf.certificate;
        let kind = state.key.kind();
        let new = if arguments.reuse_key { None } else { Some(generate_key(kind.name(), kind.bits().into())?) };
        let key = new.as_ref().map_or(&state.key, |(key, _)| key);
        let sans = old.extension(oid::SUBJECT_ALT_NAME).map_or_else(Extensions::default, |sans| sans.raw.clone());
        let request = ClientCsr::new(key, old.subject(), &sans)?;
        let names = request.names.clone();
        let role = RenewalRole::find(&arguments.authority, old).await?;
        let response =
            arguments.authority.certify_with_role(&role.issuing, &ClientKeySource::Request(&request), &names).await;
        let mut issued = response.map_err(|refusal| role.explain(refusal))?;
        let successor = Successor { old, issued: &issued };
        successor.require_names().map_err(CertifyError::unusable_certificate)?;
        successor.require_validity(unix_now()).map_err(CertifyError::unusable_certificate)?;
        // The new certificate may expire before the old one only if the key of the old one is missing, or with
        // `--force` or `--ttl`.
        if state.due != i64::MIN && !arguments.force && arguments.authority.ttl.is_none() {
            successor.require_lifetime().map_err(CertifyError::unusable_certificate)?;
        }
        if successor.has_more_names()? {
            issued
                .warnings
                .push(format!("{}: the new certificate has more names than the old one", self.certificate.display()));
        }
        staged.persist(&mut issued, new.as_ref().map(|(_, text)| text), arguments.chain)?;
        self.renew_after = issued.renew_after.map(|at| (issued.leaf.certificate.serial().octets().to_vec(), at));
        Ok(issued)
    }

    /// Fails if the certificate or key file has changed since `state` was read. The caller holds the folder's lock.
    fn require_unchanged(&self, state: &RenewalState) -> Result<()> {
        let leaf = read_leaf(FILE_ARGUMENT, &self.certificate)?;
        let key = read_key(KEY_ARGUMENT, &self.key)?;
        if (leaf.certificate.der(), key.public().spki()) != (state.leaf.certificate.der(), state.key.public().spki()) {
            let text = format!(
                "{}: another command replaced this file concurrently; run the command again",
                self.certificate.display()
            );
            return Err(Error::new(Kind::Conflict, text));
        }
        Ok(())
    }

    fn stage_files(&self, lock: &FolderLock, arguments: &RenewArguments) -> Result<StagedRenewal> {
        let stage = |file: &Path, content| lock.stage(file, content, OnExisting::Replace);
        let ca = self.ca.as_ref().filter(|file| file.exists());
        let exec_marker = self.exec_marker();
        Ok(StagedRenewal {
            ca: ca.map(|file| AuthorityFile::read(file, stage(file, FileContent::Public))).transpose()?,
            key: if arguments.reuse_key { None } else { Some(stage(&self.key, FileContent::Secret)?) },
            certificate: stage(&self.certificate, FileContent::Public)?,
            exec_marker: arguments
                .exec
                .as_ref()
                .map(|_| lock.stage(&exec_marker, FileContent::Public, OnExisting::Remove))
                .transpose()?,
        })
    }

    fn seconds_left(&self) -> i64 {
        let ends = read_leaf(FILE_ARGUMENT, &self.certificate).map_or(i64::MAX, |leaf| leaf.certificate.not_after());
        ends.saturating_sub(unix_now())
    }

    /// Schedules the next attempt after a failed renewal, and returns the pause, a [`failure_pause`] with jitter.
    fn schedule_retry(&mut self, wanted: Option<Duration>, left: i64) -> Duration {
        let wait = with_jitter(failure_pause(self.failures, wanted, left));
        self.failures += 1;
        self.retry_at = Some(Instant::now() + wait);
        wait
    }
}

/// The temporary files of a renewal. They get their final names in this order: marker file, CA certificates, key,
/// certificate.
struct StagedRenewal {
    ca: Option<AuthorityFile>,
    key: Option<StagedFile>,
    certificate: StagedFile,
    exec_marker: Option<StagedFile>,
}

impl StagedRenewal {
    /// Writes the new key and certificate, and then gives all files their final names. The marker file comes first, so
    /// that the next run executes `--exec` even if this one crashes.
    fn persist(self, issued: &mut ReceivedCertificate, key: Option<&Secret>, chain: ChainSelection) -> Result<()> {
        let key = self.key.zip(key).map(|(file, key)| file.with_content(&[key.expose(), b"\n"])).transpose()?;
        let certificate = self.certificate.with_content(&[issued.certificates_pem(chain).as_bytes()])?;
        self.exec_marker.map_or(Ok(()), StagedFile::persist)?;
        if let Some(ca) = self.ca {
            ca.extend(issued);
        }
        key.into_iter().chain([certificate]).try_for_each(StagedFile::persist)
    }
}

/// Returns the pause after a number of failed renewals. It grows exponentially and is at least `wanted`, the server's
/// `Retry-After`, but at most a fraction of `left`, the seconds until the certificate expires.
fn failure_pause(failures: u32, wanted: Option<Duration>, left: i64) -> Duration {
    let max_pause = match u64::try_from(left) {
        Ok(left) if left > 0 => {
            Duration::from_secs(left / REMAINING_LIFE_DIVISOR).clamp(FAILURE_PAUSES.0, FAILURE_PAUSES.1)
        }
        _ => MAX_PAUSE_AFTER_EXPIRY,
    };
    exponential_pause(failures).max(wanted.unwrap_or_default()).min(max_pause)
}

fn exponential_pause(failures: u32) -> Duration {
    FAILURE_PAUSES.0.saturating_mul(1 << failures.min(12)).min(FAILURE_PAUSES.1)
}

fn contains_private_key(file: &Path) -> Result<bool> {
    let text = read_text(FILE_ARGUMENT, file)?;
    Ok(text.expose_text().is_some_and(|text| text.contains("PRIVATE KEY-----")))
}

fn unix_now() -> i64 {
    Clock::system().now().unix_timestamp()
}

async fn renew_once(arguments: &RenewArguments, pairs: &mut [CertificatePair]) -> Result<()> {
    let mut problems = Vec::new();
    if arguments.login.is_given() {
        renew_or_log_in(&arguments.login, &arguments.authority.caller).await?;
    }
    for pair in &mut *pairs {
        if let Err(refusal) = renew_and_print(arguments, pair).await {
            let file = pair.certificate.display().to_string();
            let text = refusal.error.text();
            problems.push(if text.contains(&file) { text.to_owned() } else { format!("{file}: {text}") });
        }
    }
    let due = |pair: &CertificatePair| pair.read_state(arguments.before).ok().map(|state| state.due);
    let dues: Vec<(&Path, i64)> = pairs.iter().filter_map(|pair| Some((&*pair.certificate, due(pair)?))).collect();
    if !arguments.login.is_given() && !dues.is_empty() {
        let warning = renew_token_once(&arguments.login, &arguments.authority.caller, &dues).await;
        output::print_warnings(warning.as_slice());
    }
    // From here on, this process handles signals and ends the `--exec` command. The command has its own process group,
    // so signals from the terminal do not reach it.
    let mut signals = Signals::watch()?;
    let mut running = pin!(run_exec_command(arguments, pairs));
    let executed = match until_signal(&mut signals, &mut running).await {
        Some(executed) => executed,
        None => tokio::time::timeout(EXEC_GRACE_PERIOD, running)
            .await
            .unwrap_or_else(|_| Err(exec_error("the command was ended by a signal"))),
    };
    if let Err(error) = executed {
        problems.push(error.text().to_owned());
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::new(Kind::Unavailable, problems.join("\n"))),
    }
}

async fn renew_and_print(
    arguments: &RenewArguments,
    pair: &mut CertificatePair,
) -> std::result::Result<(), CertifyError> {
    let state = pair.read_state(arguments.before)?;
    if !arguments.force && unix_now() < state.due {
        print_renewal(pair, &state.leaf, None, Some(state.due))?;
        output::print_warnings(role_warning(arguments, pair, &state).await.as_slice());
        return Ok(());
    }
    let issued = pair.renew(arguments, &state).await?;
    let next = pair.read_state(arguments.before).map_or(None, |state| Some(state.due));
    print_renewal(pair, &issued.leaf, Some(&issued), next)?;
    Ok(())
}

/// Returns a warning if the next renewal would use the default role, because the role is given neither by `--role` nor
/// by the server's record of the certificate.
async fn role_warning(arguments: &RenewArguments, pair: &CertificatePair, state: &RenewalState) -> Option<String> {
    let role = RenewalRole::find(&arguments.authority, &state.leaf.certificate).await;
    let note = role.ok()?.default_note?;
    Some(format!("{}: {note}", pair.certificate.display()))
}

/// Prints when a certificate expires and is due. `new` is set if the certificate has just been issued.
fn print_renewal(
    pair: &CertificatePair,
    leaf: &PemCertificate,
    new: Option<&ReceivedCertificate>,
    due: Option<i64>,
) -> Result<()> {
    let file = pair.certificate.display();
    let not_after = format_time(leaf.certificate.not_after());
    let due = due.map(format_time).unwrap_or_default();
    let mut object = new.map_or_else(|| json!({ "not_after": not_after }), ReceivedCertificate::to_json);
    object["serial_number"] = leaf.certificate.serial().to_string().into();
    object["certificate"] = json!(pair.certificate);
    object["key"] = json!(pair.key);
    object["renewed"] = Value::Bool(new.is_some());
    object["due"] = json!(due);
    let word = if new.is_some() { "renewed, " } else { "" };
    let text = format!("{file}: {word}valid until {not_after}, to be renewed at {due}");
    output::print_result_with_warnings(&object, text, new.map_or(&[], |issued| &issued.warnings))
}

/// Runs the `--exec` command if a certificate was replaced since the command last succeeded, as the marker files show.
async fn run_exec_command(arguments: &RenewArguments, pairs: &[CertificatePair]) -> Result<()> {
    let Some(command) = &arguments.exec else { return Ok(()) };
    let markers: Vec<PathBuf> =
        pairs.iter().map(CertificatePair::exec_marker).filter(|marker| path_exists(marker)).collect();
    if markers.is_empty() {
        return Ok(());
    }
    let failed = |text: String| exec_error(&text);
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env_remove("SIGNET_TOKEN").env_remove("SIGNET_TOKEN_FILE").process_group(0);
    shell.stdout(std::io::stderr());
    let child = shell.spawn().map_err(|e| failed(format!("cannot be run ({})", describe_io_error(e.kind()))))?;
    let status = ExecProcess(child).wait_until_ended(arguments.exec_timeout).await.map_err(failed)?;
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    for marker in markers {
        std::fs::remove_file(&marker).map_err(|e| {
            Error::unavailable(
                format!("{}: cannot be removed, so the next signet renew runs --exec again", marker.display()),
                e,
            )
        })?;
    }
    Ok(())
}

fn exec_error(why: &str) -> Error {
    let text =
        format!("--exec: {why}; the certificates are in place, and the next signet renew runs the command again");
    Error::new(Kind::Unavailable, text)
}

async fn run_service(arguments: &RenewArguments, pairs: &mut [CertificatePair]) -> Result<()> {
    let mut signals = Signals::watch()?;
    let mut command = ExecBackoff::default();
    let mut token = TokenRenewer::default();
    loop {
        let tended = token.renew_if_due(&arguments.login, &arguments.authority.caller);
        let Some(mut wait) = until_signal(&mut signals, tended).await else { return Ok(()) };
        wait = wait.min(MAX_CHECK_INTERVAL);
        for pair in &mut *pairs {
            // A signal can interrupt only the request: between the response and the written files, there is no `await`.
            let Some(next) = until_signal(&mut signals, check_pair(arguments, pair)).await else { return Ok(()) };
            wait = wait.min(next);
        }
        if pairs.iter().any(|pair| pair.failures > 0) {
            token.check_now();
        }
        let mut running = pin!(command.run_if_due(arguments, pairs));
        let Some(next) = until_signal(&mut signals, &mut running).await else {
            let _ = tokio::time::timeout(EXEC_GRACE_PERIOD, running).await;
            return Ok(());
        };
        if until_signal(&mut signals, tokio::time::sleep(wait.min(next))).await.is_none() {
            return Ok(());
        }
    }
}

/// Waits for `work` and returns its result, or `None` if a termination signal arrives first.
async fn until_signal<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        // If `work` is complete, return its result even if a signal has arrived too.
        biased;
        done = work => Some(done),
        () = signals.wait_for_stop() => None,
    }
}

/// Renews one certificate if it is due. Logs a failure. Returns the time until the next check.
async fn check_pair(arguments: &RenewArguments, pair: &mut CertificatePair) -> Duration {
    if let Some(left) = pair.retry_at.and_then(|until| until.checked_duration_since(Instant::now())) {
        return left;
    }
    match renew_if_due(arguments, pair).await {
        Ok(RenewalOutcome::Early(wait)) => {
            (pair.failures, pair.retry_at) = (0, None);
            wait
        }
        Ok(RenewalOutcome::Renewed { due, ends }) => {
            // If the new certificate is due immediately, wait a minimum time, so that it is not renewed in a loop.
            let least = (ends.saturating_sub(unix_now()) / SPREAD_DIVISOR).max(1);
            pair.failures = 0;
            pair.retry_at = Some(Instant::now() + Duration::from_secs(least.unsigned_abs()));
            Duration::from_secs(due.saturating_sub(unix_now()).max(least).unsigned_abs())
        }
        Err(refusal) => {
            // If the server issues unusable certificates, each attempt wastes one. So the pause grows without regard to
            // the remaining lifetime of the old certificate.
            let left = if refusal.is_unusable_certificate { i64::MAX } else { pair.seconds_left() };
            record_failure(pair, &refusal.error, refusal.retry_after, left)
        }
    }
}

enum RenewalOutcome {
    Early(Duration),
    /// The certificate was renewed. The new one is due at `due` and expires at `ends` (Unix seconds).
    Renewed {
        due: i64,
        ends: i64,
    },
}

async fn renew_if_due(
    arguments: &RenewArguments,
    pair: &mut CertificatePair,
) -> std::result::Result<RenewalOutcome, CertifyError> {
    let state = pair.read_state(arguments.before)?;
    let left = state.due.saturating_sub(unix_now());
    if left > 0 {
        if !std::mem::replace(&mut pair.is_due_time_logged, true) {
            log_first_check(arguments, pair, &state).await;
        }
        return Ok(RenewalOutcome::Early(Duration::from_secs(left.unsigned_abs())));
    }
    let issued = pair.renew(arguments, &state).await?;
    let due = pair.read_state(arguments.before)?.due;
    print_renewal(pair, &issued.leaf, Some(&issued), Some(due))?;
    Ok(RenewalOutcome::Renewed { due, ends: issued.leaf.certificate.not_after() })
}

/// Logs when a certificate will be renewed. Called once, when the first check finds that it is not due yet.
async fn log_first_check(arguments: &RenewArguments, pair: &CertificatePair, state: &RenewalState) {
    let file = pair.certificate.display();
    let ends = format_time(state.leaf.certificate.not_after());
    let due = format_time(state.due);
    tracing::info!(%file, %ends, %due, "the certificate will be renewed when it is due");
    if let Some(problem) = role_warning(arguments, pair, state).await {
        tracing::warn!(%problem, "the role of the renewal is uncertain");
    }
}

/// Logs a failed renewal and schedules the next attempt. Returns the pause before it.
fn record_failure(
    pair: &mut CertificatePair,
    error: &dyn std::fmt::Display,
    wanted: Option<Duration>,
    left: i64,
) -> Duration {
    let wait = pair.schedule_retry(wanted, left);
    let file = pair.certificate.display();
    tracing::warn!(%file, %error, seconds = wait.as_secs(), "the certificate was not renewed; retrying");
    wait
}

/// Exponential backoff between attempts to run the `--exec` command.
#[derive(Default)]
struct ExecBackoff {
    failures: u32,
    until: Option<Instant>,
}

impl ExecBackoff {
    /// Runs the `--exec` command if it must run and no pause is left. Returns the time until the next check.
    async fn run_if_due(&mut self, arguments: &RenewArguments, pairs: &[CertificatePair]) -> Duration {
        if let Some(left) = self.until.and_then(|until| until.checked_duration_since(Instant::now())) {
            return left;
        }
        match run_exec_command(arguments, pairs).await {
            Ok(()) => {
                *self = Self::default();
                MAX_CHECK_INTERVAL
            }
            Err(error) => {
                let wait = with_jitter(exponential_pause(self.failures));
                *self = Self { failures: self.failures + 1, until: Some(Instant::now() + wait) };
                tracing::warn!(%error, seconds = wait.as_secs(), "--exec failed; retrying");
                wait
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_due_at_a_fraction_or_a_time_before_the_end() {
        let due = |before: &str, tail: [u8; 2]| before.parse::<RenewBefore>().unwrap().due_at(&tail, 1_000, 61_000);
        assert_eq!(due("1/3", [0, 0]), 41_000);
        assert_eq!(due("1/4", [0, 0]), 46_000);
        assert_eq!(due("1h", [0, 0]), 57_400);
        assert_eq!(due("1/3", [0xff, 0xff]), 38_001);
        assert!(due("100000h", [0, 0]) < 1_000);
    }

    #[test]
    fn failure_pause_grows_within_a_tenth_of_the_remaining_life() {
        let seconds = |failures, wanted: Option<u64>, left| {
            failure_pause(failures, wanted.map(Duration::from_secs), left).as_secs()
        };
        let far = 365 * 86_400;
        assert_eq!([0, 1, 5, 11, 12, 40].map(|failures| seconds(failures, None, far)), [1, 2, 32, 2048, 3600, 3600]);
        assert_eq!([0, 6, 9].map(|failures| seconds(failures, Some(100), far)), [100, 100, 512]);
        assert_eq!(seconds(40, Some(3600), i64::MAX), 3600);
        // The maximum pause is a tenth of the remaining lifetime, and a minute after expiry, even if the server
        // requests a longer pause.
        for (left, max_pause) in [(3600, 360), (180, 18), (15, 1), (1, 1), (0, 60), (-1, 60), (i64::MIN, 60)] {
            assert_eq!([seconds(40, None, left), seconds(0, Some(3600), left)], [max_pause, max_pause], "{left}");
        }
        assert_eq!(seconds(0, None, -1), 1);
    }

    #[test]
    fn invalid_renew_before_is_rejected() {
        for text in ["", "0", "1", "3/3", "4/3", "0/3", "-1/3", "1/0", "1/x", "x", "50%"] {
            let read = text.parse::<RenewBefore>();
            assert!(read.is_err() || text == "1" && read == Ok(RenewBefore::Time(Duration::from_secs(1))), "{text:?}");
        }
    }
}
