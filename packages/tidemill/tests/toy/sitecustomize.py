"""Replaces the real application with a small one, so that tests of the process need nothing else.

If this directory is on the path of a child process, the module is imported at its start. The application answers
`/healthz` and the few operations that the command line uses, from `toy.json` in the state directory.
"""

import contextlib
import gc
import json
import os
import sys
import types

ENDED = ("Completed", "Failed", "Stopped")


class Toy:
    def __init__(self, settings, *, state, keys, url, public_url, relay) -> None:
        self.file = state.root / "toy.json"
        self.warm = settings.warm
        self.stop_at_once = os.environ.get("TOY_NEVER_STOPS") is None

    async def __call__(self, exchange) -> None:
        body = b""
        more = True
        while more:
            data, more = await exchange.receive()
            body += data
        if b"authorization" in exchange.fields and exchange.prove is not None:
            exchange.prove()
        path, target = exchange.target.decode().partition("?")[0], exchange.fields.get(b"x-amz-target", b"").decode()
        status, answer = self.answer(path, target, body)
        exchange.start(status, [(b"content-type", b"application/x-amz-json-1.1")])
        exchange.send(json.dumps(answer).encode())

    def begin_leases(self) -> None:
        """There are no leases."""

    def end_waits(self) -> None:
        """No request waits."""

    @contextlib.asynccontextmanager
    async def opened(self):
        failure = os.environ.get("TOY_FAILS")
        if failure == "refuses":
            from tidemill.errors import ConfigurationError

            raise ConfigurationError("the toy refuses to start; wind it up")
        if failure == "crashes":
            raise RuntimeError("a spring broke")
        yield self
        (self.file.parent / "toy-closed").touch()

    def answer(self, path: str, target: str, body: bytes):
        if path == "/healthz":
            return 200, {
                "status": "ok",
                "isolation": "mount",
                "warm": "on" if self.warm else "off",
                "objects_set_aside": gc.get_freeze_count(),
            }
        state = json.loads(self.file.read_text()) if self.file.exists() else {"jobs": {}, "endpoints": {}, "logs": {}}
        request = json.loads(body or b"{}")
        operation = getattr(self, target.rpartition(".")[2], None)
        if operation is None:
            return 400, {"__type": "UnknownOperationException", "message": target}
        return operation(state, request)

    def ListTrainingJobs(self, state, request):
        wanted = request.get("StatusEquals")
        jobs = [
            {
                "TrainingJobName": name,
                "TrainingJobArn": f"arn:aws:sagemaker:us-west-2:000000000000:training-job/{name}",
                "TrainingJobStatus": status,
                "SecondaryStatus": "Training" if status == "InProgress" else status,
                "CreationTime": 1_700_000_000,
                **({"TrainingEndTime": 1_700_000_192} if status in ENDED else {}),
            }
            for name, status in state["jobs"].items()
            if wanted in (None, status)
        ]
        return 200, {"TrainingJobSummaries": jobs}

    def ListProcessingJobs(self, state, request):
        return 200, {"ProcessingJobSummaries": []}

    def DescribeProcessingJob(self, state, request):
        return 400, {"__type": "ValidationException", "message": "Could not find requested job."}

    def ListTransformJobs(self, state, request):
        return 200, {"TransformJobSummaries": []}

    def DescribeTransformJob(self, state, request):
        return 400, {"__type": "ValidationException", "message": "Could not find requested job."}

    def ListHyperParameterTuningJobs(self, state, request):
        return 200, {"HyperParameterTuningJobSummaries": []}

    def DescribeHyperParameterTuningJob(self, state, request):
        return 400, {"__type": "ResourceNotFound", "message": "Could not find requested job."}

    def ListPipelines(self, state, request):
        return 200, {"PipelineSummaries": []}

    def ListEndpoints(self, state, request):
        return 200, {
            "Endpoints": [
                {"EndpointName": name, "EndpointArn": name, "EndpointStatus": status, "CreationTime": 1_700_000_000}
                for name, status in state["endpoints"].items()
            ]
        }

    def StopTrainingJob(self, state, request):
        name = request["TrainingJobName"]
        if name not in state["jobs"]:
            return 400, {"__type": "ValidationException", "message": "Requested resource not found."}
        state["jobs"][name] = "Stopped" if self.stop_at_once else "Stopping"
        self.file.write_text(json.dumps(state))
        return 200, {}

    def DescribeTrainingJob(self, state, request):
        status = state["jobs"].get(request["TrainingJobName"])
        if status is None:
            return 400, {"__type": "ValidationException", "message": "Requested resource not found."}
        return 200, {"TrainingJobName": request["TrainingJobName"], "TrainingJobStatus": status}

    def DescribeEndpoint(self, state, request):
        status = state["endpoints"].get(request["EndpointName"])
        if status is None:
            return 400, {"__type": "ValidationException", "message": "Could not find endpoint."}
        return 200, {"EndpointName": request["EndpointName"], "EndpointStatus": status}

    def DeleteEndpoint(self, state, request):
        del state["endpoints"][request["EndpointName"]]
        self.file.write_text(json.dumps(state))
        return 200, {}

    def DescribeLogStreams(self, state, request):
        prefix = request.get("logStreamNamePrefix", "")
        names = [name for name in state["logs"].get(request["logGroupName"], {}) if name.startswith(prefix)]
        if not names:
            return 400, {"__type": "ResourceNotFoundException", "message": "The specified log group does not exist."}
        return 200, {"logStreams": [{"logStreamName": name} for name in names]}

    def GetLogEvents(self, state, request):
        lines = state["logs"][request["logGroupName"]][request["logStreamName"]]
        # Two lines per page, so that a reader has to request several.
        start = int(request.get("nextToken", "f/0").removeprefix("f/"))
        page = lines[start : start + 2]
        # A line may be a pair of time and text.
        events = [
            {"timestamp": line[0], "message": line[1]}
            if isinstance(line, list)
            else {"timestamp": 1_700_000_000_000, "message": line}
            for line in page
        ]
        return 200, {"events": events, "nextForwardToken": f"f/{start + len(page)}", "nextBackwardToken": "b/0"}


module = types.ModuleType("tidemill.server.app")
module.Application = Toy
sys.modules["tidemill.server.app"] = module
