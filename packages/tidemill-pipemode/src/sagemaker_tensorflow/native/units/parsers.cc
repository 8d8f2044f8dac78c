// Compiled as one unit, because most of the time goes into the standard headers. There are two units, so that a machine
// with two cores compiles both at once.
#include "crc32c.cc"
#include "framing.cc"
#include "outcome.cc"
