#pragma once

#define TIDEMILL_EXPORTED extern "C" __attribute__((visibility("default")))
