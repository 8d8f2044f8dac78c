// The engine of this process, which ops and calls of arrays share.
#pragma once

#include <memory>

#include "engine.h"

namespace tidemill {

// Returns the engine; null before `hvd.init` and after `hvd.shutdown`.
std::shared_ptr<Engine> CurrentEngine();

}  // namespace tidemill
