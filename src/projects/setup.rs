//! Prepares the organization that a new server starts with, before any token exists.
//!
//! [`user::bootstrap`] creates the first user of an installation.

use super::rejection::WorkResult;
use super::team::members;
use super::token::NewToken;
use super::tx::Tx;
use super::{id, organization, user};

/// Creates the organization `name` and a user `name` who owns it, if they do not exist. Stores `token`, which never
/// expires, for this user with the description `name`. Deletes the user's earlier tokens with this description.
///
/// # Errors
/// `Conflict` when another token has the same text.
pub async fn ensure_organization(tx: &mut Tx<'_>, name: &str, email: &str, token: &NewToken) -> WorkResult<()> {
    let user: i64 = match tx.row("SELECT id FROM users WHERE username_lc = $1", &[name.into()]).await? {
        Some(mut row) => row.get()?,
        None => user::create(tx, name, email).await?,
    };
    let owners = "SELECT t.org_id, t.id FROM teams t JOIN organizations o ON o.id = t.org_id
        WHERE o.name_lc = $1 AND t.is_owners";
    match tx.row(owners, &[name.into()]).await? {
        None => drop(organization::create(tx, user, name, email, "{}").await?),
        Some(mut row) => {
            let (org, team): (i64, i64) = (row.get()?, row.get()?);
            let member = "INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
                VALUES ($1, $2, $3, 'active', $4) ON CONFLICT DO NOTHING";
            tx.execute(member, &[id::new("ou").into(), org.into(), user.into(), tx.now.into()]).await?;
            members::add(tx, team, &[user]).await?;
        }
    }
    let before = "DELETE FROM api_tokens WHERE user_id = $1 AND description = $2";
    tx.execute(before, &[user.into(), name.into()]).await?;
    user::store_token(tx, user, Some(name), token, None).await
}
