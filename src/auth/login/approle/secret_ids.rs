//! Creates, finds, deletes and lists the secret ids of a role.

use futures_util::future::BoxFuture;

use super::method::AppRoleMethod;
use super::role::AppRole;
use super::secret_id::{IssuedSecretId, MAX_SECRET_ID_BYTES, SecretId, SecretIdRequest, hash_secret_id};
use crate::auth::login::method_mount::MethodMount;
use crate::auth::mounts::Mount;
use crate::auth::store::{AuthOutcome, AuthWrite, SecretIdKey, SecretIdRow, SecretIdWrite};
use crate::clock::Time;
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

/// The secret id that a request refers to.
pub(crate) enum SecretIdRef {
    /// The secret id with this text.
    Text(Secret),
    /// The secret id with this accessor.
    Accessor(String),
}

impl SecretIdRef {
    fn key(self, role: &AppRole) -> SecretIdKey {
        match self {
            Self::Text(text) => SecretIdKey::Hash(hash_secret_id(role, text.expose())),
            Self::Accessor(accessor) => SecretIdKey::Accessor(accessor),
        }
    }
}

/// The error when a request looks up a secret id of a role that does not exist.
fn invalid_role_error(name: &str) -> Error {
    Error::invalid(format!("role {name:?} does not exist"))
}

/// The error when a request changes a role that does not exist.
pub(crate) fn role_not_found_error(name: &str) -> Error {
    Error::new(Kind::NotFound, format!("role {name:?} does not exist"))
}

impl MethodMount<AppRoleMethod> {
    /// Creates a secret id of the role `name`.
    ///
    /// # Errors
    /// `NotFound` if the role does not exist; `Invalid` with the violated rule, or when a secret id with the chosen
    /// text exists; store errors.
    pub(crate) async fn issue_secret_id(
        &self,
        name: &str,
        mut wanted: SecretIdRequest,
        mount: &Mount,
        now: Time,
    ) -> Result<IssuedSecretId> {
        let view = self.view();
        let role = view.roles().get(name).ok_or_else(|| role_not_found_error(name))?;
        let chosen = wanted.text.take().map(validate_secret_id).transpose()?;
        let is_chosen = chosen.is_some();
        let (terms, num_uses, warnings) = wanted.apply_limits(role, mount, now)?;
        let text = chosen.unwrap_or_else(|| Secret::new(crate::random::uuid()));
        let end = time::Duration::try_from(terms.ttl).unwrap_or(time::Duration::MAX);
        let row = SecretIdRow {
            mount: self.mount(),
            role: role.number,
            hash: hash_secret_id(role, text.expose()),
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
            [AuthOutcome::Done] => Ok(IssuedSecretId { text, accessor, ttl: terms.ttl, num_uses, warnings }),
            _ => Err(role_not_found_error(name)),
        }
    }

    /// Finds a secret id of the role `name`; `None` if it does not exist, has expired or has no use left.
    ///
    /// # Errors
    /// `Invalid` when the role does not exist; store errors.
    pub(crate) async fn look_up_secret_id(
        &self,
        name: &str,
        named: SecretIdRef,
        now: Time,
    ) -> Result<Option<SecretId>> {
        let view = self.view();
        self.find_in_role(view.roles().get(name).ok_or_else(|| invalid_role_error(name))?, named, now).await
    }

    /// Finds a secret id of `role`, like [`MethodMount::look_up_secret_id`].
    pub(super) async fn find_in_role(&self, role: &AppRole, named: SecretIdRef, now: Time) -> Result<Option<SecretId>> {
        let row = self.store().secret_id(self.mount(), role.number, named.key(role)).await?;
        row.map_or(Ok(None), |row| SecretId::parse_live(row, now))
    }

    /// Deletes a secret id. Returns `true` if it existed, had not expired and had uses left.
    ///
    /// # Errors
    /// As [`MethodMount::look_up_secret_id`].
    pub(crate) async fn delete_secret_id(&self, name: &str, named: SecretIdRef, now: Time) -> Result<bool> {
        let Some(known) = self.look_up_secret_id(name, named, now).await? else { return Ok(false) };
        let remove = SecretIdWrite::Remove { mount: self.mount(), hash: known.row.hash };
        let outcomes = self.store().commit(vec![AuthWrite::SecretId(remove)]).await?;
        Ok(outcomes == [AuthOutcome::Done])
    }

    /// Returns the random number that identifies the role `name` in the rows of its secret ids.
    ///
    /// # Errors
    /// `Invalid` when the role does not exist.
    pub(crate) fn role_number(&self, name: &str) -> Result<i64> {
        self.view().roles().get(name).map(|role| role.number).ok_or_else(|| invalid_role_error(name))
    }

    /// Returns the accessors of a role's live secret ids in byte order: the first `limit` accessors that sort after
    /// `after`.
    pub(crate) fn secret_id_accessors(
        &self,
        role: i64,
        after: String,
        limit: u32,
        now: Time,
    ) -> BoxFuture<'static, Result<Vec<String>>> {
        self.store().secret_id_accessors(self.mount(), role, after, now, limit)
    }

    /// `true` if this mount and the role with this number exist in the store; this node's view may be outdated.
    pub(crate) fn secret_id_role_exists(&self, role: i64) -> BoxFuture<'static, Result<bool>> {
        self.store().secret_id_role_exists(self.mount(), role)
    }
}

/// Validates a secret id that a client chose, and trims it as a login does.
fn validate_secret_id(text: Secret) -> Result<Secret> {
    let bare = text.expose().trim_ascii();
    if bare.is_empty() || bare.len() > MAX_SECRET_ID_BYTES {
        return Err(Error::invalid(format!("secret_id: must have 1 to {MAX_SECRET_ID_BYTES} bytes")));
    }
    Ok(Secret::new(bare))
}
