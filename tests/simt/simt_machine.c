/* The machine: the state of the running launch. */
#include "tests/simt/simt_machine.h"

struct machine machine;
