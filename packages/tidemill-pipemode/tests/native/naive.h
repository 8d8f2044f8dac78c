// The simplest implementation of the framings, as the reference for the parsers: the whole stream at once, one index,
// checksums bit by bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "framing.h"

namespace naive {

struct Result {
  std::vector<std::string> records;
  std::string error;
  std::uint64_t offset = 0;
  std::uint64_t number = 0;
  std::size_t warnings = 0;
  bool operator==(const Result& other) const {
    return records == other.records && error == other.error && offset == other.offset && number == other.number &&
           warnings == other.warnings;
  }
};

inline std::uint32_t Masked(const std::string& data) {
  std::uint32_t crc = ~0u;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

inline std::uint64_t Number(const std::string& stream, std::uint64_t at, int bytes) {
  std::uint64_t number = 0;
  for (int byte = bytes - 1; byte >= 0; --byte) {
    number = number << 8 | static_cast<unsigned char>(stream[at + static_cast<std::uint64_t>(byte)]);
  }
  return number;
}

inline std::string Limit(const tidemill::FramingOptions& options) {
  return "max_record_bytes is " + std::to_string(options.max_record_bytes) + "; if the data are sound, pass a greater one";
}

inline std::string TooLong(std::uint64_t size, const tidemill::FramingOptions& options) {
  return "Record too long: " + std::to_string(size) + " bytes; " + Limit(options);
}

inline std::string Cause(const std::string& stream, std::uint64_t at) {
  if (stream.compare(at, 3, "\x1f\x8b\x08") == 0) {
    return " It begins as gzip does: give the channel CompressionType Gzip (TrainingInput(..., compression='Gzip')), or"
           " store the data decompressed";
  }
  if (Number(stream, at, 4) == 0xced7230a) {
    return " It begins with the magic number of RecordIO: pass record_format='RecordIO', or leave RecordWrapperType out of"
           " the channel";
  }
  return "";
}

// Reads one record at `at` into `result` and returns the position of the next one. Sets the error if there is none.
inline std::uint64_t RecordIO(const std::string& stream, std::uint64_t at, const tidemill::FramingOptions& options,
                              Result* result) {
  std::string record;
  for (bool first = true;; first = false) {
    const std::uint64_t left = stream.size() - at;
    if (left == 0) return result->error = "Truncated RecordIO record: its last part is missing", at;
    if (left < 8) return result->error = "Truncated RecordIO header: " + std::to_string(left) + " of 8 bytes", at;
    const std::uint64_t magic = Number(stream, at, 4);
    if (magic != 0xced7230a) {
      return result->error = "Invalid magic number: " + std::to_string(magic) + Cause(stream, at), at;
    }
    const std::uint64_t flag = Number(stream, at + 4, 4) >> 29;
    const std::uint64_t length = Number(stream, at + 4, 4) & 0x1fffffff;
    const std::string what = "Invalid RecordIO part: flag " + std::to_string(flag);
    if (flag > 3) return result->error = what + " (0 to 3 are defined)", at;
    if (first && flag > 1) return result->error = what + " without a begin", at;
    if (!first && flag < 2) return result->error = what + " inside a record of several parts", at;
    if (record.size() + length > options.max_record_bytes) {
      return result->error = TooLong(record.size() + length, options), at;
    }
    if (left - 8 < length) {
      const std::string missing = std::to_string(length - (left - 8));
      return result->error = "Truncated RecordIO record: " + missing + " more bytes were announced", at;
    }
    const std::uint64_t padded = (length + 3) / 4 * 4;
    if (left - 8 < padded && options.strict_padding) {
      return result->error = "Truncated RecordIO record: the padding of the last record is missing", at;
    }
    record += stream.substr(at + 8, length);
    at = std::min<std::uint64_t>(at + 8 + padded, stream.size());
    if (flag == 0 || flag == 3) return result->records.push_back(record), at;
  }
}

inline std::uint64_t TFRecord(const std::string& stream, std::uint64_t at, const tidemill::FramingOptions& options,
                              std::int64_t* corrupt, Result* result) {
  const std::uint64_t left = stream.size() - at;
  const std::string header = "CRC check on header failed.";
  const std::string data = "CRC check on data failed.";
  if (left < 12) {
    return result->error = header + " The header is truncated: " + std::to_string(left) + " of 12 bytes", at;
  }
  if (Number(stream, at + 8, 4) != Masked(stream.substr(at, 8))) return result->error = header + Cause(stream, at), at;
  const std::uint64_t length = Number(stream, at, 8);
  if (length > options.max_record_bytes) return result->error = TooLong(length, options), at;
  if (left - 12 < length) {
    const std::string missing = std::to_string(length - (left - 12));
    return result->error = data + " The record is truncated: " + missing + " more bytes of data were announced", at;
  }
  if (left - 12 - length < 4) {
    const std::string there = std::to_string(left - 12 - length);
    return result->error = data + " The record is truncated: " + there + " of 4 bytes of its checksum", at;
  }
  const std::string record = stream.substr(at + 12, length);
  if (Number(stream, at + 12 + length, 4) == Masked(record)) {
    *corrupt = 0;
    result->records.push_back(record);
  } else if (*corrupt == options.max_corrupted_records) {
    return result->error = data, at;
  } else {
    ++*corrupt;
    ++result->warnings;
  }
  return at + 16 + length;
}

inline std::uint64_t TextLine(const std::string& stream, std::uint64_t at, const tidemill::FramingOptions& options,
                              Result* result) {
  const std::uint64_t end = std::min<std::uint64_t>(stream.find('\n', at), stream.size());
  if (end - at > options.max_record_bytes) return result->error = "Record too long: " + Limit(options), at;
  result->records.push_back(stream.substr(at, end - at));
  return std::min<std::uint64_t>(end + 1, stream.size());
}

inline Result Parse(const std::string& format, const std::string& stream, const tidemill::FramingOptions& options) {
  Result result;
  std::int64_t corrupt = 0;
  while (result.offset != stream.size()) {
    const std::uint64_t at = result.offset;
    const std::uint64_t next = format == "RecordIO"   ? RecordIO(stream, at, options, &result)
                               : format == "TFRecord" ? TFRecord(stream, at, options, &corrupt, &result)
                                                      : TextLine(stream, at, options, &result);
    if (!result.error.empty()) break;
    result.offset = next;
    ++result.number;
  }
  return result;
}

}  // namespace naive
