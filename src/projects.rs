//! The projects API: organizations, users, teams and their tokens, projects, workspaces and access rights.
//!
//! [`Projects`] runs each request in one session of the store. The caller's rights are read in the transaction
//! that changes the rows, so a check cannot be outdated when the change is made. Rules and SQL of a resource
//! are in the same file; [`store`] is the interface to storage.
//!
//! Rejections are [`rejection::ApiRejection`]s, which list every fault of a request with its position. Callers are
//! `http::jsonapi` and the commands that prepare a server.

pub mod access_values;
pub mod admission;
pub mod agent_pool;
pub mod agent_scope;
pub mod api_token;
pub mod attributes;
pub mod caller;
pub mod escalation;
pub mod grants;
pub mod id;
pub mod last_use;
pub mod member;
pub mod membership;
pub mod mode;
pub mod organization;
pub mod organization_tags;
pub mod page;
pub mod project;
pub mod project_access;
pub mod rejection;
pub mod rights;
pub mod setup;
pub mod store;
pub mod tag;
pub mod team;
pub mod team_access;
pub mod token;
pub mod tx;
pub mod user;
pub mod workspace;
pub mod workspace_access;
pub mod workspace_keys;

use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::clock::Clock;
use crate::sql::{self, SessionEnd, SqlError};
use admission::StoreAdmission;
use caller::ProjectsCaller;
use last_use::RecentTokenUses;
use rejection::{ApiRejection, WorkError, WorkResult};
pub use store::SessionAccess;
use store::{ApiTokenSeal, ProjectStore, SERVER_CALLER};
pub use tx::Tx;

/// The projects API of one server. Clones share state.
#[derive(Clone)]
pub struct Projects {
    admission: StoreAdmission,
    token_seal: Arc<dyn ApiTokenSeal>,
    clock: Clock,
    recent_uses: RecentTokenUses,
}

impl Projects {
    /// Creates the projects API on top of a store.
    pub fn start(store: Arc<dyn ProjectStore>, token_seal: Arc<dyn ApiTokenSeal>, clock: Clock) -> Self {
        Self { admission: StoreAdmission::new(store), token_seal, clock, recent_uses: RecentTokenUses::default() }
    }

    /// Records in the background that a caller's token was used, at most once a minute per token. If recording fails,
    /// the first use of the token after this minute is recorded instead.
    pub fn record_token_use(&self, caller: &ProjectsCaller) {
        if !self.recent_uses.should_record(caller, self.clock.now()) {
            return;
        }
        let projects = self.clone();
        let caller = caller.clone();
        tokio::task::spawn_local(async move {
            let noted = projects.run("token_use", SessionAccess::Write(SERVER_CALLER), move |mut tx| {
                let caller = caller.clone();
                async move { last_use::record_use(&mut tx, &caller).await }.boxed_local()
            });
            if let Err(refusal) = noted.await {
                tracing::debug!("cannot record the use of a token: {}", refusal.kind.description());
            }
        });
    }

    /// Removes rows of a deleted (ended) organization in at most 20 sessions. Requests no longer see these rows.
    /// [`Projects::sweep`] removes the remaining rows.
    pub async fn remove_rows_of_ended_organization(&self, organization: i64, access: SessionAccess) {
        /// Maximum number of sessions; each removes at most `tx::MAX_ROWS_PER_SESSION` rows of a table.
        const MAX_REMOVAL_SESSIONS: usize = 20;
        for _ in 0..MAX_REMOVAL_SESSIONS {
            let step = self.run("organization_ending", access, move |mut tx| {
                async move { organization::removal::remove_some_rows(&mut tx, organization).await }.boxed_local()
            });
            match step.await {
                Ok(true) => {}
                Ok(false) => return,
                Err(refusal) => {
                    return tracing::debug!(
                        "cannot remove the rows of a deleted organization; the next sweep removes them: {}",
                        refusal.kind.description()
                    );
                }
            }
        }
    }

    /// For a limited time after an upgrade, seals the API tokens that nodes of the previous version stored without a
    /// seal. Then removes the rows of deleted organizations in short transactions. After each transaction it pauses for
    /// as long as the transaction took, so that other writers have at least half of the store's time.
    ///
    /// # Errors
    /// Those of the store. The next call continues the work.
    pub async fn sweep(&self) -> crate::error::Result<()> {
        self.token_seal.seal_unsealed_tokens().await?;
        loop {
            let begun = Instant::now();
            let step = self.run("organization_ending", SessionAccess::Write(SERVER_CALLER), |mut tx| {
                async move { organization::removal::remove_next(&mut tx).await }.boxed_local()
            });
            if !step.await? {
                return Ok(());
            }
            tokio::time::sleep(begun.elapsed()).await;
        }
    }

    /// Runs `work` in one session of the store, started on this thread (see [`admission`]). `name` is the metrics label
    /// of the session. `work` may run more than once, so it must have no side effects outside its session.
    ///
    /// # Errors
    /// Rejections that `work` returns; rejections for violated database constraints; `Busy`, `Quota` and `Unavailable`
    /// from admission and the store.
    pub async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        access: SessionAccess,
        work: impl for<'t> Fn(Tx<'t>) -> LocalBoxFuture<'t, WorkResult<T>> + Send + Sync + 'static,
    ) -> Result<T, ApiRejection> {
        let clock = self.clock.clone();
        let seal = Arc::clone(&self.token_seal);
        let (work, result) = sql::capture_result(move |session| {
            let work = work(Tx::new(session, Arc::clone(&seal), clock.now()));
            async move {
                match work.await {
                    Ok(value) => Ok(SessionEnd::Commit(Ok(value))),
                    Err(WorkError::Refused(refusal)) => Ok(SessionEnd::RollBack(Err(refusal))),
                    Err(WorkError::Store(failure)) => Err(failure),
                }
            }
            .boxed_local()
        });
        match self.admission.run(access, |store| store.run(name, access, work)).await? {
            Ok(()) | Err(SqlError::Rejected) => result.take()?,
            Err(failure) => Err(failure.into()),
        }
    }
}
