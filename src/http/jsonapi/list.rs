//! The document of a list: a page of resources, links to other pages, how many there are.

use serde_json::{Value, json};

use super::render::Reply;
use super::route::Call;
use crate::projects::page::Page;

/// A list's document. `known` are the parameters that its links keep; `counts` is `meta.status-counts`,
/// where a list has it; `included` holds each resource once.
pub fn document(call: &Call, page: Page, known: &[&str], items: Vec<Value>, matching: i64, extra: Extra) -> Reply {
    let pages = (matching + page.size - 1).div_euclid(page.size).max(1);
    let previous = (page.number > 1).then(|| (page.number - 1).min(pages));
    let next = (page.number < pages).then_some(page.number + 1);
    let link = |number: i64| link(call, known, page.size, number);
    let mut meta = json!({
        "pagination": {
            "current-page": page.number,
            "page-size": page.size,
            "prev-page": previous,
            "next-page": next,
            "total-pages": pages,
            "total-count": matching,
        }
    });
    if let Some(total) = extra.total {
        meta["status-counts"] = json!({ "total": total, "matching": matching });
    }
    let mut document = json!({
        "data": items,
        "links": {
            "self": link(page.number),
            "first": link(1),
            "prev": previous.map(link),
            "next": next.map(link),
            "last": link(pages),
        },
        "meta": meta,
    });
    if let Some(included) = extra.included {
        document["included"] = included.into();
    }
    Reply::ok(document)
}

/// What some lists have beside their items.
#[derive(Default)]
pub struct Extra {
    /// How many the caller sees without any filter.
    pub total: Option<i64>,
    /// Resources that were asked for beside the items.
    pub included: Option<Vec<Value>>,
}

fn link(call: &Call, known: &[&str], size: i64, number: i64) -> String {
    let mut parameters: Vec<(String, String)> = call
        .query
        .recognised(known)
        .filter(|(name, _)| !name.starts_with("page["))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    parameters.push(("page[number]".to_owned(), number.to_string()));
    parameters.push(("page[size]".to_owned(), size.to_string()));
    parameters.sort_by(|(one, _), (other, _)| one.cmp(other));
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
    format!("{}{}?{query}", call.origin, call.path)
}
