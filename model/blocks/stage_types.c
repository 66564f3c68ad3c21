/* The table of the kinds of stages. */
#include "model/blocks/block.h"

const struct stage_type *const stage_types[STAGE_COUNT] = {
#define STAGE_TYPE(NAME, name, scope, stands_in) &stage_##name,
        STAGE_LIST(STAGE_TYPE)
#undef STAGE_TYPE
};
