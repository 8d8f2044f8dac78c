// The lock of a channel's feeder: held as long as the feeder lives, so that no reader waits for a dead one.
#pragma once

#include <string>

namespace tidemill {

// Why the feeder behind the lock file ended; empty if it lives, or if the channel has no lock file.
std::string FeederEnd(const std::string& lock_path);

// Whether an open file has no name any more: it was removed, or another one was renamed over it.
bool IsRemoved(int fd);

}  // namespace tidemill
