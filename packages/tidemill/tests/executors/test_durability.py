"""The result of a job survives a power failure as soon as its shim has reported it: the archives and the whole log."""

from pathlib import Path

from durability import Recording

from tidemill.executors import shim_process
from tidemill.instance.samples import SAMPLES_FILE
from tidemill.instance.status import InstanceOutcome

SCRIPT = """
import os
from pathlib import Path
base = Path(os.environ["SAGEMAKER_BASE_DIR"])
(base / "model/weights").write_text("42")
(base / "output/data/plot").write_text("p")
print("hello")
"""


def test_a_reported_result_has_durable_archives_and_a_durable_log(make_stage, tmp_path, monkeypatch):
    recording = Recording(tmp_path, root=tmp_path.resolve())
    real = shim_process.installer_variables
    monkeypatch.setattr(shim_process, "installer_variables", lambda variables: real(variables) | recording.variables)
    stage = make_stage("plain")
    ref, ended = stage.run(SCRIPT)
    assert ended.outcome is InstanceOutcome.COMPLETED
    trace, directory = recording.trace(), stage.directory(ref)
    (reported,) = trace.positions("N", lambda path: path == str(directory.exit_file.resolve()))

    def is_result(path: str) -> bool:
        # A power failure may take the last samples of what the instance used: no result depends on them.
        is_log = "/logs/" in path and Path(path).name != SAMPLES_FILE
        return Path(path).parent == directory.artifacts.resolve() or is_log

    def is_exit(path: str) -> bool:
        return path == str(directory.exit_file.resolve())

    assert {Path(trace.events[at].text).name for at in trace.positions("N", is_result)} >= {
        "model.tar.gz",
        "output.tar.gz",
        "00000001.log",
    }
    assert trace.lost(reported, is_result) == []
    assert trace.lost(len(trace.events), is_exit) == []
    for left_out in (".tar.gz", "/artifacts", ".log"):
        assert trace.without("fF", lambda path, end=left_out: path.endswith(end)).lost(reported, is_result) != []
