/* The tokens of its document that a token sees: itself and earlier ones, or all (device/op_attention.h). */
#ifndef FERRY_DEVICE_ATTENTION_MASK_H
#define FERRY_DEVICE_ATTENTION_MASK_H

enum attention_mask { MASK_CAUSAL, MASK_BIDIRECTIONAL, MASK_COUNT };

#endif
