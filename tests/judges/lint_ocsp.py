"""Lints every OCSP answer (*.der) of a folder with pkilint (RFC 6960), all of them in this one process.

Usage: lint_ocsp.py FOLDER

Whatever pkilint finds from WARNING on is printed and ends this program with status 1.
"""

import pathlib
import sys

from pkilint import loader, pkix
from pkilint.pkix import extension, name, ocsp
from pkilint.validation import ValidationFindingSeverity


def linter():
    return ocsp.create_pkix_ocsp_response_validator_container(
        [
            ocsp.create_response_decoder(),
            pkix.create_attribute_decoder(name.ATTRIBUTE_TYPE_MAPPINGS),
            pkix.create_extension_decoder(extension.EXTENSION_MAPPINGS),
        ],
        [],
    )


def main(folder):
    validator, refused = linter(), []
    paths = sorted(pathlib.Path(folder).glob("*.der"))
    for path in paths:
        document = loader.RFC6960OCSPResponseDocumentLoader().load_der_document(path.read_bytes(), path.name)
        for result in validator.validate(document.root):
            for description in result.finding_descriptions:
                finding = description.finding
                if finding.severity <= ValidationFindingSeverity.WARNING:
                    refused.append(f"{path.name}: {finding.severity.name} {finding.code}: {description.message or ''}")
    print("\n".join(refused))
    print(f"{len(paths)} answers linted")
    return 1 if refused or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
