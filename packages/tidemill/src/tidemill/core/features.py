"""Which features the environment of each TensorFlow version has.

`docs/reference/job-environments.md` shows this table, and `make matrix-versions` runs every feature on every version
that has it (`tests/versions/conftest.py`).
"""

from dataclasses import dataclass

from tidemill.core.frameworks import FRAMEWORKS, MODEL_PARALLEL_SINCE, Framework

OLDEST = (1, 15)
COMPILER_SINCE = (2, 12)
"""The oldest version whose training steps the compiler compiles; older ones train plainly, with a notice."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that only some TensorFlow versions have.

    Attributes:
        title: Its row in the table, in Markdown.
        since: Oldest version that has it.
        until: Newest version that has it. Default: all newer ones do.
    """

    title: str
    since: tuple[int, int] = OLDEST
    until: tuple[int, int] | None = None

    def is_in(self, framework: Framework) -> bool:
        """Return whether the environment of a TensorFlow version has the feature."""
        return self.since <= framework.number and (self.until is None or framework.number <= self.until)


FEATURES = {
    "scripts": Feature("scripts: `SM_*` variables, arguments, channels, `model_dir`"),
    "packages": Feature("packages of SageMaker's images (below)"),
    "pipe mode": Feature("`PipeModeDataset`"),
    "s3": Feature("`s3://` in TensorFlow"),
    "estimator": Feature("`tf.estimator`", until=(2, 15)),
    "mpi": Feature("`mpirun`; `mpi4py` from 2.4 on"),
    "horovod": Feature("Horovod"),
    "model parallelism": Feature("model parallelism (`smdistributed`)", since=MODEL_PARALLEL_SINCE),
    "compiler": Feature("training compiler", since=COMPILER_SINCE),
}
"""The features by short name, which tests name by ``@pytest.mark.feature``."""


def versions_with(name: str) -> list[str]:
    """Return the TensorFlow versions that have a feature, oldest first.

    Args:
        name: A key of `FEATURES`.

    Raises:
        KeyError: There is no such feature.
    """
    return [version for version, each in reversed(FRAMEWORKS.items()) if FEATURES[name].is_in(each)]


def table(cells: dict[tuple[str, str], str] | None = None) -> str:
    """Return a Markdown table of the features by version, oldest version first.

    Args:
        cells: Text by feature and version instead of ``yes``, e.g. outcomes of tests. Default: ``yes`` for each
            version that has the feature.
    """
    versions = list(reversed(FRAMEWORKS))
    if cells is None:
        cells = {(name, version): "yes" for name in FEATURES for version in versions_with(name)}
    lines = [f"| | {' | '.join(versions)} |", f"|---|{'---|' * len(versions)}"]
    for name, feature in FEATURES.items():
        row = [cells.get((name, version), "") for version in versions]
        lines.append(f"| {feature.title} | {' | '.join(row)} |")
    return "\n".join(lines)
