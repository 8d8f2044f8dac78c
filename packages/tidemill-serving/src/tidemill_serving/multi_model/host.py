"""The models of a multi-model endpoint: load them while others serve, and unload them when they are idle."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemill_serving.errors import Code, RequestError, StartFailed, invalid, not_found
from tidemill_serving.handlers.code import UserCode, find_inference_code
from tidemill_serving.handlers.pool import HandlerPool
from tidemill_serving.loading import Loader
from tidemill_serving.models import ModelVersion
from tidemill_serving.multi_model.directory import check_memory, extract, model_directory, model_versions, remove
from tidemill_serving.multi_model.packages import ModelPackages
from tidemill_serving.options import ServerOptions
from tidemill_serving.registry import Registry, Servable
from tidemill_serving.user_code import Ports, start_handlers

_EXHAUSTED = ("RESOURCE_EXHAUSTED", "OOM", "out of memory")


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The members of a ``POST /models`` request.

    Attributes:
        name: The model's name in later requests.
        url: Path of the model's directory.
        archive: Name of a ``model.tar.gz`` in the directory of archives, which is first unpacked to ``url`` and
            removed; empty if the model's directory already exists.
    """

    name: str
    url: str
    archive: str = ""


@dataclass(frozen=True, slots=True)
class HostedModel:
    """A loaded model.

    Attributes:
        code: The model's own code, or the one for all models; None without code.
        handlers: Runs invocations in the model's own code; if None, bodies are passed to the model unchanged.
        extracted: Directory that was created for the model, or None.
    """

    url: str
    code: UserCode | None
    handlers: HandlerPool | None
    extracted: Path | None


class ModelHost:
    """Loads and unloads models.

    Args:
        registry: Holds the loaded models.
        options: Limits and the directory of all models.
        ports: Ports at which handlers reach the models.
        environment: Environment variables of the server.
        event: Writes an event with its fields to the log.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        loader: Loader,
        options: ServerOptions,
        ports: Ports,
        environment: Mapping[str, str],
        event: Callable[..., None],
    ) -> None:
        self._registry = registry
        self._loader = loader
        self._options = options
        self._ports = ports
        self._event = event
        self._packages = ModelPackages(options.model_dir / "code" / "requirements.txt", environment)
        self._models: dict[str, HostedModel | None] = {}

    @property
    def models(self) -> dict[str, HostedModel]:
        """The loaded models, sorted by name."""
        return {name: model for name, model in sorted(self._models.items()) if model is not None}

    def find(self, name: str) -> HostedModel:
        """Return a loaded model.

        Raises:
            RequestError: NOT_FOUND.
        """
        model = self._models.get(name)
        if model is None:
            raise not_found(f"Model {name} is not loaded yet.")
        return model

    async def load(self, request: LoadRequest) -> HostedModel:
        """Load a model with all its versions, and start its code.

        Raises:
            RequestError: 409, the model is already loaded; 404, there is no model at the URL; 507, not enough memory;
                408, not loaded in time; 400 or 500, the model or its code is broken.
        """
        archive = self._archive(request.archive)
        try:
            return await self._load_once(request, archive)
        finally:
            if archive is not None:
                archive.unlink(missing_ok=True)

    async def unload(self, name: str) -> None:
        """Unload a model after its current requests are answered.

        Raises:
            RequestError: NOT_FOUND.
        """
        model = self._models.get(name)
        if model is None:
            raise not_found(f"Model {name} is not loaded yet")
        self._models[name] = None  # refuses invocations, and further loads until the model is unloaded
        try:
            if model.handlers is not None:
                await model.handlers.drain()
            await self._free(name)
            if model.code is not None:
                self._packages.remove(model.code)
            if model.extracted is not None:
                remove(model.extracted)
        finally:
            self._models.pop(name, None)
        self._event("model.unloaded", name=name)

    async def close(self) -> None:
        """End the workers of all models."""
        pools = [model.handlers for model in self.models.values() if model.handlers is not None]
        await asyncio.gather(*(pool.close() for pool in pools))

    async def _load_once(self, request: LoadRequest, archive: Path | None) -> HostedModel:
        name = request.name
        if name in self._models:
            raise RequestError(Code.ALREADY_EXISTS, f"Model {name} is already loaded.")
        self._models[name] = None  # refuses a second load of the same model
        try:
            model = await asyncio.wait_for(self._load(request, archive), self._options.load_timeout_s)
        except BaseException as error:
            self._models.pop(name, None)
            if isinstance(error, asyncio.TimeoutError):
                raise RequestError(
                    Code.DEADLINE_EXCEEDED, f"Timed out when loading model {name}", http_status=408
                ) from error
            raise
        self._models[name] = model
        return model

    def _archive(self, name: str) -> Path | None:
        if not name:
            return None
        if self._options.archives is None or "/" in name or name.startswith("."):
            raise invalid(f"archive {name!r} is no file of the directory of archives (option --archives)")
        return self._options.archives / name

    async def _load(self, request: LoadRequest, archive: Path | None) -> HostedModel:
        directory = model_directory(request.url, root=self._options.model_dir)
        extracted = directory if archive is not None else None
        if archive is not None and directory is not None:
            await extract(archive, directory)
        try:
            versions = model_versions(request.name, directory, url=request.url)
            check_memory(versions)
            self._registry.add(await self._load_versions(versions))
            assert directory is not None  # implied by having versions
            started = await self._start_code(request.name, directory)
        except BaseException:
            await self._free(request.name)
            if extracted is not None:
                remove(extracted)
            raise
        code, handlers = started or (None, None)
        return HostedModel(request.url, code, handlers, extracted)

    async def _load_versions(self, versions: Sequence[ModelVersion]) -> list[Servable]:
        try:
            return await self._loader.load_beside(versions)
        except Exception as error:  # reported as the failure of the request
            raise _load_failure(error) from error

    async def _start_code(self, name: str, directory: Path) -> "tuple[UserCode, HandlerPool] | None":
        """Start a model's own code, in its directory or one above, else the code of all models in the root."""
        root = self._options.model_dir
        for place in (directory, *directory.parents):
            if not place.is_relative_to(root):
                break
            found = find_inference_code(place / "code", note=lambda line: self._event(line))
            if found is None:
                continue
            try:
                return await self._start(found, name)
            except StartFailed as error:
                raise RequestError(Code.INTERNAL, str(error)) from error
        return None

    async def _start(self, found: UserCode, name: str) -> "tuple[UserCode, HandlerPool]":
        if found.requirements is not None:
            self._event("handler.requirements", file=found.requirements)
        code = await self._packages.install(found)
        try:
            pool = await start_handlers(
                code, options=self._options, ports=self._ports, default_model=name, event=self._event
            )
        except BaseException:
            self._packages.remove(code)
            raise
        return code, pool

    async def _free(self, name: str) -> None:
        for servable in self._registry.remove(name):
            await servable.free()


def _load_failure(error: Exception) -> RequestError:
    text = str(error) or type(error).__name__
    if isinstance(error, MemoryError) or any(word in text for word in _EXHAUSTED):
        return RequestError(Code.RESOURCE_EXHAUSTED, f"Memory exhausted: {text}", http_status=507)
    return RequestError(Code.INTERNAL, text)
