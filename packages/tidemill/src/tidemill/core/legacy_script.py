"""Recognize scripts of legacy mode, whose functions SageMaker called: run as a program, they do nothing and succeed."""

import ast

_MODELS = frozenset({"model_fn", "estimator_fn", "keras_model_fn"})
_INPUT = "train_input_fn"
_DOES_NOTHING = (
    *(ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)
_MAX_CHARS = 256 * 1024


def legacy_refusal(name: str, source: str) -> str | None:
    """Return why a script is refused as one of legacy mode; None if it is none.

    It is one if its top level has only imports, assignments and definitions, among them ``train_input_fn`` and a
    function that makes the model.

    Args:
        name: Name of the script, for the message.
    """
    if len(source) > _MAX_CHARS:
        return None
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # Python reports it when the script runs
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    if _INPUT not in defined or not defined & _MODELS or not all(_does_nothing(node) for node in body):
        return None
    functions = ", ".join(sorted(defined & (_MODELS | {_INPUT})))
    return (
        f"{name} is a script of legacy mode: it only defines {functions}, which that mode called until TensorFlow 1.12."
        " Run as a program it would do nothing. For script mode, add the lines of"
        ' docs/how-to/leave-legacy-mode.md, which train and save the model; or pass py_version="py3" or'
        " script_mode=True if it should run as it is"
    )


def _does_nothing(node: ast.stmt) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, _DOES_NOTHING)
