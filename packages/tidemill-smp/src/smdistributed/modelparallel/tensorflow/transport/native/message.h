// A tensor as bytes, on the wire (see messages.py for the format) and between the threads of a process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace tidemill {

constexpr std::size_t kHeaderBytes = 24;
constexpr std::size_t kAlignment = 64;  // TensorFlow uses memory of this alignment without copying it

struct Header {
  unsigned char magic[4];
  std::uint8_t version;
  std::uint8_t dtype;
  std::uint8_t dimensions;
  std::uint8_t reserved;
  std::uint64_t channel;
  std::uint64_t size;
};
static_assert(sizeof(Header) == kHeaderBytes, "the header has no gaps");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

constexpr unsigned char kMagic[4] = {'T', 'M', 'T', 'N'};
constexpr std::uint8_t kVersion = 1;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// A received message.
struct Message {
  int dtype = 0;
  std::vector<std::int64_t> shape;
  std::unique_ptr<void, FreeMemory> data;
  std::size_t size = 0;
};

// An outgoing message: the header with the dimensions, and memory that its owner keeps alive until `release`.
struct Outgoing {
  std::vector<unsigned char> head;
  const char* data = nullptr;
  std::size_t size = 0;
  void (*release)(void*) = nullptr;
  void* owner = nullptr;
  std::size_t sent = 0;  // of head and data together
};

}  // namespace tidemill
