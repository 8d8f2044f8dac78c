#include "reduction.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <type_traits>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")  // -O2 does not vectorize loops of unknown length
#endif

namespace tidemill {
namespace {

constexpr std::size_t kBlock = 1024;  // elements accumulated at a time: they fit into the first-level cache

// --- how elements are read into the accumulator, and written from it -----------------------------------------------

template <typename T>
struct Plain {
  using Stored = T;
  using Accumulated = T;
  static void Load(const T* from, T* to, std::size_t count) { std::copy_n(from, count, to); }
  static void Store(const T* from, T* to, std::size_t count) { std::copy_n(from, count, to); }
};

float FromHalf(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  std::uint32_t exponent = (half >> 10) & 0x1fu;
  std::uint32_t mantissa = half & 0x3ffu;
  std::uint32_t bits;
  if (exponent == 0x1f) {
    bits = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal, or zero
    std::memcpy(&bits, &value, sizeof bits);
    bits |= sign;
  }
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint16_t ToHalf(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return sign | 0x7e00u;
  if (bits >= 0x477ff000u) return sign | 0x7c00u;  // rounds to infinity
  if (bits < 0x38800000u) {                         // subnormal: adding 0.5 shifts and rounds to nearest even
    float magic;
    std::memcpy(&magic, &bits, sizeof magic);
    magic += 0.5f;
    std::uint32_t rounded;
    std::memcpy(&rounded, &magic, sizeof rounded);
    return static_cast<std::uint16_t>(sign | (rounded - 0x3f000000u));
  }
  bits += 0xc8000fffu + ((bits >> 13) & 1u);  // (15 - 127) << 23, and round to nearest even
  return static_cast<std::uint16_t>(sign | (bits >> 13));
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void FromHalves(const std::uint16_t* from, float* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < count; ++i) to[i] = FromHalf(from[i]);
}

__attribute__((target("avx,f16c"))) void ToHalves(const float* from, std::uint16_t* to, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < count; ++i) to[i] = ToHalf(from[i]);
}

__attribute__((target("avx,f16c"))) inline __m256 LoadHalves(const void* part, std::size_t i) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const std::uint16_t*>(part) + i)));
}

// The most frequent reduction, without intermediate values in memory. Returns the number of reduced elements.
__attribute__((target("avx,f16c"))) std::size_t SumHalves(const void* const* parts, int num_parts, std::size_t count,
                                                          float scale, std::uint16_t* out) {
  const __m256 factor = _mm256_set1_ps(scale);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256 total = LoadHalves(parts[0], i);
    for (int part = 1; part < num_parts; ++part) total = _mm256_add_ps(total, LoadHalves(parts[part], i));
    if (scale != 1.0f) total = _mm256_mul_ps(total, factor);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(total, _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

bool HasF16c() {  // clang before 15 does not accept "f16c" in __builtin_cpu_supports
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1U << 29)) != 0;
}

bool HasHalfInstructions() {
  // The first one also shows that the operating system saves the registers.
  static const bool has = __builtin_cpu_supports("avx") && HasF16c();
  return has;
}
#endif

struct Half {
  using Stored = std::uint16_t;
  using Accumulated = float;
  static void Load(const Stored* from, float* to, std::size_t count) {
#if defined(__x86_64__)
    if (HasHalfInstructions()) return FromHalves(from, to, count);
#endif
    for (std::size_t i = 0; i < count; ++i) to[i] = FromHalf(from[i]);
  }
  static void Store(const float* from, Stored* to, std::size_t count) {
#if defined(__x86_64__)
    if (HasHalfInstructions()) return ToHalves(from, to, count);
#endif
    for (std::size_t i = 0; i < count; ++i) to[i] = ToHalf(from[i]);
  }
};

struct Bfloat {
  using Stored = std::uint16_t;
  using Accumulated = float;
  static void Load(const Stored* from, float* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = static_cast<std::uint32_t>(from[i]) << 16;
      std::memcpy(to + i, &bits, sizeof bits);
    }
  }
  static void Store(const float* from, Stored* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, from + i, sizeof bits);
      const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
      const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
      to[i] = static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded);
    }
  }
};

// --- what is done with them -----------------------------------------------------------------------------------------

struct Add {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(a + b);
  }
};
struct Multiply {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(a * b);
  }
};
// As NumPy's minimum and maximum: NaN has priority.
struct Minimum {
  template <typename T>
  static T Of(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
struct Maximum {
  template <typename T>
  static T Of(T a, T b) {
    return a > b || a != a ? a : b;
  }
};

template <typename Format, typename Operation>
void ReduceAs(const void* const* parts, int num_parts, std::size_t count, double scale, void* out) {
  using Stored = typename Format::Stored;
  using Accumulated = typename Format::Accumulated;
  Accumulated total[kBlock];
  Accumulated next[kBlock];
  // In double for integers: a factor of 1/2 is no integer.
  using Factor = std::conditional_t<std::is_integral_v<Accumulated>, double, Accumulated>;
  const Factor factor = static_cast<Factor>(scale);
  std::size_t done = 0;
#if defined(__x86_64__)
  if constexpr (std::is_same_v<Format, Half> && std::is_same_v<Operation, Add>) {
    if (HasHalfInstructions()) done = SumHalves(parts, num_parts, count, factor, static_cast<Stored*>(out));
  }
#endif
  for (std::size_t begin = done; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    Format::Load(static_cast<const Stored*>(parts[0]) + begin, total, size);
    for (int part = 1; part < num_parts; ++part) {
      Format::Load(static_cast<const Stored*>(parts[part]) + begin, next, size);
      for (std::size_t i = 0; i < size; ++i) total[i] = Operation::Of(total[i], next[i]);
    }
    if (scale != 1.0) {
      for (std::size_t i = 0; i < size; ++i) {
        total[i] = static_cast<Accumulated>(static_cast<Factor>(total[i]) * factor);
      }
    }
    Format::Store(total, static_cast<Stored*>(out) + begin, size);
  }
}

template <typename Format>
void ReduceIn(Reduction reduction, const void* const* parts, int num_parts, std::size_t count, double scale,
              void* out) {
  switch (reduction) {
    case Reduction::kSum: return ReduceAs<Format, Add>(parts, num_parts, count, scale, out);
    case Reduction::kMin: return ReduceAs<Format, Minimum>(parts, num_parts, count, scale, out);
    case Reduction::kMax: return ReduceAs<Format, Maximum>(parts, num_parts, count, scale, out);
    case Reduction::kProduct: return ReduceAs<Format, Multiply>(parts, num_parts, count, scale, out);
  }
}

// The numbers of TensorFlow's dtypes.
enum : int {
  kFloat = 1, kDouble = 2, kInt32 = 3, kUint8 = 4, kInt16 = 5, kInt8 = 6, kString = 7, kComplex64 = 8, kInt64 = 9, kBool = 10,
  kBfloat16 = 14, kUint16 = 17, kComplex128 = 18, kHalf = 19, kUint32 = 22, kUint64 = 23
};

}  // namespace

std::size_t ElementSize(int dtype) {
  switch (dtype) {
    case kUint8: case kInt8: case kBool: return 1;
    case kInt16: case kUint16: case kHalf: case kBfloat16: return 2;
    case kFloat: case kInt32: case kUint32: return 4;
    case kDouble: case kInt64: case kUint64: case kComplex64: return 8;
    case kComplex128: return 16;
    default: return 0;
  }
}

std::string DtypeName(int dtype) {
  static const std::map<int, const char*> names = {
      {kFloat, "float32"},   {kDouble, "float64"},   {kHalf, "float16"},         {kBfloat16, "bfloat16"},
      {kInt8, "int8"},       {kInt16, "int16"},      {kInt32, "int32"},          {kInt64, "int64"},
      {kUint8, "uint8"},     {kUint16, "uint16"},    {kUint32, "uint32"},        {kUint64, "uint64"},
      {kBool, "bool"},       {kString, "string"},    {kComplex64, "complex64"},  {kComplex128, "complex128"},
  };
  const auto found = names.find(dtype);
  return found == names.end() ? "dtype " + std::to_string(dtype) : found->second;
}

void Reduce(int dtype, Reduction reduction, const void* const* parts, int num_parts, std::size_t count, double scale,
            void* out) {
  const auto as = [&](auto format, std::size_t elements) {
    ReduceIn<decltype(format)>(reduction, parts, num_parts, elements, scale, out);
  };
  switch (dtype) {
    case kFloat: return as(Plain<float>(), count);
    case kDouble: return as(Plain<double>(), count);
    case kComplex64: return as(Plain<float>(), 2 * count);  // sums only: the caller checks this
    case kComplex128: return as(Plain<double>(), 2 * count);
    case kHalf: return as(Half(), count);
    case kBfloat16: return as(Bfloat(), count);
    case kInt8: return as(Plain<std::int8_t>(), count);
    case kUint8: return as(Plain<std::uint8_t>(), count);
    case kInt16: return as(Plain<std::int16_t>(), count);
    case kUint16: return as(Plain<std::uint16_t>(), count);
    case kInt32: return as(Plain<std::int32_t>(), count);
    case kUint32: return as(Plain<std::uint32_t>(), count);
    case kInt64: return as(Plain<std::int64_t>(), count);
    case kUint64: return as(Plain<std::uint64_t>(), count);
    case kBool:  // the sum is "any", the product "all"
      reduction = reduction == Reduction::kSum || reduction == Reduction::kMax ? Reduction::kMax : Reduction::kMin;
      scale = 1.0;
      return as(Plain<std::uint8_t>(), count);
    default: return;
  }
}

}  // namespace tidemill
