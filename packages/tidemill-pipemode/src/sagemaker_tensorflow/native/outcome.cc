#include "outcome.h"

#include <charconv>
#include <string_view>

namespace tidemill {
namespace {

constexpr std::uint64_t kOutcomeVersion = 2;

// Removes the next field from a line and returns it: the text before the next space, or the rest.
std::string_view TakeField(std::string_view* line) {
  const std::string_view field = line->substr(0, line->find(' '));
  line->remove_prefix(field.size() < line->size() ? field.size() + 1 : field.size());
  return field;
}

bool IsCount(std::string_view field, std::uint64_t* value) {
  const char* const end = field.data() + field.size();
  const std::from_chars_result read = std::from_chars(field.data(), end, *value);
  return read.ec == std::errc() && read.ptr == end;
}

}  // namespace

std::string OutcomeProblem(const std::string& text, std::uint64_t bytes_read) {
  std::string_view line = text;
  const bool whole = !line.empty() && line.back() == '\n';
  if (whole) line.remove_suffix(1);
  std::uint64_t version = 0;
  const bool versioned = IsCount(TakeField(&line), &version);
  if (versioned && version > kOutcomeVersion) {
    return "the outcome file of the feeder has version " + std::to_string(version) +
           ", this reader knows version " + std::to_string(kOutcomeVersion) + "; update tidemill-pipemode";
  }
  const std::string state(TakeField(&line));
  std::uint64_t bytes = 0;
  if (!whole || version != kOutcomeVersion || !IsCount(TakeField(&line), &bytes)) {
    return "the outcome file of the feeder cannot be read";
  }
  if (state == "ok") {
    if (bytes == bytes_read) return "";
    return "the feeder wrote " + std::to_string(bytes) + " bytes, " + std::to_string(bytes_read) +
           " were read: bytes were lost";
  }
  TakeField(&line);  // objects
  if (state == "error") return "the feeder failed: " + std::string(line);
  if (state == "writing") return "the feeder died before it had written everything";
  return "the outcome file of the feeder has an unknown state '" + state + "'";
}

}  // namespace tidemill
