//! Recommended renewal time of a certificate, returned with every issued certificate.

use crate::x509::serial::Serial;

/// Renewal times are spread over an interval. Its length is the certificate's lifetime divided by this.
const RENEWAL_SPREAD_DIVISOR: i64 = 20;

/// Returns when to renew a certificate (epoch seconds): at about two thirds of its lifetime, which starts at issuance
/// or at `not_before`, whichever is later. The remaining third leaves time for failures.
///
/// To spread renewals of certificates issued together, each is up to a twentieth of its lifetime earlier. The random
/// end of the serial number selects the amount, so that a certificate always has the same renewal time.
pub fn renewal_time(serial: &Serial, made_at: i64, not_before: i64, not_after: i64) -> i64 {
    let from = made_at.max(not_before);
    let lifetime = not_after.saturating_sub(from).max(0);
    let tail = serial.octets().iter().rev().take(2).fold(0, |tail, octet| tail << 8 | i64::from(*octet));
    from + lifetime / 3 * 2 - lifetime / RENEWAL_SPREAD_DIVISOR * tail / (1 << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_time_is_spread_before_two_thirds_of_the_lifetime() {
        let serial = |tail: [u8; 2]| Serial::from_octets(&[&[1; 18][..], &tail].concat()).unwrap();
        assert_eq!(renewal_time(&serial([0, 0]), 1_000, -500, 61_000), 41_000);
        assert_eq!(renewal_time(&serial([0xff, 0xff]), 0, 1_000, 61_000), 38_001);
        let day = |_| renewal_time(&Serial::random(), 0, 0, 86_400);
        let times: Vec<i64> = (0..1_000).map(day).collect();
        assert!(times.iter().all(|at| (53_280..=57_600).contains(at)));
        let first = times.iter().min().unwrap();
        let last = times.iter().max().unwrap();
        assert!(last - first > 4_000, "they are spread");
        assert_eq!(renewal_time(&serial([7, 7]), 5, 0, 5), 5);
        let longest = renewal_time(&serial([0xff, 0xff]), 0, 0, 253_402_300_799);
        assert!((155_000_000_000..170_000_000_000).contains(&longest));
    }
}
