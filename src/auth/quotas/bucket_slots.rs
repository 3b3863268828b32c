//! The slots for the token buckets of all quotas of a node. Each bucket needs one, so clients with many addresses
//! cannot use unlimited memory.
//!
//! A network can hold only a fraction of the free slots: a small one for buckets of single clients, larger ones for
//! shared buckets. So clients do not share buckets while few addresses are in use. A network with very many addresses
//! first exhausts the fractions of the networks around it, so its neighbours must share buckets before other clients
//! do. An existing bucket keeps its slot.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};

use super::network::ClientNetwork;
use crate::clock::Time;

/// Number of counters of taken slots; a network has the counter of its hash. Two networks with the same counter only
/// get a smaller fraction each.
const NETWORK_COUNTERS: usize = 1 << 14;

pub(super) struct BucketSlots {
    max_slots: usize,
    taken: AtomicUsize,
    /// Slots taken in IPv4 and in IPv6.
    families: [AtomicU32; 2],
    /// Slots taken in smaller networks, by hash of the network.
    within: Box<[AtomicU32]>,
    /// Key of the hash, so that addresses with the same counter cannot be chosen.
    key: u64,
    /// Minute of the last warning.
    last_warned_minute: AtomicI64,
}

impl BucketSlots {
    pub(super) fn new(max_slots: usize, key: u64) -> Self {
        let within = (0..NETWORK_COUNTERS).map(|_| AtomicU32::new(0)).collect();
        let families = [AtomicU32::new(0), AtomicU32::new(0)];
        Self {
            max_slots,
            taken: AtomicUsize::new(0),
            families,
            within,
            key,
            last_warned_minute: AtomicI64::new(i64::MIN),
        }
    }

    /// Takes a slot for a bucket of a network, unless a surrounding network has used up its fraction. Always succeeds
    /// for a whole address family and for clients without an address.
    pub(super) fn try_take(&self, network: ClientNetwork) -> bool {
        let free = self.max_slots.saturating_sub(self.taken.load(Ordering::Relaxed)) << network.steps();
        let is_full = |surrounding: ClientNetwork| {
            self.within(surrounding).load(Ordering::Relaxed) as usize >= max_slots(free, surrounding)
        };
        if network.surrounding().any(is_full) {
            return false;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        network.surrounding().for_each(|surrounding| _ = self.within(surrounding).fetch_add(1, Ordering::Relaxed));
        true
    }

    pub(super) fn release(&self, network: ClientNetwork) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        network.surrounding().for_each(|surrounding| _ = self.within(surrounding).fetch_sub(1, Ordering::Relaxed));
    }

    /// Logs that clients share buckets, at most once a minute. Returns `true` if it did.
    pub(super) fn warn_shared(&self, quota: &str, now: Time) -> bool {
        let minute = now.unix_timestamp().div_euclid(60);
        let is_new = self.last_warned_minute.swap(minute, Ordering::Relaxed) != minute;
        if is_new {
            let taken = self.taken.load(Ordering::Relaxed);
            let limit = self.max_slots;
            tracing::warn!(
                quota,
                taken,
                limit,
                "quota: too many client addresses; new clients share a limit with their network (logged at most once a \
                 minute)"
            );
        }
        is_new
    }

    fn within(&self, network: ClientNetwork) -> &AtomicU32 {
        match network {
            ClientNetwork::V4 { length: 0, .. } => return &self.families[0],
            ClientNetwork::V6 { length: 0, .. } => return &self.families[1],
            _ => {}
        }
        let mut hasher = DefaultHasher::new();
        (self.key, network).hash(&mut hasher);
        &self.within[hasher.finish() as usize % NETWORK_COUNTERS]
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Maximum number of slots of a network while `free` slots are free.
fn max_slots(free: usize, network: ClientNetwork) -> usize {
    match network {
        ClientNetwork::V4 { length: 0, .. } | ClientNetwork::V6 { length: 0, .. } => free * 2,
        ClientNetwork::V4 { length: 16, .. } | ClientNetwork::V6 { length: 32, .. } => free / 4,
        _ => free / 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use time::macros::datetime;

    const NETWORKS: usize = 9_000;

    fn network_of(text: &str) -> ClientNetwork {
        ClientNetwork::of(Some(text.parse::<IpAddr>().unwrap()))
    }

    fn v6(first: u64) -> ClientNetwork {
        ClientNetwork::V6 { length: 64, bits: first }
    }

    /// Takes slots as the buckets of one quota do, for clients or surrounding networks. Returns their number.
    fn flood(slots: &BucketSlots, clients: impl Iterator<Item = ClientNetwork>) -> usize {
        let before = slots.taken();
        let mut known = std::collections::HashSet::new();
        for client in clients {
            let found = |network: &ClientNetwork| known.contains(network) || slots.try_take(*network);
            let network = std::iter::once(client).chain(client.surrounding()).find(found).unwrap();
            known.insert(network);
        }
        slots.taken() - before
    }

    #[test]
    fn ipv6_network_takes_part_of_the_slots_and_spares_others() {
        let slots = BucketSlots::new(NETWORKS, 0);
        let prefix = 0x2001_0db8_0001_0000;
        let taken = (0..1 << 16).filter(|n| slots.try_take(v6(prefix + n))).count();
        assert_eq!(taken, NETWORKS / 9);
        // The same network takes slots through many quotas.
        for _ in 0..20 {
            flood(&slots, (0..1 << 16).map(|n| v6(prefix + n)));
        }
        assert!(slots.taken() <= NETWORKS / 5 + 21, "{}", slots.taken());
        assert!(!slots.try_take(network_of("2001:db8:1:77::")));
        for client in ["2001:db9::", "2001:db8:2::", "198.51.100.1"] {
            let client = network_of(client);
            assert!(slots.try_take(client) || slots.try_take(client.wider().unwrap()), "{client:?}");
        }
        assert!(slots.try_take(network_of("2001:db9::1:0:0:0:0")) && slots.try_take(network_of("198.51.100.2")));
    }

    #[test]
    fn ipv6_provider_takes_half_of_the_slots_and_spares_others() {
        let slots = BucketSlots::new(NETWORKS, 0);
        // Each /64 is in a different /48.
        for quota in 0..20 {
            flood(&slots, (0..1 << 14).map(|n| v6(0x2001_0db8_0000_0000 + (n << 16) + quota)));
        }
        assert!((NETWORKS / 2 - 1..=NETWORKS / 2 + 21).contains(&slots.taken()), "{}", slots.taken());
        assert!((0..1_000).all(|n| slots.try_take(v6((0x2a00_0000 + n) << 32))));
        assert!((0..500).all(|n| slots.try_take(ClientNetwork::V4 { length: 32, bits: n << 16 })));
    }

    #[test]
    fn ipv4_flood_spares_wider_networks_and_the_ipv6_family() {
        let slots = BucketSlots::new(NETWORKS, 0);
        let spread = |n: u32| n.wrapping_mul(0x9e37_79b1);
        let crowd = (0..NETWORKS as u32 * 3 / 4).map(|n| ClientNetwork::V4 { length: 32, bits: spread(n) });
        let own = crowd.clone().filter(|client| slots.try_take(*client)).count();
        assert_eq!(own, NETWORKS * 2 / 3);
        let newcomer = network_of("198.51.100.1");
        assert!(!slots.try_take(newcomer) && slots.try_take(newcomer.wider().unwrap()));
        assert!((0..100).all(|n| slots.try_take(v6((0x2a00_0000 + n) << 32))));
        // Clients all over IPv4 take slots through many quotas.
        for quota in 0..30 {
            flood(&slots, (0..NETWORKS as u32 * 3).map(|n| ClientNetwork::V4 { length: 32, bits: spread(n + quota) }));
        }
        assert!(slots.taken() < NETWORKS, "{}", slots.taken());
        assert!((0..100).all(|n| slots.try_take(v6((0x2b00_0000 + n) << 32))));
    }

    #[test]
    fn released_slots_are_free_again() {
        let slots = BucketSlots::new(NETWORKS, 7);
        let clients: Vec<ClientNetwork> = (0..2_000).map(|n| v6(0x2001_0db8_0001_0000 + n)).collect();
        let taken: Vec<&ClientNetwork> = clients.iter().filter(|client| slots.try_take(**client)).collect();
        assert_eq!(taken.len(), NETWORKS / 9);
        taken.iter().for_each(|client| slots.release(**client));
        assert_eq!(slots.taken(), 0);
        assert!(slots.within.iter().all(|count| count.load(Ordering::Relaxed) == 0));
        assert_eq!(clients.iter().filter(|client| slots.try_take(**client)).count(), NETWORKS / 9);
    }

    #[test]
    fn shared_slot_warning_is_logged_once_a_minute() {
        let slots = BucketSlots::new(NETWORKS, 0);
        let now = datetime!(2030-01-01 00:00 UTC);
        let warned =
            [0, 59, 60, 61, 600].map(|second| slots.warn_shared("q", now + std::time::Duration::from_secs(second)));
        assert_eq!(warned, [true, false, true, false, true]);
    }
}
