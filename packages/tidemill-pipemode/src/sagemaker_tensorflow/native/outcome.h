// The outcome file of an epoch: the feeder's record of the bytes that it wrote.
#pragma once

#include <cstdint>
#include <string>

namespace tidemill {

// Returns why an epoch with `bytes_read` bytes read is incomplete or failed; an empty string if it is complete.
std::string OutcomeProblem(const std::string& text, std::uint64_t bytes_read);

}  // namespace tidemill
