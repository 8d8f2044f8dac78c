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
