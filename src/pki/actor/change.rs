//! Runs one change of a mount, from its plan to its commit, off the control actor's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{ChangePlan, PlannedChange, panic_error};
use crate::documents::{MAX_CHANGE_ATTEMPTS, backoff, contention_error};
use crate::error::{Error, Kind, Result};
use crate::fair_queue::{QueueCaller, cpu};
use crate::pki::mount::view::MountView;
use crate::pki::store::{PkiOutcome, PkiStore};

pub(super) enum ChangeOutcome {
    /// Stored: the view to publish, and whether CRLs must be rebuilt.
    Stored { view: MountView, crls: bool },
    /// Not stored; `reloaded` is the view of what storage holds, if it was read.
    Failed { error: Error, reloaded: Option<MountView> },
    /// Unknown whether it is stored, and storage could not be read.
    Unknown { error: Error },
}

/// Plans and commits a change; with `reload`, on a view read from storage. When another node commits first, plans again
/// on what that node stored.
pub(super) async fn run_change(
    mut plan: ChangePlan,
    published: Arc<MountView>,
    reload: bool,
    store: Arc<dyn PkiStore>,
) -> ChangeOutcome {
    let mut reloaded = None;
    let mut again = reload;
    for tried in 0..MAX_CHANGE_ATTEMPTS {
        backoff(tried).await;
        if again {
            match load_stored_view(&*store, &published).await {
                Ok(view) => reloaded = Some(view),
                Err(error) => return ChangeOutcome::Unknown { error },
            }
        }
        let view = reloaded.clone().map_or_else(|| Arc::clone(&published), Arc::new);
        let planned;
        (plan, planned) = match run_plan(plan, view).await {
            Ok(done) => done,
            Err(error) => return ChangeOutcome::Failed { error, reloaded },
        };
        let PlannedChange { view, writes, crls } = match planned {
            Ok(planned) => planned,
            Err(error) => return ChangeOutcome::Failed { error, reloaded },
        };
        if writes.is_empty() {
            return ChangeOutcome::Stored { view, crls };
        }
        match store.commit(writes).await {
            Ok(outcomes) if !outcomes.contains(&PkiOutcome::SerialTaken) => {
                return ChangeOutcome::Stored { view, crls };
            }
            Ok(_) => return ChangeOutcome::Failed { error: Error::internal("serial collision"), reloaded },
            // A rejected unit was not stored.
            Err(error) if error.kind() == Kind::Busy => return ChangeOutcome::Failed { error, reloaded },
            Err(error) if error.kind() == Kind::Conflict && tried + 1 < MAX_CHANGE_ATTEMPTS => again = true,
            // Another node's write, or a commit with unknown outcome: the stored state decides.
            Err(error) => {
                let error = if error.kind() == Kind::Conflict { contention_error("the mount") } else { error };
                return match load_stored_view(&*store, &published).await {
                    Ok(view) => ChangeOutcome::Failed { error, reloaded: Some(view) },
                    Err(_) => ChangeOutcome::Unknown { error },
                };
            }
        }
    }
    ChangeOutcome::Failed { error: Error::internal("a change that was not tried"), reloaded }
}

async fn run_plan(plan: ChangePlan, view: Arc<MountView>) -> Result<(ChangePlan, Result<PlannedChange>)> {
    // A queue per mount: a change does not wait behind other work of its caller.
    let mount = QueueCaller::server(&("changes", view.mount));
    let work = move || {
        let planned = catch_unwind(AssertUnwindSafe(|| plan(&view))).unwrap_or_else(|_| Err(panic_error()));
        (plan, planned)
    };
    cpu::run_as(mount, work).await
}

/// Returns the view of the stored documents; state that does not come from documents is taken from `published`.
async fn load_stored_view(store: &dyn PkiStore, published: &Arc<MountView>) -> Result<MountView> {
    let documents = store.documents(published.mount).await?;
    let published = Arc::clone(published);
    // On the CPU queue, because a mount may have thousands of roles.
    let mount = QueueCaller::server(&("changes", published.mount));
    cpu::run_as(mount, move || published.reloaded(documents)).await?
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::documents::{Document, MountId};
    use crate::pki::store::{
        CrlRow, KnownSerial, LeaseRange, LeaseRow, MetadataRow, PkiWrite, RecordedResponseRow, RemovableRevocations,
        SerialAndDer, SerialStatus, StoredCertificate, StoredRevocation, TidyRow,
    };
    use crate::x509::serial::Serial;

    #[tokio::test]
    async fn panic_in_a_plan_is_an_error_and_publishes_nothing() {
        let view = Arc::new(MountView::empty(MountId(1)));
        let changed = run_change(Box::new(|_| panic!("a defect")), view, false, Arc::new(NoStore)).await;
        assert!(matches!(changed, ChangeOutcome::Failed { reloaded: None, error } if error.kind() == Kind::Internal));
    }

    struct NoStore;

    impl PkiStore for NoStore {
        fn status(&self, _: MountId, _: Serial) -> BoxFuture<'static, Result<SerialStatus>> {
            unreachable!("nothing is read")
        }

        fn known(&self, _: MountId, _: Vec<Serial>) -> BoxFuture<'static, Result<Vec<KnownSerial>>> {
            unreachable!("nothing is read")
        }

        fn certificates(&self, _: MountId, _: Option<Serial>, _: u32) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
            unreachable!("nothing is read")
        }

        fn ending(&self, _: MountId, _: i64, _: u32) -> BoxFuture<'static, Result<Vec<SerialAndDer>>> {
            unreachable!("nothing is read")
        }

        fn unlisted(&self, _: MountId, _: i64, _: RemovableRevocations) -> BoxFuture<'static, Result<bool>> {
            unreachable!("nothing is read")
        }

        fn tidy(&self, _: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>> {
            unreachable!("nothing is read")
        }

        fn commit(&self, _: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>> {
            unreachable!("nothing is written")
        }

        fn require_capacity(&self) -> Result<()> {
            unreachable!("nothing is written")
        }

        fn has_mount(&self, _: MountId) -> BoxFuture<'static, Result<bool>> {
            unreachable!("nothing is read")
        }

        fn documents(&self, _: MountId) -> BoxFuture<'static, Result<Vec<Document>>> {
            unreachable!("nothing is read")
        }

        fn documents_of_kind(&self, _: MountId, _: &'static str) -> BoxFuture<'static, Result<Vec<Document>>> {
            unreachable!("nothing is read")
        }

        fn certificate(&self, _: MountId, _: Serial) -> BoxFuture<'static, Result<Option<StoredCertificate>>> {
            unreachable!("nothing is read")
        }

        fn serials(&self, _: MountId, _: Option<Serial>, _: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
            unreachable!("nothing is read")
        }

        fn revoked_serials(&self, _: MountId, _: Option<Serial>, _: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
            unreachable!("nothing is read")
        }

        fn revocations(&self, _: MountId, _: u64, _: u32) -> BoxFuture<'static, Result<Vec<StoredRevocation>>> {
            unreachable!("nothing is read")
        }

        fn crls(&self, _: MountId) -> BoxFuture<'static, Result<Vec<CrlRow>>> {
            unreachable!("nothing is read")
        }

        fn crl_floor(&self) -> BoxFuture<'static, Result<u64>> {
            unreachable!("nothing is read")
        }

        fn counts(&self, _: MountId) -> BoxFuture<'static, Result<(u64, u64)>> {
            unreachable!("nothing is read")
        }

        fn lease(&self, _: String) -> BoxFuture<'static, Result<Option<LeaseRow>>> {
            unreachable!("nothing is read")
        }

        fn lease_ids(&self, _: LeaseRange, _: u32) -> BoxFuture<'static, Result<Vec<String>>> {
            unreachable!("nothing is read")
        }

        fn ending_leases(&self, _: String, _: String, _: u32) -> BoxFuture<'static, Result<Vec<LeaseRow>>> {
            unreachable!("nothing is read")
        }

        fn mark_ended(&self, _: u32) -> BoxFuture<'static, Result<u32>> {
            unreachable!("nothing is written")
        }

        fn sweep_leases(&self, _: i64, _: u32) -> BoxFuture<'static, Result<u32>> {
            unreachable!("nothing is written")
        }

        fn answered(&self, _: [u8; 32]) -> BoxFuture<'static, Result<Option<RecordedResponseRow>>> {
            unreachable!("nothing is read")
        }

        fn metadata(&self, _: MountId, _: Serial) -> BoxFuture<'static, Result<Option<MetadataRow>>> {
            unreachable!("nothing is read")
        }

        fn metadata_serials(&self, _: MountId, _: Option<Serial>, _: u32) -> BoxFuture<'static, Result<Vec<Serial>>> {
            unreachable!("nothing is read")
        }
    }
}
