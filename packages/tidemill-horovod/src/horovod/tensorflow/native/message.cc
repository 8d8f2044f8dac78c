#include "message.h"

#include "reduction.h"

namespace tidemill {
namespace {

std::int64_t Wide(int value) { return value; }

}  // namespace

void SplitRows(const std::int64_t* splits, std::int64_t count, Request* request) {
  const auto members = static_cast<std::int64_t>(request->members.size());
  if (request->shape.empty()) {
    request->problem = "hvd.alltoall: the tensor is a scalar; allowed are tensors with at least one axis";
    return;
  }
  const std::int64_t rows = request->shape[0];
  if (count == 0) {  // no splits are given
    request->splits.assign(static_cast<std::size_t>(members), rows / members);
    if (rows % members == 0) return;
    request->problem = "hvd.alltoall: " + std::to_string(rows) + " rows cannot be divided evenly among " +
                       std::to_string(members) + " ranks; give splits";
    return;
  }
  const std::string allowed = "; allowed are " + std::to_string(members) +
                              " numbers >= 0 whose sum is at most the number of rows, " + std::to_string(rows);
  if (count != members) {
    request->problem =
        "hvd.alltoall: splits has " + (count < 0 ? "another shape" : std::to_string(count) + " numbers") + allowed;
    return;
  }
  request->splits.assign(splits, splits + count);
  std::int64_t left = rows;
  for (const std::int64_t split : request->splits) left = split < 0 || left < 0 ? -1 : left - split;
  if (left >= 0) return;
  request->splits.assign(static_cast<std::size_t>(members), 0);
  std::string text;
  for (std::int64_t place = 0; place < count; ++place) text += (place > 0 ? ", " : "") + std::to_string(splits[place]);
  request->problem = "hvd.alltoall: splits is [" + text + "]" + allowed;
}

void CheckTensor(Request* request) {
  if (request->kind == Kind::kReducescatter && request->shape.empty()) {
    request->problem = "hvd.reducescatter: the tensor is a scalar; allowed are tensors with at least one axis";
  }
  if (ElementSize(request->dtype) == 0) {
    request->problem = "the tensor is of " + DtypeName(request->dtype) + "; allowed are numbers and booleans";
  }
}

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
