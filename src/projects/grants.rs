//! Rights on single projects, granted to the teams of a member. The member has the union of these rights.
//!
//! Lists load all grants ([`load_all`]) unless there are too many. Other requests load the grants on the projects that
//! they need ([`load_for_projects`]).

use super::member::Member;
use super::rejection::{WorkError, WorkResult};
use super::rights::ProjectRights;
use super::tx::Tx;
use crate::error::Error;
use crate::sql::{SqlError, SqlValue};

/// Maximum number of grants that [`load_all`] loads.
const MAX_LOADED_GRANTS: usize = 10_000;

/// The granted rights by project: pairs of the project's row id and the rights, sorted by row id, without duplicates.
#[derive(Debug, Default)]
pub struct ProjectGrants(Vec<(i64, ProjectRights)>);

impl ProjectGrants {
    /// Sorts the grants and replaces several grants on one project by the union of their rights.
    fn union(mut grants: Vec<(i64, ProjectRights)>) -> Self {
        // The grants of one team are already sorted, and the stable sort is fast on presorted runs.
        grants.sort_by_key(|(project, _)| *project);
        grants.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 |= next.1;
            }
            same
        });
        Self(grants)
    }

    /// Adds a grant. The rights on the project become the union of the present and the new rights.
    #[must_use]
    pub fn with_grant(mut self, project: i64, rights: ProjectRights) -> Self {
        self.0.push((project, rights));
        Self::union(self.0)
    }

    /// Returns the rights on a project.
    pub fn rights_on(&self, project: i64) -> ProjectRights {
        let found = self.0.binary_search_by_key(&project, |(row, _)| *row);
        found.map_or(ProjectRights::NONE, |at| self.0[at].1)
    }

    /// Returns the row ids of the projects on which all of `needed` is granted, newest first.
    pub fn newest_with(&self, needed: ProjectRights) -> Vec<i64> {
        self.0.iter().rev().filter(|(_, rights)| rights.has(needed)).map(|(project, _)| *project).collect()
    }
}

/// Returns an SQL condition on `team_project_access a`: the project of the grant exists in the organization whose row
/// id is the parameter `org`. A deleted project belongs to an ended (deleted) organization until the rows of the
/// project are removed. The condition looks up projects only while an ended organization exists, because these lookups
/// take many times as long as reading the grants.
pub(super) fn on_existing_project(org: &str) -> String {
    format!(
        "(NOT EXISTS (SELECT 1 FROM organizations WHERE ended_at IS NOT NULL)
         OR EXISTS (SELECT 1 FROM projects s WHERE s.id = a.project_id AND +s.org_id = {org}))"
    )
}

/// Returns the grants of the member's teams, or `None` if there are more than `MAX_LOADED_GRANTS`.
///
/// # Errors
/// Those of the store.
pub async fn load_all(tx: &mut Tx<'_>, member: &Member) -> WorkResult<Option<ProjectGrants>> {
    if member.teams.is_empty() {
        return Ok(Some(ProjectGrants::default()));
    }
    // The query aggregates the grants into one text, because transferring a row per grant takes longer than finding the
    // rows. It orders the grants like the index, so that the planner uses the index.
    let sql = format!(
        "SELECT string_agg(project_id || ' ' || perm_bits, ',') FROM
        (SELECT a.project_id, a.perm_bits FROM team_project_access a WHERE a.team_id = ANY($1) AND {}
         ORDER BY a.team_id, a.project_id LIMIT $3) granted",
        on_existing_project("$2")
    );
    let values: [SqlValue; 3] =
        [member.teams.clone().into(), member.organization.id.into(), (MAX_LOADED_GRANTS as i64 + 1).into()];
    let text: Option<String> = tx.one(&sql, &values).await?.get()?;
    let grants =
        text.iter().flat_map(|text| text.split(',')).map(|grant| parse_grant(grant).ok_or_else(malformed_grants));
    let grants = grants.collect::<Result<Vec<_>, _>>()?;
    Ok((grants.len() <= MAX_LOADED_GRANTS).then(|| ProjectGrants::union(grants)))
}

fn parse_grant(grant: &str) -> Option<(i64, ProjectRights)> {
    let (project, bits) = grant.split_once(' ')?;
    Some((project.parse().ok()?, ProjectRights::from_bits(bits.parse().ok()?)))
}

fn malformed_grants() -> WorkError {
    SqlError::Engine(Error::internal("projects: the aggregated project grants of the member's teams are malformed"))
        .into()
}

/// Returns the grants of the member's teams on these projects. For owners, who need no grants, the result is empty.
///
/// # Errors
/// Those of the store.
pub async fn load_for_projects(tx: &mut Tx<'_>, member: &Member, projects: &[i64]) -> WorkResult<ProjectGrants> {
    if member.is_owner || member.teams.is_empty() {
        return Ok(ProjectGrants::default());
    }
    let sql = "SELECT project_id, perm_bits FROM team_project_access
        WHERE project_id = ANY($1) AND team_id = ANY($2)";
    let mut grants = Vec::new();
    for mut row in tx.rows(sql, &[projects.to_vec().into(), member.teams.clone().into()]).await? {
        grants.push((row.get()?, ProjectRights::from_bits(row.get()?)));
    }
    Ok(ProjectGrants::union(grants))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_on_one_project_are_united() {
        let rows = ["7 1", "9 2", "3 1", "7 4"];
        let grants = ProjectGrants::union(rows.map(|grant| parse_grant(grant).unwrap()).to_vec());
        let bits = |bits| ProjectRights::from_bits(bits);
        assert_eq!(
            (grants.rights_on(7), grants.rights_on(9), grants.rights_on(4)),
            (bits(5), bits(2), ProjectRights::NONE)
        );
        assert_eq!(grants.newest_with(bits(1)), [7, 3]);
        let more = grants.with_grant(9, bits(1)).with_grant(1, bits(1));
        assert_eq!(more.newest_with(bits(1)), [9, 7, 3, 1]);
        assert_eq!(more.rights_on(9), bits(3));
        assert!(["", "7", "7 x", "7 1 1"].iter().all(|grant| parse_grant(grant).is_none()));
    }
}
