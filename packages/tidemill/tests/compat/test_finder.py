"""The import hook, in separate processes: without AWS's SDK, with its v2, and with its v3."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidemill.compat import CompatFinder
from tidemill.compat.names import MODULES

PEERS = Path(__file__).parents[4] / ".venvs/peers/bin/python"
SOURCE = Path(__file__).parents[2] / "src"


def run(code: str, *, path: Path, python: str = sys.executable) -> Any:
    """Return what ``code`` prints as JSON, run with ``path`` first on the import path."""
    program = f"import json, sys; sys.path[:0] = [{str(path)!r}, {str(SOURCE)!r}]\n{code}"
    ended = subprocess.run([python, "-c", program], capture_output=True, text=True, cwd=path, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


def test_without_an_sdk_of_aws_the_published_imports_work_and_load_nothing_heavy(tmp_path: Path) -> None:
    found = run(
        "import tidemill.compat\n"
        "import sagemaker\n"
        "from sagemaker import LocalSession, Session, TrainingInput, get_execution_role, s3_input\n"
        "from sagemaker.inputs import TrainingInput as again\n"
        "from sagemaker.session import s3_input as first\n"
        "from sagemaker.tensorflow import TensorFlow, TensorFlowModel, TensorFlowPredictor\n"
        "from sagemaker.tensorflow.serving import Model, Predictor\n"
        "from sagemaker.serializers import JSONSerializer\n"
        "from sagemaker.content_types import CONTENT_TYPE_JSON\n"
        "from sagemaker.tensorflow.predictor import tf_deserializer, tf_json_serializer, tf_serializer\n"
        "assert tf_json_serializer.content_type == CONTENT_TYPE_JSON\n"
        "assert tf_serializer.content_type == tf_deserializer.accept == 'application/octet-stream'\n"
        "assert again is TrainingInput and first is s3_input and Model is TensorFlowModel\n"
        "heavy = sorted({'boto3', 'botocore', 'tensorflow'} & set(sys.modules))\n"
        "print(json.dumps([TensorFlow.__module__, Predictor.__name__, heavy]))",
        path=tmp_path,
    )
    assert found == ["tidemill.sdk.estimator", "TensorFlowPredictor", []]


def test_submodules_are_there_after_importing_the_package_alone(tmp_path: Path) -> None:
    found = run(
        "import tidemill.compat, sagemaker\n"
        "print(json.dumps([sagemaker.tensorflow.serving.Model.__name__, sagemaker.session.s3_input.__name__,\n"
        "                  sagemaker.inputs.TrainingInput.__name__, 'tensorflow' in sys.modules]))",
        path=tmp_path,
    )
    assert found == ["TensorFlowModel", "s3_input", "TrainingInput", False]


def test_awss_own_package_wins_wherever_it_answers(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "sagemaker/__init__.py": "who = 'AWS'",
            "sagemaker/session.py": "Session = 'AWS'",
            "sagemaker/tensorflow/__init__.py": "TensorFlow = 'AWS'",
        },
    )
    found = run(
        "import tidemill.compat, sagemaker\n"
        "from sagemaker.session import Session\n"
        "from sagemaker.tensorflow import TensorFlow\n"
        "print(json.dumps([sagemaker.who, Session, TensorFlow]))",
        path=tmp_path,
    )
    assert found == ["AWS", "AWS", "AWS"]


@pytest.mark.parametrize("namespace", [False, True], ids=["package", "namespace package"])
def test_beside_a_package_without_estimators_only_what_is_missing_is_answered(tmp_path: Path, namespace: bool) -> None:
    write(tmp_path, {"sagemaker/train.py": "ModelTrainer = 'AWS'"})
    if not namespace:
        write(tmp_path, {"sagemaker/__init__.py": ""})
    found = run(
        "import tidemill.compat\n"
        "from sagemaker.train import ModelTrainer\n"
        "from sagemaker.tensorflow import TensorFlow\n"
        "from sagemaker.session import s3_input\n"
        "print(json.dumps([ModelTrainer, TensorFlow.__module__, s3_input.__module__]))",
        path=tmp_path,
    )
    assert found == ["AWS", "tidemill.sdk.estimator", "tidemill.sdk.inputs"]


def test_calls_that_name_awss_sts_ask_the_service_that_the_environment_names(tmp_path: Path) -> None:
    of_aws = "def sts_regional_endpoint(region):\n    return f'https://sts.{region}.example'\n"
    write(
        tmp_path,
        {
            "sagemaker/__init__.py": "",
            "sagemaker/session.py": of_aws,
            "sagemaker/core/__init__.py": "",
            "sagemaker/core/helper/__init__.py": "",
            "sagemaker/core/helper/session_helper.py": of_aws,
        },
    )
    found = run(
        "import os\n"
        "import tidemill.compat\n"
        "from sagemaker import session\n"
        "from sagemaker.core.helper import session_helper\n"
        "found = []\n"
        "for variable in ('AWS_ENDPOINT_URL_STS', 'AWS_ENDPOINT_URL', None):\n"
        "    os.environ.pop('AWS_ENDPOINT_URL_STS', None), os.environ.pop('AWS_ENDPOINT_URL', None)\n"
        "    os.environ.update({variable: f'http://{variable}'} if variable else {})\n"
        "    found += [each.sts_regional_endpoint('us-west-2') for each in (session, session_helper)]\n"
        "print(json.dumps(found))",
        path=tmp_path,
    )
    assert found[::2] == found[1::2]
    assert found[::2] == ["http://AWS_ENDPOINT_URL_STS", "http://AWS_ENDPOINT_URL", "https://sts.us-west-2.example"]


def test_without_the_hook_nothing_is_answered(tmp_path: Path) -> None:
    found = run(
        "import tidemill.sdk\n"
        "try:\n    import sagemaker\n    print(json.dumps(sagemaker.__file__))\n"
        "except ModuleNotFoundError as error:\n    print(json.dumps(error.name))",
        path=tmp_path,
    )
    assert found == "sagemaker"


def test_the_finder_is_registered_once_right_after_the_path_finder(tmp_path: Path) -> None:
    found = run(
        "import tidemill.compat; tidemill.compat.install()\n"
        "from importlib.machinery import PathFinder\n"
        "place = sys.meta_path.index(PathFinder)\n"
        "ours = [i for i, f in enumerate(sys.meta_path) if isinstance(f, tidemill.compat.CompatFinder)]\n"
        "print(json.dumps([i - place for i in ours]))",
        path=tmp_path,
    )
    assert found == [1]


def test_a_name_that_is_not_answered_is_an_ordinary_import_error(tmp_path: Path) -> None:
    found = run(
        "import tidemill.compat\n"
        "errors = []\n"
        "for line in ('import sagemaker.pytorch', 'from sagemaker.tensorflow import Nothing', \n"
        "             'import sagemaker; sagemaker.nothing'):\n"
        "    try:\n        exec(line)\n"
        "    except Exception as error:\n        errors.append(type(error).__name__)\n"
        "print(json.dumps(errors))",
        path=tmp_path,
    )
    assert found == ["ModuleNotFoundError", "ImportError", "AttributeError"]


@pytest.mark.skipif(not PEERS.exists(), reason="AWS's SDK v2 is not installed (.venvs/peers)")
def test_the_real_sdk_v2_is_not_replaced(tmp_path: Path) -> None:
    found = run(
        "import tidemill.compat\n"
        "import importlib.util\n"
        "spec = importlib.util.find_spec('sagemaker')\n"
        "print(json.dumps(spec.origin))",
        path=tmp_path,
        python=str(PEERS),
    )
    assert found.endswith("site-packages/sagemaker/__init__.py")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_name_that_is_answered_exists(name: str) -> None:
    spec = CompatFinder().find_spec(name)
    assert spec is not None
    for target in MODULES[name].values():
        home, _, attribute = target.partition(":")
        assert hasattr(__import__(home, fromlist=["_"]), attribute)


def test_no_file_is_shipped_under_awss_import_name() -> None:
    assert not list(SOURCE.glob("sagemaker*"))


def test_an_import_that_is_missing_says_what_exists_instead(tmp_path: Path) -> None:
    errors = run(
        "import tidemill.compat\n"
        "errors = []\n"
        "for line in ('from sagemaker.workflow.lambda_step import LambdaStep',\n"
        "             'from sagemaker.debugger import FrameworkProfile',\n"
        "             'from sagemaker.utils import nothing',\n"
        "             'import sagemaker.debugger; sagemaker.debugger.FrameworkProfile'):\n"
        "    try:\n        exec(line)\n"
        "    except Exception as error:\n        errors.append([type(error).__name__, str(error)])\n"
        "print(json.dumps(errors))",
        path=tmp_path,
    )
    assert [kind for kind, _ in errors] == ["ModuleNotFoundError", "ImportError", "ImportError", "ImportError"]
    for (_, text), part in zip(
        errors, ("script of a ProcessingStep", "tf.profiler", "answers base_from_name", "tf.profiler"), strict=True
    ):
        assert part in text


def test_the_pipelines_of_an_installed_sdk_are_imported(tmp_path: Path) -> None:
    code = (
        "import tidemill.compat\nfrom sagemaker.workflow.pipeline import Pipeline\nprint(json.dumps(Pipeline.__name__))"
    )
    assert run(code, path=tmp_path, python=str(PEERS)) == "Pipeline"
