// The framings of a channel: bytes in, records out. No file descriptors and no TensorFlow here, so that this part can be
// fuzzed and sanitized by itself.
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
  bool strict_padding = false;             // RecordIO: the padding of the last record must be there
  std::int64_t max_corrupted_records = 0;  // TFRecord: how many bad records in a row are dropped
};

// Takes a stream in pieces. A piece need not be taken whole: a header is taken only when all of it is there, so the
// caller keeps what is left over (at most 11 bytes unless a stop was asked for) and puts the next piece behind it.
class Framer {
 public:
  virtual ~Framer() = default;

  // Takes bytes, appends the records that they complete to `records`, and says how many bytes it took. Stops early at
  // `max_records` in `records`, and at the first error.
  virtual std::size_t Take(const char* data, std::size_t size, std::size_t max_records,
                           std::vector<Bytes>* records) = 0;

  // The stream has ended; `data` is what was left over. May give a last record, or fail.
  virtual void Finish(const char* data, std::size_t size, std::vector<Bytes>* records) = 0;

  // Where the next bytes of the stream may be read to directly (the rest of a long record), and how many; 0 when they
  // must come through Take(). After reading n of them call Filled(n).
  virtual std::size_t Space(char** to) = 0;
  virtual void Filled(std::size_t size) = 0;

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  std::uint64_t record_offset() const { return record_offset_; }  // byte at which the current record begins
  std::uint64_t record_number() const { return record_number_; }  // its number, from 0
  std::vector<std::string>* warnings() { return &warnings_; }     // to be printed and emptied by the caller

 protected:
  void Fail(std::string text) { error_ = std::move(text); }

  std::uint64_t taken_ = 0;  // bytes of the stream so far
  std::uint64_t record_offset_ = 0;
  std::uint64_t record_number_ = 0;
  std::vector<std::string> warnings_;

 private:
  std::string error_;
};

// nullptr for a format that is not `RecordIO`, `TFRecord` or `TextLine`.
std::unique_ptr<Framer> MakeFramer(const std::string& record_format, const FramingOptions& options);

}  // namespace tidemill
