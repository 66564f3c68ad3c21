/* The one machine: the state of the launch that runs. */
#include "tests/simt/simt_machine.h"

struct machine machine;
