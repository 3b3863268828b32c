//! Runs one change of a mount, from its plan to its commit, off the control actor's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{ChangePlan, PlannedChange, panic_error};
use crate::documents::{MAX_CHANGE_ATTEMPTS, backoff, contention_error};
use crate::error::{Error, Kind, Result};
use crate::pki::mount::view::MountView;
use crate::pki::store::{PkiOutcome, PkiStore};
use crate::rationing::{QueueCaller, cpu};

pub(super) enum ChangeOutcome {
    /// The change is stored. `view` is to be published, and `rebuild_crls` says if CRLs must be rebuilt.
    Stored { view: MountView, rebuild_crls: bool },
    /// The change is not stored. `reloaded` is the view of the stored documents, if they were read.
    Failed { error: Error, reloaded: Option<MountView> },
    /// It is unknown whether the change is stored, because storage could not be read.
    Unknown { error: Error },
}

/// Plans and commits a change. With `reload`, the plan starts from a view that is read from storage first. If another
/// node commits in the meantime, the plan runs again on the state that the other node stored.
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
        let PlannedChange { view, writes, rebuild_crls } = match planned {
            Ok(planned) => planned,
            Err(error) => return ChangeOutcome::Failed { error, reloaded },
        };
        if writes.is_empty() {
            return ChangeOutcome::Stored { view, rebuild_crls };
        }
        match store.commit(writes).await {
            Ok(outcomes) if !outcomes.contains(&PkiOutcome::SerialTaken) => {
                return ChangeOutcome::Stored { view, rebuild_crls };
            }
            Ok(_) => {
                return ChangeOutcome::Failed {
                    error: Error::internal("a certificate of the change has a serial number that is in use"),
                    reloaded,
                };
            }
            // Storage was too busy and stored nothing.
            Err(error) if error.kind() == Kind::Busy => return ChangeOutcome::Failed { error, reloaded },
            Err(error) if error.kind() == Kind::Conflict && tried + 1 < MAX_CHANGE_ATTEMPTS => again = true,
            // Either there were too many conflicts with other nodes, or the outcome of the commit is unknown. The mount
            // continues with the stored state.
            Err(error) => {
                let error = if error.kind() == Kind::Conflict { contention_error("the mount") } else { error };
                return match load_stored_view(&*store, &published).await {
                    Ok(view) => ChangeOutcome::Failed { error, reloaded: Some(view) },
                    Err(_) => ChangeOutcome::Unknown { error },
                };
            }
        }
    }
    ChangeOutcome::Failed { error: Error::internal("a change was not attempted"), reloaded }
}

async fn run_plan(plan: ChangePlan, view: Arc<MountView>) -> Result<(ChangePlan, Result<PlannedChange>)> {
    // The plan is queued under the mount, not its caller, so that it does not wait behind other work of the caller.
    let mount = QueueCaller::server(&("changes", view.mount));
    let work = move || {
        let planned = catch_unwind(AssertUnwindSafe(|| plan(&view))).unwrap_or_else(|_| Err(panic_error()));
        (plan, planned)
    };
    cpu::run_as(mount, work).await
}

/// Returns a view of the stored documents. State that documents do not contain is taken from `published`.
async fn load_stored_view(store: &dyn PkiStore, published: &Arc<MountView>) -> Result<MountView> {
    let documents = store.documents(published.mount).await?;
    let published = Arc::clone(published);
    // The view is built in the CPU queue, because a mount may have thousands of roles.
    let mount = QueueCaller::server(&("changes", published.mount));
    cpu::run_as(mount, move || published.reloaded(documents)).await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::MountId;
    use crate::pki::mount::settings::crl::CrlConfig;
    use crate::pki::store::testing::TestStore;

    const MOUNT: MountId = MountId(7);

    #[tokio::test]
    async fn panic_in_a_plan_is_an_error_and_publishes_nothing() {
        let store = TestStore::with_mount(MOUNT).await;
        let pki = store.storage.pki();
        let view = Arc::new(MountView::empty(MOUNT));
        let run = |plan: ChangePlan| run_change(plan, Arc::clone(&view), false, Arc::clone(&pki));
        let panics = || run(Box::new(|_| panic!("a defect")));
        let writes = || {
            run(Box::new(|view| {
                let mut next = view.clone();
                let writes = vec![next.set_crl_config(CrlConfig::default())];
                Ok(PlannedChange { view: next, writes, rebuild_crls: false })
            }))
        };
        let is_defect = |changed: ChangeOutcome| matches!(changed, ChangeOutcome::Failed { reloaded: None, error } if error.kind() == Kind::Internal);

        let commits = store.storage.commits();
        assert!(is_defect(panics().await));
        assert_eq!(store.storage.commits(), commits, "nothing is written");
        assert!(pki.documents(MOUNT).await.unwrap().is_empty());
        // The next change is stored.
        assert!(matches!(writes().await, ChangeOutcome::Stored { rebuild_crls: false, .. }));
        assert_eq!(store.storage.commits(), commits + 1);
        assert_eq!(pki.documents(MOUNT).await.unwrap().len(), 1);
        // Every read and write of a closed store fails. The panic has the same outcome as with the open store, so the
        // change neither reads nor writes after a panic.
        store.storage.shutdown().await.unwrap();
        assert!(is_defect(panics().await));
        assert!(matches!(writes().await, ChangeOutcome::Unknown { .. }));
    }
}
