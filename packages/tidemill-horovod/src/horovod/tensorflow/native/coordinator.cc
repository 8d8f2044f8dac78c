#include "coordinator.h"

#include <algorithm>

#include "reduction.h"

namespace tidemill {
namespace {

std::string Words(const std::vector<std::int64_t>& values) {
  std::string text = "[";
  for (std::size_t place = 0; place < values.size(); ++place) {
    text += (place > 0 ? ", " : "") + std::to_string(values[place]);
  }
  return text + "]";
}

const char* const kKinds[] = {"allreduce", "allgather", "alltoall", "broadcast", "join", "reducescatter"};
const char* const kReductions[] = {"sum", "min", "max", "product"};

std::string Words(const Request& request) {
  std::string text = kKinds[static_cast<int>(request.kind)];
  if (request.kind == Kind::kAllreduce) text += std::string(" (") + kReductions[request.reduction] + ")";
  if (request.kind == Kind::kBroadcast) text += " from rank " + std::to_string(request.root);
  text += std::string(" of ") + DtypeName(request.dtype) + " and shape " + Words(request.shape);
  if (request.scale != 1.0) text += " scaled by " + std::to_string(request.scale);
  return text;
}

std::int64_t Elements(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

// Returns whether the requests of two ranks match.
bool Fit(const Request& one, const Request& other) {
  if (one.kind != other.kind || one.dtype != other.dtype || one.root != other.root ||
      one.reduction != other.reduction || one.scale != other.scale) {
    return false;
  }
  if (one.kind != Kind::kAllgather && one.kind != Kind::kAlltoall) return one.shape == other.shape;
  return one.shape.size() == other.shape.size() && !one.shape.empty() &&
         std::equal(one.shape.begin() + 1, one.shape.end(), other.shape.begin() + 1);
}

}  // namespace

void Coordinator::Touch(const Key& key) {
  if (std::find(touched_.begin(), touched_.end(), key) == touched_.end()) touched_.push_back(key);
}

void Coordinator::Add(int rank, Request request) {
  if (request.kind == Kind::kJoin) {
    joined_.insert(rank);
    last_joined_ = rank;
    for (const auto& entry : waiting_) Touch(entry.first);
    return;
  }
  if (failed_steps_[rank].Has(request.step)) return;  // the rank ends the call when it gets to the refusal
  Key key(request.name, request.members);
  Waiting& waiting = waiting_[key];
  if (waiting.requests.empty()) {
    waiting.since = Clock::now();
    waiting.members = request.members;
  }
  waiting.requests[rank].push_back(std::move(request));
  Touch(key);
}

bool Coordinator::IsReady(const Waiting& waiting) const {
  if (waiting.requests.empty()) return false;
  return std::all_of(waiting.members.begin(), waiting.members.end(), [&](std::int64_t member) {
    const int rank = static_cast<int>(member);
    return waiting.requests.count(rank) > 0 || joined_.count(rank) > 0;
  });
}

std::vector<Response> Coordinator::Take() {
  std::vector<Response> responses;
  std::vector<Key> touched;
  touched.swap(touched_);
  for (const Key& key : touched) {
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) continue;
    while (IsReady(found->second)) {
      Response response = Answer(key.first, &found->second);
      if (responses.empty() || !Fuse(response, &responses.back())) responses.push_back(std::move(response));
      found->second.since = Clock::now();
    }
    if (found->second.requests.empty()) waiting_.erase(found);
  }
  if (static_cast<int>(joined_.size()) == size_) {
    Response all;
    all.kind = Kind::kJoin;
    for (int rank = 0; rank < size_; ++rank) all.members.push_back(rank);
    all.rows.push_back(last_joined_);
    responses.push_back(std::move(all));
    joined_.clear();
  }
  for (Response& response : responses) response.number = ++number_;
  return responses;
}

Response Coordinator::Answer(const std::string& name, Waiting* waiting) {
  std::vector<std::pair<int, Request>> requests;
  for (auto entry = waiting->requests.begin(); entry != waiting->requests.end();) {
    requests.emplace_back(entry->first, std::move(entry->second.front()));
    entry->second.pop_front();
    entry = entry->second.empty() ? waiting->requests.erase(entry) : std::next(entry);
  }
  const Request& first = requests.front().second;
  Response response;
  response.kind = first.kind;
  response.reduction = first.reduction;
  response.dtype = first.dtype;
  response.root = first.root;
  response.scale = first.scale;
  response.members = waiting->members;
  response.names.push_back(name);
  response.error = Problem(name, requests);
  response.invalid = !response.error.empty();
  if (!response.invalid) response.error = Mismatch(name, requests);
  if (!response.error.empty()) {
    FailSteps(requests, waiting);
    return response;
  }
  if (first.kind == Kind::kAllreduce || first.kind == Kind::kReducescatter) response.elements.push_back(Elements(first.shape));
  for (const auto& request : requests) {
    if (first.kind == Kind::kAllgather) response.rows.push_back(request.second.shape[0]);
    if (first.kind == Kind::kAlltoall) {
      response.rows.insert(response.rows.end(), request.second.splits.begin(), request.second.splits.end());
    }
  }
  return response;
}

// Forgets what the ranks of a refused call have started in the same step: it is not answered any more.
void Coordinator::FailSteps(const std::vector<std::pair<int, Request>>& requests, const Waiting* answered) {
  for (const auto& refused : requests) {
    const std::int64_t step = refused.second.step;
    if (step == 0) continue;
    failed_steps_[refused.first].Add(step);
    for (auto entry = waiting_.begin(); entry != waiting_.end();) {
      auto& by_rank = entry->second.requests;
      const auto found = by_rank.find(refused.first);
      if (found != by_rank.end()) {
        std::deque<Request>& queue = found->second;
        queue.erase(std::remove_if(queue.begin(), queue.end(), [step](const Request& one) { return one.step == step; }),
                    queue.end());
        if (queue.empty()) by_rank.erase(found);
      }
      entry = by_rank.empty() && &entry->second != answered ? waiting_.erase(entry) : std::next(entry);
    }
  }
}

std::string Coordinator::Problem(const std::string& name, const std::vector<std::pair<int, Request>>& requests) const {
  for (const auto& request : requests) {
    if (!request.second.problem.empty()) {
      return name + ": on " + names_of_ranks_[static_cast<std::size_t>(request.first)] + ", " + request.second.problem;
    }
  }
  return "";
}

std::string Coordinator::Mismatch(const std::string& name, const std::vector<std::pair<int, Request>>& requests) const {
  const Request& first = requests.front().second;
  for (const auto& request : requests) {
    if (!Fit(first, request.second)) {
      return name + ": " + names_of_ranks_[static_cast<std::size_t>(requests.front().first)] + " called " +
             Words(first) + ", " + names_of_ranks_[static_cast<std::size_t>(request.first)] + " called " +
             Words(request.second) + "; make the same call on all ranks";
    }
  }
  if (requests.size() < first.members.size()) {  // the other ranks have joined and contribute zeros
    if (first.kind != Kind::kAllreduce || first.reduction != static_cast<int>(Reduction::kSum)) {
      return name + ": other ranks have called hvd.join(), which allows allreduce with Sum and Average only; this is " +
             Words(first);
    }
  }
  return "";
}

bool Coordinator::Fuse(const Response& response, Response* into) const {
  if ((response.kind != Kind::kAllreduce && response.kind != Kind::kReducescatter) || into->kind != response.kind ||
      !response.error.empty() || !into->error.empty() || response.reduction != into->reduction || response.dtype != into->dtype ||
      response.scale != into->scale || response.members != into->members) {
    return false;
  }
  std::int64_t elements = response.elements[0];
  for (const std::int64_t count : into->elements) elements += count;
  if (elements * static_cast<std::int64_t>(ElementSize(response.dtype)) > fusion_bytes_) return false;
  into->names.push_back(response.names[0]);
  into->elements.push_back(response.elements[0]);
  return true;
}

std::string Coordinator::Late(Clock::duration limit) const {
  const Clock::time_point now = Clock::now();
  for (const auto& entry : waiting_) {
    const Waiting& waiting = entry.second;
    if (now - waiting.since < limit) continue;
    std::string missing;
    for (const std::int64_t member : waiting.members) {
      const int rank = static_cast<int>(member);
      if (waiting.requests.count(rank) == 0 && joined_.count(rank) == 0) {
        missing += (missing.empty() ? "" : ", ") + names_of_ranks_[static_cast<std::size_t>(rank)];
      }
    }
    return "'" + entry.first.first + "' is ready on other ranks and missing on " + missing;
  }
  return "";
}

}  // namespace tidemill
