"""Which instance has which GPU. The devices are names only: nothing here calls CUDA."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tidemill.core.instances import InstanceRef
from tidemill.errors import LaunchError
from tidemill.executors.gpus import Gpu, GpuPool, find_gpus
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.status import InstanceOutcome

SHOW = (
    "import os, sys; print('SEES', os.environ.get('CUDA_VISIBLE_DEVICES'), 'gpu' if '-gpu' in sys.prefix else 'cpu',"
    " flush=True)\n"
)
WAIT = SHOW + "import signal; signal.pause()\n"
REFS = [InstanceRef(f"{number:02x}", 0) for number in range(4)]


def seen(stage, ref):
    (line,) = (line for line in stage.lines(ref) if line.startswith("SEES"))
    return line.removeprefix("SEES ")


def started(stage, **changes):
    ref = stage.start(WAIT, **changes)
    stage.wait(ref, lambda: any(line.startswith("SEES") for line in stage.lines(ref)))
    return ref


def test_two_jobs_never_have_the_same_gpu_and_a_job_without_any_sees_none(make_stage):
    stage = make_stage("auto", gpus=("GPU-a", "GPU-b", "GPU-c"))
    assert stage.executor.capacity().gpus == 3
    first, second = started(stage, gpus=2), started(stage, gpus=1)
    assert (seen(stage, first), seen(stage, second)) == ("GPU-a,GPU-b gpu", "GPU-c gpu")
    assert "tidemill: the GPUs of this instance: GPU-a, GPU-b" in stage.lines(first)
    without, _ = stage.run(SHOW)
    assert seen(stage, without) == " cpu"
    with pytest.raises(LaunchError, match="1 GPUs are needed, and 0 of 3 are free"):
        stage.start(gpus=1)
    # A service that was restarted knows who has what, and an attempt that is launched again gets what is free.
    stage.reopen()
    stage.executor.recover(finished=lambda _: False)
    with pytest.raises(LaunchError, match="1 GPUs are needed"):
        stage.start(gpus=1)
    stage.executor.reap(first.job_id)
    again = stage.spec(WAIT, gpus=2)
    stage.executor.launch([again])
    stage.executor.launch([again])  # as a restarted service does
    assert _devices(stage, again.ref) == ["GPU-a", "GPU-b"]
    stage.executor.launch([replace(again, ref=replace(again.ref, attempt=2))])
    assert _devices(stage, replace(again.ref, attempt=2)) == ["GPU-a", "GPU-b"]


def _devices(stage, ref):
    return json.loads(InstanceDirectory.of(stage.state_dir, ref).spec_file.read_text())["devices"]


def test_a_job_may_choose_among_its_own_gpus_by_number(make_stage):
    stage = make_stage("auto", gpus=("GPU-a", "GPU-b", "GPU-c"))
    started(stage, gpus=1)
    ref, ended = stage.run(SHOW, gpus=2, variables={"CUDA_VISIBLE_DEVICES": "1"})
    assert ended.outcome is InstanceOutcome.COMPLETED
    assert seen(stage, ref) == "GPU-c gpu"
    stage.executor.reap(ref.job_id)
    _, ended = stage.run(SHOW, gpus=1, variables={"CUDA_VISIBLE_DEVICES": "0,1"})
    assert ended.outcome is InstanceOutcome.FAILED
    assert "CUDA_VISIBLE_DEVICES='0,1' in Environment: expected numbers of the instance's GPUs" in ended.failure


def test_on_a_machine_without_gpus_nothing_is_set(make_stage):
    stage = make_stage("auto", gpus=())
    ref, _ = stage.run(SHOW)
    assert seen(stage, ref) == "None cpu"


def test_shared_gpus_go_to_the_instances_that_have_the_fewest():
    pool = GpuPool(("0", "1"), shared=True)
    assert [pool.take(ref, 1) for ref in REFS] == [("0",), ("1",), ("0",), ("1",)]
    pool.give_back(REFS[1])
    pool.give_back(REFS[3])
    assert pool.take(REFS[1], 1) == ("1",)
    assert pool.take(REFS[0], 1) == ("0",)
    with pytest.raises(LaunchError, match="3 GPUs are needed, and 2 of 2 are free"):
        pool.take(InstanceRef("ff", 0), 3)


def test_gpus_are_those_that_nvidia_smi_lists(tmp_path: Path):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        'test "$1" = --query-gpu=index,uuid,name,memory.total,driver_version || exit 2\n'
        "echo '0, GPU-1a, Tesla T4, 15360 MiB, 550.54.15'\n"
        "echo '1, GPU-1b, Tesla T4, 15360 MiB, 550.54.15'\n"
    )
    program.chmod(0o755)
    found = find_gpus(str(program))
    assert found[1] == Gpu("1", "GPU-1b", "Tesla T4", "15360 MiB", "550.54.15")
    assert [gpu.uuid for gpu in found] == ["GPU-1a", "GPU-1b"]
    program.write_text(
        "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not communicate with the driver'\nexit 9\n"
    )
    assert find_gpus(str(program)) == ()
    assert find_gpus(str(tmp_path / "absent")) == ()
