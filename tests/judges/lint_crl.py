"""Lints every CRL (*.der) of a folder with pkilint (RFC 5280), all of them in this one process.

Usage: lint_crl.py FOLDER

Whatever pkilint finds from WARNING on is printed and ends this program with status 1.
"""

import pathlib
import sys

from pkilint import loader, pkix
from pkilint.pkix import crl, extension, name
from pkilint.validation import ValidationFindingSeverity


def linter():
    return crl.create_pkix_crl_validator_container(
        [
            pkix.create_attribute_decoder(name.ATTRIBUTE_TYPE_MAPPINGS),
            pkix.create_extension_decoder(extension.EXTENSION_MAPPINGS),
        ],
        [
            crl.create_issuer_validator_container([]),
            crl.create_validity_validator_container([]),
            crl.create_extensions_validator_container([]),
        ],
    )


def main(folder):
    validator, refused = linter(), []
    paths = sorted(pathlib.Path(folder).glob("*.der"))
    for path in paths:
        document = loader.RFC5280CertificateListDocumentLoader().load_der_document(path.read_bytes(), path.name)
        for result in validator.validate(document.root):
            for description in result.finding_descriptions:
                finding = description.finding
                if finding.severity <= ValidationFindingSeverity.WARNING:
                    refused.append(f"{path.name}: {finding.severity.name} {finding.code}: {description.message or ''}")
    print("\n".join(refused))
    print(f"{len(paths)} lists linted")
    return 1 if refused or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
