/* OLMo 3: OLMo 2 with windows in three of four blocks, and rotary settings of their own there. */
#include "model/families/families.h"

const struct model_family family_olmo3 = {
        .model_type = "olmo3",
        .base_class = "Olmo3Model",
        .causal_class = "Olmo3ForCausalLM",
        .tensors = olmo2_tensors,
        .defaults = {OLMO2_DEFAULTS},
        .window = {.read = 1, .needed = 1, .otherwise = 4096, .full_every = 4},
        .rope = {.theta_otherwise = 500000, .two_sets = 1, .local_theta_otherwise = 500000},
};
