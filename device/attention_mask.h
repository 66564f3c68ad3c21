/* What a token sees of its document (device/op_attention.h): itself and those before it, or those behind it
 * too.
 */
#ifndef FERRY_DEVICE_ATTENTION_MASK_H
#define FERRY_DEVICE_ATTENTION_MASK_H

enum attention_mask { MASK_CAUSAL, MASK_BIDIRECTIONAL, MASK_COUNT };

#endif
