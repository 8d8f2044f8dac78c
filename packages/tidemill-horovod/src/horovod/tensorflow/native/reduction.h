// Element-wise reductions of TensorFlow's dtypes.
#pragma once

#include <cstddef>
#include <string>

namespace tidemill {

enum class Reduction : int { kSum = 0, kMin = 1, kMax = 2, kProduct = 3 };

// Returns the bytes of one element; 0 for dtypes that cannot be reduced.
std::size_t ElementSize(int dtype);

// Returns the name of a dtype, such as float32, for messages.
std::string DtypeName(int dtype);

// Computes out[i] = scale * (parts[0][i] op parts[1][i] op ...), in the order of the parts. Half precision is
// accumulated in float and rounded once. Integers are multiplied by `scale` in double and truncated; it does not apply
// to booleans. `out` may be one of the parts.
void Reduce(int dtype, Reduction reduction, const void* const* parts, int num_parts, std::size_t count, double scale,
            void* out);

}  // namespace tidemill
