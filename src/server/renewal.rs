//! Renewal of the main listener's certificate, which a PKI mount of this server issues.
//!
//! [`run`] watches the certificate in use. At about two thirds of its lifetime, earlier by a random amount so that
//! nodes do not renew at the same time, it requests a certificate with a new key from the mount, replaces the files
//! ([`key_pair_files`]) and reads them again. A failure is logged and retried with backoff; the certificate in use
//! stays. Each node renews its own files. The rules of the role apply as for any client, and the audit devices record a
//! request of the caller `tls_renew`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::key_pair_files::{self, KeyPairContents};
use super::tls::ServerCertificate;
use crate::audit::{AuditCaller, AuditData, AuditOutcome, AuditRefusal, AuditRequest, AuditResponse};
use crate::auth::mounts::{Mount, MountKind};
use crate::config::{TlsFiles, TlsRenewal};
use crate::error::{Error, Kind, Result};
use crate::http::state::ServerState;
use crate::mounts::lifetime_limits;
use crate::pki::check::request::RequestedNames;
use crate::pki::issue::issued::IssuedCertificate;
use crate::pki::issue::pipeline::CertificateRequest;
use crate::pki::issue::request::{IssueContext, IssueRequester, LeafRequest};
use crate::pki::values::renewal;
use crate::secret::{PartlySecret, Secret};
use crate::x509;
use crate::x509::pem;

/// Name of the server as requester in certificate records, and as caller in audit records.
const REQUESTER: &str = "tls_renew";
/// Maximum interval between two checks whether the certificate is due, because the clock may be set and the files may
/// be replaced by hand.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(60);
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Delay after the first failed renewal. Each further failure doubles it, up to [`MAX_RETRY_DELAY`].
const MIN_RETRY_DELAY: Duration = Duration::from_secs(10);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(3600);
const AUDIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a common name, in bytes (RFC 5280 A.1, ub-common-name).
const MAX_COMMON_NAME_BYTES: usize = 64;

/// Renews the certificate of the main listener whenever it is due, until the server stops. Returns at once if renewal
/// is not configured.
pub(super) async fn run(shared: Arc<ServerState>, certificate: Option<ServerCertificate>) {
    let Some((certificate, settings)) =
        certificate.as_ref().and_then(|certificate| Some((certificate, certificate.renewal()?)))
    else {
        return;
    };
    let mut failures = 0_u32;
    let mut schedule = RenewalSchedule::default();
    loop {
        let now = shared.clock.now().unix_timestamp();
        let due = schedule.due(&certificate.leaf(), now);
        if now < due {
            let wait = Duration::from_secs(u64::try_from(due - now).unwrap_or_default());
            tokio::time::sleep(wait.clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL)).await;
            continue;
        }
        match renew(&shared, certificate, settings).await {
            Ok(issued) => {
                failures = 0;
                schedule = RenewalSchedule { leaf: issued.leaf, due: issued.renew_after };
                tokio::time::sleep(MIN_CHECK_INTERVAL).await;
            }
            Err(error) => {
                let wait = MIN_RETRY_DELAY.saturating_mul(1 << failures.min(16)).min(MAX_RETRY_DELAY);
                failures = failures.saturating_add(1);
                tracing::error!(retry_in_seconds = wait.as_secs(), "the TLS certificate was not renewed: {error}");
                tokio::time::sleep(wait).await;
            }
        }
    }
}

#[derive(Default)]
struct RenewalSchedule {
    leaf: Vec<u8>,
    due: i64,
}

impl RenewalSchedule {
    /// Returns the time at which the certificate `leaf` is due for renewal, in Unix seconds. A certificate that this
    /// server did not issue counts as issued at its `notBefore`. One that cannot be parsed is due immediately (`now`).
    fn due(&mut self, leaf: &[u8], now: i64) -> i64 {
        if self.leaf != leaf {
            self.leaf = leaf.to_vec();
            self.due = x509::certificate::Certificate::parse(leaf).map_or(now, |read| {
                renewal::renewal_time(&read.serial(), read.not_before(), read.not_before(), read.not_after())
            });
        }
        self.due
    }
}

async fn renew(shared: &ServerState, certificate: &ServerCertificate, settings: &TlsRenewal) -> Result<IssuedKeyPair> {
    let issued = request_certificate(shared, settings).await?;
    let certificate = certificate.clone();
    let (issued, done) = tokio::task::spawn_blocking(move || {
        let done = key_pair_files::replace(certificate.files(), issued.contents())
            .and_then(|()| super::reload_certificate(&certificate));
        (issued, done)
    })
    .await
    .map_err(Error::internal)?;
    done?;
    tracing::info!("the TLS certificate was renewed");
    Ok(issued)
}

struct IssuedKeyPair {
    leaf: Vec<u8>,
    /// The certificate chain as PEM, the leaf first.
    chain: String,
    /// The private key as PEM.
    key: Secret,
    /// Time at which the certificate is due for renewal, in Unix seconds.
    renew_after: i64,
}

impl IssuedKeyPair {
    fn contents(&self) -> KeyPairContents<'_> {
        KeyPairContents { certificate: self.chain.as_bytes(), key: self.key.expose() }
    }
}

/// Issues the first certificate of the main listener and writes its files, which must not exist yet.
///
/// # Errors
/// `Conflict` when a file exists; the errors of the mount; `Unavailable` when the files cannot be written.
pub async fn issue_first(shared: &ServerState, settings: &TlsRenewal, files: &TlsFiles) -> Result<()> {
    key_pair_files::check_absent(files)?;
    let issued = request_certificate(shared, settings).await?;
    key_pair_files::create(files, issued.contents())
}

/// Requests a certificate with a new key from the configured mount and role. The audit devices record the request.
async fn request_certificate(shared: &ServerState, settings: &TlsRenewal) -> Result<IssuedKeyPair> {
    let mounts = shared.auth.mounts();
    let mount = mounts.get(&settings.mount).filter(|mount| mount.kind == MountKind::Pki).cloned().ok_or_else(|| {
        Error::invalid(format!(
            "tls_renew.mount: there is no PKI mount at {}; correct the setting, or create the mount",
            settings.mount
        ))
    })?;
    let id = crate::random::uuid();
    let path = format!("{}issue/{}", mount.path, settings.role);
    let addresses: Vec<String> = settings.addresses.iter().map(ToString::to_string).collect();
    let requested = json!({ "alt_names": settings.hosts, "ip_sans": addresses });
    let mut record = shared.audit.recorder();
    let until = Instant::now() + AUDIT_TIMEOUT;
    record.record_intent(|| Some(audit_request(&id, &path, &mount, &requested)), until).await?;
    let issued = issue(shared, &mount, settings, &path, addresses).await;
    let audited = issued.as_ref().map(
        |issued| json!({ "serial_number": issued.serial.to_string(), "expiration": issued.not_after.to_string() }),
    );
    let outcome = match &audited {
        Ok(data) => AuditOutcome {
            status: 200,
            answer: Ok(AuditResponse { data: AuditData::Json(data), ..AuditResponse::default() }),
        },
        Err(error) => {
            let refusal = AuditRefusal { kind: error.kind(), texts: vec![error.text()] };
            let status = if matches!(error.kind(), Kind::Unavailable | Kind::Busy) { 503 } else { 400 };
            AuditOutcome { status, answer: Err(refusal) }
        }
    };
    record.record_outcome(&audit_request(&id, &path, &mount, &requested), &outcome, until).await?;
    render_issued(&issued?)
}

async fn issue(
    shared: &ServerState,
    mount: &Mount,
    settings: &TlsRenewal,
    path: &str,
    addresses: Vec<String>,
) -> Result<IssuedCertificate> {
    let short = settings.hosts.iter().find(|name| name.len() <= MAX_COMMON_NAME_BYTES);
    let names = RequestedNames {
        common_name: short.cloned().unwrap_or_default(),
        alt_names: settings.hosts.clone(),
        ip_sans: addresses,
        ..RequestedNames::default()
    };
    let requester = IssueRequester {
        requester_record: REQUESTER.to_owned(),
        display_name: REQUESTER.to_owned(),
        ..IssueRequester::default()
    };
    let limits = lifetime_limits(mount);
    let meter = mount.meter().clone();
    let origin = IssueContext {
        path: path.to_owned(),
        issuer_ref: None,
        requester,
        limits,
        idempotent_request: None,
        mount: meter,
    };
    let requested = LeafRequest { role: settings.role.clone(), names, ..LeafRequest::default() };
    shared.mounts.authority(mount).await?.start_replica().run(origin, CertificateRequest::Leaf(requested)).await
}

/// Encodes the certificate, its chain and its key as PEM. The chain does not contain the root, which clients do not
/// need.
fn render_issued(issued: &IssuedCertificate) -> Result<IssuedKeyPair> {
    let key = issued.key.as_ref().ok_or_else(|| Error::internal("a certificate was issued without its key"))?;
    let key = key.to_pkcs8()?;
    let above = issued.signer.chain(issued.issued_at).iter().filter(|issuer| !issuer.self_signed);
    let chain = std::iter::once(&issued.der[..]).chain(above.map(|issuer| issuer.certificate.der()));
    Ok(IssuedKeyPair {
        leaf: issued.der.clone(),
        chain: chain.map(|der| pem::encode("CERTIFICATE", der) + "\n").collect(),
        key: encode_key(&key),
        renew_after: issued.renew_after,
    })
}

fn encode_key(key: &Secret) -> Secret {
    let encoded = Secret::new(pem::encode("PRIVATE KEY", key.expose()));
    let mut text = PartlySecret::with_capacity(encoded.expose().len() + 1);
    text.push_secret(encoded.expose());
    text.push(b"\n");
    Secret::new(text.into_bytes())
}

fn audit_request<'r>(id: &'r str, path: &'r str, mount: &'r Mount, requested: &'r Value) -> AuditRequest<'r> {
    let caller = Some(AuditCaller::named(REQUESTER));
    let data = AuditData::Json(requested);
    AuditRequest { id, operation: "update", path, mount: Some(mount), caller, data, ..AuditRequest::default() }
}
