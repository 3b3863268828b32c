"""The calls of hvac about `approle` and auth methods, as it is, against a running server.

Usage: hvac_approle.py ADDRESS TOKEN
"""

import sys

import hvac


def refused(call, *arguments, **named):
    """That hvac says that a call was no good request, or of nothing."""
    try:
        answer = call(*arguments, **named)
    except (hvac.exceptions.InvalidRequest, hvac.exceptions.InvalidPath):
        return
    raise AssertionError(f"{call.__name__} answered {answer}")


def methods(client, mount):
    client.sys.enable_auth_method("approle", description="machines", config={"max_lease_ttl": "2h"}, path=mount)
    listed = client.sys.list_auth_methods()["data"]
    assert listed[f"{mount}/"]["type"] == "approle" and listed["token/"]["type"] == "token", listed
    client.sys.tune_auth_method(mount, default_lease_ttl="30m", description="tuned")
    tuned = client.sys.read_auth_method_tuning(mount)["data"]
    assert (tuned["default_lease_ttl"], tuned["max_lease_ttl"], tuned["description"]) == (1800, 7200, "tuned"), tuned


def roles(approle, mount):
    answer = approle.create_or_update_approle(
        "web",
        bind_secret_id=True,
        secret_id_bound_cidrs=["127.0.0.0/8"],
        secret_id_num_uses=5,
        secret_id_ttl="1h",
        token_ttl="10m",
        token_max_ttl="1h",
        token_policies=["default", "web"],
        token_bound_cidrs=["127.0.0.0/8"],
        token_type="service",
        mount_point=mount,
    )
    assert answer.status_code == 204, answer
    data = approle.read_role("web", mount_point=mount)["data"]
    assert (data["secret_id_ttl"], data["token_ttl"], data["secret_id_num_uses"]) == (3600, 600, 5), data
    assert (data["token_policies"], data["token_type"]) == (["default", "web"], "service"), data
    approle.create_or_update_approle("other", mount_point=mount)
    assert approle.list_roles(mount_point=mount)["data"]["keys"] == ["other", "web"]
    approle.delete_role("other", mount_point=mount)
    refused(approle.read_role, "other", mount_point=mount)
    assert len(approle.read_role_id("web", mount_point=mount)["data"]["role_id"]) == 36
    approle.update_role_id("web", "chosen-role-id", mount_point=mount)
    return approle.read_role_id("web", mount_point=mount)["data"]["role_id"]


def secret_ids(approle, mount):
    made = approle.generate_secret_id("web", metadata={"team": "blue"}, cidr_list=["127.0.0.1/32"], mount_point=mount)["data"]
    assert (made["secret_id_ttl"], made["secret_id_num_uses"]) == (3600, 5), made
    accessor = made["secret_id_accessor"]
    for found in (
        approle.read_secret_id("web", made["secret_id"], mount_point=mount),
        approle.read_secret_id_accessor("web", accessor, mount_point=mount),
    ):
        data = found["data"]
        assert (data["secret_id_accessor"], data["metadata"], data["cidr_list"]) == (accessor, {"team": "blue"}, ["127.0.0.1/32"]), data
    custom = approle.create_custom_secret_id("web", "custom-secret-id", metadata={"a": "b"}, mount_point=mount)["data"]
    assert custom["secret_id"] == "custom-secret-id", custom
    refused(approle.create_custom_secret_id, "web", "custom-secret-id", mount_point=mount)
    listed = approle.list_secret_id_accessors("web", mount_point=mount)["data"]["keys"]
    assert listed == sorted([accessor, custom["secret_id_accessor"]]), listed
    approle.destroy_secret_id("web", "custom-secret-id", mount_point=mount)
    refused(approle.read_secret_id_accessor, "web", custom["secret_id_accessor"], mount_point=mount)
    other = approle.generate_secret_id("web", mount_point=mount)["data"]
    approle.destroy_secret_id_accessor("web", other["secret_id_accessor"], mount_point=mount)
    assert approle.list_secret_id_accessors("web", mount_point=mount)["data"]["keys"] == [accessor]
    return made["secret_id"]


def logins(address, mount, role_id, secret_id):
    client = hvac.Client(url=address)
    answer = client.auth.approle.login(role_id, secret_id, mount_point=mount)
    auth = answer["auth"]
    assert client.token == auth["client_token"] and client.is_authenticated()
    assert auth["metadata"] == {"role_name": "web", "team": "blue"}, auth
    assert (auth["policies"], auth["lease_duration"], auth["renewable"]) == (["default", "web"], 600, True), auth
    own = client.auth.token.lookup_self()["data"]
    assert (own["path"], own["meta"]["role_name"]) == (f"auth/{mount}/login", "web"), own
    assert client.auth.token.renew_self()["auth"]["lease_duration"] == 600
    refused(client.auth.approle.login, role_id, "wrong", mount_point=mount)
    refused(client.auth.approle.login, "wrong", secret_id, mount_point=mount)
    return client


def main(address, token):
    client, mount = hvac.Client(url=address, token=token), "machines"
    methods(client, mount)
    role_id = roles(client.auth.approle, mount)
    entered = logins(address, mount, role_id, secret_ids(client.auth.approle, mount))
    client.sys.disable_auth_method(mount)
    assert f"{mount}/" not in client.sys.list_auth_methods()["data"]
    assert not entered.is_authenticated(), "the token ended with its method"
    print("all calls answered as hvac's users expect")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
