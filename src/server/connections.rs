//! The connection table of a listener: admits new connections and selects those that must close.
//!
//! A connection holds a slot from its acceptance to its end; the number of slots is limited in total and per address.
//! If no slot is free, the connections that have waited longest for their clients are asked to close, and the new one
//! gets a slot immediately. Waiting for a request body counts too, but such connections of identified callers close
//! last. Busy connections are never closed; if all are busy, the new one is rejected. The fewer slots are free, the
//! shorter is the [`idle_timeout`]. The lock is taken on accept, on close and once a second, never by requests.
//! No primitive of [`rationing`](crate::rationing) makes room by closing what holds a slot.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tokio::sync::Semaphore;

use super::capacity::ConnectionCaps;
use super::connection::{Connection, ConnectionPhase, STUCK_TIMEOUT_MILLIS, elapsed_millis};
use crate::caller_network::CallerNetwork;
use crate::telemetry::{
    CONNECTIONS_CLOSED, CONNECTIONS_LIMIT, CONNECTIONS_OPEN, CONNECTIONS_REFUSED, HTTP_REQUESTS, NO_MOUNT,
};

/// Time limit for a request head, in milliseconds. The HTTP layer has a shorter limit, so that it can send a response
/// before the connection is closed.
const HEAD_TIMEOUT_MILLIS: u64 = 11_000;
/// Idle timeout while slots are free, in milliseconds.
const MAX_IDLE_TIMEOUT_MILLIS: u64 = 300_000;
/// Idle timeout when hardly any slot is free, in milliseconds.
const MIN_IDLE_TIMEOUT_MILLIS: u64 = 1000;
/// Interval between two sweeps of idle connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// When a slot is needed, the longest-waiting 1/64 of the waiting connections close together, at least one, so that a
/// flood does not cause a scan of the table for each new connection.
const EVICTION_DIVISOR: usize = 64;
/// Minimum interval between two log entries about reached connection limits, in milliseconds.
const LOG_INTERVAL_MILLIS: u64 = 10_000;

/// Returns the loopback networks, which are exempt from the limit per address.
pub(super) fn loopback_networks() -> [IpNet; 2] {
    [
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
        IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    ]
}

pub(super) struct Connections {
    listener: &'static str,
    caps: ConnectionCaps,
    exempt_networks: Vec<IpNet>,
    request_permits: Arc<Semaphore>,
    began: Instant,
    table: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    last_id: u64,
    count: ConnectionCount,
    sources: HashMap<CallerNetwork, ConnectionSource>,
    closing: bool,
    events: ConnectionLimitEvents,
}

/// Numbers of connections. `open` includes `closing`, the connections that were asked to close.
#[derive(Clone, Copy, Default)]
struct ConnectionCount {
    open: usize,
    closing: usize,
}

#[derive(Default)]
struct ConnectionSource {
    count: ConnectionCount,
    connections: HashMap<u64, Arc<Connection>>,
}

#[derive(Default)]
struct ConnectionLimitEvents {
    closed: usize,
    refused: usize,
    /// Number of open connections at the first event since the last log entry.
    open: usize,
    busiest: Option<(CallerNetwork, usize)>,
    logged_at: Option<u64>,
}

impl Connections {
    /// Creates an empty table. `listener` (`main`, `metrics` or `public`) is the name in metrics and logs.
    /// `exempt_networks` are exempt from the limit per address.
    pub(super) fn new(listener: &'static str, caps: ConnectionCaps, exempt_networks: Vec<IpNet>) -> Arc<Self> {
        metrics::gauge!(CONNECTIONS_LIMIT, "listener" => listener).set(caps.total as f64);
        metrics::gauge!(CONNECTIONS_OPEN, "listener" => listener).set(0.0);
        let request_permits = caps.request_permits();
        let began = Instant::now();
        Arc::new(Self { listener, caps, exempt_networks, request_permits, began, table: Mutex::default() })
    }

    /// Returns the maximum number of open connections, including those that are closing.
    pub(super) fn max_connections(&self) -> usize {
        self.caps.total + self.caps.overshoot()
    }

    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.lock().count.open
    }

    /// Assigns a slot to a newly accepted connection. `None` if all slots are in use by busy connections, or the
    /// listener is closing.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        self.admit_at(peer, elapsed_millis(self.began))
    }

    fn admit_at(self: &Arc<Self>, peer: IpAddr, now: u64) -> Option<ConnectionSlot> {
        let peer = peer.to_canonical();
        let source = CallerNetwork::of(peer);
        let exempt = self.exempt_networks.iter().any(|network| network.contains(&peer));
        let mut table = self.lock();
        if table.closing {
            return None;
        }
        let mut closing = Vec::new();
        let has_capacity = (exempt || table.free_slot(Some(source), self.caps.per_address, now, &mut closing))
            && table.free_slot(None, self.caps.total, now, &mut closing);
        let connection = has_capacity.then(|| table.insert(source, self.began, now));
        self.publish_open_count(&table);
        drop(table);
        // The tasks are woken after the lock is released, because a woken task may take the lock.
        closing.iter().for_each(|connection| connection.wake());
        connection.map(|connection| ConnectionSlot { connection, connections: Arc::clone(self) })
    }

    /// Rejects new connections and asks all existing ones to close.
    pub(super) fn close(&self) {
        let now = elapsed_millis(self.began);
        let mut table = self.lock();
        table.closing = true;
        let staying = table.all_connections().filter(|connection| connection.close_requested_at().is_none()).cloned();
        let staying: Vec<_> = staying.collect();
        staying.iter().for_each(|connection| table.mark_closing(connection, now));
        drop(table);
        staying.iter().for_each(|connection| connection.wake());
    }

    pub(super) async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.sweep_at(elapsed_millis(self.began));
        }
    }

    /// Asks connections that have exceeded a timeout to close, and wakes the tasks of closing connections that are
    /// overdue.
    fn sweep_at(&self, now: u64) {
        let mut table = self.lock();
        let mut woken = table.overdue_closings(now);
        let idle_timeout_of = |count: ConnectionCount| idle_timeout(count.open - count.closing, self.caps.total);
        let mut due = table.waiting_connections(None);
        // Connections that wait for a request body are not closed here, because the HTTP layer limits that time.
        due.retain(|(phase, since, _)| {
            *phase != ConnectionPhase::Receiving && since + phase_timeout(*phase, idle_timeout_of(table.count)) <= now
        });
        due.sort_unstable_by_key(|(_, since, connection)| (*since, connection.id));
        let due: Vec<_> =
            due.into_iter().map(|(phase, since, connection)| (phase, since, connection.clone())).collect();
        for (phase, since, connection) in due {
            // The timeout is computed again for each connection, because each one that closes frees a slot, which
            // lengthens the timeout.
            if since + phase_timeout(phase, idle_timeout_of(table.count)) <= now {
                table.mark_closing(&connection, now);
                count_closed(if phase == ConnectionPhase::Idle { "idle" } else { "head" }, 1);
                woken.push(connection);
            }
        }
        let events = table.take_events_to_log(now);
        drop(table);
        woken.iter().for_each(|connection| connection.wake());
        if let Some(events) = events {
            self.log_limit_events(&events);
        }
    }

    fn log_limit_events(&self, events: &ConnectionLimitEvents) {
        let ConnectionLimitEvents { closed, refused, open, busiest, .. } = *events;
        let listener = self.listener;
        let limit = self.caps.total;
        let (address, open_from_address) =
            busiest.map_or_else(Default::default, |(address, open)| (address.to_string(), open));
        tracing::warn!(
            listener,
            open,
            limit,
            closed,
            refused,
            address,
            open_from_address,
            "connections are at their limit: idle connections were closed to admit new ones, or new connections were \
             refused; most open connections are from this address"
        );
    }

    fn remove(&self, connection: &Connection) {
        let mut table = self.lock();
        table.remove(connection);
        self.publish_open_count(&table);
    }

    fn publish_open_count(&self, table: &ConnectionTable) {
        metrics::gauge!(CONNECTIONS_OPEN, "listener" => self.listener).set(table.count.open as f64);
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionTable {
    fn all_connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.sources.values().flat_map(|source| source.connections.values())
    }

    /// Returns the connections that wait for their clients and were not asked to close: those of one address, or all.
    fn waiting_connections(&self, source: Option<CallerNetwork>) -> Vec<(ConnectionPhase, u64, &Arc<Connection>)> {
        let one = source.and_then(|source| self.sources.get(&source));
        let all = source.is_none().then(|| self.sources.values());
        let sources = one.into_iter().chain(all.into_iter().flatten());
        let staying =
            sources.flat_map(|source| source.connections.values()).filter(|c| c.close_requested_at().is_none());
        staying.filter_map(|c| c.client_wait().map(|(phase, since)| (phase, since, c))).collect()
    }

    /// Makes sure that a slot is free within the limit `cap`, if necessary by asking waiting connections to close. Adds
    /// these to `closing`; the caller must wake them. Returns `false` if no connection waits.
    fn free_slot(
        &mut self,
        source: Option<CallerNetwork>,
        cap: usize,
        now: u64,
        closing: &mut Vec<Arc<Connection>>,
    ) -> bool {
        let count = match source {
            Some(source) => self.sources.get(&source).map_or_else(ConnectionCount::default, |source| source.count),
            None => self.count,
        };
        if count.open - count.closing < cap {
            return true;
        }
        let reason = if source.is_some() { "address" } else { "full" };
        self.record_state_at_first_event();
        let mut waiting = self.waiting_connections(source);
        if waiting.is_empty() {
            self.events.refused += 1;
            count_refused(reason);
            return false;
        }
        let batch_size = waiting.len().div_ceil(EVICTION_DIVISOR);
        waiting.select_nth_unstable_by_key(batch_size - 1, |(phase, since, connection)| {
            connection.eviction_rank(*phase, *since)
        });
        let longest: Vec<_> = waiting.into_iter().take(batch_size).map(|(.., connection)| connection.clone()).collect();
        for connection in &longest {
            connection.give_up();
            self.mark_closing(connection, now);
        }
        self.events.closed += batch_size;
        count_closed(reason, batch_size);
        closing.extend(longest);
        true
    }

    fn insert(&mut self, source: CallerNetwork, began: Instant, now: u64) -> Arc<Connection> {
        self.last_id += 1;
        let connection = Arc::new(Connection::new(self.last_id, source, began, now));
        self.count.open += 1;
        let of_source = self.sources.entry(source).or_default();
        of_source.count.open += 1;
        of_source.connections.insert(connection.id, Arc::clone(&connection));
        connection
    }

    fn mark_closing(&mut self, connection: &Connection, now: u64) {
        connection.request_close(now);
        self.count.closing += 1;
        if let Some(source) = self.sources.get_mut(&connection.source) {
            source.count.closing += 1;
        }
    }

    fn remove(&mut self, connection: &Connection) {
        let Some(source) = self.sources.get_mut(&connection.source) else { return };
        source.connections.remove(&connection.id);
        let is_closing = usize::from(connection.close_requested_at().is_some());
        for count in [&mut source.count, &mut self.count] {
            count.open -= 1;
            count.closing -= is_closing;
        }
        if source.connections.is_empty() {
            self.sources.remove(&connection.source);
        }
    }

    /// Returns the connections that were asked to close more than [`STUCK_TIMEOUT_MILLIS`] ago.
    fn overdue_closings(&self, now: u64) -> Vec<Arc<Connection>> {
        if self.count.closing == 0 {
            return Vec::new();
        }
        self.all_connections()
            .filter(|connection| connection.close_requested_at().is_some_and(|at| at + STUCK_TIMEOUT_MILLIS <= now))
            .cloned()
            .collect()
    }

    /// At the first event since the last log entry, stores the number of open connections and the address with most of
    /// them, for the next entry.
    fn record_state_at_first_event(&mut self) {
        if self.events.closed + self.events.refused == 0 {
            let counts = self.sources.iter().map(|(address, source)| (*address, source.count.open));
            self.events.busiest = counts.max_by_key(|(_, open)| *open);
            self.events.open = self.count.open;
        }
    }

    /// Returns the events since the last log entry and resets them, if there are any and [`LOG_INTERVAL_MILLIS`] have
    /// passed.
    fn take_events_to_log(&mut self, now: u64) -> Option<ConnectionLimitEvents> {
        let ConnectionLimitEvents { closed, refused, logged_at, .. } = self.events;
        if closed + refused == 0 || logged_at.is_some_and(|logged_at| logged_at + LOG_INTERVAL_MILLIS > now) {
            return None;
        }
        Some(std::mem::replace(
            &mut self.events,
            ConnectionLimitEvents { logged_at: Some(now), ..ConnectionLimitEvents::default() },
        ))
    }
}

/// The slot of an admitted connection. Dropping it frees the slot.
pub(super) struct ConnectionSlot {
    connection: Arc<Connection>,
    connections: Arc<Connections>,
}

impl ConnectionSlot {
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Permits for concurrent requests beyond the first of a connection.
    pub(super) fn request_permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.connections.request_permits)
    }

    /// `true` if the server may close the socket before the client does: another connection needs the slot, or no
    /// response can be in transit any more.
    pub(super) fn may_close_first(&self) -> bool {
        !self.connection.may_be_sending() || !self.connections.lock().closing
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.remove(&self.connection);
    }
}

/// Returns the maximum time that a connection may wait for its client in a phase, in milliseconds.
fn phase_timeout(phase: ConnectionPhase, idle_timeout: u64) -> u64 {
    match phase {
        ConnectionPhase::Opening => HEAD_TIMEOUT_MILLIS.min(idle_timeout),
        _ => idle_timeout,
    }
}

/// Returns the idle timeout in milliseconds. It is [`MAX_IDLE_TIMEOUT_MILLIS`] while at least half of the slots are
/// free, and then falls with the number of free slots to [`MIN_IDLE_TIMEOUT_MILLIS`].
fn idle_timeout(open: usize, slots: usize) -> u64 {
    let half = slots.div_ceil(2);
    let free = slots.saturating_sub(open).min(half);
    (MAX_IDLE_TIMEOUT_MILLIS * free as u64 / half.max(1) as u64).max(MIN_IDLE_TIMEOUT_MILLIS)
}

/// Counts connections that the server closed, by reason, in the metrics.
pub(super) fn count_closed(reason: &'static str, count: usize) {
    metrics::counter!(CONNECTIONS_CLOSED, "reason" => reason).increment(count as u64);
}

/// Counts a rejected connection, or a rejected request on an open connection, by reason, in the metrics.
pub(super) fn count_refused(reason: &'static str) {
    metrics::counter!(CONNECTIONS_REFUSED, "reason" => reason).increment(1);
}

/// Counts a request that the server rejected before the app saw it, in the metrics of HTTP requests.
pub(super) fn count_rejected_request(status: &'static str) {
    let labels =
        [("mount", NO_MOUNT), ("service", "none"), ("operation", "none"), ("route", "none"), ("status", status)];
    metrics::counter!(HTTP_REQUESTS, &labels).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::connection::BusyGuard;

    fn table(total: usize, per_address: usize) -> Arc<Connections> {
        Connections::new("main", ConnectionCaps { total, per_address }, loopback_networks().to_vec())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Returns the indices of the connections that were asked to close.
    fn asked_to_close(slots: &[ConnectionSlot]) -> Vec<usize> {
        slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.connection.close_requested_at().is_some())
            .map(|(n, _)| n)
            .collect()
    }

    #[test]
    fn full_table_closes_the_longest_waiting_and_no_busy_connection() {
        let connections = table(3, 3);
        let mut slots: Vec<_> = (0..3).map(|n| connections.admit_at(ip("192.0.2.1"), n).unwrap()).collect();
        let _busy = BusyGuard::begin(&slots[0].connection, 0);
        // Each new connection closes the one that has waited longest. Closing connections no longer count against the
        // limit.
        for (now, closing) in [(10, vec![1]), (11, vec![1, 2])] {
            slots.push(connections.admit_at(ip("192.0.2.2"), now).unwrap());
            assert_eq!(asked_to_close(&slots), closing);
        }
        let counted = || {
            let count = connections.lock().count;
            (count.open, count.closing)
        };
        assert_eq!(counted(), (5, 2));
        drop(slots.drain(1..3));
        assert_eq!(counted(), (3, 0));
    }

    #[test]
    fn connection_is_refused_when_all_connections_are_busy() {
        let connections = table(2, 2);
        let slots = [1, 2].map(|n| connections.admit_at(ip("127.0.0.1"), n).unwrap());
        let busy = slots.each_ref().map(|slot| BusyGuard::begin(&slot.connection, 0));
        assert!(connections.admit_at(ip("127.0.0.1"), 3).is_none());
        assert_eq!(asked_to_close(&slots), [] as [usize; 0]);
        drop(busy);
        assert!(connections.admit_at(ip("127.0.0.1"), 4).is_some());
    }

    #[test]
    fn per_address_cap_exempts_loopback_and_proxies() {
        let proxies = loopback_networks().into_iter().chain(["198.51.100.0/24".parse().unwrap()]);
        let connections = Connections::new("main", ConnectionCaps { total: 100, per_address: 2 }, proxies.collect());
        let mut admit = |address: &str| connections.admit_at(ip(address), 1).unwrap();
        let ours = ["192.0.2.1", "192.0.2.1", "192.0.2.9", "::ffff:192.0.2.1"].map(&mut admit);
        assert_eq!(asked_to_close(&ours), [0], "a mapped address is the same, another one is not");
        let site = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "2001:db8::ffff:3"].map(&mut admit);
        assert_eq!(asked_to_close(&site), [0], "a /64 is one site");
        for exempt in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "198.51.100.7"] {
            assert_eq!(asked_to_close(&[exempt; 4].map(&mut admit)), [] as [usize; 0], "{exempt}");
        }
    }

    #[test]
    fn flood_closes_a_batch_of_the_oldest_idle_connections() {
        let connections = table(640, 640);
        let slots: Vec<_> = (0..640).map(|n| connections.admit_at(ip("127.0.0.1"), n).unwrap()).collect();
        let _new: Vec<_> = (0..10).map(|_| connections.admit_at(ip("127.0.0.1"), 1000).unwrap()).collect();
        assert_eq!(asked_to_close(&slots), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn idle_timeout_shrinks_as_the_table_fills() {
        assert_eq!(
            [0, 50, 75, 90, 99, 100, 120].map(|open| idle_timeout(open, 100) / 1000),
            [300, 300, 150, 60, 6, 1, 1]
        );
        let connections = table(100, 100);
        let slots: Vec<_> = (0..90).map(|_| connections.admit_at(ip("127.0.0.1"), 0).unwrap()).collect();
        for slot in &slots {
            drop(BusyGuard::begin(&slot.connection, 0));
        }
        connections.sweep_at(59_000);
        assert_eq!(asked_to_close(&slots).len(), 0);
        connections.sweep_at(62_000);
        assert_eq!(asked_to_close(&slots).len(), 1, "the others may stay longer then");
        connections.sweep_at(160_000);
        assert_eq!(asked_to_close(&slots).len(), 17);
        connections.sweep_at(301_000);
        assert_eq!(asked_to_close(&slots).len(), 90);
    }

    #[test]
    fn incomplete_head_times_out_and_a_busy_connection_does_not() {
        let connections = table(100, 100);
        let slots = [0, 0, 0].map(|now| connections.admit_at(ip("127.0.0.1"), now).unwrap());
        let _busy = BusyGuard::begin(&slots[1].connection, 0);
        drop(BusyGuard::begin(&slots[2].connection, 0));
        connections.sweep_at(10_999);
        assert_eq!(asked_to_close(&slots), [] as [usize; 0]);
        connections.sweep_at(11_000);
        assert_eq!(asked_to_close(&slots), [0]);
        connections.sweep_at(400_000);
        assert_eq!(asked_to_close(&slots), [0, 2]);
    }

    #[test]
    fn connection_limit_is_logged_at_first_and_every_ten_seconds() {
        let connections = table(1, 1);
        let _slots: Vec<_> = (0..3).map(|_| connections.admit_at(ip("127.0.0.1"), 0).unwrap()).collect();
        let logged = |now| {
            connections
                .lock()
                .take_events_to_log(now)
                .map(|events| (events.closed, events.refused, events.open, events.busiest))
        };
        let busiest = |open| Some((CallerNetwork::of(ip("127.0.0.1")), open));
        assert_eq!((logged(1000), logged(1001)), (Some((2, 0, 1, busiest(1))), None), "as it was when slots ran out");
        let _more = connections.admit_at(ip("127.0.0.1"), 2000).unwrap();
        assert_eq!((logged(10_999), logged(11_000)), (None, Some((1, 0, 3, busiest(3)))));
    }

    #[test]
    fn closed_listener_refuses_new_and_closes_open_connections() {
        let connections = table(10, 10);
        let slots = [1, 2].map(|now| connections.admit_at(ip("127.0.0.1"), now).unwrap());
        let _busy = BusyGuard::begin(&slots[1].connection, 0);
        connections.close();
        assert!(connections.admit_at(ip("127.0.0.1"), 3).is_none());
        assert_eq!(asked_to_close(&slots), [0, 1], "a busy one after its answer");
    }
}
