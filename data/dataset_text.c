#include "base/err.h"
#include "data/dataset_build.h"

int dataset_read_text(struct dataset_builder *b, const json_t *record)
{
	(void)record;
	return err_set(ERR_UNSUPPORTED, "%s: only the tokens format is read", b->where);
}

int dataset_read_plain(struct dataset_builder *b)
{
	return err_set(ERR_UNSUPPORTED, "%s: only the tokens format is read", b->where);
}
