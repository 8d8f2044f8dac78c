#include "small_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>

namespace tidemill {

int ReadSmallFile(const std::string& path, std::string* text) {
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return errno;
  text->clear();
  char piece[4096];
  while (text->size() < (1u << 20)) {
    const ssize_t got = ::read(file.get(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return 0;
    text->append(piece, static_cast<std::size_t>(got));
  }
  return EFBIG;
}

int WriteSmallFile(const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";
  {
    File file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.get() < 0) return errno;
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0) return errno;
    if (static_cast<std::size_t>(written) != text.size()) return ENOSPC;
  }
  return ::rename(beside.c_str(), path.c_str()) == 0 ? 0 : errno;
}

}  // namespace tidemill
