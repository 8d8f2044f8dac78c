"""What an agent concludes from a refusal of the service: whether its attempt is over, or to try again."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tidemill.core.instances import InstanceRef
from tidemill.node.service import AttemptOver, ServiceAway, ServiceClient


@pytest.mark.parametrize(
    ("status", "conclusion"),
    [(400, AttemptOver), (403, AttemptOver), (408, ServiceAway), (429, ServiceAway), (503, ServiceAway)],
)
def test_only_a_refusal_that_is_permanent_ends_an_attempt(status: int, conclusion: type[Exception]) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables = {
            "AWS_REGION": "us-west-2",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        try:
            with pytest.raises(conclusion):
                ServiceClient(InstanceRef("ab" * 16, 0), variables).report()
        finally:
            server.shutdown()
