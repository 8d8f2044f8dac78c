// This rank's part: tensors that wait for their turn, and what does with them as the coordinator says: a thread of its
// own, or a caller that would only wait for it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator.h"
#include "data_path.h"
#include "message.h"
#include "shared_memory.h"
#include "sockets.h"

namespace tidemill {

struct Settings {
  int rank = 0;
  std::vector<std::string> names;    // of ranks: "rank 1 (host, process 17)"
  std::vector<int> control;          // by rank: sockets between rank 0 and each other; -1 where there is none
  std::vector<int> data;             // by rank: sockets between all; empty where all share memory
  int memory = -1;                   // the descriptor of that memory
  double warn_s = 60;
  double limit_s = 600;
  std::int64_t fusion_bytes = 0;
};

// Why a tensor could not be reduced: an error of this call, or of the job.
struct Ending {
  enum Kind { kDone, kRefused, kLost } kind = kDone;
  std::string words;
};

// A tensor of this rank. `input` and the memory of `output` stay until `done` was called.
struct Task {
  Request request;
  const char* input = nullptr;
  std::size_t bytes = 0;
  // Makes room for a result with these dimensions; null if there is no memory. Not called where there is no result.
  std::function<char*(const std::vector<std::int64_t>& shape)> output;
  std::function<void(const Ending&)> done;
};

class Engine : public Watch {
 public:
  explicit Engine(Settings settings);
  ~Engine() override;  // stops it
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes tensors that become ready together. Their order is that of the calls, for tensors of one name.
  void Submit(std::vector<Task> tasks);

  // The same from a thread that waits until `is_done`. If no other thread does so, it does this rank's part of all
  // collectives meanwhile, which spares two changes of threads; else it comes back at once.
  void SubmitAndDrive(std::vector<Task> tasks, const std::atomic<bool>& is_done);

  // Fails what waits, and ends the thread.
  void Stop();

  void CloseInChild();

 private:
  using Key = std::pair<std::string, std::vector<std::int64_t>>;
  struct Pending {
    Task task;
    Clock::time_point since;
  };

  bool Accept(std::vector<Task> tasks);  // false if they have failed at once
  void Run();
  void Park();
  void TurnUntil(const std::atomic<bool>& is_enough);  // by the holder of turns_, as all below
  void Break(const std::string& why);
  bool Turn();  // whether anything happened
  void Sleep();
  bool TakeSubmitted();
  bool Converse();         // reads and writes control sockets
  void Announce(int rank);
  void Deliver(int rank, const std::string& message);
  void Perform(const Response& response);
  void Reduce(const Response& response, const Collective& collective);
  void Gather(const Response& response, const Collective& collective);
  void CheckLimits();
  void Check(int rank, double seconds) override;
  void Fail(const std::string& why);
  bool HasEnded(int rank) const;
  bool TakeTask(const Key& key, Task* task);
  const std::string& Name(int rank) const { return settings_.names[static_cast<std::size_t>(rank)]; }

  const Settings settings_;
  std::vector<std::unique_ptr<Line>> lines_;  // by rank
  std::unique_ptr<Coordinator> coordinator_;  // of rank 0
  std::unique_ptr<DataPath> data_path_;
  std::deque<Response> responses_;
  std::map<Key, std::deque<Pending>> pending_;
  std::vector<bool> ended_;  // by rank: its socket was closed
  Clock::time_point warned_;
  Clock::time_point checked_;
  int wake_ = -1;    // an eventfd: ends Sleep
  int unpark_ = -1;  // an eventfd: ends Park

  std::mutex turns_;  // whoever holds it does this rank's part: the thread, or a driver
  std::atomic<bool> has_driver_{false};
  std::atomic<Clock::rep> driven_until_{0};  // the thread leaves the turns to the next driver, who is expected soon
  std::atomic<bool> is_broken_{false};
  std::mutex mutex_;
  std::vector<Task> submitted_;
  std::string failure_;
  std::atomic<bool> has_submitted_{false};
  std::atomic<bool> sleeps_{false};
  std::atomic<bool> is_parked_{false};
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace tidemill
