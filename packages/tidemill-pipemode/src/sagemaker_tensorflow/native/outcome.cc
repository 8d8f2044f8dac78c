#include "outcome.h"

namespace tidemill {
namespace {

constexpr int kDeepest = 32;

// Just enough JSON for one object of strings and integers; other values are skipped.
class Scanner {
 public:
  explicit Scanner(const std::string& text) : text_(text) {}

  bool Object(Outcome* outcome) {
    if (!Next('{')) return false;
    bool state = false;
    if (!Next('}')) {
      do {
        std::string name;
        Space();
        if (!String(&name) || !Next(':')) return false;
        Space();
        bool read = false;
        if (name == "version") {
          read = Integer(&outcome->version);
        } else if (name == "bytes") {
          read = Integer(&outcome->bytes);
        } else if (name == "state") {
          read = state = String(&outcome->state);
        } else if (name == "error") {
          read = String(&outcome->error);
        } else {
          read = Skip(0);
        }
        if (!read) return false;
      } while (Next(','));
      if (!Next('}')) return false;
    }
    Space();
    return at_ == text_.size() && state && outcome->version > 0 && outcome->bytes >= 0;
  }

 private:
  bool More() const { return at_ < text_.size(); }
  void Space() {
    while (More() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
  }
  bool Next(char wanted) {
    Space();
    if (!More() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  bool Integer(std::int64_t* value) {
    const std::size_t begin = at_;
    std::int64_t sum = 0;
    while (More() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (sum > (INT64_MAX - 9) / 10) return false;
      sum = 10 * sum + (text_[at_++] - '0');
    }
    *value = sum;
    return at_ != begin && (!More() || (text_[at_] != '.' && text_[at_] != 'e' && text_[at_] != 'E'));
  }

  bool String(std::string* value) {
    if (!More() || text_[at_] != '"') return false;
    ++at_;
    value->clear();
    while (More() && text_[at_] != '"') {
      if (text_[at_] != '\\') {
        value->push_back(text_[at_++]);
      } else if (!Escape(value)) {
        return false;
      }
    }
    if (!More()) return false;
    ++at_;
    return true;
  }

  bool Escape(std::string* value) {
    if (++at_ >= text_.size()) return false;
    const char kind = text_[at_++];
    static const char kNames[] = "\"\\/bfnrt";
    static const char kValues[] = "\"\\/\b\f\n\r\t";
    for (int index = 0; index < 8; ++index) {
      if (kind == kNames[index]) {
        value->push_back(kValues[index]);
        return true;
      }
    }
    if (kind != 'u') return false;
    unsigned code = 0;
    if (!Hex(&code)) return false;
    if (code >= 0xd800 && code < 0xdc00) {
      unsigned low = 0;
      if (text_.compare(at_, 2, "\\u") != 0) return false;
      at_ += 2;
      if (!Hex(&low) || low < 0xdc00 || low > 0xdfff) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    Utf8(code, value);
    return true;
  }

  bool Hex(unsigned* code) {
    for (int digit = 0; digit < 4; ++digit, ++at_) {
      if (!More()) return false;
      const char c = text_[at_];
      unsigned nibble = 0;
      if (c >= '0' && c <= '9') {
        nibble = static_cast<unsigned>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        nibble = static_cast<unsigned>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        nibble = static_cast<unsigned>(c - 'A' + 10);
      } else {
        return false;
      }
      *code = *code << 4 | nibble;
    }
    return true;
  }

  static void Utf8(unsigned code, std::string* value) {
    if (code < 0x80) {
      value->push_back(static_cast<char>(code));
      return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned kLead[] = {0, 0xc0, 0xe0, 0xf0};
    value->push_back(static_cast<char>(kLead[more] | code >> (6 * more)));
    for (int part = more - 1; part >= 0; --part) value->push_back(static_cast<char>(0x80 | (code >> (6 * part) & 0x3f)));
  }

  bool Skip(int depth) {
    if (!More() || depth > kDeepest) return false;
    std::string ignored;
    const char c = text_[at_];
    if (c == '"') return String(&ignored);
    if (c == '{' || c == '[') {
      const char end = c == '{' ? '}' : ']';
      ++at_;
      if (Next(end)) return true;
      do {
        Space();
        if (c == '{' && (!String(&ignored) || !Next(':'))) return false;
        Space();
        if (!Skip(depth + 1)) return false;
      } while (Next(','));
      return Next(end);
    }
    const std::size_t begin = at_;
    while (More() && std::string("+-.0123456789Eaeflnrstu").find(text_[at_]) != std::string::npos) ++at_;
    return at_ != begin;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

bool ParseOutcome(const std::string& text, Outcome* outcome) { return Scanner(text).Object(outcome); }

std::string JudgeOutcome(const std::string& text, std::uint64_t bytes_read) {
  Outcome outcome;
  if (!ParseOutcome(text, &outcome)) return "the outcome file of the feeder cannot be read";
  if (outcome.version > 1) {
    return "the outcome file of the feeder has version " + std::to_string(outcome.version) +
           ", this reader knows version 1; update tidemill-pipemode";
  }
  if (outcome.state == "ok") {
    if (static_cast<std::uint64_t>(outcome.bytes) == bytes_read) return "";
    return "the feeder wrote " + std::to_string(outcome.bytes) + " bytes, " + std::to_string(bytes_read) +
           " were read: bytes were lost";
  }
  if (outcome.state == "error") return "the feeder failed: " + outcome.error;
  if (outcome.state == "writing") return "the feeder died before it had written everything";
  return "the outcome file of the feeder has an unknown state '" + outcome.state + "'";
}

}  // namespace tidemill
