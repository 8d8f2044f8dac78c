// Small files that are read and replaced as a whole, such as the epoch counter.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

namespace tidemill {

// Owns a file descriptor.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Reads a whole small file. Returns 0 or an errno.
int ReadSmallFile(const std::string& path, std::string* text);

// Replaces a small file by rename, so that no reader sees a partial file. Returns 0 or an errno.
int WriteSmallFile(const std::string& path, const std::string& text);

}  // namespace tidemill
