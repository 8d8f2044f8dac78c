// Conversion between decimal and binary floating-point numbers, correctly rounded.
#pragma once

#include <array>
#include <cstdint>

namespace tidemill {

// A positive decimal number, digits * 10^exponent.
struct Decimal {
  uint64_t digits;
  int exponent;
};

// Powers of ten: 10^0 to 10^17.
constexpr std::array<uint64_t, 18> kTens = [] {
  std::array<uint64_t, 18> tens{};
  uint64_t next = 1;
  for (uint64_t& ten : tens) {
    ten = next;
    next *= 10;
  }
  return tens;
}();

constexpr int kMaxExactExponent = 22;
constexpr uint64_t kMaxExactInteger = uint64_t{1} << 53;
constexpr std::array<double, kMaxExactExponent + 1> kExactPowers = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

bool nearest_double_by_product(Decimal decimal, double* result);

// Store the double that is nearest to digits * 10^exponent; false where that needs more than 192 bits, or the result is
// subnormal or beyond the range of a double. Then the slow conversion has to be taken. Inline for the numbers that most
// bodies have: both factors are doubles, so that the hardware rounds once.
inline bool nearest_double(Decimal decimal, double* result) {
  auto [digits, exponent] = decimal;
  if (digits > kMaxExactInteger || exponent < -kMaxExactExponent || exponent > kMaxExactExponent) {
    return nearest_double_by_product(decimal, result);
  }
  *result = exponent < 0 ? static_cast<double>(digits) / kExactPowers[-exponent]
                         : static_cast<double>(digits) * kExactPowers[exponent];
  return true;
}

// The slow conversion: of a whole number in text, always right. The text ends with something that is no part of it.
double nearest_double_of_text(const char* begin);

// Store the decimal of `precision` digits (1 to 17) that is nearest to a positive, finite value; ties go to even digits.
Decimal nearest_decimal(double value, int precision);

}  // namespace tidemill
