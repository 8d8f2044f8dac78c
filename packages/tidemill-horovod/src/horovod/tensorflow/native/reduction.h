// Element-wise reductions of the dtypes that TensorFlow has.
#pragma once

#include <cstddef>

namespace tidemill {

enum class Reduction : int { kSum = 0, kMin = 1, kMax = 2, kProduct = 3 };

// Bytes of one element; 0 for dtypes that cannot be reduced.
std::size_t ElementSize(int dtype);

// out[i] = scale * (parts[0][i] op parts[1][i] op ...), in the order of the parts. Half precision is accumulated in
// float and rounded once. `scale` is for floating-point and complex dtypes. `out` may be one of the parts.
void Reduce(int dtype, Reduction reduction, const void* const* parts, int num_parts, std::size_t count, double scale,
            void* out);

}  // namespace tidemill
