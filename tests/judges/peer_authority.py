"""An authority as a peer exports it, and what somebody knows who has seen its CRL; by Python's `cryptography`.

Usage: peer_authority.py make FOLDER
       peer_authority.py compare OLD NEW CA [MORE…]

`make` writes FOLDER/bundle.pem (private key and certificate in one text), FOLDER/issuing-ca.crl (DER) with four
revocations, FOLDER/good.pem and FOLDER/revoked.pem (leaves), and prints the serial number of each entry.

`compare` says whether whoever has the list OLD takes NEW for its successor: signed by CA, a greater number, no earlier
thisUpdate, and every entry of OLD with its date, reason and invalidity date. MORE are serial numbers (hexadecimal) that
NEW must have besides.
"""

import datetime
import pathlib
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

NUMBER = 20_261_012_000_017
DAY = datetime.timedelta(days=1)


def name(common_name):
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Peer"), x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def authority(now):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name("peer.test"))
        .issuer_name(name("peer.test"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 400 * DAY)
        .not_valid_after(now + 3000 * DAY)
        .add_extension(usage, critical=True)
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def leaf(key, ca, now):
    own = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return (
        x509.CertificateBuilder()
        .subject_name(name("leaf.peer.test"))
        .issuer_name(ca.subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + 300 * DAY)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("leaf.peer.test")]), critical=False)
        .sign(key, hashes.SHA256())
    )


def entry(serial, at, reason=None, invalid=None):
    builder = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(at)
    if reason:
        builder = builder.add_extension(x509.CRLReason(reason), critical=False)
    if invalid:
        builder = builder.add_extension(x509.InvalidityDate(invalid), critical=False)
    return builder.build()


def make(folder):
    folder = pathlib.Path(folder)
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    key, ca = authority(now)
    good, revoked = leaf(key, ca, now), leaf(key, ca, now)
    entries = [
        entry(revoked.serial_number, now - 3 * DAY, x509.ReasonFlags.key_compromise, now - 9 * DAY),
        entry(x509.random_serial_number(), now - 30 * DAY, x509.ReasonFlags.superseded),
        entry(x509.random_serial_number(), now - 300 * DAY),
        entry(7, now - 2 * DAY, x509.ReasonFlags.certificate_hold),
    ]
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject).last_update(now - DAY).next_update(now + 2 * DAY)
    for one in entries:
        builder = builder.add_revoked_certificate(one)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False).add_extension(x509.CRLNumber(NUMBER), critical=False)
    crl = builder.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    (folder / "bundle.pem").write_bytes(private + ca.public_bytes(pem))
    (folder / "issuing-ca.crl").write_bytes(crl.public_bytes(serialization.Encoding.DER))
    (folder / "good.pem").write_bytes(good.public_bytes(pem))
    (folder / "revoked.pem").write_bytes(revoked.public_bytes(pem))
    for one in entries:
        print(f"{one.serial_number:x}")
    return 0


def read(path):
    octets = pathlib.Path(path).read_bytes()
    return x509.load_pem_x509_crl(octets) if octets.startswith(b"-----") else x509.load_der_x509_crl(octets)


def extensions(one):
    return sorted((extension.oid.dotted_string, repr(extension.value)) for extension in one.extensions)


def compare(old, new, ca, more):
    old, new = read(old), read(new)
    ca = x509.load_pem_x509_certificate(pathlib.Path(ca).read_bytes())
    number = lambda crl: crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    problems = []
    if not new.is_signature_valid(ca.public_key()):
        problems.append("signature")
    if number(new) <= number(old):
        problems.append(f"number {number(old)} -> {number(new)}")
    if new.last_update_utc < old.last_update_utc:
        problems.append("thisUpdate")
    listed = {one.serial_number: one for one in new}
    for one in old:
        there = listed.get(one.serial_number)
        if there is None:
            problems.append(f"{one.serial_number:x} is gone")
        elif there.revocation_date_utc != one.revocation_date_utc or extensions(there) != extensions(one):
            problems.append(f"{one.serial_number:x} differs")
    for serial in more:
        if int(serial, 16) not in listed:
            problems.append(f"{serial} is missing")
    print("; ".join(problems) or f"number {number(new)}")
    return 1 if problems else 0


if __name__ == "__main__":
    word, *arguments = sys.argv[1:]
    sys.exit(make(*arguments) if word == "make" else compare(*arguments[:3], arguments[3:]))
