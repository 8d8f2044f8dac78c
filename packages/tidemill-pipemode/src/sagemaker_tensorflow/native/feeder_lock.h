// The lock of a channel's feeder, which the feeder holds while it lives, so that no reader waits for a dead feeder.
#pragma once

#include <string>

namespace tidemill {

// Returns why the feeder of the lock file ended; empty if it is alive or the channel has no lock file.
std::string FeederEnd(const std::string& lock_path);

// Returns whether an open file no longer has a name: it was removed, or another file was renamed over it.
bool IsRemoved(int fd);

}  // namespace tidemill
