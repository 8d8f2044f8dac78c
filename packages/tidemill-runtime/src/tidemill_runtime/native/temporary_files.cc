// A preloaded library (LD_PRELOAD) that separates the temporary files of the S3 client inside TensorFlow 1.15.
//
// That client collects the content of each object in a file which it names by the current millisecond. Two objects that
// are begun in the same millisecond share a file and overwrite each other, so that an upload fails or has wrong content.
// The client keeps its files open and never opens them again, so a name may disappear: each file is created with a
// removed name, and therefore an inode, of its own.

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "old_glibc.h"

namespace {

constexpr char kPrefix[] = "/tmp/s3_filesystem_XXXXXX";  // the client's constant; TMPDIR has no effect

using Open = FILE* (*)(const char*, const char*);

FILE* OpenSeparately(Open open, const char* path, const char* mode) {
  char exclusive[16];
  std::snprintf(exclusive, sizeof exclusive, "%sx", mode);  // O_EXCL, because threads compete for the name
  while (true) {
    if (unlink(path) != 0 && errno != ENOENT) return nullptr;
    FILE* file = open(path, exclusive);
    if (file != nullptr || errno != EEXIST) return file;
  }
}

}  // namespace

// std::fstream, with which the client opens its files, calls this function of the C library.
extern "C" __attribute__((visibility("default"))) FILE* fopen64(const char* path, const char* mode) {
  static const Open open = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "fopen64"));
  const bool is_temporary = mode[0] == 'w' && std::strncmp(path, kPrefix, sizeof kPrefix - 1) == 0;
  return is_temporary ? OpenSeparately(open, path, mode) : open(path, mode);
}
