"""Other model servers for `serving.py --peers`: each with its default settings, in a separate environment.

Each serves ``half_plus_two`` with the signature of the loaded SavedModel, as the server's documentation shows it.
``make serving-peers`` makes the environments from requirements/serving-*.txt.
"""

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PEERS", "Peer"]

ENVIRONMENTS = Path(__file__).resolve().parent.parent / ".venvs"


@dataclass(frozen=True)
class Peer:
    """A server.

    Attributes:
        name: The server's environment is ``serving-NAME``.
        files: Content of the files that the server needs, by name. ``MODEL`` is replaced by the model's directory,
            ``PORT`` by the port.
        command: A program of the environment's ``bin`` and its arguments; it runs in the directory of the files.
        target: Path of the URL for predictions.
        body: A request of one row.
    """

    name: str
    files: dict[str, str]
    command: tuple[str, ...]
    target: str
    body: str

    @property
    def programs(self) -> Path:
        """The directory of the environment's programs."""
        return ENVIRONMENTS / f"serving-{self.name}" / "bin"


LITSERVE = """
import litserve, tensorflow as tf
class Half(litserve.LitAPI):
    def setup(self, device):
        self.model = tf.saved_model.load("MODEL")
        self.run = self.model.signatures["serving_default"]
    def decode_request(self, request):
        return tf.constant(request["instances"], tf.float32)
    def predict(self, x):
        return self.run(x=x)["y"].numpy().tolist()
    def encode_response(self, output):
        return {"predictions": output}
if __name__ == "__main__":
    litserve.LitServer(Half(), accelerator="cpu").run(host="127.0.0.1", port=PORT, generate_client_file=False)
"""
BENTOML = """
import bentoml
@bentoml.service
class Half:
    def __init__(self):
        import tensorflow as tf
        self.tf, self.model = tf, tf.saved_model.load("MODEL")
        self.run = self.model.signatures["serving_default"]
    @bentoml.api
    def predict(self, instances: list[float]) -> dict:
        return {"predictions": self.run(x=self.tf.constant(instances, self.tf.float32))["y"].numpy().tolist()}
"""
ROW = json.dumps({"instances": [1.0]})
PEERS = (
    Peer("litserve", {"serve.py": LITSERVE}, ("python", "serve.py"), "/predict", ROW),
    Peer(
        "bentoml",
        {"service.py": BENTOML},
        ("bentoml", "serve", "service:Half", "--host", "127.0.0.1", "--port", "PORT"),
        "/predict",
        ROW,
    ),
)
