#include "pipe_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "feeder_lock.h"
#include "outcome.h"
#include "small_file.h"

namespace tidemill {
namespace {

constexpr std::size_t kBuffer = std::size_t{256} << 10;  // small enough to stay in the processor's cache
constexpr std::size_t kEnough = std::size_t{1} << 20;    // bytes of records returned by one call
constexpr int kPatienceMs = 100;
constexpr std::chrono::milliseconds kRestart{5000};  // how long a reader waits for the restart of a feeder that ended
constexpr int kPipeSize = 1 << 20;  // the largest size for unprivileged processes

std::atomic<std::uint64_t> interrupts{0};
std::atomic<bool> stopping{false};

// Open FIFOs, for CloseAllInChild; atomics, because a forked child must not take a lock.
std::array<std::atomic<int>, 1024> open_files;

struct OpenFiles {
  OpenFiles() {
    for (auto& slot : open_files) slot = -1;
  }
} initialize_open_files;

void Remember(int fd) {
  for (auto& slot : open_files) {
    int empty = -1;
    if (slot.compare_exchange_strong(empty, fd)) return;
  }
}

void CloseFile(int fd) {
  for (auto& slot : open_files) {
    int expected = fd;
    if (slot.compare_exchange_strong(expected, -1)) break;
  }
  ::close(fd);
}

// Returns a hint if another dataset of this process reads an epoch of the channel; else an empty string.
std::string AboutOtherReader(const std::string& channel, int own_fd) {
  for (const auto& slot : open_files) {
    const int fd = slot.load();
    if (fd < 0 || fd == own_fd) continue;
    char target[4096];
    const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target);
    if (size <= 0) continue;  // closed meanwhile
    const std::string path(target, static_cast<std::size_t>(size));
    const std::string name = path.substr(path.rfind('/') + 1);
    const std::size_t cut = name.rfind('_');
    if (cut == std::string::npos || name.substr(0, cut) != channel) continue;
    const std::string epoch = name.substr(cut + 1);
    if (epoch.empty() || epoch.find_first_not_of("0123456789") != std::string::npos) continue;
    return ". Another dataset of this process reads epoch " + epoch +
           " of the channel: a channel is one stream, so two datasets of it cannot be zipped. Make one PipeModeDataset and"
           " derive both parts from it by map";
  }
  return "";
}

bool ParseEpoch(const std::string& text, std::int64_t* epoch) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  if (first == std::string::npos || last - first >= 18) return false;
  *epoch = 0;
  for (std::size_t at = first; at <= last; ++at) {
    if (text[at] < '0' || text[at] > '9') return false;
    *epoch = 10 * *epoch + (text[at] - '0');
  }
  return true;
}

// Returns whether a writer has opened the FIFO since this end was opened.
bool HasBeenWritten(int fd) {
  struct pollfd file = {fd, POLLIN, 0};
  // Linux reports a hang-up only if there was a writer before.
  return ::poll(&file, 1, 0) > 0 && (file.revents & (POLLIN | POLLHUP)) != 0;
}

void WriteAll(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // standard output or error is closed
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace

PipeReader::PipeReader(PipeOptions options)
    : options_(std::move(options)), framer_(MakeFramer(options_.record_format, options_.framing)), buffer_(kBuffer) {}

PipeReader::~PipeReader() {
  if (fd_ >= 0) CloseFile(fd_);
  if (!options_.benchmark) return;
  const double gib = static_cast<double>(bytes_read_) / (1 << 30);
  const double seconds = static_cast<double>(read_ns_) * 1e-9;
  const double rate = seconds > 0 ? gib / seconds : std::numeric_limits<double>::infinity();
  char text[512];
  std::snprintf(text, sizeof text,
                "PipeModeDatasetOp::Dataset::Iterator total read_time_ms: %g\n"
                "PipeModeDatasetOp::Dataset::Iterator total read_bytes: %llu\n"
                "PipeModeDatasetOp::Dataset::Iterator total read_GB/s: %g\n",
                static_cast<double>(read_ns_) * 1e-6, static_cast<unsigned long long>(bytes_read_), rate);
  WriteAll(STDOUT_FILENO, text);
}

void PipeReader::Interrupt() { interrupts.fetch_add(1); }
void PipeReader::Stop() { stopping.store(true); }
void PipeReader::CloseAllInChild() {
  for (auto& slot : open_files) {
    const int fd = slot.exchange(-1);
    if (fd >= 0) ::close(fd);
  }
}

Step PipeReader::Next(std::vector<Bytes>* records) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!error_.empty()) return Step::kError;
  const bool timed = options_.benchmark || options_.benchmark_records_interval > 0;
  const std::uint64_t bytes_before = bytes_read_ - (end_ - begin_);
  const Clock::time_point start = timed ? Clock::now() : Clock::time_point();
  const Step step = Fill(records);
  PrintWarnings();
  if (timed) {
    const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    read_ns_ += static_cast<std::uint64_t>(spent);
    if (step == Step::kRecords || step == Step::kEnd) {
      CountForBenchmark(*records, static_cast<std::uint64_t>(spent), bytes_before);
    }
  }
  return step;
}

// Reads available data until there is enough; an error is raised after the records before it were returned.
Step PipeReader::Fill(std::vector<Bytes>* records) {
  // Figures per record need one record per call.
  const std::size_t max_records =
      options_.benchmark_records_interval > 0 ? 1 : std::numeric_limits<std::size_t>::max();
  if (fd_ < 0 && !finished_) {
    const Step step = Open();
    if (step != Step::kRecords) return step;
  }
  const std::uint64_t enough = bytes_read_ + kEnough;
  while (true) {
    begin_ += framer_->Take(buffer_.data() + begin_, end_ - begin_, max_records, records);
    if (records->size() >= max_records) return Step::kRecords;
    if (framer_->failed() || finished_) return records->empty() ? AtEnd() : Step::kRecords;
    if (bytes_read_ >= enough && !records->empty()) return Step::kRecords;
    std::size_t size = 0;
    bool at_end = false;
    const Step step = Read(&size, &at_end);
    if (step == Step::kError) return step;
    if (step == Step::kNotYet) {
      if (!records->empty()) return Step::kRecords;
      const Step waited = AwaitWriter();
      if (waited != Step::kRecords) return waited;
    }
    if (at_end) {
      finished_ = true;
      const std::size_t whole = records->size();
      framer_->Finish(buffer_.data() + begin_, end_ - begin_, records);
      // Text has no checksums, so only the feeder's outcome shows that the last line is complete.
      if (records->size() > whole && !FindProblem().empty()) records->resize(whole);
      begin_ = end_ = 0;
    }
  }
}

// Returns how the epoch ended, after all records were returned.
Step PipeReader::AtEnd() {
  const std::string problem = finished_ ? FindProblem() : "";
  if (framer_->failed()) return Fail(framer_->error() + (problem.empty() ? "" : "; " + problem));
  return problem.empty() ? Step::kEnd : Fail("The stream ended early or is damaged: " + problem);
}

// Returns why the epoch is incomplete according to the feeder's outcome file; empty if it is complete.
std::string PipeReader::FindProblem() const {
  const std::string file = OutcomePath();
  std::string text;
  const int failure = ReadSmallFile(file, &text);
  if (failure == ENOENT || failure == ENOTDIR) return "";  // the feeder writes no outcome files
  if (failure != 0) return "the outcome file " + file + " cannot be read: " + std::strerror(failure);
  const std::string problem = OutcomeProblem(text, bytes_read_);
  return problem.empty() ? "" : problem + " [" + file + "]";
}

// Reads the state file, opens the FIFO and writes the state under one lock. So another reader of the channel reads the
// next epoch, and an epoch is used up only when its FIFO is open.
Step PipeReader::Open() {
  if (framer_ == nullptr) return Fail("Invalid record format: " + options_.record_format);
  const std::string lock_path = options_.state_dir + "/." + options_.channel + "-pipe_mode-lock";
  File lock_file(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock_file.get() < 0) return FailWithErrno("the lock file " + lock_path + " cannot be opened", errno);
  if (::flock(lock_file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return FailWithErrno("flock on " + lock_path + " failed", errno);
    return Quiet("for the lock of the epoch counter");
  }
  std::string feeder_end;
  const Step step = OpenLocked(&feeder_end);
  ::flock(lock_file.get(), LOCK_UN);
  return step == Step::kNotYet ? AwaitFifo(feeder_end) : step;
}

// Waits one interval for a FIFO that is absent or was left by a dead feeder; fails at the time limit.
Step PipeReader::AwaitFifo(const std::string& feeder_end) {
  const Step waited = Quiet("for the FIFO to be made");
  if (waited != Step::kNotYet) return waited;
  const Clock::time_point now = Clock::now();
  if (!feeder_ended_) feeder_ended_since_ = now;
  feeder_ended_ = !feeder_end.empty();
  const bool over = now - waiting_since_ >= std::chrono::milliseconds(options_.path_timeout_ms);
  if (feeder_ended_ && (over || now - feeder_ended_since_ >= kRestart)) {
    const bool exists = ::access(path_.c_str(), F_OK) == 0;
    return Fail((exists ? "Nobody fills " : "File does not exist: ") + path_ + ". " + AboutEnd(feeder_end, epoch_));
  }
  if (!over) return waited;
  return Fail("File does not exist: " + path_ + ". Nothing made it within " +
              std::to_string(options_.path_timeout_ms / 1000) +
              " s: start the feeder, or see whether this epoch exists at all" + AboutOtherReader(options_.channel, fd_));
}

// If it returns kNotYet, nothing has changed; if the channel's feeder has ended, `feeder_end` is the reason.
Step PipeReader::OpenLocked(std::string* feeder_end) {
  const std::string state_path = options_.state_dir + "/." + options_.channel + "-pipe_mode-state";
  std::string text;
  int failure = ReadSmallFile(state_path, &text);
  if (failure == ENOENT) {
    text = "0";
    failure = WriteSmallFile(state_path, text);
  }
  if (failure != 0) return FailWithErrno("the epoch counter " + state_path + " cannot be read", failure);
  if (!ParseEpoch(text, &epoch_)) {
    return Fail("The epoch counter " + state_path + " holds '" + text.substr(0, 40) +
                "', a decimal number is allowed: write the number of the next epoch into it");
  }
  path_ = options_.pipe_dir + "/" + options_.channel + "_" + std::to_string(epoch_);
  File file(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno != ENOENT) return FailWithErrno("the FIFO cannot be opened", errno);
    *feeder_end = FeederEnd(FeederLockPath());
    return Step::kNotYet;
  }
  const bool is_fifo = ::lseek(file.get(), 0, SEEK_CUR) < 0 && errno == ESPIPE;
  if (is_fifo) {
    *feeder_end = EndOfFeeder();
    if (!feeder_end->empty() && !HasBeenWritten(file.get())) return Step::kNotYet;
    // A new feeder removes the FIFO of a killed one, and makes its own. A feeder that was quick has removed it too, but
    // has written it before: its data is in this end, and comes only once.
    if (IsRemoved(file.get()) && !HasBeenWritten(file.get())) {
      feeder_end->clear();
      return Step::kNotYet;
    }
  }
  failure = WriteSmallFile(state_path, std::to_string(epoch_ + 1));
  if (failure != 0) return FailWithErrno("the epoch counter " + state_path + " cannot be written", failure);
  fd_ = file.release();
  Remember(fd_);
  if (is_fifo) {
#ifdef F_SETPIPE_SZ
    (void)::fcntl(fd_, F_SETPIPE_SZ, kPipeSize);  // may fail: small pipes work as well
#endif
  } else {
    writer_seen_ = true;
  }
  waiting_ = false;
  return Step::kRecords;
}

// Reads once: first into the rest of a long record, if any, then into the buffer.
Step PipeReader::Read(std::size_t* size, bool* at_end) {
  if (!writer_seen_) return Step::kNotYet;  // reading a FIFO without a writer returns end of file
  if (begin_ != 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  struct iovec areas[2];
  char* direct = nullptr;
  const std::size_t space = end_ == 0 ? framer_->Space(&direct) : 0;
  int count = 0;
  if (space != 0) areas[count++] = {direct, space};
  areas[count++] = {buffer_.data() + end_, buffer_.size() - end_};
  ssize_t got;
  do {
    got = ::readv(fd_, areas, count);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Step::kNotYet;
  if (got < 0) return FailWithErrno("reading the FIFO failed", errno);
  waiting_ = false;
  *at_end = got == 0;
  *size = static_cast<std::size_t>(got);
  bytes_read_ += *size;
  const std::size_t filled = std::min(*size, space);
  if (filled != 0) framer_->Filled(filled);
  end_ += *size - filled;
  return Step::kRecords;
}

// Waits one interval for the first writer or for data.
Step PipeReader::AwaitWriter() {
  if (!writer_seen_ && !HasBeenWritten(fd_)) {
    const std::string reason = NoWriterReason();
    // The feeder may have written its last bytes before it ended.
    if (!reason.empty() && !HasBeenWritten(fd_)) return Fail("Nobody fills " + path_ + ". " + reason);
  }
  if (!HasBeenWritten(fd_)) {
    const Step step = Quiet(writer_seen_ ? "for data" : "for a writer to open the FIFO");
    if (step != Step::kNotYet || !HasBeenWritten(fd_)) return step;
  }
  writer_seen_ = true;
  return Step::kRecords;
}

// Returns why the feeder that made this epoch's FIFO ended; empty if it is alive or unknown. A FIFO without an outcome
// file was made by hand, or by a feeder that holds no lock.
std::string PipeReader::EndOfFeeder() const {
  return ::access(OutcomePath().c_str(), F_OK) == 0 ? FeederEnd(FeederLockPath()) : "";
}

std::string PipeReader::NoWriterReason() const {
  const std::string end = EndOfFeeder();
  if (!end.empty()) return AboutEnd(end, epoch_ + 1);
  if (!IsRemoved(fd_)) return "";
  return "It was removed or replaced while this reader waited for its first byte. Take the next epoch, " +
         std::to_string(epoch_ + 1) + ", or start feeder and script anew";
}

std::string PipeReader::AboutEnd(const std::string& reason, std::int64_t next_epoch) const {
  return "The feeder of channel " + options_.channel + " ended before epoch " + std::to_string(epoch_) + ": " + reason +
         ". Start the feeder again, with --first-epoch " + std::to_string(next_epoch) +
         ", then the script; in a job, see its log";
}

std::string PipeReader::OutcomePath() const {
  return options_.pipe_dir + "/.tidemill/" + options_.channel + "_" + std::to_string(epoch_) + ".outcome";
}

std::string PipeReader::FeederLockPath() const {
  return options_.pipe_dir + "/.tidemill/" + options_.channel + ".feeder";
}

// Waits at most a tenth of a second without data. Prints a line from time to time, and checks for signals and the exit.
Step PipeReader::Quiet(const char* what) {
  const Clock::time_point now = Clock::now();
  if (!waiting_) {
    waiting_ = true;
    waiting_since_ = now;
    feeder_ended_ = false;
    announce_at_ = now + std::chrono::seconds(10);
    interrupts_seen_ = interrupts.load();
  }
  if (now >= announce_at_) {
    announce_at_ = now + std::chrono::seconds(60);
    Announce(what);
  }
  if (stopping.load()) return Fail("The process is ending");
  if (interrupts.load() != interrupts_seen_) {
    interrupts_seen_ = interrupts.load();
    return Step::kInterrupted;
  }
  if (fd_ >= 0) {
    struct pollfd file = {fd_, POLLIN, 0};
    (void)::poll(&file, 1, kPatienceMs);
  } else {
    (void)::poll(nullptr, 0, kPatienceMs);
  }
  return Step::kNotYet;
}

void PipeReader::Announce(const char* what) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - waiting_since_).count();
  WriteAll(STDERR_FILENO, "pipemode.waiting channel=" + options_.channel + " seconds=" + std::to_string(seconds) +
                              " path=" + path_ + " what=\"" + what + AboutOtherReader(options_.channel, fd_) + "\"\n");
}

void PipeReader::PrintWarnings() {
  for (const std::string& warning : *framer_->warnings()) {
    WriteAll(STDERR_FILENO, "WARN PipeModeDataset: " + warning + " (" + Where() + ")\n");
  }
  framer_->warnings()->clear();
}

void PipeReader::CountForBenchmark(const std::vector<Bytes>& records, std::uint64_t read_ns,
                                   std::uint64_t bytes_before) {
  benchmark_records_ += std::max<std::size_t>(records.size(), 1);
  const std::int64_t interval = options_.benchmark_records_interval;
  if (interval <= 0 || benchmark_records_ % static_cast<std::uint64_t>(interval) != 0) return;
  const std::string head = "PipeModeDatasetOp::Dataset::Iterator records";
  const std::uint64_t bytes = bytes_read_ - (end_ - begin_) - bytes_before;
  WriteAll(STDOUT_FILENO, head + ": " + std::to_string(benchmark_records_) + "\n" + head +
                              " read_time_ns: " + std::to_string(read_ns) + "\n" + head +
                              " read_bytes: " + std::to_string(bytes) + "\n");
}

std::string PipeReader::Where() const {
  return "channel " + options_.channel + ", epoch " + std::to_string(epoch_) + ", " + path_;
}

Step PipeReader::Fail(const std::string& text) {
  error_ = text + " (" + Where();
  if (framer_ != nullptr) {
    error_ += ", byte offset " + std::to_string(framer_->record_offset()) + ", record " +
              std::to_string(framer_->record_number());
  }
  error_ += ")";
  return Step::kError;
}

Step PipeReader::FailWithErrno(const std::string& what, int number) {
  return Fail("Pipe mode: " + what + ": " + std::strerror(number));
}

}  // namespace tidemill
