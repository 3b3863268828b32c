//! Grants: what the teams of a member were given on projects, one by one. Rights add up over the teams.
//!
//! Lists read all of them first ([`all`]), where there are not too many; whoever looks at projects that are
//! known reads those on them ([`on`]).

use std::collections::HashMap;

use super::Tx;
use super::caller::Member;
use super::refusal::{Outcome, Stop};
use super::rights::ProjectRights;
use super::store::{Failure, Value};
use crate::error::Error;

/// Most grants that are read one by one.
const FEW: usize = 10_000;

/// What the member's teams have, by project's row; `None` when that is more than [`FEW`] grants.
///
/// # Errors
/// Those of the store.
pub async fn all(tx: &mut Tx<'_>, member: &Member) -> Outcome<Option<HashMap<i64, ProjectRights>>> {
    if member.teams.is_empty() {
        return Ok(Some(HashMap::new()));
    }
    // One text: a row for each grant takes longer to carry than to find. In the order of the index that
    // finds them: no plan is cheaper than that one.
    let sql = "SELECT count(*), string_agg(project_id || ' ' || perm_bits, ',') FROM
        (SELECT project_id, perm_bits FROM team_project_access WHERE team_id = ANY($1)
         ORDER BY team_id, project_id LIMIT $2) granted";
    let values: [Value; 2] = [member.teams.clone().into(), (FEW as i64 + 1).into()];
    let mut row = tx.one(sql, &values).await?;
    let (count, text): (i64, Option<String>) = (row.get()?, row.get()?);
    if count > FEW as i64 {
        return Ok(None);
    }
    let mut grants = HashMap::with_capacity(usize::try_from(count).unwrap_or_default());
    for grant in text.iter().flat_map(|text| text.split(',')) {
        let (project, bits) = read(grant).ok_or_else(garbled)?;
        *grants.entry(project).or_default() |= ProjectRights::from_bits(bits);
    }
    Ok(Some(grants))
}

fn read(grant: &str) -> Option<(i64, i64)> {
    let (project, bits) = grant.split_once(' ')?;
    Some((project.parse().ok()?, bits.parse().ok()?))
}

fn garbled() -> Stop {
    Failure::Engine(Error::internal("grants are not told as pairs of numbers")).into()
}

/// What the member's teams have on these projects, by project's row. Owners need no grants.
///
/// # Errors
/// Those of the store.
pub async fn on(tx: &mut Tx<'_>, member: &Member, projects: &[i64]) -> Outcome<HashMap<i64, ProjectRights>> {
    let mut grants: HashMap<i64, ProjectRights> = HashMap::new();
    if member.owner || member.teams.is_empty() {
        return Ok(grants);
    }
    let sql = "SELECT project_id, perm_bits FROM team_project_access
        WHERE project_id = ANY($1) AND team_id = ANY($2)";
    for mut row in tx.rows(sql, &[projects.to_vec().into(), member.teams.clone().into()]).await? {
        let (project, bits) = (row.get()?, row.get()?);
        *grants.entry(project).or_default() |= ProjectRights::from_bits(bits);
    }
    Ok(grants)
}
