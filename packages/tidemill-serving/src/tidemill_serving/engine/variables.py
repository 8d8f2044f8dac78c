"""Restore variables that TensorFlow's loader for servers would leave without a value.

That loader runs the restore operation of the SavedModel. ``tf.saved_model.save`` on a model of Keras 3 writes each
weight twice: the restore operation assigns one variable, and the signatures read another one, which gets no value.
Python's loader finds the weights in the object graph, where both are the same object. So does this module: it lets
both variables share one resource.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from tidemill_serving.engine.graph import called_functions, node_name, nodes_behind, outer_nodes_behind

INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_HANDLE = "VarHandleOp"
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_SAME = frozenset({"Identity", "IdentityN"})
_READS = frozenset(
    {"DisableCopyOnRead", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"}
)
_GATHERS = frozenset({"ResourceGather", "ResourceGatherNd"})
_RESTORE = frozenset({_HANDLE, "AssignVariableOp", "Const", "NoOp", "Placeholder", "RestoreV2", *_CALLS, *_SAME})
"""Operations that restore variables and nothing else."""
_AFTER_CONDITION = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})
"""Operations that pass all inputs but the first one to the functions that they call."""
_VALUE_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_Resource = tuple[bytes, bytes]


class Variables:
    """The variables of a SavedModel, by the names of their handles' nodes.

    Args:
        meta_graph: The MetaGraphDef.
    """

    def __init__(self, meta_graph: Any) -> None:
        self._meta_graph = meta_graph
        self._graph = meta_graph.graph_def
        self._nodes = {node.name: node for node in self._graph.node}
        self._functions = {function.signature.name: function for function in self._graph.library.function}
        self._uses: dict[str, dict[str, list[tuple[Any, int]]]] = {}

    def restore_by_objects(self) -> bool:
        """Let variables without a value share the resource of a restored variable of the same object.

        Returns:
            Whether the graph was changed.
        """
        signatures = self._meta_graph.signature_def.values()
        missing = {name for definition in signatures for name in self._without_value(definition)}
        if not missing:
            return False
        twins = {name: twin for name, twin in self._twins() if name in missing}
        for name, twin in twins.items():
            container, shared_name = _resource(self._nodes[twin])
            self._nodes[name].attr["container"].s = container
            self._nodes[name].attr["shared_name"].s = shared_name
        return bool(twins)

    def unrestored(self, definition: Any) -> list[str]:
        """Return the variables that a signature reads, and that neither the loader nor a signature gives a value.

        Args:
            definition: The SignatureDef.
        """
        return sorted(name for name in self._without_value(definition) if not self._is_written(name))

    def shareable(self) -> dict[str, int]:
        """Return the restored variables, which another session of the same graph can share, with their types.

        Returns:
            Handles and numbers of types; empty if that session has to restore them itself: restoring also fills tables
            or variables of TensorFlow 1, or an initializer uses variables.
        """
        restore = self._meta_graph.saver_def.restore_op_name
        if {node.op for node in nodes_behind([restore], self._graph)} - _RESTORE or any(
            self._handles(self._initializers)
        ):
            return {}
        found = {_resource(node): (name, node.attr["dtype"].type) for name, node in self._handles([restore])}
        return dict(found.values())

    def are_gathered(self) -> bool:
        """Return whether rows are read directly from a variable, of which TensorFlow then makes an unshared copy."""
        functions = self._functions.values()
        bodies = (self._graph.node, *(function.node_def for function in functions))
        return any(node.op in _GATHERS for body in bodies for node in body)

    def _without_value(self, definition: Any) -> list[str]:
        """Return the variables behind a signature that neither the restore operation nor an initializer assigns."""
        return [name for name, node in self._handles(_tensors(definition)) if _resource(node) not in self._assigned]

    @cached_property
    def _assigned(self) -> set[_Resource]:
        restore = self._meta_graph.saver_def.restore_op_name
        return {_resource(node) for _, node in self._handles([restore, *self._initializers])}

    @cached_property
    def _initializers(self) -> list[str]:
        """Operations and tensors that the loader runs after the restore operation."""
        collections = self._meta_graph.collection_def
        found = [name for key in _INIT_COLLECTIONS if key in collections for name in collections[key].node_list.value]
        if INIT_SIGNATURE in self._meta_graph.signature_def:
            found += _tensors(self._meta_graph.signature_def[INIT_SIGNATURE])
        return found

    def _handles(self, tensors: list[str]) -> Iterator[tuple[str, Any]]:
        """Yield name and node of each variable's handle behind these tensors."""
        return ((node.name, node) for node in outer_nodes_behind(tensors, self._nodes) if node.op == _HANDLE)

    def _twins(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of handles: one that a call gets, and a restored one of the same object, type and shape."""
        restored = dict(self._restored_objects())
        concrete = self._meta_graph.object_graph_def.concrete_functions
        for node in self._nodes.values():
            if node.op not in _CALLS or _function_name(node) not in concrete:
                continue
            bound = concrete[_function_name(node)].bound_inputs
            inputs = [name for name in node.input if not name.startswith("^")]
            for tensor, object_id in zip(inputs[len(inputs) - len(bound) :], bound, strict=False):
                name, twin = node_name(tensor), restored.get(object_id)
                if twin is not None and twin != name and self._are_alike(name, twin):
                    yield name, twin

    def _are_alike(self, name: str, twin: str) -> bool:
        nodes = [self._nodes.get(name), self._nodes.get(twin)]
        kinds = [(n.attr["dtype"].type, n.attr["shape"].shape) for n in nodes if n is not None and n.op == _HANDLE]
        return len(kinds) == len(nodes) and kinds[0] == kinds[1]

    def _restored_objects(self) -> Iterator[tuple[int, str]]:
        """Yield object and handle of each variable that the function of the restore operation assigns."""
        call = self._nodes.get(self._meta_graph.saver_def.restore_op_name)
        function = None if call is None else self._functions.get(_function_name(call))
        if call is None or function is None:  # SavedModels of TensorFlow 1 have no object graph
            return
        arguments = dict(zip((each.name for each in function.signature.input_arg), call.input, strict=False))
        nodes = {node.name: node for node in function.node_def}
        for node in nodes.values():
            handle = arguments.get(node.input[0]) if node.op == "AssignVariableOp" else None
            key = None if handle is None else _checkpoint_key(node.input[1], nodes)
            object_id = None if key is None else self._object(key)
            if handle is not None and object_id is not None:
                yield object_id, node_name(handle)

    def _object(self, key: str) -> int | None:
        """Return the number of the object that a key of the checkpoint names by its path from the root."""
        objects = self._meta_graph.object_graph_def.nodes
        if not key.endswith(_VALUE_SUFFIX) or not objects:
            return None
        number = 0
        for name in key.removesuffix(_VALUE_SUFFIX).split("/"):
            children = {_escaped(child.local_name): child.node_id for child in objects[number].children}
            if name not in children:
                return None
            number = children[name]
        return number

    def _is_written(self, name: str) -> bool:
        """Return whether an operation that may write the variable gets its handle, directly or in a called function."""
        waiting, seen = [("", name)], {("", name)}
        while waiting:
            body, source = waiting.pop()
            for node, index in self._uses_in(body).get(source, ()):
                if node.op in _READS:
                    continue
                passed = list(self._passed(body, node, index))
                if not passed:
                    return True
                waiting += [each for each in passed if each not in seen]
                seen.update(passed)
        return False

    def _passed(self, body: str, node: Any, index: int) -> Iterator[tuple[str, str]]:
        """Yield where a node passes an input on to, as function and name; the graph has an empty function name."""
        if node.op in _SAME:
            yield body, node.name
        index -= node.op in _AFTER_CONDITION
        for called in called_functions(node):
            arguments = self._functions[called].signature.input_arg if called in self._functions else ()
            if 0 <= index < len(arguments):
                yield called, arguments[index].name

    def _uses_in(self, body: str) -> dict[str, list[tuple[Any, int]]]:
        """Return the nodes, with the index of the input, that get each tensor of the graph or of a function."""
        if body in self._uses:
            return self._uses[body]
        uses: dict[str, list[tuple[Any, int]]] = {}
        self._uses[body] = uses
        for node in self._functions[body].node_def if body else self._graph.node:
            for index, tensor in enumerate(node.input):
                if not tensor.startswith("^"):
                    uses.setdefault(node_name(tensor), []).append((node, index))
        return uses


def _tensors(definition: Any) -> list[str]:
    return [info.name for info in definition.outputs.values()]


def _resource(node: Any) -> _Resource:
    """Return what identifies the resource of a handle: container and name."""
    container, shared_name = (node.attr[key].s if key in node.attr else b"" for key in ("container", "shared_name"))
    return container, shared_name or node.name.encode()


def _function_name(node: Any) -> str:
    """Return the name of the function that a call calls, else an empty string.

    Reading a missing attribute would add it, and TensorFlow refuses attributes without a value.
    """
    return str(node.attr["f"].func.name) if "f" in node.attr else ""


def _checkpoint_key(tensor: str, nodes: Mapping[str, Any]) -> str | None:
    """Return the key by which a tensor of a restore function was read from the checkpoint."""
    node = nodes.get(node_name(tensor))
    while node is not None and node.op == "Identity":
        tensor = node.input[0]
        node = nodes.get(node_name(tensor))
    if node is None or node.op != "RestoreV2":
        return None
    names = nodes.get(node_name(node.input[1]))
    keys = () if names is None else names.attr["value"].tensor.string_val
    index = int(tensor.rpartition(":")[2])
    return keys[index].decode() if index < len(keys) else None


def _escaped(local_name: str) -> str:
    """Return a name of an object as keys of checkpoints contain it."""
    return local_name.replace(".", "..").replace("/", ".S")
