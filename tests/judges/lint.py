"""Lints every certificate of a folder with pkilint (RFC 5280), all of them in this one process.

Usage: lint.py FOLDER ALLOWED

ALLOWED is a file of findings that are known and accepted, one per line: the finding's code, where it
may appear (a pattern of file names), and after a `#` the reason. Whatever else pkilint finds from
WARNING on is printed and ends this program with status 1, and so does an entry that nothing needed:
a list that is longer than it must be hides what comes later.
"""

import fnmatch
import pathlib
import sys

from pkilint import loader
from pkilint.pkix import certificate, extension, name
from pkilint.validation import ValidationFindingSeverity


def linter():
    return certificate.create_pkix_certificate_validator_container(
        certificate.create_decoding_validators(name.ATTRIBUTE_TYPE_MAPPINGS, extension.EXTENSION_MAPPINGS),
        [
            certificate.create_issuer_validator_container([]),
            certificate.create_validity_validator_container(),
            certificate.create_subject_validator_container([]),
            certificate.create_extensions_validator_container([]),
            certificate.create_spki_validator_container([]),
        ],
    )


def allowed(path):
    entries = []
    for line in pathlib.Path(path).read_text().splitlines():
        rule, _, reason = line.partition("#")
        if rule.strip():
            code, where = rule.split()
            if not reason.strip():
                sys.exit(f"{path}: {code} has no reason")
            entries.append((code, where))
    return entries


def main(folder, allow_list):
    entries, used, refused = allowed(allow_list), set(), []
    validator = linter()
    paths = sorted(pathlib.Path(folder).glob("*.pem"))
    for path in paths:
        document = loader.RFC5280CertificateDocumentLoader().load_pem_document(path.read_text(), path.name)
        for result in validator.validate(document.root):
            for description in result.finding_descriptions:
                finding = description.finding
                if finding.severity > ValidationFindingSeverity.WARNING:
                    continue
                entry = next((e for e in entries if e[0] == finding.code and fnmatch.fnmatch(path.name, e[1])), None)
                if entry:
                    used.add(entry)
                else:
                    refused.append(f"{path.name}: {finding.severity.name} {finding.code}: {description.message or ''}")
    refused += [f"{allow_list}: nothing needs {code} {where}" for code, where in entries if (code, where) not in used]
    print("\n".join(refused))
    print(f"{len(paths)} certificates linted")
    return 1 if refused or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
