//! Tests with CRL builders of several nodes on one store.

use base64::Engine as _;

use super::*;
use crate::keys::signing::{NoSigners, SigningKey};
use crate::keys::testing::root;
use crate::pki::check::blocking;
use crate::pki::crl::list::PublishedCrl;
use crate::pki::mount::issuer::{IssuerRecord, IssuerUsage, MountKey};
use crate::pki::mount::settings::crl::CrlConfig;
use crate::pki::store::RevocationRow;
use crate::pki::store::testing::TestStore;
use crate::x509::crl::Crl;
use crate::x509::serial::Serial;

const MOUNT: MountId = MountId(7);
const FOLLOW: CrlBuildRequest = CrlBuildRequest { follow: true, ..CrlBuildRequest::DUE };
const COMPLETE: CrlBuildRequest = CrlBuildRequest { complete: true, ..CrlBuildRequest::DUE };
const DELTA: CrlBuildRequest = CrlBuildRequest { delta: true, ..CrlBuildRequest::DUE };

/// A store with a mount and one root issuer; complete CRLs are built only on request.
struct Nodes {
    store: TestStore,
    view: Arc<MountView>,
}

/// CRL number and listed serial numbers of a node's complete CRL and of its delta CRL.
type CrlContents = [(u64, Vec<Serial>); 2];

impl Nodes {
    async fn new() -> Self {
        let store = TestStore::with_mount(MOUNT).await;
        let mut view = MountView::empty(MOUNT);
        let (key, certificate) = root("ec", 256);
        let signing = SigningKey::Local(Arc::new(key));
        view.put_key(MountKey { id: "key".to_owned(), name: String::new(), version: 0, signing }).unwrap();
        view.put_issuer(IssuerRecord {
            id: "root".to_owned(),
            name: String::new(),
            key_id: "key".to_owned(),
            certificate: base64::engine::general_purpose::STANDARD.encode(certificate.der()),
            manual_chain: Vec::new(),
            leaf_not_after_behavior: Default::default(),
            usage: IssuerUsage::ALL,
            revocation_signature_algorithm: String::new(),
            urls: Default::default(),
            revoked_at: None,
            revoked_for: Default::default(),
            crl_number: 0,
            modified_at: 0,
            signatures: Default::default(),
            authority: None,
        })
        .unwrap();
        view.set_crl_config(CrlConfig { auto_rebuild: true, enable_delta: true, ..CrlConfig::default() });
        Self { store, view: Arc::new(view) }
    }

    fn node(&self) -> CrlBuilder {
        CrlBuilder::new(MOUNT, self.store.storage.pki(), Arc::new(NoSigners), self.store.clock.clone())
    }

    /// Records a revocation without notifying any node.
    async fn revoke(&self) -> Serial {
        let serial = Serial::random();
        let now = self.store.clock.now();
        let row = RevocationRow {
            mount: MOUNT,
            serial,
            issuer: "root".to_owned(),
            revoked_at: now,
            not_after: now.unix_timestamp() + 86_400,
            reason: None,
            invalidity_date: None,
        };
        self.store.storage.pki().commit(vec![PkiWrite::Revocation(row)]).await.unwrap();
        serial
    }

    async fn build(&self, mut node: CrlBuilder, wanted: CrlBuildRequest) -> (CrlBuilder, CrlContents) {
        let view = Arc::clone(&self.view);
        let work = |waiter: blocking::SignatureWaiter| async move {
            let built = node.build(&view, wanted, &waiter).await;
            (node, built)
        };
        let (node, built) = blocking::run(None, work).await.unwrap();
        let built = built.unwrap();
        assert!(built.failure.is_none());
        let GroupCrls { complete, delta } = &built.crls.by_issuer["root"];
        (node, [crl_contents(complete), crl_contents(delta.as_ref().unwrap())])
    }
}

fn crl_contents(list: &PublishedCrl) -> (u64, Vec<Serial>) {
    let der: Vec<u8> = list.pieces().flat_map(|piece| piece.to_vec()).collect();
    let crl = Crl::parse(&der).unwrap();
    (list.number, crl.entries().iter().map(|entry| entry.serial).collect())
}

fn sorted<const N: usize>(mut serials: [Serial; N]) -> Vec<Serial> {
    serials.sort();
    serials.to_vec()
}

#[tokio::test]
async fn crl_is_adopted_by_a_node_that_has_read_later_revocations() {
    for by in [FOLLOW, DELTA] {
        let nodes = Nodes::new().await;
        let (a, shown) = nodes.build(nodes.node(), CrlBuildRequest::DUE).await;
        assert_eq!(shown, [(1, vec![]), (1, vec![])]);
        let (b, same) = nodes.build(nodes.node(), CrlBuildRequest::DUE).await;
        assert_eq!(same, shown);

        let second = nodes.revoke().await;
        let (a, _) = nodes.build(a, COMPLETE).await;
        let third = nodes.revoke().await;
        // B reads both revocations before it learns of A's CRL.
        let (b, not_yet) = nodes.build(b, CrlBuildRequest::DUE).await;
        assert_eq!(not_yet, shown);
        let (b, taken) = nodes.build(b, by).await;
        assert_eq!(taken[0], (2, vec![second]), "{by:?}");
        let (b, [complete, delta]) = nodes.build(b, DELTA).await;
        assert_eq!((complete, delta.1), ((2, vec![second]), vec![third]));
        // A adopts that delta CRL, and its next complete CRL lists both revocations.
        let (a, after) = nodes.build(a, FOLLOW).await;
        assert_eq!((after[0].1.len(), &after[1].1), (1, &vec![third]));
        let (_, [complete, delta]) = nodes.build(a, COMPLETE).await;
        assert_eq!((complete.1, delta.1), (sorted([second, third]), vec![]));
        let (_, [complete, _]) = nodes.build(b, FOLLOW).await;
        assert_eq!(complete.1, sorted([second, third]));
    }
}
