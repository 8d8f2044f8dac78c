// The coordinator on rank 0: records which tensors are ready on which ranks, and determines the order of collectives
// for all ranks, so that ranks whose graphs run their ops in different orders do not wait for each other.
#pragma once

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
  Response Answer(const std::string& name, Waiting* waiting) const;
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
  std::set<int> joined_;
  int last_joined_ = -1;
};

}  // namespace tidemill
