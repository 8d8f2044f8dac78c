// Collectives over sockets, for ranks on several machines, and the messages to and from the coordinator.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "data_path.h"

namespace tidemill {

// Messages over a non-blocking socket, each preceded by its length.
class Line {
 public:
  explicit Line(int descriptor) : descriptor_(descriptor) {}

  // Reads the available bytes. Returns false if the other side has closed the socket, or the connection broke.
  bool Receive();
  // Moves the next complete message to `message`; returns false if there is none.
  bool Next(std::string* message);

  void Queue(const std::string& message);
  // Writes as much as the socket accepts. Returns false if the connection broke.
  bool Flush();
  bool has_unsent() const { return sent_ < unsent_.size(); }
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
  std::string received_;
  std::size_t taken_ = 0;
  std::string unsent_;
  std::size_t sent_ = 0;
};

class Sockets : public DataPath {
 public:
  // `descriptors` has a connected socket for each rank; this rank's entry is not used.
  Sockets(std::vector<int> descriptors, int rank, Watch* watch);

  void Allreduce(const Collective& collective, const Pieces& pieces, int dtype, Reduction reduction,
                 double scale) override;
  void Exchange(const Collective& collective, const char* own, const std::vector<std::size_t>& sizes,
                const std::vector<Part>& taken, const std::vector<Part>& given) override;

 private:
  struct Transfer {
    int rank;
    char* at;
    std::size_t left;
    bool is_sent;
  };
  void Run(std::vector<Transfer> transfers);
  bool Advance(Transfer* transfer);

  const std::vector<int> descriptors_;
  const int rank_;
  Watch* const watch_;
  std::vector<char> fused_;
  std::vector<char> received_;
};

}  // namespace tidemill
