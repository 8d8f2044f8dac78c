"""Links that jobs share, as the shim provides them with and without overlays."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.core.instances import Isolation
from tidemill.instance.directory import InstanceDirectory
from tidemill.shim import channels as shim_channels
from tidemill.shim.channels import Channels, bring_channels
from tidemill.shim.link_parts import PARTS

NAMES = tuple(f"file-{number}" for number in range(8))


def session_of(job: str, state_dir: Path) -> Any:
    """Return what `bring_channels` needs of a session, with one shared channel of `NAMES`."""
    directory = InstanceDirectory(state_dir / f"jobs/{job}/algo-1")
    directory.channels.mkdir(parents=True)
    files = []
    for name in NAMES:
        (state_dir / name).write_text(name)
        files.append((f"s3://bucket/{name}", name, str(state_dir / name), len(name), "unread"))
    directory.write_shared_channel("train", [files])
    return SimpleNamespace(
        base_dir="/opt/ml",
        directory=directory,
        task=SimpleNamespace(
            channels=("train",), shared={"train": "digest"}, site=SimpleNamespace(state_dir=state_dir)
        ),
        spec=SimpleNamespace(channel_paths={}, copied_channels=()),
        sandbox=SimpleNamespace(isolation=Isolation.MOUNT),
        stop=SimpleNamespace(check=lambda: None),
        log=SimpleNamespace(note=lambda text: None),
    )


@pytest.mark.parametrize("has_overlays", [True, False])
def test_a_machine_without_overlays_has_links_in_one_directory_which_is_mounted_read_only(
    has_overlays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bring(job: str, fault: str) -> tuple[Any, Channels]:
        monkeypatch.setattr(shim_channels, "overlay_fault", lambda overlay: fault)
        session = session_of(job, tmp_path)
        return session, bring_channels(session, {})  # type: ignore[arg-type]

    bring("earlier", "forbidden" if has_overlays else "")  # shares its links
    session, found = bring("later", "" if has_overlays else "forbidden")
    if has_overlays:
        (overlay,) = found.overlays
        shown = [overlay.directory / overlay.FILES / part for part in overlay.parts]
        assert overlay.parts == PARTS
        assert not found.covers
    else:
        ((whole, target),) = found.covers
        shown = [whole]
        assert target == "input/data/train"
        assert not found.overlays
    assert sorted(each.name for directory in shown for each in directory.iterdir()) == list(NAMES)
    assert [each.name for each in session.directory.views.iterdir()] == ["0"]
