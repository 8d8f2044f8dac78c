// The outcome file of an epoch: what the feeder says about the bytes that it wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tidemill {

struct Outcome {
  std::int64_t version = 0;
  std::string state;
  std::int64_t bytes = -1;
  std::string error;
};

// Reads the JSON object in `text`; false if it is none, or lacks a member. Members that it does not know are skipped.
bool ParseOutcome(const std::string& text, Outcome* outcome);

// Why an epoch of which `bytes_read` bytes were read did not end well, or an empty string if it did.
std::string JudgeOutcome(const std::string& text, std::uint64_t bytes_read);

}  // namespace tidemill
