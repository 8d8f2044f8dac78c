// The connection to one rank: queues outgoing messages, and passes received messages to the receivers of their channel.
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
  std::string words;  // the reason, for kLost and kLate
};

using Receiver = std::function<void(Outcome)>;

class Connection {
 public:
  // Owns the descriptor. Lives as long as the process, because its threads do.
  Connection(int descriptor, std::string name, double hang_timeout_s);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Queues a message and returns. Returns false without queuing if the peer is lost; lost() has the reason.
  bool Send(Outgoing outgoing);

  // Calls `receiver` once: immediately if the message has arrived or the peer is lost, else later from a thread of this
  // class.
  void Receive(std::uint64_t channel, std::string label, Receiver receiver);

  // Fails all current and later operations.
  void Lose(const std::string& why);
  std::string lost();

  // Fails waits that exceed the hang timeout.
  void EndLateWaits();

  // Labels of the current waits; empty if none.
  std::string Waiting();

  // Returns whether all messages were written, or the peer was lost, before the deadline.
  bool Flush(Clock::time_point deadline);

  // Called in a forked child, which is not a rank.
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

  std::unique_ptr<char[]> buffer_;  // used by the reading thread only
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace tidemill
