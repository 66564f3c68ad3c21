/* Turns keys into the options of an engine. */
#include "placement/options.h"

#include "placement/ranks.h"

#include "comm/world.h"
#include "model/blocks/blocks.h"

struct objective_use objective_of_config(const struct config *c)
{
	struct objective_use use = {.type = objectives[0]};

	for (int i = 1; i < objective_count && use.type == objectives[0]; i++) {
		int number = (int)config_number(c, objectives[i]->keys[0]), by = objectives[i]->chosen_by;

		if (by ? number == by : number != 0)
			use.type = objectives[i];
	}
	for (int i = 0; use.type->keys && use.type->keys[i]; i++)
		use.settings[i] = config_number(c, use.type->keys[i]);
	for (int i = 0; i < OBJECTIVE_LISTS_MAX && use.type->lists[i]; i++)
		use.lists[i].count = config_numbers(
		        use.lists[i].value, OBJECTIVE_LIST_MAX, config_text(c, use.type->lists[i]));
	return use;
}

void options_of_config(
        struct engine_options *o, const struct config *c, const struct machine *machine, int micro_batches)
{
	static const struct {
		enum activation_policy policy;
		enum acts_level level;
	} activations[] = {
	        [CONFIG_ACTIVATIONS_RECOMPUTE] = {ACTIVATION_RECOMPUTE, ACTS_ALL},
	        [CONFIG_ACTIVATIONS_KEEP] = {ACTIVATION_KEEP, ACTS_ALL},
	        [CONFIG_ACTIVATIONS_ATTENTION] = {ACTIVATION_KEEP, ACTS_MIXED},
	        [CONFIG_ACTIVATIONS_QKV] = {ACTIVATION_KEEP, ACTS_PROJECTED},
	        [CONFIG_ACTIVATIONS_PRODUCTS] = {ACTIVATION_KEEP, ACTS_PRODUCTS},
	        [CONFIG_ACTIVATIONS_OFFLOAD] = {ACTIVATION_OFFLOAD, ACTS_ALL},
	        [CONFIG_ACTIVATIONS_AUTO] = {ACTIVATION_RECOMPUTE, ACTS_ALL},
	};
	static const enum backward_prefetch prefetch[] = {
	        [CONFIG_BACKWARD_PREFETCH_PRE] = BACKWARD_PREFETCH_PRE,
	        [CONFIG_BACKWARD_PREFETCH_POST] = BACKWARD_PREFETCH_POST,
	        [CONFIG_BACKWARD_PREFETCH_NONE] = BACKWARD_PREFETCH_NONE,
	};
	static const enum wrap_policy wrap[] = {
	        [CONFIG_WRAP_POLICY_TRANSFORMER] = WRAP_TRANSFORMER,
	        [CONFIG_WRAP_POLICY_SIZE] = WRAP_SIZE,
	        [CONFIG_WRAP_POLICY_NONE] = WRAP_NONE,
	};
	int offload = c->cpu_offload == CONFIG_AUTO ? CONFIG_OFFLOAD_ON : c->cpu_offload;
	int trains = c->verb == VERB_TRAIN || c->verb == VERB_PLAN;

	*o = (struct engine_options){
	        .wrap = wrap[c->wrap_policy],
	        .min_num_params = c->min_num_params,
	        .rank = world_self()->rank,
	        .world_size = ranks_in_world(c, machine, world_self()),
	        .policy =
	                {
	                        .inference = !trains,
	                        .objective = objective_of_config(c),
	                        .neftune_alpha = c->neftune_noise_alpha,
	                        .offload_params = !!(offload & CONFIG_OFFLOAD_PARAMS),
	                        .offload_gradients = !!(offload & CONFIG_OFFLOAD_GRADIENTS),
	                        .offload_optimizer = !!(offload & CONFIG_OFFLOAD_OPTIMIZER),
	                        .activations = activations[c->activations].policy,
	                        .kept_level = activations[c->activations].level,
	                        .order = c->schedule == CONFIG_SCHEDULE_LAYER_MAJOR ? ORDER_LAYER_MAJOR
	                                                                            : ORDER_MICRO_BATCH_MAJOR,
	                        .backward_prefetch = prefetch[c->backward_prefetch],
	                        .forward_prefetch = c->forward_prefetch,
	                        .prefetch_units = c->prefetch_units == CONFIG_AUTO ? CONFIG_PREFETCH_UNITS
	                                                                           : (int)c->prefetch_units,
	                        .update_in_backward =
	                                c->max_grad_norm == 0 && !c->skip_nonfinite && !c->dump_gradients,
	                        .discard = c->stream_delay_seed != 0,
	                        .compute_dtype = (enum dtype)config_stage_dtype(c),
	                        .gradient_dtype = (enum dtype)c->gradient_dtype,
	                        .reduce_dtype = (enum dtype)c->reduce_dtype,
	                        .state = (enum adamw_state)c->optimizer_state,
	                        .micro_batches = trains ? micro_batches : 1,
	                },
	        .adamw = {c->adam_beta1, c->adam_beta2, c->adam_epsilon, c->weight_decay, (uint64_t)c->seed},
	        .loraplus_ratio = c->loraplus_lr_ratio,
	        .max_grad_norm = c->max_grad_norm,
	        .skip_nonfinite = c->skip_nonfinite,
	        .crossing = c->pin_memory ? SLAB_PINNED : SLAB_PAGEABLE,
	};
}

int options_keep_nothing(const struct engine_options *o)
{
	const struct plan_policy *p = &o->policy;
	int64_t bytes = 0;

	if (p->inference || p->activations != ACTIVATION_KEEP || p->kept_level == ACTS_ALL)
		return 0;
	for (int g = 0; g < o->model->group_count; g++)
		bytes += model_kept_bytes(o->model, g, p->kept_level, p->compute_dtype, 1);
	return !bytes;
}
