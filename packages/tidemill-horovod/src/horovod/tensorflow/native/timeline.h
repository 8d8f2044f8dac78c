// The timeline: when each tensor waited for other ranks and when it was sent, as a file in Chrome's trace format.
#pragma once

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>

#include "coordinator.h"

namespace tidemill {

class Timeline {
 public:
  Timeline() = default;
  ~Timeline() { Stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Creates the file. Returns why that failed; empty on success.
  std::string Start(const std::string& path);

  // Completes the file. Does nothing if there is none.
  void Stop();

  bool is_on() const { return is_on_; }

  // Adds an event to the row of a tensor.
  void Add(const std::string& tensor, const std::string& event, Clock::time_point begin, Clock::time_point end);

 private:
  int Row(const std::string& tensor);  // needs mutex_

  std::atomic<bool> is_on_{false};
  std::mutex mutex_;
  std::FILE* file_ = nullptr;
  Clock::time_point started_;
  std::map<std::string, int> rows_;
};

}  // namespace tidemill
