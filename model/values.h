/* Values that stages of later layers read: how a family says them.
 *
 * Between groups passes the residual stream, and nothing else unless it is said here. Such a value, [tokens,
 * columns] in the compute dtype, is made by one stage and read by later ones: keys and values that several
 * layers share, a layer's part of an embedding, or a bias by distance, which is [heads, 2 tokens]
 * (device/op_attention.h). The plan keeps it until the maker's backward, and the F32
 * sum of the gradients that its readers compute.
 *
 *     int v = config_value_add(c, 2 * KV * D, (struct stage_place){STAGE_ATTN, 4});
 *     err = config_value_read(c, v, (struct stage_place){STAGE_ATTN, 6});
 */
#ifndef FERRY_MODEL_VALUES_H
#define FERRY_MODEL_VALUES_H

#include "model/model_config.h"

/* Add a value, and a stage that reads it. Return the value's number, and 0; or ERR_NOMEM. */
int config_value_add(struct model_config *c, int64_t columns, struct stage_place maker);
int config_value_read(struct model_config *c, int value, struct stage_place reader);

/* Gives attention of all blocks the bias that the embedding's stage makes of RELATIVE. 0 or ERR_NOMEM. */
int config_value_bias(struct model_config *c);

#endif
