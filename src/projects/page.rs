//! Pagination and filters of lists.
//!
//! A page in the second half of a long list is read from the end in reverse order, so that the cost of a page grows
//! with the distance from the nearer end of the list.

use std::collections::HashMap;

use super::rejection::WorkResult;
use super::tx::Tx;
use crate::sql::{SqlRow, SqlValue};

/// A page with at most this offset is always read from the beginning, even if it is nearer to the end. Skipping few
/// rows is cheap, and most requests are for pages near the beginning.
const FORWARD_SCAN_ROWS: i64 = 1000;

/// The page that a request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Page number, starting at 1.
    pub number: i64,
    /// Page size, 1 to 100.
    pub size: i64,
}

impl PageRequest {
    /// Returns the number of items before the page.
    pub fn offset(self) -> i64 {
        (self.number - 1).saturating_mul(self.size)
    }
}

/// The SQL source of the rows of a list.
#[derive(Clone, Copy, Debug)]
pub struct ListSource {
    /// The id column, such as `t.id`.
    pub id: &'static str,
    /// The FROM clause, such as `teams t`.
    pub from: &'static str,
}

/// The SQL order of a list.
#[derive(Clone, Copy, Debug)]
pub struct ListOrder {
    /// The column, with its table alias. Its values must be unique within the list, so that the order is stable.
    pub column: &'static str,
    /// `true` for the largest value first.
    pub descending: bool,
}

/// A range of rows, counted from one end of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowRange {
    offset: i64,
    limit: i64,
    from_end: bool,
}

impl PageRequest {
    /// Returns the items of the page, given all items of the list.
    pub fn slice<T: Clone>(self, all: &[T]) -> Vec<T> {
        let from = usize::try_from(self.offset()).unwrap_or(usize::MAX).min(all.len());
        let size = usize::try_from(self.size).unwrap_or_default();
        all[from..].iter().take(size).cloned().collect()
    }

    /// Returns the range of the page's rows in a list of `matching` rows, or `None` if the page is empty.
    fn row_range(self, matching: i64) -> Option<RowRange> {
        let offset = self.offset();
        let left = matching.saturating_sub(self.offset());
        if left <= 0 {
            return None;
        }
        let rows_after = left.saturating_sub(self.size).max(0);
        if offset > FORWARD_SCAN_ROWS && rows_after < offset {
            return Some(RowRange { offset: rows_after, limit: self.size.min(left), from_end: true });
        }
        Some(RowRange { offset, limit: self.size, from_end: false })
    }
}

/// Returns the ids of a page and the number of matching rows. If the first page is not full, it contains all rows, so
/// no query counts them.
///
/// # Errors
/// Those of the store.
pub async fn find_ids_and_count(
    tx: &mut Tx<'_>,
    source: ListSource,
    filter: ListCondition,
    order: ListOrder,
    page: PageRequest,
) -> WorkResult<(Vec<i64>, i64)> {
    if page.number > 1 {
        let matching = count(tx, source, &filter).await?;
        return Ok((find_ids(tx, source, filter, order, page, matching).await?, matching));
    }
    let all = filter.clone();
    let ids = find_ids(tx, source, filter, order, page, i64::MAX).await?;
    let shown = ids.len() as i64;
    let matching = if shown < page.size { shown } else { count(tx, source, &all).await? };
    Ok((ids, matching))
}

/// Returns the number of rows that match `filter`.
///
/// # Errors
/// Those of the store.
pub async fn count(tx: &mut Tx<'_>, source: ListSource, filter: &ListCondition) -> WorkResult<i64> {
    let sql = format!("SELECT count(*) FROM {} WHERE {}", source.from, filter.text());
    Ok(tx.one(&sql, &filter.values).await?.get()?)
}

/// Runs the query `sql`, whose only parameter is `ids`, and returns its rows in the order of `ids`. Runs no query if
/// `ids` is empty.
///
/// # Errors
/// Those of the store.
pub async fn load_in_order<T>(
    tx: &mut Tx<'_>,
    sql: &str,
    ids: &[i64],
    read: impl Fn(&mut SqlRow) -> WorkResult<T>,
    id: impl Fn(&T) -> i64,
) -> WorkResult<Vec<T>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    query_in_order(tx, sql, ids, &[ids.to_vec().into()], read, id).await
}

/// Like [`load_in_order`], but `sql` has a second parameter: the row id of an organization.
///
/// # Errors
/// Those of the store.
pub async fn load_in_order_with_organization<T>(
    tx: &mut Tx<'_>,
    sql: &str,
    ids: &[i64],
    org_id: i64,
    read: impl Fn(&mut SqlRow) -> WorkResult<T>,
    id: impl Fn(&T) -> i64,
) -> WorkResult<Vec<T>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    query_in_order(tx, sql, ids, &[ids.to_vec().into(), org_id.into()], read, id).await
}

async fn query_in_order<T>(
    tx: &mut Tx<'_>,
    sql: &str,
    ids: &[i64],
    values: &[SqlValue],
    read: impl Fn(&mut SqlRow) -> WorkResult<T>,
    id: impl Fn(&T) -> i64,
) -> WorkResult<Vec<T>> {
    let mut found = Vec::with_capacity(ids.len());
    for mut row in tx.rows(sql, values).await? {
        found.push(read(&mut row)?);
    }
    let positions: HashMap<i64, usize> = ids.iter().enumerate().map(|(position, row)| (*row, position)).collect();
    found.sort_by_key(|one| positions.get(&id(one)));
    Ok(found)
}

/// Returns the row ids of a page; `matching` is the number of rows that match `filter`.
///
/// # Errors
/// Those of the store.
pub async fn find_ids(
    tx: &mut Tx<'_>,
    source: ListSource,
    mut filter: ListCondition,
    order: ListOrder,
    page: PageRequest,
    matching: i64,
) -> WorkResult<Vec<i64>> {
    let Some(range) = page.row_range(matching) else { return Ok(Vec::new()) };
    let direction = if order.descending == range.from_end { "" } else { " DESC" };
    let limit = filter.parameter(range.limit);
    let offset = filter.parameter(range.offset);
    let ListSource { id, from } = source;
    let ListOrder { column, .. } = order;
    let condition = filter.text();
    let sql =
        format!("SELECT {id} FROM {from} WHERE {condition} ORDER BY {column}{direction} LIMIT {limit} OFFSET {offset}");
    let mut ids: Vec<i64> = tx.column(&sql, &filter.values).await?;
    if range.from_end {
        ids.reverse();
    }
    Ok(ids)
}

/// One page of a list, with the length of the list.
#[derive(Debug)]
pub struct ResultPage<T> {
    /// The items of the page.
    pub items: Vec<T>,
    /// Number of items on all pages.
    pub matching: i64,
}

impl<T> ResultPage<T> {
    /// Returns an empty page of an empty list.
    pub fn empty() -> Self {
        Self { items: Vec::new(), matching: 0 }
    }
}

/// The SQL condition of a list, built from conditions with numbered parameters.
#[derive(Clone)]
pub struct ListCondition {
    text: String,
    /// The values of the parameters that the condition contains so far.
    pub values: Vec<SqlValue>,
}

impl ListCondition {
    /// Creates a filter with one condition. The placeholder of the parameter `value` replaces `{}` in `condition`.
    pub fn new(condition: &str, value: impl Into<SqlValue>) -> Self {
        let mut filter = Self { text: String::new(), values: Vec::new() };
        filter.and(condition, value);
        filter
    }

    /// Adds a condition with AND. The placeholder of the parameter `value` replaces `{}` in `condition`.
    pub fn and(&mut self, condition: &str, value: impl Into<SqlValue>) {
        let placeholder = self.parameter(value);
        self.and_sql(&condition.replace("{}", &placeholder));
    }

    /// Adds a condition with AND, without a parameter.
    pub fn and_sql(&mut self, condition: &str) {
        if !self.text.is_empty() {
            self.text.push_str(" AND ");
        }
        self.text.push_str(condition);
    }

    /// Prevents the use of an index on `column` in a query that also selects a few rows by id. The embedded engine
    /// would otherwise prefer that index and scan all rows with the column's value.
    pub fn avoid_index(&mut self, column: &str) {
        self.text = self.text.replace(&format!("{column} = "), &format!("+{column} = "));
    }

    /// Adds a parameter and returns its placeholder. Placeholders must be used in the order in which they are added.
    pub fn parameter(&mut self, value: impl Into<SqlValue>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    /// Returns the SQL text of the condition.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Maximum length of the searched text in a LIKE pattern, in characters. A longer text is truncated, because database
/// engines limit the length of patterns. Stored texts are shorter, so neither the full nor the truncated text occurs in
/// them.
const MAX_PATTERN_CHARS: usize = 1000;

/// Returns a pattern for LIKE … ESCAPE '\' that finds `text` anywhere, case-insensitive.
pub fn substring_pattern(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.to_lowercase().chars().take(MAX_PATTERN_CHARS) {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn page_has_the_same_rows_from_either_end(length in 0i64..5000, number in 1i64..300, size in 1i64..=100) {
            let page = PageRequest { number, size };
            let list: Vec<i64> = (0..length).collect();
            let expected: Vec<i64> = list.iter().copied().skip(page.offset() as usize).take(size as usize).collect();
            let read = page.row_range(length).map(|range| {
                let mut rows: Vec<i64> = list.clone();
                if range.from_end {
                    rows.reverse();
                }
                rows = rows.into_iter().skip(range.offset as usize).take(range.limit as usize).collect();
                if range.from_end {
                    rows.reverse();
                }
                assert!(range.offset <= FORWARD_SCAN_ROWS.max(length / 2), "{range:?}");
                rows
            });
            prop_assert_eq!(read.unwrap_or_default(), expected);
        }
    }

    #[test]
    fn largest_page_number_is_past_the_end_of_any_list() {
        let page = PageRequest { number: i64::from(i32::MAX), size: 100 };
        assert_eq!(page.row_range(1_000_000), None);
        assert_eq!(PageRequest { number: i64::MAX, size: 100 }.row_range(i64::MAX), None);
    }

    #[test]
    fn list_condition_numbers_parameters_in_order() {
        let mut filter = ListCondition::new("p.org_id = {}", 7_i64);
        filter.and_sql("p.is_default");
        filter.and("p.name_lc = ANY({})", vec!["a".to_owned()]);
        assert_eq!(filter.text(), "p.org_id = $1 AND p.is_default AND p.name_lc = ANY($2)");
        assert_eq!(filter.parameter(20_i64), "$3");
        filter.avoid_index("p.org_id");
        assert_eq!(filter.text(), "+p.org_id = $1 AND p.is_default AND p.name_lc = ANY($2)");
    }

    #[test]
    fn substring_pattern_escapes_wildcards() {
        assert_eq!(substring_pattern("A_b%\\"), r"%a\_b\%\\%");
    }
}
