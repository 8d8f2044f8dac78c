// Reads one epoch of a channel: reads the number of the epoch from the state file, opens its FIFO and returns records.
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
  kRecords,      // records were returned
  kNotYet,       // no data within the wait interval; call again
  kEnd,          // the epoch is over
  kError,        // error() has the reason
  kInterrupted,  // a signal arrived during the wait; the caller may call again
};

class PipeReader {
 public:
  explicit PipeReader(PipeOptions options);
  ~PipeReader();
  PipeReader(const PipeReader&) = delete;
  PipeReader& operator=(const PipeReader&) = delete;

  // Appends the records that have arrived, about a megabyte at most, to the empty `records`. Blocks at most for a tenth
  // of a second, and only if no data is available.
  Step Next(std::vector<Bytes>* records);

  const std::string& error() const { return error_; }

  // Called on a signal: each waiting reader returns kInterrupted once.
  static void Interrupt();
  // Called when the process exits: every wait ends with an error.
  static void Stop();
  // Called in a forked child: the FIFOs belong to the parent, and open copies would keep their writers waiting.
  static void CloseAllInChild();

 private:
  using Clock = std::chrono::steady_clock;

  Step Fill(std::vector<Bytes>* records);
  Step Open();
  Step OpenLocked(std::string* feeder_end);
  Step AwaitFifo(const std::string& feeder_end);
  Step AwaitWriter();
  std::string EndOfFeeder() const;
  std::string NoWriterReason() const;
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
  std::size_t begin_ = 0;  // begin of the bytes in the buffer that are not consumed yet
  std::size_t end_ = 0;
  std::uint64_t bytes_read_ = 0;

  bool waiting_ = false;  // no data has arrived since waiting_since_
  Clock::time_point waiting_since_;
  Clock::time_point announce_at_;
  bool feeder_ended_ = false;  // this wait has found a free lock, since feeder_ended_since_
  Clock::time_point feeder_ended_since_;
  std::uint64_t interrupts_seen_ = 0;

  std::uint64_t benchmark_records_ = 0;
  std::uint64_t read_ns_ = 0;
};

}  // namespace tidemill
