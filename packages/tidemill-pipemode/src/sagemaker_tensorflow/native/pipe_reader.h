// One epoch of one channel: takes the epoch's number from the state file, opens its FIFO, gives records.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bytes.h"
#include "framing.h"

namespace tidemill {

struct PipeOptions {
  std::string channel;
  std::string record_format;
  std::string state_dir;
  std::string pipe_dir;
  FramingOptions framing;
  std::int64_t path_timeout_ms = 120000;  // how long the FIFO may be absent
  bool benchmark = false;
  std::int64_t benchmark_records_interval = 0;
};

enum class Step {
  kRecords,      // there are records
  kNotYet,       // nothing has come for a moment; ask again
  kEnd,          // the epoch is over
  kError,        // error() says why
  kInterrupted,  // a signal came while nothing did; asking again is fine
};

class PipeReader {
 public:
  explicit PipeReader(PipeOptions options);
  ~PipeReader();
  PipeReader(const PipeReader&) = delete;
  PipeReader& operator=(const PipeReader&) = delete;

  // Puts what has arrived, about a megabyte of it at most, into the empty `records`. Blocks for a tenth of a second at
  // most, and only when nothing is there.
  Step Next(std::vector<Bytes>* records);

  const std::string& error() const { return error_; }

  // A signal came: each reader that waits gives kInterrupted once.
  static void Interrupt();
  // The process ends: every wait ends with an error.
  static void Stop();
  // In a forked child: the FIFOs belong to the parent, and a copy would keep their writers waiting.
  static void CloseAllInChild();

 private:
  using Clock = std::chrono::steady_clock;

  Step Fill(std::vector<Bytes>* records);
  Step Open();
  Step OpenLocked(std::string* feeder_end);
  Step AwaitFifo(const std::string& feeder_end);
  Step AwaitWriter();
  std::string EndOfFeeder() const;
  std::string WhyNobodyWillWrite() const;
  std::string AboutEnd(const std::string& reason, std::int64_t next_epoch) const;
  std::string OutcomePath() const;
  std::string FeederLockPath() const;
  Step Read(std::size_t* size, bool* at_end);
  Step AtEnd();
  std::string FindProblem() const;
  Step Quiet(const char* what);
  Step Fail(const std::string& text);
  Step FailWithErrno(const std::string& what, int number);
  void Announce(const char* what);
  void PrintWarnings();
  void CountForBenchmark(const std::vector<Bytes>& records, std::uint64_t read_ns, std::uint64_t bytes_before);
  std::string Where() const;

  const PipeOptions options_;
  std::unique_ptr<Framer> framer_;
  std::mutex mutex_;
  int fd_ = -1;
  std::int64_t epoch_ = 0;
  std::string path_;
  bool writer_seen_ = false;
  bool finished_ = false;
  std::string error_;

  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // what is in the buffer and not yet taken
  std::size_t end_ = 0;
  std::uint64_t bytes_read_ = 0;

  bool waiting_ = false;  // nothing has come since waiting_since_
  Clock::time_point waiting_since_;
  Clock::time_point announce_at_;
  bool feeder_ended_ = false;  // as far as this wait has seen, since feeder_ended_since_
  Clock::time_point feeder_ended_since_;
  std::uint64_t interrupts_seen_ = 0;

  std::uint64_t benchmark_records_ = 0;
  std::uint64_t read_ns_ = 0;
};

}  // namespace tidemill
