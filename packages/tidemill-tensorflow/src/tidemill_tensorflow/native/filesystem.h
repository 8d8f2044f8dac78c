// The parts of TensorFlow's C interface for file systems that the plugin uses, in the layout of all releases since 2.6.
// Declared here, so that the build needs no TensorFlow headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tidemill {

struct TF_Status;

enum : int { TF_OK = 0, TF_CANCELLED = 1, TF_OUT_OF_RANGE = 11 };

struct TF_FileStatistics {
  std::int64_t length;
  std::int64_t mtime_nsec;
  bool is_directory;
};

// An open file or a file system. The pointer belongs to the plugin.
struct TF_Handle {
  void* plugin;
};

struct TF_RandomAccessFileOps {
  void (*cleanup)(TF_Handle*);
  std::int64_t (*read)(const TF_Handle*, std::uint64_t offset, std::size_t n, char* buffer, TF_Status*);
};

struct TF_WritableFileOps {
  void (*cleanup)(TF_Handle*);
  void (*append)(const TF_Handle*, const char* buffer, std::size_t n, TF_Status*);
  std::int64_t (*tell)(const TF_Handle*, TF_Status*);
  void (*flush)(const TF_Handle*, TF_Status*);
  void (*sync)(const TF_Handle*, TF_Status*);
  void (*close)(const TF_Handle*, TF_Status*);
};

struct TF_FilesystemOps {
  void (*init)(TF_Handle*, TF_Status*);
  void (*cleanup)(TF_Handle*);
  void (*new_random_access_file)(const TF_Handle*, const char* path, TF_Handle* file, TF_Status*);
  void (*new_writable_file)(const TF_Handle*, const char* path, TF_Handle* file, TF_Status*);
  void (*new_appendable_file)(const TF_Handle*, const char* path, TF_Handle* file, TF_Status*);
  void* new_read_only_memory_region_from_file;
  void (*create_dir)(const TF_Handle*, const char* path, TF_Status*);
  void (*recursively_create_dir)(const TF_Handle*, const char* path, TF_Status*);
  void (*delete_file)(const TF_Handle*, const char* path, TF_Status*);
  void (*delete_dir)(const TF_Handle*, const char* path, TF_Status*);
  void (*delete_recursively)(const TF_Handle*, const char* path, std::uint64_t* undeleted_files,
                             std::uint64_t* undeleted_dirs, TF_Status*);
  void (*rename_file)(const TF_Handle*, const char* source, const char* target, TF_Status*);
  void (*copy_file)(const TF_Handle*, const char* source, const char* target, TF_Status*);
  void (*path_exists)(const TF_Handle*, const char* path, TF_Status*);
  void* paths_exist;
  void (*stat)(const TF_Handle*, const char* path, TF_FileStatistics*, TF_Status*);
  bool (*is_directory)(const TF_Handle*, const char* path, TF_Status*);
  std::int64_t (*get_file_size)(const TF_Handle*, const char* path, TF_Status*);
  char* (*translate_name)(const TF_Handle*, const char* uri);
  int (*get_children)(const TF_Handle*, const char* path, char*** entries, TF_Status*);
  void* get_matching_paths;
  void* flush_caches;
  void* transactions_and_configuration[11];
};

// One function table of a scheme: ABI and API version, size in bytes, functions.
struct TF_Table {
  int abi;
  int api;
  std::size_t size;
  void* functions;
};

struct TF_FilesystemPluginOps {
  char* scheme;
  TF_Table filesystem;
  TF_Table random_access_file;
  TF_Table writable_file;
  TF_Table read_only_memory_region;
};

struct TF_FilesystemPluginInfo {
  std::size_t num_schemes;
  TF_FilesystemPluginOps* ops;
  void* (*plugin_memory_allocate)(std::size_t);
  void (*plugin_memory_free)(void*);
};

}  // namespace tidemill
