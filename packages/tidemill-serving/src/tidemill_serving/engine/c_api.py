"""The default engine: the C API of the TensorFlow wheel, without importing Python's TensorFlow.

TensorFlow's C++ loader reads the SavedModel: it imports the graph, restores variables and runs the initializers.
With ``inter_op_thread_pool=-1`` the operations of a run execute on the calling thread; for a small model this takes a
fifth of the time of a hand-over to TensorFlow's threads. The C API does not compare feeds with the static shapes of
placeholders, so models exported by TensorFlow 1 accept the same feeds as under TF Serving.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidemill_serving.engine.base import Array, LoadedModel, Parallelism, Signature, TensorSpec
from tidemill_serving.engine.c_library import CLibrary, CLibraryError, Output, open_c_library
from tidemill_serving.engine.c_tensors import CTensors
from tidemill_serving.engine.native_call import EngineLibrary, NativeCall
from tidemill_serving.engine.pages import release_file_pages, release_free_memory
from tidemill_serving.engine.saved_model import cannot_load, loadable, read_meta_graph
from tidemill_serving.engine.signatures import GraphTensor, Signatures, signatures_of
from tidemill_serving.engine.traits import is_small_model
from tidemill_serving.engine.variables import Variables
from tidemill_serving.engine.wheel import Wheel, open_wheel
from tidemill_serving.errors import Code, RequestError, StartFailed
from tidemill_serving.processors import num_processors

_OWN_THREADS = "TF_OVERRIDE_GLOBAL_THREADPOOL"  # TensorFlow reads it once, for the first session
_ON_CALLING_THREAD = -1
_ON_POOL = 0
_INT32, _FLOAT = np.dtype("int32"), np.dtype("float32")


class CApiEngine:
    """Loads SavedModels through TensorFlow's C API.

    Raises:
        StartFailed: TensorFlow is not installed.
        ImportError: The wheel has no C library, or the library lacks functions.
    """

    name = "c_api"

    def __init__(self, *, parallelism: Parallelism, tags: Sequence[str], session_config: bytes = b"") -> None:
        os.environ.setdefault(_OWN_THREADS, "1")  # else the first session would fix the threads inside all operations
        self._wheel = open_wheel()
        self._tags = tags
        self._library = open_c_library()
        self._parallelism = parallelism
        self._session_config = session_config
        self._tensors = CTensors(self._library, self._wheel)
        self._native, self._calls = _find_native(self._library)
        self._run_options = {
            pooled: _buffer(self._library, self._wheel.config.RunOptions(inter_op_thread_pool=pool))
            for pooled, pool in ((False, _ON_CALLING_THREAD), (True, _ON_POOL))
        }

    @property
    def description(self) -> str:
        library = f"TensorFlow {self._library.version} by {self._library.path.name}, without Python's TensorFlow"
        return f"{library}; {self._calls}"

    @property
    def has_narrow_sessions(self) -> bool:
        return not self._parallelism.intra_op and num_processors() > 1

    def is_narrow(self, model: LoadedModel) -> bool:
        """Return whether the operations of a loaded model run on one thread each."""
        return isinstance(model, _CModel) and model.is_narrow

    def load_operations(self, library: Path) -> None:
        """Load a library of operations, as `Engine.load_operations`; all models of the process can use it then."""
        try:
            with self._library.status() as status:
                self._library.functions.TF_LoadLibrary(os.fsencode(library), status)
        except CLibraryError as error:
            raise StartFailed(f"TensorFlow cannot load the operations in {library}: {error}") from error

    def shares_variables(self, model: LoadedModel) -> bool:
        """Return whether a second session of a loaded model needs no memory for its variables."""
        return isinstance(model, _CModel) and model.shares_variables

    def load(self, path: Path, *, twin_of: LoadedModel | None = None) -> LoadedModel:
        """Load a SavedModel, as `Engine.load`, without running it."""
        meta_graph = read_meta_graph(path, wheel=self._wheel, tags=self._tags)
        narrow = twin_of is not None or is_small_model(meta_graph)
        config = self._config(narrow=narrow)
        lender = twin_of if isinstance(twin_of, _CModel) and twin_of.shareable else None
        try:
            with loadable(path, meta_graph, wheel=self._wheel, restore=lender is None) as directory:
                session = _Session(directory, self._library, self._wheel, config=config, tags=self._tags)
            if lender is not None:
                self._share(lender.shareable, lender.session, session)
        except CLibraryError as error:
            raise cannot_load(path, error) from error
        try:
            signatures = signatures_of(path, meta_graph, session, wheel=self._wheel)
        except BaseException:
            session.close()
            raise
        model = _CModel(session, signatures, tensors=self._tensors, native=self._native, run_options=self._run_options)
        model.is_narrow = (self._parallelism.intra_op or (1 if narrow else num_processors())) == 1
        variables = Variables(meta_graph)
        model.shareable = variables.shareable() if session.num_devices == 1 else {}
        model.shares_variables = bool(model.shareable) and not variables.are_gathered()
        return model

    def _share(self, variables: Mapping[str, int], source: "_Session", target: "_Session") -> None:
        """Give the variables of a session the values of another session, in the same memory.

        Raises:
            CLibraryError: A variable has no value.
        """
        tensors: Sequence[int] = ()
        try:
            tensors = source.read(variables)
            target.assign(variables, tensors)
        except BaseException:
            target.close()
            raise
        finally:
            for tensor in tensors:
                self._tensors.delete(tensor)

    def release_memory(self) -> None:
        for library in self._library.files:
            release_file_pages(library)
        release_free_memory()

    def _config(self, *, narrow: bool) -> bytes:
        """Return the configuration of a session; a narrow one has no threads inside operations unless some were set."""
        config = self._wheel.config.ConfigProto.FromString(self._session_config)
        config.allow_soft_placement = True
        config.inter_op_parallelism_threads = self._parallelism.inter_op
        config.intra_op_parallelism_threads = self._parallelism.intra_op or int(narrow)
        # A thread that waits for work in a loop takes a processor from other requests. Versions before 2.5 cannot stop.
        if hasattr(config.experimental, "disable_thread_spinning"):
            config.experimental.disable_thread_spinning = True
        serialized: bytes = config.SerializeToString()
        return serialized


class _Session:
    """A graph with its runtime.

    Raises:
        CLibraryError: TensorFlow refuses the SavedModel.
    """

    def __init__(self, path: Path, library: CLibrary, wheel: Wheel, *, config: bytes, tags: Sequence[str]) -> None:
        self.library = library
        self._op_def = wheel.op_def.OpDef
        functions = library.functions
        names = (ctypes.c_char_p * len(tags))(*(tag.encode() for tag in tags))
        options = functions.TF_NewSessionOptions()
        self._graph = functions.TF_NewGraph()
        try:
            with library.status() as status:
                functions.TF_SetConfig(options, config, len(config), status)
            with library.status() as status:
                self.handle: int = functions.TF_LoadSessionFromSavedModel(
                    options, None, os.fsencode(path), names, len(names), self._graph, None, status
                )
        except CLibraryError:
            functions.TF_DeleteGraph(self._graph)
            raise
        finally:
            functions.TF_DeleteSessionOptions(options)

    def outputs(self, tensors: Iterable[TensorSpec]) -> "ctypes.Array[Output]":
        """Return tensors of the graph."""
        found = [output for spec in tensors if (output := self._output(spec.tensor)) is not None]
        return (Output * len(found))(*found)

    def tensor(self, name: str) -> GraphTensor | None:
        """Return type and shape of a tensor of the graph, or None if there is no such tensor."""
        output = self._output(name)
        if output is None:
            return None
        functions = self.library.functions
        with self.library.status() as status:
            rank: int = functions.TF_GraphGetTensorNumDims(self._graph, output, status)
        sizes = (ctypes.c_int64 * max(rank, 0))()
        if rank > 0:
            with self.library.status() as status:
                functions.TF_GraphGetTensorShape(self._graph, output, sizes, rank, status)
        return GraphTensor(functions.TF_OperationOutputType(output), None if rank < 0 else tuple(sizes))

    def definition(self, operation: str) -> Any | None:
        """Return the OpDef of an operation by its name, or None if it is not known."""
        functions = self.library.functions
        buffer = functions.TF_NewBuffer()
        try:
            with self.library.status() as status:
                functions.TF_GraphGetOpDef(self._graph, operation.encode(), buffer, status)
            return self._op_def.FromString(ctypes.string_at(buffer.contents.data, buffer.contents.length))
        except CLibraryError:
            return None
        finally:
            functions.TF_DeleteBuffer(buffer)

    @property
    def num_devices(self) -> int:
        """Number of devices that may hold variables; 1 if there is only the processor."""
        functions = self.library.functions
        with self.library.status() as status:
            devices = functions.TF_SessionListDevices(self.handle, status)
        number: int = functions.TF_DeviceListCount(devices)
        functions.TF_DeleteDeviceList(devices)
        return number

    def read(self, variables: Mapping[str, int]) -> list[int]:
        """Return the values of variables as TF_Tensors, which share their memory. The caller deletes them.

        Args:
            variables: Handles and numbers of types. Called once, since it adds operations to the graph.

        Raises:
            CLibraryError: A variable has no value.
        """
        outputs = (Output * len(variables))()
        for index, (name, dtype) in enumerate(variables.items()):
            outputs[index] = self._add("ReadVariableOp", f"read_{index}", self._handle(name), dtype=dtype)
        results = (ctypes.c_void_p * len(outputs))()
        with self.library.status() as status:
            self.library.functions.TF_SessionRun(
                *(self.handle, None, None, None, 0, outputs, results, len(outputs), None, 0, None, status)
            )
        return list(results)

    def assign(self, variables: Mapping[str, int], tensors: Sequence[int]) -> None:
        """Let variables use the memory of TF_Tensors as their values.

        Args:
            variables: Handles and numbers of types. Called once, since it adds operations to the graph.
            tensors: A TF_Tensor for each of them.

        Raises:
            CLibraryError: TensorFlow refuses a tensor.
        """
        fed, assignments = (Output * len(variables))(), (ctypes.c_void_p * len(variables))()
        for index, (name, dtype) in enumerate(variables.items()):
            fed[index] = self._add("Placeholder", f"value_{index}", dtype=dtype)
            inputs = (self._handle(name), fed[index])
            assignments[index] = self._add("AssignVariableOp", f"assign_{index}", *inputs, dtype=dtype).operation
        values = (ctypes.c_void_p * len(tensors))(*tensors)
        with self.library.status() as status:
            self.library.functions.TF_SessionRun(
                *(self.handle, None, fed, values, len(fed), None, None, 0, assignments, len(assignments), None, status)
            )

    def close(self) -> None:
        for free in (self.library.functions.TF_CloseSession, self.library.functions.TF_DeleteSession):
            with self.library.status() as status:
                free(self.handle, status)
        self.library.functions.TF_DeleteGraph(self._graph)

    def _handle(self, name: str) -> Output:
        found = self._output(name)
        if found is None:
            raise CLibraryError(Code.NOT_FOUND.number, f"the graph has no variable {name}")
        return found

    def _add(self, kind: str, name: str, *inputs: Output, dtype: int) -> Output:
        """Add an operation to the graph; return its first output."""
        functions = self.library.functions
        description = functions.TF_NewOperation(self._graph, kind.encode(), f"tidemill/{name}".encode())
        for each in inputs:
            functions.TF_AddInput(description, each)
        functions.TF_SetAttrType(description, b"dtype", dtype)
        with self.library.status() as status:
            return Output(functions.TF_FinishOperation(description, status), 0)

    def _output(self, tensor: str) -> Output | None:
        name, _, index = tensor.partition(":")
        operation = self.library.functions.TF_GraphOperationByName(self._graph, name.encode())
        if operation is None or not (index or "0").isdecimal():
            return None
        number = int(index or 0)
        return Output(operation, number) if number < self.library.functions.TF_OperationNumOutputs(operation) else None


class _CModel:
    """A loaded SavedModel; calls are prepared at the first run of a signature."""

    def __init__(
        self,
        session: _Session,
        signatures: Signatures,
        *,
        tensors: CTensors,
        native: EngineLibrary | None,
        run_options: Mapping[bool, int],
    ) -> None:
        self.session = session
        self._native = native
        self._tensors = tensors
        self._run_options = run_options
        self.signatures, self.unusable = signatures.served, signatures.unusable
        self.signature_defs = signatures.definitions
        self.is_narrow = False
        """Whether its operations run on one thread each."""
        self.shareable: Mapping[str, int] = {}
        """Variables that another session can share; none if some may be on a GPU, from which they would be copied."""
        self.shares_variables = False
        """Whether another session can use all of its variables in the same memory."""
        self._calls: dict[str, _CCall | NativeCall] = {}

    def prepare(self, signature: Signature) -> None:
        """Let TensorFlow plan the runs of a signature: optimize its graph and create its kernels.

        TensorFlow does this before it looks at the types of the feeds, and refuses these feeds for their types. So no
        operation runs.
        """
        if not signature.inputs:
            return  # nothing could be refused
        refused = [np.empty(0, _INT32 if spec.dtype != _INT32 else _FLOAT) for spec in signature.inputs.values()]
        with contextlib.suppress(CLibraryError):
            _CCall(self.session, signature, tensors=self._tensors).run(refused, self._run_options[False])

    def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        call = self._calls.get(signature.key)
        if call is None:  # two threads may both prepare the call; the results are equivalent
            call = self._calls[signature.key] = self._call(signature)
        try:
            return call.run(feeds, self._run_options[pooled])
        except CLibraryError as error:
            raise RequestError(Code.of(error.code), str(error)) from error

    def close(self) -> None:
        self._calls.clear()
        self.session.close()

    def _call(self, signature: Signature) -> "_CCall | NativeCall":
        session, tensors = self.session, self._tensors
        if self._native is None:
            return _CCall(session, signature, tensors=tensors)
        inputs, outputs = session.outputs(signature.inputs.values()), session.outputs(signature.outputs.values())
        return NativeCall(self._native, session.handle, signature, inputs=inputs, outputs=outputs, tensors=tensors)


class _CCall:
    """One signature, ready to be run through ctypes."""

    def __init__(self, session: _Session, signature: Signature, *, tensors: CTensors) -> None:
        self._session = session
        self._inputs = session.outputs(signature.inputs.values())
        self._outputs = session.outputs(signature.outputs.values())
        self._tensors = tensors

    def run(self, feeds: Sequence[Array], run_options: int) -> list[Array]:
        """Run on the arrays.

        Raises:
            CLibraryError: TensorFlow failed.
            RequestError: A feed or a result cannot be converted.
        """
        functions = self._session.library.functions
        fed = (ctypes.c_void_p * len(self._inputs))()
        results = (ctypes.c_void_p * len(self._outputs))()
        try:
            for index, feed in enumerate(feeds):
                fed[index] = self._tensors.tensor(feed)
            with self._session.library.status() as status:
                functions.TF_SessionRun(
                    *(self._session.handle, run_options),
                    *(self._inputs, fed, len(fed)),
                    *(self._outputs, results, len(results)),
                    *(None, 0, None, status),
                )
            return [self._tensors.array(tensor) for tensor in results]
        finally:
            for tensor in (*fed, *results):
                if tensor is not None:
                    functions.TF_DeleteTensor(tensor)


def _find_native(library: CLibrary) -> tuple[EngineLibrary | None, str]:
    """Return the native library, or None, and a description of how calls are made."""
    try:
        native = EngineLibrary(library)
    except ImportError as error:
        return None, f"calls through ctypes: {error}"
    return native, f"native calls ({native.source})"


def _buffer(library: CLibrary, message: Any) -> int:
    """Return a TF_Buffer of a message. It is never freed, since the engine lives until the process ends."""
    content = message.SerializeToString()
    buffer: int = library.functions.TF_NewBufferFromString(content, len(content))
    return buffer
