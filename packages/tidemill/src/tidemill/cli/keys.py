"""`tidemill keys`: access keys of further users of the service."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.failures import CommandFailed
from tidemill.cli.options import EndpointOption, JsonOption, StateDirOption
from tidemill.cli.text import age, print_json, print_list, print_result

if TYPE_CHECKING:
    from tidemill.cli.service import NamedService

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Add, list and revoke access keys of further users.")

_User = Annotated[str, typer.Argument(metavar="USER", help="Name: letters, digits and +=,.@_-")]


_POLICY = "tidemill"
"""Name of the policy that `tidemill keys add --policy` gives a user."""


@app.command()
def add(
    user: _User,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="IAM policy in JSON: what the user may do (default: all but managing users and keys)."
        ),
    ] = None,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Create a key for a user and print it as shell exports. The secret cannot be shown again.

    A policy is that of the user: it applies to all of its keys at once, also to earlier ones, and stays without keys.
    """
    service = _service(state_dir, endpoint_url)
    iam = service.session.client("iam")
    if policy is not None:
        _give_policy(iam, user, policy)
    key = iam.create_access_key(UserName=user)["AccessKey"]
    public_url = service.own.connection.service.public_url if service.own else ""
    url, key_id, secret = public_url or service.url, key["AccessKeyId"], key["SecretAccessKey"]
    print_result(
        {"user": user, "url": url, "access_key_id": key_id, "secret_access_key": secret},
        f"export AWS_ENDPOINT_URL={url}",
        f"export AWS_ACCESS_KEY_ID={key_id}",
        f"export AWS_SECRET_ACCESS_KEY={secret}",
        json=json,
    )


@app.command("list")
def list_keys(json: JsonOption = False, endpoint_url: EndpointOption = None, state_dir: StateDirOption = None) -> None:
    """List the users and their keys, without the secrets."""
    iam = _client(state_dir, endpoint_url)
    users = [user["UserName"] for page in iam.get_paginator("list_users").paginate() for user in page["Users"]]
    keys = [each for user in users for each in iam.list_access_keys(UserName=user)["AccessKeyMetadata"]]
    policies = {user: iam.list_user_policies(UserName=user)["PolicyNames"] for user in users}
    entries = [(key["UserName"], key["AccessKeyId"], key["CreateDate"]) for key in keys]
    print_list(
        [{"user": user, "access_key_id": key, "created": at, "policies": policies[user]} for user, key, at in entries],
        ("USER", "KEY", "CREATED", "POLICY"),
        [(user, key, f"{age(at)} ago", ", ".join(policies[user]) or "-") for user, key, at in entries],
        nothing="no further user has a key; `tidemill keys add USER` makes one",
        json=json,
    )


@app.command()
def revoke(
    user: _User,
    key: Annotated[str | None, typer.Option("--key", metavar="ID", help="One key (default: all of the user).")] = None,
    json: JsonOption = False,
    endpoint_url: EndpointOption = None,
    state_dir: StateDirOption = None,
) -> None:
    """Delete a user's keys. Requests signed with them are refused from now on; running jobs continue."""
    iam = _client(state_dir, endpoint_url)
    held = [each["AccessKeyId"] for each in iam.list_access_keys(UserName=user)["AccessKeyMetadata"]]
    chosen = [each for each in held if key in (None, each)]
    if not chosen:
        raise CommandFailed(f"user {user} has no key {key}" if key and held else f"user {user} has no key")
    for each in chosen:
        iam.delete_access_key(UserName=user, AccessKeyId=each)
        if not json:
            typer.echo(f"{each} of {user} is revoked")
    if json:
        print_json({"user": user, "revoked": chosen})


def _give_policy(iam: Any, user: str, file: Path) -> None:
    from botocore.exceptions import ClientError

    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"the policy {file} cannot be read: {error}") from error
    try:
        iam.create_user(UserName=user)
    except ClientError as error:
        if error.response["Error"]["Code"] != "EntityAlreadyExists":
            raise
    iam.put_user_policy(UserName=user, PolicyName=_POLICY, PolicyDocument=text)


def _client(state_dir: Path | None, endpoint_url: str | None) -> Any:
    return _service(state_dir, endpoint_url).session.client("iam")


def _service(state_dir: Path | None, endpoint_url: str | None) -> "NamedService":
    from tidemill.cli.service import require_service

    return require_service(state_dir=state_dir, endpoint_url=endpoint_url)
