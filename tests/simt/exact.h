/* Square root and quotient of kernels, computed from values that a GPU approximates (gpu/adamw_usual.cuh). */
#ifndef FERRY_TESTS_SIMT_EXACT_H
#define FERRY_TESTS_SIMT_EXACT_H

#ifdef __cplusplus
extern "C" {
#endif

float exact_root(float v, float root);
float exact_quotient(float m, float d, float inverse);

#ifdef __cplusplus
}
#endif

#endif
