"""The metrics of a real job by AWS's own clients: while it runs, across a kill of the service, and at its end."""

import json
import subprocess
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import botocore
import botocore.session
import pytest

from tidemill.testing import Service

# Keras writes each epoch's results at the end of a line that it keeps redrawing.
SCRIPT = """
    import signal, sys, threading
    import numpy, keras

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    x = numpy.linspace(0, 1, 64)[:, None]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(x, 2 * x, validation_split=0.25, batch_size=4, epochs=3).history
    print("EXPECTED", history["val_loss"], flush=True)
    while not stopped.wait(60):
        pass
    print("\\nloss: 0.125 of the end", flush=True)
"""
DEFINITIONS = [
    {"Name": "loss", "Regex": r"(?:^|\s)loss: ([0-9.e+-]+)"},
    {"Name": "validation:loss", "Regex": "val_loss: ([0-9.e+-]+)"},
]
# Keras prints results with four digits behind the point.
HALF_A_DIGIT = 0.51e-4
ANALYTICS = """
    import sys
    from sagemaker.analytics import TrainingJobAnalytics

    frame = TrainingJobAnalytics(sys.argv[1], metric_names=["loss", "validation:loss"], period=1).dataframe()
    print("METRICS", *sorted(set(frame.metric_name)))
    print("LAST", frame[frame.metric_name == "loss"].value.iloc[-1])
"""


class Watched:
    """A job with metrics, and the service that runs it."""

    def __init__(self, service: Service, jobs: Any, directory: Path) -> None:
        self.service = service
        self.jobs = jobs
        self.name = ""
        self._directory = directory

    def samples(self, metric: str, session: Any = None) -> list[float]:
        """Return the averages of periods of one minute, each repeated as often as the period has points."""
        client = session or self.service.client("cloudwatch")
        now = datetime.now(UTC)
        reply = client.get_metric_statistics(
            Namespace="/aws/sagemaker/TrainingJobs",
            MetricName=metric,
            Dimensions=[{"Name": "TrainingJobName", "Value": self.name}],
            StartTime=now - timedelta(minutes=30),
            EndTime=now + timedelta(minutes=1),
            Period=60,
            Statistics=["Average", "SampleCount"],
        )
        points = sorted(reply["Datapoints"], key=lambda point: point["Timestamp"])
        return [point["Average"] for point in points for _ in range(int(point["SampleCount"]))]

    def wait_for(self, metric: str, count: int) -> list[float]:
        self.jobs.wait_until(lambda: len(self.samples(metric)) >= count, lambda: "\n".join(self.jobs.log(self.name)))
        return self.samples(metric)

    def by_peer(self, root: Path, *command: str) -> str:
        """Return the output of a client in the environment of AWS's clients."""
        done = subprocess.run(
            [root / ".venvs/peers/bin" / command[0], *command[1:]],
            env={"PATH": "/usr/bin:/bin", "HOME": str(self._directory), **self.service.environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def watched(jobs_of: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Start a job that waits for its stop after three epochs of Keras."""
    directory = tmp_path_factory.mktemp("client")
    with Service(settings={"stop_grace_s": 30}) as service:
        jobs = jobs_of(service)
        watched = Watched(service, jobs, directory)
        request = jobs.request(textwrap.dedent(SCRIPT))
        request["AlgorithmSpecification"]["MetricDefinitions"] = DEFINITIONS
        jobs.sagemaker.create_training_job(**request)
        watched.name = request["TrainingJobName"]
        watched.wait_for("validation:loss", 3)
        jobs.wait_until(lambda: expected(watched), "the script's own results")
        yield watched


def expected(watched: Watched) -> list[float]:
    """Return the results of the epochs, as the script has printed them; empty if it has not yet."""
    line = next((line for line in watched.jobs.log(watched.name) if line.startswith("EXPECTED")), "EXPECTED []")
    return [float(value) for value in json.loads(line.removeprefix("EXPECTED "))]


@pytest.mark.matrix
def test_results_of_epochs_stand_once_each_while_the_job_runs(watched: Watched) -> None:
    values = watched.samples("validation:loss")
    assert len(values) == 3
    assert sum(values) / 3 == pytest.approx(sum(expected(watched)) / 3, abs=HALF_A_DIGIT)
    # Intermediate states of the bar count too, once each: a logged line ends with the previous state.
    log = [line for line in watched.jobs.log(watched.name) if "loss: " in line]
    distinct = [line for number, line in enumerate(log) if number == 0 or line != log[number - 1].removesuffix("\r")]
    assert len(watched.samples("loss")) == len(distinct) >= 3


def test_the_sdk_makes_a_data_frame_of_a_job_that_runs(watched: Watched, root: Path, tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text(textwrap.dedent(ANALYTICS))
    output = watched.by_peer(root, "python", str(tmp_path / "client.py"), watched.name)
    assert "METRICS loss validation:loss\n" in output


def test_the_command_line_interface_shows_metrics(watched: Watched, root: Path) -> None:
    listed = json.loads(watched.by_peer(root, "aws", "cloudwatch", "list-metrics"))["Metrics"]

    def with_dimension(name: str) -> set[str]:
        return {each["MetricName"] for each in listed if [one["Name"] for one in each["Dimensions"]] == [name]}

    assert with_dimension("TrainingJobName") == {"loss", "validation:loss"}
    assert with_dimension("Host") == {"CPUUtilization", "MemoryUtilization", "DiskUtilization"}
    now = datetime.now(UTC)
    shown = watched.by_peer(
        root, "aws", "cloudwatch", "get-metric-statistics", "--namespace", "/aws/sagemaker/TrainingJobs",
        "--metric-name", "validation:loss", "--dimensions", f"Name=TrainingJobName,Value={watched.name}",
        "--start-time", (now - timedelta(minutes=30)).isoformat(), "--end-time", now.isoformat(), "--period", "1800",
        "--statistics", "Minimum",
    )  # fmt: skip
    lowest = min(point["Minimum"] for point in json.loads(shown)["Datapoints"])
    assert lowest == pytest.approx(min(expected(watched)), abs=HALF_A_DIGIT)


def test_clients_that_speak_the_query_protocol_get_the_same(watched: Watched, tmp_path: Path) -> None:
    """botocore used the query protocol for CloudWatch until 2025; its model requests it without another protocol."""
    session = botocore.session.Session()
    model = session.get_component("data_loader").load_service_model("cloudwatch", "service-2")
    model["metadata"] |= {"protocol": "query", "protocols": ["query"]}
    del model["metadata"]["awsQueryCompatible"]
    directory = tmp_path / "cloudwatch/2010-08-01"
    directory.mkdir(parents=True)
    (directory / "service-2.json").write_text(json.dumps(model))
    session.get_component("data_loader").search_paths.insert(0, str(tmp_path))
    credentials = watched.service.boto3_session().get_credentials()
    session.set_credentials(credentials.access_key, credentials.secret_key)
    client = boto3.Session(botocore_session=session, region_name="us-west-2").client(
        "cloudwatch", endpoint_url=watched.service.url
    )
    requests: list[Any] = []
    client.meta.events.register("before-send", lambda request, **_: requests.append(request) and None)
    assert watched.samples("validation:loss", client) == watched.samples("validation:loss")
    assert "Action=GetMetricStatistics" in str(requests[0].body)
    with pytest.raises(client.exceptions.InvalidParameterValueException):
        client.get_metric_statistics(
            Namespace="n", MetricName="m", StartTime=1, EndTime=2, Period=7, Statistics=["Average"]
        )


def test_points_outlive_a_kill_of_the_service_and_the_end_of_the_job(
    watched: Watched, root: Path, tmp_path: Path
) -> None:
    before = watched.samples("loss")
    watched.service.kill()
    watched.service.start()
    assert watched.samples("loss") == before
    watched.jobs.sagemaker.stop_training_job(TrainingJobName=watched.name)
    job = watched.jobs.wait(watched.name)
    assert len(watched.samples("loss")) == len(before) + 1
    final = {metric["MetricName"]: metric["Value"] for metric in job["FinalMetricDataList"]}
    assert final == {
        "loss": 0.125,
        "validation:loss": pytest.approx(expected(watched)[-1], abs=HALF_A_DIGIT),
    }
    (tmp_path / "client.py").write_text(textwrap.dedent(ANALYTICS))
    assert "LAST 0.125" in watched.by_peer(root, "python", str(tmp_path / "client.py"), watched.name)
