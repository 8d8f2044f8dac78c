// Arrays as nested JSON lists, in the text that TF Serving writes.
#pragma once

#include <cstdint>

#include "abi.h"

namespace tidemill {

constexpr int64_t kMaxValueSize = 26;  // the longest double with its separator

}  // namespace tidemill

// Write an array of `kind` (see request.h), values in C order, into `text`: items apart by ", ", a scalar bare. There has to
// be room for tidemill::kMaxValueSize bytes for each value and four for each list. Returns the size of the text.
TIDEMILL_EXPORTED int64_t tidemill_json_write_lists(const void* values, int32_t kind, const int64_t* shape, int32_t rank,
                                                    char* text);

// Write the same array as several texts: the first one has `rows[0]` rows, and so on. Each begins with `head`, and `tail`
// is in place of the bracket that ends its list. `ends` gets where each text ends. The array has at least one dimension;
// the room is that of above, and that of four bytes, a head and a tail for each text.
TIDEMILL_EXPORTED int64_t tidemill_json_write_batch(const void* values, int32_t kind, const int64_t* shape, int32_t rank,
                                                    const int64_t* rows, int64_t count, const char* head,
                                                    const char* tail, char* text, int64_t* ends);
