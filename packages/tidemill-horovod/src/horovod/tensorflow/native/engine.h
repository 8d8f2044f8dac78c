// The engine of a rank: queues its tensors, and runs the collectives in the coordinator's order, in a separate thread
// or in a calling thread that waits for the result anyway.
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
#include "timeline.h"

namespace tidemill {

struct Settings {
  int rank = 0;
  std::vector<std::string> names;    // of the ranks: "rank 1 (host, process 17)"
  std::vector<int> control;          // by rank: sockets between rank 0 and each other rank; else -1
  std::vector<int> data;             // by rank: sockets between all ranks; empty with shared memory
  int memory = -1;                   // descriptor of the shared memory; else -1
  double warn_s = 60;
  double limit_s = 600;
  std::int64_t fusion_bytes = 0;
};

// How a call ended: successfully, with an error of the call (kInvalid: the arguments of a rank are invalid; kRefused: the
// calls of the ranks differ), or with a failure of the job.
struct Ending {
  enum Kind { kDone, kRefused, kInvalid, kLost } kind = kDone;
  std::string words;
};

// A tensor of this rank. `input` and the memory of `output` must be valid until `done` is called.
struct Task {
  Request request;
  const char* input = nullptr;
  std::size_t bytes = 0;
  // Allocates a result with these dimensions; returns null if there is no memory. Not called if there is no result.
  std::function<char*(const std::vector<std::int64_t>& shape)> output;
  // Called before `done` of an alltoall, with the number of rows from each member.
  std::function<void(const std::vector<std::int64_t>& rows)> received;
  std::function<void(const Ending&)> done;
};

class Engine : public Watch {
 public:
  explicit Engine(Settings settings);
  ~Engine() override;  // stops it
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues tensors that become ready together. Tensors with the same name keep the order of the calls.
  void Submit(std::vector<Task> tasks);

  // The same, for a thread that waits until `is_done`. If no other thread drives the engine, this one runs the rank's
  // collectives until then, which saves two thread switches; otherwise it returns immediately.
  void SubmitAndDrive(std::vector<Task> tasks, const std::atomic<bool>& is_done);

  // Fails all pending tensors, and ends the thread.
  void Stop();

  void CloseInChild();

  Timeline& timeline() { return timeline_; }

 private:
  using Key = std::pair<std::string, std::vector<std::int64_t>>;
  struct Pending {
    Task task;
    Clock::time_point since;
  };

  bool Accept(std::vector<Task> tasks);  // false if the tasks have failed immediately
  void Run();
  void Park();
  void TurnUntil(const std::atomic<bool>& is_enough);  // it and all functions below need turns_
  void Break(const std::string& why);
  bool Turn();  // returns whether there was any progress
  void Sleep();
  bool TakeSubmitted();
  bool PollSockets();         // reads and writes control sockets
  void Announce(int rank);
  void Deliver(int rank, const std::string& message);
  void Perform(const Response& response);
  void Dispatch(const Response& response, const Collective& collective);
  void Refuse(const Response& response);
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
  Timeline timeline_;
  FailedSteps failed_steps_;
  std::vector<bool> ended_;  // by rank: its socket was closed
  Clock::time_point warned_;
  Clock::time_point checked_;
  int wake_ = -1;    // an eventfd that ends Sleep
  int unpark_ = -1;  // an eventfd that ends Park

  std::mutex turns_;  // held by the thread that runs the collectives: the engine's thread or a driver
  std::atomic<bool> has_driver_{false};
  std::atomic<Clock::rep> driven_until_{0};  // until then, the engine's thread waits for the next driver
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
