// The numbers of JSON.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "decimal.h"

namespace tidemill {

constexpr int kSafeDigits = 19;  // as many always fit in 64 bits

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// A number as it stands in the text. `digits` is right if `fits`.
struct Number {
  const char* begin;
  uint64_t digits;
  int exponent;
  bool negative, whole, fits;
};

constexpr uint64_t kEightZeros = 0x3030303030303030;  // as text

// The value of eight digits (not their characters), of which the first stands in the lowest byte.
inline uint64_t value_of_eight(uint64_t digits) {
  digits = digits * 10 + (digits >> 8);  // each second byte: two digits
  uint64_t even = (digits & 0x000000ff000000ff) * 0x000f424000000064;  // times 1000000 and 100
  uint64_t odd = (digits >> 16 & 0x000000ff000000ff) * 0x0000271000000001;  // times 10000 and 1
  return (even + odd) >> 32;
}

// Append the digits at p to a value, eight at a time without a branch for each; returns what is behind them.
inline const char* scan_digits(const char* p, const char* end, uint64_t* value) {
  uint64_t digits = *value;
  while (end - p >= 8) {
    uint64_t text;
    std::memcpy(&text, p, 8);
    // The high bit of each byte that is no digit. Carries reach only bytes behind the first of those.
    uint64_t others = ((text + 0x4646464646464646) | (text - kEightZeros)) & 0x8080808080808080;
    if (others == 0) {
      digits = digits * 100000000 + value_of_eight(text - kEightZeros);
      p += 8;
      continue;
    }
    int count = __builtin_ctzll(others) / 8;
    if (count > 0) digits = digits * kTens[count] + value_of_eight((text - kEightZeros) << (64 - 8 * count));
    *value = digits;
    return p + count;
  }
  for (; is_digit(*p); ++p) digits = digits * 10 + static_cast<uint64_t>(*p - '0');
  *value = digits;
  return p;
}

// How many of the digits in a text count: zeros in front do not.
inline int64_t significant_digits(const char* begin, const char* end) {
  int64_t zeros = 0, points = 0;
  const char* p = begin;
  for (; p < end && (*p == '0' || *p == '.'); ++p) *p == '0' ? ++zeros : ++points;
  for (; p < end; ++p) points += *p == '.';
  return end - begin - zeros - points;
}

// Scan the number that begins at p; null if there is none.
inline const char* scan_number(const char* p, const char* end, Number* number) {
  number->begin = p;
  number->negative = *p == '-';
  p += number->negative;
  const char* first = p;
  if (!is_digit(*p) || (*p == '0' && is_digit(p[1]))) return nullptr;
  auto digits = static_cast<uint64_t>(*p++ - '0');  // most numbers have a single digit before the point
  if (is_digit(*p)) p = scan_digits(p, end, &digits);
  int64_t exponent = 0;
  number->whole = true;
  if (*p == '.') {
    const char* fraction = ++p;
    p = scan_digits(p, end, &digits);
    if (p == fraction) return nullptr;
    exponent = fraction - p;
    number->whole = false;
  }
  number->fits = p - first <= kSafeDigits || significant_digits(first, p) <= kSafeDigits;
  number->digits = digits;
  if (*p == 'e' || *p == 'E') {
    number->whole = false;
    bool negative = *++p == '-';
    p += *p == '-' || *p == '+';
    if (!is_digit(*p)) return nullptr;
    int64_t written = 0;
    for (; is_digit(*p); ++p) written = written < 100000000 ? written * 10 + (*p - '0') : written;
    exponent += negative ? -written : written;
  }
  // Beyond any number that a double holds, for which the slow conversion is taken.
  number->exponent = static_cast<int>(exponent > 1000000000 ? 1000000000 : exponent < -1000000000 ? -1000000000 : exponent);
  return p;
}

// Store a number as a double; false if it is beyond the range.
inline bool to_double(const Number& number, double* result) {
  double value;
  if (number.fits && nearest_double({number.digits, number.exponent}, &value)) {
    // A whole number has no negative zero, as Python reads it.
    *result = number.negative && (value != 0 || !number.whole) ? -value : value;
    return true;
  }
  *result = nearest_double_of_text(number.begin);
  return std::isfinite(*result);
}

// Store the digits of a whole number; false if 64 bits do not hold it.
inline bool to_digits(const Number& number, uint64_t* digits) {
  *digits = number.digits;
  if (number.fits) return true;
  *digits = 0;
  for (const char* p = number.begin + number.negative; is_digit(*p); ++p) {
    if (__builtin_mul_overflow(*digits, uint64_t{10}, digits)) return false;
    if (__builtin_add_overflow(*digits, static_cast<uint64_t>(*p - '0'), digits)) return false;
  }
  return true;
}

// Store a number as an integer; false if it is none, or out of the type's range.
template <class Integer>
bool to_integer(const Number& number, Integer* result) {
  uint64_t digits;
  if (!number.whole || !to_digits(number, &digits)) return false;
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<Integer>::max());
  if (!number.negative) {
    *result = static_cast<Integer>(digits);
    return digits <= kMax;
  }
  if (digits == 0) {
    *result = 0;
    return true;
  }
  *result = static_cast<Integer>(~(digits - 1));
  return std::numeric_limits<Integer>::is_signed && digits - 1 <= kMax;
}

}  // namespace tidemill
