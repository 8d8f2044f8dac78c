"""Settings of every test run."""

from hypothesis import HealthCheck, settings

# Hypothesis fails a test whose examples take long to generate or to run. On a busy machine any example may.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")
