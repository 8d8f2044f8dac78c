#include "data_path.h"

#include <algorithm>
#include <cstring>

namespace tidemill {

template <typename Visit>
void Pieces::ForEach(std::size_t begin, std::size_t size, Visit visit) const {
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                [](std::size_t at, const Piece& one) { return at < one.begin; });
  if (piece != pieces_.begin()) --piece;
  for (std::size_t done = 0; done < size && piece != pieces_.end(); ++piece) {
    const std::size_t offset = begin + done - piece->begin;
    if (offset >= piece->size) continue;  // an empty piece
    const std::size_t part = std::min(size - done, piece->size - offset);
    visit(*piece, offset, part, done);
    done += part;
  }
}

void Pieces::Read(std::size_t begin, std::size_t size, char* to) const {
  ForEach(begin, size, [to](const Piece& piece, std::size_t offset, std::size_t part, std::size_t done) {
    if (piece.from != nullptr) {
      std::memcpy(to + done, piece.from + offset, part);
    } else {
      std::memset(to + done, 0, part);
    }
  });
}

void Pieces::Write(std::size_t begin, std::size_t size, const char* from) const {
  ForEach(begin, size, [from](const Piece& piece, std::size_t offset, std::size_t part, std::size_t done) {
    if (piece.to != nullptr) std::memcpy(piece.to + offset, from + done, part);
  });
}

}  // namespace tidemill
