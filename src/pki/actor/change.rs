//! Runs one change of a mount, from its plan to its commit, off the control actor's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Plan, Planned, panicked};
use crate::documents::{TRIES, overtaken, step_aside};
use crate::error::{Error, Kind, Result};
use crate::pki::mount::view::View;
use crate::pki::store::{PkiOutcome, PkiStore};
use crate::turns::{Caller, cpu};

pub(super) enum Changed {
    /// Stored: the view to publish, and whether CRLs must be rebuilt.
    Stored { view: View, crls: bool },
    /// Not stored; `reloaded` is the view of what storage holds, if it was read.
    Failed { error: Error, reloaded: Option<View> },
    /// Unknown whether it is stored, and storage could not be read.
    Unknown { error: Error },
}

/// Plans and commits a change; with `reload`, on a view read from storage. When another node commits first, plans again
/// on what that node stored.
pub(super) async fn run_change(
    mut plan: Plan,
    published: Arc<View>,
    reload: bool,
    store: Arc<dyn PkiStore>,
) -> Changed {
    let mut reloaded = None;
    let mut again = reload;
    for tried in 0..TRIES {
        step_aside(tried).await;
        if again {
            match stored(&*store, &published).await {
                Ok(view) => reloaded = Some(view),
                Err(error) => return Changed::Unknown { error },
            }
        }
        let view = reloaded.clone().map_or_else(|| Arc::clone(&published), Arc::new);
        let planned;
        (plan, planned) = match run_plan(plan, view).await {
            Ok(done) => done,
            Err(error) => return Changed::Failed { error, reloaded },
        };
        let Planned { view, writes, crls } = match planned {
            Ok(planned) => planned,
            Err(error) => return Changed::Failed { error, reloaded },
        };
        if writes.is_empty() {
            return Changed::Stored { view, crls };
        }
        match store.commit(writes).await {
            Ok(outcomes) if !outcomes.contains(&PkiOutcome::SerialTaken) => return Changed::Stored { view, crls },
            Ok(_) => return Changed::Failed { error: Error::internal("serial collision"), reloaded },
            // A rejected unit was not stored.
            Err(error) if error.kind() == Kind::Busy => return Changed::Failed { error, reloaded },
            Err(error) if error.kind() == Kind::Conflict && tried + 1 < TRIES => again = true,
            // Another node's write, or a commit with unknown outcome: the stored state decides.
            Err(error) => {
                let error = if error.kind() == Kind::Conflict { overtaken("the mount") } else { error };
                return match stored(&*store, &published).await {
                    Ok(view) => Changed::Failed { error, reloaded: Some(view) },
                    Err(_) => Changed::Unknown { error },
                };
            }
        }
    }
    Changed::Failed { error: Error::internal("a change that was not tried"), reloaded }
}

async fn run_plan(plan: Plan, view: Arc<View>) -> Result<(Plan, Result<Planned>)> {
    // A queue per mount: a change does not wait behind other work of its caller.
    let mount = Caller::server(&("changes", view.mount));
    let work = move || {
        let planned = catch_unwind(AssertUnwindSafe(|| plan(&view))).unwrap_or_else(|_| Err(panicked()));
        (plan, planned)
    };
    cpu::run_as(mount, work).await
}

/// Returns the view of the stored documents; state that does not come from documents is taken from `published`.
async fn stored(store: &dyn PkiStore, published: &Arc<View>) -> Result<View> {
    let documents = store.documents(published.mount).await?;
    let published = Arc::clone(published);
    // On the CPU queue, because a mount may have thousands of roles.
    let mount = Caller::server(&("changes", published.mount));
    cpu::run_as(mount, move || published.reloaded(documents)).await?
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::documents::{Document, MountId};
    use crate::pki::store::{
        AnsweredRow, CrlRow, KnownSerial, LeaseRange, LeaseRow, Listed, MetadataRow, PkiWrite, SerialAndDer,
        SerialStatus, StoredCertificate, StoredRevocation, TidyRow,
    };
    use crate::x509::serial::Serial;

    #[tokio::test]
    async fn a_panic_in_a_plan_is_an_error_and_nothing_is_published() {
        let view = Arc::new(View::empty(MountId(1)));
        let changed = run_change(Box::new(|_| panic!("a defect")), view, false, Arc::new(NoStore)).await;
        assert!(matches!(changed, Changed::Failed { reloaded: None, error } if error.kind() == Kind::Internal));
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

        fn unlisted(&self, _: MountId, _: i64, _: Listed) -> BoxFuture<'static, Result<bool>> {
            unreachable!("nothing is read")
        }

        fn tidy(&self, _: MountId) -> BoxFuture<'static, Result<Option<TidyRow>>> {
            unreachable!("nothing is read")
        }

        fn commit(&self, _: Vec<PkiWrite>) -> BoxFuture<'static, Result<Vec<PkiOutcome>>> {
            unreachable!("nothing is written")
        }

        fn require_room(&self) -> Result<()> {
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

        fn answered(&self, _: [u8; 32]) -> BoxFuture<'static, Result<Option<AnsweredRow>>> {
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
