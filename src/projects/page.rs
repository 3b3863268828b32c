//! Pages of lists: which rows, under which condition, in which order.
//!
//! A page far from the beginning is read from the end, in the reverse order: what a page costs grows with
//! its distance from the nearer end.

use std::collections::HashMap;

use super::refusal::Outcome;
use super::tx::Tx;
use crate::sql::{Row, Value};

/// Rows that are skipped from the beginning whatever the other end is like: a few rows to skip cost nothing,
/// and a page that is read from the beginning is the usual case.
const NEAR: i64 = 1000;

/// Which page is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// From 1.
    pub number: i64,
    /// Most items, 1 to 100.
    pub size: i64,
}

impl Page {
    /// Items before it.
    pub fn offset(self) -> i64 {
        (self.number - 1).saturating_mul(self.size)
    }
}

/// What a list goes through.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The column of the rows' ids: `t.id`.
    pub id: &'static str,
    /// What follows FROM: `teams t`.
    pub from: &'static str,
}

/// The order of a list.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The column, with its table's letter. Its values are different in all rows of the list, so that the
    /// order is the same every time.
    pub column: &'static str,
    /// From the largest to the smallest.
    pub descending: bool,
}

/// The rows of a page, counted from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    offset: i64,
    limit: i64,
    from_end: bool,
}

impl Page {
    /// The items of the page in a list that is known one by one.
    pub fn of<T: Clone>(self, all: &[T]) -> Vec<T> {
        let from = usize::try_from(self.offset()).unwrap_or(usize::MAX).min(all.len());
        let size = usize::try_from(self.size).unwrap_or_default();
        all[from..].iter().take(size).cloned().collect()
    }

    /// The rows of the page in a list of `matching` ones; `None` when it has none.
    fn span(self, matching: i64) -> Option<Span> {
        let (offset, left) = (self.offset(), matching.saturating_sub(self.offset()));
        if left <= 0 {
            return None;
        }
        let behind = left.saturating_sub(self.size).max(0);
        if offset > NEAR && behind < offset {
            return Some(Span { offset: behind, limit: self.size.min(left), from_end: true });
        }
        Some(Span { offset, limit: self.size, from_end: false })
    }
}

/// The ids of a page, and how many rows `filter` lets through. A first page that is not full tells that itself.
///
/// # Errors
/// Those of the store.
pub async fn counted_ids(
    tx: &mut Tx<'_>,
    source: Source,
    filter: Filter,
    order: Order,
    page: Page,
) -> Outcome<(Vec<i64>, i64)> {
    if page.number > 1 {
        let matching = count(tx, source, &filter).await?;
        return Ok((ids(tx, source, filter, order, page, matching).await?, matching));
    }
    let all = filter.clone();
    let ids = ids(tx, source, filter, order, page, i64::MAX).await?;
    let shown = ids.len() as i64;
    let matching = if shown < page.size { shown } else { count(tx, source, &all).await? };
    Ok((ids, matching))
}

/// How many rows `filter` lets through.
///
/// # Errors
/// Those of the store.
pub async fn count(tx: &mut Tx<'_>, source: Source, filter: &Filter) -> Outcome<i64> {
    let sql = format!("SELECT count(*) FROM {} WHERE {}", source.from, filter.text());
    Ok(tx.one(&sql, &filter.values).await?.get()?)
}

/// What `sql` finds by the list of `ids`, its only parameter, in their order. Without ids nothing is asked.
///
/// # Errors
/// Those of the store.
pub async fn these<T>(
    tx: &mut Tx<'_>,
    sql: &str,
    ids: &[i64],
    read: impl Fn(&mut Row) -> Outcome<T>,
    id: impl Fn(&T) -> i64,
) -> Outcome<Vec<T>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    in_order(tx, sql, ids, &[ids.to_vec().into()], read, id).await
}

/// As [`these`], where `sql` asks for an organization's row by its second parameter.
///
/// # Errors
/// Those of the store.
pub async fn these_of<T>(
    tx: &mut Tx<'_>,
    sql: &str,
    ids: &[i64],
    org_id: i64,
    read: impl Fn(&mut Row) -> Outcome<T>,
    id: impl Fn(&T) -> i64,
) -> Outcome<Vec<T>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    in_order(tx, sql, ids, &[ids.to_vec().into(), org_id.into()], read, id).await
}

async fn in_order<T>(
    tx: &mut Tx<'_>,
    sql: &str,
    ids: &[i64],
    values: &[Value],
    read: impl Fn(&mut Row) -> Outcome<T>,
    id: impl Fn(&T) -> i64,
) -> Outcome<Vec<T>> {
    let mut found = Vec::with_capacity(ids.len());
    for mut row in tx.rows(sql, values).await? {
        found.push(read(&mut row)?);
    }
    let places: HashMap<i64, usize> = ids.iter().enumerate().map(|(place, row)| (*row, place)).collect();
    found.sort_by_key(|one| places.get(&id(one)));
    Ok(found)
}

/// The row ids of a page; `matching` is how many rows `filter` lets through.
///
/// # Errors
/// Those of the store.
pub async fn ids(
    tx: &mut Tx<'_>,
    source: Source,
    mut filter: Filter,
    order: Order,
    page: Page,
    matching: i64,
) -> Outcome<Vec<i64>> {
    let Some(span) = page.span(matching) else { return Ok(Vec::new()) };
    let direction = if order.descending == span.from_end { "" } else { " DESC" };
    let (limit, offset) = (filter.parameter(span.limit), filter.parameter(span.offset));
    let (Source { id, from }, Order { column, .. }, condition) = (source, order, filter.text());
    let sql =
        format!("SELECT {id} FROM {from} WHERE {condition} ORDER BY {column}{direction} LIMIT {limit} OFFSET {offset}");
    let mut ids: Vec<i64> = tx.column(&sql, &filter.values).await?;
    if span.from_end {
        ids.reverse();
    }
    Ok(ids)
}

/// One page of a list, and how long the list is.
#[derive(Debug)]
pub struct Listed<T> {
    /// The items.
    pub items: Vec<T>,
    /// Items on all pages.
    pub matching: i64,
}

impl<T> Listed<T> {
    /// The list of nothing.
    pub fn none() -> Self {
        Self { items: Vec::new(), matching: 0 }
    }
}

/// The condition of a list, put together from parts whose parameters are numbered as they come.
#[derive(Clone)]
pub struct Filter {
    text: String,
    /// The parameters so far.
    pub values: Vec<Value>,
}

impl Filter {
    /// Begins with a condition on one parameter, written with `{}` in its place.
    pub fn new(condition: &str, value: impl Into<Value>) -> Self {
        let mut filter = Self { text: String::new(), values: Vec::new() };
        filter.and(condition, value);
        filter
    }

    /// One more condition, with `{}` in the place of its parameter.
    pub fn and(&mut self, condition: &str, value: impl Into<Value>) {
        let place = self.parameter(value);
        self.join(&condition.replace("{}", &place));
    }

    /// One more condition without a parameter.
    pub fn join(&mut self, condition: &str) {
        if !self.text.is_empty() {
            self.text.push_str(" AND ");
        }
        self.text.push_str(condition);
    }

    /// Has rows found by another condition than that on a column: by their ids, where these are known and few. The
    /// embedded engine would walk through all that have the column's value.
    pub fn not_by(&mut self, column: &str) {
        self.text = self.text.replace(&format!("{column} = "), &format!("+{column} = "));
    }

    /// The place of one more parameter. Parameters must be used in the order in which they are added.
    pub fn parameter(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    /// The whole condition.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Most characters of a pattern: more than any text has that is looked through, so that nothing is found by
/// fewer of them that is not found by all. Engines have limits of their own for patterns.
const PATTERN: usize = 1000;

/// `text` as a pattern of LIKE … ESCAPE '\' that finds it anywhere, without case.
pub fn containing(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.to_lowercase().chars().take(PATTERN) {
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
        fn a_page_has_the_same_rows_from_either_end(length in 0i64..5000, number in 1i64..300, size in 1i64..=100) {
            let page = Page { number, size };
            let list: Vec<i64> = (0..length).collect();
            let expected: Vec<i64> = list.iter().copied().skip(page.offset() as usize).take(size as usize).collect();
            let read = page.span(length).map(|span| {
                let mut rows: Vec<i64> = if span.from_end { list.iter().rev().copied().collect() } else { list.clone() };
                rows = rows.into_iter().skip(span.offset as usize).take(span.limit as usize).collect();
                if span.from_end {
                    rows.reverse();
                }
                assert!(span.offset <= NEAR.max(length / 2), "{span:?}");
                rows
            });
            prop_assert_eq!(read.unwrap_or_default(), expected);
        }
    }

    #[test]
    fn the_largest_page_number_is_past_the_end_of_any_list() {
        let page = Page { number: i64::from(i32::MAX), size: 100 };
        assert_eq!(page.span(1_000_000), None);
        assert_eq!(Page { number: i64::MAX, size: 100 }.span(i64::MAX), None);
    }

    #[test]
    fn parameters_are_numbered_as_they_come() {
        let mut filter = Filter::new("p.org_id = {}", 7);
        filter.join("p.is_default");
        filter.and("p.name_lc = ANY({})", vec!["a".to_owned()]);
        assert_eq!(filter.text(), "p.org_id = $1 AND p.is_default AND p.name_lc = ANY($2)");
        assert_eq!(filter.parameter(20), "$3");
        filter.not_by("p.org_id");
        assert_eq!(filter.text(), "+p.org_id = $1 AND p.is_default AND p.name_lc = ANY($2)");
    }

    #[test]
    fn wildcards_are_found_as_they_are() {
        assert_eq!(containing("A_b%\\"), r"%a\_b\%\\%");
    }
}
