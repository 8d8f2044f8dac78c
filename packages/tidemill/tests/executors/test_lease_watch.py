from tidemill.core.instances import InstanceRef
from tidemill.executors.cluster.lease_watch import LeaseWatch

LEASE_S = 60.0
MANY = 1000


class Leases:
    """Leases of instances, at a time that the test sets, and how often they were looked at."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ends: dict[InstanceRef, float] = {}
        self.looks = 0
        self.watch = LeaseWatch(self.look, now_s=lambda: self.now_s)

    def look(self, ref: InstanceRef) -> float:
        self.looks += 1
        return self.ends[ref]

    def begin(self, count: int) -> list[InstanceRef]:
        refs = [InstanceRef(f"{number:032x}", 0) for number in range(count)]
        for ref in refs:
            self.ends[ref] = self.now_s + LEASE_S
            self.watch.add(ref)
        return refs


def test_the_end_of_a_lease_is_reported_once() -> None:
    leases = Leases()
    first, second = leases.begin(2)
    assert leases.watch.ended() == set()
    leases.now_s += LEASE_S / 2
    leases.ends[second] = leases.now_s + LEASE_S
    leases.now_s += LEASE_S / 2
    assert leases.watch.ended() == {first}
    assert leases.watch.ended() == set()
    leases.now_s += LEASE_S
    assert leases.watch.ended() == {second}


def test_an_instance_that_is_no_longer_watched_is_not_reported() -> None:
    leases = Leases()
    first, second = leases.begin(2)
    leases.watch.discard(first)
    leases.now_s += LEASE_S
    assert leases.watch.ended() == {second}


def test_instances_whose_lease_lasts_are_not_looked_at() -> None:
    leases = Leases()
    leases.begin(MANY)
    for _ in range(100):
        assert leases.watch.ended() == set()
    assert leases.looks == MANY, "each once, to learn when its lease ends"
