#include "sockets.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace tidemill {

// --- messages -------------------------------------------------------------------------------------------------------

bool Line::Receive() {
  char buffer[16 << 10];
  while (true) {
    const ssize_t got = ::recv(descriptor_, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) {
      received_.append(buffer, static_cast<std::size_t>(got));
      if (static_cast<std::size_t>(got) < sizeof buffer) return true;
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else {
      return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }
}

bool Line::Next(std::string* message) {
  std::uint32_t size = 0;
  if (received_.size() - taken_ < sizeof size) return false;
  std::memcpy(&size, received_.data() + taken_, sizeof size);
  if (received_.size() - taken_ - sizeof size < size) return false;
  message->assign(received_, taken_ + sizeof size, size);
  taken_ += sizeof size + size;
  if (taken_ == received_.size()) {
    received_.clear();
    taken_ = 0;
  }
  return true;
}

void Line::Queue(const std::string& message) {
  const std::uint32_t size = static_cast<std::uint32_t>(message.size());
  unsent_.append(reinterpret_cast<const char*>(&size), sizeof size);
  unsent_ += message;
}

bool Line::Flush() {
  while (has_unsent()) {
    const ssize_t sent =
        ::send(descriptor_, unsent_.data() + sent_, unsent_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent_ += static_cast<std::size_t>(sent);
  }
  unsent_.clear();
  sent_ = 0;
  return true;
}

// --- collectives ----------------------------------------------------------------------------------------------------

Sockets::Sockets(std::vector<int> descriptors, int rank, Watch* watch)
    : descriptors_(std::move(descriptors)), rank_(rank), watch_(watch) {}

// Each part is reduced while it passes around the ring, and the result is passed around once more.
void Sockets::Allreduce(const Collective& collective, const Pieces& pieces, int dtype, Reduction reduction,
                        double scale) {
  const std::size_t element = ElementSize(dtype);
  const std::size_t members = collective.members.size();
  const std::size_t position = static_cast<std::size_t>(collective.position);
  if (fused_.size() < pieces.total()) fused_.resize(pieces.total());
  pieces.Read(0, pieces.total(), fused_.data());
  const std::size_t part = (pieces.total() / element + members - 1) / members * element;
  const auto begin_of = [&](std::size_t index) { return std::min(pieces.total(), index % members * part); };
  const auto size_of = [&](std::size_t index) {
    return std::min(pieces.total(), (index % members + 1) * part) - begin_of(index);
  };
  if (received_.size() < part) received_.resize(part);
  const int right = collective.members[(position + 1) % members];
  const int left = collective.members[(position + members - 1) % members];
  for (std::size_t turn = 0; turn + 1 < members; ++turn) {
    const std::size_t out = position + members - turn;
    const std::size_t in = position + 2 * members - turn - 1;
    Run({{right, fused_.data() + begin_of(out), size_of(out), true}, {left, received_.data(), size_of(in), false}});
    const void* const parts[] = {received_.data(), fused_.data() + begin_of(in)};
    const bool is_last = turn + 2 == members;
    Reduce(dtype, reduction, parts, 2, size_of(in) / element, is_last ? scale : 1.0, fused_.data() + begin_of(in));
  }
  if (members == 1) {
    const void* const parts[] = {fused_.data()};
    Reduce(dtype, reduction, parts, 1, pieces.total() / element, scale, fused_.data());
  }
  for (std::size_t turn = 0; turn + 1 < members; ++turn) {
    const std::size_t out = position + 1 + members - turn;
    const std::size_t in = position + members - turn;
    Run({{right, fused_.data() + begin_of(out), size_of(out), true},
         {left, fused_.data() + begin_of(in), size_of(in), false}});
  }
  pieces.Write(0, pieces.total(), fused_.data());
}

void Sockets::Exchange(const Collective& collective, const char* own, const std::vector<std::size_t>&,
                       const std::vector<Part>& taken, const std::vector<Part>& given) {
  // One more byte in each direction, so that an exchange without data is a barrier.
  std::vector<char> marks(collective.members.size() * 2);
  std::vector<Transfer> transfers;
  for (std::size_t position = 0; position < taken.size(); ++position) {
    const int member = collective.members[position];
    if (member == rank_) {
      if (taken[position].size > 0) std::memcpy(taken[position].to, own + taken[position].begin, taken[position].size);
      continue;
    }
    transfers.push_back({member, const_cast<char*>(own) + given[position].begin, given[position].size, true});
    transfers.push_back({member, &marks[2 * position], 1, true});
    transfers.push_back({member, taken[position].to, taken[position].size, false});
    transfers.push_back({member, &marks[2 * position + 1], 1, false});
  }
  Run(std::move(transfers));
}

// Calls send or recv once. Returns whether any bytes were moved.
bool Sockets::Advance(Transfer* transfer) {
  const int descriptor = descriptors_[static_cast<std::size_t>(transfer->rank)];
  const ssize_t moved = transfer->is_sent ? ::send(descriptor, transfer->at, transfer->left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                          : ::recv(descriptor, transfer->at, transfer->left, MSG_DONTWAIT);
  if (moved > 0) {
    transfer->at += moved;
    transfer->left -= static_cast<std::size_t>(moved);
    return true;
  }
  if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  watch_->Check(transfer->rank, -1);  // throws, because the socket has ended
  return false;
}

// Completes all transfers. Several transfers to or from one rank are done in their order.
void Sockets::Run(std::vector<Transfer> transfers) {
  auto moved_at = std::chrono::steady_clock::now();
  const auto is_done = [](const Transfer& transfer) { return transfer.left == 0; };
  while (true) {
    transfers.erase(std::remove_if(transfers.begin(), transfers.end(), is_done), transfers.end());
    if (transfers.empty()) return;
    std::vector<pollfd> waits;
    bool moved = false;
    for (std::size_t place = 0; place < transfers.size(); ++place) {
      const bool is_first = std::none_of(transfers.begin(), transfers.begin() + static_cast<std::ptrdiff_t>(place),
                                         [&](const Transfer& other) {
                                           return other.rank == transfers[place].rank &&
                                                  other.is_sent == transfers[place].is_sent && other.left > 0;
                                         });
      if (!is_first) continue;
      moved = Advance(&transfers[place]) || moved;
      const short events = transfers[place].is_sent ? POLLOUT : POLLIN;
      waits.push_back({descriptors_[static_cast<std::size_t>(transfers[place].rank)], events, 0});
    }
    if (moved) {
      moved_at = std::chrono::steady_clock::now();
      continue;
    }
    if (::poll(waits.data(), waits.size(), 50) == 0) {
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - moved_at;
      watch_->Check(transfers.front().rank, waited.count());
    }
  }
}

}  // namespace tidemill
