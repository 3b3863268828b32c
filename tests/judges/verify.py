"""Verifies leaves with the X.509 verifier of Python's `cryptography`.

Usage: verify.py FOLDER

Reads FOLDER/cases.json: a list of {"name", "roots": [PEM], "between": [PEM], "leaf": PEM, "host",
"valid": bool}. Prints what it judges otherwise and ends with status 1 then.
"""

import json
import pathlib
import sys

from cryptography import x509
from cryptography.x509 import verification


def verdict(case):
    read = lambda text: x509.load_pem_x509_certificate(text.encode())
    store = verification.Store([read(root) for root in case["roots"]])
    verifier = verification.PolicyBuilder().store(store).build_server_verifier(x509.DNSName(case["host"]))
    try:
        verifier.verify(read(case["leaf"]), [read(between) for between in case["between"]])
        return None
    except verification.VerificationError as error:
        return str(error)


def main(folder):
    wrong = 0
    cases = json.loads((pathlib.Path(folder) / "cases.json").read_text())
    for case in cases:
        problem = verdict(case)
        if (problem is None) != case["valid"]:
            wrong += 1
            print(f"{case['name']}: {problem or 'accepted'}")
    print(f"{len(cases)} leaves judged")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
