"""Lints every CRL (RFC 5280) or OCSP answer (RFC 6960), *.der, of a folder with pkilint, all in this one process.

Usage: lint_status.py crl|ocsp FOLDER

Whatever pkilint finds from WARNING on is printed and ends this program with status 1.
"""

import pathlib
import sys

from pkilint import loader, pkix
from pkilint.pkix import crl, extension, name, ocsp
from pkilint.validation import ValidationFindingSeverity

DECODERS = [
    pkix.create_attribute_decoder(name.ATTRIBUTE_TYPE_MAPPINGS),
    pkix.create_extension_decoder(extension.EXTENSION_MAPPINGS),
]


def of_lists():
    validators = [
        crl.create_issuer_validator_container([]),
        crl.create_validity_validator_container([]),
        crl.create_extensions_validator_container([]),
    ]
    return crl.create_pkix_crl_validator_container(DECODERS, validators), loader.RFC5280CertificateListDocumentLoader()


def of_answers():
    decoders = [ocsp.create_response_decoder(), *DECODERS]
    return ocsp.create_pkix_ocsp_response_validator_container(decoders, []), loader.RFC6960OCSPResponseDocumentLoader()


KINDS = {"crl": (of_lists, "lists"), "ocsp": (of_answers, "answers")}


def main(kind, folder):
    make, things = KINDS[kind]
    (validator, documents), refused = make(), []
    paths = sorted(pathlib.Path(folder).glob("*.der"))
    for path in paths:
        document = documents.load_der_document(path.read_bytes(), path.name)
        for result in validator.validate(document.root):
            for description in result.finding_descriptions:
                finding = description.finding
                if finding.severity <= ValidationFindingSeverity.WARNING:
                    refused.append(f"{path.name}: {finding.severity.name} {finding.code}: {description.message or ''}")
    print("\n".join(refused))
    print(f"{len(paths)} {things} linted")
    return 1 if refused or not paths else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
