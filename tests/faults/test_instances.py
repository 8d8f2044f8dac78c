"""kill -9 of each process of a job or an endpoint, stops at every stage, and more output than anyone reads."""

import collections
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tidemill.instance.directory import InstanceDirectory
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
SLEEPER = """
    import os, time
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "w") as file:
        file.write("w" * 1000)
    print("RUN", flush=True)
    time.sleep(600)
"""
STUBBORN = f"""
    import signal, subprocess, sys
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    {SLEEPER}
"""
NUMBERS = 200_000
COUNT = f"""
    for number in range({NUMBERS}):
        print("n", number)
"""
# Stage of a job -> the fault point at which its shim waits, and the status that is shown meanwhile.
STAGES = {
    "start of the instance": ("shim.started", "Starting"),
    "environment": ("shim.environment", "DownloadingTrainingImage"),
    "download": ("shim.downloaded", "Downloading"),
    "start of the script": ("shim.launched", "Training"),
}
CLIENTS = 4

WaitUntil = Callable[[Callable[[], Any], str], Any]


@pytest.fixture(scope="module")
def jobs(jobs_of: Any) -> Iterator[Any]:
    with Service(settings={"stop_grace_s": 1, "max_instances": 2}) as service:
        yield jobs_of(service)


@pytest.fixture(scope="module")
def oracle(jobs: Any, oracle_of: Any) -> Iterator[Any]:
    made = oracle_of(jobs)
    yield made
    made.check_ends()


def start(jobs: Any, oracle: Any, script: str = SLEEPER) -> str:
    """Start a job, and wait until its script runs."""
    name = jobs.create(script)
    jobs.wait_for_line(name, "RUN")
    return name


def test_a_job_whose_shim_is_killed_twice_fails_and_leaves_no_process(
    jobs: Any, oracle: Any, wait_until: Callable[[Callable[[], Any], str], Any]
) -> None:
    name = jobs.create(SLEEPER, RetryStrategy={"MaximumRetryAttempts": 1})
    for attempt in (1, 2):
        wait_until(lambda attempt=attempt: oracle.log(name).count("RUN") == attempt, "the script of an attempt")
        assert oracle.processes(name, script=True)
        job_id = oracle.directory(name).ref.job_id
        every = {each.ref.attempt: each for each in InstanceDirectory.all_below(jobs.service.state_dir, job_id)}
        assert set(every) == set(range(1, attempt + 1))
        os.kill(every[attempt].read_run().pid, signal.SIGKILL)
    job = oracle.check(name, "Failed", lines=["RUN", "RUN"])
    assert job["FailureReason"] == "InternalServerError: instance agent lost"
    assert not job["ModelArtifacts"]["S3ModelArtifacts"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_job_whose_script_is_killed_fails_naming_the_signal(number: signal.Signals, jobs: Any, oracle: Any) -> None:
    name = start(jobs, oracle)
    for process in oracle.processes(name, script=True):
        process.kill(number)
    job = oracle.check(name, "Failed", lines=["RUN"])
    assert job["FailureReason"].startswith(f"AlgorithmError: ExecuteUserScriptError:\nExitCode -{int(number)}\n")
    assert f"{number.name} (signal {int(number)})" in job["FailureReason"]
    assert not job["ModelArtifacts"]["S3ModelArtifacts"]


def test_a_job_whose_runtime_is_killed_fails_and_its_script_ends(jobs: Any, oracle: Any) -> None:
    name = start(jobs, oracle)
    module = ("-I", "-u", "-m", "tidemill_runtime")
    runtime = [each for each in oracle.processes(name) if each.command[1:5] == module]
    assert runtime
    for process in runtime:
        process.kill(signal.SIGKILL)
    job = oracle.check(name, "Failed", lines=["RUN"])
    assert "SIGKILL (signal 9)" in job["FailureReason"]
    assert "OutOfMemory" not in job["FailureReason"]


def test_a_script_that_ignores_sigterm_is_killed_after_its_grace_and_its_model_kept(jobs: Any, oracle: Any) -> None:
    name = start(jobs, oracle, STUBBORN)
    assert len(oracle.processes(name, script=True)) == 1
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    job = oracle.check(name, "Stopped", lines=["RUN"])
    assert jobs.model_files(job)["weights"] == b"w" * 1000


def test_a_queued_job_is_stopped_without_ever_having_had_a_process(jobs: Any, oracle: Any) -> None:
    running = [start(jobs, oracle) for _ in range(2)]
    queued = jobs.create(SLEEPER)
    behind = jobs.create("print('RUN')")
    jobs.wait(queued, until=("Pending",))
    jobs.sagemaker.stop_training_job(TrainingJobName=queued)
    oracle.check(queued, "Stopped")
    assert oracle.directory(queued) is None
    assert jobs.describe(behind)["SecondaryStatus"] == "Pending"
    for name in running:
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
        oracle.check(name, "Stopped", lines=["RUN"])
    oracle.check(behind, "Completed", lines=["RUN"])


def test_a_job_is_stopped_at_once_after_its_creation(jobs: Any, oracle: Any) -> None:
    name = jobs.create(SLEEPER)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    oracle.check(name, "Stopped")


def test_a_job_is_stopped_while_its_packages_are_installed(jobs: Any, oracle: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as index:  # accepts connections, but never answers
        index.settimeout(60)
        address = f"--index-url http://127.0.0.1:{index.getsockname()[1]}/simple/\nno-such-package-of-ours\n"
        name = jobs.create("print('ran')", files={"requirements.txt": address})
        connection, _ = index.accept()
        with connection:
            jobs.sagemaker.stop_training_job(TrainingJobName=name)
            oracle.check(name, "Stopped")
    assert "ran" not in oracle.log(name)


@pytest.mark.parametrize("stage", list(STAGES))
def test_a_job_is_stopped_during(stage: str, gated: tuple[Any, Any, Path]) -> None:
    jobs, oracle, gates = gated
    for each in STAGES:
        point, status = STAGES[each]
        gate = gates / point
        if each == stage:
            gate.unlink(missing_ok=True)
            break
        gate.touch()
    name = jobs.create(SLEEPER)
    jobs.wait(name, until=(status,))
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    stops = jobs.service.state_dir.glob
    jobs.wait_until(lambda: any(stops("jobs/*/algo-1/stop.json")), "the request to stop reaches the shim")
    # The signal comes after the file, perhaps only when the shim has gone on to the next stage: it must not wait there.
    for point, _ in STAGES.values():
        (gates / point).touch()
    job = oracle.check(name, "Stopped")
    reached = [each["Status"] for each in job["SecondaryStatusTransitions"]]
    assert reached[-3:] == [STAGES[stage][1], "Stopping", "Stopped"]


@pytest.fixture(scope="module")
def gated(jobs_of: Any, oracle_of: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Path]]:
    """Yield jobs of a service whose shims wait at each stage for a file, and the directory of these files."""
    gates = tmp_path_factory.mktemp("gates")
    faults = ";".join(f"{point}:wait={gates / point}" for point, _ in STAGES.values())
    with Service(settings={"stop_grace_s": 1}, variables={"TIDEMILL_FAULTS": faults}) as service:
        jobs = jobs_of(service)
        oracle = oracle_of(jobs)
        yield jobs, oracle, gates
        oracle.check_ends()


def test_no_line_of_a_flood_is_lost_or_out_of_order_for_who_reads_along(jobs: Any, oracle: Any) -> None:
    name = jobs.create(COUNT)
    read = list(followed(jobs, name))
    times = [event["timestamp"] for event in read]
    assert times == sorted(times)
    expected = [f"n {number}" for number in range(NUMBERS)]
    assert [event["message"] for event in read if not event["message"].startswith("tidemill: ")] == expected
    oracle.check(name, "Completed", lines=expected)


def followed(jobs: Any, name: str) -> Iterator[dict[str, Any]]:
    """Yield every event of a job's log, read page by page while the job writes."""
    group = "/aws/sagemaker/TrainingJobs"
    position: dict[str, Any] = {"startFromHead": True}
    while True:
        ended = jobs.describe(name)["TrainingJobStatus"] not in ("InProgress", "Stopping")
        with contextlib.suppress(jobs.logs_client.exceptions.ResourceNotFoundException):  # before the first line of all
            streams = jobs.logs_client.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/")
            for found in streams["logStreams"]:
                page = jobs.logs_client.get_log_events(
                    logGroupName=group, logStreamName=found["logStreamName"], limit=10_000, **position
                )
                yield from page["events"]
                if ended and page["nextForwardToken"] == position.get("nextToken"):
                    return
                position["nextToken"] = page["nextForwardToken"]


@pytest.fixture(scope="module")
def endpoint(jobs: Any, archives: dict[int, bytes], wait_until: WaitUntil) -> str:
    create_endpoint(jobs, "one", archives[1])
    wait_until(lambda: status_of(jobs, "one")["EndpointStatus"] != "Creating", "the endpoint in service")
    return "one"


def kill_servers_under_load(jobs: Any, oracle: Any, endpoint: str, wait_until: WaitUntil, *, times: int) -> None:
    with Crowd(jobs.service, endpoint) as crowd:
        for _ in range(times):
            answered = crowd.least
            wait_until(lambda: crowd.least >= answered + 5, "answers for every client")  # noqa: B023
            killed = serving(oracle, endpoint)
            assert killed
            for process in killed:
                process.kill(signal.SIGKILL)
            before, gone = crowd.least, {process.pid for process in killed}
            wait_until(lambda: {p.pid for p in serving(oracle, endpoint)} - gone, "a new server")  # noqa: B023
            wait_until(lambda: crowd.least >= before + 20, "answers for every client after the kill")  # noqa: B023
    assert set(crowd.failures) <= {"ModelError"}
    assert crowd.failures.total() <= times * CLIENTS, "at most what was in flight failed"
    assert status_of(jobs, endpoint)["EndpointStatus"] == "InService"


def test_an_endpoint_whose_server_is_killed_under_load_fails_what_was_in_flight_and_serves_on(
    jobs: Any, oracle: Any, endpoint: str, wait_until: WaitUntil
) -> None:
    kill_servers_under_load(jobs, oracle, endpoint, wait_until, times=1)


@pytest.mark.matrix
def test_an_endpoint_whose_server_is_killed_again_and_again_serves_on(
    jobs: Any, oracle: Any, endpoint: str, wait_until: WaitUntil
) -> None:
    kill_servers_under_load(jobs, oracle, endpoint, wait_until, times=3)


def test_an_instance_whose_shim_is_killed_is_replaced_and_leaves_no_process(
    jobs: Any, oracle: Any, endpoint: str, wait_until: WaitUntil
) -> None:
    directory = oracle.directory(endpoint)
    assert serving(oracle, endpoint)
    with Crowd(jobs.service, endpoint) as crowd:
        wait_until(lambda: crowd.least >= 5, "answers for every client")
        os.kill(directory.read_run().pid, signal.SIGKILL)
        wait_until(lambda: not directory.ml.exists(), "the clean-up of the lost instance")
        assert not oracle.processes(endpoint), "its files were cleared, and before them its processes"
        before = crowd.least
        wait_until(lambda: crowd.least >= before + 5, "answers for every client after it")
    assert set(crowd.failures) <= {"ModelError"}
    assert crowd.failures.total() <= CLIENTS, "at most what was in flight failed"
    shown = status_of(jobs, endpoint)
    assert shown["EndpointStatus"] == "InService"
    assert shown["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    jobs.sagemaker.delete_endpoint(EndpointName=endpoint)
    jobs.sagemaker.get_waiter("endpoint_deleted").wait(
        EndpointName=endpoint, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    assert not serving(oracle, endpoint)


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["started", "environment", "downloaded", "launched", "packed", "exit"])
def test_a_job_whose_shim_dies_at_any_stage_fails_and_leaves_nothing(point: str, jobs_of: Any, oracle_of: Any) -> None:
    with Service(settings={"max_instances": 2}, variables={"TIDEMILL_FAULTS": f"shim.{point}:exit"}) as service:
        jobs = jobs_of(service)
        oracle = oracle_of(jobs)
        names = [jobs.create("print('RUN')") for _ in range(4)]
        for name in names:
            job = oracle.check(name, "Failed")
            assert job["FailureReason"] == "InternalServerError: instance agent lost"
        oracle.check_ends()


class Crowd:
    """Clients that invoke an endpoint in a loop, and count the answers."""

    def __init__(self, service: Service, endpoint: str) -> None:
        self._endpoint = endpoint
        config = Config(retries={"total_max_attempts": 1})
        self._clients = [service.boto3_session().client("sagemaker-runtime", config=config) for _ in range(CLIENTS)]
        self._answers = [0] * CLIENTS
        self._done = threading.Event()
        self._pool = ThreadPoolExecutor(CLIENTS)
        self.failures: collections.Counter[str] = collections.Counter()

    @property
    def least(self) -> int:
        """Return the number of answers that every client has received."""
        return min(self._answers)

    def __enter__(self) -> "Crowd":
        self._running = [self._pool.submit(self._work, index) for index in range(CLIENTS)]
        return self

    def __exit__(self, *_exception: object) -> None:
        self._done.set()
        self._pool.shutdown()
        for each in self._running:
            each.result()

    def _work(self, index: int) -> None:
        while not self._done.is_set():
            try:
                reply = self._clients[index].invoke_endpoint(
                    EndpointName=self._endpoint, ContentType="application/json", Body=b'{"instances": [2.0]}'
                )
                assert reply["Body"].read().split() == b'{ "predictions": [1.0 ] }'.split()
            except ClientError as error:
                self.failures[error.response["Error"]["Code"]] += 1
            else:
                self._answers[index] += 1
            time.sleep(0.01)  # leaves CPU for the server, which must start again


def create_endpoint(jobs: Any, name: str, archive: bytes) -> None:
    jobs.s3.put_object(Bucket=BUCKET, Key=f"{name}/model.tar.gz", Body=archive)
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": f"s3://{BUCKET}/{name}/model.tar.gz"}
    jobs.sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {"VariantName": "v", "ModelName": name, "InstanceType": "local", "InitialInstanceCount": 1}
    jobs.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    jobs.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


def status_of(jobs: Any, endpoint: str) -> Any:
    return jobs.sagemaker.describe_endpoint(EndpointName=endpoint)


def serving(oracle: Any, endpoint: str) -> list[Any]:
    """Return the endpoint's server, without the sandbox around it."""
    return [each for each in oracle.processes(endpoint) if each.command[1:3] == ("-m", "tidemill_serving")]
