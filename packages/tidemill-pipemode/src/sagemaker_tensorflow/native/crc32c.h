// CRC-32C (Castagnoli), with the processor's instruction if there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemill {

// Returns the checksum of the bytes that `crc` covers, followed by `size` bytes at `data`; start with 0.
std::uint32_t ExtendCrc32c(std::uint32_t crc, const char* data, std::size_t size);

// The same in plain C++, for processors without the instruction, and as the reference in tests.
std::uint32_t ExtendCrc32cPortable(std::uint32_t crc, const char* data, std::size_t size);

// Returns the form that TFRecord stores: rotated and shifted, so that a checksum over stored checksums is useful.
inline std::uint32_t MaskCrc32c(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace tidemill
