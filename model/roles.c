/* Tables of tensor roles and of the parts of a model. */
#include "model/roles.h"

const struct role_facts role_facts[ROLE_COUNT] = {
#define ROLE_ROW(NAME, scope, part, kind, stage, out, in)                                                    \
	[ROLE_##NAME] = {                                                                                    \
	        #NAME, SCOPE_##scope, MODEL_PART_##part, KIND_##kind, STAGE_##stage, DIM_##out, DIM_##in},
        ROLE_LIST(ROLE_ROW)
#undef ROLE_ROW
};

enum tensor_role role_adapter(enum tensor_role matrix)
{
	switch (matrix) {
#define ROLE_ADAPTED(MATRIX, A)                                                                              \
	case ROLE_##MATRIX:                                                                                  \
		return ROLE_##A;
		ROLE_ADAPTER_LIST(ROLE_ADAPTED)
#undef ROLE_ADAPTED
	default:
		return ROLE_COUNT;
	}
}

enum tensor_role role_magnitude(enum tensor_role a)
{
	return a < ROLE_COUNT && role_facts[a + 2].kind == KIND_MAGNITUDE ? a + 2 : ROLE_COUNT;
}

int role_is_of_each_expert(enum tensor_role role)
{
	enum role_kind kind = role_facts[role].kind;

	return kind == KIND_STACK || kind == KIND_RESIDUAL_STACK || kind == KIND_BIAS_STACK ||
	       (role >= ROLE_EXPERTS_GATE_LORA_A && role <= ROLE_EXPERTS_DOWN_LORA_B);
}

const char *model_part_name(enum model_part part)
{
	static const char *const names[MODEL_PART_COUNT] = {
#define PART_NAME(NAME, text) [MODEL_PART_##NAME] = text,
	        MODEL_PART_LIST(PART_NAME)
#undef PART_NAME
	};

	return names[part];
}

const struct stage_facts stage_facts[STAGE_COUNT] = {
#define STAGE_ROW(NAME, name, scope, stands_in) {#name, SCOPE_##scope, STAGE_##stands_in},
        STAGE_LIST(STAGE_ROW)
#undef STAGE_ROW
};
