// The framings of a channel: they convert bytes into records. This part uses no file descriptors and no TensorFlow, so
// it can be fuzzed and sanitized alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bytes.h"

namespace tidemill {

struct FramingOptions {
  std::uint64_t max_record_bytes = 256u << 20;
  bool strict_padding = false;             // RecordIO: missing padding of the last record is an error
  std::int64_t max_corrupted_records = 0;  // TFRecord: how many consecutive bad records are dropped
};

// Parses a stream in pieces. A piece may be consumed partly, because a header is consumed only when it is complete. The
// caller keeps the rest (at most 11 bytes, or more after `max_records`) and appends the next piece to it.
class Framer {
 public:
  virtual ~Framer() = default;

  // Consumes bytes, appends the records that they complete to `records`, and returns the number of bytes consumed.
  // Stops when there are `max_records` in `records`, and at the first error.
  virtual std::size_t Take(const char* data, std::size_t size, std::size_t max_records,
                           std::vector<Bytes>* records) = 0;

  // Ends the stream; `data` is the rest that was not consumed. May append a last record, or fail.
  virtual void Finish(const char* data, std::size_t size, std::vector<Bytes>* records) = 0;

  // Sets `to` to the memory for the next bytes of the stream (the rest of a long record), and returns how many fit;
  // 0 if they must be passed to Take(). After reading n bytes there, call Filled(n).
  virtual std::size_t Space(char** to) = 0;
  virtual void Filled(std::size_t size) = 0;

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  std::uint64_t record_offset() const { return record_offset_; }  // offset of the current record in bytes
  std::uint64_t record_number() const { return record_number_; }  // its number, counted from 0
  std::vector<std::string>* warnings() { return &warnings_; }     // the caller prints and clears them

 protected:
  void Fail(std::string text) { error_ = std::move(text); }

  std::uint64_t taken_ = 0;  // bytes of the stream consumed so far
  std::uint64_t record_offset_ = 0;
  std::uint64_t record_number_ = 0;
  std::vector<std::string> warnings_;

 private:
  std::string error_;
};

// Returns nullptr for a format other than `RecordIO`, `TFRecord` and `TextLine`.
std::unique_ptr<Framer> MakeFramer(const std::string& record_format, const FramingOptions& options);

}  // namespace tidemill
