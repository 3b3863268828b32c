//! Validation of a new certificate before it replaces the old one.

use crate::error::{Error, Kind, Result};
use crate::x509::certificate::Certificate;

use crate::cli::certify::ReceivedCertificate;
use crate::cli::issue::format_time;
use crate::cli::names::TypedNames;

/// The start of a new certificate's validity may be this many seconds in the future, because the server's clock may be
/// ahead.
const MAX_CLOCK_DIFFERENCE_SECONDS: i64 = 300;

/// A new certificate and the old one that it will replace.
pub(super) struct Successor<'s> {
    pub(super) old: &'s Certificate,
    pub(super) issued: &'s ReceivedCertificate,
}

impl Successor<'_> {
    fn certificate(&self) -> &Certificate {
        &self.issued.leaf.certificate
    }

    fn refuse(text: String) -> Result<()> {
        Err(Error::new(Kind::BadGateway, format!("{text}; the old certificate is kept")))
    }

    /// Fails unless the new certificate contains every name of the old one.
    pub(super) fn require_names(&self) -> Result<()> {
        let old = self.old.sans()?;
        let new = self.certificate().sans()?;
        let keeps_others = old.other.iter().all(|name| new.other.contains(name));
        let mut lost = names_of(self.old)?.lost_in(&names_of(self.certificate())?);
        if !keeps_others {
            lost.push("an otherName".to_owned());
        }
        if lost.is_empty() {
            return Ok(());
        }
        Self::refuse(format!(
            "the new certificate is not for {} (check that the role allows these names, and uses the names of \
             certification requests)",
            lost.join(", ")
        ))
    }

    /// `true` if the new certificate has names that the old one lacks. Call [`require_names`](Self::require_names)
    /// first.
    pub(super) fn has_more_names(&self) -> Result<bool> {
        Ok(names_of(self.old)?.sorted() != names_of(self.certificate())?.sorted())
    }

    /// Fails unless the new certificate is valid at `now` (Unix seconds) and its issuer's certificate has not expired.
    pub(super) fn require_validity(&self, now: i64) -> Result<()> {
        let begins = self.certificate().not_before();
        let ends = self.certificate().not_after();
        let by_clock = format!("and by this machine's clock it is {}", format_time(now));
        if ends <= now {
            return Self::refuse(format!(
                "the new certificate ends at {}, {by_clock}: one of the clocks is wrong",
                format_time(ends)
            ));
        }
        if begins > now.saturating_add(MAX_CLOCK_DIFFERENCE_SECONDS) {
            return Self::refuse(format!(
                "the new certificate begins at {}, {by_clock}: one of the clocks is wrong",
                format_time(begins)
            ));
        }
        match self.issued.chain.first().map(|issuer| issuer.certificate.not_after()) {
            Some(ends) if ends <= now => {
                Self::refuse(format!("the authority of the new certificate ended at {}, {by_clock}", format_time(ends)))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the new certificate expires before the old one.
    pub(super) fn require_lifetime(&self) -> Result<()> {
        let old = self.old.not_after();
        let new = self.certificate().not_after();
        if new >= old {
            return Ok(());
        }
        Self::refuse(format!(
            "the new certificate ends at {}, before the old one ({}): use --force or --ttl to accept it",
            format_time(new),
            format_time(old)
        ))
    }
}

fn names_of(certificate: &Certificate) -> Result<TypedNames> {
    Ok(TypedNames::with(certificate.common_name(), certificate.sans()?))
}
