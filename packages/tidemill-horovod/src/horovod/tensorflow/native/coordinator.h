// The coordinator on rank 0: records which tensors are ready on which ranks, and determines the order of collectives
// for all ranks, so that ranks whose graphs run their ops in different orders do not wait for each other.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "message.h"

namespace tidemill {

using Clock = std::chrono::steady_clock;

// The latest steps of a rank in which a call was refused. TensorFlow then does not start the rest of a step, at another
// point on each rank, so what has been started must not wait for other ranks, nor meet the tensors of a later step.
class FailedSteps {
 public:
  void Add(std::int64_t step) {
    steps_.push_back(step);
    if (steps_.size() > kLimit) steps_.pop_front();
  }
  bool Has(std::int64_t step) const {
    return step != 0 && std::find(steps_.begin(), steps_.end(), step) != steps_.end();
  }

 private:
  static constexpr std::size_t kLimit = 64;
  std::deque<std::int64_t> steps_;
};

class Coordinator {
 public:
  Coordinator(int size, std::vector<std::string> names_of_ranks, std::int64_t fusion_bytes)
      : size_(size), names_of_ranks_(std::move(names_of_ranks)), fusion_bytes_(fusion_bytes) {}

  // Records that a rank has a tensor ready, or joins.
  void Add(int rank, Request request);

  // Returns the collectives that are ready on all of their ranks, fused, in the order for all ranks.
  std::vector<Response> Take();

  // Returns which tensor some ranks have had ready for at least `limit`, and where it is missing, as in
  // "NAME is missing on rank 1 (...)"; empty if there is none.
  std::string Late(Clock::duration limit) const;

 private:
  struct Waiting {
    std::vector<std::int64_t> members;
    std::map<int, std::deque<Request>> requests;  // by rank
    Clock::time_point since;
  };
  using Key = std::pair<std::string, std::vector<std::int64_t>>;

  bool IsReady(const Waiting& waiting) const;
  Response Answer(const std::string& name, Waiting* waiting);
  std::string Problem(const std::string& name, const std::vector<std::pair<int, Request>>& requests) const;
  void FailSteps(const std::vector<std::pair<int, Request>>& requests, const Waiting* answered);
  std::string Mismatch(const std::string& name, const std::vector<std::pair<int, Request>>& requests) const;
  bool HasJoined(const std::vector<std::int64_t>& members) const;
  bool Fuse(const Response& response, Response* into) const;
  void Touch(const Key& key);

  const int size_;
  const std::vector<std::string> names_of_ranks_;
  const std::int64_t fusion_bytes_;
  std::uint64_t number_ = 0;
  std::map<Key, Waiting> waiting_;
  std::vector<Key> touched_;  // candidates for readiness, in the order of their requests
  std::map<int, FailedSteps> failed_steps_;  // by rank
  std::set<int> joined_;
  int last_joined_ = -1;
};

}  // namespace tidemill
