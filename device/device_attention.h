/* Whose kernels compute bf16 attention on a GPU. */
#ifndef FERRY_DEVICE_DEVICE_ATTENTION_H
#define FERRY_DEVICE_DEVICE_ATTENTION_H

enum device_attention { DEVICE_ATTENTION_FERRY, DEVICE_ATTENTION_CUDNN };

#endif
