import threading

from polling import poll
from tidemill.executors.base import Capacity
from tidemill.executors.cluster.capacity import KnownCapacity

WAIT_S = 60.0


def capacity_of(machines: int) -> Capacity:
    return Capacity(instances=machines, cpus=machines, gpus=0)


def test_a_cluster_that_answers_late_or_not_at_all_delays_nobody() -> None:
    now_s = 0.0
    may_answer, was_asked = threading.Event(), threading.Semaphore(0)
    answers = [capacity_of(3), OSError("the cluster is away"), capacity_of(4)]

    def ask() -> Capacity:
        was_asked.release()
        assert may_answer.wait(WAIT_S)
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    may_answer.set()
    capacity = KnownCapacity(ask, now_s=lambda: now_s)
    assert was_asked.acquire(timeout=WAIT_S)
    assert capacity.get().instances == 3
    may_answer.clear()
    for _ in range(2):
        now_s += 3
        assert capacity.get().instances == 3, "the answer is not there yet"
        assert capacity.get().instances == 3, "it is not asked twice"
    may_answer.set()
    assert was_asked.acquire(timeout=WAIT_S)
    assert was_asked.acquire(timeout=WAIT_S)
    poll(lambda: capacity.get().instances == 4)
    assert not was_asked.acquire(blocking=False)
    capacity.close()
    now_s += 3
    assert capacity.get().instances == 4
    assert not was_asked.acquire(blocking=False)
