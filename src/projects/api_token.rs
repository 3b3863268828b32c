//! API tokens of users, teams and organizations: creation, lookup, revocation.
//!
//! Only [`create`] returns the secret. Tokens are not cached: a revoked token is rejected by the next request on any
//! node.

use super::attributes::{AttributeReader, AttributeValue};
use super::caller::{ProjectsCaller, TokenSubject};
use super::member::Member;
use super::page::{self, ListCondition, ListOrder, ListSource, PageRequest, ResultPage, substring_pattern};
use super::rejection::{ApiRejection, WorkResult};
use super::store::BoundToken;
use super::token::{self, NewToken};
use super::tx::Tx;
use super::{member, team};
use crate::clock::Time;
use crate::secret::Secret;
use crate::sql::{SqlRow, SqlValue};

/// Maximum length of the description of a token, in characters.
const MAX_DESCRIPTION_CHARS: usize = 256;

/// The owner of a token, by row id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenOwner {
    /// A user.
    User(i64),
    /// A team.
    Team(i64),
    /// An organization, which has at most one token of each kind.
    Organization(i64, OrganizationTokenKind),
}

/// The kind of an organization token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrganizationTokenKind {
    /// The token acts as an owner of the organization.
    Standard,
    /// The token has no rights in this API.
    AuditTrails,
}

impl OrganizationTokenKind {
    /// Returns the name, as stored and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::AuditTrails => "audit-trails",
        }
    }
}

/// A token as stored.
#[derive(Clone, Debug)]
pub struct ApiToken {
    /// Row id.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// The owner.
    pub owner: TokenOwner,
    /// External id of the team, for a team token.
    pub team: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// JSON:API type and id of the creator. `None` if the creator is a team that the caller does not see.
    pub created_by: Option<(String, String)>,
    /// Creation time.
    pub created_at: Time,
    /// Time of the last recorded use. Uses are recorded at most once a minute.
    pub last_used_at: Option<Time>,
    /// The expiry; `None` for never.
    pub expired_at: Option<Time>,
}

/// The columns that [`ApiToken::read`] reads. If the creator is an organization, `o.name` is its current name, because
/// the API uses the name as the id. `substr` skips the prefix `organizations/`.
pub const TOKEN_COLUMNS: &str =
    "t.id, t.ext_id, t.user_id, t.team_id, t.org_id, t.kind, m.ext_id, t.description, t.created_by,
    o.name, t.created_at, t.last_used_at, t.expired_at FROM api_tokens t LEFT JOIN teams m ON m.id = t.team_id
    LEFT JOIN organizations o ON o.ext_id = substr(t.created_by, 15) AND t.created_by LIKE 'organizations/%'";

impl ApiToken {
    fn read(row: &mut SqlRow) -> WorkResult<Self> {
        let id = row.get()?;
        let ext_id = row.get()?;
        let (user, team, org): (Option<i64>, Option<i64>, Option<i64>) = (row.get()?, row.get()?, row.get()?);
        let kind: String = row.get()?;
        let kind = if kind == OrganizationTokenKind::Standard.name() {
            OrganizationTokenKind::Standard
        } else {
            OrganizationTokenKind::AuditTrails
        };
        let owner = match (user, team, org) {
            (Some(user), ..) => TokenOwner::User(user),
            (_, Some(team), _) => TokenOwner::Team(team),
            (_, _, org) => TokenOwner::Organization(org.unwrap_or_default(), kind),
        };
        let (team, description, creator, name): (_, _, String, Option<String>) =
            (row.get()?, row.get()?, row.get()?, row.get()?);
        let (kind, creator) = creator.split_once('/').unwrap_or(("users", &creator));
        let created_by = Some((kind.to_owned(), name.unwrap_or_else(|| creator.to_owned())));
        let created_at = row.get()?;
        let last_used_at = row.get()?;
        let expired_at = row.get()?;
        Ok(Self { id, ext_id, owner, team, description, created_by, created_at, last_used_at, expired_at })
    }
}

/// The attributes of a request that creates a token.
pub struct ApiTokenRequest {
    /// The description.
    pub description: Option<String>,
    /// The expiry; `None` for never.
    pub expired_at: Option<Time>,
}

impl ApiTokenRequest {
    /// Reads and validates the attributes. `expired-at` must be later than `now`. If it is absent, the token expires
    /// after two calendar years; if it is null, the token never expires.
    pub fn read(attributes: &mut AttributeReader<'_>, now: Time) -> Self {
        let description = attributes.short_text("description", MAX_DESCRIPTION_CHARS).value();
        let expired_at = match attributes.time("expired-at") {
            AttributeValue::Absent => Some(token::two_years_after(now)),
            AttributeValue::Null => None,
            AttributeValue::Value(end) => {
                if end <= now {
                    attributes.fault("expired-at", "Expired at must be in the future");
                }
                Some(end)
            }
        };
        Self { description, expired_at }
    }
}

/// Sets `created_by` to `None` in tokens whose creator is a team that the member does not see.
///
/// # Errors
/// Those of the store.
pub async fn hide_creators(tx: &mut Tx<'_>, member: &Member, tokens: &mut [ApiToken]) -> WorkResult<()> {
    let reference = |token: &ApiToken| token.created_by.as_ref().map(|(kind, id)| format!("{kind}/{id}"));
    let references: Vec<String> = tokens.iter().filter_map(reference).collect();
    let hidden = team::find_hidden_references(tx, member, references.iter().map(String::as_str)).await?;
    for token in tokens {
        if reference(token).is_some_and(|creator| hidden.contains(&creator)) {
            token.created_by = None;
        }
    }
    Ok(())
}

/// Creates a token and returns the stored token and the secret text.
///
/// # Errors
/// `Invalid` when another token of the team has the same description.
pub async fn create(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    owner: TokenOwner,
    wanted: ApiTokenRequest,
) -> WorkResult<(ApiToken, Secret)> {
    let NewToken { text, lookup, hash } = token::generate();
    let (user, team, org, kind) = match owner {
        TokenOwner::User(user) => (Some(user), None, None, OrganizationTokenKind::Standard),
        TokenOwner::Team(team) => (None, Some(team), None, OrganizationTokenKind::Standard),
        TokenOwner::Organization(org, kind) => (None, None, Some(org), kind),
    };
    let bound = BoundToken {
        lookup: &lookup,
        secret_sha256: &hash,
        user,
        team,
        org,
        kind: kind.name(),
        expired_at: wanted.expired_at,
    };
    let row = token::insert(tx, &bound, wanted.description.as_deref(), caller.reference()).await?;
    let stored = find_where(tx, "t.id = $1", &[row.into()]).await?;
    Ok((stored.ok_or_else(ApiRejection::not_found)?, text))
}

/// Replaces the token in a slot, which holds at most one token. A team has a slot for its token without a description,
/// an organization has a slot for each kind of token. The previous token is deleted. Concurrent replacements are
/// serialized.
///
/// # Errors
/// Those of the store.
pub async fn replace(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    owner: TokenOwner,
    wanted: ApiTokenRequest,
) -> WorkResult<(ApiToken, Secret)> {
    lock_owner(tx, owner).await?;
    if let Some(before) = load_slot(tx, owner).await? {
        delete_row(tx, &before).await?;
    }
    create(tx, caller, owner, wanted).await
}

/// Locks the row of the owner until the end of the transaction. Every change of a slot ([`replace`]) starts with this
/// lock.
async fn lock_owner(tx: &mut Tx<'_>, owner: TokenOwner) -> WorkResult<()> {
    let (lock, row) = match owner {
        TokenOwner::User(user) => ("SELECT id FROM users WHERE id = $1 FOR UPDATE", user),
        TokenOwner::Team(team) => ("SELECT id FROM teams WHERE id = $1 FOR UPDATE", team),
        TokenOwner::Organization(org, _) => {
            ("SELECT id FROM organizations WHERE id = $1 AND ended_at IS NULL FOR UPDATE", org)
        }
    };
    tx.row(lock, &[row.into()]).await?.map(drop).ok_or_else(|| ApiRejection::not_found().into())
}

/// Returns the token in a slot ([`replace`]), locked until the end of the session if [`Tx::lock_lookups`] was called.
///
/// # Errors
/// `NotFound` when there is none.
pub async fn find_in_slot(tx: &mut Tx<'_>, owner: TokenOwner) -> WorkResult<ApiToken> {
    let token = load_slot(tx, owner).await?.ok_or_else(ApiRejection::not_found)?;
    lock_and_reload(tx, token).await
}

/// Revokes the token in a slot ([`replace`]).
///
/// # Errors
/// `NotFound` when there is none.
pub async fn delete_in_slot(tx: &mut Tx<'_>, owner: TokenOwner) -> WorkResult<()> {
    lock_owner(tx, owner).await?;
    let token = load_slot(tx, owner).await?.ok_or_else(ApiRejection::not_found)?;
    delete(tx, &token).await
}

/// If [`Tx::lock_lookups`] was called, locks the row of the token and reads it again. A session that also locks the row
/// of the owner must do so first.
async fn lock_and_reload(tx: &mut Tx<'_>, token: ApiToken) -> WorkResult<ApiToken> {
    if !tx.locks_lookups() {
        return Ok(token);
    }
    tx.lock_row("api_tokens", token.id).await?;
    Ok(find_where(tx, "t.id = $1", &[token.id.into()]).await?.ok_or_else(ApiRejection::not_found)?)
}

async fn load_slot(tx: &mut Tx<'_>, owner: TokenOwner) -> WorkResult<Option<ApiToken>> {
    match owner {
        // Only teams and organizations have slots.
        TokenOwner::User(_) => Ok(None),
        TokenOwner::Team(team) => find_where(tx, "t.team_id = $1 AND t.description IS NULL", &[team.into()]).await,
        TokenOwner::Organization(org, kind) => {
            find_where(tx, "t.org_id = $1 AND t.kind = $2", &[org.into(), kind.name().into()]).await
        }
    }
}

async fn find_where(tx: &mut Tx<'_>, condition: &str, values: &[SqlValue]) -> WorkResult<Option<ApiToken>> {
    match tx.row(&format!("SELECT {TOKEN_COLUMNS} WHERE {condition}"), values).await? {
        Some(mut row) => ApiToken::read(&mut row).map(Some),
        None => Ok(None),
    }
}

/// Returns a token that the caller may manage, locked until the end of the session if [`Tx::lock_lookups`] was called.
///
/// # Errors
/// `NotFound` when the token is absent or the caller may not manage the token.
pub async fn find_manageable(tx: &mut Tx<'_>, caller: &ProjectsCaller, ext_id: &str) -> WorkResult<ApiToken> {
    let token = find_where(tx, "t.ext_id = $1", &[ext_id.into()]).await?.ok_or_else(ApiRejection::not_found)?;
    let mut team_member = None;
    let may = match token.owner {
        TokenOwner::User(user) => matches!(caller.subject, TokenSubject::User { id, .. } if id == user),
        TokenOwner::Team(row) => {
            let (member, team) = team::find_visible_by_row(tx, caller, row).await?;
            let may = team::may_manage_tokens(caller, &member, &team);
            team_member = Some(member);
            may
        }
        TokenOwner::Organization(org, _) => member::find_by_organization_row(tx, caller, org).await?.is_owner,
    };
    ApiRejection::not_found_unless(may)?;
    let mut token = lock_and_reload(tx, token).await?;
    if let Some(member) = team_member {
        hide_creators(tx, &member, std::slice::from_mut(&mut token)).await?;
    }
    Ok(token)
}

/// Returns a page of the tokens of an owner, newest first.
///
/// # Errors
/// Those of the store.
pub async fn list(tx: &mut Tx<'_>, owner: TokenOwner, page: PageRequest) -> WorkResult<ResultPage<ApiToken>> {
    const TOKENS: ListSource = ListSource { id: "t.id", from: "api_tokens t" };
    const ORDER: ListOrder = ListOrder { column: "t.id", descending: true };
    let filter = match owner {
        TokenOwner::User(user) => ListCondition::new("t.user_id = {}", user),
        TokenOwner::Team(team) => ListCondition::new("t.team_id = {}", team),
        TokenOwner::Organization(org, _) => ListCondition::new("t.org_id = {}", org),
    };
    let (ids, matching) = page::find_ids_and_count(tx, TOKENS, filter, ORDER, page).await?;
    let sql = format!("SELECT {TOKEN_COLUMNS} WHERE t.id = ANY($1)");
    let items = page::load_in_order(tx, &sql, &ids, ApiToken::read, |token| token.id).await?;
    Ok(ResultPage { items, matching })
}

/// The filters of the list of all team tokens.
#[derive(Clone, Debug, Default)]
pub struct TeamTokenFilter {
    /// Text that the name of the team must contain, case-insensitive.
    pub q: Option<String>,
    /// Expiry conditions, of which a token must meet at least one. An empty list selects all tokens.
    pub expiries: Vec<ApiTokenExpiry>,
}

/// A filter by the expiry of a token, relative to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiTokenExpiry {
    /// The token has not expired; it may expire later or never.
    Active,
    /// The token has not expired, but will expire within this number of days.
    Within(i64),
    /// The token has expired.
    Expired,
    /// The token never expires.
    Never,
}

impl ApiTokenExpiry {
    /// Parses a condition of the filter parameter, such as `expiring_in_7_days`. `None` if the word is unknown.
    pub fn of(word: &str) -> Option<Self> {
        Some(match word {
            "active" => Self::Active,
            "expiring_in_7_days" => Self::Within(7),
            "expiring_in_30_days" => Self::Within(30),
            "expired" => Self::Expired,
            "no_expiration" => Self::Never,
            _ => return None,
        })
    }

    fn condition(self, filter: &mut ListCondition, now: Time) -> String {
        match self {
            Self::Active => format!("(k.expired_at IS NULL OR k.expired_at > {})", filter.parameter(now)),
            Self::Expired => format!("k.expired_at <= {}", filter.parameter(now)),
            Self::Never => "k.expired_at IS NULL".to_owned(),
            Self::Within(days) => {
                let end = now.saturating_add(time::Duration::days(days));
                let now = filter.parameter(now);
                let end = filter.parameter(end);
                format!("(k.expired_at > {now} AND k.expired_at <= {end})")
            }
        }
    }
}

/// Returns a page of the tokens of all teams that the member may manage, newest first.
///
/// # Errors
/// `NotFound` when the member may not manage teams.
pub async fn list_team_tokens(
    tx: &mut Tx<'_>,
    member: &Member,
    wanted: &TeamTokenFilter,
    page: PageRequest,
) -> WorkResult<ResultPage<ApiToken>> {
    const TOKENS: ListSource = ListSource { id: "k.id", from: "teams t JOIN api_tokens k ON k.team_id = t.id" };
    const ORDER: ListOrder = ListOrder { column: "k.id", descending: true };
    team::require_may_create(member)?;
    let mut filter = ListCondition::new("t.org_id = {}", member.organization.id);
    team::restrict_to_visible(member, &mut filter);
    if !member.is_owner {
        filter.and_sql("NOT t.is_owners");
    }
    if let Some(q) = &wanted.q {
        filter.and(r"t.name_lc LIKE {} ESCAPE '\'", substring_pattern(q));
    }
    if !wanted.expiries.is_empty() {
        let conditions: Vec<String> =
            wanted.expiries.iter().map(|expiry| expiry.condition(&mut filter, tx.now)).collect();
        filter.and_sql(&format!("({})", conditions.join(" OR ")));
    }
    let (ids, matching) = page::find_ids_and_count(tx, TOKENS, filter, ORDER, page).await?;
    let sql = format!("SELECT {TOKEN_COLUMNS} WHERE t.id = ANY($1)");
    let mut items = page::load_in_order(tx, &sql, &ids, ApiToken::read, |token| token.id).await?;
    hide_creators(tx, member, &mut items).await?;
    Ok(ResultPage { items, matching })
}

/// Revokes a token.
///
/// # Errors
/// `NotFound` when the token was deleted concurrently.
pub async fn delete(tx: &mut Tx<'_>, token: &ApiToken) -> WorkResult<()> {
    ApiRejection::not_found_unless(delete_row(tx, token).await?)
}

/// Revokes these team tokens of the member's organization, all of them or none.
///
/// # Errors
/// `NotFound` when a token is absent, belongs to no team of the organization, or the caller may not manage the token.
pub async fn delete_team_tokens(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    member: &Member,
    mut ids: Vec<String>,
) -> WorkResult<()> {
    ids.sort_unstable();
    ids.dedup();
    let wanted = ids.len() as u64;
    let sql = "SELECT t.id, t.team_id FROM api_tokens t JOIN teams m ON m.id = t.team_id
        WHERE t.ext_id = ANY($1) AND m.org_id = $2 ORDER BY t.id";
    let mut rows: Vec<i64> = Vec::new();
    let mut teams: Vec<i64> = Vec::new();
    for mut row in tx.rows(sql, &[ids.into(), member.organization.id.into()]).await? {
        rows.push(row.get()?);
        teams.push(row.get()?);
    }
    ApiRejection::not_found_unless(rows.len() as u64 == wanted)?;
    teams.sort_unstable();
    teams.dedup();
    for row in teams {
        let (member, team) = team::find_visible_by_row(tx, caller, row).await?;
        ApiRejection::not_found_unless(team::may_manage_tokens(caller, &member, &team))?;
    }
    let gone = tx.execute("DELETE FROM api_tokens WHERE id = ANY($1)", &[rows.into()]).await?;
    ApiRejection::not_found_unless(gone == wanted)
}

async fn delete_row(tx: &mut Tx<'_>, token: &ApiToken) -> WorkResult<bool> {
    Ok(tx.execute("DELETE FROM api_tokens WHERE id = $1", &[token.id.into()]).await? > 0)
}
