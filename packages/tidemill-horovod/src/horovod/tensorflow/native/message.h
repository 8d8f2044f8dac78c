// The messages between the ranks and the coordinator.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace tidemill {

enum class Kind : int {
  kAllreduce = 0,
  kAllgather = 1,
  kAlltoall = 2,
  kBroadcast = 3,
  kJoin = 4,
  kReducescatter = 5,
  kEnded = 6,  // only in responses: rank `root` has ended
};

// Reports a tensor that is ready on a rank.
struct Request {
  Kind kind = Kind::kAllreduce;
  int reduction = 0;
  int dtype = 0;
  int root = 0;  // for a broadcast: counted in all ranks
  double scale = 1.0;
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> splits;   // for an alltoall: number of rows for each member
  std::vector<std::int64_t> members;  // participating ranks, ascending
  std::int64_t step = 0;              // the rank's execution of a graph; 0 for an eager call
  std::string problem;                // why this rank's arguments are invalid: then the call fails on all ranks
};

// The next collective of all members; they run responses in the order of arrival. Tensors of one allreduce are fused.
struct Response {
  Kind kind = Kind::kAllreduce;
  int reduction = 0;
  int dtype = 0;
  int root = 0;
  double scale = 1.0;
  std::uint64_t number = 0;
  std::vector<std::int64_t> members;
  std::vector<std::string> names;
  std::vector<std::int64_t> elements;  // number of elements of each tensor of an allreduce
  // allgather: rows of each member; alltoall: rows from each member to each member; join: the last rank that joined.
  std::vector<std::int64_t> rows;
  std::string error;  // why this collective cannot run; later responses are not affected
  bool invalid = false;  // with `error`: the arguments of a rank are invalid; else the calls of the ranks differ
  bool fatal = false;    // the job has failed: no collective can run any more
};

// Determines the number of rows for each member of an alltoall: `splits` has `count` numbers, or none for equal ones.
// Sets the request's problem if that is impossible.
void SplitRows(const std::int64_t* splits, std::int64_t count, Request* request);

// Sets the request's problem if its collective cannot have a tensor of this dtype or shape.
void CheckTensor(Request* request);

class Writer {
 public:
  void Put(std::int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void Put(double value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void Put(const std::string& value) {
    Put(static_cast<std::int64_t>(value.size()));
    bytes_ += value;
  }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Put(static_cast<std::int64_t>(values.size()));
    for (const T& value : values) Put(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : at_(bytes.data()), left_(bytes.size()) {}
  void Get(std::int64_t* value) { Take(value, sizeof *value); }
  void Get(double* value) { Take(value, sizeof *value); }
  void Get(int* value) {
    std::int64_t wide;
    Get(&wide);
    *value = static_cast<int>(wide);
  }
  void Get(std::string* value) {
    std::int64_t size;
    Get(&size);
    if (size < 0 || static_cast<std::size_t>(size) > left_) throw std::runtime_error("a message is cut off");
    value->resize(static_cast<std::size_t>(size));
    if (size > 0) Take(&(*value)[0], value->size());
  }
  template <typename T>
  void Get(std::vector<T>* values) {
    std::int64_t size;
    Get(&size);
    if (size < 0 || static_cast<std::size_t>(size) > left_) throw std::runtime_error("a message is cut off");
    values->resize(static_cast<std::size_t>(size));
    for (T& value : *values) Get(&value);
  }

 private:
  void Take(void* to, std::size_t size) {
    if (size > left_) throw std::runtime_error("a message is cut off");
    std::memcpy(to, at_, size);
    at_ += size;
    left_ -= size;
  }
  const char* at_;
  std::size_t left_;
};

std::string Pack(const Request& request);
std::string Pack(const Response& response);
Request UnpackRequest(const std::string& bytes);
Response UnpackResponse(const std::string& bytes);

}  // namespace tidemill
