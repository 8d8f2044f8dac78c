// The outcome file of an epoch: what the feeder says about the bytes that it wrote.
#pragma once

#include <cstdint>
#include <string>

namespace tidemill {

// Why an epoch of which `bytes_read` bytes were read did not end well, or an empty string if it did.
std::string OutcomeProblem(const std::string& text, std::uint64_t bytes_read);

}  // namespace tidemill
