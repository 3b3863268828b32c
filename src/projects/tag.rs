//! Tags of projects and workspaces. A binding attaches a tag (a key and a value) to a resource.
//!
//! Bindings are listed in the order of their creation. A flat tag is a tag with an empty value; its key, called name,
//! is case-insensitive and stored in lower case. A workspace inherits the bindings of its project, except for keys that
//! it binds itself.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use serde_json::Value as Json;

use super::attributes::AttributeReader;
use super::id;
use super::page::ListCondition;
use super::rejection::{ApiRejection, Fault, WorkResult};
use super::tx::Tx;
use crate::error::Kind;
use crate::sql::SqlValue;

/// Maximum number of bindings of a resource after a request that sets bindings with values ([`merge`]).
pub const MAX_TAGS: usize = 10;
/// Maximum number of bindings of a resource after a request that adds flat tags. The number is limited because all
/// bindings are loaded with the resource.
const MAX_BINDINGS: usize = 1000;
/// Maximum number of elements of a list of tags in a request. The number exceeds [`MAX_TAGS`], because flat tags are
/// added in bulk and a repeated key counts as one tag.
pub const MAX_TAGS_PER_REQUEST: usize = 100;
/// Maximum length of the key of a tag, in characters.
const MAX_KEY_CHARS: usize = 128;
/// Maximum length of the value of a tag, in characters.
const MAX_VALUE_CHARS: usize = 256;

/// Maximum length of the name of a flat tag, in characters.
const MAX_FLAT_TAG_CHARS: usize = 255;
/// Maximum length of the id of a tag or of a binding, in characters.
const MAX_TAG_ID_CHARS: usize = FLAT_TAG_ID_PREFIX.len() + MAX_FLAT_TAG_CHARS;
/// Prefix of the id of a flat tag. The name of the tag follows.
const FLAT_TAG_ID_PREFIX: &str = "tag-";

/// The kind of a resource that has tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaggedResource {
    /// A project.
    Project,
    /// A workspace.
    Workspace,
}

impl TaggedResource {
    fn column(self) -> &'static str {
        match self {
            Self::Project => "project_id",
            Self::Workspace => "workspace_id",
        }
    }

    fn table(self) -> &'static str {
        match self {
            Self::Project => "projects",
            Self::Workspace => "workspaces",
        }
    }
}

/// A tag to be bound to a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The key of the tag.
    pub key: String,
    /// The value; empty for a flat tag.
    pub value: String,
}

/// A filter of a list by tag. An absent key or value matches any key or value; at least one of the two is present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagFilter {
    /// The key, case-sensitive.
    pub key: Option<String>,
    /// The value, case-sensitive.
    pub value: Option<String>,
}

/// A stored binding of a tag to a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagBinding {
    /// External id.
    pub ext_id: String,
    /// The key of the tag.
    pub key: String,
    /// The value; empty for a flat tag.
    pub value: String,
}

/// Reads the elements of a relationship or list `tag-bindings`, at most [`MAX_TAGS_PER_REQUEST`]. `pointer` is the JSON
/// pointer of the array. If a key is repeated, its last value counts. Faults are added to `attributes`.
pub fn parse_bindings(attributes: &mut AttributeReader<'_>, elements: &[Json], pointer: &str) -> Vec<Tag> {
    let mut tags = TagCollector::default();
    for (n, element) in elements.iter().enumerate() {
        let members = element.get("attributes");
        let key = members.and_then(|members| members.get("key")).and_then(Json::as_str);
        let value = match members.and_then(|members| members.get("value")) {
            None | Some(Json::Null) => Some(""),
            Some(value) => value.as_str(),
        };
        let at = |name: &str| format!("{pointer}/{n}/attributes/{name}");
        let Some(key) = key.filter(|key| is_text(key, 1..=MAX_KEY_CHARS)) else {
            attributes.push(Fault::at(at("key"), format!("Key must have 1 to {MAX_KEY_CHARS} characters")));
            continue;
        };
        let Some(value) = value.filter(|value| is_text(value, 0..=MAX_VALUE_CHARS)) else {
            attributes.push(Fault::at(at("value"), format!("Value must have at most {MAX_VALUE_CHARS} characters")));
            continue;
        };
        tags.insert_or_replace(key.to_owned(), value);
    }
    if tags.list.len() > MAX_TAGS {
        attributes.push(too_many_tags_fault(pointer, MAX_TAGS));
    }
    tags.list
}

/// Reads the elements of a relationship or list `tags`, at most [`MAX_TAGS_PER_REQUEST`]. Each is the name of a flat
/// tag.
pub fn read_flat(attributes: &mut AttributeReader<'_>, elements: &[Json], pointer: &str) -> Vec<Tag> {
    let mut tags = TagCollector::default();
    for (n, element) in elements.iter().enumerate() {
        let name = element.get("attributes").and_then(|members| members.get("name")).and_then(Json::as_str);
        match name.filter(|name| is_flat(name)) {
            Some(name) => tags.insert_or_replace(name.to_ascii_lowercase(), ""),
            None => attributes.push(Fault::at(format!("{pointer}/{n}/attributes/name"), FLAT_TAG_NAME_RULE)),
        }
    }
    tags.list
}

const FLAT_TAG_NAME_RULE: &str = "Name must have 1 to 255 letters, numbers, colons, hyphens and underscores, and begin \
    and end with a letter or a number";

fn is_flat(name: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_');
    name.len() <= MAX_FLAT_TAG_CHARS
        && name.chars().all(is_legal)
        && is_edge(name.chars().next())
        && is_edge(name.chars().next_back())
}

/// Returns the id of a flat tag, which is the same in every workspace of an organization.
pub fn flat_id(name: &str) -> String {
    format!("{FLAT_TAG_ID_PREFIX}{name}")
}

/// Returns the keys to which a name in a request may refer: the name itself, and its lower-case form, in which flat
/// tags are stored.
fn spellings(name: &str) -> Vec<String> {
    let mut spellings = vec![name.to_owned(), name.to_ascii_lowercase()];
    spellings.dedup();
    spellings
}

/// Flat tags to remove, by id or by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagSelection {
    ids: Vec<String>,
    keys: Vec<String>,
}

/// Reads the elements of a list of flat tags to remove, at most [`MAX_TAGS_PER_REQUEST`]. Each has an id, a name, or
/// both, as known clients send. An empty id or name counts as absent.
pub fn read_selection<'j>(attributes: &mut AttributeReader<'_>, elements: &'j [Json], pointer: &str) -> TagSelection {
    let mut named = TagSelection::default();
    for (n, element) in elements.iter().enumerate() {
        let text =
            |value: Option<&'j Json>, longest| value.and_then(Json::as_str).filter(|text| is_text(text, 1..=longest));
        let id = text(element.get("id"), MAX_TAG_ID_CHARS);
        let name = text(element.get("attributes").and_then(|members| members.get("name")), MAX_FLAT_TAG_CHARS);
        if id.is_none() && name.is_none() {
            let rule = format!("a tag needs an id or a name of 1 to {MAX_FLAT_TAG_CHARS} characters");
            attributes.push(Fault::at(format!("{pointer}/{n}/id"), rule));
        }
        let of_id = id.and_then(|id| id.strip_prefix(FLAT_TAG_ID_PREFIX));
        named.keys.extend(of_id.into_iter().chain(name).flat_map(spellings));
        named.ids.extend(id.map(str::to_owned));
    }
    named
}

fn is_text(text: &str, letters: std::ops::RangeInclusive<usize>) -> bool {
    letters.contains(&text.chars().count()) && !text.contains('\0')
}

#[derive(Default)]
struct TagCollector {
    list: Vec<Tag>,
    index_by_key: HashMap<String, usize>,
}

impl TagCollector {
    fn insert_or_replace(&mut self, key: String, value: &str) {
        match self.index_by_key.entry(key) {
            Entry::Occupied(entry) => value.clone_into(&mut self.list[*entry.get()].value),
            Entry::Vacant(entry) => {
                self.list.push(Tag { key: entry.key().clone(), value: value.to_owned() });
                entry.insert(self.list.len() - 1);
            }
        }
    }
}

fn too_many_tags_fault(pointer: &str, max: usize) -> Fault {
    Fault::at(pointer.to_owned(), format!("at most {max} tags can be bound to one resource"))
}

/// Adds tags to a resource, replacing the values of existing keys. Tags with other keys remain.
///
/// # Errors
/// `Invalid` when the resource would have more than [`MAX_TAGS`] tags.
pub async fn merge(tx: &mut Tx<'_>, resource: TaggedResource, row: i64, tags: &[Tag]) -> WorkResult<()> {
    lock_resource(tx, resource, row).await?;
    insert_tags(tx, resource, row, tags, "DO UPDATE SET value = excluded.value").await?;
    reject_excess_tags(tx, resource, row, MAX_TAGS).await
}

async fn reject_excess_tags(tx: &mut Tx<'_>, resource: TaggedResource, row: i64, max: usize) -> WorkResult<()> {
    let column = resource.column();
    let count = format!("SELECT count(*) FROM tag_bindings WHERE {column} = $1");
    let bound: i64 = tx.one(&count, &[row.into()]).await?.get()?;
    if bound > max as i64 {
        return Err(ApiRejection::of(Kind::Invalid, vec![too_many_tags_fault("/data", max)]).into());
    }
    Ok(())
}

/// Sets the tags of a resource to exactly these. If the resource already has a tag with the same key, this tag keeps
/// its id and position.
///
/// # Errors
/// Those of the store.
pub async fn replace(tx: &mut Tx<'_>, resource: TaggedResource, row: i64, tags: &[Tag]) -> WorkResult<()> {
    lock_resource(tx, resource, row).await?;
    let column = resource.column();
    let keys: Vec<String> = tags.iter().map(|tag| tag.key.clone()).collect();
    let delete = format!("DELETE FROM tag_bindings WHERE {column} = $1 AND NOT (key = ANY($2))");
    tx.execute(&delete, &[row.into(), keys.into()]).await?;
    insert_tags(tx, resource, row, tags, "DO UPDATE SET value = excluded.value").await
}

/// Adds flat tags to a resource. An existing tag with the same key keeps its value.
///
/// # Errors
/// `Invalid` when the resource would have more than `MAX_BINDINGS` tags.
pub async fn add_flat(tx: &mut Tx<'_>, resource: TaggedResource, row: i64, tags: &[Tag]) -> WorkResult<()> {
    if tags.is_empty() {
        return Ok(());
    }
    lock_resource(tx, resource, row).await?;
    insert_tags(tx, resource, row, tags, "DO NOTHING").await?;
    reject_excess_tags(tx, resource, row, MAX_BINDINGS).await
}

/// Removes flat tags from a resource. Tags that the resource does not have are ignored, and tags with a value remain.
///
/// # Errors
/// Those of the store.
pub async fn remove_flat(tx: &mut Tx<'_>, resource: TaggedResource, row: i64, named: TagSelection) -> WorkResult<()> {
    lock_resource(tx, resource, row).await?;
    let column = resource.column();
    let delete =
        format!("DELETE FROM tag_bindings WHERE {column} = $1 AND value = '' AND (ext_id = ANY($2) OR key = ANY($3))");
    tx.execute(&delete, &[row.into(), named.ids.into(), named.keys.into()]).await?;
    Ok(())
}

/// Locks the row of a resource, so that concurrent changes of its tags cannot together exceed the limit.
///
/// # Errors
/// `NotFound` when the resource was deleted.
async fn lock_resource(tx: &mut Tx<'_>, resource: TaggedResource, row: i64) -> WorkResult<()> {
    tx.lock_row(resource.table(), row).await
}

async fn insert_tags(
    tx: &mut Tx<'_>,
    resource: TaggedResource,
    row: i64,
    tags: &[Tag],
    on_conflict: &str,
) -> WorkResult<()> {
    let column = resource.column();
    let insert = format!(
        "INSERT INTO tag_bindings (ext_id, {column}, key, value) VALUES ($1, $2, $3, $4)
        ON CONFLICT ({column}, key) {on_conflict}"
    );
    for tag in tags {
        let values: [SqlValue; 4] = [id::new("tb").into(), row.into(), tag.key[..].into(), tag.value[..].into()];
        tx.execute(&insert, &values).await?;
    }
    Ok(())
}

/// Returns the bindings of the resources with these row ids, by row id. Each list is in the order of creation.
///
/// # Errors
/// Those of the store.
pub async fn load_bindings(
    tx: &mut Tx<'_>,
    resource: TaggedResource,
    rows: Vec<i64>,
) -> WorkResult<HashMap<i64, Vec<TagBinding>>> {
    let column = resource.column();
    let sql = format!("SELECT {column}, ext_id, key, value FROM tag_bindings WHERE {column} = ANY($1) ORDER BY id");
    let mut bindings: HashMap<i64, Vec<TagBinding>> = HashMap::new();
    for mut row in tx.rows(&sql, &[rows.into()]).await? {
        let resource_row = row.get()?;
        let binding = TagBinding { ext_id: row.get()?, key: row.get()?, value: row.get()? };
        bindings.entry(resource_row).or_default().push(binding);
    }
    Ok(bindings)
}

/// Returns the bindings of one resource, in the order of creation.
///
/// # Errors
/// Those of the store.
pub async fn load_bindings_of(tx: &mut Tx<'_>, resource: TaggedResource, row: i64) -> WorkResult<Vec<TagBinding>> {
    Ok(load_bindings(tx, resource, vec![row]).await?.remove(&row).unwrap_or_default())
}

/// Returns the effective bindings of a workspace: its own, then the bindings of its project with other keys. The second
/// element is `true` for inherited bindings.
pub fn resolve_effective<'b>(own: &'b [TagBinding], project: &'b [TagBinding]) -> Vec<(&'b TagBinding, bool)> {
    let inherited = project.iter().filter(|binding| own.iter().all(|own| own.key != binding.key));
    own.iter().map(|binding| (binding, false)).chain(inherited.map(|binding| (binding, true))).collect()
}

/// Restricts a list of `projects p` to projects that match all of these filters.
pub fn narrow_projects(filter: &mut ListCondition, tagged: &[TagFilter]) {
    for term in build_terms(&[], tagged) {
        let matches = term.matches(filter);
        filter.and_sql(&format!("EXISTS (SELECT 1 FROM tag_bindings b WHERE b.project_id = p.id AND {matches})"));
    }
}

/// The numbers of terms to which [`pad_terms`] pads.
const PADDED_TERM_COUNTS: [usize; 7] = [0, 1, 2, 4, 8, 20, 40];

/// Pads the terms of a condition to the next number in [`PADDED_TERM_COUNTS`] by repeating the last one. Stores cache
/// prepared statements by their SQL text, so padding keeps the number of distinct texts small.
fn pad_terms<T>(terms: &[T]) -> impl Iterator<Item = &T> {
    let max = PADDED_TERM_COUNTS.into_iter().find(|max| *max >= terms.len()).unwrap_or(terms.len());
    terms.iter().chain(std::iter::repeat(terms.last()).flatten()).take(max)
}

/// One term of a condition on a binding: its key is one of `keys` (any key if empty), and its value is `value` (any
/// value if `None`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TagTerm {
    keys: Vec<String>,
    value: Option<String>,
}

/// Returns the distinct terms for the names in `flat` and the filters in `tagged`: first the terms with a key, then the
/// terms without a key, each group padded ([`pad_terms`]).
fn build_terms(flat: &[String], tagged: &[TagFilter]) -> Vec<TagTerm> {
    let flat = flat.iter().map(|name| TagTerm { keys: spellings(name), value: None });
    let pair = |pair: &TagFilter| TagTerm { keys: pair.key.iter().cloned().collect(), value: pair.value.clone() };
    let all: BTreeSet<TagTerm> = flat.chain(tagged.iter().map(pair)).collect();
    let (any_key, keyed): (Vec<TagTerm>, Vec<TagTerm>) = all.into_iter().partition(|term| term.keys.is_empty());
    pad_terms(&keyed).chain(pad_terms(&any_key)).cloned().collect()
}

impl TagTerm {
    fn matches(&self, filter: &mut ListCondition) -> String {
        let key = if self.keys.is_empty() {
            String::new()
        } else {
            format!("b.key = ANY({}) AND ", filter.parameter(self.keys.clone()))
        };
        let value = filter.parameter(self.value.as_deref());
        format!("{key}(b.value = {value} OR {value} IS NULL)")
    }
}

/// Restricts a list of `workspaces w` to workspaces with bindings, own or inherited, for all names in `flat` and all
/// filters in `tagged`.
pub fn narrow_workspaces(filter: &mut ListCondition, flat: &[String], tagged: &[TagFilter]) {
    for term in build_terms(flat, tagged) {
        let matches = term.matches(filter);
        // A binding of the project counts only if the workspace has no binding with the same key.
        filter.and_sql(&format!(
            "(EXISTS (SELECT 1 FROM tag_bindings b WHERE b.workspace_id = w.id AND {matches})
             OR EXISTS (SELECT 1 FROM tag_bindings b WHERE b.project_id = w.project_id AND {matches}
             AND NOT EXISTS (SELECT 1 FROM tag_bindings o WHERE o.workspace_id = w.id AND o.key = b.key)))"
        ));
    }
}

/// A tag is rare if at most this many resources have it. For a more common tag, a scan of the list finds matches
/// quickly.
const MAX_RARE_TAG_ROWS: usize = 500;

/// Finds one of these tags that at most [`MAX_RARE_TAG_ROWS`] resources have, and returns the row ids of these
/// resources. They include every resource with all of the tags, so a list can ignore all other resources. `None` if
/// each tag is more common.
///
/// # Errors
/// Those of the store.
pub async fn find_rows_with_rare_tag(
    tx: &mut Tx<'_>,
    resource: TaggedResource,
    org_id: i64,
    flat: &[String],
    tagged: &[TagFilter],
) -> WorkResult<Option<Vec<i64>>> {
    let all: BTreeSet<TagTerm> = build_terms(flat, tagged).into_iter().collect();
    // In reverse order, terms with a key come first. They are preferable, because an index finds bindings by key.
    for term in all.into_iter().rev() {
        let mut filter = ListCondition::new("b.org_id = {}", org_id);
        let matches = term.matches(&mut filter);
        let condition = format!("{} AND {matches}", filter.text());
        let limit = filter.parameter(MAX_RARE_TAG_ROWS as i64 + 1);
        let sql = match resource {
            TaggedResource::Project => format!(
                "SELECT b.project_id FROM tag_bindings b WHERE {condition} AND b.project_id IS NOT NULL LIMIT {limit}"
            ),
            TaggedResource::Workspace => format!(
                "SELECT b.workspace_id FROM tag_bindings b WHERE {condition} AND b.workspace_id IS NOT NULL
                 UNION ALL SELECT v.id FROM tag_bindings b JOIN workspaces v ON v.project_id = b.project_id
                 WHERE {condition} LIMIT {limit}"
            ),
        };
        let mut rows: Vec<i64> = tx.column(&sql, &filter.values).await?;
        if rows.len() <= MAX_RARE_TAG_ROWS {
            rows.sort_unstable();
            rows.dedup();
            return Ok(Some(rows));
        }
    }
    Ok(None)
}

/// Restricts a list of `workspaces w` to workspaces without any binding, own or of the project, with one of these keys.
pub fn exclude_workspaces(filter: &mut ListCondition, keys: &[String]) {
    if keys.is_empty() {
        return;
    }
    // A binding of the project excludes the workspace even if the workspace has its own binding with the same key.
    let keys = filter.parameter(keys.iter().flat_map(|key| spellings(key)).collect::<Vec<_>>());
    for condition in ["b.workspace_id = w.id", "b.project_id = w.project_id"] {
        filter.and_sql(&format!("NOT EXISTS (SELECT 1 FROM tag_bindings b WHERE {condition} AND b.key = ANY({keys}))"));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, json};

    use super::*;
    use crate::projects::rejection::{FaultSource, WorkError};

    type Narrow = fn(&mut ListCondition, &[TagFilter]);
    type Reader = fn(&mut AttributeReader<'_>, &[Json], &str) -> Vec<Tag>;

    fn read_with(reader: Reader, elements: &Json) -> Result<Vec<(String, String)>, Vec<String>> {
        let none = Map::new();
        let mut attributes = AttributeReader::new(&none);
        let tags = reader(&mut attributes, elements.as_array().unwrap(), "/data");
        match attributes.finish() {
            Ok(()) => Ok(tags.into_iter().map(|tag| (tag.key, tag.value)).collect()),
            Err(WorkError::Refused(refusal)) => Err(refusal
                .faults
                .iter()
                .map(|fault| match &fault.source {
                    Some(FaultSource::Pointer(pointer)) => pointer.to_string(),
                    other => panic!("{other:?}"),
                })
                .collect()),
            Err(stop) => panic!("{stop:?}"),
        }
    }

    fn pair(key: &str, value: &str) -> Json {
        json!({ "type": "tag-bindings", "attributes": { "key": key, "value": value } })
    }

    #[test]
    fn tag_faults_point_to_the_invalid_element() {
        let owned = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let good = json!([pair("a", "1"), pair("b", ""), { "attributes": { "key": "c" } }, pair("a", "2")]);
        assert_eq!(read_with(parse_bindings, &good), Ok(vec![owned("a", "2"), owned("b", ""), owned("c", "")]));
        let longest = json!([pair(&"ü".repeat(128), &"ü".repeat(256))]);
        assert_eq!(read_with(parse_bindings, &longest).unwrap().len(), 1);
        let bad = json!([pair("", "x"), pair(&"k".repeat(129), ""), pair("k", &"v".repeat(257)), 7,
            { "attributes": { "key": "k", "value": 7 } }, pair("a\0", "")]);
        let pointers = ["0/attributes/key", "1/attributes/key", "2/attributes/value", "3/attributes/key"];
        let pointers = pointers.into_iter().chain(["4/attributes/value", "5/attributes/key"]);
        assert_eq!(read_with(parse_bindings, &bad), Err(pointers.map(|pointer| format!("/data/{pointer}")).collect()));
        let many = |n: usize| Json::from((0..n).map(|n| pair(&n.to_string(), "")).collect::<Vec<_>>());
        assert_eq!(read_with(parse_bindings, &many(10)).unwrap().len(), 10);
        assert_eq!(read_with(parse_bindings, &many(11)), Err(vec!["/data".to_owned()]));
    }

    #[test]
    fn flat_tag_names_are_lower_cased_and_validated() {
        let flat = json!([{ "type": "tags", "attributes": { "name": "one" } }, { "attributes": { "name": "one" } }]);
        assert_eq!(read_with(read_flat, &flat), Ok(vec![("one".to_owned(), String::new())]));
        let cased = json!([{ "attributes": { "name": "One:a_b-C" } }, { "attributes": { "name": "ONE:A_B-C" } }]);
        assert_eq!(read_with(read_flat, &cased), Ok(vec![("one:a_b-c".to_owned(), String::new())]));
        let named = |name: &str| json!({ "attributes": { "name": name } });
        assert!(read_with(read_flat, &json!([named("7"), named(&"x".repeat(255))])).is_ok());
        let names = ["", "a,b", "a b", "-a", "a:", "ä", &"x".repeat(256)];
        let bad: Vec<_> = names.into_iter().map(named).chain([json!({ "id": "tag-1" })]).collect();
        let pointers = (0..bad.len()).map(|n| format!("/data/{n}/attributes/name")).collect();
        assert_eq!(read_with(read_flat, &bad.into()), Err(pointers));
    }

    #[test]
    fn existing_tags_are_referenced_by_id_or_name() {
        let read = |elements: &Json| {
            let none = Map::new();
            let mut attributes = AttributeReader::new(&none);
            let named = read_selection(&mut attributes, elements.as_array().unwrap(), "/data");
            attributes.finish().map(|()| (named.ids, named.keys)).map_err(|_| ())
        };
        let both = json!([{ "type": "tags", "id": "tag-1" }, { "attributes": { "name": "a" } },
            { "id": "", "attributes": { "name": "b" } }, { "id": "tb-2", "attributes": { "name": "c" } }]);
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(read(&both), Ok((texts(&["tag-1", "tb-2"]), texts(&["1", "a", "b", "c"]))));
        let cased = json!([{ "attributes": { "name": "Old" } }]);
        assert_eq!(read(&cased), Ok((Vec::new(), texts(&["Old", "old"]))), "tags of earlier versions have a case");
        for bad in [json!([{}]), json!([7]), json!([{ "id": 7 }]), json!([{ "id": "a\0" }]), json!([{ "id": "" }])] {
            assert_eq!(read(&bad), Err(()), "{bad}");
        }
    }

    #[test]
    fn own_tag_overrides_inherited_tag() {
        let binding =
            |key: &str, value: &str| TagBinding { ext_id: String::new(), key: key.to_owned(), value: value.to_owned() };
        let own = [binding("a", "1")];
        let project = [binding("z", "2"), binding("a", "9")];
        assert_eq!(resolve_effective(&own, &project), [(&own[0], false), (&project[0], true)]);
    }

    #[test]
    fn tag_conditions_number_parameters_in_order_of_use() {
        let mut filter = ListCondition::new("w.org_id = {}", 7_i64);
        let value = TagFilter { key: None, value: Some("1".to_owned()) };
        narrow_workspaces(&mut filter, &["A".to_owned()], &[value]);
        exclude_workspaces(&mut filter, &["b".to_owned()]);
        let text = filter.text();
        let mut highest = 0;
        for part in text.split('$').skip(1) {
            let number: usize = part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
            assert!(number <= highest + 1, "{text}");
            highest = highest.max(number);
        }
        assert_eq!(highest, filter.values.len());
    }

    #[test]
    fn tag_filters_use_a_bounded_number_of_sql_texts() {
        let texts = |narrow: Narrow, max: usize| {
            let text = |terms: usize| {
                let mut filter = ListCondition::new("w.org_id = {}", 7_i64);
                let value = |n: usize| n.is_multiple_of(2).then(|| n.to_string());
                let tagged = |n: usize| TagFilter { key: Some(format!("k{n}")), value: value(n) };
                narrow(&mut filter, &(0..terms).map(tagged).collect::<Vec<_>>());
                filter.text().to_owned()
            };
            (0..=max).map(text).collect::<std::collections::BTreeSet<_>>().len()
        };
        let of_projects: Narrow = narrow_projects;
        let of_workspaces: Narrow = |filter, tagged| narrow_workspaces(filter, &[], tagged);
        assert_eq!((texts(of_projects, 20), texts(of_workspaces, 40)), (6, 7));
        let without = |n: usize| {
            let mut filter = ListCondition::new("w.org_id = {}", 7_i64);
            exclude_workspaces(&mut filter, &vec!["k".to_owned(); n]);
            filter.text().to_owned()
        };
        assert!(without(1) == without(20) && without(0) != without(1));
    }

    proptest! {
        #[test]
        fn parsed_tags_are_distinct_and_within_limits(keys in prop::collection::vec(("\\PC{0,3}", "\\PC{0,3}"), 0..14)) {
            let elements: Vec<Json> = keys.iter().map(|(key, value)| pair(key, value)).collect();
            if let Ok(tags) = read_with(parse_bindings, &elements.into()) {
                let distinct: std::collections::BTreeSet<_> = keys.iter().map(|(key, _)| key).collect();
                prop_assert_eq!(tags.len(), distinct.len());
                prop_assert!(tags.len() <= MAX_TAGS && tags.iter().all(|(key, _)| !key.is_empty()));
            }
        }
    }
}
