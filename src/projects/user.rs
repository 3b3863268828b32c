//! People: their names and addresses, and the first one of an installation.

use super::refusal::{Outcome, Refusal};
use super::store::Value;
use super::token::{self, NewToken};
use super::{Tx, id};
use crate::secret::Secret;

/// Makes a user.
///
/// # Errors
/// `Invalid` when the name or the address is taken.
pub async fn create(tx: &mut Tx<'_>, username: &str, email: &str) -> Outcome<i64> {
    let insert = "INSERT INTO users (ext_id, username, username_lc, email, email_lc, created_at)
        VALUES ($1, $2, $3, $4, $5, $6) RETURNING id";
    let values: [Value; 6] = [
        id::new("user").into(),
        username.into(),
        username.to_lowercase().into(),
        email.into(),
        email.to_lowercase().into(),
        tx.now.into(),
    ];
    Ok(tx.one(insert, &values).await?.get()?)
}

/// Makes the first user of an installation, with a token that does not end.
///
/// # Errors
/// `Conflict` when there is any user; `Invalid` when name or address are not of their form.
pub async fn bootstrap(tx: &mut Tx<'_>, username: &str, email: &str) -> Outcome<Secret> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if username.is_empty() || username.len() > 60 || !username.chars().all(legal) {
        return Err(Refusal::attribute("username", "Username may only contain letters, numbers, -, _, . and @").into());
    }
    if !is_address(email) {
        return Err(Refusal::attribute("email", "Email is not an address").into());
    }
    if tx.row("SELECT 1 FROM users LIMIT 1", &[]).await?.is_some() {
        return Err(Refusal::conflict("there are users already: the first one can add others").into());
    }
    let user = create(tx, username, email).await?;
    token_of(tx, user, None).await
}

/// A token of a user that ends at no time, made by the installation itself.
///
/// # Errors
/// Those of the store.
pub async fn token_of(tx: &mut Tx<'_>, user: i64, description: Option<&str>) -> Outcome<Secret> {
    let NewToken { text, lookup, hash } = token::draw();
    let insert = "INSERT INTO api_tokens (ext_id, lookup, secret_sha256, user_id, description, created_by, created_at)
        SELECT $1, $2, $3, u.id, $4, 'users/' || u.ext_id, $5 FROM users u WHERE u.id = $6";
    let values: [Value; 6] =
        [id::new("at").into(), lookup.into(), hash.into(), description.into(), tx.now.into(), user.into()];
    tx.execute(insert, &values).await?;
    Ok(text)
}

/// Something, `@`, something with a dot inside; no spaces.
pub fn is_address(text: &str) -> bool {
    let Some((name, domain)) = text.rsplit_once('@') else { return false };
    let plain = |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c.is_control());
    plain(name) && plain(domain) && text.len() <= 254 && !domain.starts_with('.') && !domain.ends_with('.')
}
