// A TensorFlow file system plugin that passes all calls to Python (`plugin.py`).
//
// TensorFlow calls the plugin from its own threads, even while the interpreter exits. A thread that enters the
// interpreter then would be terminated inside TensorFlow's code, and the process with it. So every call passes a gate.
// Python's last exit handler closes the gate: it waits for running calls, and all later calls are refused.

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "filesystem.h"
#include "old_glibc.h"

#define TIDEMILL_EXPORT extern "C" __attribute__((visibility("default")))

namespace tidemill {

// The result of a call into Python. A code of 0 means success.
struct Report {
  int code;
  char text[4096];
};

// Python's callbacks, in the order of `plugin._SIGNATURES`.
struct Calls {
  std::int64_t (*open_reader)(const char* path, Report*);
  std::int64_t (*read)(std::int64_t file, std::uint64_t offset, std::uint64_t n, char* buffer, Report*);
  std::int64_t (*open_writer)(const char* path, int append, Report*);
  void (*append)(std::int64_t file, const char* data, std::uint64_t n, Report*);
  std::int64_t (*tell)(std::int64_t file, Report*);
  void (*flush)(std::int64_t file, Report*);
  void (*close)(std::int64_t file, Report*);
  void (*discard)(std::int64_t file, Report*);
  void (*create_directory)(const char* path, Report*);
  void (*delete_file)(const char* path, Report*);
  void (*delete_directory)(const char* path, Report*);
  void (*delete_recursively)(const char* path, Report*);
  void (*rename)(const char* source, const char* target, Report*);
  void (*copy)(const char* source, const char* target, Report*);
  void (*stat)(const char* path, TF_FileStatistics*, Report*);
  void (*children)(const char* path, std::vector<std::string>*, Report*);
};

static Calls calls;
static char scheme[32];
static std::atomic<int> inside{0};
static std::atomic<bool> closed{false};
static void (*set_status)(TF_Status*, int, const char*);

// A call into Python: enters and leaves the gate, and converts the report to TensorFlow's status.
class Call {
 public:
  explicit Call(TF_Status* status) : status_(status) {
    inside.fetch_add(1);
    report_.code = closed.load() ? TF_CANCELLED : TF_OK;
    std::strcpy(report_.text, report_.code ? "the Python interpreter is ending" : "");
  }
  ~Call() {
    inside.fetch_sub(1);
    if (status_) set_status(status_, report_.code, report_.text);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool admitted() const { return report_.code == TF_OK; }
  bool succeeded() const { return report_.code == TF_OK; }
  Report* report() { return &report_; }

 private:
  TF_Status* status_;
  Report report_;
};

static std::int64_t number(const TF_Handle* file) { return reinterpret_cast<std::int64_t>(file->plugin); }

static void by_path(void (*function)(const char*, Report*), const char* path, TF_Status* status) {
  Call call(status);
  if (call.admitted()) function(path, call.report());
}

static void by_file(void (*function)(std::int64_t, Report*), const TF_Handle* file, TF_Status* status) {
  Call call(status);
  if (call.admitted()) function(number(file), call.report());
}

static void by_two_paths(void (*function)(const char*, const char*, Report*), const char* source, const char* target,
                         TF_Status* status) {
  Call call(status);
  if (call.admitted()) function(source, target, call.report());
}

static void open_writer(const char* path, int append, TF_Handle* file, TF_Status* status) {
  Call call(status);
  if (call.admitted()) file->plugin = reinterpret_cast<void*>(calls.open_writer(path, append, call.report()));
}

static bool stat(const char* path, TF_FileStatistics* found, TF_Status* status) {
  Call call(status);
  if (call.admitted()) calls.stat(path, found, call.report());
  return call.succeeded();
}

static char** to_entries(const std::vector<std::string>& names) {
  auto** entries = static_cast<char**>(std::calloc(names.size() + 1, sizeof(char*)));
  for (std::size_t i = 0; i < names.size(); ++i) entries[i] = strdup(names[i].c_str());
  return entries;
}

static TF_RandomAccessFileOps reader_functions() {
  TF_RandomAccessFileOps ops{};
  ops.cleanup = [](TF_Handle* file) { by_file(calls.discard, file, nullptr); };
  ops.read = [](const TF_Handle* file, std::uint64_t offset, std::size_t n, char* buffer, TF_Status* status) {
    Call call(status);
    if (!call.admitted()) return std::int64_t{0};
    std::int64_t got = calls.read(number(file), offset, n, buffer, call.report());
    if (call.succeeded() && static_cast<std::uint64_t>(got) < n) {
      call.report()->code = TF_OUT_OF_RANGE;  // TensorFlow's code for the end of a file
      std::strcpy(call.report()->text, "fewer bytes than asked for are left");
    }
    return got;
  };
  return ops;
}

static TF_WritableFileOps writer_functions() {
  TF_WritableFileOps ops{};
  ops.cleanup = [](TF_Handle* file) { by_file(calls.discard, file, nullptr); };
  ops.append = [](const TF_Handle* file, const char* data, std::size_t n, TF_Status* status) {
    Call call(status);
    if (call.admitted()) calls.append(number(file), data, n, call.report());
  };
  ops.tell = [](const TF_Handle* file, TF_Status* status) {
    Call call(status);
    return call.admitted() ? calls.tell(number(file), call.report()) : std::int64_t{-1};
  };
  ops.flush = [](const TF_Handle* file, TF_Status* status) { by_file(calls.flush, file, status); };
  ops.sync = ops.flush;
  ops.close = [](const TF_Handle* file, TF_Status* status) { by_file(calls.close, file, status); };
  return ops;
}

static TF_FilesystemOps filesystem_functions() {
  TF_FilesystemOps ops{};
  ops.init = [](TF_Handle*, TF_Status* status) { set_status(status, TF_OK, ""); };
  ops.cleanup = [](TF_Handle*) {};
  ops.new_random_access_file = [](const TF_Handle*, const char* path, TF_Handle* file, TF_Status* status) {
    Call call(status);
    if (call.admitted()) file->plugin = reinterpret_cast<void*>(calls.open_reader(path, call.report()));
  };
  ops.new_writable_file = [](const TF_Handle*, const char* path, TF_Handle* file, TF_Status* status) {
    open_writer(path, 0, file, status);
  };
  ops.new_appendable_file = [](const TF_Handle*, const char* path, TF_Handle* file, TF_Status* status) {
    open_writer(path, 1, file, status);
  };
  ops.create_dir = [](const TF_Handle*, const char* path, TF_Status* status) {
    by_path(calls.create_directory, path, status);
  };
  ops.recursively_create_dir = ops.create_dir;
  ops.delete_file = [](const TF_Handle*, const char* path, TF_Status* status) {
    by_path(calls.delete_file, path, status);
  };
  ops.delete_dir = [](const TF_Handle*, const char* path, TF_Status* status) {
    by_path(calls.delete_directory, path, status);
  };
  ops.delete_recursively = [](const TF_Handle*, const char* path, std::uint64_t* undeleted_files,
                              std::uint64_t* undeleted_dirs, TF_Status* status) {
    *undeleted_files = *undeleted_dirs = 0;
    by_path(calls.delete_recursively, path, status);
  };
  ops.rename_file = [](const TF_Handle*, const char* source, const char* target, TF_Status* status) {
    by_two_paths(calls.rename, source, target, status);
  };
  ops.copy_file = [](const TF_Handle*, const char* source, const char* target, TF_Status* status) {
    by_two_paths(calls.copy, source, target, status);
  };
  ops.path_exists = [](const TF_Handle*, const char* path, TF_Status* status) {
    TF_FileStatistics found{};
    stat(path, &found, status);
  };
  ops.stat = [](const TF_Handle*, const char* path, TF_FileStatistics* found, TF_Status* status) {
    stat(path, found, status);
  };
  ops.is_directory = [](const TF_Handle*, const char* path, TF_Status* status) {
    TF_FileStatistics found{};
    if (!stat(path, &found, status)) return false;
    if (!found.is_directory) set_status(status, 9, (std::string(path) + " is not a directory").c_str());
    return found.is_directory;
  };
  ops.get_file_size = [](const TF_Handle*, const char* path, TF_Status* status) {
    TF_FileStatistics found{};
    return stat(path, &found, status) ? found.length : std::int64_t{-1};
  };
  ops.translate_name = [](const TF_Handle*, const char* uri) { return strdup(uri); };
  ops.get_children = [](const TF_Handle*, const char* path, char*** entries, TF_Status* status) {
    std::vector<std::string> names;
    Call call(status);
    if (call.admitted()) calls.children(path, &names, call.report());
    if (!call.succeeded()) return -1;
    *entries = to_entries(names);
    return static_cast<int>(names.size());
  };
  return ops;
}

// TensorFlow frees the copied functions with plugin_memory_free.
template <typename Functions>
static TF_Table table(const Functions& functions) {
  auto* kept = static_cast<Functions*>(std::malloc(sizeof(Functions)));
  *kept = functions;
  return {0, 0, sizeof(Functions), kept};
}

}  // namespace tidemill

using namespace tidemill;

// Must be called before the library is registered with TensorFlow. Returns 0, or 1 if the process has no TensorFlow.
TIDEMILL_EXPORT int tidemill_s3_prepare(const char* name, const Calls* given) {
  std::strncpy(scheme, name, sizeof(scheme) - 1);
  calls = *given;
  void* framework = nullptr;
  for (const char* library : {"libtensorflow_framework.so.2", "libtensorflow_framework.2.dylib"})
    if (!framework) framework = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (framework) set_status = reinterpret_cast<decltype(set_status)>(dlsym(framework, "TF_SetStatus"));
  return set_status ? 0 : 1;
}

// Appends a name to the result of `Calls::children`.
TIDEMILL_EXPORT void tidemill_s3_add(std::vector<std::string>* names, const char* name) { names->emplace_back(name); }

// Refuses all calls from now on, and waits for running ones. Returns how many still run after `patience_ms`.
TIDEMILL_EXPORT int tidemill_s3_close(int patience_ms) {
  closed.store(true);
  auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  while (inside.load() > 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return inside.load();
}

// Called in a forked child, which has none of the parent's other threads and therefore no running calls.
TIDEMILL_EXPORT void tidemill_s3_forked() { inside.store(0); }

// TensorFlow's entry point, which it finds by this name.
TIDEMILL_EXPORT void TF_InitPlugin(TF_FilesystemPluginInfo* info) {
  info->plugin_memory_allocate = [](std::size_t size) { return std::calloc(1, size); };
  info->plugin_memory_free = [](void* memory) { std::free(memory); };
  info->num_schemes = 1;
  info->ops = static_cast<TF_FilesystemPluginOps*>(std::calloc(1, sizeof(TF_FilesystemPluginOps)));
  info->ops->scheme = strdup(scheme);
  info->ops->filesystem = table(filesystem_functions());
  info->ops->random_access_file = table(reader_functions());
  info->ops->writable_file = table(writer_functions());
}
