// CRC-32C (Castagnoli), by the processor's own instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemill {

// The checksum of the bytes behind `crc` followed by `size` bytes at `data`; start with 0.
std::uint32_t ExtendCrc32c(std::uint32_t crc, const char* data, std::size_t size);

// The same in plain C++, for machines without the instruction and to hold the fast one against.
std::uint32_t ExtendCrc32cPortable(std::uint32_t crc, const char* data, std::size_t size);

// TFRecord stores checksums rotated and shifted, so that a checksum over stored checksums stays useful.
inline std::uint32_t MaskCrc32c(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace tidemill
