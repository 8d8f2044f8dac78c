"""Splits the arguments of a step into microbatches.

    split = split_arguments(inspect.signature(body), args, kwargs, num_microbatches=4)
    plan = plans.get(split.piece_key())             # all properties of a microbatch that a trace depends on
    for mb in range(4):
        args, kwargs = split.rebuild(split.values(mb))

These arguments are split: tensors, variables (their values), NumPy arrays and other objects with `__array__`, ragged
and sparse tensors, and objects with `smp_slice(num_mb, mb, axis)`, also inside lists, tuples, namedtuples, mappings
and sets.
Every microbatch receives other Python values unchanged. The axis is 0 unless `input_split_axes` names the argument;
arguments in `non_split_inputs` are passed whole.

Static sizes are checked when the graph is built, the others by an assertion op when the graph runs.
"""

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPSplitError
from smdistributed.modelparallel.tensorflow.stepping.cutting import ArgumentCutter
from smdistributed.modelparallel.tensorflow.stepping.kinds import is_sliceable
from smdistributed.modelparallel.tensorflow.stepping.leaves import Leaf, Sliced
from smdistributed.modelparallel.tensorflow.stepping.structure import ContainerNode, StructureNode


@dataclass(frozen=True)
class SplitArguments:
    """The arguments of a step function, split into microbatches."""

    num_microbatches: int
    leaves: tuple[Leaf, ...]
    structure: StructureNode
    """`(args, kwargs)` without the leaves."""

    @property
    def is_uniform(self) -> bool:
        """Return whether one trace serves every microbatch."""
        return not any(isinstance(leaf, Sliced) for leaf in self.leaves)

    def values(self, microbatch: int) -> list[Any]:
        """Return the leaves of one microbatch.

        Args:
            microbatch: 0 <= microbatch < `num_microbatches`.
        """
        return [leaf.value(microbatch) for leaf in self.leaves]

    def rebuild(self, microbatch_leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with which to call the body.

        Args:
            microbatch_leaves: One value per leaf: those of `values`, or placeholders for them.

        Returns:
            `(args, kwargs)`, in the form in which the step function was called.
        """
        if len(microbatch_leaves) != len(self.leaves):
            raise ValueError(f"expected {len(self.leaves)} leaves, received {len(microbatch_leaves)}")
        args, kwargs = self.structure.build(microbatch_leaves)
        return tuple(args), kwargs

    def piece_key(self) -> Hashable:
        """Return a cache key for the plan of a microbatch: structure, specs of the pieces, and Python values."""
        return self.num_microbatches, self.structure.key(), tuple(leaf.key() for leaf in self.leaves)


def split_arguments(
    function_signature: inspect.Signature,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    num_microbatches: int,
    non_split_inputs: Sequence[str] | str | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    input_signature: Sequence[Any] | None = None,
) -> SplitArguments:
    """Split the arguments of a step function.

    Call it in the context of the pieces: inside the graph under construction, or eagerly.

    Args:
        function_signature: The signature of the body, to whose parameters the names below refer.
        args: Positional arguments of the call, for the whole batch.
        kwargs: Keyword arguments of the call, for the whole batch.
        num_microbatches: B >= 1.
        non_split_inputs: Names of the arguments that every microbatch receives whole.
        input_split_axes: Split axis by argument name; default 0. Negative axes count from the end.
        input_signature: Specs of the whole batch, one nest per positional parameter, as in `tf.function`. Arrays and
            Python numbers are converted to their dtypes.

    Returns:
        The pieces.

    Raises:
        SMPSplitError: If a name is not a parameter, or an argument cannot be split evenly. If the batch size is not
            static, `tf.errors.InvalidArgumentError` with the same text is raised when the graph runs.
        TypeError: If the call does not match the signature.
    """
    whole = (non_split_inputs,) if isinstance(non_split_inputs, str) else tuple(non_split_inputs or ())
    axes = dict(input_split_axes or {})
    _check_names(function_signature, whole, axes)
    names = _names_of_positional(function_signature, args, kwargs)
    specs = dict(zip(_positional_parameters(function_signature), input_signature or (), strict=False))
    cutter = ArgumentCutter(num_microbatches)

    def part(name: str, value: object) -> StructureNode:
        if name in specs:
            value = _convert_to_specs(name, value, specs[name])
        return cutter.take(name, value, axis=axes.get(name, 0), whole=name in whole)

    positional = tuple(part(name, value) for name, value in zip(names, args, strict=True))
    keywords = tuple(part(name, value) for name, value in kwargs.items())
    cutter.check_sizes()
    keyword_names = tuple(kwargs)
    structure = _container(
        list,
        (
            _container(tuple, positional, tuple),
            ContainerNode(dict, keyword_names, keywords, lambda values: dict(zip(keyword_names, values, strict=True))),
        ),
        list,
    )
    return SplitArguments(num_microbatches, tuple(cutter.leaves()), structure)


# --- names ------------------------------------------------------------------------------------------------------------

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _check_names(signature: inspect.Signature, whole: Sequence[str], axes: Mapping[str, int]) -> None:
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    for option, given in (("non_split_inputs", whole), ("input_split_axes", tuple(axes))):
        unknown = [name for name in given if name not in signature.parameters]
        if unknown and not takes_any:
            known = ", ".join(signature.parameters) or "none"
            raise SMPSplitError(
                f"{option} names {', '.join(map(repr, unknown))}, but the step function has no such parameter; "
                f"its parameters are: {known}"
            )
    both = [name for name in whole if name in axes]
    if both:
        raise SMPSplitError(
            f"{', '.join(map(repr, both))}: named in non_split_inputs and in input_split_axes; "
            "an argument is either passed whole or cut, so remove it from one of them"
        )


def _positional_parameters(signature: inspect.Signature) -> list[str]:
    return [name for name, parameter in signature.parameters.items() if parameter.kind in _POSITIONAL]


def _names_of_positional(
    signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]
) -> list[str]:
    signature.bind(*args, **kwargs)
    names = _positional_parameters(signature)[: len(args)]
    rest = [name for name, p in signature.parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL]
    return names + rest * (len(args) - len(names))


def _container(kind: type, children: tuple[StructureNode, ...], make: Callable[[list[Any]], Any]) -> ContainerNode:
    return ContainerNode(kind, tuple(range(len(children))), children, make)


def _convert_to_specs(name: str, value: object, specs: Any) -> object:
    """Convert arrays and numbers to the dtypes of an `input_signature`."""

    def convert(spec: Any, item: Any) -> Any:
        # A tensor is not converted: tf.function refuses a wrong dtype, and reports it to the caller.
        if not isinstance(spec, tf.TensorSpec) or tf.is_tensor(item) or is_sliceable(item):
            return item
        tensor = tf.convert_to_tensor(item, spec.dtype)
        if not spec.is_compatible_with(tensor):
            raise ValueError(f"received shape {tensor.shape}")
        return tensor

    try:
        return tf.__internal__.nest.map_structure_up_to(specs, convert, specs, value)
    except (TypeError, ValueError) as error:
        raise SMPSplitError(f"argument {name!r} does not fit its input_signature {specs}: {error}") from error
