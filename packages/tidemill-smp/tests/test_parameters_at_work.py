"""Parameters and environment variables, tested by their effect in a job."""

import json
from pathlib import Path
from typing import Any

import pytest

import ranks
import smdistributed.modelparallel.tensorflow as smp

pytestmark = pytest.mark.smp_long


def test_a_cut_is_written_to_a_file_edited_and_loaded(tmp_path: Path) -> None:
    file = tmp_path / "cut.json"
    config = {"microbatches": 2, "partition_file": str(file)}
    for decided, _ in ranks.run(2, cut_and_train, config=config):
        assert sorted(set(decided.values())) == [0, 1]
    kept = json.loads(file.read_text())
    for unit in kept["units"]:
        unit["partition"] = int(not unit["name"].endswith("dense"))  # only the first layer
    file.write_text(json.dumps(kept))
    losses = []
    for again, loss in ranks.run(2, cut_and_train, config={**config, "load_partition": True}):
        assert [name.rsplit("/", 1)[-1] for name, part in sorted(again.items()) if part == 0] == ["dense"]
        losses.append(loss)
    assert losses[0] == losses[1]
    file.unlink()
    for failure in ranks.run(2, cut_and_train, config={**config, "load_partition": True}, check=False):
        assert failure.kind == "SMPPartitionError" and str(file) in failure.text


def cut_and_train() -> Any:
    """Return unit -> partition, and the loss of a step."""
    import keras

    import models
    from checkpoints import forget_the_step_before
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    forget_the_step_before()
    keras.utils.set_random_seed(3)
    losses = models.smp_steps(models.distributed(models.Chain)(2), keras.optimizers.SGD(0.1), models.batches(2, 8))
    return engine().decided.automatic, losses[-1]


def test_the_first_rank_logs_the_report_of_the_cut() -> None:
    first, other = ranks.run(2, listen_while_cutting, config={"microbatches": 2})
    assert other == []
    (report,) = first
    assert report.startswith("partition\npart  units  time ms")
    assert "2 partitions, 2 microbatches, optimize=memory, pipeline=interleaved" in report


def listen_while_cutting() -> list[str]:
    import logging

    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("smdistributed.modelparallel")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        cut_and_train()
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    return messages


def test_variables_choose_the_transport_and_keep_the_sizes_of_thread_pools() -> None:
    environment = {"SMP_TRANSPORT": "python", "TF_NUM_INTRAOP_THREADS": "3", "TF_NUM_INTEROP_THREADS": "4"}
    assert ranks.run(2, look_around, environment=environment) == [("python", (0, 0))] * 2
    # The configuration has precedence over the variable.
    environment = {"SMP_TRANSPORT": "python"}
    for name, pools in ranks.run(2, look_around, config={"transport": "native"}, environment=environment):
        assert name == "native" and min(pools) > 0


def look_around() -> Any:
    """Return the transport, and the pool sizes set by calls, which have precedence over TensorFlow's variables."""
    import tensorflow as tf

    from smdistributed.modelparallel.tensorflow.session import current

    threading = tf.config.threading
    pools = threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads()
    return current().transport.name, pools


def test_parameters_of_other_frameworks_are_accepted_without_effect() -> None:
    idle = {"xla": True, "fork": False, "deterministic_server": True, "memory_weight": 0.5, "trace_device": "cpu"}
    assert ranks.run(2, cut_and_train, config={"microbatches": 2, **idle}) == ranks.run(
        2, cut_and_train, config={"microbatches": 2}
    )


def meet_in_every_group() -> Any:
    """Return the results of allgather in each group after each barrier, and objects from a neighbor and a replica."""
    gathered = {}
    for group in smp.CommGroup:
        smp.barrier(group)
        gathered[group.name] = smp.allgather(smp.rank(), group)
    smp.mp_barrier()
    smp.dp_barrier()
    smp.core.barrier()
    received = []
    for kind, place in ((smp.RankType.PP_RANK, smp.pp_rank()), (smp.RankType.RDP_RANK, smp.rdp_rank())):
        if place == 0:
            smp.send(smp.rank(), 1, kind)
        else:
            received.append(smp.recv_from(0, kind))
    return gathered, received


def test_the_groups_of_other_frameworks_exist() -> None:
    results = ranks.run(4, meet_in_every_group, config={"partitions": 2})
    for rank, (gathered, received) in enumerate(results):
        assert gathered["PP_GROUP"] == gathered["MP_GROUP"] == [[0, 1], [0, 1], [2, 3], [2, 3]][rank]
        assert gathered["RDP_GROUP"] == gathered["DP_GROUP"] == [[0, 2], [1, 3], [0, 2], [1, 3]][rank]
        assert gathered["TP_GROUP"] == [rank] and gathered["WORLD"] == [0, 1, 2, 3]
        assert received == [[], [0], [0], [2, 1]][rank]
