/* Values that stages of later layers read. */
#include "model/values.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/tables.h"

/* Makes room for one more item in an array of `count`, whose sizes are powers of two. */
static int grow(void **items, int count, size_t item_bytes)
{
	void *grown;

	if (count & (count - 1))
		return 0;
	grown = mem_resize(*items, count ? 2 * (size_t)count : 1, item_bytes);
	if (!grown)
		return ERR_NOMEM;
	*items = grown;
	return 0;
}

int config_value_add(struct model_config *c, int64_t columns, struct stage_place maker)
{
	if (grow((void **)&c->value, c->value_count, sizeof(*c->value)))
		return ERR_NOMEM;
	c->value[c->value_count] = (struct value_config){.columns = columns, .maker = maker};
	return c->value_count++;
}

int config_value_read(struct model_config *c, int value, struct stage_place reader)
{
	if (grow((void **)&c->value_reader, c->value_reader_count, sizeof(*c->value_reader)))
		return ERR_NOMEM;
	c->value_reader[c->value_reader_count++] = (struct value_reader){value, reader};
	return 0;
}

int config_value_bias(struct model_config *c)
{
	int value = config_value_add(c, 2 * c->H, (struct stage_place){STAGE_EMBED, -1}), rc = 0;

	for (int l = 0; l < c->L && value >= 0 && !rc; l++) {
		c->block[l].has_bias = 1;
		rc = config_value_read(c, value, (struct stage_place){STAGE_ATTN, l});
	}
	return value < 0 ? value : rc;
}

static int is_at(const struct model_stage *stage, struct stage_place place)
{
	return stage->kind == place.kind && stage->layer == place.layer;
}

/* Lists the stage's values: those that it makes, then those that it reads. */
static int stage_values(struct model *model, int s, int *list)
{
	const struct model_config *c = &model->config;
	int count = 0;

	for (int v = 0; v < c->value_count; v++)
		if (is_at(&model->stages[s], c->value[v].maker)) {
			model->values[v].maker = s;
			list[count++] = v;
		}
	for (int r = 0; r < c->value_reader_count; r++) {
		int v = c->value_reader[r].value;

		if (!is_at(&model->stages[s], c->value_reader[r].place))
			continue;
		if (model->values[v].maker < 0 || model->values[v].maker == s)
			return err_set(ERR_INTERNAL, "stage %d reads value %d before it is made", s, v);
		model->values[v].reader_count++;
		list[count++] = v;
	}
	return count;
}

int model_values_build(struct model *model)
{
	const struct model_config *c = &model->config;
	int readers = 0, at = 0;

	if (!c->value_count)
		return 0;
	model->values = mem_alloc((size_t)c->value_count, sizeof(*model->values));
	model->stage_value = mem_alloc(
	        (size_t)c->value_count + (size_t)c->value_reader_count, sizeof(*model->stage_value));
	if (!model->values || !model->stage_value)
		return ERR_NOMEM;
	for (int v = 0; v < c->value_count; v++)
		model->values[v] = (struct model_value){.columns = c->value[v].columns, .maker = -1};
	for (int s = 0; s < model->stage_count; s++) {
		int count = stage_values(model, s, model->stage_value + at);

		if (count < 0)
			return count;
		model->stages[s].value = model->stage_value + at;
		model->stages[s].value_count = count;
		at += count;
	}
	for (int v = 0; v < c->value_count; v++)
		readers += model->values[v].reader_count;
	if (at - readers != c->value_count || readers != c->value_reader_count)
		return err_set(ERR_INTERNAL, "a value is made or read by a stage that the model lacks");
	return 0;
}
