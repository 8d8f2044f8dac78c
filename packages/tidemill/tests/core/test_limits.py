"""The limits of an instance, from settings and its type."""

from tidemill.core.limits import InstanceLimits, LimitPolicy


def test_without_settings_there_are_no_limits() -> None:
    assert not LimitPolicy().of("ml.m5.large", volume_gib=30)


def test_a_type_limits_memory_and_processors_and_the_request_the_disk() -> None:
    limits = LimitPolicy(by_type=True).of("ml.m5.large", volume_gib=30)
    assert limits == InstanceLimits(memory_bytes=8 << 30, cpus=2, disk_bytes=30 << 30, source="ml.m5.large")
    assert not LimitPolicy(by_type=True).of("local", volume_gib=None)


def test_a_setting_wins_over_the_type() -> None:
    limits = LimitPolicy(by_type=True, memory_mib=100, disk_mib=5, processes=7).of("ml.m5.large", volume_gib=30)
    assert (limits.memory_bytes, limits.cpus, limits.processes, limits.disk_bytes) == (100 << 20, 2, 7, 5 << 20)
