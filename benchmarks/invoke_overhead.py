"""Measure the CPU time of an InvokeEndpoint in the service's process and in the model's server.

    python benchmarks/invoke_overhead.py MODEL.tar.gz [--requests 3000] [--connections 32] [--rounds 3]

The model should do very little work, e.g. halve a number; each request is `{"instances": [1.0]}`. Requests are signed
before the clock starts. Client and servers share the machine, so compare the CPU time, not the requests per second.
"""

import argparse
import asyncio
import statistics
import time
from pathlib import Path

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from control_plane import cpu_s, load
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.process_tree import MARK
from tidemill.testing import Service

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
BUCKET = "sagemaker-us-west-2-000000000000"
BODY = b'{"instances": [1.0]}'


def signed(service: Service) -> bytes:
    """Return a complete, signed HTTP request."""
    variables = service.environment
    credentials = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
    path = "/endpoints/half/invocations"
    request = AWSRequest("POST", service.url + path, headers={"content-type": "application/json"}, data=BODY)
    SigV4Auth(credentials, "sagemaker", variables["AWS_REGION"]).add_auth(request)
    lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    host = service.url.partition("//")[2]
    return f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(BODY)}\r\n{lines}\r\n".encode() + BODY


def deploy(service: Service, archive: Path) -> None:
    """Create an endpoint of one instance that serves the archive."""
    service.client("s3").upload_file(str(archive), BUCKET, "half/model.tar.gz")
    sagemaker = service.client("sagemaker")
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": f"s3://{BUCKET}/half/model.tar.gz"}
    sagemaker.create_model(ModelName="half", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {"VariantName": "v", "ModelName": "half", "InstanceType": "local", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="half", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="half", EndpointConfigName="half")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="half", WaiterConfig={"Delay": 1, "MaxAttempts": 120})


def instance_pids(service: Service) -> list[int]:
    """Return the ids of the processes of the endpoint's instance."""
    (directory,) = InstanceDirectory.all_below(service.state_dir)
    mark = f"{MARK}={directory.ref.mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue  # the process has ended, or belongs to another user
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with Service() as service:
        deploy(service, arguments.archive)
        requests, pids = [signed(service)] * arguments.requests, instance_pids(service)
        assert service.pid is not None
        asyncio.run(load(service.url, requests[:500], arguments.connections))
        costs = []
        for number in range(arguments.rounds):
            before, model_before = cpu_s(service.pid), sum(map(cpu_s, pids))
            began = time.monotonic()
            asyncio.run(load(service.url, requests, arguments.connections))
            took_s = time.monotonic() - began
            used = (cpu_s(service.pid) - before) / len(requests) * 1e6
            model = (sum(map(cpu_s, pids)) - model_before) / len(requests) * 1e6
            costs.append(used)
            print(
                f"round {number + 1}: service {used:.0f} us of CPU a request, model's server {model:.0f} us,"
                f" {len(requests) / took_s:.0f} requests/s"
            )
        median_us = statistics.median(costs)
        print(f"median: service {median_us:.0f} us of CPU a request, {arguments.connections} connections")


if __name__ == "__main__":
    main()
