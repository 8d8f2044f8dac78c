// Compiled together: most of the time goes into the standard headers, and two compilers at once is what the smallest
// machine can run.
#include "crc32c.cc"
#include "framing.cc"
#include "outcome.cc"
