#include "request.h"

#include <cstring>

#include "number.h"

namespace tidemill {
namespace {

inline const char* skip_space(const char* p) {
  if (static_cast<unsigned char>(*p) > ' ') return p;  // one comparison where there is no space
  while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') ++p;
  return p;
}

// Go behind a character, which may stand behind space; null if another stands there.
inline const char* behind(const char* p, char wanted) {
  p = skip_space(p);
  return *p == wanted ? p + 1 : nullptr;
}

inline const char* behind_word(const char* p, const char* word) {
  size_t size = std::strlen(word);
  return std::strncmp(p, word, size) == 0 ? p + size : nullptr;
}

struct Text {
  const char* begin;
  int64_t size;

  bool is(const char* other, int64_t other_size) const {
    return size == other_size && std::memcmp(begin, other, static_cast<size_t>(size)) == 0;
  }
  bool is(const char* other) const { return is(other, static_cast<int64_t>(std::strlen(other))); }
};

// Read a string without escapes and control characters; null if it is none. It is not looked whether it is UTF-8: only
// strings that are equal to known ones are taken.
const char* read_text(const char* p, Text* text) {
  p = behind(p, '"');
  if (p == nullptr) return nullptr;
  text->begin = p;
  for (; *p != '"'; ++p) {
    if (*p == '\\' || static_cast<unsigned char>(*p) < ' ') return nullptr;
  }
  text->size = p - text->begin;
  return p + 1;
}

// How the values of a kind are read: `read` stores one, and returns what is behind it; null if the value is wrong.

template <class Float>
struct Floats {
  using Value = Float;

  static const char* read(const char* p, const char* end, Float* value) {
    Number number;
    double wide;
    const char* next = scan_number(p, end, &number);
    if (next != nullptr) {
      if (!to_double(number, &wide)) return nullptr;
      *value = static_cast<Float>(wide);  // rounded twice, as TF Serving and NumPy do
      return next;
    }
    bool negative = *p == '-';
    if (!negative && *p == 'N') {
      *value = std::numeric_limits<Float>::quiet_NaN();
      return behind_word(p, "NaN");
    }
    *value = negative ? -std::numeric_limits<Float>::infinity() : std::numeric_limits<Float>::infinity();
    return behind_word(p + negative, "Infinity");
  }
};

template <class Integer>
struct Integers {
  using Value = Integer;

  static const char* read(const char* p, const char* end, Integer* value) {
    Number number;
    const char* next = scan_number(p, end, &number);
    return next != nullptr && to_integer(number, value) ? next : nullptr;
  }
};

struct Booleans {
  using Value = uint8_t;

  static const char* read(const char* p, const char*, uint8_t* value) {
    *value = *p == 't';
    return behind_word(p, *value ? "true" : "false");
  }
};

// Appends values to the array of an input. The first value sets the rank and the sizes, which all others must have.
class Appender {
 public:
  explicit Appender(Input& input) : input_(input) {}

  int64_t num_values = 0;
  bool started = false;

  template <class Values>
  const char* append(const char* p, const char* end) {
    p = skip_space(p);
    if (!started && !measure(p)) return nullptr;
    auto* next = static_cast<typename Values::Value*>(input_.values) + num_values;
    auto* begin = next;
    p = append_level<Values>(p, end, 0, next);
    num_values += next - begin;
    started = true;
    return p;
  }

 private:
  bool measure(const char* p) {
    int rank = 0;
    for (; *p == '['; p = skip_space(p + 1)) {
      if (rank == kMaxRank) return false;
      input_.shape[rank++] = -1;
    }
    input_.rank = rank;
    return true;
  }

  template <class Values>
  const char* append_level(const char* p, const char* end, int64_t level, typename Values::Value*& next) {
    if (level == input_.rank) return Values::read(p, end, next++);
    if (*p != '[') return nullptr;
    int64_t count = 0;
    bool innermost = level + 1 == input_.rank;
    do {
      p = skip_space(p + 1);
      p = innermost ? Values::read(p, end, next++) : append_level<Values>(p, end, level + 1, next);
      if (p == nullptr) return nullptr;
      p = skip_space(p);
      ++count;
    } while (*p == ',');
    if (*p != ']') return nullptr;
    if (input_.shape[level] < 0) input_.shape[level] = count;
    return input_.shape[level] == count ? p + 1 : nullptr;
  }

  Input& input_;
};

const char* append_to(Input& input, Appender& appender, const char* p, const char* end) {
  switch (input.kind) {
    case kFloat32: return appender.append<Floats<float>>(p, end);
    case kFloat64: return appender.append<Floats<double>>(p, end);
    case kInt8: return appender.append<Integers<int8_t>>(p, end);
    case kInt16: return appender.append<Integers<int16_t>>(p, end);
    case kInt32: return appender.append<Integers<int32_t>>(p, end);
    case kInt64: return appender.append<Integers<int64_t>>(p, end);
    case kUint8: return appender.append<Integers<uint8_t>>(p, end);
    case kUint16: return appender.append<Integers<uint16_t>>(p, end);
    case kUint32: return appender.append<Integers<uint32_t>>(p, end);
    case kUint64: return appender.append<Integers<uint64_t>>(p, end);
    case kBool: return appender.append<Booleans>(p, end);
  }
  return nullptr;
}

constexpr int64_t kMaxInputs = 64;

class Reader {
 public:
  Reader(const char* body, int64_t size, Request& request) : body_(body), end_(body + size), request_(request) {}

  Outcome read() {
    const char* p = behind(body_, '{');
    bool has_data = false, has_signature = false;
    while (p != nullptr) {
      Text key;
      p = read_text(p, &key);
      if (p == nullptr || (p = behind(p, ':')) == nullptr) return kNotTaken;
      if (key.is("signature_name") && !has_signature) {
        Outcome outcome = read_signature(p);
        if (outcome != kRead) return outcome;
        has_signature = true;
      } else if (!has_data && (key.is("instances") || key.is("inputs"))) {
        request_.row_form = key.is("instances");
        p = request_.row_form ? read_rows(p) : read_columns(p);
        has_data = true;
      } else {
        return kNotTaken;
      }
      if (p == nullptr) return kNotTaken;
      p = skip_space(p);
      if (*p++ == ',') continue;
      bool named = has_signature || request_.signature_size == 0;
      return p[-1] == '}' && skip_space(p) == end_ && has_data && named ? kRead : kNotTaken;
    }
    return kNotTaken;
  }

 private:
  Outcome read_signature(const char*& p) {
    Text name;
    p = read_text(p, &name);
    if (p == nullptr) return kNotTaken;
    if (name.is(request_.signature, request_.signature_size)) return kRead;
    request_.named_offset = name.begin - body_;
    request_.named_size = name.size;
    return kOtherSignature;
  }

  const char* read_rows(const char* p) {
    p = skip_space(p);
    if (*p != '[') return nullptr;
    const char* first = skip_space(p + 1);
    if (*first != '{') return request_.num_inputs == 1 ? read_only(p) : nullptr;
    if (!begin()) return nullptr;
    int64_t rows = 0;
    do {
      p = read_named(skip_space(p + 1));
      if (p == nullptr) return nullptr;
      p = skip_space(p);
      ++rows;
    } while (*p == ',');
    if (*p != ']') return nullptr;
    for (int64_t i = 0; i < request_.num_inputs; ++i) {
      Input& input = request_.inputs[i];
      if (input.rank == kMaxRank) return nullptr;
      std::memmove(input.shape + 1, input.shape, sizeof(int64_t) * static_cast<size_t>(input.rank++));
      input.shape[0] = rows;
    }
    return p + 1;
  }

  const char* read_columns(const char* p) {
    p = skip_space(p);
    if (*p != '{') return request_.num_inputs == 1 ? read_only(p) : nullptr;
    return begin() ? read_named(p) : nullptr;
  }

  const char* read_only(const char* p) {
    Appender appender(request_.inputs[0]);
    return append_to(request_.inputs[0], appender, p, end_);
  }

  bool begin() {
    return request_.num_inputs > 0 && request_.num_inputs <= kMaxInputs;
  }

  // Read an object that has a value for each input, and nothing else.
  const char* read_named(const char* p) {
    if (*p != '{') return nullptr;
    uint64_t seen = 0;
    for (int64_t count = 0; count < request_.num_inputs; ++count) {
      Text key;
      p = read_text(p + 1, &key);
      if (p == nullptr || (p = behind(p, ':')) == nullptr) return nullptr;
      int64_t i = find(key, count);
      if (i < 0 || (seen >> i & 1)) return nullptr;
      seen |= uint64_t{1} << i;
      Appender appender(request_.inputs[i]);
      appender.num_values = num_values_[i];
      appender.started = num_values_[i] > 0;
      p = append_to(request_.inputs[i], appender, p, end_);
      if (p == nullptr) return nullptr;
      num_values_[i] = appender.num_values;
      p = skip_space(p);
      if (*p != (count + 1 < request_.num_inputs ? ',' : '}')) return nullptr;
    }
    return p + 1;
  }

  int64_t find(const Text& key, int64_t likely) const {
    const Input* inputs = request_.inputs;
    if (key.is(inputs[likely].name, inputs[likely].name_size)) return likely;
    for (int64_t i = 0; i < request_.num_inputs; ++i) {
      if (key.is(inputs[i].name, inputs[i].name_size)) return i;
    }
    return -1;
  }

  const char* const body_;
  const char* const end_;
  Request& request_;
  int64_t num_values_[kMaxInputs] = {};
};

int64_t size_of(int64_t kind) {
  switch (kind) {
    case kFloat64: case kInt64: case kUint64: return 8;
    case kFloat32: case kInt32: case kUint32: return 4;
    case kInt16: case kUint16: return 2;
  }
  return 1;
}

// Joins the rows of several bodies in the arrays of one request.
class Batch {
 public:
  explicit Batch(Request& joined) : joined_(joined), next_(joined) { next_.inputs = inputs_; }

  int64_t num_rows = 0;

  // Read a body behind the rows that are there; return its rows, or -1 if it does not fit to them.
  int64_t read(const char* body, int64_t size) {
    if (joined_.num_inputs <= 0 || joined_.num_inputs > kMaxInputs) return -1;
    for (int64_t i = 0; i < joined_.num_inputs; ++i) {
      inputs_[i] = joined_.inputs[i];
      inputs_[i].values = static_cast<char*>(joined_.inputs[i].values) + num_rows * row_bytes_[i];
    }
    if (Reader(body, size, next_).read() != kRead) return -1;
    int64_t rows = inputs_[0].rank > 0 ? inputs_[0].shape[0] : -1;
    for (int64_t i = 0; i < joined_.num_inputs; ++i) {
      if (inputs_[i].rank == 0 || inputs_[i].shape[0] != rows || (num_rows > 0 && !is_alike(i))) return -1;
    }
    return rows > 0 ? rows : -1;
  }

  // Keep the rows that were read last.
  void keep(int64_t rows) {
    num_rows += rows;
    joined_.row_form = next_.row_form;
    for (int64_t i = 0; i < joined_.num_inputs; ++i) {
      Input& input = joined_.inputs[i];
      input.rank = inputs_[i].rank;
      row_bytes_[i] = size_of(input.kind);
      for (int64_t k = 1; k < input.rank; ++k) row_bytes_[i] *= input.shape[k] = inputs_[i].shape[k];
      input.shape[0] = num_rows;
    }
  }

 private:
  bool is_alike(int64_t i) const {
    const Input &joined = joined_.inputs[i], &next = inputs_[i];
    auto bytes = sizeof(int64_t) * static_cast<size_t>(joined.rank - 1);
    return next_.row_form == joined_.row_form && next.rank == joined.rank &&
           std::memcmp(next.shape + 1, joined.shape + 1, bytes) == 0;
  }

  Request& joined_;
  Request next_;
  Input inputs_[kMaxInputs];
  int64_t row_bytes_[kMaxInputs] = {};
};

}  // namespace
}  // namespace tidemill

int64_t tidemill_json_read_batch(const char* const* bodies, const int64_t* sizes, int64_t count, int64_t max_rows,
                                 tidemill::Request* request, int64_t* rows) {
  tidemill::Batch batch(*request);
  for (int64_t k = 0; k < count; ++k) {
    int64_t found = batch.read(bodies[k], sizes[k]);
    if (found > 0 && batch.num_rows > 0 && batch.num_rows + found > max_rows) return k;
    rows[k] = found;
    if (found > 0) batch.keep(found);
  }
  return count;
}

int tidemill_json_read_request(const char* body, int64_t size, tidemill::Request* request) {
  return tidemill::Reader(body, size, *request).read();
}
