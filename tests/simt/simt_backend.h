/* backend_cuda for the tests of ops. Before an op is queued, it tells the emulator which bytes the op may
 * access (device/op.h: op_access_list), and the emulator checks the kernels for that. Nothing else
 * differs. */
#ifndef FERRY_TESTS_SIMT_SIMT_BACKEND_H
#define FERRY_TESTS_SIMT_SIMT_BACKEND_H

#include "device/backend.h"

extern struct backend backend_simt;

#endif
