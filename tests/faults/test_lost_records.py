"""A database that is lost, and replaced by a backup as the documentation says: the service loses no content."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.backup import backup
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.testing import Service, ServiceDied

PAGE = Path(__file__).parents[2] / "docs/how-to/recover-the-records.md"


def test_the_documented_recovery_brings_the_service_back_and_loses_no_content(
    tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    root = tmp_path / "state"
    backups = root / "backups"
    with Service(state_dir=root) as service:
        s3 = service.client("s3")
        s3.create_bucket(Bucket="data")
        for key in ("before", "deleted"):
            s3.put_object(Bucket="data", Key=key, Body=key.encode())
        wait_until(lambda: list(backups.glob("*.db")), "the backup of the first start, without the objects")
        with SqliteDatabase.open(root / "state.db", metadata=metadata) as database:
            backup(database, backups)  # what the service does an hour later
        s3.put_object(Bucket="data", Key="after", Body=b"after")
        s3.delete_object(Bucket="data", Key="deleted")
        service.kill()

        contents = {file: file.read_bytes() for file in root.glob("objects/content/*/*")}
        assert b"after" in contents.values()
        for file in root.glob("state.db*"):
            file.unlink()
        with pytest.raises(ServiceDied, match=r"the records are lost: .*To go back to one: stop the service"):
            service.start()
        assert {file: file.read_bytes() for file in contents} == contents

        run_commands_of_the_page(root)
        try:
            wait_until(lambda: "objects.set_aside" in service.log, "the sweep of the recovered service")
            check_the_recovered_service(service)
        finally:
            end(root)


def check_the_recovered_service(service: Service) -> None:
    s3 = service.client("s3")
    assert b"after" in [file.read_bytes() for file in service.state_dir.glob("objects/trash/*/*")]
    assert s3.get_object(Bucket="data", Key="before")["Body"].read() == b"before"
    listed = [each["Key"] for each in s3.list_objects_v2(Bucket="data")["Contents"]]
    assert listed == ["before", "deleted"]
    s3.put_object(Bucket="data", Key="after", Body=b"again")


def run_commands_of_the_page(root: Path) -> None:
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    try:
        subprocess.run(["sh", "-ec", commands], env=variables(root), check=True)
    except subprocess.CalledProcessError:
        end(root)
        raise


def end(root: Path) -> None:
    subprocess.run(["tidemill", "down"], env=variables(root), check=True)


def variables(root: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "AWS_"))}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "STATE": str(root),
        "TIDEMILL_STATE_DIR": str(root),
        "TIDEMILL_CONFIG": os.devnull,
        "TIDEMILL_PORT": "0",
    }
