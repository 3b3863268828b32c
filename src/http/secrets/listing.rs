//! Lists of unlimited length, whose pages are read while the response is sent.
//!
//! The first page is read before the status is sent, so that early errors are normal responses. A list that fits into
//! the first page is sent as a whole. Each later page is read after the client has received the previous one, so a list
//! holds no store connection between two pages. An error, or the loss of the caller's permission, aborts the response,
//! so that an incomplete list never looks complete. A long list is not a snapshot: `key_info` is read after `keys`,
//! over the same range, and may miss rows that were deleted in the meantime. [`long_lists`](crate::http::long_lists)
//! limits the number of long lists.

mod permission;

use std::fmt::Write as _;

use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde_json::Value;

use self::permission::ReadPermission;
use super::handler_response::{HandlerResponse, ResponseBody};
use super::route::Call;
use crate::error::{Error, Result};
use crate::rationing::cpu;
use crate::secret::PartlySecret;

/// Page size of lists of names, in rows.
pub(super) const NAMES_PER_PAGE: usize = 1_000;
/// Page size of lists with details, in rows. A page takes a few hundred kilobytes of memory.
const DETAILED_ROWS_PER_PAGE: usize = 250;
/// Maximum number of rows that are rendered on the HTTP worker; more are rendered in the CPU queue.
const MAX_ROWS_RENDERED_INLINE: usize = 200;
/// Maximum size of a list for an HTTP/1.0 client, in bytes. The whole list is in memory until it is sent.
const MAX_BUFFERED_LIST_BYTES: usize = 1 << 20;

/// Reads the rows of a list page by page.
pub(super) trait RowSource: Send + Sync + 'static {
    /// Type of a position in the order of the rows.
    type Position: Clone + PartialOrd + Send + Sync + 'static;

    /// Reads at most `max` rows after the position `after`, in ascending order. `max` is at most
    /// [`RowSource::max_page_rows`]. The details of rows are read only if `infos` is `true`.
    fn page(&self, after: &Self::Position, max: usize, infos: bool) -> ListPageFuture<Self::Position>;

    fn max_page_rows(&self) -> usize {
        if self.has_details() { DETAILED_ROWS_PER_PAGE } else { NAMES_PER_PAGE }
    }

    /// `true` if the rows of this source have details.
    fn has_details(&self) -> bool {
        false
    }

    /// Checks, at the end of a list, that the object with the rows still exists. If the object was deleted while the
    /// list was read, some of its rows may be missing, and the list would still look complete.
    ///
    /// # Errors
    /// The reason why the list may be incomplete.
    fn require_source_exists(&self) -> BoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed()
    }
}

/// A page that is being read.
pub(super) type ListPageFuture<P> = BoxFuture<'static, Result<ListPage<P>>>;

pub(super) struct ListPage<P> {
    pub(super) rows: Vec<ListRow<P>>,
    /// The position after which there may be more rows; `None` at the end of the list.
    pub(super) next: Option<P>,
}

pub(super) struct ListRow<P> {
    pub(super) position: P,
    /// The name and the details, both as JSON; `None` for a hidden row, which counts as read but is not returned.
    pub(super) shown: Option<(String, Option<String>)>,
}

impl<P: Clone + Send + 'static> ListPage<P> {
    /// Builds a page from `rows`. Fewer rows than the requested `max` mean that the list ends here.
    pub(super) fn of(rows: Vec<ListRow<P>>, max: usize) -> Self {
        let next = if rows.len() < max { None } else { rows.last().map(|row| row.position.clone()) };
        Self { rows, next }
    }

    pub(super) fn read<T: Send + 'static>(
        found: impl Future<Output = Result<Vec<T>>> + Send + 'static,
        max: usize,
        row: impl Fn(T) -> ListRow<P> + Send + 'static,
    ) -> ListPageFuture<P> {
        async move {
            let found = found.await?;
            let is_long = found.len() > MAX_ROWS_RENDERED_INLINE;
            let rows = cpu::run_if(is_long, move || found.into_iter().map(row).collect()).await?;
            Ok(Self::of(rows, max))
        }
        .boxed()
    }
}

impl<P> ListRow<P> {
    pub(super) fn named(position: P, name: &str, info: Option<Value>) -> Self {
        Self { position, shown: Some((Value::from(name).to_string(), info.map(|info| info.to_string()))) }
    }
}

/// Builds the response of a list of at most `limit` names after the position `after`.
///
/// # Errors
/// `NotFound` for an empty list; errors of the first page; `Quota` or `Busy` if the list is long and too many long
/// lists are running.
pub(super) async fn build_response<S: RowSource>(
    call: &Call,
    source: S,
    after: S::Position,
    limit: Option<usize>,
) -> Result<HandlerResponse> {
    start_list(source, after, limit, || ReadPermission::of(call)).await
}

/// Reads a long list into memory for a client without chunked encoding (RFC 9112, 6.1), which could not detect that a
/// list is incomplete.
///
/// # Errors
/// `Invalid` when the list is too long; errors of the pages.
pub(super) async fn buffer_for_http10(answer: HandlerResponse) -> Result<HandlerResponse> {
    let (mut reading, rest) = match answer {
        HandlerResponse { body: ResponseBody::Streamed(reading), .. } => {
            (reading, HandlerResponse { body: ResponseBody::Empty, ..answer })
        }
        answer => return Ok(answer),
    };
    let mut text = PartlySecret::default();
    while let Some(piece) = reading.next().await {
        text.push(&piece?);
        if text.len() > MAX_BUFFERED_LIST_BYTES {
            return Err(Error::invalid(format!(
                "HTTP/1.0: the list exceeds {MAX_BUFFERED_LIST_BYTES} bytes; use HTTP/1.1 or HTTP/2, or request a page \
                 (after, limit)"
            )));
        }
    }
    Ok(HandlerResponse { body: ResponseBody::Rendered(text), ..rest })
}

/// As [`build_response`], without a `Call`. If the list does not fit into its first page, calls `permission`, which
/// reserves one of the limited slots for long lists.
async fn start_list<S: RowSource>(
    source: S,
    after: S::Position,
    limit: Option<usize>,
    permission: impl FnOnce() -> Result<ReadPermission>,
) -> Result<HandlerResponse> {
    let mut reader = ListReader {
        position: after.clone(),
        next: Some(after.clone()),
        left: limit,
        has_hidden_rows: false,
        up_to: None,
    };
    let mut first = Vec::new();
    while first.is_empty() && !reader.is_at_end() {
        first = reader.read(&source, true).await?;
    }
    if first.is_empty() {
        return Err(Error::not_found());
    }
    let mut text = String::from("{\"keys\":[");
    write_rows(&mut text, &first, ListMember::Keys, true);
    if reader.is_at_end() {
        text.push(']');
        if source.has_details() {
            text.push_str(",\"key_info\":{");
            write_rows(&mut text, &first, ListMember::Infos, true);
            text.push('}');
        }
        text.push('}');
        return Ok(HandlerResponse::rendered(text));
    }
    let permission = permission()?;
    let member = ListMember::Keys;
    let sending = ListStream { source, permission, after, reader, member, is_first: false, ready: text, ended: false };
    Ok(ResponseBody::Streamed(Box::pin(stream::try_unfold(sending, ListStream::step))).into())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListMember {
    Keys,
    Infos,
}

type VisibleRow = (String, Option<String>);

/// Appends rows to `keys` or `key_info`. `is_first` is `true` for the first rows of the member.
fn write_rows(text: &mut String, rows: &[VisibleRow], member: ListMember, is_first: bool) {
    let mut comma = if is_first { "" } else { "," };
    for (name, info) in rows {
        // Writing to a `String` cannot fail.
        let _ = match (member, info) {
            (ListMember::Keys, _) => write!(text, "{comma}{name}"),
            (ListMember::Infos, Some(info)) => write!(text, "{comma}{name}:{info}"),
            (ListMember::Infos, None) => continue,
        };
        comma = ",";
    }
}

struct ListReader<P> {
    /// Position of the last row that was read.
    position: P,
    /// Position after which the next page starts; `None` at the end of the list.
    next: Option<P>,
    /// Number of names that may still be returned; `None` for no limit.
    left: Option<usize>,
    /// `true` after a hidden row was read. From then on whole pages are read, because many rows may be hidden.
    has_hidden_rows: bool,
    /// Position of the last row to be read; `None` to read to the end.
    up_to: Option<P>,
}

impl<P: Clone + PartialOrd> ListReader<P> {
    fn is_at_end(&self) -> bool {
        self.next.is_none() || self.left == Some(0)
    }

    /// Reads the next page and returns its visible rows.
    async fn read<S: RowSource<Position = P>>(&mut self, source: &S, infos: bool) -> Result<Vec<VisibleRow>> {
        let Some(after) = &self.next else { return Ok(Vec::new()) };
        let max = self
            .left
            .filter(|_| !self.has_hidden_rows)
            .map_or(source.max_page_rows(), |left| left.min(source.max_page_rows()));
        let ListPage { mut rows, next } = source.page(after, max, infos).await?;
        self.next = next;
        if let Some(up_to) = &self.up_to {
            let read = rows.len();
            rows.retain(|row| row.position <= *up_to);
            if rows.len() < read || self.next.as_ref().is_some_and(|next| next >= up_to) {
                self.next = None;
            }
        }
        let names = rows.iter().filter(|row| row.shown.is_some()).count();
        self.has_hidden_rows |= names < rows.len();
        if let Some(left) = &mut self.left {
            let mut shown = rows.iter().enumerate().filter(|(_, row)| row.shown.is_some());
            if let Some(last) = shown.nth(left.saturating_sub(1)).map(|(last, _)| last) {
                rows.truncate(last + 1);
            }
            *left = left.saturating_sub(names);
        }
        if let Some(last) = rows.last() {
            self.position = last.position.clone();
        }
        Ok(rows.into_iter().filter_map(|row| row.shown).collect())
    }
}

struct ListStream<S: RowSource> {
    source: S,
    permission: ReadPermission,
    after: S::Position,
    reader: ListReader<S::Position>,
    member: ListMember,
    /// `true` while the current member has no rows.
    is_first: bool,
    ready: String,
    ended: bool,
}

impl<S: RowSource> ListStream<S> {
    async fn step(mut self) -> Result<Option<(Bytes, Self)>> {
        loop {
            if !self.ready.is_empty() {
                let piece = std::mem::take(&mut self.ready);
                return Ok(Some((piece.into(), self)));
            }
            if self.ended {
                return Ok(None);
            }
            if !self.reader.is_at_end() {
                let _permit = self.permission.wait_for_read_permit().await?;
                let rows = self.reader.read(&self.source, self.member == ListMember::Infos).await?;
                write_rows(&mut self.ready, &rows, self.member, self.is_first);
                self.is_first &= self.ready.is_empty();
                continue;
            }
            match self.member {
                ListMember::Keys if self.source.has_details() => {
                    self.ready.push_str("],\"key_info\":{");
                    (self.member, self.is_first) = (ListMember::Infos, true);
                    let position = self.after.clone();
                    let next = Some(self.after.clone());
                    self.reader = ListReader {
                        up_to: Some(self.reader.position),
                        position,
                        next,
                        left: None,
                        has_hidden_rows: false,
                    };
                }
                member => {
                    self.source.require_source_exists().await?;
                    self.ready.push_str(if member == ListMember::Keys { "]}" } else { "}}" });
                    self.ended = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::error::Kind;
    use crate::http::long_lists::{LongLists, MAX_LONG_LISTS_PER_TOKEN};
    use crate::http::sender::Sender;

    /// Starts a list for a caller who never loses the permission to read.
    async fn start_test_list<S: RowSource>(
        source: S,
        after: S::Position,
        limit: Option<usize>,
    ) -> Result<HandlerResponse> {
        start_list(source, after, limit, || permission_for(&LongLists::default(), usize::MAX)).await
    }

    /// Returns a read permission that ends after `pages` more pages.
    fn permission_for(lists: &LongLists, pages: usize) -> Result<ReadPermission> {
        let left = AtomicUsize::new(pages);
        let may_read = move || {
            let may = left.fetch_sub(1, Ordering::Relaxed) > 0;
            ready(if may { Ok(()) } else { Err(Error::forbidden()) }).boxed()
        };
        Ok(ReadPermission::new(lists.begin([0; 32], Sender::of_address(None))?, Box::new(may_read)))
    }

    /// Counts the pages that a source has read, and configures its failures.
    #[derive(Default)]
    struct SourceScript {
        pages: AtomicUsize,
        /// The number of the page that fails, starting at 1.
        failing_page: Option<usize>,
        /// `true` if the mount no longer exists at the end of the list.
        source_is_gone: bool,
    }

    /// A source of the numbers up to `last`, of which multiples of seven are hidden.
    struct NumberSource {
        last: u32,
        max: usize,
        has_details: bool,
        script: Arc<SourceScript>,
    }

    impl RowSource for NumberSource {
        type Position = u32;

        fn page(&self, after: &u32, max: usize, infos: bool) -> BoxFuture<'static, Result<ListPage<u32>>> {
            assert!((1..=self.max).contains(&max));
            if Some(self.script.pages.fetch_add(1, Ordering::Relaxed) + 1) == self.script.failing_page {
                return ready(Err(Error::new(Kind::Unavailable, "storage: switched off"))).boxed();
            }
            let shown = |n: u32| {
                (!n.is_multiple_of(7)).then(|| (format!("\"{n:04}\""), infos.then(|| format!("{{\"n\":{n}}}"))))
            };
            let rows = (after + 1..=self.last).take(max).map(|n| ListRow { position: n, shown: shown(n) }).collect();
            ready(Ok(ListPage::of(rows, max))).boxed()
        }

        fn max_page_rows(&self) -> usize {
            self.max
        }

        fn has_details(&self) -> bool {
            self.has_details
        }

        fn require_source_exists(&self) -> BoxFuture<'static, Result<()>> {
            ready(if self.script.source_is_gone { Err(Error::not_found()) } else { Ok(()) }).boxed()
        }
    }

    fn numbers(last: u32, max: usize, script: SourceScript) -> (NumberSource, Arc<SourceScript>) {
        let script = Arc::new(script);
        (NumberSource { last, max, has_details: true, script: Arc::clone(&script) }, script)
    }

    async fn pieces(answer: HandlerResponse) -> (Vec<String>, Option<Error>) {
        let mut reading = match answer.body {
            ResponseBody::Rendered(text) => return (vec![String::from_utf8(text.expose().to_vec()).unwrap()], None),
            ResponseBody::Streamed(reading) => reading,
            _ => panic!("the response is not a list"),
        };
        let mut pieces = Vec::new();
        while let Some(piece) = reading.next().await {
            match piece {
                Ok(piece) => pieces.push(String::from_utf8(piece.to_vec()).unwrap()),
                Err(error) => return (pieces, Some(error)),
            }
        }
        (pieces, None)
    }

    fn expected(numbers: impl Iterator<Item = u32>, has_details: bool) -> String {
        let names: Vec<u32> = numbers.filter(|n| n % 7 != 0).collect();
        let keys: Vec<String> = names.iter().map(|n| format!("\"{n:04}\"")).collect();
        let infos: Vec<String> = names.iter().map(|n| format!("\"{n:04}\":{{\"n\":{n}}}")).collect();
        let infos = if has_details { format!(",\"key_info\":{{{}}}", infos.join(",")) } else { String::new() };
        format!("{{\"keys\":[{}]{infos}}}", keys.join(","))
    }

    #[actix_web::test]
    async fn list_text_is_independent_of_page_size_and_limit() {
        for max in [1, 2, 3, 7, 10, 50, 1000] {
            for (after, limit) in [(0, None), (0, Some(1)), (0, Some(6)), (3, Some(20)), (20, None), (48, None)] {
                for has_details in [true, false] {
                    let (source, _) = numbers(50, max, SourceScript::default());
                    let text =
                        pieces(start_test_list(NumberSource { has_details, ..source }, after, limit).await.unwrap())
                            .await;
                    let all = (after + 1..=50).filter(|n| n % 7 != 0).take(limit.unwrap_or(usize::MAX));
                    assert_eq!(
                        (text.0.concat(), text.1.is_none()),
                        (expected(all, has_details), true),
                        "{max} {after}"
                    );
                }
            }
        }
    }

    #[actix_web::test]
    async fn list_of_one_page_is_rendered_whole_and_empty_is_not_found() {
        let (source, script) = numbers(5, 10, SourceScript::default());
        assert!(matches!(start_test_list(source, 0, None).await.unwrap().body, ResponseBody::Rendered(_)));
        assert_eq!(script.pages.load(Ordering::Relaxed), 1);
        for (last, after) in [(0, 0), (5, 5), (21, 20)] {
            let (source, _) = numbers(last, 10, SourceScript::default());
            assert_eq!(start_test_list(source, after, None).await.err().unwrap().kind(), Kind::NotFound);
        }
    }

    #[actix_web::test]
    async fn list_reads_a_page_only_after_the_previous_one_is_sent() {
        let (source, script) = numbers(100, 10, SourceScript::default());
        let ResponseBody::Streamed(mut reading) = start_test_list(source, 0, None).await.unwrap().body else {
            panic!("the list is not streamed")
        };
        let read = || script.pages.load(Ordering::Relaxed);
        assert_eq!(read(), 1);
        for taken in 1..=10 {
            reading.next().await.unwrap().unwrap();
            assert_eq!(read(), taken);
        }
    }

    #[actix_web::test]
    async fn failed_page_ends_the_list_with_its_error_unterminated() {
        let (source, _) = numbers(50, 10, SourceScript { failing_page: Some(1), ..SourceScript::default() });
        assert!(start_test_list(source, 0, None).await.is_err());
        for failing_page in 2..=11 {
            let (source, script) =
                numbers(50, 10, SourceScript { failing_page: Some(failing_page), ..SourceScript::default() });
            let (text, error) = pieces(start_test_list(source, 0, None).await.unwrap()).await;
            assert_eq!((error.is_some(), script.pages.load(Ordering::Relaxed)), (true, failing_page));
            assert!(serde_json::from_str::<Value>(&text.concat()).is_err());
        }
        let (source, _) = numbers(50, 10, SourceScript { source_is_gone: true, ..SourceScript::default() });
        let (text, error) = pieces(start_test_list(source, 0, None).await.unwrap()).await;
        assert!(error.is_some() && serde_json::from_str::<Value>(&text.concat()).is_err());
    }

    #[actix_web::test]
    async fn list_ends_when_the_caller_loses_its_right() {
        let lists = LongLists::default();
        let (source, script) = numbers(50, 10, SourceScript::default());
        let (text, error) = pieces(start_list(source, 0, None, || permission_for(&lists, 2)).await.unwrap()).await;
        assert_eq!((error.map(|error| error.kind()), script.pages.load(Ordering::Relaxed)), (Some(Kind::Forbidden), 3));
        assert!(serde_json::from_str::<Value>(&text.concat()).is_err());
    }

    #[actix_web::test]
    async fn long_list_needs_a_slot_and_a_short_one_does_not() {
        let lists = LongLists::default();
        let list = async |last| {
            start_list(numbers(last, 10, SourceScript::default()).0, 0, None, || permission_for(&lists, 20)).await
        };
        let mut long = Vec::new();
        for _ in 0..MAX_LONG_LISTS_PER_TOKEN {
            long.push(list(50).await.unwrap());
        }
        assert_eq!(list(50).await.err().unwrap().kind(), Kind::Quota);
        assert!(list(9).await.is_ok());
        // The slot is freed after the list has been sent, or when the list is dropped.
        assert!(pieces(long.pop().unwrap()).await.1.is_none());
        long.push(list(50).await.unwrap());
        assert_eq!(list(50).await.err().unwrap().kind(), Kind::Quota);
        long.pop();
        assert!(list(50).await.is_ok());
    }

    #[actix_web::test]
    async fn limited_list_of_mostly_hidden_rows_reads_few_pages() {
        struct MostlyHiddenSource(Arc<AtomicUsize>);
        impl RowSource for MostlyHiddenSource {
            type Position = u32;
            fn page(&self, after: &u32, max: usize, _: bool) -> BoxFuture<'static, Result<ListPage<u32>>> {
                self.0.fetch_add(1, Ordering::Relaxed);
                let row = |n: u32| ListRow { position: n, shown: (n > 3_000).then(|| (n.to_string(), None)) };
                ready(Ok(ListPage::of((after + 1..=5_000).take(max).map(row).collect(), max))).boxed()
            }
        }
        for (limit, max) in [(1, 5), (3, 5), (1_500, 6)] {
            let reads = Arc::new(AtomicUsize::new(0));
            let (text, error) =
                pieces(start_test_list(MostlyHiddenSource(Arc::clone(&reads)), 0, Some(limit)).await.unwrap()).await;
            let names: Vec<String> = (3_001..=3_000 + limit).map(|n| n.to_string()).collect();
            assert_eq!((text.concat(), error.is_none()), (format!("{{\"keys\":[{}]}}", names.join(",")), true));
            assert!(reads.load(Ordering::Relaxed) <= max, "{limit}: {reads:?} pages");
        }
    }

    #[actix_web::test]
    async fn buffered_list_is_the_same_text_up_to_its_limit() {
        let whole =
            buffer_for_http10(start_test_list(numbers(50, 10, SourceScript::default()).0, 0, None).await.unwrap())
                .await
                .unwrap();
        assert!(matches!(whole.body, ResponseBody::Rendered(_)));
        assert_eq!(pieces(whole).await.0.concat(), expected((1..=50).filter(|n| n % 7 != 0), true));
        let (broken, _) = numbers(50, 10, SourceScript { failing_page: Some(3), ..SourceScript::default() });
        assert_eq!(
            buffer_for_http10(start_test_list(broken, 0, None).await.unwrap()).await.err().unwrap().kind(),
            Kind::Unavailable
        );
        let long = buffer_for_http10(
            start_test_list(numbers(400_000, 1_000, SourceScript::default()).0, 0, None).await.unwrap(),
        )
        .await;
        assert!(long.err().unwrap().text().starts_with("HTTP/1.0: "));
        assert!(buffer_for_http10(HandlerResponse::empty()).await.is_ok());
    }

    #[actix_web::test]
    async fn rows_changing_between_names_and_details_leave_valid_json() {
        struct GrowingSource(AtomicUsize);
        impl RowSource for GrowingSource {
            type Position = u32;
            fn page(&self, after: &u32, max: usize, infos: bool) -> BoxFuture<'static, Result<ListPage<u32>>> {
                // Each page finds ten rows more than the previous one, and later pages of details miss the lowest rows.
                let reads = self.0.fetch_add(1, Ordering::Relaxed) as u32;
                let low = if infos && reads > 2 { 15 } else { 1 };
                let row =
                    |n: u32| ListRow { position: n, shown: Some((format!("\"{n}\""), infos.then(|| "1".to_owned()))) };
                let rows = (after + 1..=(reads + 1) * 10).filter(|n| *n >= low).take(max).map(row).collect();
                ready(Ok(ListPage::of(rows, max))).boxed()
            }
            fn max_page_rows(&self) -> usize {
                20
            }
            fn has_details(&self) -> bool {
                true
            }
        }
        let (text, error) = pieces(start_test_list(GrowingSource(AtomicUsize::new(2)), 0, None).await.unwrap()).await;
        assert!(error.is_none());
        let document: Value = serde_json::from_str(&text.concat()).unwrap();
        let names = document["keys"].as_array().unwrap();
        let first = &names[0];
        let last = names.last().unwrap();
        let infos = document["key_info"].as_object().unwrap();
        // `key_info` has no name after the last one in `keys`.
        assert!(infos.keys().all(|name| name.parse::<u32>().unwrap() <= last.as_str().unwrap().parse().unwrap()));
        assert!(*first == json!("1") && !infos.contains_key("1") && infos.contains_key("15"), "{document}");
    }
}
