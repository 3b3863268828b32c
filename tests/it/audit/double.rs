//! An audit device for tests, which records entries, fails or hangs.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending};
use serde_json::{Value, json};
use signet::audit::{AuditData, AuditDevice, AuditEntry, AuditStep};
use signet::error::{Error, Result};

use crate::support::Answer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Keep,
    Refuse,
    /// Records request entries and rejects response entries.
    RefuseOutcomes,
    /// Never completes the request entry of this path.
    HangOn(&'static str),
    /// Never completes the response entry of this path.
    HangOnOutcomesOf(&'static str),
    Panic,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub step: &'static str,
    pub id: String,
    pub operation: String,
    pub path: String,
    pub mount: String,
    pub address: String,
    pub token: String,
    /// Display name, accessor and policies.
    pub caller: Option<(String, String, Vec<String>)>,
    pub data: Value,
    pub status: u16,
    pub answer: Value,
    /// The token that the response contains.
    pub handed_out: String,
    pub wrapping: String,
    pub errors: Vec<String>,
}

pub struct Double {
    mood: Mutex<Mood>,
    lines: Mutex<Vec<Line>>,
}

impl Double {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { mood: Mutex::new(Mood::Keep), lines: Mutex::default() })
    }

    pub fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub fn of(&self, answer: &Answer) -> Vec<Line> {
        let id = answer.header("x-request-id");
        assert!(!id.is_empty());
        self.lines.lock().unwrap().iter().filter(|line| line.id == id).cloned().collect()
    }

    pub fn count(&self) -> usize {
        self.lines.lock().unwrap().len()
    }

    /// Asserts that a request has two entries: a request entry with this step, and a response entry.
    #[track_caller]
    pub fn assert_told(&self, answer: &Answer, step: &str, what: &str) {
        let lines = self.of(answer);
        let steps: Vec<_> = lines.iter().map(|line| line.step).collect();
        assert_eq!(steps, [step, "outcome"], "{what}: {} {}", answer.status, answer.text);
        assert_eq!(lines[1].status, answer.status, "{what}: {}", answer.text);
        assert_eq!(lines[0].errors.is_empty(), step == "intent", "{what}: {}", answer.text);
    }
}

fn json_of(data: AuditData<'_>) -> Value {
    match data {
        AuditData::None => Value::Null,
        AuditData::Fields(fields) => fields.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect(),
        AuditData::Json(value) => value.clone(),
        AuditData::JsonText(text) => serde_json::from_slice(text).unwrap(),
        AuditData::Raw { media_type, bytes } => json!([media_type, String::from_utf8_lossy(bytes)]),
        AuditData::Streamed { media_type, bytes } => json!([media_type, bytes]),
    }
}

fn line(entry: &AuditEntry<'_>) -> Line {
    let request = entry.request;
    let mut line = Line {
        step: "intent",
        id: request.id.to_owned(),
        operation: request.operation.to_owned(),
        path: request.path.to_owned(),
        mount: request.mount.map_or("", |mount| &mount.path).to_owned(),
        address: request.remote_address.map(|address| address.to_string()).unwrap_or_default(),
        token: request.token.unwrap_or_default().to_owned(),
        caller: request
            .caller
            .as_ref()
            .map(|caller| (caller.display_name.to_string(), caller.accessor.to_owned(), caller.policies.to_vec())),
        data: json_of(request.data),
        status: 0,
        answer: Value::Null,
        handed_out: String::new(),
        wrapping: String::new(),
        errors: Vec::new(),
    };
    let told = |texts: &[&str], kind| match texts {
        [] => vec![format!("{kind:?}")],
        texts => texts.iter().map(|text| (*text).to_owned()).collect(),
    };
    match entry.step {
        AuditStep::Intent => {}
        AuditStep::Refusal(refused) => (line.step, line.errors) = ("refusal", told(&refused.texts, refused.kind)),
        AuditStep::Outcome(outcome) => {
            (line.step, line.status) = ("outcome", outcome.status);
            match &outcome.answer {
                Ok(response) => {
                    line.answer = json_of(response.data);
                    line.wrapping =
                        response.wrapping.and_then(|w| w.token.expose_text()).unwrap_or_default().to_owned();
                    line.handed_out =
                        response.auth.and_then(|given| given.token.expose_text()).unwrap_or_default().to_owned();
                }
                Err(refused) => line.errors = told(&refused.texts, refused.kind),
            }
        }
    }
    line
}

impl AuditDevice for Double {
    fn name(&self) -> &str {
        "double"
    }

    fn record<'e>(&'e self, _: &'e [u8], entry: &'e AuditEntry<'e>) -> BoxFuture<'e, Result<()>> {
        let mood = *self.mood.lock().unwrap();
        async move {
            // A real device writes, so it does not complete on the first poll.
            tokio::task::yield_now().await;
            let line = line(entry);
            let is_outcome = line.step == "outcome";
            match mood {
                Mood::Refuse => return Err(Error::internal("a full disk")),
                Mood::RefuseOutcomes if is_outcome => return Err(Error::internal("a full disk")),
                Mood::HangOn(path) if line.path == path && !is_outcome => pending().await,
                Mood::HangOnOutcomesOf(path) if line.path == path && is_outcome => pending().await,
                Mood::Panic => panic!("a device"),
                _ => self.lines.lock().unwrap().push(line),
            }
            Ok(())
        }
        .boxed()
    }
}
