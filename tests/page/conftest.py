"""One service and one browser for all tests of the page."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tidemill.server.client import own_client
from tidemill.testing import Service

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "packages/tidemill/src/tidemill/page/index.html"
SOURCE = ROOT / "packages/tidemill/page"
# As long as any wait here: only a failure takes so long.
expect.set_options(timeout=60_000)
PageOf = Callable[..., Page]
LEARNING = """
import argparse, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--note")
rate = parser.parse_known_args()[0].rate
for epoch in range(1, 21):
    print(f"epoch {epoch} loss={1 / (1 + rate * epoch):.4f} accuracy={1 - 1 / (1 + rate * epoch):.4f}")
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text(str(rate))
"""


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    with Service(settings={"stop_grace_s": 1, "max_instances": 4, "log_search_cpu_s": 1}) as running:
        yield running


@pytest.fixture(scope="session")
def jobs(service: Service, jobs_of: Callable[[Service], Any]) -> Any:
    """Jobs of the service of these tests."""
    return jobs_of(service)


@pytest.fixture(scope="session")
def hostile() -> str:
    """Text of a user that would run, or deceive, where it is not shown as text."""
    return "<img src=x onerror=\"document.title='owned'\">\u202eexe"


@pytest.fixture(scope="session")
def finished(jobs: Any, hostile: str) -> tuple[str, str]:
    """The names of two finished jobs with 20 values of two metrics each. The second has a hostile hyperparameter."""

    def begin(name: str, **given: str) -> str:
        request: Mapping[str, Any] = jobs.request(
            LEARNING, name=name, HyperParameters={"epochs": "20", **given}, Environment={"STAGE": "page"}
        )
        definitions = [{"Name": metric, "Regex": f"{metric}=([0-9.]+)"} for metric in ("loss", "accuracy")]
        request["AlgorithmSpecification"]["MetricDefinitions"] = definitions
        jobs.sagemaker.create_training_job(**request)
        return name

    names = begin("page-slow", rate="0.1"), begin("page-fast", rate="0.9", note=hostile)
    for name in names:
        assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    return names


@pytest.fixture(scope="session")
def begun_endpoint(jobs: Any, saved_model: Path) -> str:
    """The name of an endpoint that has begun. A second configuration is asynchronous."""
    name, bucket, role = "halves", "sagemaker-us-west-2-000000000000", "arn:aws:iam::000000000000:role/SageMakerRole"
    sagemaker = jobs.sagemaker
    jobs.s3.put_object(Bucket=bucket, Key=f"{name}/model.tar.gz", Body=saved_model.read_bytes())
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": f"s3://{bucket}/{name}/model.tar.gz"}
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "A", "ModelName": name, "InstanceType": "local", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sagemaker.create_endpoint_config(
        EndpointConfigName=f"{name}-2",
        ProductionVariants=[variant],
        AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": f"s3://{bucket}/{name}/answers"}},
    )
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    return name


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """Begin what takes long if a chosen test needs it: it gets ready while other tests run."""
    if any("begun_endpoint" in getattr(each, "fixturenames", ()) for each in request.session.items):
        request.getfixturevalue("begun_endpoint")


@pytest.fixture(scope="session")
def tidemill(service: Service) -> Any:
    """A client of tidemill's own operations, with the owner's keys."""
    return own_client(service.boto3_session(), service.url)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not BUILT.exists():
        pytest.skip("the page is not built: make page (needs Node.js 20.19 or later)")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium here: apt install chromium")
    with sync_playwright() as playwright:
        # Names of other hosts that lead to this machine, as a stranger's name server would have it.
        arguments = ["--host-resolver-rules=MAP *.test 127.0.0.1"]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=program, args=arguments)
        yield running
        running.close()


@pytest.fixture(scope="session")
def signed_in(browser: Browser, service: Service, tidemill: Any) -> Iterator[BrowserContext]:
    """The context of a browser with a session of the owner."""
    context = browser.new_context(base_url=service.url)
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(f"/_tidemill/#token={tidemill.create_page_token()['Token']}")
    page.get_by_role("button", name="Sign out").wait_for()
    page.close()
    yield context
    context.close()


@pytest.fixture
def page_of(signed_in: BrowserContext) -> Iterator[PageOf]:
    """Return a function that opens a view, e.g. ``page_of("jobs?status=Failed")``.

    Keyword arguments are those of `Page.set_viewport_size`. The test fails if a page wrote an error to the browser's
    console: of a script, of the content security policy, or of a request that was not answered well. ``expected``
    names parts of messages that the test provokes.
    """
    opened: list[tuple[Page, list[str], tuple[str, ...]]] = []

    def open_page(path: str, *, expected: tuple[str, ...] = (), **viewport: int) -> Page:
        page = signed_in.new_page()
        errors: list[str] = []

        def note(message: ConsoleMessage) -> None:
            if message.type == "error":
                errors.append(f"{message.text} ({message.location.get('url', '')})")

        page.on("console", note)
        page.on("pageerror", lambda error: errors.append(str(error)))
        opened.append((page, errors, expected))
        if viewport:
            page.set_viewport_size({"width": viewport["width"], "height": viewport["height"]})
        page.goto(f"/_tidemill/{path}")
        page.locator("main h1").first.wait_for()
        return page

    yield open_page
    for page, _, _ in opened:
        page.close()
    for _, errors, expected in opened:
        unexpected = [error for error in errors if not any(part in error for part in expected)]
        assert not unexpected, unexpected


@pytest.fixture(scope="session")
def axe() -> Callable[[Page], None]:
    """Return a function that fails with the violations that axe-core finds in a page, in both themes."""
    script = (SOURCE / "node_modules/axe-core/axe.min.js").read_text()

    def check(page: Page) -> None:
        if not page.evaluate("() => 'axe' in window"):
            # Evaluated by the debugger, so the page's policy does not apply to it.
            page.evaluate(f"() => {{ {script} }}")
        # Only the colors depend on the theme.
        for theme, options in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.emulate_media(color_scheme=theme)
            found = page.evaluate("async options => (await axe.run(options)).violations", options)
            short = [
                (each["id"], each["help"], [(node["html"], node["failureSummary"]) for node in each["nodes"]])
                for each in found
            ]
            assert not short, (theme, short)

    return check


@pytest.fixture(scope="session")
def command(service: Service) -> Callable[..., str]:
    """Return a function that runs the command line on the service, and returns what it printed."""

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [ROOT / ".venv/bin/tidemill", *arguments, "--state-dir", str(service.state_dir)],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    return run
