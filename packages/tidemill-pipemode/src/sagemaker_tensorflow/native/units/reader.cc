// Compiled as one unit, at the same time as parsers.cc.
#include "small_file.cc"
#include "feeder_lock.cc"
#include "pipe_reader.cc"
#include "ops.cc"
