"""Reads certificates, CRLs and OCSP answers with Python's `cryptography`, every extension of them to its end.

Usage: read.py FOLDER

Reads FOLDER/cases.json: a list of {"name", "kind": "certificate" | "crl" | "ocsp", "der": base64}. Prints what
cannot be read and ends with status 1 then.
"""

import base64
import json
import pathlib
import sys
import warnings

from cryptography import x509
from cryptography.x509 import ocsp


def extensions(all_of_them):
    for extension in all_of_them:
        repr(extension.value)
        if isinstance(extension.value, x509.PrecertificateSignedCertificateTimestamps):
            [(stamp.timestamp, stamp.log_id, stamp.signature) for stamp in extension.value]


def certificate(der):
    read = x509.load_der_x509_certificate(der)
    read.subject.rfc4514_string(), read.issuer.rfc4514_string(), read.public_key()
    read.not_valid_before_utc, read.not_valid_after_utc, read.serial_number, read.signature_hash_algorithm
    extensions(read.extensions)


def crl(der):
    read = x509.load_der_x509_crl(der)
    read.issuer.rfc4514_string(), read.last_update_utc, read.next_update_utc
    extensions(read.extensions)
    for entry in read:
        entry.serial_number, entry.revocation_date_utc
        extensions(entry.extensions)


def answer(der):
    read = ocsp.load_der_ocsp_response(der)
    if read.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
        return
    read.responder_name, read.responder_key_hash, read.produced_at_utc
    extensions(read.extensions)
    for single in read.responses:
        single.certificate_status, single.serial_number, single.this_update_utc, single.next_update_utc
        single.revocation_time_utc, single.revocation_reason


READERS = {"certificate": certificate, "crl": crl, "ocsp": answer}


def main(folder):
    unread = 0
    cases = json.loads((pathlib.Path(folder) / "cases.json").read_text())
    for case in cases:
        try:
            READERS[case["kind"]](base64.b64decode(case["der"]))
        except Exception as error:  # whatever a reader raises is a document that it cannot read
            unread += 1
            print(f"{case['name']}: {type(error).__name__}: {error}\n  {case['der']}")
    print(f"{len(cases)} documents read")
    return 1 if unread or not cases else 0


if __name__ == "__main__":
    # What it merely dislikes it has read.
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1]))
