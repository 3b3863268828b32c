//! Sends requests and records them with their responses.

use std::collections::BTreeSet;

use serde_json::Value;

use super::json;
use super::names::Names;
use super::routes::{self, Asked};

/// Headers that are irrelevant or depend on random values.
const LEFT_OUT: [&str; 4] = ["date", "content-length", "connection", "host"];

#[derive(Default)]
pub struct Recorder {
    names: Names,
    text: String,
    /// The routes that were called, each with whether it ever succeeded.
    asked: BTreeSet<Asked>,
}

pub struct Answer {
    pub status: u16,
    pub bytes: Vec<u8>,
    /// The body as JSON; null if it is not JSON.
    pub body: Value,
    pub headers: reqwest::header::HeaderMap,
}

impl Answer {
    #[track_caller]
    pub fn text(&self, pointer: &str) -> String {
        let found = self.body.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_else(|| panic!("{pointer}: {}", self.body)).to_owned()
    }
}

impl Recorder {
    pub fn heading(&mut self, text: &str) {
        self.text += &format!("######## {text}\n\n");
    }

    pub async fn ask(&mut self, request: reqwest::RequestBuilder) -> Answer {
        let (request, answer) = self.sent(request).await;
        let mut text = self.asked(&request);
        if let Some(body) = request.body().and_then(reqwest::Body::as_bytes) {
            text += &self.body(body);
        }
        text += &self.answered(&answer);
        text += &self.body(&answer.bytes);
        text += &self.what_is_new();
        self.text += &text;
        self.blank();
        answer
    }

    /// Like [`Recorder::ask`], without the body of the response.
    pub async fn ask_without_body(&mut self, request: reqwest::RequestBuilder) {
        let (request, answer) = self.sent(request).await;
        let text = self.asked(&request) + &self.answered(&answer);
        self.text += &text;
        self.blank();
    }

    /// Replaces the text and returns the previous one. Names stay known.
    pub fn set_text(&mut self, text: String) -> String {
        std::mem::replace(&mut self.text, text)
    }

    pub fn followed_by(mut self, other: Self) -> Self {
        self.text += &other.text;
        self.asked.extend(other.asked);
        self
    }

    /// Sends a request and records one line: `what`, the status, and the body of an error or the warnings of a success.
    pub async fn ask_briefly(&mut self, what: &str, request: reqwest::RequestBuilder) {
        let (_, answer) = self.sent(request).await;
        let allow = answer.headers.get("allow").map(|allow| format!(" (allow: {})", allow.to_str().unwrap()));
        let told = match answer.status {
            400.. => String::from_utf8_lossy(&answer.bytes).into_owned(),
            _ => answer
                .body
                .get("warnings")
                .filter(|warnings| !warnings.is_null())
                .map(Value::to_string)
                .unwrap_or_default(),
        };
        let what = self.names.stable(what);
        let told = self.names.stable(&told);
        let line = format!("{what} -> {}{} {told}", answer.status, allow.unwrap_or_default());
        self.text += line.trim_end();
        self.text += "\n";
        self.names.fresh();
    }

    pub fn blank(&mut self) {
        self.text.push('\n');
    }

    pub fn finish(self) -> (String, BTreeSet<Asked>) {
        (self.text, self.asked)
    }

    async fn sent(&mut self, request: reqwest::RequestBuilder) -> (reqwest::Request, Answer) {
        let (client, request) = request.build_split();
        let request = request.unwrap();
        let response = client.execute(request.try_clone().unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let bytes = response.bytes().await.unwrap().to_vec();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if let Some(route) = routes::of(&request) {
            self.asked.insert(Asked { route, answered: status < 400 });
        }
        (request, Answer { status, bytes, body, headers })
    }

    fn asked(&mut self, request: &reqwest::Request) -> String {
        let url = request.url();
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let place = self.names.stable(&format!("{}{query}", url.path()));
        format!("==== {} {place}\n{}", request.method(), self.headers(request.headers()))
    }

    fn answered(&mut self, answer: &Answer) -> String {
        format!("---- {}\n{}", answer.status, self.headers(&answer.headers))
    }

    fn headers(&mut self, headers: &reqwest::header::HeaderMap) -> String {
        let mut lines = Vec::new();
        for (name, value) in headers.iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str())) {
            let value = value.to_str().unwrap();
            let value = match name.as_str() {
                "x-request-id" => self.names.of("request", value.as_bytes()),
                "etag" | "if-match" | "if-none-match" => self.names.of("etag", value.as_bytes()),
                _ => self.names.stable(value),
            };
            lines.push(format!("{name}: {value}\n"));
        }
        lines.sort();
        lines.concat()
    }

    fn body(&mut self, bytes: &[u8]) -> String {
        if bytes.is_empty() {
            return String::new();
        }
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace()));
        match text {
            Some(text) => json::pretty(text, &mut self.names)
                .unwrap_or_else(|| self.names.stable(text).trim_end().to_owned() + "\n"),
            None if super::der::is_one_sequence(bytes) => self.names.of_der(None, bytes) + "\n",
            None => format!("({} octets)\n", bytes.len()),
        }
    }

    /// Descriptions of new objects.
    fn what_is_new(&mut self) -> String {
        let mut told = String::new();
        for (name, text) in self.names.fresh() {
            told += &format!("{name} is\n");
            for line in text.lines() {
                told += &format!("  {line}\n");
            }
        }
        told
    }
}
