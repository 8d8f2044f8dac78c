// A byte string in the memory layout of a TensorFlow string element (24 bytes, little-endian: short strings inline,
// long ones on the C heap), so that a finished record becomes part of a tensor by copying these 24 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace tidemill {

// Loads little-endian numbers from any address.
inline std::uint32_t Load32(const char* data) {
  std::uint32_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}
inline std::uint64_t Load64(const char* data) {
  std::uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

class Bytes {
 public:
  static constexpr std::size_t kInline = 22;

  Bytes() { Forget(); }
  Bytes(const char* data, std::size_t size) {
    Forget();
    Append(data, size);
  }
  Bytes(Bytes&& other) noexcept {
    std::memcpy(raw_, other.raw_, sizeof raw_);
    other.Forget();
  }
  Bytes& operator=(Bytes&& other) noexcept {
    if (this != &other) {
      Free();
      std::memcpy(raw_, other.raw_, sizeof raw_);
      other.Forget();
    }
    return *this;
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { Free(); }

  std::size_t size() const { return large() ? static_cast<std::size_t>(Word(0) >> 2) : raw_[0] >> 2; }
  std::size_t capacity() const { return large() ? static_cast<std::size_t>(Word(1)) : kInline; }
  const char* data() const { return large() ? Pointer() : reinterpret_cast<const char*>(raw_ + 1); }

  void Append(const char* data, std::size_t size) {
    if (size == 0) return;
    const std::size_t before = this->size();
    Reserve(before + size);
    std::memcpy(Tail(), data, size);
    SetSize(before + size);
  }

  // Makes room for `size` bytes in total and keeps the contents.
  void Reserve(std::size_t size) {
    if (size <= capacity()) return;
    const std::size_t room = ((size + 16) & ~std::size_t{15}) - 1;
    const std::size_t before = this->size();
    char* memory = static_cast<char*>(large() ? std::realloc(Pointer(), room + 1) : std::malloc(room + 1));
    if (memory == nullptr) throw std::bad_alloc();
    if (!large()) std::memcpy(memory, raw_ + 1, before);
    SetWord(0, (std::uint64_t{before} << 2) | 1);
    SetWord(1, room);
    std::memcpy(raw_ + 16, &memory, sizeof memory);
  }

  // Returns the end of the contents. Up to capacity() - size() bytes may be written there; Grow() then adds them.
  char* Tail() { return (large() ? Pointer() : reinterpret_cast<char*>(raw_ + 1)) + size(); }
  void Grow(std::size_t size) { SetSize(this->size() + size); }

  void Clear() {
    Free();
    Forget();
  }

  // Releases ownership of the contents, after the caller has copied the raw 24 bytes.
  void Forget() { std::memset(raw_, 0, sizeof raw_); }

 private:
  bool large() const { return (raw_[0] & 3) == 1; }
  std::uint64_t Word(int index) const {
    std::uint64_t word;
    std::memcpy(&word, raw_ + 8 * index, sizeof word);
    return word;
  }
  void SetWord(int index, std::uint64_t word) { std::memcpy(raw_ + 8 * index, &word, sizeof word); }
  char* Pointer() const {
    char* pointer;
    std::memcpy(&pointer, raw_ + 16, sizeof pointer);
    return pointer;
  }
  void SetSize(std::size_t size) {
    if (large()) {
      SetWord(0, (std::uint64_t{size} << 2) | 1);
    } else {
      raw_[0] = static_cast<unsigned char>(size << 2);
    }
  }
  void Free() {
    if (large()) std::free(Pointer());
  }

  alignas(8) unsigned char raw_[24];
};

static_assert(sizeof(Bytes) == 24 && sizeof(void*) == 8, "the layout is that of a 64-bit machine");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the layout is little-endian");

}  // namespace tidemill
