// Runs the parsers alone, for sanitizers and fuzzing.
//
//   check_framing parse FORMAT SKIP STRICT < stream    records and error, for comparison with the parsers in Python
//   check_framing fuzz SECONDS SEED                    mutated streams until the time is up
//
// With -DTIDEMILL_LIBFUZZER there is no main(), and libFuzzer calls LLVMFuzzerTestOneInput, guided by coverage. In both
// cases the parsers must agree with the naive ones, for all ways to cut the stream into pieces.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "crc32c.h"
#include "framing.h"
#include "naive.h"
#include "outcome.h"

namespace {

using tidemill::Bytes;
using tidemill::Framer;
using tidemill::FramingOptions;
using naive::Result;

const char* const kFormats[] = {"RecordIO", "TFRecord", "TextLine"};

// Feeds the stream in pieces of sizes from `next_size`, directly into the record if the parser and the test allow it.
template <typename NextSize>
Result Parse(const std::string& format, const std::string& stream, const FramingOptions& options, bool direct,
             std::size_t max_records, NextSize next_size) {
  std::unique_ptr<Framer> framer = tidemill::MakeFramer(format, options);
  std::vector<Bytes> records;
  Result result;
  std::string kept;
  std::size_t at = 0;
  const auto take = [&] {
    std::size_t count = 0;
    do {
      // A copy of exactly this size, so that a sanitizer sees a read beyond it.
      std::vector<char> piece(kept.begin(), kept.end());
      kept.erase(0, framer->Take(piece.data(), piece.size(), max_records, &records));
      count = records.size();
      for (const Bytes& record : records) result.records.emplace_back(record.data(), record.size());
      records.clear();
    } while (count == max_records && !framer->failed());
  };
  while (at < stream.size() && !framer->failed()) {
    std::size_t size = std::min(next_size(), stream.size() - at);
    char* to = nullptr;
    const std::size_t space = direct && kept.empty() ? framer->Space(&to) : 0;
    if (space != 0) {
      size = std::min(size, space);
      std::memcpy(to, stream.data() + at, size);
      framer->Filled(size);
    } else {
      kept.append(stream, at, size);
    }
    at += size;
    take();
  }
  if (!framer->failed()) {
    std::vector<char> rest(kept.begin(), kept.end());
    framer->Finish(rest.data(), rest.size(), &records);
    for (const Bytes& record : records) result.records.emplace_back(record.data(), record.size());
  }
  result.error = framer->error();
  result.offset = framer->record_offset();
  result.number = framer->record_number();
  result.warnings = framer->warnings()->size();
  return result;
}

void Require(bool holds, const char* what, const std::string& stream) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s, for the stream in hexadecimal:\n", what);
  for (const char c : stream) std::fprintf(stderr, "%02x", static_cast<unsigned char>(c));
  std::fprintf(stderr, "\n");
  std::abort();
}

// Checks that records and error do not depend on how the stream is cut.
void CheckStream(const std::string& format, const std::string& stream, const FramingOptions& options,
                 std::mt19937_64* random) {
  const Result whole = Parse(format, stream, options, false, SIZE_MAX, [] { return SIZE_MAX; });
  Require(whole == naive::Parse(format, stream, options), "other than the naive parser", stream);
  std::size_t sum = 0;
  for (const std::string& record : whole.records) {
    sum += record.size();
    Require(record.size() <= options.max_record_bytes, "a record beyond the limit", stream);
  }
  Require(sum <= stream.size(), "more bytes out than in", stream);
  const std::size_t most = 1 + (*random)() % 64;
  const auto cut = [&] { return 1 + (*random)() % most; };
  Require(whole == Parse(format, stream, options, true, SIZE_MAX, cut), "cut in small pieces", stream);
  const auto wide = [&] { return 1 + (*random)() % (64 << 10); };
  Require(whole == Parse(format, stream, options, true, SIZE_MAX, wide), "cut in large pieces", stream);
  Require(whole == Parse(format, stream, options, false, 1 + (*random)() % 3, cut), "few records at a time", stream);
}

void CheckChecksum(const std::string& data, std::mt19937_64* random) {
  const std::uint32_t plain = tidemill::ExtendCrc32cPortable(0, data.data(), data.size());
  const std::size_t half = data.empty() ? 0 : (*random)() % data.size();
  const std::uint32_t first = tidemill::ExtendCrc32c(0, data.data(), half);
  Require(plain == tidemill::ExtendCrc32c(0, data.data(), data.size()), "fast and plain checksum", data);
  Require(plain == tidemill::ExtendCrc32c(first, data.data() + half, data.size() - half), "checksum in parts", data);
}

// --- streams to begin with --------------------------------------------------------------------------------------

void Put32(std::uint32_t word, std::string* to) { to->append(reinterpret_cast<const char*>(&word), 4); }

// Returns a valid frame; `flag` is for RecordIO.
void PutFrame(const std::string& format, std::uint32_t flag, const std::string& data, std::string* stream) {
  if (format == "TextLine") {
    *stream += data + "\n";
  } else if (format == "RecordIO") {
    Put32(0xced7230au, stream);
    Put32(flag << 29 | static_cast<std::uint32_t>(data.size()), stream);
    *stream += data + std::string((4 - data.size() % 4) % 4, '\0');
  } else {
    const std::uint64_t size = data.size();
    const std::string length(reinterpret_cast<const char*>(&size), 8);
    *stream += length;
    Put32(naive::Masked(length), stream);
    *stream += data;
    Put32(naive::Masked(data), stream);
  }
}

#ifndef TIDEMILL_LIBFUZZER

std::string Payload(std::mt19937_64* random) {
  static const std::size_t kMost[] = {1, 8, 40, 300, 5000, 70000};
  std::string data((*random)() % kMost[(*random)() % 6], '\0');
  for (char& c : data) c = static_cast<char>((*random)());
  return data;
}

void PutRecord(const std::string& format, std::mt19937_64* random, std::string* stream) {
  const std::string data = Payload(random);
  PutFrame(format, (*random)() % 4 == 0 ? static_cast<std::uint32_t>((*random)() % 4) : 0, data, stream);
}

void Mutate(std::mt19937_64* random, std::string* stream) {
  if (stream->empty()) return;
  const std::size_t at = (*random)() % stream->size();
  switch ((*random)() % 6) {
    case 0:
      (*stream)[at] = static_cast<char>((*stream)[at] ^ (1 << (*random)() % 8));
      break;
    case 1:
      stream->resize(at);
      break;
    case 2:
      stream->erase(at, 1 + (*random)() % 16);
      break;
    case 3:
      stream->insert(at, stream->substr((*random)() % stream->size(), 1 + (*random)() % 64));
      break;
    case 4:
      for (std::size_t byte = at; byte < std::min(at + 8, stream->size()); ++byte) (*stream)[byte] = '\xff';
      break;
    default:
      (*stream)[at] = static_cast<char>((*random)());
  }
}

void FuzzOnce(std::mt19937_64* random) {
  const std::string format = kFormats[(*random)() % 3];
  FramingOptions options;
  options.max_record_bytes = (*random)() % 4 == 0 ? (*random)() % 4096 : 256u << 20;
  options.strict_padding = (*random)() % 2 == 0;
  options.max_corrupted_records = static_cast<std::int64_t>((*random)() % 3);
  std::string stream;
  for (std::uint64_t count = (*random)() % 8; count != 0; --count) PutRecord(format, random, &stream);
  for (std::uint64_t count = (*random)() % 4; count != 0; --count) Mutate(random, &stream);
  CheckStream(format, stream, options, random);
  CheckChecksum(stream, random);
  std::string outcome = (*random)() % 2 == 0 ? "2 ok 12 3\n" : "2 error 12 3 object \xc3\xa9 is gone\n";
  for (std::uint64_t count = (*random)() % 5; count != 0; --count) Mutate(random, &outcome);
  (void)tidemill::OutcomeProblem(outcome, (*random)() % 16);
}

int PrintParsed(const std::string& format, const FramingOptions& options) {
  const std::string stream{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  std::size_t turn = 0;
  const Result result = Parse(format, stream, options, true, SIZE_MAX, [&] { return 1 + turn++ % 7; });
  for (const std::string& record : result.records) {
    const std::uint64_t size = record.size();
    std::cout.write(reinterpret_cast<const char*>(&size), 8);
    std::cout << record;
  }
  const std::uint64_t end = UINT64_MAX;
  std::cout.write(reinterpret_cast<const char*>(&end), 8);
  std::cout << result.offset << " " << result.number << " " << result.warnings << " " << result.error;
  return 0;
}

#endif

// Returns a stream with mostly valid frames, so that a fuzzer gets past the checksums: each frame reads a kind and a
// length from the input, then its payload.
std::string FramedStream(const std::string& format, const std::string& input) {
  std::string stream;
  for (std::size_t at = 0; at + 2 <= input.size();) {
    const unsigned kind = static_cast<unsigned char>(input[at]);
    const std::string data = input.substr(at + 2, static_cast<unsigned char>(input[at + 1]));
    at += 2 + data.size();
    const std::size_t before = stream.size();
    if (kind % 8 == 1) {
      stream += data;
    } else {
      PutFrame(format, kind % 8 == 2 ? kind / 8 % 4 : 0, data, &stream);
    }
    if (kind % 8 == 3) stream.resize(before + (stream.size() - before) * (kind / 8) / 32);
    if (kind % 8 == 4 && stream.size() > before) {
      char& byte = stream[before + (stream.size() - before) * (kind / 8) / 32];
      byte = static_cast<char>(byte ^ 1);
    }
  }
  return stream;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size < 4) return 0;
  std::mt19937_64 random(data[0]);
  FramingOptions options;
  options.max_record_bytes = std::uint64_t{1} << (data[1] % 29);
  options.strict_padding = data[2] % 2 == 0;
  options.max_corrupted_records = data[2] / 2 % 3;
  const std::string format = kFormats[data[3] % 3];
  const std::string input(reinterpret_cast<const char*>(data) + 4, size - 4);
  CheckStream(format, data[3] % 2 == 0 ? input : FramedStream(format, input), options, &random);
  CheckChecksum(input, &random);
  (void)tidemill::OutcomeProblem(input, size);
  return 0;
}

#ifndef TIDEMILL_LIBFUZZER
int main(int count, char** words) {
  if (count == 5 && std::string(words[1]) == "parse") {
    FramingOptions options;
    options.max_corrupted_records = std::atoi(words[3]);
    options.strict_padding = std::atoi(words[4]) != 0;
    return PrintParsed(words[2], options);
  }
  if (count != 4 || std::string(words[1]) != "fuzz") {
    std::fprintf(stderr, "check_framing parse FORMAT SKIP STRICT | fuzz SECONDS SEED\n");
    return 2;
  }
  std::mt19937_64 random(std::strtoull(words[3], nullptr, 10));
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::atoi(words[2]) * 1000);
  std::uint64_t streams = 0;
  do {
    FuzzOnce(&random);
    ++streams;
  } while (std::chrono::steady_clock::now() < end);
  std::printf("%llu streams\n", static_cast<unsigned long long>(streams));
  return 0;
}
#endif
