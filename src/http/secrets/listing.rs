//! Lists without an end: names, and what is said of each, read by pages of keys and sent as they are read.
//!
//! The first rows are read before there is a status, so that what fails early is an error like any other. A list that
//! ends there is a whole answer. Of a longer one a page is read when the client took the page before: between two
//! pages nothing is held of the store, and of the list only where it goes on, however slowly somebody reads. A page
//! that cannot be read breaks the answer off, and so does the end of what the list is of: it never looks whole.
//!
//! A longer list is not of one moment: what is written meanwhile may be in it or not. `key_info` is read after `keys`,
//! over the same range: of a row that goes in between there is only the name, of one that comes only the rest.

use std::fmt::Write as _;

use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt as _, stream};

use super::answer::{Answer, Body};
use crate::error::{Error, Result};

/// Rows of a page that says no more than names.
pub(super) const PAGE: usize = 1_000;

/// What a list is read from.
pub(super) trait Source: Send + Sync + 'static {
    /// A place in the order of the rows.
    type Place: Clone + PartialOrd + Send + Sync + 'static;

    /// Rows behind a place, at most `most`, which is not above [`Source::most`]; what is said of them only with
    /// `infos`. Places ascend.
    fn page(&self, after: &Self::Place, most: usize, infos: bool) -> BoxFuture<'static, Result<Page<Self::Place>>>;

    /// Most rows of a page.
    fn most(&self) -> usize {
        PAGE
    }

    /// Whether anything is said of the names.
    fn has_infos(&self) -> bool {
        false
    }

    /// Asked when there are no more rows: that they all were there to be read, and not taken away under way.
    ///
    /// # Errors
    /// Why the list has not come to its end.
    fn require_whole(&self) -> BoxFuture<'static, Result<()>> {
        ready(Ok(())).boxed()
    }
}

/// Some rows.
pub(super) struct Page<P> {
    /// The rows.
    pub(super) rows: Vec<Row<P>>,
    /// Behind which place there may be more; `None` where there are none.
    pub(super) next: Option<P>,
}

/// A row.
pub(super) struct Row<P> {
    /// Its place.
    pub(super) at: P,
    /// Its name, and what is said of it, each JSON; nothing for a row that is not shown.
    pub(super) shown: Option<(String, Option<String>)>,
}

impl<P: Clone> Page<P> {
    /// All that was found when `most` were looked for.
    pub(super) fn of(rows: Vec<Row<P>>, most: usize) -> Self {
        let next = if rows.len() < most { None } else { rows.last().map(|row| row.at.clone()) };
        Self { rows, next }
    }
}

/// The list of what is behind a place, at most `limit` names.
///
/// # Errors
/// `NotFound` for an empty one; those of the first page.
pub(super) async fn answer<S: Source>(source: S, after: S::Place, limit: Option<usize>) -> Result<Answer> {
    let mut reader = Reader { at: after.clone(), next: Some(after.clone()), left: limit, up_to: None };
    let mut first = Vec::new();
    while first.is_empty() && !reader.is_at_end() {
        first = reader.read(&source, true).await?;
    }
    if first.is_empty() {
        return Err(Error::not_found());
    }
    let mut text = String::from("{\"keys\":[");
    write(&mut text, &first, Member::Keys, true);
    if reader.is_at_end() {
        text.push(']');
        if source.has_infos() {
            text.push_str(",\"key_info\":{");
            write(&mut text, &first, Member::Infos, true);
            text.push('}');
        }
        text.push('}');
        return Ok(Answer::rendered(text));
    }
    let sending = Sending { source, after, reader, member: Member::Keys, is_first: false, ready: text, ended: false };
    Ok(Body::Listed(Box::pin(stream::try_unfold(sending, Sending::step))).into())
}

/// A member of the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Keys,
    Infos,
}

/// A name, and what is said of it.
type Shown = (String, Option<String>);

/// Appends what rows have of a member; `is_first` where nothing stands before them.
fn write(text: &mut String, rows: &[Shown], member: Member, is_first: bool) {
    let mut comma = if is_first { "" } else { "," };
    for (name, info) in rows {
        // To a String nothing fails to be written.
        let _ = match (member, info) {
            (Member::Keys, _) => write!(text, "{comma}{name}"),
            (Member::Infos, Some(info)) => write!(text, "{comma}{name}:{info}"),
            (Member::Infos, None) => continue,
        };
        comma = ",";
    }
}

/// Reads page by page.
struct Reader<P> {
    /// The last row that was read.
    at: P,
    /// Where the next page begins.
    next: Option<P>,
    /// How many names may still be shown; `None`: all.
    left: Option<usize>,
    /// The last place that is read.
    up_to: Option<P>,
}

impl<P: Clone + PartialOrd> Reader<P> {
    fn is_at_end(&self) -> bool {
        self.next.is_none() || self.left == Some(0)
    }

    /// What the next page shows.
    async fn read<S: Source<Place = P>>(&mut self, source: &S, infos: bool) -> Result<Vec<Shown>> {
        let Some(after) = &self.next else { return Ok(Vec::new()) };
        let most = self.left.map_or(source.most(), |left| left.min(source.most()));
        let Page { mut rows, next } = source.page(after, most, infos).await?;
        self.next = next;
        if let Some(up_to) = &self.up_to {
            let read = rows.len();
            rows.retain(|row| row.at <= *up_to);
            if rows.len() < read || self.next.as_ref().is_some_and(|next| next >= up_to) {
                self.next = None;
            }
        }
        if let Some(last) = rows.last() {
            self.at = last.at.clone();
        }
        let shown: Vec<Shown> = rows.into_iter().filter_map(|row| row.shown).collect();
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(shown.len());
        }
        Ok(shown)
    }
}

/// A list on its way.
struct Sending<S: Source> {
    source: S,
    /// Where it begins.
    after: S::Place,
    reader: Reader<S::Place>,
    member: Member,
    /// Whether the member has no row yet.
    is_first: bool,
    /// What is sent next.
    ready: String,
    ended: bool,
}

impl<S: Source> Sending<S> {
    /// The next piece, and how it goes on.
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
                let rows = self.reader.read(&self.source, self.member == Member::Infos).await?;
                write(&mut self.ready, &rows, self.member, self.is_first);
                self.is_first &= self.ready.is_empty();
                continue;
            }
            match self.member {
                Member::Keys if self.source.has_infos() => {
                    self.ready.push_str("],\"key_info\":{");
                    (self.member, self.is_first) = (Member::Infos, true);
                    let (at, next) = (self.after.clone(), Some(self.after.clone()));
                    self.reader = Reader { up_to: Some(self.reader.at), at, next, left: None };
                }
                member => {
                    self.source.require_whole().await?;
                    self.ready.push_str(if member == Member::Keys { "]}" } else { "}}" });
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

    use futures_util::StreamExt as _;
    use serde_json::{Value, json};

    use super::*;

    /// What is asked of a source, and how it fails.
    #[derive(Default)]
    struct Script {
        pages: AtomicUsize,
        /// The page that fails, counted from 1.
        fails: Option<usize>,
        /// The mount is gone at the end.
        is_gone: bool,
    }

    /// The numbers up to `last` but for those that seven divides.
    struct Numbers {
        last: u32,
        most: usize,
        has_infos: bool,
        script: Arc<Script>,
    }

    impl Source for Numbers {
        type Place = u32;

        fn page(&self, after: &u32, most: usize, infos: bool) -> BoxFuture<'static, Result<Page<u32>>> {
            assert!((1..=self.most).contains(&most));
            if Some(self.script.pages.fetch_add(1, Ordering::Relaxed) + 1) == self.script.fails {
                return ready(Err(Error::new(crate::error::Kind::Unavailable, "storage: switched off"))).boxed();
            }
            let shown = |n: u32| {
                (!n.is_multiple_of(7)).then(|| (format!("\"{n:04}\""), infos.then(|| format!("{{\"n\":{n}}}"))))
            };
            let rows = (after + 1..=self.last).take(most).map(|n| Row { at: n, shown: shown(n) }).collect();
            ready(Ok(Page::of(rows, most))).boxed()
        }

        fn most(&self) -> usize {
            self.most
        }

        fn has_infos(&self) -> bool {
            self.has_infos
        }

        fn require_whole(&self) -> BoxFuture<'static, Result<()>> {
            ready(if self.script.is_gone { Err(Error::not_found()) } else { Ok(()) }).boxed()
        }
    }

    fn numbers(last: u32, most: usize, script: Script) -> (Numbers, Arc<Script>) {
        let script = Arc::new(script);
        (Numbers { last, most, has_infos: true, script: Arc::clone(&script) }, script)
    }

    /// The pieces of an answer, and the error that they end in.
    async fn pieces(answer: Answer) -> (Vec<String>, Option<Error>) {
        let mut reading = match answer.body {
            Body::Rendered(text) => return (vec![String::from_utf8(text.expose().to_vec()).unwrap()], None),
            Body::Listed(reading) => reading,
            _ => panic!("no list"),
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

    fn expected(numbers: impl Iterator<Item = u32>, has_infos: bool) -> String {
        let names: Vec<u32> = numbers.filter(|n| n % 7 != 0).collect();
        let keys: Vec<String> = names.iter().map(|n| format!("\"{n:04}\"")).collect();
        let infos: Vec<String> = names.iter().map(|n| format!("\"{n:04}\":{{\"n\":{n}}}")).collect();
        let infos = if has_infos { format!(",\"key_info\":{{{}}}", infos.join(",")) } else { String::new() };
        format!("{{\"keys\":[{}]{infos}}}", keys.join(","))
    }

    #[actix_web::test]
    async fn a_list_is_the_same_text_in_pages_of_any_size_with_any_limit() {
        for most in [1, 2, 3, 7, 10, 50, 1000] {
            for (after, limit) in [(0, None), (0, Some(1)), (0, Some(6)), (3, Some(20)), (20, None), (48, None)] {
                for has_infos in [true, false] {
                    let (source, _) = numbers(50, most, Script::default());
                    let text = pieces(answer(Numbers { has_infos, ..source }, after, limit).await.unwrap()).await;
                    let all = (after + 1..=50).filter(|n| n % 7 != 0).take(limit.unwrap_or(usize::MAX));
                    assert_eq!((text.0.concat(), text.1.is_none()), (expected(all, has_infos), true), "{most} {after}");
                }
            }
        }
    }

    #[actix_web::test]
    async fn a_list_that_ends_with_its_first_page_is_whole_and_an_empty_one_is_not_found() {
        let (source, script) = numbers(5, 10, Script::default());
        assert!(matches!(answer(source, 0, None).await.unwrap().body, Body::Rendered(_)));
        assert_eq!(script.pages.load(Ordering::Relaxed), 1);
        for (last, after) in [(0, 0), (5, 5), (21, 20)] {
            let (source, _) = numbers(last, 10, Script::default());
            assert_eq!(answer(source, after, None).await.err().unwrap().kind(), crate::error::Kind::NotFound);
        }
    }

    #[actix_web::test]
    async fn no_page_is_read_before_the_one_before_it_is_taken() {
        let (source, script) = numbers(100, 10, Script::default());
        let Body::Listed(mut reading) = answer(source, 0, None).await.unwrap().body else { panic!("whole") };
        let read = || script.pages.load(Ordering::Relaxed);
        assert_eq!(read(), 1);
        for taken in 1..=10 {
            reading.next().await.unwrap().unwrap();
            assert_eq!(read(), taken);
        }
    }

    #[actix_web::test]
    async fn a_page_that_fails_ends_the_list_with_its_error_and_without_an_end() {
        let (source, _) = numbers(50, 10, Script { fails: Some(1), ..Script::default() });
        assert!(answer(source, 0, None).await.is_err());
        for fails in 2..=11 {
            let (source, script) = numbers(50, 10, Script { fails: Some(fails), ..Script::default() });
            let (text, error) = pieces(answer(source, 0, None).await.unwrap()).await;
            assert_eq!((error.is_some(), script.pages.load(Ordering::Relaxed)), (true, fails));
            assert!(serde_json::from_str::<Value>(&text.concat()).is_err());
        }
        let (source, _) = numbers(50, 10, Script { is_gone: true, ..Script::default() });
        let (text, error) = pieces(answer(source, 0, None).await.unwrap()).await;
        assert!(error.is_some() && serde_json::from_str::<Value>(&text.concat()).is_err());
    }

    #[actix_web::test]
    async fn what_comes_and_goes_between_names_and_details_leaves_sound_json() {
        struct Growing(AtomicUsize);
        impl Source for Growing {
            type Place = u32;
            fn page(&self, after: &u32, most: usize, infos: bool) -> BoxFuture<'static, Result<Page<u32>>> {
                // Each page finds ten rows more than the one before, and later ones none of the lowest.
                let asked = self.0.fetch_add(1, Ordering::Relaxed) as u32;
                let low = if infos && asked > 2 { 15 } else { 1 };
                let row = |n: u32| Row { at: n, shown: Some((format!("\"{n}\""), infos.then(|| "1".to_owned()))) };
                let rows = (after + 1..=(asked + 1) * 10).filter(|n| *n >= low).take(most).map(row).collect();
                ready(Ok(Page::of(rows, most))).boxed()
            }
            fn most(&self) -> usize {
                20
            }
            fn has_infos(&self) -> bool {
                true
            }
        }
        let (text, error) = pieces(answer(Growing(AtomicUsize::new(2)), 0, None).await.unwrap()).await;
        assert!(error.is_none());
        let told: Value = serde_json::from_str(&text.concat()).unwrap();
        let names = told["keys"].as_array().unwrap();
        let (first, last) = (&names[0], names.last().unwrap());
        let infos = told["key_info"].as_object().unwrap();
        // Nothing is said of what lies behind the last name.
        assert!(infos.keys().all(|name| name.parse::<u32>().unwrap() <= last.as_str().unwrap().parse().unwrap()));
        assert!(*first == json!("1") && !infos.contains_key("1") && infos.contains_key("15"), "{told}");
    }
}
