//! The certificate authority engine through its own types, without HTTP.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures_util::poll;
use signet::auth::store::AuthWrite;
use signet::clock::Clock;
use signet::documents::MountId;
use signet::error::Kind;
use signet::keys::signing::NoSigners;
use signet::outbound::EgressPolicy;
use signet::pki::actor::{PlannedChange, ReplicaLink};
use signet::pki::ca::intermediate::{self, CsrRequest};
use signet::pki::ca::key::{KeyOrigin, KeyRequest};
use signet::pki::ca::root::{self, GeneratedRoot, RootRequest};
use signet::pki::check::request::{RequestedKey, RequestedNames, RequestedValidity};
use signet::pki::check::validity::MountLifetimes;
use signet::pki::issue::pipeline::CertificateRequest;
use signet::pki::issue::request::{IssueContext, IssueRequester, LeafRequest, RequestedSubjectKey};
use signet::pki::mount::role::{Role, RoleKeys};
use signet::pki::mount::view::MountView;
use signet::pki::serials::SerialPrefix;
use signet::pki::{Authority, Engine};
use signet::rationing::{MAX_WAITING_PER_CALLER, QueueCaller};
use signet::storage::seal::SealKey;
use signet::storage::{self, Database, Storage};
use signet::telemetry::MountMeter;
use signet::x509::certificate::Certificate;
use signet::x509::csr::Csr;
use signet::x509::extension::{self, SubjectAltNames};
use signet::x509::oid;

const MOUNT: MountId = MountId(7);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const LIMITS: MountLifetimes = MountLifetimes { mount_default: HOUR, mount_max: DAY, authority_default: HOUR };

/// An engine with one mount, which has a root and a role `web`.
struct Domain {
    authority: Arc<Authority>,
    replica: ReplicaLink,
    root: GeneratedRoot,
    storage: Storage,
    _engine: Arc<Engine>,
    _folder: tempfile::TempDir,
}

impl Domain {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let seal_key = SealKey::create_file(&folder.path().join("seal.key")).unwrap();
        let database = Database::Embedded(folder.path().to_owned());
        let clock = Clock::system();
        let storage = storage::open(storage::StorageOptions {
            database,
            seal_key,
            clock: clock.clone(),
            commit_queue: 16,
            if_missing: storage::IfMissing::Create,
        })
        .await
        .unwrap();
        storage.auth().commit(vec![AuthWrite::MountCreate(MOUNT)]).await.unwrap();
        let serials = SerialPrefix::default().source(&clock);
        let reach = EgressPolicy::default();
        let engine = Engine::new(storage.pki(), serials, Arc::new(NoSigners), clock, reach);
        engine.open(MOUNT).await.unwrap();
        let authority = engine.authority(MOUNT).unwrap();
        let validity = RequestedValidity { ttl: Some(12 * HOUR), ..RequestedValidity::default() };
        let key = ec(KeyOrigin::Internal);
        let root = RootRequest { key, names: called("Root"), validity, ..RootRequest::default() };
        let root = root::generate(&authority, root, LIMITS, "operator").await.unwrap();
        let role = Role {
            allowed_domains: vec!["example.test".to_owned()],
            allow_subdomains: true,
            keys: RoleKeys::new("ec", 256).unwrap(),
            ..Role::default()
        };
        let put = authority.change(move |view| {
            let mut next = view.clone();
            let write = next.put_role("web", role.clone())?;
            Ok((PlannedChange { view: next, writes: vec![write], rebuild_crls: false }, ()))
        });
        put.await.unwrap();
        let replica = authority.start_replica();
        Self { authority, replica, root, storage, _engine: engine, _folder: folder }
    }

    fn origin() -> IssueContext {
        let requester = IssueRequester { requester_record: "somebody".to_owned(), ..IssueRequester::default() };
        IssueContext {
            path: "orders/1".to_owned(),
            issuer_ref: None,
            requester,
            limits: LIMITS,
            idempotent_request: None,
            mount: MountMeter::of("orders/"),
        }
    }

    async fn csr(&self) -> Csr {
        let request = CsrRequest { key: ec(KeyOrigin::Exported), names: called("from the CSR"), ..Default::default() };
        let made = intermediate::generate(&self.authority, request).await.unwrap();
        assert_eq!(made.key.exported.unwrap().kind(), made.key.kind);
        Csr::from_der(&made.der).unwrap()
    }
}

fn ec(origin: KeyOrigin) -> KeyRequest {
    let key = RequestedKey { key_type: Some("ec".to_owned()), bits: Some(256) };
    KeyRequest { origin, key, ..KeyRequest::default() }
}

fn called(common_name: &str) -> RequestedNames {
    RequestedNames { common_name: common_name.to_owned(), ..RequestedNames::default() }
}

#[actix_web::test]
async fn a_csr_is_signed_through_the_domains_types_alone() {
    let domain = Domain::open().await;
    let csr = domain.csr().await;
    let key = csr.key.clone();
    let names = RequestedNames { alt_names: vec!["b.example.test".to_owned()], ..called("a.example.test") };
    let validity = RequestedValidity { ttl: Some(2 * HOUR), ..RequestedValidity::default() };
    // By default the role takes names from the CSR; this request names its own.
    let key_of_csr = RequestedSubjectKey::Csr(csr);
    let sign = LeafRequest { role: "web".to_owned(), key: key_of_csr, names, validity, metadata: None };
    let refused = domain.replica.run(Domain::origin(), CertificateRequest::Leaf(sign.clone())).await.err().unwrap();
    assert_eq!((refused.kind(), refused.text().starts_with("common_name: ")), (Kind::Invalid, true), "{refused}");

    let put = domain.authority.change(move |view| {
        let mut next = view.clone();
        let role = &view.role("web").unwrap().role;
        let role = Role { use_csr_common_name: false, use_csr_sans: false, ..Role::clone(role) };
        let write = next.put_role("web", role)?;
        Ok((PlannedChange { view: next, writes: vec![write], rebuild_crls: false }, ()))
    });
    put.await.unwrap();
    let issued = domain.replica.run(Domain::origin(), CertificateRequest::Leaf(sign)).await.unwrap();
    let certificate = Certificate::parse(&issued.der).unwrap();
    let root = Certificate::parse(&domain.root.der).unwrap();
    assert!(certificate.is_signed_by(root.key()) && certificate.key() == &key);
    assert_eq!(certificate.common_name(), "a.example.test");
    let dns = ["a.example.test", "b.example.test"].map(str::to_owned).to_vec();
    let expected = extension::subject_alt_name(&SubjectAltNames { dns, ..SubjectAltNames::default() }, false);
    assert_eq!(certificate.extension(oid::SUBJECT_ALT_NAME).unwrap().raw, expected);
    assert_eq!((issued.serial, issued.not_after), (certificate.serial(), certificate.not_after()));
    assert_eq!(issued.signer.issuer.record.id, domain.root.issuer_id);
    assert!(issued.key.is_none() && issued.lease.is_none());
    let warnings: Vec<String> = issued.warnings.into_iter().collect();
    // The CSR has another subject, and the role ignores the names of a CSR.
    assert_eq!(warnings, ["csr: subject not granted: CN"]);
    let stored = domain.storage.pki().certificate(MOUNT, issued.serial).await.unwrap().unwrap();
    assert_eq!((stored.row.der, stored.row.requester.as_str()), (issued.der, "somebody"));
}

/// A change that writes nothing: it waits for `begin` and records its number.
fn numbered(
    domain: &Domain,
    number: u32,
    begin: Option<mpsc::Receiver<()>>,
    done: &Arc<Mutex<Vec<u32>>>,
) -> impl Future<Output = signet::error::Result<()>> + use<> {
    let authority = Arc::clone(&domain.authority);
    let done = Arc::clone(done);
    let begin = Mutex::new(begin);
    async move {
        let plan = move |view: &MountView| {
            if let Some(begin) = begin.lock().unwrap().take() {
                let _ = begin.recv();
            }
            done.lock().unwrap().push(number);
            Ok((PlannedChange { view: view.clone(), writes: Vec::new(), rebuild_crls: false }, ()))
        };
        authority.change(plan).await
    }
}

#[actix_web::test]
async fn changes_of_one_caller_do_not_hold_up_those_of_another() {
    let domain = Domain::open().await;
    let done = Arc::default();
    let [one, other] = [QueueCaller::with_token("one"), QueueCaller::with_token("other")];
    let (begin, begins) = mpsc::channel();
    let mut first = Box::pin(one.scope(numbered(&domain, 0, Some(begins), &done)));
    assert!(poll!(&mut first).is_pending());
    let mut changes = Vec::new();
    let most = u32::try_from(MAX_WAITING_PER_CALLER).unwrap();
    for number in 1..=most {
        let mut change = Box::pin(one.scope(numbered(&domain, number, None, &done)));
        assert!(poll!(&mut change).is_pending());
        changes.push(change);
    }
    let beyond = one.scope(numbered(&domain, most + 1, None, &done));
    let refused = tokio::time::timeout(Duration::from_secs(60), beyond).await.unwrap().unwrap_err();
    assert_eq!((refused.kind(), refused.text().contains("retry")), (Kind::Busy, true));
    let mut others = Box::pin(other.scope(numbered(&domain, 1_000, None, &done)));
    assert!(poll!(&mut others).is_pending());
    // Messages are processed in order: a response to this one shows that the other caller's change is queued.
    let mut late = Box::pin(one.scope(numbered(&domain, 2_000, None, &done)));
    assert_eq!((&mut late).await.unwrap_err().kind(), Kind::Busy);
    begin.send(()).unwrap();
    others.await.unwrap();
    let before = done.lock().unwrap().iter().position(|number| *number == 1_000).unwrap();
    assert!(before <= 2, "{before} changes of the first caller came before");
}

#[actix_web::test]
async fn a_key_that_is_made_leaves_with_its_certificate() {
    let domain = Domain::open().await;
    let request = LeafRequest { role: "web".to_owned(), names: called("a.example.test"), ..LeafRequest::default() };
    let issued = domain.replica.run(Domain::origin(), CertificateRequest::Leaf(request)).await.unwrap();
    let certificate = Certificate::parse(&issued.der).unwrap();
    assert_eq!(issued.key.unwrap().public(), certificate.key());
    assert_eq!(issued.not_after - issued.not_before, 3600 + 30);
    let nobody = CertificateRequest::Leaf(LeafRequest { role: "other".to_owned(), ..LeafRequest::default() });
    assert_eq!(domain.replica.run(Domain::origin(), nobody).await.err().unwrap().text(), "unknown role: other");
}
