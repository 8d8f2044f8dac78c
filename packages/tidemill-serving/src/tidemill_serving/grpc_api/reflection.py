"""Server reflection: clients such as grpcurl ask for the services and for the definitions of their messages.

The versions v1 and v1alpha of the protocol differ in the names of their packages only.
"""

from functools import cache
from typing import Any

from tidemill_serving.errors import Code
from tidemill_serving.grpc_api.call import Call
from tidemill_serving.grpc_api.lookup import parsed
from tidemill_serving.messages.definitions import definition_pools, messages
from tidemill_serving.messages.schema import SERVICES

REFLECTION_PATHS = tuple(
    f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo".encode() for version in ("v1", "v1alpha")
)
_REQUEST_BYTES = 65_536


class Reflection:
    """One call of ServerReflectionInfo: each request is answered in turn.

    Args:
        call: The call.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def ended(self) -> bool:
        """Whether the client has sent its last request. It was answered, since nothing is left to send."""
        return self._call.is_complete

    def next(self) -> bytes | None:
        """Return the answer of the next request; None if it has not arrived.

        Raises:
            RequestError: The request is damaged.
        """
        data = self._call.next_message(limit_bytes=_REQUEST_BYTES)
        if data is None:
            return None
        request = parsed("ServerReflectionRequest", data)
        response = messages().ServerReflectionResponse(valid_host=request.host, original_request=request)
        asked = request.WhichOneof("message_request")
        if asked == "list_services":
            for name in sorted(SERVICES):
                response.list_services_response.service.add(name=name)
        elif asked in ("file_by_filename", "file_containing_symbol"):
            self._add_files(response, asked, getattr(request, asked))
        elif asked == "all_extension_numbers_of_type":
            self._add_extensions(response, request.all_extension_numbers_of_type)
        elif asked == "file_containing_extension":
            name = request.file_containing_extension.containing_type
            _refuse(response, Code.NOT_FOUND, f"no message is extended, so neither is {name!r}")
        else:
            _refuse(response, Code.INVALID_ARGUMENT, "the request asks for nothing: set one of message_request")
        return bytes(response.SerializeToString())

    def _add_files(self, response: Any, asked: str, name: str) -> None:
        file = _found("FindFileByName", name) if asked == "file_by_filename" else _file_with(name)
        if file is None:
            known = ", ".join(sorted(SERVICES))
            _refuse(response, Code.NOT_FOUND, f"{name!r} is unknown; the services are: {known}")
        else:
            response.file_descriptor_response.file_descriptor_proto.extend(_with_imports(file))

    def _add_extensions(self, response: Any, name: str) -> None:
        if _found("FindMessageTypeByName", name) is None:
            _refuse(response, Code.NOT_FOUND, f"{name!r} is no message")
        else:
            response.all_extension_numbers_response.base_type_name = name


def _refuse(response: Any, code: Code, text: str) -> None:
    response.error_response.error_code = code.number
    response.error_response.error_message = text


def _file_with(symbol: str) -> Any:
    file = _found("FindFileContainingSymbol", symbol)
    if file is not None:
        return file
    owner, _, method = symbol.rpartition(".")  # the pools of protobuf do not find methods
    service = _found("FindServiceByName", owner)
    return service.file if service is not None and method in service.methods_by_name else None


def _found(method: str, name: str) -> Any:
    """Return what a method of a pool finds by a name; None if no pool has it."""
    for pool in definition_pools():
        try:
            return getattr(pool, method)(name)
        except KeyError:
            continue
    return None


@cache
def _with_imports(file: Any) -> tuple[bytes, ...]:
    """Return a serialized FileDescriptorProto, and those of all files that it imports, each once."""
    files = {file.name: file}
    waiting = [file]
    while waiting:
        for each in waiting.pop().dependencies:
            if each.name not in files:
                files[each.name] = each
                waiting.append(each)
    return tuple(each.serialized_pb for each in files.values())
