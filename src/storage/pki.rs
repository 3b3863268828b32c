//! Sealing of the certificate authority engine's writes.

use std::sync::Arc;

use crate::clock::Clock;
use crate::error::Result;
use crate::pki::store::{MetadataRow, PkiOutcome, PkiWrite};
use crate::storage::backend::{Outcomes, WriteUnit, round_to_micros};
use crate::storage::documents;
use crate::storage::keys::StoreKeys;
use crate::storage::seal::metadata_context;
use crate::storage::store::{DomainWrite, SealedRow};

impl DomainWrite for PkiWrite {
    type Outcome = PkiOutcome;

    fn prepare(&mut self, keys: &Arc<StoreKeys>) -> Result<()> {
        match self {
            Self::Document(document) => documents::seal(document, keys),
            Self::Metadata(row) => row.seal(keys),
            Self::Revocation(row) => {
                row.revoked_at = round_to_micros(row.revoked_at);
                Ok(())
            }
            // These have neither a secret body nor a time finer than seconds.
            Self::Certificate(_)
            | Self::RecordedResponse(_)
            | Self::RecordedResponseSweep { .. }
            | Self::Crl(_)
            | Self::Lease(_)
            | Self::LeasesMark(_)
            | Self::LeasesEnd(_)
            | Self::LeasesMarkEnded { .. }
            | Self::LeasesSweep { .. }
            | Self::RevocationIssuer { .. }
            | Self::TidyBegin { .. }
            | Self::TidyRenew { .. }
            | Self::TidyCancel { .. }
            | Self::Remove { .. } => Ok(()),
        }
    }

    fn unit(writes: Vec<Self>, _: &Clock) -> WriteUnit {
        WriteUnit::Pki(writes)
    }

    fn outcomes(outcomes: Outcomes) -> Option<Vec<PkiOutcome>> {
        if let Outcomes::Pki(outcomes) = outcomes { Some(outcomes) } else { None }
    }
}

impl SealedRow for MetadataRow {
    fn context(&self) -> Vec<u8> {
        metadata_context(self.mount, self.serial, self.not_after)
    }

    fn body(&mut self) -> &mut Vec<u8> {
        &mut self.body
    }
}
