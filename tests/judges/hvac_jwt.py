"""The calls of hvac about `jwt`, as it is, against a running server.

Usage: hvac_jwt.py ADDRESS TOKEN
"""

import base64
import json
import sys
import time

import hvac
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa


class Issuer:
    """Somebody who signs tokens, with a key of their own."""

    def __init__(self):
        self.key = rsa.generate_private_key(65537, 2048)
        form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.pem = self.key.public_key().public_bytes(*form).decode()

    def token(self, **claims):
        now = int(time.time())
        claims = {"iss": "https://ci.example", "sub": "job-1", "aud": "signet", "iat": now, "exp": now + 600, **claims}
        parts = [json.dumps(part).encode() for part in ({"alg": "RS256", "typ": "JWT"}, claims)]
        message = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
        signature = self.key.sign(message, padding.PKCS1v15(), hashes.SHA256())
        return b".".join([message, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def refused(call, *arguments, **named):
    """That hvac says that a call was no good request, of nothing, or not allowed."""
    try:
        answer = call(*arguments, **named)
    except (hvac.exceptions.InvalidRequest, hvac.exceptions.InvalidPath, hvac.exceptions.Forbidden):
        return
    raise AssertionError(f"{call.__name__} answered {answer}")


def configured(client, mount, issuer):
    client.sys.enable_auth_method("jwt", path=mount)
    jwt = client.auth.jwt
    answer = jwt.configure(
        jwt_validation_pubkeys=[issuer.pem],
        bound_issuer="https://ci.example",
        jwt_supported_algs=["RS256"],
        default_role="build",
        path=mount,
    )
    assert answer.status_code == 204, answer
    data = jwt.read_config(path=mount)["data"]
    assert (data["bound_issuer"], data["default_role"]) == ("https://ci.example", "build"), data
    assert [key.strip() for key in data["jwt_validation_pubkeys"]] == [issuer.pem.strip()], data


def roles(client, mount):
    jwt = client.auth.jwt
    answer = jwt.create_role(
        "build",
        user_claim="sub",
        allowed_redirect_uris=["https://signet.test/callback"],
        bound_audiences=["signet"],
        bound_claims={"project": ["web", "api-*"]},
        bound_claims_type="glob",
        claim_mappings={"project": "project"},
        groups_claim="groups",
        token_ttl="10m",
        token_max_ttl="1h",
        token_policies=["builders"],
        token_bound_cidrs=["127.0.0.0/8"],
        token_type="service",
        path=mount,
    )
    # The client sends fields of other login flows, which the answer names.
    assert any("unrecognized parameters" in warning for warning in answer["warnings"]), answer
    data = jwt.read_role("build", path=mount)["data"]
    assert (data["role_type"], data["user_claim"], data["token_ttl"]) == ("jwt", "sub", 600), data
    assert (data["bound_claims"], data["bound_claims_type"]) == ({"project": ["web", "api-*"]}, "glob"), data
    jwt.create_role("other", user_claim="sub", allowed_redirect_uris=[], bound_audiences=["signet"], path=mount)
    assert jwt.list_roles(path=mount)["data"]["keys"] == ["build", "other"]
    jwt.delete_role("other", path=mount)
    refused(jwt.read_role, "other", path=mount)


def logins(address, mount, issuer):
    client = hvac.Client(url=address)
    good = issuer.token(project="api-7", groups=["ci"])
    answer = client.auth.jwt.jwt_login("build", good, path=mount)
    auth = answer["auth"]
    assert client.token == auth["client_token"] and client.is_authenticated()
    assert auth["metadata"] == {"role": "build", "project": "api-7"}, auth
    assert (auth["policies"], auth["lease_duration"], auth["renewable"]) == (["builders", "default"], 600, True), auth
    own = client.auth.token.lookup_self()["data"]
    assert (own["path"], own["display_name"]) == (f"auth/{mount}/login", f"{mount}-job-1"), own
    assert own["entity_id"], own
    assert client.auth.token.renew_self()["auth"]["lease_duration"] == 600
    # Whoever names no role has the default one.
    assert hvac.Client(url=address).auth.jwt.jwt_login("", good, path=mount)["auth"]["metadata"]["role"] == "build"
    stranger = Issuer()
    for token in (
        issuer.token(project="db", groups=[]),
        issuer.token(project="web", groups=[], aud="somebody"),
        issuer.token(project="web", groups=[], iss="https://other.example"),
        issuer.token(project="web", groups=[], exp=int(time.time()) - 3600),
        stranger.token(project="web", groups=[]),
    ):
        refused(client.auth.jwt.jwt_login, "build", token, path=mount)
    return client


def main(address, token):
    client, mount, issuer = hvac.Client(url=address, token=token), "ci", Issuer()
    configured(client, mount, issuer)
    roles(client, mount)
    entered = logins(address, mount, issuer)
    client.sys.disable_auth_method(mount)
    assert not entered.is_authenticated(), "the token ended with its method"
    print("all calls answered as hvac's users expect")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
