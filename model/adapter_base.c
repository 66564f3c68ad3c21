/* Opens a model without its adapters. */
#include "model/adapter.h"

#include "base/err.h"
#include "base/mem.h"

int model_base_open(struct model **base, const struct model *model)
{
	struct model_config config = model->config;
	struct model *m = mem_alloc(1, sizeof(*m));
	int err;

	*base = NULL;
	if (!m)
		return ERR_NOMEM;
	config.adapter_rank = 0;
	*m = *model;
	err = model_rebuild_copy(m, &config);
	if (err)
		mem_free(m);
	else
		*base = m;
	return err;
}

void model_base_close(struct model *base)
{
	if (base)
		model_tables_free(base);
	mem_free(base);
}
