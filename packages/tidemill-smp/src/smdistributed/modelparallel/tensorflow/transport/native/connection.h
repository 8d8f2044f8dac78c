// The connection to one rank: what goes out is queued, what comes in is handed to whoever waits for its channel.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "message.h"

namespace tidemill {

using Clock = std::chrono::steady_clock;

// How a wait for a message ended.
struct Outcome {
  enum Kind { kMessage, kLost, kLate } kind;
  Message message;
  std::string words;  // of the last two: why
};

using Receiver = std::function<void(Outcome)>;

class Connection {
 public:
  // Takes the descriptor over. Lives as long as the process: its threads do.
  Connection(int descriptor, std::string name, double hang_timeout_s);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Queues a message and returns. False, with nothing queued, if the peer is lost: then see lost().
  bool Send(Outgoing outgoing);

  // Calls `receiver` once: here if the message is there or the peer is lost, else later in a thread of this class.
  void Receive(std::uint64_t channel, std::string label, Receiver receiver);

  // Fails all that waits, now and later.
  void Lose(const std::string& why);
  std::string lost();

  // Fails waits that have lasted too long.
  void EndLateWaits();

  // What is being waited for; empty if nothing.
  std::string Waiting();

  // Whether all was written, or the peer is lost, before the deadline.
  bool Flush(Clock::time_point deadline);

  // In a forked child, which is no rank.
  void CloseInChild();

  const std::string& name() const { return name_; }
  double hang_timeout_s() const { return hang_timeout_s_; }

 private:
  struct Wait {
    std::string label;
    Receiver receiver;
    Clock::time_point deadline;
  };

  void Read();
  void Write();
  bool WriteSome(Outgoing* outgoing, int flags, std::string* error);
  bool ReadMessage(std::string* error);
  bool ReadBytes(void* to, std::size_t size, std::string* error);

  const int descriptor_;
  const std::string name_;
  const double hang_timeout_s_;

  std::mutex mutex_;
  std::condition_variable outgoing_changed_;
  std::deque<Outgoing> outgoing_;
  bool writing_ = false;
  std::unordered_map<std::uint64_t, std::deque<Message>> arrived_;
  std::unordered_map<std::uint64_t, std::deque<Wait>> waits_;
  std::string lost_;

  std::unique_ptr<char[]> buffer_;  // of the reading thread alone
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace tidemill
