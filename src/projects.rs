//! The projects API: organizations, users, teams and their tokens; projects, workspaces and who may do
//! what with them.
//!
//! [`Projects`] is the front door: it runs work in a session of the store, as many at once as there are
//! places ([`admission`]). A request is one session: the caller's rights are read where the rows are changed, so
//! that nothing is checked in one state and done in another. Work takes and gives values of this module; nothing
//! is read or rendered for a wire in a session. Rules and the SQL of a resource stand in one file; the session is
//! the seam to the store ([`store`]).
//!
//! From below: what everything is made of ([`refusal`], [`tx`], [`attributes`], [`page`], [`rights`],
//! [`project_access`]), who asks ([`token`], [`caller`], [`member`]), the resources, and above those of teams what
//! holds between them ([`escalation`]). No two files name each other.
//!
//! Refuses by [`refusal::Refusal`]: everything that is wrong at once, each fault with its place. Called by
//! the wire (`http::jsonapi`) and by the commands that prepare a server.

pub mod access_words;
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
pub mod refusal;
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

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::clock::Clock;
use crate::error::Error;
use crate::sql::{Failure, Work};
use admission::Admission;
use caller::Caller;
use last_use::Noted;
use refusal::{Outcome, Refusal, Stop};
use store::{Asker, ITSELF, ProjectStore, TokenSeal};
pub use tx::Tx;

/// What work does to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only reads, in the turn of whoever asks.
    Read(Asker),
    /// It may write, in the turn of whoever asks.
    Write(Asker),
}

/// The projects API of one server; clones are the same.
#[derive(Clone)]
pub struct Projects {
    admission: Admission,
    token_seal: Arc<dyn TokenSeal>,
    clock: Clock,
    noted: Noted,
}

impl Access {
    /// Whose turn it is.
    fn asker(self) -> Asker {
        let (Self::Read(asker) | Self::Write(asker)) = self;
        asker
    }
}

impl Projects {
    /// The API on a store.
    pub fn start(store: Arc<dyn ProjectStore>, token_seal: Arc<dyn TokenSeal>, clock: Clock) -> Self {
        Self { admission: Admission::new(store), token_seal, clock, noted: Noted::default() }
    }

    /// Notes that a caller's token is in use, beside the request. What cannot be written now is written a
    /// minute later.
    pub fn note_use(&self, caller: &Caller) {
        if !self.noted.begins(caller, self.clock.now()) {
            return;
        }
        let (projects, caller) = (self.clone(), caller.clone());
        tokio::task::spawn_local(async move {
            let noted = projects.run("token_use", Access::Write(ITSELF), move |mut tx| {
                let caller = caller.clone();
                async move { last_use::note(&mut tx, &caller).await }.boxed_local()
            });
            if let Err(refusal) = noted.await {
                tracing::debug!("the use of a token was not noted: {}", refusal.kind.words());
            }
        });
    }

    /// Removes what is left of an ended organization, as far as that takes few sessions: what was deleted counts nowhere
    /// any more when its deletion is answered. The rest, and what cannot be removed now, is [`Projects::sweep`]'s.
    pub async fn clear(&self, organization: i64, access: Access) {
        /// Sessions, each of `tx::PARTS_AT_ONCE` rows at most.
        const FEW: usize = 20;
        for _ in 0..FEW {
            let step = self.run("organization_ending", access, move |mut tx| {
                async move { organization::ending::step_of(&mut tx, organization).await }.boxed_local()
            });
            match step.await {
                Ok(true) => {}
                Ok(false) => return,
                Err(refusal) => return tracing::debug!("left to the sweep: {}", refusal.kind.words()),
            }
        }
    }

    /// Seals tokens that nodes of the version before have made, for as long as that is allowed. Then removes what is
    /// left of deleted organizations, in short transactions with pauses as long as each: other writers have at least
    /// half of the store's time.
    ///
    /// # Errors
    /// Those of the store; what is left then is found the next time.
    pub async fn sweep(&self) -> crate::error::Result<()> {
        self.token_seal.keep().await?;
        loop {
            let begun = Instant::now();
            let step = self.run("organization_ending", Access::Write(ITSELF), |mut tx| {
                async move { organization::ending::step(&mut tx).await }.boxed_local()
            });
            if !step.await? {
                return Ok(());
            }
            tokio::time::sleep(begun.elapsed()).await;
        }
    }

    /// Runs `work` in one session, begun on this thread ([`admission`] says where it runs). `name` is what the
    /// metrics call it. It may run more than once, so it changes nothing but its session.
    ///
    /// # Errors
    /// What the work refuses; what the store refuses, by the constraint that would be violated; `Busy`, `Quota` and
    /// `Unavailable` on the way there.
    pub async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        access: Access,
        work: impl for<'t> Fn(Tx<'t>) -> LocalBoxFuture<'t, Outcome<T>> + Send + Sync + 'static,
    ) -> Result<T, Refusal> {
        let (clock, seal) = (self.clock.clone(), Arc::clone(&self.token_seal));
        let kept = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&kept);
        let keep = move |outcome| *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        let (work, keep) = (Arc::new(work), Arc::new(keep));
        let in_session: Work = Arc::new(move |session| {
            let (work, keep, now) = (Arc::clone(&work), Arc::clone(&keep), clock.now());
            let seal = Arc::clone(&seal);
            async move {
                match work(Tx::new(session, seal, now)).await {
                    Ok(value) => {
                        keep(Ok(value));
                        Ok(())
                    }
                    Err(Stop::Refused(refusal)) => {
                        keep(Err(refusal));
                        Err(Failure::Refused)
                    }
                    Err(Stop::Store(failure)) => Err(failure),
                }
            }
            .boxed_local()
        });
        let ran = self.admission.run(access.asker(), move |store| match access {
            Access::Read(asker) => store.read(name, asker, in_session),
            Access::Write(asker) => store.write(name, asker, in_session),
        });
        match ran.await? {
            Ok(()) | Err(Failure::Refused) => {
                let outcome = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
                outcome.unwrap_or_else(|| Err(Error::internal("work in a session that has no outcome").into()))
            }
            Err(failure) => Err(failure.into()),
        }
    }
}
