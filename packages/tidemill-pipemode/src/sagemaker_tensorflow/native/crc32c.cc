#include "crc32c.h"

#include <array>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

#include "bytes.h"

namespace tidemill {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;  // bit-reversed

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// table[n][b]: the effect of byte b followed by n zero bytes.
Table MakeByteTable() {
  Table table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    table[0][byte] = crc;
  }
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    for (int n = 1; n < 8; ++n) {
      const std::uint32_t before = table[n - 1][byte];
      table[n][byte] = (before >> 8) ^ table[0][before & 255];
    }
  }
  return table;
}

const Table& ByteTable() {
  static const Table table = MakeByteTable();
  return table;
}

// Advances a register over a fixed number of zero bytes: four look-ups instead of the bytes themselves.
class ZeroShift {
 public:
  explicit ZeroShift(std::size_t zeros) {
    const Table& table = ByteTable();
    // The register is linear over GF(2), so the effect on its 32 bits determines the effect on every value.
    std::array<std::uint32_t, 32> bits{};
    for (int bit = 0; bit < 32; ++bit) {
      std::uint32_t crc = std::uint32_t{1} << bit;
      for (std::size_t n = 0; n < zeros; ++n) crc = (crc >> 8) ^ table[0][crc & 255];
      bits[bit] = crc;
    }
    for (int part = 0; part < 4; ++part) {
      for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = 0;
        for (int bit = 0; bit < 8; ++bit) {
          if (byte >> bit & 1) crc ^= bits[8 * part + bit];
        }
        parts_[part][byte] = crc;
      }
    }
  }
  std::uint32_t operator()(std::uint32_t crc) const {
    return parts_[0][crc & 255] ^ parts_[1][crc >> 8 & 255] ^ parts_[2][crc >> 16 & 255] ^ parts_[3][crc >> 24];
  }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> parts_;
};

#if defined(__x86_64__)
#define TIDEMILL_HARDWARE_CRC __attribute__((target("sse4.2")))
bool HasInstruction() { return __builtin_cpu_supports("sse4.2"); }
TIDEMILL_HARDWARE_CRC inline std::uint64_t Step64(std::uint64_t crc, std::uint64_t word) {
  return _mm_crc32_u64(crc, word);
}
TIDEMILL_HARDWARE_CRC inline std::uint32_t Step8(std::uint32_t crc, unsigned char byte) {
  return _mm_crc32_u8(crc, byte);
}
#elif defined(__aarch64__) && defined(__linux__)
#define TIDEMILL_HARDWARE_CRC __attribute__((target("+crc")))
bool HasInstruction() { return (getauxval(AT_HWCAP) & (1u << 7)) != 0; }  // HWCAP_CRC32
TIDEMILL_HARDWARE_CRC inline std::uint64_t Step64(std::uint64_t crc, std::uint64_t word) {
  return __crc32cd(static_cast<std::uint32_t>(crc), word);
}
TIDEMILL_HARDWARE_CRC inline std::uint32_t Step8(std::uint32_t crc, unsigned char byte) { return __crc32cb(crc, byte); }
#endif

#ifdef TIDEMILL_HARDWARE_CRC

// The instruction takes three cycles, and one can start in each cycle: three interleaved streams hide the latency.
template <std::size_t kBlock>
TIDEMILL_HARDWARE_CRC std::uint32_t ThreeStreams(std::uint32_t crc, const char*& data, std::size_t& size) {
  static const ZeroShift one(kBlock);
  static const ZeroShift two(2 * kBlock);
  while (size >= 3 * kBlock) {
    std::uint64_t first = crc, second = 0, third = 0;
    for (std::size_t at = 0; at < kBlock; at += 8) {
      first = Step64(first, Load64(data + at));
      second = Step64(second, Load64(data + kBlock + at));
      third = Step64(third, Load64(data + 2 * kBlock + at));
    }
    crc = two(static_cast<std::uint32_t>(first)) ^ one(static_cast<std::uint32_t>(second)) ^
          static_cast<std::uint32_t>(third);
    data += 3 * kBlock;
    size -= 3 * kBlock;
  }
  return crc;
}

TIDEMILL_HARDWARE_CRC std::uint32_t ExtendByInstruction(std::uint32_t start, const char* data, std::size_t size) {
  std::uint32_t crc = ~start;
  crc = ThreeStreams<4096>(crc, data, size);
  crc = ThreeStreams<256>(crc, data, size);
  std::uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) wide = Step64(wide, Load64(data));
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++data, --size) crc = Step8(crc, static_cast<unsigned char>(*data));
  return ~crc;
}

#endif

}  // namespace

std::uint32_t ExtendCrc32cPortable(std::uint32_t start, const char* data, std::size_t size) {
  const Table& table = ByteTable();
  std::uint32_t crc = ~start;
  for (; size >= 8; data += 8, size -= 8) {
    const std::uint64_t word = Load64(data) ^ crc;
    crc = 0;
    for (int byte = 0; byte < 8; ++byte) crc ^= table[7 - byte][word >> (8 * byte) & 255];
  }
  for (; size > 0; ++data, --size) crc = (crc >> 8) ^ table[0][(crc ^ static_cast<unsigned char>(*data)) & 255];
  return ~crc;
}

std::uint32_t ExtendCrc32c(std::uint32_t crc, const char* data, std::size_t size) {
#ifdef TIDEMILL_HARDWARE_CRC
  static const bool fast = HasInstruction();
  if (fast) return ExtendByInstruction(crc, data, size);
#endif
  return ExtendCrc32cPortable(crc, data, size);
}

}  // namespace tidemill
