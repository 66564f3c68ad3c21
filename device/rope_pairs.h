/* The pairs of elements of a head that op_rope rotates: one from each half, or neighbours. Su et al. 2021 use
 * neighbours. HuggingFace's checkpoints of Llama and GPT-NeoX use halves, those of Cohere and GLM neighbours.
 */
#ifndef FERRY_DEVICE_ROPE_PAIRS_H
#define FERRY_DEVICE_ROPE_PAIRS_H

enum rope_pairs { ROPE_HALVES, ROPE_NEIGHBOURS };

#endif
