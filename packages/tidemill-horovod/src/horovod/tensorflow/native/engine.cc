#include "engine.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tidemill {
namespace {

// How long the thread polls before it sleeps: waking it costs more than a small collective.
constexpr auto kAwake = std::chrono::microseconds(100);
// How long the thread pauses after a driver: usually the next driver follows at once, and would wait for the thread.
constexpr auto kUntilNextDriver = std::chrono::milliseconds(1);
constexpr int kParkMilliseconds = 5;
constexpr const char* kOtherFailed = "another call of the step has failed";
constexpr int kGraceMilliseconds = 2000;  // for data that an ended rank sent before its end

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", seconds);
  return text;
}

// As in the timelines of Horovod.
const char* KindName(Kind kind) {
  switch (kind) {
    case Kind::kAllreduce: return "ALLREDUCE";
    case Kind::kAllgather: return "ALLGATHER";
    case Kind::kAlltoall: return "ALLTOALL";
    case Kind::kBroadcast: return "BROADCAST";
    case Kind::kReducescatter: return "REDUCESCATTER";
    default: return "OTHER";
  }
}

Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Engine::Engine(Settings settings) : settings_(std::move(settings)), ended_(settings_.names.size()) {
  const int size = static_cast<int>(settings_.names.size());
  for (int rank = 0; rank < size; ++rank) {
    const int descriptor = settings_.control[static_cast<std::size_t>(rank)];
    lines_.push_back(descriptor < 0 ? nullptr : std::make_unique<Line>(descriptor));
  }
  if (settings_.rank == 0) {
    coordinator_ = std::make_unique<Coordinator>(size, settings_.names, settings_.fusion_bytes);
  }
  if (settings_.memory >= 0) {
    data_path_ = std::make_unique<SharedMemory>(settings_.memory, settings_.rank, size, this);
  } else {
    data_path_ = std::make_unique<Sockets>(settings_.data, settings_.rank, this);
  }
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  unpark_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  checked_ = warned_ = Clock::now();
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() {
  Stop();
  CloseInChild();
  ::close(wake_);
  ::close(unpark_);
}

void Engine::Stop() {
  if (stops_.exchange(true)) return;
  ::eventfd_write(wake_, 1);
  ::eventfd_write(unpark_, 1);
  thread_.join();
  const std::lock_guard<std::mutex> guard(turns_);  // a driver also checks stops_
  Fail("hvd.shutdown() was called");
  timeline_.Stop();
}

void Engine::CloseInChild() {
  for (const int descriptor : settings_.control) {
    if (descriptor >= 0) ::close(descriptor);
  }
  for (const int descriptor : settings_.data) {
    if (descriptor >= 0) ::close(descriptor);
  }
  if (settings_.memory >= 0) ::close(settings_.memory);
}

void Engine::Submit(std::vector<Task> tasks) {
  if (!Accept(std::move(tasks))) return;
  if (sleeps_) ::eventfd_write(wake_, 1);
  if (is_parked_ && !has_driver_) ::eventfd_write(unpark_, 1);
}

void Engine::SubmitAndDrive(std::vector<Task> tasks, const std::atomic<bool>& is_done) {
  bool has_driver = false;
  const bool drives = has_driver_.compare_exchange_strong(has_driver, true);
  if (!drives) {
    Submit(std::move(tasks));
    return;
  }
  bool has_more = false;
  if (Accept(std::move(tasks))) {
    if (sleeps_) ::eventfd_write(wake_, 1);  // wakes the thread, which then releases turns_
    const std::lock_guard<std::mutex> guard(turns_);
    TurnUntil(is_done);
    has_more = !pending_.empty();
    if (!has_more) driven_until_ = (Clock::now() + kUntilNextDriver).time_since_epoch().count();
  }
  has_driver_ = false;
  if (has_more || has_submitted_) ::eventfd_write(unpark_, 1);
}

bool Engine::Accept(std::vector<Task> tasks) {
  std::string failure;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    failure = failure_;
    if (failure.empty()) {
      for (Task& task : tasks) submitted_.push_back(std::move(task));
    }
  }
  if (!failure.empty()) {
    for (const Task& task : tasks) task.done({Ending::kLost, failure});
    return false;
  }
  has_submitted_ = true;
  return true;
}

// --- the thread -----------------------------------------------------------------------------------------------------

void Engine::Run() {
  while (!stops_ && !is_broken_) {
    const bool expects_driver = Clock::now().time_since_epoch().count() < driven_until_ && !has_submitted_;
    if (has_driver_ || expects_driver) {
      Park();
      continue;
    }
    const std::lock_guard<std::mutex> guard(turns_);
    TurnUntil(has_driver_);
  }
}

void Engine::Park() {
  is_parked_ = true;
  if (!stops_ && (has_driver_ || !has_submitted_)) {
    pollfd wait{unpark_, POLLIN, 0};
    ::poll(&wait, 1, kParkMilliseconds);
  }
  is_parked_ = false;
  eventfd_t count;
  if (::eventfd_read(unpark_, &count) == 0) driven_until_ = 0;
}

// --- who has the turn ------------------------------------------------------------------------------------------------

void Engine::TurnUntil(const std::atomic<bool>& is_enough) {
  try {
    auto active = Clock::now();
    while (!is_enough && !stops_ && !is_broken_) {
      if (Turn()) {
        active = Clock::now();
      } else if (Clock::now() - active < kAwake) {
        ::sched_yield();
      } else {
        Sleep();
      }
    }
  } catch (const std::exception& failure) {
    Break(failure.what());
  }
}

void Engine::Break(const std::string& why) {
  Fail(why);
  // The other ranks get the reason from the coordinator, or see that the socket ends.
  if (coordinator_ != nullptr) {
    Response last;
    last.fatal = true;
    last.error = why;
    for (auto& line : lines_) {
      if (line == nullptr) continue;
      line->Queue(Pack(last));
      line->Flush();
    }
  }
  for (auto& line : lines_) {
    if (line != nullptr) ::shutdown(line->descriptor(), SHUT_WR);
  }
  is_broken_ = true;
}

bool Engine::Turn() {
  bool active = TakeSubmitted();
  active = PollSockets() || active;
  if (coordinator_ != nullptr) {
    for (Response& response : coordinator_->Take()) {
      const std::string message = Pack(response);
      for (auto& line : lines_) {
        if (line != nullptr) line->Queue(message);
      }
      responses_.push_back(std::move(response));
    }
    PollSockets();
  }
  while (!responses_.empty()) {
    const Response response = std::move(responses_.front());
    responses_.pop_front();
    Perform(response);
    active = true;
  }
  if (Clock::now() - checked_ > std::chrono::milliseconds(200)) {
    checked_ = Clock::now();
    CheckLimits();
  }
  return active;
}

void Engine::Sleep() {
  std::vector<pollfd> waits{{wake_, POLLIN, 0}};
  for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
    if (lines_[rank] == nullptr || ended_[rank]) continue;
    const short events = lines_[rank]->has_unsent() ? POLLIN | POLLOUT : POLLIN;
    waits.push_back({lines_[rank]->descriptor(), events, 0});
  }
  sleeps_ = true;
  if (!has_submitted_ && !stops_) ::poll(waits.data(), waits.size(), 200);
  sleeps_ = false;
  eventfd_t count;
  ::eventfd_read(wake_, &count);
}

bool Engine::TakeSubmitted() {
  if (!has_submitted_) return false;
  std::vector<Task> tasks;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    has_submitted_ = false;
    tasks.swap(submitted_);
  }
  for (Task& task : tasks) {
    if (failed_steps_.Has(task.request.step)) {
      task.done({Ending::kRefused, kOtherFailed});
      continue;
    }
    if (coordinator_ != nullptr) {
      coordinator_->Add(0, task.request);
    } else {
      lines_[0]->Queue(Pack(task.request));
    }
    const Key key(task.request.name, task.request.members);
    pending_[key].push_back({std::move(task), Clock::now()});
  }
  return !tasks.empty();
}

bool Engine::PollSockets() {
  bool active = false;
  for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
    Line* const line = lines_[rank].get();
    if (line == nullptr || ended_[rank]) continue;
    const bool is_there = line->Flush() && line->Receive();
    std::string message;
    while (line->Next(&message)) {
      Deliver(static_cast<int>(rank), message);
      active = true;
    }
    if (!is_there) {
      active = true;
      ended_[rank] = true;
      if (coordinator_ != nullptr) Announce(static_cast<int>(rank));
    }
  }
  return active;
}

// Notifies the other ranks that a rank has ended: they may wait for it, and have no control socket to it.
void Engine::Announce(int rank) {
  Response ended;
  ended.kind = Kind::kEnded;
  ended.root = rank;
  const std::string message = Pack(ended);
  for (std::size_t other = 0; other < lines_.size(); ++other) {
    if (lines_[other] != nullptr && !ended_[other]) lines_[other]->Queue(message);
  }
}

void Engine::Deliver(int rank, const std::string& message) {
  if (coordinator_ != nullptr) {
    coordinator_->Add(rank, UnpackRequest(message));
    return;
  }
  Response response = UnpackResponse(message);
  if (response.fatal) throw Failure(response.error);
  if (response.kind == Kind::kEnded) {
    ended_[static_cast<std::size_t>(response.root)] = true;
    return;
  }
  responses_.push_back(std::move(response));
}

bool Engine::HasEnded(int rank) const { return ended_[static_cast<std::size_t>(rank)]; }

bool Engine::TakeTask(const Key& key, Task* task) {
  const auto found = pending_.find(key);
  if (found == pending_.end()) return false;  // missing because this rank has joined
  *task = std::move(found->second.front().task);
  found->second.pop_front();
  if (found->second.empty()) pending_.erase(found);
  return true;
}

// --- what is done ---------------------------------------------------------------------------------------------------

void Engine::Perform(const Response& response) {
  const auto place = std::find(response.members.begin(), response.members.end(), settings_.rank);
  if (place == response.members.end()) return;
  Collective collective;
  collective.number = response.number;
  collective.members.assign(response.members.begin(), response.members.end());
  collective.position = static_cast<int>(place - response.members.begin());
  std::vector<std::pair<std::string, Clock::time_point>> recorded;  // tensors, and since when they have waited
  if (timeline_.is_on()) {
    for (const std::string& name : response.names) {
      const auto found = pending_.find({name, response.members});
      if (found != pending_.end()) recorded.emplace_back(name, found->second.front().since);
    }
  }
  const auto begin = Clock::now();
  Dispatch(response, collective);
  const auto end = recorded.empty() ? begin : Clock::now();
  for (const auto& tensor : recorded) {
    const std::string event = KindName(response.kind);
    timeline_.Add(tensor.first, "NEGOTIATE_" + event, tensor.second, begin);
    if (response.error.empty()) timeline_.Add(tensor.first, event, begin, end);
  }
}

void Engine::Dispatch(const Response& response, const Collective& collective) {
  if (!response.error.empty()) {
    Refuse(response);
  } else if (response.kind == Kind::kAllreduce || response.kind == Kind::kReducescatter) {
    Reduce(response, collective);
  } else {
    Gather(response, collective);
  }
}

// Ends a call that cannot be made, and what else this rank has started in the same step: the coordinator has forgotten it.
void Engine::Refuse(const Response& response) {
  Task task;
  if (!TakeTask({response.names[0], response.members}, &task)) return;
  std::vector<Task> others;
  const std::int64_t step = task.request.step;
  if (step != 0) failed_steps_.Add(step);
  for (auto entry = pending_.begin(); step != 0 && entry != pending_.end();) {
    std::deque<Pending>& queue = entry->second;
    const auto kept = std::stable_partition(queue.begin(), queue.end(), [step](const Pending& pending) {
      return pending.task.request.step != step;
    });
    for (auto place = kept; place != queue.end(); ++place) others.push_back(std::move(place->task));
    queue.erase(kept, queue.end());
    entry = queue.empty() ? pending_.erase(entry) : std::next(entry);
  }
  task.done({response.invalid ? Ending::kInvalid : Ending::kRefused, response.error});
  for (const Task& other : others) other.done({Ending::kRefused, kOtherFailed});
}

// Adds a tensor to a reduction. `shape` is that of the input; a reducescatter keeps this member's rows only. Returns
// false if there is no memory for the result.
bool AddPieces(const Response& response, const Collective& collective, std::size_t bytes, const Task& task,
               Pieces* pieces) {
  if (!task.done) {  // this rank has joined
    pieces->Add(nullptr, nullptr, bytes);
    return true;
  }
  std::vector<std::int64_t> shape = task.request.shape;
  std::size_t begin = 0;
  std::size_t size = bytes;
  if (response.kind == Kind::kReducescatter) {  // the first members get one row more each, if the rows do not divide
    const auto members = static_cast<std::int64_t>(collective.members.size());
    const std::int64_t position = collective.position;
    const std::int64_t each = shape[0] / members;
    const std::int64_t more = shape[0] % members;
    const std::size_t row = shape[0] == 0 ? 0 : bytes / static_cast<std::size_t>(shape[0]);
    begin = static_cast<std::size_t>(position * each + std::min(position, more)) * row;
    shape[0] = each + (position < more ? 1 : 0);
    size = static_cast<std::size_t>(shape[0]) * row;
  }
  char* const to = task.output(shape);
  pieces->Add(task.input, nullptr, begin);
  pieces->Add(task.input + begin, to, size);
  pieces->Add(task.input + begin + size, nullptr, bytes - begin - size);
  return to != nullptr || size == 0;
}

void Engine::Reduce(const Response& response, const Collective& collective) {
  std::vector<Task> tasks(response.names.size());
  Pieces pieces;
  std::string problem;
  for (std::size_t place = 0; place < tasks.size(); ++place) {
    const std::size_t bytes = static_cast<std::size_t>(response.elements[place]) * ElementSize(response.dtype);
    TakeTask({response.names[place], response.members}, &tasks[place]);
    if (!AddPieces(response, collective, bytes, tasks[place], &pieces)) {
      problem = "there is no memory for the result of " + response.names[place];
    }
  }
  const auto end_all = [&tasks](const Ending& ending) {
    for (const Task& task : tasks) {
      if (task.done) task.done(ending);
    }
  };
  try {
    data_path_->Allreduce(collective, pieces, response.dtype, static_cast<Reduction>(response.reduction),
                          response.scale);
  } catch (const Failure& failure) {
    end_all({Ending::kLost, failure.what()});
    throw;
  }
  end_all({problem.empty() ? Ending::kDone : Ending::kLost, problem});
}

// Runs all collectives except allreduce: bytes are moved between ranks unchanged.
void Engine::Gather(const Response& response, const Collective& collective) {
  const std::size_t members = collective.members.size();
  const std::size_t position = static_cast<std::size_t>(collective.position);
  Task task;
  if (!TakeTask({response.kind == Kind::kJoin ? "join" : response.names[0], response.members}, &task)) {
    throw Failure("the coordinator asks for " + response.names[0] + ", which this rank has not");
  }
  std::vector<std::int64_t> shape = task.request.shape;
  std::size_t row = response.kind == Kind::kJoin ? 0 : ElementSize(response.dtype);
  for (std::size_t axis = 1; axis < shape.size(); ++axis) row *= static_cast<std::size_t>(shape[axis]);
  const auto rows = [&](std::size_t index) { return static_cast<std::size_t>(response.rows[index]); };

  std::vector<std::size_t> sizes(members);
  std::vector<Part> taken(members);
  std::vector<Part> given(members);
  std::size_t total = 0;
  if (response.kind == Kind::kBroadcast) {
    for (std::size_t index = 0; index < members; ++index) {
      if (collective.members[index] != response.root) continue;
      sizes[index] = taken[index].size = task.bytes;
      if (index == position) std::for_each(given.begin(), given.end(), [&](Part& part) { part.size = task.bytes; });
    }
  } else if (response.kind == Kind::kAllgather) {
    for (std::size_t index = 0; index < members; ++index) {
      sizes[index] = taken[index].size = rows(index) * row;
      total += rows(index);
      given[index].size = task.bytes;
    }
    shape[0] = static_cast<std::int64_t>(total);
  } else if (response.kind == Kind::kAlltoall) {
    for (std::size_t from = 0; from < members; ++from) {
      for (std::size_t to = 0; to < members; ++to) {
        const std::size_t size = rows(from * members + to) * row;
        if (to == position) taken[from] = {sizes[from], size, nullptr};
        if (from == position) given[to] = {sizes[from], size, nullptr};
        sizes[from] += size;
      }
      total += rows(from * members + position);
    }
    shape[0] = static_cast<std::int64_t>(total);
  } else {  // all ranks have joined: the result is the last one
    shape.clear();
  }
  char* const to = task.output(shape);
  Ending ending;
  if (to == nullptr && !shape.empty() && shape[0] != 0) {
    ending = {Ending::kLost, "there is no memory for the result of " + response.names[0]};
    task.done(ending);
    throw Failure(ending.words);  // the other ranks wait for this rank's data
  }
  std::size_t at = 0;
  for (Part& part : taken) {
    part.to = to + at;
    at += part.size;
  }
  try {
    data_path_->Exchange(collective, task.input, sizes, taken, given);
  } catch (const Failure& failure) {
    task.done({Ending::kLost, failure.what()});
    throw;
  }
  if (task.received) {
    std::vector<std::int64_t> received(members);
    for (std::size_t from = 0; from < members; ++from) received[from] = response.rows[from * members + position];
    task.received(received);
  }
  if (response.kind == Kind::kJoin) *reinterpret_cast<std::int32_t*>(to) = static_cast<std::int32_t>(response.rows[0]);
  task.done(ending);
}

// --- waits in vain --------------------------------------------------------------------------------------------------

// Called between collectives: fails if a pending tensor waits for a rank that has ended, or for too long.
void Engine::CheckLimits() {
  for (const auto& entry : pending_) {
    for (const std::int64_t member : entry.first.second) {
      if (HasEnded(static_cast<int>(member))) {
        throw Failure(Name(static_cast<int>(member)) + " has ended, and '" + entry.first.first + "' waits for it");
      }
    }
  }
  if (coordinator_ != nullptr) {
    const std::string late = coordinator_->Late(Duration(settings_.limit_s));
    if (!late.empty()) {
      throw Failure(late + ", for more than " + Seconds(settings_.limit_s) +
                    " s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
    }
    if (settings_.warn_s > 0 && Clock::now() - warned_ > Duration(settings_.warn_s)) {
      const std::string slow = coordinator_->Late(Duration(settings_.warn_s));
      if (!slow.empty()) {
        std::fprintf(stderr, "horovod: %s, for more than %s s (HOROVOD_STALL_CHECK_TIME_SECONDS)\n", slow.c_str(),
                     Seconds(settings_.warn_s).c_str());
        warned_ = Clock::now();
      }
    }
    return;
  }
  if (pending_.empty()) return;
  if (HasEnded(0)) throw Failure(Name(0) + ", which coordinates the others, has ended");
  for (const auto& entry : pending_) {
    if (entry.first.first == "join") continue;  // the other ranks continue to train
    // The coordinator reports missing ranks a little earlier. If it has not, the coordinator itself hangs.
    if (Clock::now() - entry.second.front().since > Duration(settings_.limit_s + 5)) {
      throw Failure(Name(0) + ", which coordinates the others, has not answered for '" + entry.first.first +
                    "' within " + Seconds(settings_.limit_s + 5) + " s");
    }
  }
}

// Called during a collective. A message of the coordinator may be that the job has failed.
void Engine::Check(int rank, double seconds) {
  PollSockets();
  const auto raise = [&] { throw Failure(Name(rank) + " has ended during a collective"); };
  if (seconds < 0) raise();
  if (HasEnded(rank)) raise();
  if (HasEnded(0) && seconds * 1000 > kGraceMilliseconds) {
    throw Failure(Name(0) + ", which coordinates the others, has ended");
  }
  if (seconds > settings_.limit_s) {
    throw Failure(Name(rank) + " did not go on with a collective for more than " + Seconds(settings_.limit_s) +
                  " s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)");
  }
  if (stops_) throw Failure("hvd.shutdown() was called during a collective");
}

void Engine::Fail(const std::string& why) {
  std::vector<Task> tasks;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (failure_.empty()) failure_ = why;
    tasks.swap(submitted_);
  }
  for (auto& entry : pending_) {
    for (Pending& pending : entry.second) tasks.push_back(std::move(pending.task));
  }
  pending_.clear();
  for (const Task& task : tasks) task.done({Ending::kLost, why});
}

}  // namespace tidemill
