#include "decimal.h"

#include <array>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <locale.h>

namespace tidemill {
namespace {

using uint128 = unsigned __int128;

constexpr int kMaxExponent = 330;  // of ten; beyond it the slow conversions are taken
constexpr int kFractionBits = 52;
constexpr int kExponentBias = 1075;  // of a double whose mantissa is taken as a whole number

// 5^n = mantissa * 2^exponent, where the mantissa has 128 bits, of which the first is set. It is rounded down.
struct PowerOfFive {
  uint64_t high, low;
  int exponent;
};

// Powers of five with exponents from -kMaxExponent to kMaxExponent.
class Powers {
 public:
  Powers() {
    Wide up{}, down{};
    up[0] = 1;
    down[kLimbs - 1] = 1;  // a fixed point: 2^(64 * (kLimbs - 1)) stands for one
    for (int n = 0; n <= kMaxExponent; ++n) {
      table_[kMaxExponent + n] = leading_bits(up, 0);
      table_[kMaxExponent - n] = leading_bits(down, -64 * (kLimbs - 1));
      multiply_by_five(up);
      divide_by_five(down);
    }
  }

  const PowerOfFive& operator[](int n) const { return table_[kMaxExponent + n]; }

 private:
  static constexpr int kLimbs = 16;  // 1024 bits: 5^330 has 767, and 2^960 / 5^330 still has 194
  using Wide = std::array<uint64_t, kLimbs>;

  static void multiply_by_five(Wide& value) {
    uint128 carry = 0;
    for (uint64_t& limb : value) {
      carry += uint128{limb} * 5;
      limb = static_cast<uint64_t>(carry);
      carry >>= 64;
    }
  }

  // Rounds down. Doing so again and again gives what one division by a power of five gives.
  static void divide_by_five(Wide& value) {
    uint128 rest = 0;
    for (int i = kLimbs - 1; i >= 0; --i) {
      rest = rest << 64 | value[i];
      value[i] = static_cast<uint64_t>(rest / 5);
      rest %= 5;
    }
  }

  static PowerOfFive leading_bits(const Wide& value, int exponent) {
    int top = kLimbs - 1;
    while (value[top] == 0) --top;
    auto limb = [&](int i) { return i >= 0 ? value[i] : 0; };
    int shift = __builtin_clzll(value[top]);
    uint128 bits = uint128{limb(top)} << 64 | limb(top - 1);
    if (shift > 0) bits = bits << shift | limb(top - 2) >> (64 - shift);
    return {static_cast<uint64_t>(bits >> 64), static_cast<uint64_t>(bits), exponent + 64 * (top - 1) - shift};
  }

  std::array<PowerOfFive, 2 * kMaxExponent + 1> table_;
};

const Powers powers;
const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);

// value * 10^n = high * 2^exponent and a rest below it, of which the first 64 bits are `middle`. What is lost (by the table
// and behind `middle`) is less than two units of `middle`.
struct Product {
  uint64_t high, middle;
  int exponent;
};

Product times_power_of_ten(uint64_t value, int n) {
  const PowerOfFive& power = powers[n];
  uint128 upper = uint128{value} * power.high;
  uint128 lower = uint128{value} * power.low;
  upper += static_cast<uint64_t>(lower >> 64);
  return {static_cast<uint64_t>(upper >> 64), static_cast<uint64_t>(upper), power.exponent + n + 128};
}

// Round product.high * 2^-shift to the nearest whole number; false where it may be a tie.
bool rounded(const Product& product, int shift, uint64_t* result) {
  uint64_t half = uint64_t{1} << (shift - 1);
  uint64_t rest = product.high & (2 * half - 1);
  if ((rest == half && product.middle == 0) || (rest == half - 1 && product.middle >= UINT64_MAX - 1)) return false;
  *result = (product.high >> shift) + (rest >= half);
  return true;
}

Decimal nearest_decimal_by_library(double value, int precision) {
  char text[64];
  locale_t before = uselocale(c_locale);
  std::snprintf(text, sizeof text, "%.*e", precision - 1, value);
  uselocale(before);
  uint64_t digits = 0;
  const char* p = text;
  for (; *p != 'e'; ++p) {
    if (*p != '.') digits = digits * 10 + static_cast<uint64_t>(*p - '0');
  }
  return {digits, std::atoi(p + 1) - (precision - 1)};
}

}  // namespace

bool nearest_double_by_product(Decimal decimal, double* result) {
  auto [digits, exponent] = decimal;
  if (digits == 0) {
    *result = 0;
    return true;
  }
  if (exponent < -kMaxExponent || exponent > kMaxExponent) return false;
  int lead = __builtin_clzll(digits);
  Product product = times_power_of_ten(digits << lead, exponent);
  int shift = 63 - kFractionBits - (product.high >> 63 ? 0 : 1);
  uint64_t mantissa;
  if (!rounded(product, shift, &mantissa)) return false;
  int binary_exponent = product.exponent - lead + shift + kExponentBias;
  if (mantissa >> (kFractionBits + 1)) {  // rounded up to the next power of two
    mantissa >>= 1;
    ++binary_exponent;
  }
  if (binary_exponent <= 0 || binary_exponent >= 0x7ff) return false;
  uint64_t bits = static_cast<uint64_t>(binary_exponent) << kFractionBits |
                  (mantissa & ((uint64_t{1} << kFractionBits) - 1));
  std::memcpy(result, &bits, sizeof bits);
  return true;
}

double nearest_double_of_text(const char* begin) { return strtod_l(begin, nullptr, c_locale); }

Decimal nearest_decimal(double value, int precision) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  int binary_exponent = static_cast<int>(bits >> kFractionBits);
  if (binary_exponent == 0) return nearest_decimal_by_library(value, precision);  // subnormal
  uint64_t mantissa = (bits | uint64_t{1} << kFractionBits) << (63 - kFractionBits);
  int exponent = binary_exponent - kExponentBias - (63 - kFractionBits);
  // log10(2) is 0.30103: the greatest power of ten that the value may reach, or the one below it.
  int magnitude = static_cast<int>((int64_t{exponent + 64} * 30103 + 100000 * 400) / 100000) - 400;
  for (;; --magnitude) {
    int scale = precision - 1 - magnitude;
    Product product = times_power_of_ten(mantissa, scale);
    int shift = -(product.exponent + exponent);
    uint64_t digits;
    if (shift < 1 || shift > 63 || !rounded(product, shift, &digits)) {
      return nearest_decimal_by_library(value, precision);
    }
    if ((product.high >> shift) < kTens[precision - 1]) continue;  // the magnitude is one too high
    if (digits > kTens[precision]) return nearest_decimal_by_library(value, precision);
    if (digits == kTens[precision]) return {kTens[precision - 1], 1 - scale};
    return {digits, -scale};
  }
}

}  // namespace tidemill
