/* Roles of tensors: the one list of roles and their properties.
 *
 * A role is what a tensor does in a model, such as the weight of attention's first norm. A family
 * (model/families) names its tensors by role. Shapes, stages, parts, weight decay and first values follow
 * from the row here. To add a role, add a row and read the tensor in model/blocks.
 */
#ifndef FERRY_MODEL_ROLES_H
#define FERRY_MODEL_ROLES_H

/* ROW(NAME, scope, part, kind, stage, out, in)
 *
 *   scope  MODEL: one tensor; BLOCK: one in every block
 *   part   the part of the model that `ferry plan` counts it in
 *   kind   TABLE    matrix [out, in], always stored so: embeddings and heads
 *          ROWS     a TABLE of which forward looks up the rows of a micro-batch's token ids, and backward
 *                   reads nothing: only these rows need be where a stage runs
 *          MATRIX   matrix of a block, [out, in], or [in, out] if the family stores it so
 *          RESIDUAL a MATRIX that writes to the residual stream (its first values may be smaller)
 *          ADAPTER  matrix [out, in] of an adapter (model/adapter.h), always stored so; of the embedding A
 *                   is [rank, tokens]
 *          BIAS_STACK  [out, in], `out` vectors that are added: one for each expert
 *          STACK    matrices [out, in] of all experts of a block, [E, out, in], or [E, in, out]
 *          RESIDUAL_STACK  a STACK that writes to the residual stream
 *          FILTER   [out, 1, in], a filter over the tokens for each of `out` columns
 *          NORM     vector of `out` elements that scales a norm
 *          BIAS     vector of `out` elements that is added
 *          SCALAR   one number of the files that never trains (a buffer of transformers)
 *          BUFFER   vector of `out` numbers that a gradient never trains, first 0
 *          ONES     vector of `out` elements whose first values are 1
 *          RATES    vector of logarithms of decay rates
 *          MAGNITUDE  vector of norms of a matrix's rows (DoRA)
 *   stage  the kind of stage that reads it, or a kind that stands in for that one
 *   out, in  sizes, see model_dim
 *
 * TYPE are the embeddings of the first and the second text of a pair. DENSE are layers of an embedder
 * behind its pooling. POOL is a layer before the logits of classes (CLASS) or of masked words, POOL_NORM a
 * norm behind it. EMBED_NORM comes after the embedding. NORM1 and NORM2 come before attention and the MLP,
 * POST_NORM1 and POST_NORM2 after them, before the sum, or over the sum with norm_after_sum. The sigmoid of
 * ATTN_GATE's product multiplies attention's output. SINKS are one more
 * score of each head, without a value (device/op_attention.h).
 * RELATIVE has a number of each head for distances between tokens, which all attention adds to its scores.
 * INPUTS are a part of the embedding for each layer (Gemma 4 E2B), INPUT is what a layer does with its own.
 * LAYER_SCALAR multiplies the whole stream behind a block. GATE_UP has the gate's rows first, then up's.
 * EXPERTS_GATE_UP has the same of each expert, which ROUTER chooses, or EXPERTS_UP of experts without a
 * gate; ROUTER_CHOICE_B is added for the choice only. EXPERTS_IN makes a narrower input of the experts, and
 * EXPERTS_OUT takes their sum back (Nemotron 3 Super). The SHARED ones are an expert for every token, times
 * the sigmoid of SHARED_WEIGHT's product. Gemma 4 has norms of its own before its experts and its router,
 * behind the shared expert, the experts and their sum; EXPERT_SCALE multiplies an expert's weights. Latent
 * attention (DeepSeek) makes q, or k and v, by two matrices with a norm between: Q_A and Q_B, KV_A and
 * KV_B. KV_A also gives the part of a key that rotates, which all heads share; KV_B gives each head the
 * rest of its key, then its value (model/blocks/latent.c).
 * DELTA_QKV has all rows of q, of k, of v. SCAN_IN (Mamba-2) has the gate's rows, those of x, B and C, which
 * SCAN_CONV filters, and one of a step for each head. SHARED_GATE_UP is GATE_UP of the shared expert. The
 * order of rows is the order of tensors within a stage. */
#define ROLE_LIST(ROW)                                                                                       \
	ROW(EMBED, MODEL, EMBEDDING, TABLE, EMBED, VOCAB, HIDDEN)                                            \
	ROW(POSITION, MODEL, EMBEDDING, TABLE, EMBED, POSITIONS, HIDDEN)                                     \
	ROW(TYPE, MODEL, EMBEDDING, TABLE, EMBED, TYPES, HIDDEN)                                             \
	ROW(EMBED_NORM_W, MODEL, NORMS, NORM, EMBED, HIDDEN, ONE)                                            \
	ROW(EMBED_NORM_B, MODEL, NORMS, BIAS, EMBED, HIDDEN, ONE)                                            \
	ROW(RELATIVE, MODEL, ATTENTION, TABLE, EMBED, DISTANCES, ALL_HEADS)                                  \
	ROW(INPUTS_TABLE, MODEL, EMBEDDING, ROWS, INPUTS, INPUTS_VOCAB, INPUTS)                              \
	ROW(INPUTS_W, MODEL, EMBEDDING, MATRIX, INPUTS, INPUTS, HIDDEN)                                      \
	ROW(INPUTS_NORM_W, MODEL, NORMS, NORM, INPUTS, INPUT, ONE)                                           \
	ROW(NORM1_W, BLOCK, NORMS, NORM, ATTN, HIDDEN, ONE)                                                  \
	ROW(NORM1_B, BLOCK, NORMS, BIAS, ATTN, HIDDEN, ONE)                                                  \
	ROW(QKV_W, BLOCK, ATTENTION, MATRIX, ATTN, QKV, HIDDEN)                                              \
	ROW(QKV_B, BLOCK, ATTENTION, BIAS, ATTN, QKV, ONE)                                                   \
	ROW(SINKS, BLOCK, ATTENTION, BIAS, ATTN, HEADS, ONE)                                                 \
	ROW(Q_W, BLOCK, ATTENTION, MATRIX, ATTN, QUERY, HIDDEN)                                              \
	ROW(Q_B, BLOCK, ATTENTION, BIAS, ATTN, QUERY, ONE)                                                   \
	ROW(K_W, BLOCK, ATTENTION, MATRIX, ATTN, KV, HIDDEN)                                                 \
	ROW(K_B, BLOCK, ATTENTION, BIAS, ATTN, KV, ONE)                                                      \
	ROW(V_W, BLOCK, ATTENTION, MATRIX, ATTN, KV, HIDDEN)                                                 \
	ROW(V_B, BLOCK, ATTENTION, BIAS, ATTN, KV, ONE)                                                      \
	ROW(ATTN_GATE_W, BLOCK, ATTENTION, MATRIX, ATTN, Q, HIDDEN)                                          \
	ROW(Q_A_W, BLOCK, ATTENTION, MATRIX, ATTN, Q_LOW, HIDDEN)                                            \
	ROW(Q_A_B, BLOCK, ATTENTION, BIAS, ATTN, Q_LOW, ONE)                                                 \
	ROW(Q_A_NORM_W, BLOCK, NORMS, NORM, ATTN, Q_LOW, ONE)                                                \
	ROW(Q_B_W, BLOCK, ATTENTION, MATRIX, ATTN, QUERY, Q_LOW)                                             \
	ROW(KV_A_W, BLOCK, ATTENTION, MATRIX, ATTN, KV_LOW_KEY, HIDDEN)                                      \
	ROW(KV_A_B, BLOCK, ATTENTION, BIAS, ATTN, KV_LOW_KEY, ONE)                                           \
	ROW(KV_A_NORM_W, BLOCK, NORMS, NORM, ATTN, KV_LOW, ONE)                                              \
	ROW(KV_B_W, BLOCK, ATTENTION, MATRIX, ATTN, KV_HEADS, KV_LOW)                                        \
	ROW(Q_NORM_W, BLOCK, NORMS, NORM, ATTN, Q_NORM, ONE)                                                 \
	ROW(K_NORM_W, BLOCK, NORMS, NORM, ATTN, K_NORM, ONE)                                                 \
	ROW(V_NORM_W, BLOCK, NORMS, NORM, ATTN, V_NORM, ONE)                                                 \
	ROW(O_W, BLOCK, ATTENTION, RESIDUAL, ATTN, HIDDEN, Q)                                                \
	ROW(O_B, BLOCK, ATTENTION, BIAS, ATTN, HIDDEN, ONE)                                                  \
	ROW(POST_NORM1_W, BLOCK, NORMS, NORM, ATTN, HIDDEN, ONE)                                             \
	ROW(POST_NORM1_B, BLOCK, NORMS, BIAS, ATTN, HIDDEN, ONE)                                             \
	ROW(DELTA_QKV_W, BLOCK, RECURRENT, MATRIX, DELTA, DELTA_QKV, HIDDEN)                                 \
	ROW(DELTA_Z_W, BLOCK, RECURRENT, MATRIX, DELTA, DELTA_V, HIDDEN)                                     \
	ROW(DELTA_B_W, BLOCK, RECURRENT, MATRIX, DELTA, DELTA_HEADS, HIDDEN)                                 \
	ROW(DELTA_A_W, BLOCK, RECURRENT, MATRIX, DELTA, DELTA_HEADS, HIDDEN)                                 \
	ROW(CONV_W, BLOCK, RECURRENT, FILTER, DELTA, DELTA_QKV, TAPS)                                        \
	ROW(DT_BIAS, BLOCK, RECURRENT, ONES, DELTA, DELTA_HEADS, ONE)                                        \
	ROW(A_LOG, BLOCK, RECURRENT, RATES, DELTA, DELTA_HEADS, ONE)                                         \
	ROW(DELTA_NORM_W, BLOCK, NORMS, ONES, DELTA, DELTA_HEAD, ONE)                                        \
	ROW(DELTA_OUT_W, BLOCK, RECURRENT, RESIDUAL, DELTA, HIDDEN, DELTA_V)                                 \
	ROW(CONV_IN_W, BLOCK, RECURRENT, MATRIX, CONV, CONV_IN, HIDDEN)                                      \
	ROW(CONV_IN_B, BLOCK, RECURRENT, BIAS, CONV, CONV_IN, ONE)                                           \
	ROW(CONV_FILTER_W, BLOCK, RECURRENT, FILTER, CONV, HIDDEN, TAPS)                                     \
	ROW(CONV_FILTER_B, BLOCK, RECURRENT, BIAS, CONV, HIDDEN, ONE)                                        \
	ROW(CONV_OUT_W, BLOCK, RECURRENT, RESIDUAL, CONV, HIDDEN, HIDDEN)                                    \
	ROW(CONV_OUT_B, BLOCK, RECURRENT, BIAS, CONV, HIDDEN, ONE)                                           \
	ROW(SCAN_IN_W, BLOCK, RECURRENT, MATRIX, SCAN, SCAN_IN, HIDDEN)                                      \
	ROW(SCAN_IN_B, BLOCK, RECURRENT, BIAS, SCAN, SCAN_IN, ONE)                                           \
	ROW(SCAN_CONV_W, BLOCK, RECURRENT, FILTER, SCAN, DELTA_QKV, TAPS)                                    \
	ROW(SCAN_CONV_B, BLOCK, RECURRENT, BIAS, SCAN, DELTA_QKV, ONE)                                       \
	ROW(SCAN_DT_BIAS, BLOCK, RECURRENT, ONES, SCAN, DELTA_HEADS, ONE)                                    \
	ROW(SCAN_A_LOG, BLOCK, RECURRENT, RATES, SCAN, DELTA_HEADS, ONE)                                     \
	ROW(SCAN_D, BLOCK, RECURRENT, ONES, SCAN, DELTA_HEADS, ONE)                                          \
	ROW(SCAN_NORM_W, BLOCK, NORMS, ONES, SCAN, DELTA_V, ONE)                                             \
	ROW(SCAN_OUT_W, BLOCK, RECURRENT, RESIDUAL, SCAN, HIDDEN, DELTA_V)                                   \
	ROW(SCAN_OUT_B, BLOCK, RECURRENT, BIAS, SCAN, HIDDEN, ONE)                                           \
	ROW(NORM2_W, BLOCK, NORMS, NORM, UP, HIDDEN, ONE)                                                    \
	ROW(NORM2_B, BLOCK, NORMS, BIAS, UP, HIDDEN, ONE)                                                    \
	ROW(GATE_W, BLOCK, MLP, MATRIX, UP, INNER, HIDDEN)                                                   \
	ROW(GATE_B, BLOCK, MLP, BIAS, UP, INNER, ONE)                                                        \
	ROW(GATE_UP_W, BLOCK, MLP, MATRIX, UP, INNER_TWICE, HIDDEN)                                          \
	ROW(UP_W, BLOCK, MLP, MATRIX, UP, INNER, HIDDEN)                                                     \
	ROW(UP_B, BLOCK, MLP, BIAS, UP, INNER, ONE)                                                          \
	ROW(DOWN_W, BLOCK, MLP, RESIDUAL, DOWN, HIDDEN, INNER)                                               \
	ROW(DOWN_B, BLOCK, MLP, BIAS, DOWN, HIDDEN, ONE)                                                     \
	ROW(POST_NORM2_W, BLOCK, NORMS, NORM, DOWN, HIDDEN, ONE)                                             \
	ROW(POST_NORM2_B, BLOCK, NORMS, BIAS, DOWN, HIDDEN, ONE)                                             \
	ROW(EXPERTS_NORM_W, BLOCK, NORMS, NORM, EXPERTS, HIDDEN, ONE)                                        \
	ROW(ROUTER_NORM_W, BLOCK, NORMS, NORM, EXPERTS, HIDDEN, ONE)                                         \
	ROW(SHARED_POST_NORM_W, BLOCK, NORMS, NORM, EXPERTS, HIDDEN, ONE)                                    \
	ROW(EXPERTS_POST_NORM_W, BLOCK, NORMS, NORM, EXPERTS, HIDDEN, ONE)                                   \
	ROW(SUM_POST_NORM_W, BLOCK, NORMS, NORM, EXPERTS, HIDDEN, ONE)                                       \
	ROW(EXPERT_SCALE, BLOCK, EXPERTS, ONES, EXPERTS, EXPERTS, ONE)                                       \
	ROW(ROUTER_W, BLOCK, EXPERTS, MATRIX, EXPERTS, EXPERTS, HIDDEN)                                      \
	ROW(ROUTER_B, BLOCK, EXPERTS, BIAS, EXPERTS, EXPERTS, ONE)                                           \
	ROW(ROUTER_CHOICE_B, BLOCK, EXPERTS, BUFFER, EXPERTS, EXPERTS, ONE)                                  \
	ROW(EXPERTS_GATE_UP_W, BLOCK, EXPERTS, STACK, EXPERTS, EXPERT_INNER_TWICE, EXPERT_WIDTH)             \
	ROW(EXPERTS_UP_W, BLOCK, EXPERTS, STACK, EXPERTS, EXPERT_INNER, EXPERT_WIDTH)                        \
	ROW(EXPERTS_GATE_UP_B, BLOCK, EXPERTS, BIAS_STACK, EXPERTS, EXPERTS, EXPERT_INNER_TWICE)             \
	ROW(EXPERTS_DOWN_W, BLOCK, EXPERTS, RESIDUAL_STACK, EXPERTS, EXPERT_WIDTH, EXPERT_INNER)             \
	ROW(EXPERTS_DOWN_B, BLOCK, EXPERTS, BIAS_STACK, EXPERTS, EXPERTS, EXPERT_WIDTH)                      \
	ROW(SHARED_GATE_W, BLOCK, MLP, MATRIX, EXPERTS, SHARED, HIDDEN)                                      \
	ROW(SHARED_GATE_UP_W, BLOCK, MLP, MATRIX, EXPERTS, SHARED_TWICE, HIDDEN)                             \
	ROW(SHARED_UP_W, BLOCK, MLP, MATRIX, EXPERTS, SHARED, HIDDEN)                                        \
	ROW(SHARED_UP_B, BLOCK, MLP, BIAS, EXPERTS, SHARED, ONE)                                             \
	ROW(SHARED_DOWN_W, BLOCK, MLP, RESIDUAL, EXPERTS, HIDDEN, SHARED)                                    \
	ROW(SHARED_DOWN_B, BLOCK, MLP, BIAS, EXPERTS, HIDDEN, ONE)                                           \
	ROW(SHARED_WEIGHT_W, BLOCK, MLP, MATRIX, EXPERTS, ONE, HIDDEN)                                       \
	ROW(EXPERTS_IN_W, BLOCK, EXPERTS, MATRIX, EXPERTS, EXPERT_WIDTH, HIDDEN)                             \
	ROW(EXPERTS_IN_B, BLOCK, EXPERTS, BIAS, EXPERTS, EXPERT_WIDTH, ONE)                                  \
	ROW(EXPERTS_OUT_W, BLOCK, EXPERTS, RESIDUAL, EXPERTS, HIDDEN, EXPERT_WIDTH)                          \
	ROW(EXPERTS_OUT_B, BLOCK, EXPERTS, BIAS, EXPERTS, HIDDEN, ONE)                                       \
	ROW(INPUT_GATE_W, BLOCK, MLP, MATRIX, INPUT, INPUT, HIDDEN)                                          \
	ROW(INPUT_W, BLOCK, MLP, RESIDUAL, INPUT, HIDDEN, INPUT)                                             \
	ROW(POST_INPUT_NORM_W, BLOCK, NORMS, NORM, INPUT, HIDDEN, ONE)                                       \
	ROW(LAYER_SCALAR, BLOCK, NORMS, SCALAR, SCALE, ONE, ONE)                                             \
	ROW(QKV_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, HIDDEN)                                         \
	ROW(QKV_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, QKV, RANK)                                            \
	ROW(QKV_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, QKV, ONE)                                           \
	ROW(Q_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, HIDDEN)                                           \
	ROW(Q_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, QUERY, RANK)                                            \
	ROW(Q_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, QUERY, ONE)                                           \
	ROW(K_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, HIDDEN)                                           \
	ROW(K_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, KV, RANK)                                               \
	ROW(K_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, KV, ONE)                                              \
	ROW(V_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, HIDDEN)                                           \
	ROW(V_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, KV, RANK)                                               \
	ROW(V_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, KV, ONE)                                              \
	ROW(ATTN_GATE_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, HIDDEN)                                   \
	ROW(ATTN_GATE_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, Q, RANK)                                        \
	ROW(ATTN_GATE_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, Q, ONE)                                       \
	ROW(Q_A_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, HIDDEN)                                         \
	ROW(Q_A_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, Q_LOW, RANK)                                          \
	ROW(Q_A_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, Q_LOW, ONE)                                         \
	ROW(Q_B_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, Q_LOW)                                          \
	ROW(Q_B_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, QUERY, RANK)                                          \
	ROW(Q_B_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, QUERY, ONE)                                         \
	ROW(KV_A_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, HIDDEN)                                        \
	ROW(KV_A_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, KV_LOW_KEY, RANK)                                    \
	ROW(KV_A_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, KV_LOW_KEY, ONE)                                   \
	ROW(KV_B_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, KV_LOW)                                        \
	ROW(KV_B_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, KV_HEADS, RANK)                                      \
	ROW(KV_B_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, KV_HEADS, ONE)                                     \
	ROW(O_LORA_A, BLOCK, ADAPTER, ADAPTER, ATTN, RANK, Q)                                                \
	ROW(O_LORA_B, BLOCK, ADAPTER, ADAPTER, ATTN, HIDDEN, RANK)                                           \
	ROW(O_LORA_M, BLOCK, ADAPTER, MAGNITUDE, ATTN, HIDDEN, ONE)                                          \
	ROW(DELTA_QKV_LORA_A, BLOCK, ADAPTER, ADAPTER, DELTA, RANK, HIDDEN)                                  \
	ROW(DELTA_QKV_LORA_B, BLOCK, ADAPTER, ADAPTER, DELTA, DELTA_QKV, RANK)                               \
	ROW(DELTA_QKV_LORA_M, BLOCK, ADAPTER, MAGNITUDE, DELTA, DELTA_QKV, ONE)                              \
	ROW(DELTA_Z_LORA_A, BLOCK, ADAPTER, ADAPTER, DELTA, RANK, HIDDEN)                                    \
	ROW(DELTA_Z_LORA_B, BLOCK, ADAPTER, ADAPTER, DELTA, DELTA_V, RANK)                                   \
	ROW(DELTA_Z_LORA_M, BLOCK, ADAPTER, MAGNITUDE, DELTA, DELTA_V, ONE)                                  \
	ROW(DELTA_B_LORA_A, BLOCK, ADAPTER, ADAPTER, DELTA, RANK, HIDDEN)                                    \
	ROW(DELTA_B_LORA_B, BLOCK, ADAPTER, ADAPTER, DELTA, DELTA_HEADS, RANK)                               \
	ROW(DELTA_B_LORA_M, BLOCK, ADAPTER, MAGNITUDE, DELTA, DELTA_HEADS, ONE)                              \
	ROW(DELTA_A_LORA_A, BLOCK, ADAPTER, ADAPTER, DELTA, RANK, HIDDEN)                                    \
	ROW(DELTA_A_LORA_B, BLOCK, ADAPTER, ADAPTER, DELTA, DELTA_HEADS, RANK)                               \
	ROW(DELTA_A_LORA_M, BLOCK, ADAPTER, MAGNITUDE, DELTA, DELTA_HEADS, ONE)                              \
	ROW(DELTA_OUT_LORA_A, BLOCK, ADAPTER, ADAPTER, DELTA, RANK, DELTA_V)                                 \
	ROW(DELTA_OUT_LORA_B, BLOCK, ADAPTER, ADAPTER, DELTA, HIDDEN, RANK)                                  \
	ROW(DELTA_OUT_LORA_M, BLOCK, ADAPTER, MAGNITUDE, DELTA, HIDDEN, ONE)                                 \
	ROW(CONV_IN_LORA_A, BLOCK, ADAPTER, ADAPTER, CONV, RANK, HIDDEN)                                     \
	ROW(CONV_IN_LORA_B, BLOCK, ADAPTER, ADAPTER, CONV, CONV_IN, RANK)                                    \
	ROW(CONV_IN_LORA_M, BLOCK, ADAPTER, MAGNITUDE, CONV, CONV_IN, ONE)                                   \
	ROW(CONV_OUT_LORA_A, BLOCK, ADAPTER, ADAPTER, CONV, RANK, HIDDEN)                                    \
	ROW(CONV_OUT_LORA_B, BLOCK, ADAPTER, ADAPTER, CONV, HIDDEN, RANK)                                    \
	ROW(CONV_OUT_LORA_M, BLOCK, ADAPTER, MAGNITUDE, CONV, HIDDEN, ONE)                                   \
	ROW(SCAN_IN_LORA_A, BLOCK, ADAPTER, ADAPTER, SCAN, RANK, HIDDEN)                                     \
	ROW(SCAN_IN_LORA_B, BLOCK, ADAPTER, ADAPTER, SCAN, SCAN_IN, RANK)                                    \
	ROW(SCAN_IN_LORA_M, BLOCK, ADAPTER, MAGNITUDE, SCAN, SCAN_IN, ONE)                                   \
	ROW(SCAN_OUT_LORA_A, BLOCK, ADAPTER, ADAPTER, SCAN, RANK, DELTA_V)                                   \
	ROW(SCAN_OUT_LORA_B, BLOCK, ADAPTER, ADAPTER, SCAN, HIDDEN, RANK)                                    \
	ROW(SCAN_OUT_LORA_M, BLOCK, ADAPTER, MAGNITUDE, SCAN, HIDDEN, ONE)                                   \
	ROW(GATE_LORA_A, BLOCK, ADAPTER, ADAPTER, UP, RANK, HIDDEN)                                          \
	ROW(GATE_LORA_B, BLOCK, ADAPTER, ADAPTER, UP, INNER, RANK)                                           \
	ROW(GATE_LORA_M, BLOCK, ADAPTER, MAGNITUDE, UP, INNER, ONE)                                          \
	ROW(GATE_UP_LORA_A, BLOCK, ADAPTER, ADAPTER, UP, RANK, HIDDEN)                                       \
	ROW(GATE_UP_LORA_B, BLOCK, ADAPTER, ADAPTER, UP, INNER_TWICE, RANK)                                  \
	ROW(GATE_UP_LORA_M, BLOCK, ADAPTER, MAGNITUDE, UP, INNER_TWICE, ONE)                                 \
	ROW(UP_LORA_A, BLOCK, ADAPTER, ADAPTER, UP, RANK, HIDDEN)                                            \
	ROW(UP_LORA_B, BLOCK, ADAPTER, ADAPTER, UP, INNER, RANK)                                             \
	ROW(UP_LORA_M, BLOCK, ADAPTER, MAGNITUDE, UP, INNER, ONE)                                            \
	ROW(DOWN_LORA_A, BLOCK, ADAPTER, ADAPTER, DOWN, RANK, INNER)                                         \
	ROW(DOWN_LORA_B, BLOCK, ADAPTER, ADAPTER, DOWN, HIDDEN, RANK)                                        \
	ROW(DOWN_LORA_M, BLOCK, ADAPTER, MAGNITUDE, DOWN, HIDDEN, ONE)                                       \
	ROW(EXPERTS_GATE_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERT_RANKS, EXPERT_WIDTH)               \
	ROW(EXPERTS_GATE_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERT_INNERS, RANK)                      \
	ROW(EXPERTS_UP_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERT_RANKS, EXPERT_WIDTH)                 \
	ROW(EXPERTS_UP_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERT_INNERS, RANK)                        \
	ROW(EXPERTS_GATE_UP_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERT_RANKS, EXPERT_WIDTH)            \
	ROW(EXPERTS_GATE_UP_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERT_INNERS_TWICE, RANK)             \
	ROW(EXPERTS_DOWN_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERT_RANKS, EXPERT_INNER)               \
	ROW(EXPERTS_DOWN_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERT_HIDDENS, RANK)                     \
	ROW(SHARED_GATE_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, RANK, HIDDEN)                              \
	ROW(SHARED_GATE_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, SHARED, RANK)                              \
	ROW(SHARED_GATE_LORA_M, BLOCK, ADAPTER, MAGNITUDE, EXPERTS, SHARED, ONE)                             \
	ROW(SHARED_GATE_UP_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, RANK, HIDDEN)                           \
	ROW(SHARED_GATE_UP_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, SHARED_TWICE, RANK)                     \
	ROW(SHARED_GATE_UP_LORA_M, BLOCK, ADAPTER, MAGNITUDE, EXPERTS, SHARED_TWICE, ONE)                    \
	ROW(SHARED_UP_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, RANK, HIDDEN)                                \
	ROW(SHARED_UP_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, SHARED, RANK)                                \
	ROW(SHARED_UP_LORA_M, BLOCK, ADAPTER, MAGNITUDE, EXPERTS, SHARED, ONE)                               \
	ROW(SHARED_DOWN_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, RANK, SHARED)                              \
	ROW(SHARED_DOWN_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, HIDDEN, RANK)                              \
	ROW(SHARED_DOWN_LORA_M, BLOCK, ADAPTER, MAGNITUDE, EXPERTS, HIDDEN, ONE)                             \
	ROW(SHARED_WEIGHT_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, RANK, HIDDEN)                            \
	ROW(SHARED_WEIGHT_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, ONE, RANK)                               \
	ROW(SHARED_WEIGHT_LORA_M, BLOCK, ADAPTER, MAGNITUDE, EXPERTS, ONE, ONE)                              \
	ROW(EXPERTS_IN_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, RANK, HIDDEN)                               \
	ROW(EXPERTS_IN_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERT_WIDTH, RANK)                         \
	ROW(EXPERTS_IN_LORA_M, BLOCK, ADAPTER, MAGNITUDE, EXPERTS, EXPERT_WIDTH, ONE)                        \
	ROW(EXPERTS_OUT_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, RANK, EXPERT_WIDTH)                        \
	ROW(EXPERTS_OUT_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, HIDDEN, RANK)                              \
	ROW(EXPERTS_OUT_LORA_M, BLOCK, ADAPTER, MAGNITUDE, EXPERTS, HIDDEN, ONE)                             \
	ROW(ROUTER_LORA_A, BLOCK, ADAPTER, ADAPTER, EXPERTS, RANK, HIDDEN)                                   \
	ROW(ROUTER_LORA_B, BLOCK, ADAPTER, ADAPTER, EXPERTS, EXPERTS, RANK)                                  \
	ROW(ROUTER_LORA_M, BLOCK, ADAPTER, MAGNITUDE, EXPERTS, EXPERTS, ONE)                                 \
	ROW(INPUT_GATE_LORA_A, BLOCK, ADAPTER, ADAPTER, INPUT, RANK, HIDDEN)                                 \
	ROW(INPUT_GATE_LORA_B, BLOCK, ADAPTER, ADAPTER, INPUT, INPUT, RANK)                                  \
	ROW(INPUT_GATE_LORA_M, BLOCK, ADAPTER, MAGNITUDE, INPUT, INPUT, ONE)                                 \
	ROW(INPUT_LORA_A, BLOCK, ADAPTER, ADAPTER, INPUT, RANK, INPUT)                                       \
	ROW(INPUT_LORA_B, BLOCK, ADAPTER, ADAPTER, INPUT, HIDDEN, RANK)                                      \
	ROW(INPUT_LORA_M, BLOCK, ADAPTER, MAGNITUDE, INPUT, HIDDEN, ONE)                                     \
	ROW(EMBED_LORA_A, MODEL, ADAPTER, ADAPTER, EMBED, RANK, VOCAB)                                       \
	ROW(EMBED_LORA_B, MODEL, ADAPTER, ADAPTER, EMBED, HIDDEN, RANK)                                      \
	ROW(HEAD_LORA_A, MODEL, ADAPTER, ADAPTER, HEAD, RANK, HIDDEN)                                        \
	ROW(HEAD_LORA_B, MODEL, ADAPTER, ADAPTER, HEAD, VOCAB, RANK)                                         \
	ROW(HEAD_LORA_M, MODEL, ADAPTER, MAGNITUDE, HEAD, VOCAB, ONE)                                        \
	ROW(FINAL_NORM_W, MODEL, NORMS, NORM, HEAD, HIDDEN, ONE)                                             \
	ROW(FINAL_NORM_B, MODEL, NORMS, BIAS, HEAD, HIDDEN, ONE)                                             \
	ROW(DENSE1_W, MODEL, POOLER, TABLE, HEAD, DENSE_OUT, DENSE_IN)                                       \
	ROW(DENSE1_B, MODEL, POOLER, BIAS, HEAD, DENSE_OUT, ONE)                                             \
	ROW(DENSE2_W, MODEL, POOLER, TABLE, HEAD, DENSE_OUT, DENSE_IN)                                       \
	ROW(DENSE2_B, MODEL, POOLER, BIAS, HEAD, DENSE_OUT, ONE)                                             \
	ROW(DENSE3_W, MODEL, POOLER, TABLE, HEAD, DENSE_OUT, DENSE_IN)                                       \
	ROW(DENSE3_B, MODEL, POOLER, BIAS, HEAD, DENSE_OUT, ONE)                                             \
	ROW(DENSE4_W, MODEL, POOLER, TABLE, HEAD, DENSE_OUT, DENSE_IN)                                       \
	ROW(DENSE4_B, MODEL, POOLER, BIAS, HEAD, DENSE_OUT, ONE)                                             \
	ROW(POOL_W, MODEL, POOLER, TABLE, HEAD, HIDDEN, HIDDEN)                                              \
	ROW(POOL_B, MODEL, POOLER, BIAS, HEAD, HIDDEN, ONE)                                                  \
	ROW(POOL_NORM_W, MODEL, NORMS, NORM, HEAD, HIDDEN, ONE)                                              \
	ROW(POOL_NORM_B, MODEL, NORMS, BIAS, HEAD, HIDDEN, ONE)                                              \
	ROW(CLASS_W, MODEL, HEAD, TABLE, HEAD, LABELS, HIDDEN)                                               \
	ROW(CLASS_B, MODEL, HEAD, BIAS, HEAD, LABELS, ONE)                                                   \
	ROW(HEAD_W, MODEL, HEAD, TABLE, HEAD, VOCAB, HIDDEN)                                                 \
	ROW(HEAD_B, MODEL, HEAD, BIAS, HEAD, VOCAB, ONE)

enum tensor_role {
#define ROLE_ENUM(NAME, scope, part, kind, stage, out, in) ROLE_##NAME,
	ROLE_LIST(ROLE_ENUM)
#undef ROLE_ENUM
	        ROLE_COUNT
};

enum role_scope { SCOPE_MODEL, SCOPE_BLOCK };
enum role_kind {
	KIND_TABLE,
	KIND_ROWS,
	KIND_MATRIX,
	KIND_RESIDUAL,
	KIND_ADAPTER,
	KIND_BIAS_STACK,
	KIND_STACK, /* the first of three dimensions; kinds before it have two */
	KIND_RESIDUAL_STACK,
	KIND_FILTER, /* the last of three dimensions; kinds behind it have one */
	KIND_NORM,
	KIND_BIAS,
	KIND_SCALAR,
	KIND_BUFFER,
	KIND_ONES,
	KIND_RATES,
	KIND_MAGNITUDE
};

/* PART(NAME, "as plan prints it") */
#define MODEL_PART_LIST(PART)                                                                                \
	PART(EMBEDDING, "embedding")                                                                         \
	PART(ATTENTION, "attention")                                                                         \
	PART(RECURRENT, "recurrent")                                                                         \
	PART(MLP, "mlp")                                                                                     \
	PART(EXPERTS, "experts")                                                                             \
	PART(NORMS, "norms")                                                                                 \
	PART(POOLER, "pooler")                                                                               \
	PART(HEAD, "head")                                                                                   \
	PART(ADAPTER, "adapter")

enum model_part {
#define PART_ENUM(NAME, text) MODEL_PART_##NAME,
	MODEL_PART_LIST(PART_ENUM)
#undef PART_ENUM
	        MODEL_PART_COUNT
};
const char *model_part_name(enum model_part part);

/* Matrices that may have an adapter. ADAPTED(matrix, A). Of experts' gate and up A is the gate's; up's A and
 * B follow the gate's, then those of both together. */
#define ROLE_ADAPTER_LIST(ADAPTED)                                                                           \
	ADAPTED(QKV_W, QKV_LORA_A)                                                                           \
	ADAPTED(Q_W, Q_LORA_A)                                                                               \
	ADAPTED(K_W, K_LORA_A)                                                                               \
	ADAPTED(V_W, V_LORA_A)                                                                               \
	ADAPTED(ATTN_GATE_W, ATTN_GATE_LORA_A)                                                               \
	ADAPTED(Q_A_W, Q_A_LORA_A)                                                                           \
	ADAPTED(Q_B_W, Q_B_LORA_A)                                                                           \
	ADAPTED(KV_A_W, KV_A_LORA_A)                                                                         \
	ADAPTED(KV_B_W, KV_B_LORA_A)                                                                         \
	ADAPTED(O_W, O_LORA_A)                                                                               \
	ADAPTED(DELTA_QKV_W, DELTA_QKV_LORA_A)                                                               \
	ADAPTED(DELTA_Z_W, DELTA_Z_LORA_A)                                                                   \
	ADAPTED(DELTA_B_W, DELTA_B_LORA_A)                                                                   \
	ADAPTED(DELTA_A_W, DELTA_A_LORA_A)                                                                   \
	ADAPTED(DELTA_OUT_W, DELTA_OUT_LORA_A)                                                               \
	ADAPTED(CONV_IN_W, CONV_IN_LORA_A)                                                                   \
	ADAPTED(CONV_OUT_W, CONV_OUT_LORA_A)                                                                 \
	ADAPTED(SCAN_IN_W, SCAN_IN_LORA_A)                                                                   \
	ADAPTED(SCAN_OUT_W, SCAN_OUT_LORA_A)                                                                 \
	ADAPTED(GATE_W, GATE_LORA_A)                                                                         \
	ADAPTED(GATE_UP_W, GATE_UP_LORA_A)                                                                   \
	ADAPTED(UP_W, UP_LORA_A)                                                                             \
	ADAPTED(DOWN_W, DOWN_LORA_A)                                                                         \
	ADAPTED(ROUTER_W, ROUTER_LORA_A)                                                                     \
	ADAPTED(EXPERTS_GATE_UP_W, EXPERTS_GATE_LORA_A)                                                      \
	ADAPTED(EXPERTS_UP_W, EXPERTS_UP_LORA_A)                                                             \
	ADAPTED(EXPERTS_DOWN_W, EXPERTS_DOWN_LORA_A)                                                         \
	ADAPTED(SHARED_GATE_W, SHARED_GATE_LORA_A)                                                           \
	ADAPTED(SHARED_GATE_UP_W, SHARED_GATE_UP_LORA_A)                                                     \
	ADAPTED(SHARED_UP_W, SHARED_UP_LORA_A)                                                               \
	ADAPTED(SHARED_DOWN_W, SHARED_DOWN_LORA_A)                                                           \
	ADAPTED(SHARED_WEIGHT_W, SHARED_WEIGHT_LORA_A)                                                       \
	ADAPTED(EXPERTS_IN_W, EXPERTS_IN_LORA_A)                                                             \
	ADAPTED(EXPERTS_OUT_W, EXPERTS_OUT_LORA_A)                                                           \
	ADAPTED(INPUT_GATE_W, INPUT_GATE_LORA_A)                                                             \
	ADAPTED(INPUT_W, INPUT_LORA_A)                                                                       \
	ADAPTED(EMBED, EMBED_LORA_A)                                                                         \
	ADAPTED(HEAD_W, HEAD_LORA_A)

/* The kinds of stages: the one list of them.
 *
 *   STAGE(NAME, name, scope, stands_in)
 *
 *   name       as `ferry plan` prints it; the row of its functions is stage_name (model/blocks/block.h)
 *   scope      BLOCK: of blocks; MODEL: outside, before or after the blocks as in this list
 *   stands_in  the kind whose tensors it reads in a block that lacks that kind
 *
 * A block has the stages that its family lists (struct block_config), else those of this list for which it
 * has a matrix or a scalar, in this order. Where experts are divided, ROUTER, a PART for some experts after
 * others, and SUM stand for EXPERTS. */
#define STAGE_LIST(STAGE)                                                                                    \
	STAGE(EMBED, embed, MODEL, EMBED)                                                                    \
	STAGE(INPUTS, inputs, MODEL, INPUTS)                                                                 \
	STAGE(ATTN, attn, BLOCK, ATTN)                                                                       \
	STAGE(DELTA, delta, BLOCK, ATTN)                                                                     \
	STAGE(CONV, conv, BLOCK, ATTN)                                                                       \
	STAGE(SCAN, scan, BLOCK, ATTN)                                                                       \
	STAGE(UP, up, BLOCK, UP)                                                                             \
	STAGE(DOWN, down, BLOCK, DOWN)                                                                       \
	STAGE(EXPERTS, experts, BLOCK, UP)                                                                   \
	STAGE(ROUTER, router, BLOCK, UP)                                                                     \
	STAGE(PART, part, BLOCK, PART)                                                                       \
	STAGE(SUM, sum, BLOCK, SUM)                                                                          \
	STAGE(INPUT, input, BLOCK, INPUT)                                                                    \
	STAGE(SCALE, scale, BLOCK, SCALE)                                                                    \
	STAGE(HEAD, head, MODEL, HEAD)

enum stage_kind {
#define STAGE_ENUM(NAME, name, scope, stands_in) STAGE_##NAME,
	STAGE_LIST(STAGE_ENUM)
#undef STAGE_ENUM
	        STAGE_COUNT
};

/* Sizes from config.json. Q, KV and QKV are the dims of all heads together; QUERY has those of q's gate too.
 * Q_LOW and KV_LOW are the ranks of latent attention, with the key that heads share KV_LOW_KEY.
 * DELTA_HEAD is one head of v, of which there are DELTA_HEADS; the same of x of a scan. */
enum model_dim {
	DIM_ONE,
	DIM_VOCAB,
	DIM_HIDDEN,
	DIM_POSITIONS,
	DIM_TYPES,
	DIM_LABELS,
	DIM_DENSE_OUT,
	DIM_DENSE_IN,
	DIM_HEADS,
	DIM_ALL_HEADS,
	DIM_DISTANCES,
	DIM_Q,
	DIM_Q_LOW,
	DIM_KV_LOW,
	DIM_KV_LOW_KEY,
	DIM_KV_HEADS,
	DIM_QUERY,
	DIM_KV,
	DIM_QKV,
	DIM_Q_NORM,
	DIM_K_NORM,
	DIM_V_NORM,
	DIM_INNER,
	DIM_INNER_TWICE,
	DIM_EXPERTS,
	DIM_EXPERT_INNER,
	DIM_EXPERT_INNER_TWICE,
	DIM_EXPERT_RANKS,
	DIM_EXPERT_INNERS,
	DIM_EXPERT_INNERS_TWICE,
	DIM_EXPERT_HIDDENS,
	DIM_EXPERT_WIDTH,
	DIM_SHARED,
	DIM_SHARED_TWICE,
	DIM_DELTA_QKV,
	DIM_DELTA_V,
	DIM_DELTA_HEADS,
	DIM_DELTA_HEAD,
	DIM_CONV_IN,
	DIM_TAPS,
	DIM_SCAN_IN,
	DIM_INPUTS_VOCAB,
	DIM_INPUTS,
	DIM_INPUT,
	DIM_RANK
};

struct role_facts {
	const char *name; /* "EMBED": for internal messages and tests */
	enum role_scope scope;
	enum model_part part;
	enum role_kind kind;
	enum stage_kind stage;
	enum model_dim out, in;
};
/* The A of a matrix's adapter; B is the next role. ROLE_COUNT: such a matrix has none. */
enum tensor_role role_adapter(enum tensor_role matrix);

/* The magnitudes beside an A. ROLE_COUNT: there are none, of experts and of the embedding. */
enum tensor_role role_magnitude(enum tensor_role a);

extern const struct role_facts role_facts[ROLE_COUNT];

/* 1: A of an adapter, not B. */
static inline int role_is_a(enum tensor_role role)
{
	return role_facts[role].kind == KIND_ADAPTER &&
	       (role_facts[role].out == DIM_RANK || role_facts[role].out == DIM_EXPERT_RANKS);
}

/* 1: it has a matrix or a vector of each expert, one after the other; of an adapter too. */
int role_is_of_each_expert(enum tensor_role role);

/* 0: a gradient never trains such a tensor. */
static inline int role_trains(enum tensor_role role)
{
	return role_facts[role].kind != KIND_SCALAR && role_facts[role].kind != KIND_BUFFER;
}

struct stage_facts {
	const char *name; /* "embed", "attn", ... */
	enum role_scope scope;
	enum stage_kind stands_in;
};
extern const struct stage_facts stage_facts[STAGE_COUNT];

#endif
