"""hvac's calls of the method that it calls azure, unmodified: every answer must be what it takes it for."""

import sys

import hvac

ADDRESS, TOKEN, TENANT, RESOURCE, CLIENT, SECRET, JWT, SUBSCRIPTION, GROUP, MACHINE = sys.argv[1:]

MOUNT = "team/cloudb"


def main():
    client = hvac.Client(url=ADDRESS, token=TOKEN)
    client.sys.enable_auth_method("azure")
    client.sys.enable_auth_method("cloudb", path=MOUNT)
    azure = client.auth.azure
    done = azure.configure(
        tenant_id=TENANT, resource=RESOURCE, environment="AzurePublicCloud", client_id=CLIENT,
        client_secret=SECRET, mount_point=MOUNT,
    )
    assert done.status_code == 204, done
    config = azure.read_config(mount_point=MOUNT)
    assert config["tenant_id"] == TENANT and config["environment"] == "AzurePublicCloud", config
    assert SECRET not in str(config)
    done = azure.create_role(
        name="machines", policies=["default", "web"], ttl="1h", max_ttl="2h", num_uses=0,
        bound_subscription_ids=[SUBSCRIPTION], bound_resource_groups=[GROUP], mount_point=MOUNT,
    )
    assert done.status_code == 204, done
    role = azure.read_role(name="machines", mount_point=MOUNT)
    assert role["token_policies"] == ["default", "web"] and role["token_ttl"] == 3600, role
    assert role["bound_subscription_ids"] == [SUBSCRIPTION], role
    assert azure.list_roles(mount_point=MOUNT)["keys"] == ["machines"]
    answer = azure.login(
        role="machines", jwt=JWT, subscription_id=SUBSCRIPTION, resource_group_name=GROUP, vm_name=MACHINE,
        use_token=False, mount_point=MOUNT,
    )
    auth = answer["auth"]
    assert auth["policies"] == ["default", "web"] and auth["lease_duration"] == 3600 and auth["renewable"], auth
    own = hvac.Client(url=ADDRESS, token=auth["client_token"])
    assert own.auth.token.lookup_self()["data"]["meta"]["vm_name"] == MACHINE
    try:
        azure.login(role="nobody", jwt=JWT, use_token=False, mount_point=MOUNT)
        raise AssertionError("an unknown role was taken")
    except hvac.exceptions.InvalidRequest as error:
        assert 'invalid role name "nobody"' in str(error), error
    assert azure.delete_role(name="machines", mount_point=MOUNT).status_code == 204
    assert azure.delete_config(mount_point=MOUNT).status_code == 204
    client.sys.disable_auth_method(path=MOUNT)
    # At the path that it takes when none is given.
    azure.configure(tenant_id=TENANT, resource=RESOURCE)
    azure.create_role(name="r", policies="web", bound_service_principal_ids="o1")
    assert azure.login(role="r", jwt=JWT, use_token=False)["auth"]["policies"] == ["default", "web"]
    client.sys.disable_auth_method(path="azure")


main()
