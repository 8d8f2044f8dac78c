#include "framing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "crc32c.h"

namespace tidemill {
namespace {

// Memory for a record is reserved up to this size; beyond it, memory grows only with the bytes that arrive.
constexpr std::size_t kTrusted = std::size_t{4} << 20;
// If at least so many bytes of a record are missing, they are read directly into the record.
constexpr std::size_t kDirect = std::size_t{16} << 10;

constexpr std::uint32_t kRecordIOMagic = 0xced7230au;

const char* const kLimit = "max_record_bytes is ";
const char* const kAdvice = "; if the data are sound, pass a greater one";

std::string TooLong(std::uint64_t size, std::uint64_t limit) {
  return "Record too long: " + std::to_string(size) + " bytes; " + kLimit + std::to_string(limit) + kAdvice;
}

// Returns a hint at the format of bytes that are not a valid header; empty if it is unknown.
std::string Cause(const char* data) {
  if (std::memcmp(data, "\x1f\x8b\x08", 3) == 0) {
    return " It begins as gzip does: give the channel CompressionType Gzip (TrainingInput(..., compression='Gzip')), or"
           " store the data decompressed";
  }
  if (Load32(data) == kRecordIOMagic) {
    return " It begins with the magic number of RecordIO: pass record_format='RecordIO', or leave RecordWrapperType out of"
           " the channel";
  }
  return "";
}

// Framings with a length in the header: header, payload, trailer.
class CountedFramer : public Framer {
 public:
  CountedFramer(const FramingOptions& options, std::size_t header_size)
      : options_(options), header_size_(header_size) {}

  std::size_t Take(const char* data, std::size_t size, std::size_t max_records,
                   std::vector<Bytes>* records) override {
    const char* at = data;
    const char* const end = data + size;
    while (!failed() && records->size() < max_records) {
      const std::size_t left = static_cast<std::size_t>(end - at);
      if (phase_ == Phase::kHeader) {
        if (left < header_size_) break;
        if (!continued_) record_offset_ = taken_;
        if (!TakeHeader(at)) break;
        at += header_size_;
        taken_ += header_size_;
        phase_ = Phase::kPayload;
      } else if (phase_ == Phase::kPayload) {
        const std::size_t part = static_cast<std::size_t>(std::min<std::uint64_t>(left, missing_));
        if (part == 0 && missing_ != 0) break;
        MakeRoom(part);
        record_.Append(at, part);
        TakePayload(at, part);
        at += part;
        taken_ += part;
        missing_ -= part;
        if (missing_ == 0) phase_ = Phase::kTrailer;
      } else {
        if (left < trailer_size_) break;
        const bool whole = TakeTrailer(at);
        if (failed()) break;
        at += trailer_size_;
        taken_ += trailer_size_;
        EndPart(whole, records);
      }
    }
    return static_cast<std::size_t>(at - data);
  }

  std::size_t Space(char** to) override {
    if (failed() || phase_ != Phase::kPayload || missing_ < kDirect) return 0;
    MakeRoom(kDirect);
    *to = record_.Tail();
    return static_cast<std::size_t>(std::min<std::uint64_t>(missing_, record_.capacity() - record_.size()));
  }

  void Filled(std::size_t size) override {
    TakePayload(record_.Tail(), size);
    record_.Grow(size);
    taken_ += size;
    missing_ -= size;
    if (missing_ == 0) phase_ = Phase::kTrailer;
  }

 protected:
  enum class Phase { kHeader, kPayload, kTrailer };

  // Parses a complete header; sets missing_ and trailer_size_, or fails.
  virtual bool TakeHeader(const char* data) = 0;
  virtual void TakePayload(const char* data, std::size_t size) = 0;
  // Parses a complete trailer; returns whether the record is valid. May fail.
  virtual bool TakeTrailer(const char* data) = 0;

  bool CheckLength(std::uint64_t size) {
    const std::uint64_t before = record_.size();
    if (size <= options_.max_record_bytes && before <= options_.max_record_bytes - size) return true;
    Fail(TooLong(size > UINT64_MAX - before ? size : before + size, options_.max_record_bytes));
    return false;
  }

  void EndPart(bool whole, std::vector<Bytes>* records) {
    phase_ = Phase::kHeader;
    if (continued_) return;
    if (whole) records->push_back(std::move(record_));
    record_.Clear();
    record_offset_ = taken_;
    ++record_number_;
  }

  const FramingOptions options_;
  const std::size_t header_size_;
  Phase phase_ = Phase::kHeader;
  std::uint64_t missing_ = 0;  // bytes of the payload that have not arrived yet
  std::size_t trailer_size_ = 0;
  bool continued_ = false;  // record_ has some parts of this record, and more follow
  Bytes record_;

 private:
  void MakeRoom(std::size_t at_least) {
    const std::size_t have = record_.size();
    if (record_.capacity() - have >= std::min<std::uint64_t>(missing_, at_least) && record_.capacity() > Bytes::kInline)
      return;
    if (record_.capacity() - have >= missing_) return;
    const std::size_t wanted = static_cast<std::size_t>(
        std::min<std::uint64_t>(missing_, std::max({kTrusted, have, at_least})));
    record_.Reserve(have + wanted);
  }
};

class RecordIOFramer : public CountedFramer {
 public:
  explicit RecordIOFramer(const FramingOptions& options) : CountedFramer(options, 8) {}

  void Finish(const char*, std::size_t size, std::vector<Bytes>* records) override {
    if (failed()) return;
    if (phase_ == Phase::kTrailer && (trailer_size_ == 0 || !options_.strict_padding)) {
      taken_ += size;
      EndPart(true, records);  // some writers omit the last padding
      size = 0;
    }
    if (phase_ == Phase::kTrailer) {
      Fail("Truncated RecordIO record: the padding of the last record is missing");
    } else if (phase_ == Phase::kPayload) {
      Fail("Truncated RecordIO record: " + std::to_string(missing_) + " more bytes were announced");
    } else if (size != 0) {
      if (!continued_) record_offset_ = taken_;
      Fail("Truncated RecordIO header: " + std::to_string(size) + " of 8 bytes");
    } else if (continued_) {
      Fail("Truncated RecordIO record: its last part is missing");
    }
  }

 protected:
  bool TakeHeader(const char* data) override {
    const std::uint32_t magic = Load32(data);
    if (magic != kRecordIOMagic) {
      Fail("Invalid magic number: " + std::to_string(magic) + Cause(data));
      return false;
    }
    const std::uint32_t word = Load32(data + 4);
    const std::uint32_t flag = word >> 29;
    const bool begins = flag == 0 || flag == 1;
    if (flag > 3 || begins == continued_) {
      Fail("Invalid RecordIO part: flag " + std::to_string(flag) +
           (flag > 3 ? " (0 to 3 are defined)" : continued_ ? " inside a record of several parts" : " without a begin"));
      return false;
    }
    const std::uint32_t length = word & 0x1fffffffu;
    if (!CheckLength(length)) return false;
    continued_ = flag == 1 || flag == 2;
    missing_ = length;
    trailer_size_ = (4 - length % 4) % 4;
    return true;
  }
  void TakePayload(const char*, std::size_t) override {}
  bool TakeTrailer(const char*) override { return true; }
};

class TFRecordFramer : public CountedFramer {
 public:
  explicit TFRecordFramer(const FramingOptions& options) : CountedFramer(options, 12) { trailer_size_ = 4; }

  void Finish(const char*, std::size_t size, std::vector<Bytes>*) override {
    if (failed()) return;
    if (phase_ == Phase::kPayload) {
      Fail("CRC check on data failed. The record is truncated: " + std::to_string(missing_) +
           " more bytes of data were announced");
    } else if (phase_ == Phase::kTrailer) {
      Fail("CRC check on data failed. The record is truncated: " + std::to_string(size) + " of 4 bytes of its checksum");
    } else if (size != 0) {
      record_offset_ = taken_;
      Fail("CRC check on header failed. The header is truncated: " + std::to_string(size) + " of 12 bytes");
    }
  }

 protected:
  bool TakeHeader(const char* data) override {
    if (Load32(data + 8) != MaskCrc32c(ExtendCrc32c(0, data, 8))) {
      Fail("CRC check on header failed." + Cause(data));
      return false;
    }
    missing_ = Load64(data);
    crc_ = 0;
    return CheckLength(missing_);
  }
  void TakePayload(const char* data, std::size_t size) override { crc_ = ExtendCrc32c(crc_, data, size); }
  bool TakeTrailer(const char* data) override {
    if (Load32(data) == MaskCrc32c(crc_)) {
      corrupted_ = 0;
      return true;
    }
    if (corrupted_ >= options_.max_corrupted_records) {
      Fail("CRC check on data failed.");
      return false;
    }
    ++corrupted_;
    warnings_.push_back("record " + std::to_string(record_number_) + " at byte offset " +
                        std::to_string(record_offset_) + " is corrupt and skipped (" + std::to_string(corrupted_) +
                        " of " + std::to_string(options_.max_corrupted_records) + " in a row)");
    return false;
  }

 private:
  std::uint32_t crc_ = 0;
  std::int64_t corrupted_ = 0;  // number of consecutive ones
};

class TextLineFramer : public Framer {
 public:
  explicit TextLineFramer(const FramingOptions& options) : options_(options) {}

  std::size_t Take(const char* data, std::size_t size, std::size_t max_records,
                   std::vector<Bytes>* records) override {
    const char* at = data;
    const char* const end = data + size;
    while (at != end && records->size() < max_records) {
      const void* found = std::memchr(at, '\n', static_cast<std::size_t>(end - at));
      const char* stop = found != nullptr ? static_cast<const char*>(found) : end;
      const std::size_t part = static_cast<std::size_t>(stop - at);
      if (part > options_.max_record_bytes || line_.size() > options_.max_record_bytes - part) {
        // The error has no length, because the rest of the line may not have arrived.
        Fail(std::string("Record too long: ") + kLimit + std::to_string(options_.max_record_bytes) + kAdvice);
        break;
      }
      if (found == nullptr && line_.capacity() - line_.size() < part) {
        line_.Reserve(std::max(line_.size() + part, 2 * line_.size()));
      }
      line_.Append(at, part);
      at = stop;
      taken_ += part;
      if (found != nullptr) {
        ++at;
        ++taken_;
        EndLine(records);
      }
    }
    return static_cast<std::size_t>(at - data);
  }

  void Finish(const char*, std::size_t, std::vector<Bytes>* records) override {
    if (!failed() && taken_ != record_offset_) EndLine(records);
  }

  std::size_t Space(char**) override { return 0; }
  void Filled(std::size_t) override {}

 private:
  void EndLine(std::vector<Bytes>* records) {
    records->push_back(std::move(line_));
    record_offset_ = taken_;
    ++record_number_;
  }

  const FramingOptions options_;
  Bytes line_;
};

}  // namespace

std::unique_ptr<Framer> MakeFramer(const std::string& record_format, const FramingOptions& options) {
  if (record_format == "RecordIO") return std::make_unique<RecordIOFramer>(options);
  if (record_format == "TFRecord") return std::make_unique<TFRecordFramer>(options);
  if (record_format == "TextLine") return std::make_unique<TextLineFramer>(options);
  return nullptr;
}

}  // namespace tidemill
