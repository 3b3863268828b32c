//! What other nodes of the database changed, handed on to the mounts that are open here. Called by
//! [`nodes`](crate::nodes).

use std::sync::Arc;

use metrics::counter;

use super::{From, Mounts};
use crate::auth::login::open::Opened;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::pki::Authority;
use crate::telemetry;

/// A mount that is open here.
enum Open {
    Pki(Arc<Authority>),
    Method(Arc<dyn Opened>),
}

impl Open {
    /// Reads what is stored again and publishes it.
    async fn reload(&self) -> Result<()> {
        match self {
            Self::Pki(authority) => authority.reload().await,
            Self::Method(method) => method.reload().await,
        }
    }

    /// Forgets which revocations and lists it knows, and reads them again in the background.
    fn begin_again(&self) {
        match self {
            Self::Pki(authority) => authority.begin_crls_again(),
            Self::Method(_) => {}
        }
    }

    /// Whether what it publishes holds every revocation up to this number of its sequence; `None` when it
    /// publishes none.
    fn covers(&self, revocations: u64) -> Option<bool> {
        match self {
            Self::Pki(authority) => Some(authority.crls_cover(revocations)),
            Self::Method(_) => None,
        }
    }

    /// Takes over, or makes, what is to be published of other nodes' revocations, in the background.
    fn follow_revocations(&self) {
        match self {
            Self::Pki(authority) => authority.follow_crls(),
            Self::Method(_) => {}
        }
    }
}

impl Mounts {
    /// Another node changed policies, the mount table or managed keys: reads them again, and closes and opens
    /// mounts as the table says.
    ///
    /// # Errors
    /// `Unavailable` or `Busy` from storage. A mount whose documents cannot be read is logged and stays
    /// closed.
    pub async fn follow_table(&self) -> Result<()> {
        self.auth.reload().await?;
        let compromised = self.pki.compromised().reload().await;
        compromised.or_else(|error| tolerate("compromised keys of another node cannot be read", error))?;
        self.keys.reload().await.or_else(|error| tolerate("managed keys of another node cannot be read", error))?;
        counter!(telemetry::CHANGES_RELOADS, "part" => "system").increment(1);
        self.close_absent();
        for mount in self.auth.mounts().iter() {
            if let Err(error) = self.open_one(mount, From::Stored).await {
                tolerate("a mount of another node does not open", error)?;
            }
        }
        Ok(())
    }

    /// Another node changed this mount: reads it again if it is open here.
    ///
    /// # Errors
    /// As [`Mounts::follow_table`]; what was published stays.
    pub async fn follow(&self, mount: MountId) -> Result<()> {
        let Some(open) = self.opened(mount) else { return Ok(()) };
        let reload = open.reload().await;
        counter!(telemetry::CHANGES_RELOADS, "part" => "mount").increment(1);
        reload.or_else(|error| tolerate("another node's change of a mount cannot be read", error))
    }

    /// The database goes on without some of what was stored: reads all of this mount again if it is open here,
    /// revocations and lists in the background.
    ///
    /// # Errors
    /// As [`Mounts::follow`].
    pub async fn follow_anew(&self, mount: MountId) -> Result<()> {
        self.follow(mount).await?;
        if let Some(open) = self.opened(mount) {
            open.begin_again();
        }
        Ok(())
    }

    /// Whether what this mount publishes holds every revocation up to this number; `None` when it is not open
    /// here, or publishes none.
    pub fn covers(&self, mount: MountId, revocations: u64) -> Option<bool> {
        self.opened(mount)?.covers(revocations)
    }

    /// Has this mount publish what other nodes revoked, in the background.
    pub fn follow_revocations(&self, mount: MountId) {
        if let Some(open) = self.opened(mount) {
            open.follow_revocations();
            counter!(telemetry::CHANGES_RELOADS, "part" => "crls").increment(1);
        }
    }

    fn opened(&self, mount: MountId) -> Option<Open> {
        let authority = self.pki.authority(mount).ok().map(Open::Pki);
        authority.or_else(|| self.auth.logins().any(mount).map(Open::Method))
    }
}

/// What cannot be read although storage answers (a document of a newer program) must not keep this node
/// from everything else.
fn tolerate(what: &'static str, error: Error) -> Result<()> {
    if error.kind() == Kind::Internal {
        telemetry::not_done(what, &error);
        return Ok(());
    }
    Err(error)
}
