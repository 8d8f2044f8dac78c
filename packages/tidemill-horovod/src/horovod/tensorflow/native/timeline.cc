#include "timeline.h"

#include <cerrno>
#include <cstring>

namespace tidemill {
namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char one : text) {
    if (one == '"' || one == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(one) < 0x20 ? ' ' : one;
  }
  return quoted + "\"";
}

double Microseconds(Clock::duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

}  // namespace

std::string Timeline::Start(const std::string& path) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (file_ != nullptr) return "a timeline has been started already: call hvd.stop_timeline() first";
  file_ = std::fopen(path.c_str(), "w");
  if (file_ == nullptr) return path + ": " + std::strerror(errno);
  std::fprintf(file_, "[\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 0, \"args\": {\"name\": \"rank 0\"}}");
  started_ = Clock::now();
  is_on_ = true;
  return "";
}

void Timeline::Stop() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (file_ == nullptr) return;
  is_on_ = false;
  std::fprintf(file_, "\n]\n");
  std::fclose(file_);
  file_ = nullptr;
  rows_.clear();
}

void Timeline::Add(const std::string& tensor, const std::string& event, Clock::time_point begin,
                   Clock::time_point end) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (file_ == nullptr || begin < started_) return;
  const int row = Row(tensor);
  std::fprintf(file_, ",\n{\"ph\": \"X\", \"name\": %s, \"pid\": 0, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f}",
               Quoted(event).c_str(), row, Microseconds(begin - started_), Microseconds(end - begin));
}

int Timeline::Row(const std::string& tensor) {
  const auto found = rows_.emplace(tensor, static_cast<int>(rows_.size()) + 1);
  if (found.second) {
    std::fprintf(file_, ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 0, \"tid\": %d, \"args\": {\"name\": %s}}",
                 found.first->second, Quoted(tensor).c_str());
  }
  return found.first->second;
}

}  // namespace tidemill
