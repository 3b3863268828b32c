"""The lists of certificates as hvac reads them, page after page on one connection's answer, against a running server.

Usage: hvac_lists.py ADDRESS TOKEN COUNT
"""

import sys

import hvac


def main(address, token, count):
    client = hvac.Client(url=address, token=token)
    answer = client.secrets.pki.list_certificates()
    keys = answer["data"]["keys"]
    assert len(keys) == count and keys == sorted(keys) and len(set(keys)) == count, len(keys)
    assert (answer["lease_id"], answer["warnings"], answer["mount_type"]) == ("", None, "pki"), answer.keys()
    assert client.list("pki/certs")["data"]["keys"] == keys
    detailed = client.adapter.list("/v1/pki/certs/detailed")["data"]
    assert detailed["keys"] == keys and set(detailed["key_info"]) == set(keys)
    # The connection is fit for the next request.
    assert client.secrets.pki.read_certificate(keys[-1])["data"]["certificate"].startswith("-----BEGIN CERTIFICATE-----")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
