//! Documents of lists: a page of resources, links to other pages, and counts.

use std::sync::Arc;

use serde_json::json;

use super::reply::{Rendered, RenderedResult, array};
use super::request::{ProjectsCall, ProjectsRequest};
use crate::projects::page::PageRequest;
use crate::projects::rejection::ApiRejection;

/// The requested page of a list, and the query parameters that the pagination links repeat.
pub(crate) struct ListRequest {
    /// The number and the size of the requested page.
    pub page: PageRequest,
    request: Arc<ProjectsRequest>,
    supported_parameters: &'static [&'static str],
}

impl ListRequest {
    /// Reads the requested page. The pagination links repeat the query parameters in `supported_parameters`.
    ///
    /// # Errors
    /// `Malformed` for an invalid page, or a filter that is not in `supported_parameters`.
    pub(crate) fn read(
        call: &ProjectsCall,
        supported_parameters: &'static [&'static str],
    ) -> Result<Self, ApiRejection> {
        call.query.refuse_unknown_filters(supported_parameters)?;
        Ok(Self { page: call.query.page()?, request: Arc::clone(&call.request), supported_parameters })
    }

    /// Renders one page of a list. `matching` is the number of resources that match the filters; `total` is the number
    /// without filters, for lists that report it.
    pub(crate) fn document(
        &self,
        items: impl IntoIterator<Item = Rendered>,
        matching: i64,
        total: Option<i64>,
    ) -> RenderedResult {
        let page = self.page;
        let pages = (matching + page.size - 1).div_euclid(page.size).max(1);
        let previous = (page.number > 1).then(|| (page.number - 1).min(pages));
        let next = (page.number < pages).then_some(page.number + 1);
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
        if let Some(total) = total {
            meta["status-counts"] = json!({ "total": total, "matching": matching });
        }
        let document = json!({
            "data": array(items),
            "links": {
                "self": self.page_link(page.number),
                "first": self.page_link(1),
                "prev": previous.map(|number| self.page_link(number)),
                "next": next.map(|number| self.page_link(number)),
                "last": self.page_link(pages),
            },
            "meta": meta,
        });
        RenderedResult::Document(document.into())
    }

    fn page_link(&self, number: i64) -> String {
        let ProjectsRequest { query, origin, path, .. } = &*self.request;
        let mut parameters: Vec<(String, String)> = query
            .supported_parameters(self.supported_parameters)
            .filter(|(name, _)| !name.starts_with("page["))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        parameters.push(("page[number]".to_owned(), number.to_string()));
        parameters.push(("page[size]".to_owned(), self.page.size.to_string()));
        parameters.sort_by(|(one, _), (other, _)| one.cmp(other));
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        format!("{origin}{path}?{query}")
    }
}
