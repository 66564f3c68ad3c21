/* Which elements of a head op_rope turns together: the two halves of it, or neighbours. Su et al. 2021 have
 * neighbours; HuggingFace's checkpoints of Llama and GPT-NeoX have halves, those of Cohere and GLM
 * neighbours.
 */
#ifndef FERRY_DEVICE_ROPE_PAIRS_H
#define FERRY_DEVICE_ROPE_PAIRS_H

enum rope_pairs { ROPE_HALVES, ROPE_NEIGHBOURS };

#endif
