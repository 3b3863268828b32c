"""Reads a PKCS #12 file: prints whether its key is that of its certificate, the name, and the number of other certificates."""

import sys

from cryptography.hazmat.primitives.serialization import pkcs12

path, password = sys.argv[1:]
with open(path, "rb") as file:
    read = pkcs12.load_pkcs12(file.read(), password.encode())
same = read.key.public_key() == read.cert.certificate.public_key()
print(same, read.cert.friendly_name.decode(), len(read.additional_certs))
