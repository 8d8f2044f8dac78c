// Sends many files of the store into a FIFO. For small files the calls of Python would take longer than those of the
// kernel.
//
// Whatever is wrong with a file before its first byte is sent (it is missing, or has another size) is left to the caller,
// which tries the same file itself and reports the reason.

#include <fcntl.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace {

// Smaller files share the pages of the pipe, which is faster than a page for each. Larger ones are not copied.
constexpr std::uint64_t kSmall = 6 << 10;
constexpr std::size_t kGather = 64 << 10;
constexpr std::uint64_t kAtOnce = 1 << 30;  // sendfile moves at most 2 GiB
constexpr std::uint32_t kMagic = 0xced7230a;

enum Outcome : std::int32_t {
  kStopped = 0,     // every file before `files` is sent; the file `files`, if any, is left to the caller
  kCancelled = 1,
  kReaderGone = 2,
  kEndedEarly = 3,  // the file `files` ended after `moved` bytes
  kFailed = 4,      // the file `files` could not be sent because of `error`
};

struct Progress {
  std::uint64_t files;
  std::uint64_t sent_bytes;
  std::uint64_t moved;
  std::int32_t error;
};

class Sender {
 public:
  Sender(int pipe, int cancellation, Progress* progress)
      : pipe_(pipe), cancellation_(cancellation), progress_(progress) {}

  // Sends the files up to the first fault. Files count as sent when they are in the FIFO or in the buffer.
  Outcome SendAll(const char* paths, std::size_t paths_size, const std::uint64_t* sizes, std::uint64_t count,
                  bool record_io) {
    const char* const end = paths + paths_size;
    for (std::uint64_t index = 0; index < count && paths < end; ++index) {
      const int fd = Open(paths);
      if (fd < 0) break;
      const bool fits = SendFile(fd, sizes[index], record_io);
      ::close(fd);
      if (outcome_ != kStopped || !fits) break;
      ++progress_->files;
      paths += std::strlen(paths) + 1;
    }
    if (outcome_ == kStopped) Flush();
    return outcome_;
  }

 private:
  static int Open(const char* path) {
    int fd;
    do {
      fd = ::open(path, O_RDONLY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return fd;
  }

  // Returns false, before a byte is sent, if the file does not have its size.
  bool SendFile(int fd, std::uint64_t size, bool record_io) {
    const std::size_t header = record_io ? 8 : 0;
    const std::size_t padding = record_io ? (4 - size % 4) % 4 : 0;
    if (size >= kSmall) {
      if (static_cast<std::uint64_t>(::lseek(fd, 0, SEEK_END)) != size) return false;
      if (!MakeRoom(header)) return true;
      AddHeader(header, size);
      if (!Flush() || !Move(fd, size) || !MakeRoom(padding)) return true;
    } else {
      if (!MakeRoom(header + size + 1 + padding)) return true;
      if (!ReadWhole(fd, gathered_ + gathered_size_ + header, size)) return false;
      AddHeader(header, size);
      gathered_size_ += size;
    }
    std::memset(gathered_ + gathered_size_, 0, padding);
    gathered_size_ += padding;
    return true;
  }

  // Reads a byte more than `size`, so that a longer file is noticed.
  static bool ReadWhole(int fd, char* to, std::uint64_t size) {
    ssize_t got;
    do {
      got = ::read(fd, to, size + 1);
    } while (got < 0 && errno == EINTR);
    return got >= 0 && static_cast<std::uint64_t>(got) == size;
  }

  void AddHeader(std::size_t header, std::uint64_t size) {
    if (header == 0) return;
    const std::uint32_t words[2] = {kMagic, static_cast<std::uint32_t>(size)};  // the flag 0: a whole record
    std::memcpy(gathered_ + gathered_size_, words, sizeof words);
    gathered_size_ += sizeof words;
  }

  // Moves a file into the FIFO without copying it.
  bool Move(int fd, std::uint64_t size) {
    off_t offset = 0;
    while (static_cast<std::uint64_t>(offset) < size) {
      const ssize_t moved = ::sendfile(pipe_, fd, &offset, std::min(size - offset, kAtOnce));
      if (moved > 0) {
        progress_->sent_bytes += moved;
      } else if (moved == 0) {
        progress_->moved = offset;
        outcome_ = kEndedEarly;
        return false;
      } else if (!MayGoOn()) {
        return false;
      }
    }
    return true;
  }

  bool MakeRoom(std::size_t size) { return gathered_size_ + size <= kGather || Flush(); }

  // Writes the gathered bytes. There are none while a file is moved.
  bool Flush() {
    const char* at = gathered_;
    while (gathered_size_ != 0) {
      const ssize_t written = ::write(pipe_, at, gathered_size_);
      if (written >= 0) {
        at += written;
        gathered_size_ -= written;
        progress_->sent_bytes += written;
      } else if (!MayGoOn()) {
        return false;
      }
    }
    return true;
  }

  // After a call that failed: if the FIFO is full, waits until it has room; the next call finds a reader that has left.
  bool MayGoOn() {
    if (errno == EINTR) return true;
    if (errno == EAGAIN) {
      pollfd waited[] = {{pipe_, POLLOUT, 0}, {cancellation_, POLLIN, 0}};
      if (::poll(waited, 2, -1) < 0) return errno == EINTR || Fail(kFailed);
      return waited[1].revents == 0 || Fail(kCancelled);
    }
    return Fail(errno == EPIPE ? kReaderGone : kFailed);
  }

  bool Fail(Outcome outcome) {
    outcome_ = outcome;
    progress_->error = errno;
    return false;
  }

  const int pipe_;
  const int cancellation_;
  Progress* const progress_;
  Outcome outcome_ = kStopped;
  std::size_t gathered_size_ = 0;
  char gathered_[kGather];
};

}  // namespace

// Sends files to a FIFO, and returns an Outcome. SIGPIPE must be ignored.
//   pipe: write end of the FIFO, non-blocking.
//   cancellation: becomes readable when the wait for room in the FIFO is to end.
//   paths: one path after another, each with a NUL at its end; `paths_size` bytes.
//   sizes: the size of each of the `count` files.
//   record_io: whether each file becomes a RecordIO record. Its size must then be less than 2^29.
extern "C" __attribute__((visibility("default"))) std::int32_t tidemill_feeder_send(
    int pipe, int cancellation, const char* paths, std::size_t paths_size, const std::uint64_t* sizes,
    std::uint64_t count, std::int32_t record_io, Progress* progress) {
  return Sender(pipe, cancellation, progress).SendAll(paths, paths_size, sizes, count, record_io != 0);
}
