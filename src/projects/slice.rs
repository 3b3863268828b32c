//! A page of a table: the rows that are on it, and how many there are on all pages.
//!
//! Ids first, in the order of the list; what belongs to them is read afterwards, one query per kind of
//! thing for the whole page.

use super::Tx;
use super::page::{Filter, Page};
use super::refusal::Outcome;

/// What a list goes through.
pub struct Source {
    /// The column of the rows' ids: `t.id`.
    pub id: &'static str,
    /// What follows FROM: `teams t`.
    pub from: &'static str,
    /// What follows ORDER BY; it tells any two rows apart.
    pub order: &'static str,
}

/// The ids of a page, in order, and how many rows the filter lets through.
///
/// # Errors
/// Those of the store.
pub async fn ids(tx: &mut Tx<'_>, source: &Source, mut filter: Filter, page: Page) -> Outcome<(Vec<i64>, i64)> {
    let Source { id, from, order } = source;
    let count = format!("SELECT count(*) FROM {from} WHERE {}", filter.text());
    let conditions = filter.values.clone();
    let (limit, offset) = (filter.parameter(page.size), filter.parameter(page.offset()));
    let condition = filter.text();
    let sql = format!("SELECT {id} FROM {from} WHERE {condition} ORDER BY {order} LIMIT {limit} OFFSET {offset}");
    let mut ids = Vec::new();
    for mut row in tx.rows(&sql, &filter.values).await? {
        ids.push(row.get()?);
    }
    let shown = ids.len() as i64;
    // A page that is not full is the last one.
    let matching =
        if page.number == 1 && shown < page.size { shown } else { tx.one(&count, &conditions).await?.get()? };
    Ok((ids, matching))
}

/// Puts what was found in the order of `ids`.
pub fn in_order<T>(ids: &[i64], mut found: Vec<T>, id: impl Fn(&T) -> i64) -> Vec<T> {
    found.sort_by_key(|one| ids.iter().position(|row| *row == id(one)));
    found
}
