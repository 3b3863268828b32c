//! Connections that repeat expensive requests on a separate thread while another load is measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;

use crate::client::{Api, Client, ServerEndpoint};

/// Time between the start of the connections and the measurement.
const WARM_UP: Duration = Duration::from_millis(500);
/// Pause after a failed request.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);

/// A request that is repeated.
#[derive(Clone)]
pub(crate) struct RepeatedRequest {
    pub(crate) name: &'static str,
    pub(crate) api: Api,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    /// `true`: the response may be compressed.
    pub(crate) gzip: bool,
    /// `false`: the request is sent without a token.
    pub(crate) has_token: bool,
}

impl RepeatedRequest {
    /// Returns a GET.
    pub(crate) fn get(name: &'static str, api: Api, path: impl Into<String>) -> Self {
        Self { name, api, method: Method::GET, path: path.into(), body: Bytes::new(), gzip: false, has_token: true }
    }

    /// Returns a POST.
    pub(crate) fn post(name: &'static str, api: Api, path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(name, api, path) }
    }
}

/// Number of responses by status or error.
pub(crate) type ResponseCounts = BTreeMap<String, u64>;
/// Responses to each kind of request, by its name.
pub(crate) type ResponsesByRequest = BTreeMap<&'static str, ResponseCounts>;

/// `true` for a success, and for a status that says that the request was invalid or one too many.
pub(crate) fn is_fair(answer: &str) -> bool {
    answer.starts_with('2') || matches!(answer, "400" | "413" | "422" | "429")
}

/// The load of all connections.
pub(crate) struct BackgroundLoad {
    pub(crate) endpoint: ServerEndpoint,
    pub(crate) token: String,
    pub(crate) connections: usize,
    /// Requests, sent in rotation.
    pub(crate) requests: Vec<RepeatedRequest>,
    /// Pause before each request; each request then opens a connection of its own. `None`: no pause, connections are
    /// kept.
    pub(crate) pause: Option<Duration>,
}

impl BackgroundLoad {
    /// Runs `measurement` while the connections send their requests, then stops them. Returns its result, and their
    /// responses.
    pub(crate) async fn during<T>(
        self,
        measurement: impl Future<Output = Result<T, String>>,
    ) -> Result<(T, ResponsesByRequest), String> {
        let over = Arc::<AtomicBool>::default();
        let thread = Arc::new(self).start(&over)?;
        tokio::time::sleep(WARM_UP).await;
        let measured = measurement.await;
        over.store(true, Ordering::Relaxed);
        let responses = thread.join().map_err(|_| "the thread of the background load panicked".to_owned())?;
        Ok((measured?, responses))
    }

    fn start(self: Arc<Self>, over: &Arc<AtomicBool>) -> Result<JoinHandle<ResponsesByRequest>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let over = Arc::clone(over);
        let all = async move {
            let repeat = |number| tokio::spawn(Arc::clone(&self).repeat(number, Arc::clone(&over)));
            let tasks: Vec<_> = (0..self.connections).map(repeat).collect();
            let mut sum = ResponsesByRequest::new();
            for task in tasks {
                for (name, counts) in task.await.unwrap_or_default() {
                    let of_request = sum.entry(name).or_default();
                    counts.into_iter().for_each(|(answer, count)| *of_request.entry(answer).or_default() += count);
                }
            }
            sum
        };
        Ok(std::thread::spawn(move || runtime.block_on(all)))
    }

    /// Repeats the requests on one connection. Each connection starts the rotation at another request.
    async fn repeat(self: Arc<Self>, number: usize, over: Arc<AtomicBool>) -> ResponsesByRequest {
        let mut responses = ResponsesByRequest::new();
        let mut connection = None;
        let first = number * self.requests.len() / self.connections;
        for request in self.requests.iter().cycle().skip(first) {
            if let Some(pause) = self.pause {
                connection = None;
                tokio::time::sleep(pause).await;
            }
            if over.load(Ordering::Relaxed) {
                break;
            }
            let answer = self.send(request, &mut connection).await.unwrap_or_else(|cause| cause);
            if !is_fair(&answer) {
                connection = None;
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
            *responses.entry(request.name).or_default().entry(answer).or_default() += 1;
        }
        responses
    }

    /// Sends a request, on a new connection if there is none, and returns the status.
    async fn send(&self, request: &RepeatedRequest, connection: &mut Option<Client>) -> Result<String, String> {
        let mut client = match connection.take() {
            Some(client) => client,
            None => {
                let token = if request.has_token { &self.token } else { "" };
                Client::connect_as(&self.endpoint, token, request.api).await?.accepting_gzip(request.gzip)
            }
        };
        let answer = client.send(request.method.clone(), &request.path, request.body.clone()).await?;
        *connection = Some(client);
        Ok(answer.status.as_u16().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_errors_are_fair_and_server_errors_are_not() {
        assert!(["200", "201", "400", "413", "422", "429"].iter().all(|answer| is_fair(answer)));
        assert!(["500", "503", "403", "connection reset"].iter().all(|answer| !is_fair(answer)));
    }
}
