#include "message.h"

namespace tidemill {
namespace {

std::int64_t Wide(int value) { return value; }

}  // namespace

std::string Pack(const Request& request) {
  Writer to;
  to.Put(Wide(static_cast<int>(request.kind)));
  to.Put(Wide(request.reduction));
  to.Put(Wide(request.dtype));
  to.Put(Wide(request.root));
  to.Put(request.scale);
  to.Put(request.name);
  to.Put(request.shape);
  to.Put(request.splits);
  to.Put(request.members);
  to.Put(request.step);
  to.Put(request.problem);
  return to.bytes();
}

Request UnpackRequest(const std::string& bytes) {
  Reader from(bytes);
  Request request;
  int kind;
  from.Get(&kind);
  request.kind = static_cast<Kind>(kind);
  from.Get(&request.reduction);
  from.Get(&request.dtype);
  from.Get(&request.root);
  from.Get(&request.scale);
  from.Get(&request.name);
  from.Get(&request.shape);
  from.Get(&request.splits);
  from.Get(&request.members);
  from.Get(&request.step);
  from.Get(&request.problem);
  return request;
}

std::string Pack(const Response& response) {
  Writer to;
  to.Put(Wide(static_cast<int>(response.kind)));
  to.Put(Wide(response.reduction));
  to.Put(Wide(response.dtype));
  to.Put(Wide(response.root));
  to.Put(response.scale);
  to.Put(static_cast<std::int64_t>(response.number));
  to.Put(response.members);
  to.Put(response.names);
  to.Put(response.elements);
  to.Put(response.rows);
  to.Put(response.error);
  to.Put(Wide(response.invalid ? 1 : 0));
  to.Put(Wide(response.fatal ? 1 : 0));
  return to.bytes();
}

Response UnpackResponse(const std::string& bytes) {
  Reader from(bytes);
  Response response;
  int kind;
  int invalid;
  int fatal;
  std::int64_t number;
  from.Get(&kind);
  response.kind = static_cast<Kind>(kind);
  from.Get(&response.reduction);
  from.Get(&response.dtype);
  from.Get(&response.root);
  from.Get(&response.scale);
  from.Get(&number);
  response.number = static_cast<std::uint64_t>(number);
  from.Get(&response.members);
  from.Get(&response.names);
  from.Get(&response.elements);
  from.Get(&response.rows);
  from.Get(&response.error);
  from.Get(&invalid);
  response.invalid = invalid != 0;
  from.Get(&fatal);
  response.fatal = fatal != 0;
  return response;
}

}  // namespace tidemill
