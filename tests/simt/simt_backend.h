/* backend_cuda as the tests of ops run it: before an op is queued, the emulator is told which bytes the op
 * may touch (device/op.h: op_access_list), so that its kernels are held to them. Nothing else differs.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_BACKEND_H
#define FERRY_TESTS_SIMT_SIMT_BACKEND_H

#include "device/backend.h"

extern struct backend backend_simt;

#endif
