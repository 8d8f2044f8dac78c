"""The script of a Python-based endpoint: ``input_fn``, ``output_fn``, ``transform_fn``, or ``predict_fn``.

A request goes through ``input_fn``, the model and ``output_fn``; both functions have defaults. ``transform_fn``
replaces all three steps. ``predict_fn(data, model)`` replaces the model; its ``model`` is what ``model_fn(model_dir)``
returned when the script was loaded.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tidemill_serving.errors import invalid
from tidemill_serving.handlers.answers import Answered, checked_body
from tidemill_serving.handlers.generic_model import GenericModel
from tidemill_serving.handlers.python_input import default_input
from tidemill_serving.handlers.python_output import default_output
from tidemill_serving.handlers.script import BadScript, load_script
from tidemill_serving.handlers.wire import WorkerSetup

_DEFAULT_TYPE = "application/json"
_ANY = "*/*"
_TEXT_TYPES = ("text/", "application/json", "application/jsonlines", "application/xml", "application/x-www-form")
_FUNCTIONS = ("transform_fn", "input_fn", "predict_fn", "output_fn")


class PythonScript:
    """The functions of one script, with defaults for missing ones.

    Args:
        setup: The script, if there is one, and the ports of the model server.

    Raises:
        BadScript: The script has ``predict_fn`` but no ``model_fn``.
        BaseException: Any exception that the script raises during its import or in ``model_fn``.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        module = load_script(Path(setup.script), paths=setup.paths) if setup.script else ModuleType("none")
        found = {name: getattr(module, name) for name in _FUNCTIONS if callable(getattr(module, name, None))}
        self.names: tuple[str, ...] = ("transform_fn",) if "transform_fn" in found else tuple(found) or ("defaults",)
        self._model = GenericModel(setup)
        self._transform: Callable[[Any, str, str], Any] = found.get("transform_fn") or self._steps
        self._input = found.get("input_fn") or self._default_input
        self._predict = (
            self._own_predict(found["predict_fn"], module, setup) if "predict_fn" in found else self._model.call
        )
        self._output = found.get("output_fn") or default_output

    def answer(self, request: Mapping[str, Any], body: bytes) -> Answered:
        """Handle one request; exceptions of the user's functions propagate.

        Args:
            request: Header of the frame; content type and Accept default to application/json.
            body: Decoded to text for text types.

        Returns:
            Status 200 with the result of the user's functions.
        """
        content_type = request.get("content_type") or _DEFAULT_TYPE
        accept = request.get("accept") or _DEFAULT_TYPE
        data: Any = _text(body, content_type) if content_type.startswith(_TEXT_TYPES) else body
        result = self._transform(data, content_type, accept)
        if isinstance(result, tuple) and len(result) == 2:  # (body, content type), as in other SageMaker containers
            result, accept = result[0], str(result[1])
        source = "transform_fn" if "transform_fn" in self.names else "output_fn"
        return Answered(200, checked_body(result, source=source), _DEFAULT_TYPE if accept == _ANY else accept)

    def _steps(self, data: Any, content_type: str, accept: str) -> Any:
        return self._output(self._predict(self._input(data, content_type)), accept)

    def _default_input(self, data: Any, content_type: str) -> Any:
        return default_input(data, content_type, request_kind=self._model.request_kind)

    def _own_predict(
        self, predict: Callable[[Any, Any], Any], module: ModuleType, setup: WorkerSetup
    ) -> Callable[[Any], Any]:
        model_fn = getattr(module, "model_fn", None)
        if model_fn is None:
            raise BadScript(f"{setup.script} has predict_fn(data, model) but no model_fn(model_dir) to load the model")
        model = model_fn(setup.model_dir)
        return lambda value: predict(value, model)


def _text(body: bytes, content_type: str) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise invalid(f"the body of type {content_type} is no UTF-8 text: {error}") from error
