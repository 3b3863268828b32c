//! The flat tags (tags without a value) of all workspaces of an organization, without duplicates.

use super::member::Member;
use super::page::{PageRequest, ResultPage, substring_pattern};
use super::rejection::WorkResult;
use super::tx::Tx;
use super::workspace;

/// A flat tag (a tag without a value), with the number of its workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrganizationTag {
    /// The name.
    pub name: String,
    /// Number of workspaces with the tag, counting only workspaces that the member sees.
    pub workspaces: i64,
}

/// The filters of a list of an organization's tags.
#[derive(Clone, Debug, Default)]
pub struct OrganizationTagFilter {
    /// Text that the name of the tag must contain, case-insensitive.
    pub q: Option<String>,
    /// External id of a workspace. The tags of this workspace are excluded from the list.
    pub excluded_workspace: Option<String>,
}

/// Returns a page of the tags of the workspaces that the member sees, sorted by name.
///
/// # Errors
/// Those of the store; `Unavailable` when the query takes too long.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    wanted: &OrganizationTagFilter,
    page: PageRequest,
) -> WorkResult<ResultPage<OrganizationTag>> {
    const FROM: &str = "tag_bindings b JOIN workspaces w ON w.id = b.workspace_id";
    let Some(seen) = workspace::select_visible(tx, member).await? else { return Ok(ResultPage::empty()) };
    let mut filter = seen.filter;
    if let Some(excluded) = &wanted.excluded_workspace {
        // A workspace that is hidden from the caller does not exclude tags: otherwise the list would reveal the tags of
        // the workspace.
        let mut visible = filter.clone();
        visible.and("w.ext_id = {}", &excluded[..]);
        let sql = format!("SELECT w.id FROM workspaces w WHERE {}", visible.text());
        if let Some(mut row) = tx.row(&sql, &visible.values).await? {
            let id: i64 = row.get()?;
            filter.and(
                "NOT EXISTS (SELECT 1 FROM tag_bindings x WHERE x.workspace_id = {} AND x.key = b.key AND x.value = '')",
                id,
            );
        }
    }
    filter.and("b.org_id = {} AND b.value = ''", member.organization.id);
    if let Some(q) = &wanted.q {
        filter.and(r"lower(b.key) LIKE {} ESCAPE '\'", substring_pattern(q));
    }
    tx.use_custom_plans();
    let count = format!("SELECT count(DISTINCT b.key) FROM {FROM} WHERE {}", filter.text());
    let matching: i64 = tx.one(&count, &filter.values).await?.get()?;
    let condition = filter.text().to_owned();
    let limit = filter.parameter(page.size);
    let offset = filter.parameter(page.offset());
    let sql = format!(
        "SELECT b.key, count(*) FROM {FROM} WHERE {condition} GROUP BY b.key ORDER BY b.key LIMIT {limit} OFFSET {offset}"
    );
    let mut items = Vec::new();
    for mut row in tx.rows(&sql, &filter.values).await? {
        items.push(OrganizationTag { name: row.get()?, workspaces: row.get()? });
    }
    Ok(ResultPage { items, matching })
}
