#include "connection.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace tidemill {
namespace {

constexpr std::size_t kBufferBytes = 64 << 10;
// Up to this size the caller itself writes as much as the socket accepts immediately. On a busy core, the writing
// thread may wait several milliseconds to be scheduled: longer than the copy takes.
constexpr std::size_t kByCallerBytes = 1 << 20;

std::string Reason(int number) { return number == 0 ? "its connection ended" : std::strerror(number); }

}  // namespace

Connection::Connection(int descriptor, std::string name, double hang_timeout_s)
    : descriptor_(descriptor),
      name_(std::move(name)),
      hang_timeout_s_(hang_timeout_s),
      buffer_(new char[kBufferBytes]) {
  std::thread([this] { Read(); }).detach();
  std::thread([this] { Write(); }).detach();
}

bool Connection::Send(Outgoing outgoing) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!lost_.empty()) return false;
  if (outgoing_.empty() && !writing_ && outgoing.head.size() + outgoing.size <= kByCallerBytes) {
    // Saves the switch to the writing thread, which handles errors and what does not fit now.
    std::string error;
    if (WriteSome(&outgoing, MSG_DONTWAIT, &error) && outgoing.sent == outgoing.head.size() + outgoing.size) {
      outgoing.release(outgoing.owner);
      return true;
    }
  }
  outgoing_.push_back(std::move(outgoing));
  outgoing_changed_.notify_all();
  return true;
}

void Connection::Receive(std::uint64_t channel, std::string label, Receiver receiver) {
  Outcome outcome{Outcome::kLost, {}, {}};
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = arrived_.find(channel);
    if (found != arrived_.end()) {
      outcome.kind = Outcome::kMessage;
      outcome.message = std::move(found->second.front());
      found->second.pop_front();
      if (found->second.empty()) arrived_.erase(found);
    } else if (!lost_.empty()) {
      outcome.words = lost_;
    } else {
      const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(hang_timeout_s_));
      waits_[channel].push_back({std::move(label), std::move(receiver), Clock::now() + limit});
      return;
    }
  }
  receiver(std::move(outcome));
}

void Connection::Lose(const std::string& why) {
  std::vector<Receiver> failed;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (lost_.empty()) lost_ = why;
    for (auto& channel : waits_) {
      for (Wait& wait : channel.second) failed.push_back(std::move(wait.receiver));
    }
    waits_.clear();
    outgoing_changed_.notify_all();
  }
  for (const Receiver& receiver : failed) receiver({Outcome::kLost, {}, why});
}

std::string Connection::lost() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return lost_;
}

void Connection::EndLateWaits() {
  std::vector<Receiver> failed;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    const Clock::time_point now = Clock::now();
    for (auto channel = waits_.begin(); channel != waits_.end();) {
      std::deque<Wait>& waits = channel->second;
      while (!waits.empty() && waits.front().deadline <= now) {
        failed.push_back(std::move(waits.front().receiver));
        waits.pop_front();
      }
      channel = waits.empty() ? waits_.erase(channel) : std::next(channel);
    }
  }
  for (const Receiver& receiver : failed) receiver({Outcome::kLate, {}, {}});
}

std::string Connection::Waiting() {
  const std::lock_guard<std::mutex> guard(mutex_);
  return waits_.empty() ? "" : waits_.begin()->second.front().label;
}

bool Connection::Flush(Clock::time_point deadline) {
  std::unique_lock<std::mutex> guard(mutex_);
  return outgoing_changed_.wait_until(guard, deadline,
                                      [this] { return !lost_.empty() || (outgoing_.empty() && !writing_); });
}

void Connection::CloseInChild() { ::close(descriptor_); }

// --- the writing thread -----------------------------------------------------------------------------------------

void Connection::Write() {
  std::string error;
  while (true) {
    Outgoing next;
    {
      std::unique_lock<std::mutex> guard(mutex_);
      writing_ = false;
      outgoing_changed_.notify_all();
      outgoing_changed_.wait(guard, [this] { return !outgoing_.empty(); });
      next = std::move(outgoing_.front());
      outgoing_.pop_front();
      writing_ = true;
    }
    bool alive = error.empty();
    while (alive && next.sent < next.head.size() + next.size) alive = WriteSome(&next, 0, &error);
    next.release(next.owner);
    if (!alive) Lose(name_ + " is gone: " + error);  // and continue, to release queued messages
  }
}

// Calls sendmsg once. Returns false if the connection broke, and true with nothing sent if the call would block.
bool Connection::WriteSome(Outgoing* outgoing, int flags, std::string* error) {
  iovec parts[2];
  int count = 0;
  const std::size_t head = outgoing->head.size();
  if (outgoing->sent < head) parts[count++] = {outgoing->head.data() + outgoing->sent, head - outgoing->sent};
  const std::size_t from = outgoing->sent > head ? outgoing->sent - head : 0;
  if (from < outgoing->size) parts[count++] = {const_cast<char*>(outgoing->data) + from, outgoing->size - from};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(count);
  const ssize_t sent = ::sendmsg(descriptor_, &message, flags | MSG_NOSIGNAL);
  if (sent >= 0) {
    outgoing->sent += static_cast<std::size_t>(sent);
    return true;
  }
  if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) return true;
  *error = Reason(errno);
  return false;
}

// --- the reading thread -----------------------------------------------------------------------------------------

void Connection::Read() {
  std::string error;
  while (ReadMessage(&error)) {
  }
  Lose(name_ + " is gone: " + error);
}

bool Connection::ReadMessage(std::string* error) {
  Header header;
  if (!ReadBytes(&header, sizeof header, error)) return false;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.version != kVersion) {
    *error = "a message that does not begin as one came from it: the stream is out of step";
    return false;
  }
  Message message;
  message.dtype = header.dtype;
  message.size = header.size;
  message.shape.resize(header.dimensions);
  if (!ReadBytes(message.shape.data(), header.dimensions * sizeof(std::int64_t), error)) return false;
  void* memory = nullptr;
  if (::posix_memalign(&memory, kAlignment, std::max<std::size_t>(message.size, 1)) != 0) {
    *error = "there is no memory for a message of " + std::to_string(message.size) + " bytes";
    return false;
  }
  message.data.reset(memory);
  if (!ReadBytes(memory, message.size, error)) return false;
  Receiver receiver;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = waits_.find(header.channel);
    if (found == waits_.end()) {
      arrived_[header.channel].push_back(std::move(message));
      return true;
    }
    receiver = std::move(found->second.front().receiver);
    found->second.pop_front();
    if (found->second.empty()) waits_.erase(found);
  }
  receiver({Outcome::kMessage, std::move(message), {}});
  return true;
}

bool Connection::ReadBytes(void* to, std::size_t size, std::string* error) {
  char* at = static_cast<char*>(to);
  while (size > 0) {
    if (begin_ < end_) {
      const std::size_t part = std::min(size, end_ - begin_);
      std::memcpy(at, buffer_.get() + begin_, part);
      begin_ += part;
      at += part;
      size -= part;
      continue;
    }
    const bool directly = size >= kBufferBytes;
    const ssize_t got = ::recv(descriptor_, directly ? at : buffer_.get(), directly ? size : kBufferBytes, 0);
    if (got <= 0) {
      if (got < 0 && errno == EINTR) continue;
      *error = Reason(got == 0 ? 0 : errno);
      return false;
    }
    if (directly) {
      at += got;
      size -= static_cast<std::size_t>(got);
    } else {
      begin_ = 0;
      end_ = static_cast<std::size_t>(got);
    }
  }
  return true;
}

}  // namespace tidemill
