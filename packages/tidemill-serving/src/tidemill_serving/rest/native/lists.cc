#include "lists.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "decimal.h"
#include "request.h"

namespace tidemill {
namespace {

constexpr int kShortDigits = 6;
constexpr int kLeastPlainMagnitude = -4;  // smaller numbers are written with an exponent

char* put(char* text, const char* word) {
  size_t size = std::strlen(word);
  std::memcpy(text, word, size);
  return text + size;
}

// Write whole digits without zeros in front; returns the end.
char* put_integer(char* text, uint64_t value) {
  char digits[20];
  char* p = digits + sizeof digits;
  do {
    *--p = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  auto size = static_cast<size_t>(digits + sizeof digits - p);
  std::memcpy(text, p, size);
  return text + size;
}

// Whether a decimal reads back as the number that it was made from.
template <class Float>
bool reads_back(Decimal decimal, Float value) {
  double back;
  if (!nearest_double(decimal, &back)) {
    char text[48];
    char* p = put_integer(text, decimal.digits);
    *p++ = 'e';
    if (decimal.exponent < 0) *p++ = '-';
    p = put_integer(p, static_cast<uint64_t>(decimal.exponent < 0 ? -decimal.exponent : decimal.exponent));
    *p = '\0';
    back = nearest_double_of_text(text);
  }
  return static_cast<Float>(back) == value;
}

char* put_zeros(char* text, int count) {
  for (; count > 0; --count) *text++ = '0';
  return text;
}

char* put_exponent(char* text, int exponent) {
  *text++ = 'e';
  *text++ = exponent < 0 ? '-' : '+';
  if (exponent < 0) exponent = -exponent;
  if (exponent < 10) *text++ = '0';
  return put_integer(text, static_cast<uint64_t>(exponent));
}

// Write a decimal of `precision` digits as printf's %g does; a whole number without an exponent gets a point.
char* put_decimal(char* text, Decimal decimal, int precision) {
  int magnitude = decimal.exponent + precision - 1;
  int size = precision;
  for (; decimal.digits % 10 == 0; --size) decimal.digits /= 10;
  char digits[20];
  put_integer(digits, decimal.digits);
  auto copy = [&](int from, int to) {
    std::memcpy(text, digits + from, static_cast<size_t>(to - from));
    text += to - from;
  };
  if (magnitude < kLeastPlainMagnitude || magnitude >= precision) {
    *text++ = digits[0];
    if (size > 1) *text++ = '.';
    copy(1, size);
    return put_exponent(text, magnitude);
  }
  if (magnitude < 0) {
    text = put_zeros(put(text, "0."), -magnitude - 1);
    copy(0, size);
    return text;
  }
  int whole = magnitude + 1;
  if (size <= whole) {
    copy(0, size);
    return put(put_zeros(text, whole - size), ".0");
  }
  copy(0, whole);
  *text++ = '.';
  copy(whole, size);
  return text;
}

// A float takes 6 digits if they read back as the same number, else as many as always do.
template <class Float>
char* put_value(char* text, Float value, std::true_type) {
  if (std::isnan(value)) return put(text, "NaN");
  if (std::signbit(value)) *text++ = '-';
  value = std::fabs(value);
  if (std::isinf(value)) return put(text, "Infinity");
  if (value == 0) return put(text, "0.0");
  Decimal decimal = nearest_decimal(value, kShortDigits);
  if (reads_back(decimal, value)) return put_decimal(text, decimal, kShortDigits);
  constexpr int kDigits = std::numeric_limits<Float>::max_digits10;
  return put_decimal(text, nearest_decimal(value, kDigits), kDigits);
}

template <class Integer>
char* put_value(char* text, Integer value, std::false_type) {
  auto magnitude = static_cast<uint64_t>(value);
  if (value < 0) {
    *text++ = '-';
    magnitude = ~magnitude + 1;
  }
  return put_integer(text, magnitude);
}

template <class Value>
char* put_level(char* text, const Value*& next, const int64_t* shape, int32_t rank) {
  if (rank == 0) return put_value(text, *next++, std::is_floating_point<Value>());
  *text++ = '[';
  for (int64_t i = 0; i < *shape; ++i) {
    if (i > 0) text = put(text, ", ");
    text = put_level(text, next, shape + 1, rank - 1);
  }
  *text++ = ']';
  return text;
}

template <class Value>
int64_t write(const void* values, const int64_t* shape, int32_t rank, char* text) {
  auto* next = static_cast<const Value*>(values);
  return put_level(text, next, shape, rank) - text;
}

template <class Value>
int64_t write_batch(const void* values, const int64_t* shape, int32_t rank, const int64_t* rows, int64_t count,
                    const char* head, const char* tail, char* text, int64_t* ends) {
  auto* next = static_cast<const Value*>(values);
  char* begin = text;
  for (int64_t k = 0; k < count; ++k) {
    text = put(text, head);
    *text++ = '[';
    for (int64_t i = 0; i < rows[k]; ++i) {
      if (i > 0) text = put(text, ", ");
      text = put_level(text, next, shape + 1, rank - 1);
    }
    text = put(text, tail);
    ends[k] = text - begin;
  }
  return text - begin;
}

}  // namespace
}  // namespace tidemill

int64_t tidemill_json_write_batch(const void* values, int32_t kind, const int64_t* shape, int32_t rank,
                                  const int64_t* rows, int64_t count, const char* head, const char* tail, char* text,
                                  int64_t* ends) {
  using tidemill::write_batch;
  switch (kind) {
    case tidemill::kFloat32: return write_batch<float>(values, shape, rank, rows, count, head, tail, text, ends);
    case tidemill::kFloat64: return write_batch<double>(values, shape, rank, rows, count, head, tail, text, ends);
    case tidemill::kInt32: return write_batch<int32_t>(values, shape, rank, rows, count, head, tail, text, ends);
    case tidemill::kInt64: return write_batch<int64_t>(values, shape, rank, rows, count, head, tail, text, ends);
  }
  return -1;
}

int64_t tidemill_json_write_lists(const void* values, int32_t kind, const int64_t* shape, int32_t rank, char* text) {
  using tidemill::write;
  switch (kind) {
    case tidemill::kFloat32: return write<float>(values, shape, rank, text);
    case tidemill::kFloat64: return write<double>(values, shape, rank, text);
    case tidemill::kInt32: return write<int32_t>(values, shape, rank, text);
    case tidemill::kInt64: return write<int64_t>(values, shape, rank, text);
  }
  return -1;
}
