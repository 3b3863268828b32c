//! Users: lookup, change of the username, creation of the first user, and tokens that the operator issues for users.

use super::attributes::{AttributeReader, AttributeValue};
use super::caller::{ProjectsCaller, TokenSubject};
use super::id;
use super::page;
use super::rejection::{ApiRejection, WorkResult};
use super::store::BoundToken;
use super::token::{self, NewToken, two_years_after};
use super::tx::Tx;
use crate::clock::Time;
use crate::error::Kind;
use crate::sql::{SqlRow, SqlValue};

/// A user as stored.
#[derive(Clone, Debug)]
pub struct User {
    /// Row id.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// Username.
    pub username: String,
    /// Email address.
    pub email: String,
}

impl User {
    /// Reads the columns `id, ext_id, username, email`.
    ///
    /// # Errors
    /// `Internal` when a column has an unexpected type.
    pub fn read(row: &mut SqlRow) -> WorkResult<Self> {
        Ok(Self { id: row.get()?, ext_id: row.get()?, username: row.get()?, email: row.get()? })
    }
}

/// Returns the users in the order of `ids`.
///
/// # Errors
/// Those of the store.
pub async fn load_by_rows(tx: &mut Tx<'_>, ids: &[i64]) -> WorkResult<Vec<User>> {
    let sql = "SELECT id, ext_id, username, email FROM users WHERE id = ANY($1)";
    page::load_in_order(tx, sql, ids, User::read, |user| user.id).await
}

/// Returns a user that the caller may see: the caller itself, or a member of one of the caller's organizations.
///
/// # Errors
/// `NotFound` when the user is absent or hidden from the caller.
pub async fn find_visible(tx: &mut Tx<'_>, caller: &ProjectsCaller, ext_id: &str) -> WorkResult<User> {
    let found = tx.row("SELECT id FROM users WHERE ext_id = $1", &[ext_id.into()]).await?;
    let row: i64 = found.ok_or_else(ApiRejection::not_found)?.get()?;
    const SELECT_SHARED_ORG: &str = "SELECT 1 FROM organization_memberships a JOIN organizations o ON o.id = a.org_id
        JOIN organization_memberships b ON b.org_id = a.org_id
        WHERE a.user_id = $1 AND b.user_id = $2 AND o.user_tokens_enabled AND o.ended_at IS NULL LIMIT 1";
    const SELECT_MEMBERSHIP: &str = "SELECT 1 FROM organization_memberships WHERE user_id = $1 AND org_id = $2";
    let known = match caller.subject {
        TokenSubject::User { id, .. } if id == row => true,
        TokenSubject::User { id, .. } => tx.row(SELECT_SHARED_ORG, &[id.into(), row.into()]).await?.is_some(),
        TokenSubject::Team { org_id: org, .. } | TokenSubject::Organization { id: org, audit: false, .. } => {
            tx.row(SELECT_MEMBERSHIP, &[row.into(), org.into()]).await?.is_some()
        }
        TokenSubject::Organization { audit: true, .. } => false,
    };
    ApiRejection::not_found_unless(known)?;
    Ok(load_by_rows(tx, &[row]).await?.pop().ok_or_else(ApiRejection::not_found)?)
}

/// Returns the user account of the caller, locked until the end of the session if [`Tx::lock_lookups`] was called.
///
/// # Errors
/// `NotFound` when the caller is a team or an organization.
pub async fn find_account(tx: &mut Tx<'_>, caller: &ProjectsCaller) -> WorkResult<User> {
    let TokenSubject::User { id, .. } = &caller.subject else { return Err(ApiRejection::not_found().into()) };
    if tx.locks_lookups() {
        tx.lock_row("users", *id).await?;
    }
    Ok(load_by_rows(tx, &[*id]).await?.pop().ok_or_else(ApiRejection::not_found)?)
}

/// Reads the attributes of an account update and returns the new username. The email address cannot change: invitations
/// use it, and nothing verifies that a new address belongs to the user.
pub fn read_change(attributes: &mut AttributeReader<'_>, stored: &User) -> String {
    let email = attributes.text("email");
    if email.as_value().is_some_and(|email| !email.eq_ignore_ascii_case(&stored.email)) {
        attributes.fault("email", "Email cannot be changed: address verification is not supported");
    }
    match attributes.text("username") {
        AttributeValue::Absent => stored.username.clone(),
        AttributeValue::Value(name) if name == stored.username => name,
        AttributeValue::Value(name)
            if is_username(&name) && (!name.contains('@') || name.eq_ignore_ascii_case(&stored.email)) =>
        {
            name
        }
        AttributeValue::Value(_) | AttributeValue::Null => {
            let rule = "Username must be 1 to 60 letters, numbers, -, _ and ., or your email address";
            attributes.fault("username", rule);
            stored.username.clone()
        }
    }
}

/// Changes the username of a user whose row is locked.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn rename(tx: &mut Tx<'_>, user: &User, username: &str) -> WorkResult<User> {
    // A username must not equal the email address of another user.
    let taken = "SELECT 1 FROM users WHERE email_lc = $1 AND id <> $2";
    let lowered: SqlValue = username.to_lowercase().into();
    if tx.row(taken, &[lowered.clone(), user.id.into()]).await?.is_some() {
        return Err(ApiRejection::attribute("username", "Username has already been taken").into());
    }
    let update = "UPDATE users SET username = $1, username_lc = $2 WHERE id = $3";
    tx.execute(update, &[username.into(), lowered, user.id.into()]).await?;
    Ok(load_by_rows(tx, &[user.id]).await?.pop().ok_or_else(ApiRejection::not_found)?)
}

fn is_username(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    (1..=60).contains(&name.len()) && name.chars().all(legal)
}

/// Returns the row id of the user with an email address, and `true` if this call created the user. A new user has the
/// address as username.
///
/// # Errors
/// `Invalid` when the address is the username of another user.
pub async fn find_or_create_by_email(tx: &mut Tx<'_>, email: &str) -> WorkResult<(i64, bool)> {
    const SELECT_USER_BY_EMAIL: &str = "SELECT id FROM users WHERE email_lc = $1";
    let lowered: [SqlValue; 1] = [email.to_lowercase().into()];
    if let Some(mut row) = tx.row(SELECT_USER_BY_EMAIL, &lowered).await? {
        return Ok((row.get()?, false));
    }
    let values = insert_values(tx, email, email);
    let insert = format!("{INSERT_USER} ON CONFLICT DO NOTHING RETURNING id");
    if let Some(mut row) = tx.row(&insert, &values).await? {
        return Ok((row.get()?, true));
    }
    // A concurrent session has created the user; this statement sees the committed row.
    match tx.row(SELECT_USER_BY_EMAIL, &lowered).await? {
        Some(mut row) => Ok((row.get()?, false)),
        None => Err(ApiRejection::attribute("email", "Email is already the username of another user").into()),
    }
}

const INSERT_USER: &str = "INSERT INTO users (ext_id, username, username_lc, email, email_lc, created_at)
    VALUES ($1, $2, $3, $4, $5, $6)";

fn insert_values(tx: &Tx<'_>, username: &str, email: &str) -> [SqlValue; 6] {
    [
        id::new("user").into(),
        username.into(),
        username.to_lowercase().into(),
        email.into(),
        email.to_lowercase().into(),
        tx.now.into(),
    ]
}

/// Creates a user and returns the row id of the user.
///
/// # Errors
/// `Invalid` when another user has the username or the email address.
pub async fn create(tx: &mut Tx<'_>, username: &str, email: &str) -> WorkResult<i64> {
    let values = insert_values(tx, username, email);
    Ok(tx.one(&format!("{INSERT_USER} RETURNING id"), &values).await?.get()?)
}

/// Creates the first user of an installation, with this token, which never expires.
///
/// # Errors
/// `Conflict` when a user exists; `Invalid` when the username or the email address is malformed.
pub async fn bootstrap(tx: &mut Tx<'_>, username: &str, email: &str, token: &NewToken) -> WorkResult<()> {
    if !is_username(username) {
        let rule = "Username must be 1 to 60 letters, numbers, -, _, . and @";
        return Err(ApiRejection::attribute("username", rule).into());
    }
    if !is_email_address(email) {
        return Err(ApiRejection::attribute("email", "Email must be an address, such as ada@example.test").into());
    }
    if tx.row("SELECT 1 FROM users LIMIT 1", &[]).await?.is_some() {
        return Err(ApiRejection::conflict("users exist already; the first user can add more").into());
    }
    let user = create(tx, username, email).await?;
    store_token(tx, user, None, token, None).await
}

/// Stores a token with the default expiry for the user with this username or email address.
///
/// # Errors
/// `NotFound` when there is no such user.
pub async fn issue_token(tx: &mut Tx<'_>, name: &str, token: &NewToken) -> WorkResult<()> {
    // No username equals the email address of another user, so at most one row matches.
    let named = "SELECT id FROM users WHERE username_lc = $1 OR email_lc = $1";
    let Some(mut row) = tx.row(named, &[name.to_lowercase().into()]).await? else {
        let text = format!("user: no user of the projects API has the username or email address {name:?}");
        return Err(ApiRejection::new(Kind::NotFound, text).into());
    };
    let ends = two_years_after(tx.now);
    store_token(tx, row.get()?, None, token, Some(ends)).await
}

/// Deletes a user's token that was created but not delivered to the user. `lookup` is the public part of the token.
///
/// # Errors
/// Those of the store.
pub async fn delete_token(tx: &mut Tx<'_>, lookup: &str) -> WorkResult<()> {
    tx.execute("DELETE FROM api_tokens WHERE lookup = $1 AND user_id IS NOT NULL", &[lookup.into()]).await?;
    Ok(())
}

/// Stores a token for a user, with the user as creator. `ends` is the expiry; `None` for never.
///
/// # Errors
/// Those of the store.
pub async fn store_token(
    tx: &mut Tx<'_>,
    user: i64,
    description: Option<&str>,
    token: &NewToken,
    ends: Option<Time>,
) -> WorkResult<()> {
    let creator: String = tx.one("SELECT ext_id FROM users WHERE id = $1", &[user.into()]).await?.get()?;
    let bound = BoundToken {
        lookup: &token.lookup,
        secret_sha256: &token.hash,
        user: Some(user),
        team: None,
        org: None,
        kind: "standard",
        expired_at: ends,
    };
    token::insert(tx, &bound, description, format!("users/{creator}")).await?;
    Ok(())
}

/// `true` if the text has the form of an email address: `local@domain`, without white space, at most 254 bytes, and
/// without a dot at either end of the domain.
pub fn is_email_address(text: &str) -> bool {
    let Some((name, domain)) = text.rsplit_once('@') else { return false };
    let plain = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c.is_control());
    plain(name) && plain(domain) && text.len() <= 254 && !domain.starts_with('.') && !domain.ends_with('.')
}
