//! Members of teams.
//!
//! A team's row is locked before its members change; several teams are locked in the order of their row ids. The locks
//! keep the stored member counts correct. They also prevent concurrent requests from removing the last members of the
//! owners team.

use std::collections::{HashMap, HashSet};

use super::super::rejection::{ApiRejection, Fault, Faults, WorkError, WorkResult, truncate_for_message};
use super::super::tx::Tx;
use super::Team;
use crate::error::Kind;

/// Returns the row ids of the users in each of these teams, in ascending order, by team row id.
///
/// # Errors
/// Those of the store.
pub async fn load_users_of_teams(tx: &mut Tx<'_>, teams: &[i64]) -> WorkResult<HashMap<i64, Vec<i64>>> {
    let mut users: HashMap<i64, Vec<i64>> = HashMap::new();
    if teams.is_empty() {
        return Ok(users);
    }
    let sql = "SELECT team_id, user_id FROM team_memberships WHERE team_id = ANY($1) ORDER BY user_id";
    for mut row in tx.rows(sql, &[teams.to_vec().into()]).await? {
        let team = row.get()?;
        let user = row.get()?;
        users.entry(team).or_default().push(user);
    }
    Ok(users)
}

/// Returns the row ids of the organization's members with these usernames. The membership rows are locked, so the users
/// remain members until the end of the transaction. The user rows are not locked: users also belong to other
/// organizations, whose requests would wait or deadlock.
///
/// # Errors
/// `Malformed`, with a fault for each element that is not the username of a member.
pub async fn find_by_username(tx: &mut Tx<'_>, org_id: i64, names: &[String]) -> WorkResult<Vec<i64>> {
    let sql = "SELECT u.username_lc, u.id FROM users u JOIN organization_memberships m ON m.user_id = u.id
        WHERE u.username_lc = ANY($1) AND +m.org_id = $2 ORDER BY m.id FOR UPDATE OF m";
    let lowered = names.iter().map(|name| name.to_lowercase()).collect();
    find_locked_rows(tx, sql, lowered, org_id, (names, "a member")).await
}

/// Returns the row ids of the users whose memberships in an organization have these external ids. Locks the membership
/// rows as [`find_by_username`] does.
///
/// # Errors
/// As [`find_by_username`].
pub async fn find_by_membership(tx: &mut Tx<'_>, org_id: i64, memberships: &[String]) -> WorkResult<Vec<i64>> {
    let sql = "SELECT ext_id, user_id FROM organization_memberships WHERE ext_id = ANY($1) AND +org_id = $2
        ORDER BY id FOR UPDATE";
    find_locked_rows(tx, sql, memberships.to_vec(), org_id, (memberships, "a membership")).await
}

async fn find_locked_rows(
    tx: &mut Tx<'_>,
    sql: &str,
    keys: Vec<String>,
    org_id: i64,
    (given, kind): (&[String], &str),
) -> WorkResult<Vec<i64>> {
    let mut rows: HashMap<String, i64> = HashMap::new();
    for mut row in tx.rows(sql, &[keys.clone().into(), org_id.into()]).await? {
        rows.insert(row.get()?, row.get()?);
    }
    let mut users = HashSet::new();
    let mut faults = Faults::default();
    for (n, (key, given)) in keys.iter().zip(given).enumerate() {
        match rows.get(key) {
            Some(user) => drop(users.insert(*user)),
            None => {
                // The text is the same for unknown users and for users outside the organization.
                let detail = format!("{} is not {kind} of the organization", truncate_for_message(given));
                faults.push(Fault::at(format!("/data/{n}/id"), detail));
            }
        }
    }
    faults.finish(Kind::Malformed)?;
    Ok(users.into_iter().collect())
}

/// Adds users to a team. Users who are members already are ignored.
///
/// # Errors
/// `NotFound` when the team was deleted concurrently.
pub async fn add(tx: &mut Tx<'_>, team: i64, users: &[i64]) -> WorkResult<()> {
    tx.lock_row("teams", team).await?;
    let join = "INSERT INTO team_memberships (team_id, user_id) SELECT $1, id FROM users WHERE id = ANY($2)
        ON CONFLICT DO NOTHING";
    let added = tx.execute(join, &[team.into(), users.to_vec().into()]).await? as i64;
    let count = "UPDATE teams SET user_count = user_count + $1 WHERE id = $2";
    tx.execute(count, &[added.into(), team.into()]).await?;
    Ok(())
}

/// Adds a user to several teams.
///
/// # Errors
/// Those of the store.
pub async fn add_to_teams(tx: &mut Tx<'_>, teams: &[i64], user: i64) -> WorkResult<()> {
    lock_teams(tx, teams).await?;
    let join = "INSERT INTO team_memberships (team_id, user_id) SELECT id, $1 FROM teams WHERE id = ANY($2)
        ON CONFLICT DO NOTHING RETURNING team_id";
    let joined: Vec<i64> = tx.column(join, &[user.into(), teams.to_vec().into()]).await?;
    tx.execute("UPDATE teams SET user_count = user_count + 1 WHERE id = ANY($1)", &[joined.into()]).await?;
    Ok(())
}

/// Removes users from a team. Users who are not in the team are ignored.
///
/// # Errors
/// `Conflict` when the owners team would become empty; `NotFound` when the team was deleted concurrently.
pub async fn remove(tx: &mut Tx<'_>, team: &Team, users: &[i64]) -> WorkResult<()> {
    tx.lock_row("teams", team.id).await?;
    let leave = "DELETE FROM team_memberships WHERE team_id = $1 AND user_id = ANY($2)";
    let left = tx.execute(leave, &[team.id.into(), users.to_vec().into()]).await? as i64;
    subtract_from_user_count(tx, team.id, left).await
}

/// Removes a user from all teams of an organization.
///
/// # Errors
/// As [`remove`].
pub async fn remove_from_all_teams(tx: &mut Tx<'_>, org_id: i64, user: i64) -> WorkResult<()> {
    let sql = "SELECT t.id FROM team_memberships m JOIN teams t ON t.id = m.team_id AND t.org_id = m.org_id
        WHERE m.user_id = $1 AND m.org_id = $2";
    let teams: Vec<i64> = tx.column(sql, &[user.into(), org_id.into()]).await?;
    lock_teams(tx, &teams).await?;
    let leave = "DELETE FROM team_memberships WHERE user_id = $1 AND team_id = ANY($2) RETURNING team_id";
    let left: Vec<i64> = tx.column(leave, &[user.into(), teams.into()]).await?;
    let count = "UPDATE teams SET user_count = user_count - 1 WHERE id = ANY($1)";
    tx.execute(count, &[left.clone().into()]).await?;
    let empty = "SELECT 1 FROM teams WHERE id = ANY($1) AND is_owners AND user_count = 0";
    match tx.row(empty, &[left.into()]).await? {
        Some(_) => Err(owners_team_empty_error()),
        None => Ok(()),
    }
}

async fn lock_teams(tx: &mut Tx<'_>, teams: &[i64]) -> WorkResult<()> {
    let sql = "SELECT id FROM teams WHERE id = ANY($1) ORDER BY id FOR UPDATE";
    tx.rows(sql, &[teams.to_vec().into()]).await?;
    Ok(())
}

async fn subtract_from_user_count(tx: &mut Tx<'_>, team: i64, left: i64) -> WorkResult<()> {
    let sql = "UPDATE teams SET user_count = user_count - $1 WHERE id = $2 RETURNING user_count, is_owners";
    let mut row = tx.one(sql, &[left.into(), team.into()]).await?;
    let (users, is_owners): (i64, bool) = (row.get()?, row.get()?);
    if is_owners && users == 0 { Err(owners_team_empty_error()) } else { Ok(()) }
}

fn owners_team_empty_error() -> WorkError {
    ApiRejection::conflict("the owners team of an organization must have at least one member").into()
}
