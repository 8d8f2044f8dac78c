#include "feeder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace tidemill {
namespace {

constexpr std::size_t kLastLine = 1000;

// Returns the first line of a file, as far as it is in the first kLastLine bytes.
std::string FirstLine(int fd) {
  char text[kLastLine];
  const ssize_t size = ::pread(fd, text, sizeof text, 0);
  const std::string whole(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  return whole.substr(0, whole.find('\n'));
}

}  // namespace

// Tests with a shared lock, so that two readers never mistake each other for a feeder.
std::string FeederEnd(const std::string& lock_path) {
  const int fd = ::open(lock_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string reason;
  if (::flock(fd, LOCK_SH | LOCK_NB) == 0) {
    reason = FirstLine(fd);
    if (reason.empty()) reason = "it was killed, or died without a word";
    ::flock(fd, LOCK_UN);  // unlocks at once, even if a child was forked meanwhile
  }
  ::close(fd);
  return reason;
}

// Reads /proc, because the symbol of fstat(2) in new C libraries is missing in old ones.
bool IsRemoved(int fd) {
  static const std::string kMark = " (deleted)";
  char target[4096];
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target);
  if (size < static_cast<ssize_t>(kMark.size())) return false;
  return kMark.compare(0, kMark.size(), target + size - kMark.size(), kMark.size()) == 0;
}

}  // namespace tidemill
