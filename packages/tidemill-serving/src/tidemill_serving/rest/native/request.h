// A predict request's body, read straight into the arrays of its inputs.
#pragma once

#include <cstdint>

#include "abi.h"

namespace tidemill {

constexpr int kMaxRank = 32;

enum Kind : int64_t { kFloat32, kFloat64, kInt8, kInt16, kInt32, kInt64, kUint8, kUint16, kUint32, kUint64, kBool };

// One input of a signature: what is known of it, then what the body has for it.
struct Input {
  const char* name;
  int64_t name_size;
  void* values;  // room for half as many values as the body has bytes, and one more
  int64_t kind;
  int64_t rank;
  int64_t shape[kMaxRank];
};

struct Request {
  Input* inputs;
  int64_t num_inputs;
  const char* signature;  // the signature's name that the body has to give; empty for the default one
  int64_t signature_size;
  int64_t named_offset;  // where the body names another signature, and how long that name is
  int64_t named_size;
  int64_t row_form;
};

enum Outcome { kRead = 0, kNotTaken = 1, kOtherSignature = 2 };

}  // namespace tidemill

// Read `body`, which ends with a zero byte behind its `size` bytes, into a request's arrays. What is not taken, however
// little of it is unusual, has to be read by Python, which knows the errors.
TIDEMILL_EXPORTED int tidemill_json_read_request(const char* body, int64_t size, tidemill::Request* request);

// Read the bodies of several requests, of `sizes` bytes, into the same arrays, one behind the other. `rows` gets the rows
// of each: -1 if it is not taken, or if its rows have another shape, or its data another form, than those before it. Stops
// in front of a body with which there would be more than `max_rows` rows. The arrays need room for half as many values as
// all bodies have bytes, and one more for each body. Returns the number of bodies looked at. The request then has the
// shape of all rows together.
TIDEMILL_EXPORTED int64_t tidemill_json_read_batch(const char* const* bodies, const int64_t* sizes, int64_t count,
                                                   int64_t max_rows, tidemill::Request* request, int64_t* rows);
