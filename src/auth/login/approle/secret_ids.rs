//! The secret ids of a role: making one, finding one, ending one, listing them.

use futures_util::future::BoxFuture;

use super::method::AppRoles;
use super::role::AppRole;
use super::secret_id::{Issued, MAX_TEXT, SecretId, Wanted, hash};
use crate::auth::login::open::Open;
use crate::auth::mounts::Mount;
use crate::auth::store::{AuthOutcome, AuthWrite, SecretIdKey, SecretIdRow, SecretIdWrite};
use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

/// How a request names a secret id.
pub(crate) enum Named {
    /// By its text.
    Text(Secret),
    /// By its handle.
    Accessor(String),
}

impl Named {
    fn key(self, role: &AppRole) -> SecretIdKey {
        match self {
            Self::Text(text) => SecretIdKey::Hash(hash(role, text.expose())),
            Self::Accessor(accessor) => SecretIdKey::Accessor(accessor),
        }
    }
}

/// What a caller hears who asks about a role that is not there.
fn unknown_role(name: &str) -> Error {
    Error::invalid(format!("role {name:?} does not exist"))
}

/// What a caller hears who wants to change or add something of a role that is not there.
pub(crate) fn absent_role(name: &str) -> Error {
    Error::new(Kind::NotFound, format!("role {name:?} does not exist"))
}

impl Open<AppRoles> {
    /// Makes a secret id of a role.
    ///
    /// # Errors
    /// `NotFound` when there is no such role; `Invalid` with the rule that it breaks, and when the chosen one is
    /// there; those of the store.
    pub(crate) async fn issue(&self, name: &str, mut wanted: Wanted, mount: &Mount, now: Time) -> Result<Issued> {
        let view = self.view();
        let role = view.roles().get(name).ok_or_else(|| absent_role(name))?;
        let chosen = wanted.text.take().map(checked).transpose()?;
        let is_chosen = chosen.is_some();
        let (terms, num_uses, warnings) = wanted.under(role, mount, now)?;
        let text = chosen.unwrap_or_else(|| Secret::new(crate::random::uuid()));
        let end = time::Duration::try_from(terms.ttl).unwrap_or(time::Duration::MAX);
        let row = SecretIdRow {
            mount: self.mount(),
            role: role.number,
            hash: hash(role, text.expose()),
            accessor: crate::random::uuid(),
            expires_at: (!terms.ttl.is_zero()).then(|| now.saturating_add(end)),
            uses: (num_uses > 0).then_some(num_uses),
            updated_at: now,
            body: serde_json::to_vec(&terms).map_err(Error::internal)?,
        };
        let accessor = row.accessor.clone();
        let stored = self.store().commit(vec![AuthWrite::SecretId(SecretIdWrite::Insert(row))]).await;
        let stored = stored.map_err(|error| match error.kind() {
            Kind::Conflict if is_chosen => Error::invalid("secret_id: is already registered"),
            _ => error,
        })?;
        match stored.as_slice() {
            [AuthOutcome::Done] => Ok(Issued { text, accessor, ttl: terms.ttl, num_uses, warnings }),
            _ => Err(absent_role(name)),
        }
    }

    /// A secret id of a role; `None` when there is none that lives.
    ///
    /// # Errors
    /// `Invalid` when there is no such role; those of the store.
    pub(crate) async fn look_up(&self, name: &str, named: Named, now: Time) -> Result<Option<SecretId>> {
        let view = self.view();
        self.find(view.roles().get(name).ok_or_else(|| unknown_role(name))?, named, now).await
    }

    /// The same, of a role that is known.
    pub(super) async fn find(&self, role: &AppRole, named: Named, now: Time) -> Result<Option<SecretId>> {
        let row = self.store().secret_id(self.mount(), role.number, named.key(role)).await?;
        row.map_or(Ok(None), |row| SecretId::live(row, now))
    }

    /// Ends a secret id of a role; whether there was one that lived.
    ///
    /// # Errors
    /// As [`Open::look_up`].
    pub(crate) async fn destroy(&self, name: &str, named: Named, now: Time) -> Result<bool> {
        let Some(known) = self.look_up(name, named, now).await? else { return Ok(false) };
        let remove = SecretIdWrite::Remove { mount: self.mount(), hash: known.row.hash };
        let outcomes = self.store().commit(vec![AuthWrite::SecretId(remove)]).await?;
        Ok(outcomes == [AuthOutcome::Done])
    }

    /// What a role is to its secret ids: one that is made again under its name is another.
    ///
    /// # Errors
    /// `Invalid` when there is no such role.
    pub(crate) fn number_of(&self, name: &str) -> Result<i64> {
        self.view().roles().get(name).map(|role| role.number).ok_or_else(|| unknown_role(name))
    }

    /// At most `limit` accessors of a role's secret ids that live, in byte order, above `after`.
    pub(crate) fn accessors(
        &self,
        role: i64,
        after: String,
        limit: u32,
        now: Time,
    ) -> BoxFuture<'static, Result<Vec<String>>> {
        self.store().secret_id_accessors(self.mount(), role, after, now, limit)
    }

    /// Whether the mount and a role of it have not ended, whatever this node has heard.
    pub(crate) fn stands(&self, role: i64) -> BoxFuture<'static, Result<bool>> {
        self.store().secret_id_role_stands(self.mount(), role)
    }
}

/// A chosen text. Blanks at its ends do not count: logins leave them out too.
fn checked(text: Secret) -> Result<Secret> {
    let bare = text.expose().trim_ascii();
    if bare.is_empty() || bare.len() > MAX_TEXT {
        return Err(Error::invalid(format!("secret_id: must have 1 to {MAX_TEXT} bytes")));
    }
    Ok(Secret::new(bare))
}
